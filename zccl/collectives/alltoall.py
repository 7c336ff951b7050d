"""Alltoall: a share of every rank's array for every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.algorithms.pairwise import pairwise_alltoall
from zccl.algorithms.primitives import Link, Steps
from zccl.arrays import given_array, given_room, is_on_device, overlap
from zccl.collectives.arguments import check_counts, rows_of
from zccl.collectives.calling import Asked, collective, persistent, started
from zccl.collectives.moving import (
    Cutter,
    Movement,
    MovingCollective,
    Settings,
    counted,
    in_bytes,
    signature,
)
from zccl.collectives.running import native
from zccl.collectives.shares import Shares
from zccl.options import Options
from zccl.transport.mpi import MpiTransport
from zccl.transport.waiting import Waiting
from zccl.typing import Array, Bytes


@collective
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
) -> Asked:
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
    exchanged = _Alltoall(settings, sendbuf, recvbuf, sendcounts, recvcounts)
    return Asked(comm, (sendbuf, recvbuf), stream, options, return_info, exchanged)


class _Alltoall(MovingCollective):
    def __init__(
        self, settings: Settings, sendbuf: Any, recvbuf: Any, sendcounts: Any, recvcounts: Any
    ):
        super().__init__(settings, sendbuf, recvbuf)
        self._sendcounts = sendcounts
        self._recvcounts = recvcounts
        self._in_place = sendbuf is MPI.IN_PLACE

    def make(self, transport: MpiTransport) -> Movement:
        size, recvbuf, in_place = transport.size, self.recvbuf, self._in_place
        if in_place and recvbuf is None:
            raise ValueError("recvbuf: got None, wanted the array, since sendbuf is MPI.IN_PLACE")
        name = "recvbuf" if in_place else "sendbuf"
        array = given_array(recvbuf if in_place else self.sendbuf, name)
        where = is_on_device(array)
        if overlap(array, recvbuf):
            array = array.copy()
        if self._sendcounts is not None:
            sent = check_counts(self._sendcounts, "sendcounts", size, array.size)
            found = signature(self.settings, where, dtype=array.dtype, counts="given")
        elif self._recvcounts is not None:
            raise ValueError("recvcounts: got counts, but sendcounts is None; give both")
        else:
            sent = rows_of(array.shape, name, size)
            found = signature(
                self.settings, where, dtype=array.dtype, shape=array.shape, counts="none"
            )
        self._array, self._sent = array, sent
        shares = Shares(array, sent)
        return Movement(found, shares, array.dtype, transport, where, float(array.nbytes))

    def share(self, transport: MpiTransport) -> Steps:
        received = np.array(self._sent, np.int64)
        if self._sendcounts is not None:
            yield Waiting(transport.comm.Ialltoall(MPI.IN_PLACE, received))
        self._taken = [int(count) for count in received]

    def prepare(self) -> None:
        if self._recvcounts is not None:
            wanted = check_counts(self._recvcounts, "recvcounts", self.transport.size, None)
            if wanted != self._taken:
                raise ValueError(f"recvcounts: got {wanted}, but the ranks send {self._taken}")
        shape = self._array.shape if self._sendcounts is None else (sum(self._taken),)
        on_device = bool(self.call.on_device)
        room = given_room(self.recvbuf, "recvbuf", shape, self.dtype, on_device)
        self.call.fill(room, self._taken)

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def share_nbytes(self) -> int:
        return int(self.known.fact) // self.transport.size

    @property
    def native_nbytes(self) -> int:
        own = self._sent[self.transport.rank]
        return int(self._array.nbytes) - own * self.dtype.itemsize

    def schedule(self, algorithm: str, link: Link, cutter: Cutter) -> Steps:
        return pairwise_alltoall(link, cutter.rows(self._sent), cutter.rows(self._taken))

    def native(self, send: Bytes | None, into: Bytes | None) -> Steps:
        given = counted(send, self._sent, self.dtype)
        return native(self.transport, "Alltoallv", given, counted(into, self._taken, self.dtype))

    def by_nccl(self, nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        given, taken = in_bytes(self._sent, self.dtype), in_bytes(self._taken, self.dtype)
        nccl.exchange(send, given, into, taken)


ialltoall = started(alltoall)
alltoall_init = persistent(alltoall)
