"""Gather: the arrays of all ranks for the root."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.algorithms.agreement import Terms, agree
from zccl.algorithms.binomial import binomial_gather
from zccl.algorithms.primitives import Link, Steps
from zccl.arrays import given_array, given_room, is_on_device, overlap
from zccl.collectives.arguments import (
    check_counts,
    check_own_count,
    check_root,
    check_same_counts,
    own_slot,
)
from zccl.collectives.calling import Asked, collective, persistent, started
from zccl.collectives.layout import shared_counts
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
) -> Asked:
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
    gathered = _Gather(settings, sendbuf, recvbuf, recvcounts, root)
    return Asked(comm, (sendbuf, recvbuf), stream, options, return_info, gathered)


class _Gather(MovingCollective):
    def __init__(self, settings: Settings, sendbuf: Any, recvbuf: Any, recvcounts: Any, root: int):
        super().__init__(settings, sendbuf, recvbuf)
        self._recvcounts = recvcounts
        self._root = root

    def make(self, transport: MpiTransport) -> Movement:
        size, rank, recvbuf = transport.size, transport.rank, self.recvbuf
        self._counts: list[int] | None = None
        top = self._top = check_root(self._root, size)
        if self.sendbuf is MPI.IN_PLACE:
            if rank != top:
                raise ValueError("sendbuf: MPI.IN_PLACE is for the root only")
            array = own_slot(recvbuf, self._recvcounts, rank, size)
        else:
            array = given_array(self.sendbuf, "sendbuf")
        if overlap(array, recvbuf):
            array = array.copy()
        where = is_on_device(array)
        found = signature(self.settings, where, root=top, dtype=array.dtype)
        flat = -math.inf
        if rank == top:
            flat = float(self._recvcounts is not None)
            if flat:
                self._counts = check_counts(self._recvcounts, "recvcounts", size, None)
        self._array = array
        return Movement(found, Shares(array, [array.size]), array.dtype, transport, where, flat)

    def share(self, transport: MpiTransport) -> Steps:
        if self.known.fact:
            self._shares = yield from shared_counts(transport.comm, self._counts, self._top)
        else:
            yield from agree(transport.comm, Terms.of({"shape": str(self._array.shape)}))
            self._shares = [self._array.size] * transport.size

    def prepare(self) -> None:
        call, shares, rank, array = self.call, self._shares, self.transport.rank, self._array
        check_same_counts(self._recvcounts, shares, "recvcounts")
        check_own_count(shares, "recvcounts", rank, array.size)
        call.source = Shares(array, [array.size], before=sum(shares[:rank]))
        if rank == self._top:
            shape = (sum(shares),) if self.known.fact else (len(shares), *array.shape)
            room = given_room(self.recvbuf, "recvbuf", shape, array.dtype, bool(call.on_device))
            call.fill(room, shares)

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def share_nbytes(self) -> int:
        return sum(self._shares) * self.dtype.itemsize // len(self._shares)

    @property
    def native_nbytes(self) -> int:
        return 0 if self.transport.rank == self._top else int(self._array.nbytes)

    def schedule(self, algorithm: str, link: Link, cutter: Cutter) -> Steps:
        return binomial_gather(link, cutter.rows(self._shares), self._top)

    def native(self, send: Bytes | None, into: Bytes | None) -> Steps:
        taken = counted(into, self._shares, self.dtype)
        return native(self.transport, "Gatherv", whole(send, self.dtype), taken, self._top)

    def by_nccl(self, nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        size, rank = self.transport.size, self.transport.rank
        shares = self._shares
        nccl.exchange(
            send, in_bytes(alone(self._top, shares[rank], size), self.dtype),
            into, in_bytes(shares if rank == self._top else [0] * size, self.dtype),
        )  # fmt: skip


igather = started(gather)
gather_init = persistent(gather)
