"""Gather: the arrays of all ranks for the root."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.algorithms.agreement import Terms, agree
from zccl.algorithms.binomial import binomial_gather
from zccl.algorithms.primitives import Link, Steps, StepsTo, finish
from zccl.arrays import given_array, given_room, is_on_device, overlap
from zccl.collectives.arguments import (
    check_counts,
    check_own_count,
    check_root,
    check_same_counts,
    own_slot,
)
from zccl.collectives.layout import shared_counts
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
def gather(
    sendbuf: Any,
    recvbuf: Array | None = None,
    recvcounts: Sequence[int] | None = None,
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
    """Give the root the arrays of all ranks.

    Collective. Each rank compresses its array; ranks pass packed bytes on untouched, and the root
    decodes them.

    Parameters
    ----------
    sendbuf : ndarray, device array or MPI.IN_PLACE
        This rank's array: on the host or a GPU, layout, byte order and dtype as for `allreduce`,
        and bool. Without `recvcounts` all have the same shape. With `MPI.IN_PLACE` the root's is
        already in its place in `recvbuf`.
    recvbuf : ndarray or device array, optional
        At the root filled with the result and returned: same dtype and size, any layout, on the
        host or the GPU where `sendbuf` is. Ignored elsewhere.
    recvcounts : sequence of int, optional
        Elements that each rank gives; the result is flat. Needed at the root only.
    root : int
        The rank that receives.
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
    ndarray or None
        At the root the arrays by rank, of shape `(size, *sendbuf.shape)`, or one behind the other
        with counts; None elsewhere.
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
    The mirror of the binomial scatter of gZCCL (arXiv 2308.05199).

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import zccl
    >>> comm = MPI.COMM_WORLD
    >>> x = np.full((10, 20), comm.rank, np.float32)
    >>> everything = zccl.gather(x, error_bound=1e-3, algorithm="binomial")
    >>> everything is None or everything.shape == (comm.size, 10, 20)
    True
    """
    settings = Settings("gather", error_bound, mode, algorithm, stream, options)
    return finish(
        _steps(settings, sendbuf, recvbuf, recvcounts, root, communicator(comm), return_info)
    )


def _steps(
    settings: Settings,
    sendbuf: Any,
    recvbuf: Any,
    recvcounts: Any,
    root: int,
    transport: MpiTransport,
    return_info: bool,
) -> StepsTo[Any]:
    start = time.perf_counter()
    size, rank = transport.size, transport.rank
    array = np.empty(0)
    counts: list[int] | None = None

    def make() -> Movement:
        nonlocal array, counts
        top = check_root(root, size)
        if sendbuf is MPI.IN_PLACE:
            if rank != top:
                raise ValueError("sendbuf: MPI.IN_PLACE is for the root only")
            array = own_slot(recvbuf, recvcounts, rank, size)
        else:
            array = given_array(sendbuf, "sendbuf")
        if overlap(array, recvbuf):
            array = array.copy()
        where = is_on_device(array)
        found = signature(settings, where, root=top, dtype=array.dtype)
        if rank == top and recvcounts is not None:
            counts = check_counts(recvcounts, "recvcounts", size, None)
        flat = float(recvcounts is not None) if rank == top else -math.inf
        return Movement(found, Shares(array, [array.size]), array.dtype, transport, where, flat)

    call, known = yield from agreed(transport, make)
    flat = known.fact
    top = check_root(root, size)
    dtype = array.dtype
    if flat:
        shares = yield from shared_counts(transport.comm, counts, top)
    else:
        yield from agree(transport.comm, Terms.of({"shape": str(array.shape)}))
        shares = [array.size] * size

    def prepare() -> None:
        check_same_counts(recvcounts, shares, "recvcounts")
        check_own_count(shares, "recvcounts", rank, array.size)
        call.source = Shares(array, [array.size], before=sum(shares[:rank]))
        if rank == top:
            shape = (sum(shares),) if flat else (size, *array.shape)
            result = given_room(recvbuf, "recvbuf", shape, dtype, bool(call.on_device))
            call.fill(result, shares)

    def schedule(algorithm: str, link: Link, cutter: Cutter) -> Steps:
        return binomial_gather(link, cutter.rows(shares), top)

    def native(send: Bytes | None, into: Bytes | None) -> None:
        transport.comm.Gatherv(whole(send, dtype), counted(into, shares, dtype), top)

    def by_nccl(nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        nccl.exchange(
            send, in_bytes(alone(top, shares[rank], size), dtype),
            into, in_bytes(shares if rank == top else [0] * size, dtype),
        )  # fmt: skip

    share_nbytes = sum(shares) * dtype.itemsize // size
    route = Route(schedule, native, 0 if rank == top else array.nbytes, by_nccl)
    told = yield from move(transport, call, known, dtype, share_nbytes, prepare, route, start)
    result = as_given(call.result, recvbuf)
    return (result, told) if return_info else result
