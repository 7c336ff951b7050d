"""Bcast: the root's array for all ranks."""

from __future__ import annotations

import math
import time
from typing import Any

from mpi4py import MPI

from zccl.algorithms.binomial import binomial_bcast, scatter_allgather_bcast
from zccl.algorithms.primitives import Link, Steps, StepsTo, finish
from zccl.arrays import given_array, given_room, is_on_device
from zccl.collectives.arguments import check_root
from zccl.collectives.layout import Layout, shared_layout
from zccl.collectives.moving import Cutter, Movement, Route, Settings, move, signature, whole
from zccl.collectives.running import agreed, as_given, communicator
from zccl.collectives.shares import Shares
from zccl.options import Options
from zccl.streams import on_callers_stream
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array, Bytes

_ALGORITHMS = {"binomial": binomial_bcast, "scatter_allgather": scatter_allgather_bcast}


@on_callers_stream
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
) -> Any:
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
    return finish(_steps(settings, buf, root, communicator(comm), return_info))


def _steps(
    settings: Settings,
    buf: Any,
    root: int,
    transport: MpiTransport,
    return_info: bool,
) -> StepsTo[Any]:
    start = time.perf_counter()
    layout: Layout | None = None

    def make() -> Movement:
        nonlocal layout
        where = None if buf is None else is_on_device(buf)
        found = signature(settings, where, root=check_root(root, transport.size))
        if transport.rank != root:
            return Movement(found, None, None, transport, where)
        array = given_array(buf, "buf")
        layout = Layout(array.dtype, array.shape, bool(where))
        call = Movement(found, Shares(array, [array.size]), array.dtype, transport, where)
        call.result = buf
        return call

    call, known = yield from agreed(transport, make)
    top = check_root(root, transport.size)
    dtype, shape, on_device = yield from shared_layout(transport.comm, layout, top)
    count = math.prod(shape)
    fills = transport.rank != top or call.signature.options.replace_root

    def prepare() -> None:
        if call.on_device is None:
            call.on_device = on_device
        if fills:
            call.fill(given_room(buf, "buf", shape, dtype, call.on_device), [count])

    def schedule(algorithm: str, link: Link, cutter: Cutter) -> Steps:
        return _ALGORITHMS[algorithm](link, cutter.chunks(count), top, decode_root=fills)

    def native(send: Bytes | None, into: Bytes | None) -> None:
        transport.comm.Bcast(whole(send if transport.rank == top else into, dtype), top)
        fill_root(send, into)

    def by_nccl(nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        nccl.bcast(send if transport.rank == top else into, top)
        fill_root(send, into)

    def fill_root(send: Bytes | None, into: Bytes | None) -> None:
        if send is not None and into is not None:  # `replace_root`
            into[...] = send

    nbytes = count * dtype.itemsize
    route = Route(schedule, native, nbytes if transport.rank == top else 0, by_nccl)
    told = yield from move(transport, call, known, dtype, nbytes, prepare, route, start)
    result = as_given(call.result, buf)
    return (result, told) if return_info else result
