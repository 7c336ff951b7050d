"""Scatter: a share of the root's array for each rank."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.algorithms.binomial import binomial_scatter
from zccl.algorithms.primitives import Link, Steps
from zccl.arrays import check_writeable, host_array
from zccl.collectives.arguments import check_counts, check_root, given_counts, rows_of
from zccl.collectives.layout import FACTS, Layout
from zccl.collectives.moving import Cutter, Movement, Route, Settings, counted, move, signature
from zccl.collectives.running import agreed_with_facts, communicator, done_by_all
from zccl.collectives.shares import Shares
from zccl.options import Options
from zccl.typing import Array, Bytes


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
    stream: None = None,
    return_info: bool = False,
    options: Options | None = None,
) -> Any:
    """Give each rank its share of the root's array.

    Collective. The root compresses all shares; ranks pass packed bytes on untouched, and each
    decodes only its own share.

    Parameters
    ----------
    sendbuf : ndarray
        At the root the array to share out: layout, byte order and dtype as for `allreduce`, and
        bool. Without `sendcounts` its first axis is the number of ranks. Ignored elsewhere.
    recvbuf : ndarray or MPI.IN_PLACE, optional
        Filled with this rank's share and returned: same dtype, any layout. With `MPI.IN_PLACE` the
        root leaves its own share where it is and gets a view of it.
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
    stream : None
        For arrays on GPUs; must be None for host arrays.
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
        A wrong value, arrays or arguments that differ between ranks, a value range that overflows
        float64.
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
    start = time.perf_counter()
    transport = communicator(comm)
    size, rank = transport.size, transport.rank
    settings = Settings("scatter", error_bound, mode, algorithm, stream, options)
    sent: list[Array] = []

    def make() -> tuple[Movement, list[float]]:
        found = signature(settings, root=check_root(root, size))
        if recvbuf is MPI.IN_PLACE and rank != root:
            raise ValueError("recvbuf: MPI.IN_PLACE is for the root only")
        if rank != root:
            return Movement(found, None, None, transport), []
        array = host_array(sendbuf, "sendbuf")
        if sendcounts is None:
            counts = rows_of(array.shape, "sendbuf", size)
        else:
            counts = check_counts(sendcounts, "sendcounts", size, array.size)
        if isinstance(recvbuf, np.ndarray) and np.may_share_memory(array, recvbuf):
            array = array.copy()
        sent.append(array)
        layout = Layout(array.dtype, array.shape, sendcounts is not None)
        return Movement(found, Shares(array, counts), array.dtype, transport), layout.facts()

    call, low, high, facts = agreed_with_facts(transport, make, FACTS)
    dtype, shape, flat = Layout.of(facts)
    if flat:
        counts = given_counts(transport.comm, sendcounts, root)
    else:
        counts = rows_of(shape, "sendbuf", size)
    stays = recvbuf is MPI.IN_PLACE
    results: list[Array] = []

    def prepare() -> None:
        if flat and sendcounts is not None and rank != root:
            check_counts(sendcounts, "sendcounts", size, sum(counts))
        first = sum(counts[:rank])
        mine = (counts[rank],) if flat else shape[1:]
        if stays:
            share = sent[0].reshape(-1)[first : first + counts[rank]]
            results.append(share.reshape(mine))
            return
        result = np.empty(mine, dtype) if recvbuf is None else recvbuf
        check_writeable(result, "recvbuf", mine, dtype)
        call.target = Shares(result, [result.size], before=first)
        results.append(result)

    done_by_all(transport, prepare)

    def schedule(algorithm: str, link: Link, cutter: Cutter) -> Steps:
        return binomial_scatter(link, cutter.rows(counts), root, decode_root=not stays)

    def native(send: Bytes | None, into: Bytes | None) -> None:
        message = counted(send, counts, dtype.itemsize)
        own = MPI.IN_PLACE if stays else [into, MPI.BYTE]
        transport.comm.Scatterv(message, own, root)

    nbytes = sum(counts) * dtype.itemsize
    others = nbytes - counts[root] * dtype.itemsize
    route = Route(schedule, native, others if rank == root else 0)
    told = move(transport, call, (low, high), dtype, nbytes, nbytes // size, route, start)
    return (results[0], told) if return_info else results[0]
