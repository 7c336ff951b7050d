"""Allgather: the arrays of all ranks for all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.algorithms.primitives import Link, Steps
from zccl.algorithms.recursive_doubling import recursive_doubling_allgather
from zccl.algorithms.ring import ring_allgather
from zccl.arrays import given_array, given_room, is_on_device, overlap
from zccl.collectives.arguments import check_counts, check_own_count, own_slot
from zccl.collectives.calling import Asked, collective, persistent, started
from zccl.collectives.moving import (
    Cutter,
    Movement,
    MovingCollective,
    Settings,
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

_ALGORITHMS: dict[str, Callable[[Link, list[list[slice]]], Steps]] = {
    "ring": ring_allgather,
    "recursive_doubling": recursive_doubling_allgather,
}


@collective
def allgather(
    sendbuf: Any,
    recvbuf: Array | None = None,
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
    """Give every rank the arrays of all ranks.

    Collective. Each rank compresses its array once; ranks pass compressed bytes on and decode all
    of them, their own too, so that all hold the same bits.

    Parameters
    ----------
    sendbuf : ndarray, device array or MPI.IN_PLACE
        This rank's array: on the host or a GPU, layout, byte order and dtype as for `allreduce`,
        and bool. Without `recvcounts` all have the same shape. With `MPI.IN_PLACE` it is already in
        its place in `recvbuf`.
    recvbuf : ndarray or device array, optional
        Filled with the result and returned: same dtype and size, any layout, on the host or the GPU
        where `sendbuf` is.
    recvcounts : sequence of int, optional
        Elements that each rank gives, the same on all ranks; the result is flat.
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
        The arrays by rank, of shape `(size, *sendbuf.shape)`, or one behind the other with
        counts.
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
    Compression once and forwarding of bytes are gZCCL's (arXiv 2308.05199).

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import zccl
    >>> comm = MPI.COMM_WORLD
    >>> x = np.full((10, 20), comm.rank, np.float32)
    >>> zccl.allgather(x, error_bound=1e-3, algorithm="ring").shape == (comm.size, 10, 20)
    True
    """
    settings = Settings("allgather", error_bound, mode, algorithm, stream, options)
    gathered = _Allgather(settings, sendbuf, recvbuf, recvcounts)
    return Asked(comm, (sendbuf, recvbuf), stream, options, return_info, gathered)


class _Allgather(MovingCollective):
    def __init__(self, settings: Settings, sendbuf: Any, recvbuf: Any, recvcounts: Any):
        super().__init__(settings, sendbuf, recvbuf)
        self._recvcounts = recvcounts

    def make(self, transport: MpiTransport) -> Movement:
        size, rank, recvbuf = transport.size, transport.rank, self.recvbuf
        if self.sendbuf is MPI.IN_PLACE:
            array = own_slot(recvbuf, self._recvcounts, rank, size)
        else:
            array = given_array(self.sendbuf, "sendbuf")
        if overlap(array, recvbuf):
            array = array.copy()
        where = is_on_device(array)
        if self._recvcounts is None:
            counts = [array.size] * size
            shape: tuple[int, ...] = (size, *array.shape)
            found = signature(self.settings, where, dtype=array.dtype, shape=array.shape)
        else:
            counts = check_counts(self._recvcounts, "recvcounts", size, None)
            check_own_count(counts, "recvcounts", rank, array.size)
            shape = (sum(counts),)
            found = signature(self.settings, where, dtype=array.dtype, recvcounts=counts)
        self._array, self._counts = array, counts
        source = Shares(array, [array.size], before=sum(counts[:rank]))
        call = Movement(found, source, array.dtype, transport, where)
        call.fill(given_room(recvbuf, "recvbuf", shape, array.dtype, where), counts)
        return call

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def share_nbytes(self) -> int:
        return sum(self._counts) * self.dtype.itemsize // len(self._counts)

    @property
    def native_nbytes(self) -> int:
        after = (self.transport.rank + 1) % len(self._counts)
        return (sum(self._counts) - self._counts[after]) * self.dtype.itemsize

    def schedule(self, algorithm: str, link: Link, cutter: Cutter) -> Steps:
        return _ALGORITHMS[algorithm](link, cutter.rows(self._counts))

    def native(self, send: Bytes | None, into: Bytes | None) -> Steps:
        taken = counted(into, self._counts, self.dtype)
        return native(self.transport, "Allgatherv", whole(send, self.dtype), taken)

    def by_nccl(self, nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        counts = self._counts
        own = in_bytes([counts[self.transport.rank]] * len(counts), self.dtype)
        nccl.exchange(send, own, into, in_bytes(counts, self.dtype), same=True)


iallgather = started(allgather)
allgather_init = persistent(allgather)
