"""Reduce: one result for the root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from zccl.algorithms.binomial import binomial_reduce, reduce_scatter_gather
from zccl.algorithms.primitives import ReducingLink, Steps
from zccl.codecs.places import Nowhere, Place, Row
from zccl.collectives.calling import Asked, collective, persistent, started
from zccl.collectives.reducing import Family, ReadyReduction
from zccl.collectives.reduction import (
    HostTwin,
    Reduction,
    Settings,
    given_input,
    result_like,
    signature,
)
from zccl.collectives.running import native
from zccl.ops import Op
from zccl.options import Options
from zccl.plan import chunk_count, chunk_parts
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array

_ALGORITHMS: dict[str, Callable[[ReducingLink, list[list[slice]], int], Steps]] = {
    "binomial": binomial_reduce,
    "reduce_scatter_gather": reduce_scatter_gather,
}


@collective
def reduce(
    sendbuf: Any,
    recvbuf: Array | None = None,
    op: MPI.Op | Op = MPI.SUM,
    root: int = 0,
    comm: MPI.Intracomm | None = None,
    *,
    error_bound: float | None = None,
    mode: str = "abs",
    algorithm: str = "auto",
    stream: Any = None,
    return_info: bool = False,
    options: Options | None = None,
) -> Asked:
    """Reduce an array over all ranks and give the root the result.

    Collective: all ranks call it with arrays of the same shape and dtype and with the same
    arguments. A fault on any rank is raised on all of them before data moves.

    Parameters
    ----------
    sendbuf : ndarray, device array or MPI.IN_PLACE
        This rank's array; see `allreduce`. With `MPI.IN_PLACE` the root's input is taken from
        `recvbuf`.
    recvbuf : ndarray or device array, optional
        At the root filled with the result and returned: same shape and dtype as the input, any
        layout, writeable, on the host or the GPU where the input is. Ignored elsewhere.
    op : MPI.Op or zccl.SUM, zccl.AVG, zccl.MAX, zccl.MIN
        The operation. With a bound: SUM, AVG (the sum divided by the number of ranks), MAX and MIN.
    root : int
        The rank that gets the result.
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
    algorithm : {"auto", "binomial", "reduce_scatter_gather", "native"}
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
    ndarray or None
        The result at the root, `recvbuf` if that was given; None elsewhere. Its bits are those of
        `allreduce`, except where tiles are so full of escapes that they travel raw: those are
        summed in the order of the algorithm.
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
    A tree for short arrays, a ring reduce-scatter and a gather of the summed codes for long ones.

    Examples
    --------
    >>> import numpy as np
    >>> import zccl
    >>> x = np.linspace(0, 1, 10_000, dtype=np.float32)
    >>> total = zccl.reduce(x, error_bound=1e-3, mode="rel", algorithm="binomial")
    >>> total is None or total.shape == x.shape
    True
    """
    settings = Settings("reduce", op, error_bound, mode, algorithm, stream, options, root=root)
    ready = ReadyReduction(_FAMILY, settings, sendbuf, recvbuf)
    return Asked(comm, (sendbuf, recvbuf), stream, options, return_info, ready)


def _make(settings: Settings, sendbuf: Any, recvbuf: Any, transport: MpiTransport) -> Reduction:
    at_root = settings.root == transport.rank
    if sendbuf is MPI.IN_PLACE and not at_root:
        raise ValueError("sendbuf: MPI.IN_PLACE is for the root only")
    send = given_input(sendbuf, recvbuf)
    found = signature(settings, send, transport.size)
    return Reduction(found, send, result_like(send, recvbuf) if at_root else None, transport)


def _schedule(
    algorithm: str, call: Reduction, transport: MpiTransport, segment_nbytes: int
) -> tuple[Callable[[ReducingLink], Steps], Place]:
    s = call.signature
    count = chunk_count("reduce", algorithm, transport.size)
    chunks = chunk_parts(call.sent.size, call.source.itemsize, count, segment_nbytes)
    place = Nowhere() if call.filled is None else Row(call.filled)
    return lambda link: _ALGORITHMS[algorithm](link, chunks, s.root), place


def _native(transport: MpiTransport, call: Reduction | HostTwin, op: MPI.Op) -> Steps:
    send = MPI.IN_PLACE if call.in_place else call.source
    return native(transport, "Reduce", send, call.target, op, call.signature.root)


def _nccl(nccl: Any, call: Reduction) -> None:
    nccl.reduce(call.source, call.target, call.signature.op, call.signature.root)


_FAMILY = Family(_make, _schedule, _native, lambda size: (size - 1) / size, _nccl)

ireduce = started(reduce)
reduce_init = persistent(reduce)
