"""Alltoall: a share of every rank's array for every rank."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.algorithms.pairwise import pairwise_alltoall
from zccl.algorithms.primitives import Link, Steps, StepsTo, finish
from zccl.arrays import given_array, given_room, is_on_device, overlap
from zccl.collectives.arguments import check_counts, rows_of
from zccl.collectives.moving import (
    Cutter,
    Movement,
    Route,
    Settings,
    counted,
    in_bytes,
    move,
    signature,
)
from zccl.collectives.running import agreed, as_given, communicator
from zccl.collectives.shares import Shares
from zccl.options import Options
from zccl.streams import on_callers_stream
from zccl.transport.mpi import MpiTransport
from zccl.transport.waiting import Waiting
from zccl.typing import Array, Bytes


@on_callers_stream
def alltoall(
    sendbuf: Any,
    recvbuf: Array | None = None,
    sendcounts: Sequence[int] | None = None,
    recvcounts: Sequence[int] | None = None,
    comm: MPI.Intracomm | None = None,
    *,
    error_bound: float | None = None,
    mode: str = "abs",
    algorithm: str = "auto",
    stream: Any = None,
    return_info: bool = False,
    options: Options | None = None,
) -> Any:
    """Give each rank its share of every rank's array.

    Collective. Each share is compressed once, where it comes from, and decoded once.

    Parameters
    ----------
    sendbuf : ndarray, device array or MPI.IN_PLACE
        This rank's array: on the host or a GPU, layout, byte order and dtype as for `allreduce`,
        and bool. Without counts its first axis is the number of ranks, and all have the same shape.
        With `MPI.IN_PLACE` it is taken from `recvbuf`, and with counts each rank receives as much
        as it sends.
    recvbuf : ndarray or device array, optional
        Filled with the result and returned: same dtype and size, any layout, on the host or the GPU
        where `sendbuf` is.
    sendcounts : sequence of int, optional
        Elements of each rank's share of the flattened array; given on all ranks or on none.
    recvcounts : sequence of int, optional
        Elements that come from each rank; only together with `sendcounts`, to be checked.
    comm : MPI.Intracomm, optional
        Communicator, `MPI.COMM_WORLD` by default. zccl talks on a private duplicate of it.
    error_bound : float, optional
        Largest absolute difference of each element that is received (each component of a complex
        one) from the element that was sent; no rounding on top. None: exact, by the native
        collective. 0: exact, by zccl's own algorithms.
    mode : {"abs", "rel"}
        Whether the bound is a number in the unit of the array, or a fraction of the value range
        (largest minus smallest finite value) of all ranks' arrays; a range of 0 makes the result
        exact.
    algorithm : {"auto", "pairwise", "native"}
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
        The shares by the rank they come from: of the shape of `sendbuf`, or flat with counts.
    Info
        Only with `return_info=True`.

    Raises
    ------
    TypeError
        An argument of a wrong type, a dtype that cannot be carried.
    ValueError
        A wrong value, arrays or arguments that differ between ranks, where values are coded a value
        range that overflows float64.
    TransportError
        A communicator that cannot be used, or a failure while data moved.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import zccl
    >>> comm = MPI.COMM_WORLD
    >>> x = np.full((comm.size, 20), comm.rank, np.float32)
    >>> y = zccl.alltoall(x, error_bound=1e-3, algorithm="pairwise")
    >>> bool((abs(y[:, 0] - np.arange(comm.size)) <= 1e-3).all())
    True
    """
    settings = Settings("alltoall", error_bound, mode, algorithm, stream, options)
    return finish(
        _steps(settings, sendbuf, recvbuf, sendcounts, recvcounts, communicator(comm), return_info)
    )


def _steps(
    settings: Settings,
    sendbuf: Any,
    recvbuf: Any,
    sendcounts: Any,
    recvcounts: Any,
    transport: MpiTransport,
    return_info: bool,
) -> StepsTo[Any]:
    start = time.perf_counter()
    size, rank = transport.size, transport.rank
    array = np.empty(0)
    sent: list[int] = []

    def make() -> Movement:
        nonlocal array, sent
        in_place = sendbuf is MPI.IN_PLACE
        if in_place and recvbuf is None:
            raise ValueError("recvbuf: got None, wanted the array, since sendbuf is MPI.IN_PLACE")
        array = given_array(recvbuf, "recvbuf") if in_place else given_array(sendbuf, "sendbuf")
        where = is_on_device(array)
        if overlap(array, recvbuf):
            array = array.copy()
        if sendcounts is not None:
            sent = check_counts(sendcounts, "sendcounts", size, array.size)
            found = signature(settings, where, dtype=array.dtype, counts="given")
        elif recvcounts is not None:
            raise ValueError("recvcounts: got counts, but sendcounts is None; give both")
        else:
            sent = rows_of(array.shape, "recvbuf" if in_place else "sendbuf", size)
            found = signature(settings, where, dtype=array.dtype, shape=array.shape, counts="none")
        shares = Shares(array, sent)
        return Movement(found, shares, array.dtype, transport, where, float(array.nbytes))

    call, known = yield from agreed(transport, make)
    dtype = array.dtype
    received = np.array(sent, np.int64)
    if sendcounts is not None:
        yield Waiting(transport.comm.Ialltoall(MPI.IN_PLACE, received))
    counts = [int(count) for count in received]

    def prepare() -> None:
        if recvcounts is not None:
            wanted = check_counts(recvcounts, "recvcounts", size, None)
            if wanted != counts:
                raise ValueError(f"recvcounts: got {wanted}, but the ranks send {counts}")
        shape = array.shape if sendcounts is None else (sum(counts),)
        call.fill(given_room(recvbuf, "recvbuf", shape, dtype, bool(call.on_device)), counts)

    def schedule(algorithm: str, link: Link, cutter: Cutter) -> Steps:
        return pairwise_alltoall(link, cutter.rows(sent), cutter.rows(counts))

    def native(send: Bytes | None, into: Bytes | None) -> None:
        transport.comm.Alltoallv(counted(send, sent, dtype), counted(into, counts, dtype))

    def by_nccl(nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        nccl.exchange(send, in_bytes(sent, dtype), into, in_bytes(counts, dtype))

    share_nbytes = int(known.fact) // size
    route = Route(schedule, native, array.nbytes - sent[rank] * dtype.itemsize, by_nccl)
    told = yield from move(transport, call, known, dtype, share_nbytes, prepare, route, start)
    result = as_given(call.result, recvbuf)
    return (result, told) if return_info else result
