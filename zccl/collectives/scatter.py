"""Scatter: a share of the root's array for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.algorithms.binomial import binomial_scatter
from zccl.algorithms.primitives import Link, Steps
from zccl.arrays import given_array, given_room, is_on_device, overlap
from zccl.collectives.arguments import check_counts, check_root, check_same_counts, rows_of
from zccl.collectives.calling import Asked, collective, persistent, started
from zccl.collectives.layout import Layout, shared_counts, shared_layout
from zccl.collectives.moving import (
    Cutter,
    Movement,
    MovingCollective,
    Settings,
    alone,
    counted,
    in_bytes,
    signature,
    whole,
)
from zccl.collectives.running import native
from zccl.collectives.shares import Shares
from zccl.options import Options
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array, Bytes


@collective
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
) -> Asked:
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
    scattered = _Scatter(settings, sendbuf, recvbuf, sendcounts, root)
    return Asked(comm, (sendbuf, recvbuf), stream, options, return_info, scattered)


class _Scatter(MovingCollective):
    def __init__(self, settings: Settings, sendbuf: Any, recvbuf: Any, sendcounts: Any, root: int):
        super().__init__(settings, sendbuf, recvbuf)
        self._sendcounts = sendcounts
        self._root = root
        self._stays = recvbuf is MPI.IN_PLACE
        self._own: Array | None = None

    def make(self, transport: MpiTransport) -> Movement:
        size, rank, root, stays = transport.size, transport.rank, self._root, self._stays
        self._sent: Array | None = None
        self._counts: list[int] | None = None
        given = self.sendbuf if rank == root else None if stays else self.recvbuf
        where = None if given is None else is_on_device(given)
        found = signature(self.settings, where, root=check_root(root, size))
        if stays and rank != root:
            raise ValueError("recvbuf: MPI.IN_PLACE is for the root only")
        if rank != root:
            return Movement(found, None, None, transport, where)
        sent = given_array(self.sendbuf, "sendbuf")
        if self._sendcounts is None:
            self._counts = rows_of(sent.shape, "sendbuf", size)
        else:
            self._counts = check_counts(self._sendcounts, "sendcounts", size, sent.size)
        if not stays and overlap(sent, self.recvbuf):
            sent = sent.copy()
        self._sent = sent
        flat = float(self._sendcounts is not None)
        return Movement(found, Shares(sent, self._counts), sent.dtype, transport, where, flat)

    def share(self, transport: MpiTransport) -> Steps:
        self._top = check_root(self._root, transport.size)
        sent = self._sent
        layout = None if sent is None else Layout(sent.dtype, sent.shape, is_on_device(sent))
        self._shared = yield from shared_layout(transport.comm, layout, self._top)
        self._shares = yield from shared_counts(transport.comm, self._counts, self._top)

    def prepare(self) -> None:
        call, shares, rank = self.call, self._shares, self.transport.rank
        check_same_counts(self._sendcounts, shares, "sendcounts")
        first = sum(shares[:rank])
        mine = (shares[rank],) if self.known.fact else self._shared.shape[1:]
        if self._sent is not None and self._stays:
            own = self._sent.reshape(-1)[first : first + shares[rank]].reshape(mine)
            if self._own is None or overlap(own, self._own):
                self._own = own
            else:  # a copy each time
                self._own[...] = own
            call.result = self._own
            return
        if call.on_device is None:
            call.on_device = self._shared.on_device
        result = given_room(self.recvbuf, "recvbuf", mine, self.dtype, call.on_device)
        call.fill(result, [shares[rank]], before=first)

    @property
    def dtype(self) -> np.dtype:
        return self._shared.dtype

    @property
    def share_nbytes(self) -> int:
        return sum(self._shares) * self.dtype.itemsize // self.transport.size

    @property
    def native_nbytes(self) -> int:
        others = sum(self._shares) - self._shares[self._top]
        return others * self.dtype.itemsize if self.transport.rank == self._top else 0

    def schedule(self, algorithm: str, link: Link, cutter: Cutter) -> Steps:
        rows = cutter.rows(self._shares)
        return binomial_scatter(link, rows, self._top, decode_root=not self._stays)

    def native(self, send: Bytes | None, into: Bytes | None) -> Steps:
        own = MPI.IN_PLACE if self._stays else whole(into, self.dtype)
        given = counted(send, self._shares, self.dtype)
        return native(self.transport, "Scatterv", given, own, self._top)

    def by_nccl(self, nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        size, rank = self.transport.size, self.transport.rank
        shares = self._shares
        nccl.exchange(
            send, in_bytes(shares if rank == self._top else [0] * size, self.dtype),
            into, in_bytes(alone(self._top, shares[rank], size), self.dtype),
        )  # fmt: skip


iscatter = started(scatter)
scatter_init = persistent(scatter)
