"""Reduce-scatter: a share of the result for each rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.algorithms.primitives import ReducingLink, Steps
from zccl.algorithms.ring import ring_reduce_scatter
from zccl.arrays import given_result, given_room, is_on_device
from zccl.codecs.places import Place, Runs
from zccl.collectives.calling import Asked, collective, persistent, started
from zccl.collectives.reducing import Family, ReadyReduction
from zccl.collectives.reduction import HostTwin, Reduction, Settings, given_input, signature
from zccl.collectives.running import native
from zccl.ops import Op
from zccl.options import Options
from zccl.plan import covering_parts, share_runs
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array


@collective
def reduce_scatter(
    sendbuf: Any,
    recvbuf: Array | None = None,
    recvcounts: Sequence[int] | None = None,
    op: MPI.Op | Op = MPI.SUM,
    comm: MPI.Intracomm | None = None,
    *,
    error_bound: float | None = None,
    mode: str = "abs",
    algorithm: str = "auto",
    stream: Any = None,
    return_info: bool = False,
    options: Options | None = None,
) -> Asked:
    """Reduce an array over all ranks and give each rank its share of the flattened result.

    Collective: all ranks call it with arrays of the same shape and dtype and with the same
    arguments. A fault on any rank is raised on all of them before data moves.

    Parameters
    ----------
    sendbuf : ndarray, device array or MPI.IN_PLACE
        This rank's array; see `allreduce`. With `MPI.IN_PLACE` the input is taken from `recvbuf`,
        and the share of the result put at its beginning.
    recvbuf : ndarray or device array, optional
        Filled with this rank's share and returned: of its size in any shape, same dtype, any
        layout, writeable, on the host or the GPU where the input is.
    recvcounts : sequence of int, optional
        Elements of each rank's share, the same on all ranks. None splits evenly: the first ranks
        get one more where it does not come out even.
    op : MPI.Op or zccl.SUM, zccl.AVG, zccl.MAX, zccl.MIN
        The operation. With a bound: SUM, AVG (the sum divided by the number of ranks), MAX and MIN.
    comm : MPI.Intracomm, optional
        Communicator, `MPI.COMM_WORLD` by default. zccl talks on a private duplicate of it.
    error_bound : float, optional
        Largest absolute difference of each element of the result (each component of a complex one)
        from the exact result on the given inputs, up to one rounding to the dtype. None: exact, by
        the native collective. 0: exact, by zccl's own algorithms.
    mode : {"abs", "rel"}
        Whether the bound is a number in the unit of the array, or a fraction of the value range
        (largest minus smallest finite value) of all ranks' inputs; a range of 0 makes the result
        exact.
    algorithm : {"auto", "ring", "native"}
        "native" is MPI's own collective, always exact. "auto" takes it where compression would not
        pay.
    stream : int, or a stream of CuPy, Numba or PyTorch, optional
        For arrays on GPUs: where the work is ordered, CuPy's current stream by default. The result
        is ready when the stream is. Must be None for host arrays.
    return_info : bool
        Whether to return how the call went, too.
    options : Options, optional
        Everything else; see `zccl.Options`.

    Returns
    -------
    ndarray
        The share, 1-D, or `recvbuf` if that was given; a view of its beginning with `MPI.IN_PLACE`.
        Its bits are those of the same elements of `allreduce`, except in tiles so full of escapes
        that they travel raw: those are summed in the order of the algorithm.
    Info
        Only with `return_info=True`.

    Raises
    ------
    TypeError
        An argument of a wrong type, a dtype that cannot be carried, an operation that the dtype
        does not have.
    ValueError
        A wrong value, arrays or arguments that differ between ranks, where values are coded a value
        range that overflows float64.
    NotImplementedError
        A bound together with an operation other than SUM, AVG, MAX and MIN.
    TransportError
        A communicator that cannot be used, or a failure while data moved.

    Notes
    -----
    The first half of the ring allreduce (arXiv 2308.05199). Tiles on the border of two shares go to
    both owners.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import zccl
    >>> x = np.linspace(0, 1, 1000 * MPI.COMM_WORLD.size, dtype=np.float32)
    >>> zccl.reduce_scatter(x, error_bound=1e-3, algorithm="ring").shape
    (1000,)
    """
    settings = Settings(
        "reduce_scatter", op, error_bound, mode, algorithm, stream, options, counts=recvcounts
    )
    ready = ReadyReduction(_FAMILY, settings, sendbuf, recvbuf)
    return Asked(comm, (sendbuf, recvbuf), stream, options, return_info, ready)


def _make(settings: Settings, sendbuf: Any, recvbuf: Any, transport: MpiTransport) -> Reduction:
    send = given_input(sendbuf, recvbuf)
    found = signature(settings, send, transport.size)
    assert found.shares is not None
    count = found.shares[transport.rank]
    device = is_on_device(send)
    if sendbuf is MPI.IN_PLACE:
        whole = given_result(recvbuf, "recvbuf", send.shape, send.dtype, device)
        if not whole.flags.c_contiguous:
            raise ValueError("recvbuf: got an array that is not contiguous, with MPI.IN_PLACE")
        result = (whole if device else np.asarray(whole)).reshape(-1)[:count]
    else:
        result = given_room(recvbuf, "recvbuf", (count,), send.dtype, device)
    return Reduction(found, send, result, transport)


def _schedule(
    algorithm: str, call: Reduction, transport: MpiTransport, segment_nbytes: int
) -> tuple[Callable[[ReducingLink], Steps], Place]:
    s = call.signature
    assert s.shares is not None and call.target is not None
    total = call.source.size
    runs = share_runs(s.shares, total // max(sum(s.shares), 1))
    chunks = covering_parts(runs, total, call.source.itemsize, segment_nbytes)
    return lambda link: ring_reduce_scatter(link, chunks), Runs(call.target, runs[transport.rank])


def _native(transport: MpiTransport, call: Reduction | HostTwin, op: MPI.Op) -> Steps:
    s = call.signature
    assert s.shares is not None and call.target is not None
    components = call.source.size // max(sum(s.shares), 1)
    source = call.source
    if source.ctypes.data == call.target.ctypes.data:  # MPI refuses that for empty shares, too
        source = source.copy()
    if components == 1:
        yield from native(transport, "Reduce_scatter", source, call.target, s.shares, op)
        return
    # The rows of first and second components, one after the other.
    for send, into in zip(np.split(source, 2), np.split(call.target, 2), strict=True):
        yield from native(transport, "Reduce_scatter", send, into, s.shares, op)


def _nccl(nccl: Any, call: Reduction) -> None:
    s = call.signature
    assert s.shares is not None and call.target is not None
    rows = max(call.source.size // max(sum(s.shares), 1), 1)
    source = call.source.copy() if call.in_place else call.source
    for send, into in zip(np.split(source, rows), np.split(call.target, rows), strict=True):
        nccl.reduce_scatter(send, into, s.shares, s.op)


_FAMILY = Family(_make, _schedule, _native, lambda size: (size - 1) / size, _nccl)

ireduce_scatter = started(reduce_scatter)
reduce_scatter_init = persistent(reduce_scatter)
