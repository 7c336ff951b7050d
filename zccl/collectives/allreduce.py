"""Allreduce: one result for all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from zccl.algorithms.primitives import ReducingLink, Steps
from zccl.algorithms.recursive_doubling import recursive_doubling_allreduce
from zccl.algorithms.ring import ring_allreduce
from zccl.codecs.places import Place, Row
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

_ALGORITHMS: dict[str, Callable[[ReducingLink, list[list[slice]]], Steps]] = {
    "ring": ring_allreduce,
    "recursive_doubling": recursive_doubling_allreduce,
}


@collective
def allreduce(
    sendbuf: Any,
    recvbuf: Array | None = None,
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
    """Reduce an array over all ranks and give every rank the result.

    Collective: all ranks call it with arrays of the same shape and dtype and with the same
    arguments. A fault on any rank is raised on all of them before data moves.

    Parameters
    ----------
    sendbuf : ndarray, device array or MPI.IN_PLACE
        This rank's array, any shape, layout and byte order: float16, float32, float64, complex64,
        complex128; integers (always exact) and, for logical and bitwise operations, bool. A device
        array lies on an NVIDIA GPU: CuPy's, Numba's, or any other with `__cuda_array_interface__`
        or DLPack. Some ranks may give host arrays and others device arrays. With `MPI.IN_PLACE` the
        input is taken from `recvbuf`.
    recvbuf : ndarray or device array, optional
        Filled with the result and returned: same shape and dtype as the input, any layout,
        writeable, on the host or the GPU where the input is. It may be `sendbuf` itself.
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
    algorithm : {"auto", "ring", "recursive_doubling", "native"}
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
        The result, `recvbuf` if that was given. With a coded algorithm its bits are the same on all
        ranks, whatever the algorithm.
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
    Each rank's values are quantised once, on a grid that is common to all; messages carry
    losslessly packed integers and hops add integers, so the error does not grow with the number of
    hops (NCCLZ, arXiv 2605.12396; algorithms of gZCCL, arXiv 2308.05199).

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import zccl
    >>> x = np.linspace(0, 1, 10_000, dtype=np.float32)
    >>> total = zccl.allreduce(x, error_bound=1e-3, mode="rel", algorithm="ring")
    >>> bool(np.abs(total - MPI.COMM_WORLD.size * x).max() <= 1.001e-3)
    True
    """
    settings = Settings("allreduce", op, error_bound, mode, algorithm, stream, options)
    ready = ReadyReduction(_FAMILY, settings, sendbuf, recvbuf)
    return Asked(comm, (sendbuf, recvbuf), stream, options, return_info, ready)


def _make(settings: Settings, sendbuf: Any, recvbuf: Any, transport: MpiTransport) -> Reduction:
    send = given_input(sendbuf, recvbuf)
    found = signature(settings, send, transport.size)
    return Reduction(found, send, result_like(send, recvbuf), transport)


def _schedule(
    algorithm: str, call: Reduction, transport: MpiTransport, segment_nbytes: int
) -> tuple[Callable[[ReducingLink], Steps], Place]:
    assert call.target is not None
    count = chunk_count("allreduce", algorithm, transport.size)
    chunks = chunk_parts(call.sent.size, call.source.itemsize, count, segment_nbytes)
    return lambda link: _ALGORITHMS[algorithm](link, chunks), Row(call.filled)


def _native(transport: MpiTransport, call: Reduction | HostTwin, op: MPI.Op) -> Steps:
    source = MPI.IN_PLACE if call.in_place else call.source
    return native(transport, "Allreduce", source, call.target, op)


def _nccl(nccl: Any, call: Reduction) -> None:
    nccl.allreduce(call.source, call.target, call.signature.op)


_FAMILY = Family(_make, _schedule, _native, lambda size: 2 * (size - 1) / size, _nccl)

iallreduce = started(allreduce)
allreduce_init = persistent(allreduce)
