"""Scatter: a share of the root's array for each rank."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from zccl.algorithms.binomial import binomial_scatter
from zccl.algorithms.primitives import Link, Steps, StepsTo, finish
from zccl.arrays import given_array, given_room, is_on_device, overlap
from zccl.collectives.arguments import check_counts, check_root, check_same_counts, rows_of
from zccl.collectives.layout import Layout, shared_counts, shared_layout
from zccl.collectives.moving import (
    Cutter,
    Movement,
    Route,
    Settings,
    alone,
    counted,
    in_bytes,
    move,
    signature,
    whole,
)
from zccl.collectives.running import agreed, as_given, communicator
from zccl.collectives.shares import Shares
from zccl.options import Options
from zccl.streams import on_callers_stream
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array, Bytes


@on_callers_stream
def scatter(
    sendbuf: Array | None = None,
    recvbuf: Any = None,
    sendcounts: Sequence[int] | None = None,
    root: int = 0,
    comm: MPI.Intracomm | None = None,
    *,
    error_bound: float | None = None,
    mode: str = "abs",
    algorithm: str = "auto",
    stream: Any = None,
    return_info: bool = False,
    options: Options | None = None,
) -> Any:
    """Give each rank its share of the root's array.

    Collective. The root compresses all shares; ranks pass packed bytes on untouched, and each
    decodes only its own share.

    Parameters
    ----------
    sendbuf : ndarray or device array
        At the root the array to share out: on the host or a GPU, layout, byte order and dtype as
        for `allreduce`, and bool. Without `sendcounts` its first axis is the number of ranks.
        Ignored elsewhere.
    recvbuf : ndarray, device array or MPI.IN_PLACE, optional
        Filled with this rank's share and returned: same dtype and size, any layout, on the host or
        a GPU, at the root where `sendbuf` is; None makes one of the kind of the root's array. With
        `MPI.IN_PLACE` the root leaves its own share where it is; what is returned there is a view
        of it where the array is contiguous and of native byte order, else a copy.
    sendcounts : sequence of int, optional
        Elements of each rank's share of the flattened array. Needed at the root only.
    root : int
        The rank that sends.
    comm : MPI.Intracomm, optional
        Communicator, `MPI.COMM_WORLD` by default. zccl talks on a private duplicate of it.
    error_bound : float, optional
        Largest absolute difference of each element that is received (each component of a complex
        one) from the element that was sent; no rounding on top. None: exact, by the native
        collective. 0: exact, by zccl's own algorithms.
    mode : {"abs", "rel"}
        Whether the bound is a number in the unit of the array, or a fraction of the value range
        (largest minus smallest finite value) of the root's array; a range of 0 makes the result
        exact.
    algorithm : {"auto", "binomial", "native"}
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
        This rank's share: of shape `sendbuf.shape[1:]`, or flat with counts.
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

    Notes
    -----
    The binomial scatter of gZCCL (arXiv 2308.05199).

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import zccl
    >>> comm = MPI.COMM_WORLD
    >>> x = np.ones((comm.size, 10, 20), np.float32) if comm.rank == 0 else None
    >>> zccl.scatter(x, error_bound=1e-3, algorithm="binomial").shape
    (10, 20)
    """
    settings = Settings("scatter", error_bound, mode, algorithm, stream, options)
    return finish(
        _steps(settings, sendbuf, recvbuf, sendcounts, root, communicator(comm), return_info)
    )


def _steps(
    settings: Settings,
    sendbuf: Any,
    recvbuf: Any,
    sendcounts: Any,
    root: int,
    transport: MpiTransport,
    return_info: bool,
) -> StepsTo[Any]:
    start = time.perf_counter()
    size, rank = transport.size, transport.rank
    stays = recvbuf is MPI.IN_PLACE
    sent: Array | None = None
    counts: list[int] | None = None

    def make() -> Movement:
        nonlocal sent, counts
        given = sendbuf if rank == root else None if stays else recvbuf
        where = None if given is None else is_on_device(given)
        found = signature(settings, where, root=check_root(root, size))
        if stays and rank != root:
            raise ValueError("recvbuf: MPI.IN_PLACE is for the root only")
        if rank != root:
            return Movement(found, None, None, transport, where)
        sent = given_array(sendbuf, "sendbuf")
        if sendcounts is None:
            counts = rows_of(sent.shape, "sendbuf", size)
        else:
            counts = check_counts(sendcounts, "sendcounts", size, sent.size)
        if not stays and overlap(sent, recvbuf):
            sent = sent.copy()
        flat = float(sendcounts is not None)
        return Movement(found, Shares(sent, counts), sent.dtype, transport, where, flat)

    call, known = yield from agreed(transport, make)
    top = check_root(root, size)
    layout = None if sent is None else Layout(sent.dtype, sent.shape, is_on_device(sent))
    dtype, shape, on_device = yield from shared_layout(transport.comm, layout, top)
    shares = yield from shared_counts(transport.comm, counts, top)

    def prepare() -> None:
        check_same_counts(sendcounts, shares, "sendcounts")
        first = sum(shares[:rank])
        mine = (shares[rank],) if known.fact else shape[1:]
        if sent is not None and stays:
            call.result = sent.reshape(-1)[first : first + shares[rank]].reshape(mine)
            return
        if call.on_device is None:
            call.on_device = on_device
        result = given_room(recvbuf, "recvbuf", mine, dtype, call.on_device)
        call.fill(result, [shares[rank]], before=first)

    def schedule(algorithm: str, link: Link, cutter: Cutter) -> Steps:
        return binomial_scatter(link, cutter.rows(shares), top, decode_root=not stays)

    def native(send: Bytes | None, into: Bytes | None) -> None:
        own = MPI.IN_PLACE if stays else whole(into, dtype)
        transport.comm.Scatterv(counted(send, shares, dtype), own, top)

    def by_nccl(nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        nccl.exchange(
            send, in_bytes(shares if rank == top else [0] * size, dtype),
            into, in_bytes(alone(top, shares[rank], size), dtype),
        )  # fmt: skip

    share_nbytes = sum(shares) * dtype.itemsize // size
    others = (sum(shares) - shares[top]) * dtype.itemsize
    route = Route(schedule, native, others if rank == top else 0, by_nccl)
    told = yield from move(transport, call, known, dtype, share_nbytes, prepare, route, start)
    result = as_given(call.result, recvbuf)
    return (result, told) if return_info else result
