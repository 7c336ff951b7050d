"""Bcast: the root's array for all ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.algorithms.binomial import binomial_bcast, scatter_allgather_bcast
from zccl.algorithms.primitives import Link, Steps
from zccl.arrays import given_array, given_room, is_on_device
from zccl.collectives.arguments import check_root
from zccl.collectives.calling import Asked, collective, persistent, started
from zccl.collectives.layout import Layout, shared_layout
from zccl.collectives.moving import Cutter, Movement, MovingCollective, Settings, signature, whole
from zccl.collectives.running import native
from zccl.collectives.shares import Shares
from zccl.options import Options
from zccl.plan import chunk_count
from zccl.tiling import Tiling
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array, Bytes

_ALGORITHMS = {"binomial": binomial_bcast, "scatter_allgather": scatter_allgather_bcast}


@collective
def bcast(
    buf: Array | None = None,
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
    """Give every rank the root's array.

    Collective. The array is compressed once, at the root; ranks pass compressed bytes on.

    Parameters
    ----------
    buf : ndarray or device array, optional
        At the root the array to send: any shape, layout, byte order and dtype that `allreduce`
        takes, and bool. Elsewhere the array to fill, of the same shape and dtype, on the host or a
        GPU; None makes one, on the GPU where the root's is on one.
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
    algorithm : {"auto", "binomial", "scatter_allgather", "native"}
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
        The array. At the root it is `buf` itself, unchanged, unless
        `Options(replace_root=True)`: then `buf` is filled with what all others receive.
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
    A tree for short arrays; for long ones a scatter and an allgather of the compressed bytes
    (arXiv 2308.05199).

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import zccl
    >>> x = np.linspace(0, 1, 10_000) if MPI.COMM_WORLD.rank == 0 else None
    >>> y = zccl.bcast(x, error_bound=1e-3, algorithm="binomial")
    >>> y.shape
    (10000,)
    """
    settings = Settings("bcast", error_bound, mode, algorithm, stream, options)
    return Asked(comm, (buf,), stream, options, return_info, _Bcast(settings, buf, root))


class _Bcast(MovingCollective):
    def __init__(self, settings: Settings, buf: Any, root: int):
        super().__init__(settings, buf, buf)
        self._root = root

    def make(self, transport: MpiTransport) -> Movement:
        buf = self.recvbuf
        where = None if buf is None else is_on_device(buf)
        found = signature(self.settings, where, root=check_root(self._root, transport.size))
        self._layout: Layout | None = None
        if transport.rank != self._root:
            return Movement(found, None, None, transport, where)
        array = given_array(buf, "buf")
        self._layout = Layout(array.dtype, array.shape, bool(where))
        call = Movement(found, Shares(array, [array.size]), array.dtype, transport, where)
        call.result = buf
        call.whole = array.shape
        return call

    def share(self, transport: MpiTransport) -> Steps:
        self._top = check_root(self._root, transport.size)
        self._shared = yield from shared_layout(transport.comm, self._layout, self._top)
        self._count = math.prod(self._shared.shape)
        self._at_root = transport.rank == self._top
        self._fills = not self._at_root or self.call.signature.options.replace_root

    def tiling(self, axes: int) -> Tiling | None:
        if axes == 1:
            return None
        return Tiling.of_array(self._shared.dtype, self._shared.shape, axes)

    def prepare(self) -> None:
        call, shared = self.call, self._shared
        if call.on_device is None:
            call.on_device = shared.on_device
        if self._fills:
            room = given_room(self.recvbuf, "buf", shared.shape, shared.dtype, call.on_device)
            call.fill(room, [self._count])

    @property
    def given(self) -> Any:
        return self.recvbuf if self._at_root else None

    @property
    def dtype(self) -> np.dtype:
        return self._shared.dtype

    @property
    def share_nbytes(self) -> int:
        return self._count * self.dtype.itemsize

    @property
    def native_nbytes(self) -> int:
        return self.share_nbytes if self._at_root else 0

    def schedule(self, algorithm: str, link: Link, cutter: Cutter) -> Steps:
        chunks = cutter.chunks(self._count, chunk_count("bcast", algorithm, link.size))
        return _ALGORITHMS[algorithm](link, chunks, self._top, decode_root=self._fills)

    def native(self, send: Bytes | None, into: Bytes | None) -> Steps:
        buffer = send if self._at_root else into
        yield from native(self.transport, "Bcast", whole(buffer, self.dtype), self._top)
        _replace_root(send, into)

    def by_nccl(self, nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        nccl.bcast(send if self._at_root else into, self._top)
        _replace_root(send, into)


def _replace_root(send: Bytes | None, into: Bytes | None) -> None:
    if send is not None and into is not None:
        into[...] = send


ibcast = started(bcast)
bcast_init = persistent(bcast)
