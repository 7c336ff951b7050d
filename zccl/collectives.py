"""The collectives, as users call them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl import errorbound
from zccl.algorithms.agreement import agree
from zccl.algorithms.primitives import Link, Steps, run
from zccl.algorithms.protocols import Codec
from zccl.algorithms.recursive_doubling import recursive_doubling_allreduce
from zccl.algorithms.ring import ring_allreduce
from zccl.codecs.plain import PlainCodec, reduce_plain
from zccl.codecs.quantised import QuantisedCodec
from zccl.codecs.tiles import Grid
from zccl.config import cpu_threads
from zccl.info import Info
from zccl.kernels.cpu.value_range import value_range
from zccl.ops import Op
from zccl.options import Options
from zccl.plan import Plan, chunk_parts, plan_allreduce
from zccl.reduction import Reduction, Signature
from zccl.transport.mpi import MpiTransport, transport_of
from zccl.typing import Array

_ALGORITHMS: dict[str, Callable[[Link, list[list[slice]]], Steps]] = {
    "ring": ring_allreduce,
    "recursive_doubling": recursive_doubling_allreduce,
}
_MPI_OPS = {Op.SUM: MPI.SUM, Op.AVG: MPI.SUM, Op.MAX: MPI.MAX, Op.MIN: MPI.MIN}

NO_GRID = Grid(0.0, 0.0)

_log = logging.getLogger("zccl")


def allreduce(
    sendbuf: Any,
    recvbuf: Array | None = None,
    op: MPI.Op | Op = MPI.SUM,
    comm: MPI.Intracomm | None = None,
    *,
    error_bound: float | None = None,
    mode: str = "abs",
    algorithm: str = "auto",
    stream: None = None,
    return_info: bool = False,
    options: Options | None = None,
) -> Any:
    """Reduce an array over all ranks and give every rank the result.

    Collective: all ranks call it with arrays of the same shape and dtype and with the same
    arguments. A fault on any rank is raised on all of them before data moves.

    Parameters
    ----------
    sendbuf : ndarray or MPI.IN_PLACE
        This rank's array, any shape, layout and byte order: float16, float32, float64, complex64,
        complex128; integers (always exact) and, for logical and bitwise operations, bool. With
        `MPI.IN_PLACE` the input is taken from `recvbuf`.
    recvbuf : ndarray, optional
        Filled with the result and returned: same shape and dtype as the input, any layout,
        writeable. It may be `sendbuf` itself.
    op : MPI.Op or zccl.SUM, zccl.AVG, zccl.MAX, zccl.MIN
        The operation. With a bound: SUM, AVG (the sum divided by the number of ranks), MAX and MIN.
    comm : MPI.Intracomm, optional
        Communicator, `MPI.COMM_WORLD` by default. zccl talks on a private duplicate of it.
    error_bound : float, optional
        Largest absolute difference of each element of the result (each component of a complex one)
        from the exact result on the given inputs, up to one rounding to the dtype. None: exact, by
        the native collective. 0: exact, by zccl's own algorithms.
    mode : {"abs", "rel"}
        Whether the bound is a number in the unit of the array, or a fraction of the value range
        (largest minus smallest finite value) of all ranks' inputs; a range of 0 makes the result
        exact.
    algorithm : {"auto", "ring", "recursive_doubling", "native"}
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
        The result, `recvbuf` if that was given. With a coded algorithm its bits are the same on all
        ranks, whatever the algorithm.
    Info
        Only with `return_info=True`.

    Raises
    ------
    TypeError
        An argument of a wrong type, a dtype that cannot be carried, an operation that the dtype
        does not have.
    ValueError
        A wrong value, arrays or arguments that differ between ranks, a value range that overflows
        float64.
    NotImplementedError
        A bound together with an operation other than SUM, AVG, MAX and MIN.
    TransportError
        A communicator that cannot be used, or a failure while data moved.

    Notes
    -----
    Each rank's values are quantised once, on a grid that is common to all; messages carry
    losslessly packed integers and hops add integers, so the error does not grow with the number of
    hops (NCCLZ, arXiv 2605.12396; algorithms of gZCCL, arXiv 2308.05199).

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import zccl
    >>> x = np.linspace(0, 1, 10_000, dtype=np.float32)
    >>> total = zccl.allreduce(x, error_bound=1e-3, mode="rel", algorithm="ring")
    >>> bool(np.abs(total - MPI.COMM_WORLD.size * x).max() <= 1.001e-3)
    True
    """
    start = time.perf_counter()
    transport = transport_of(MPI.COMM_WORLD if comm is None else comm)
    call: Reduction | None = None
    fault: Exception | None = None
    arguments: dict[str, str] = {}
    value_ends = (math.inf, -math.inf)
    try:
        if stream is not None:
            raise ValueError(f"stream: got {stream!r}, wanted None: the array is not on a GPU")
        call = Reduction("allreduce", sendbuf, recvbuf, op, error_bound, mode, algorithm, options)
        arguments = call.signature.arguments
        if call.signature.wants_range:
            value_ends = value_range(call.source, call.signature.fill)
    except Exception as error:
        fault = error
    value_ends = agree(transport.comm, arguments, fault, value_ends)
    assert call is not None  # else there was a fault

    grid, promised = _common_grid(call, transport, *value_ends)
    s = call.signature
    plan = plan_allreduce(
        s.algorithm, call.source.nbytes, transport.size,
        coded=grid.step > 0, exact=s.error_bound == 0 or s.codable,
        one_node=transport.one_node, reproducible=s.options.reproducible,
    )  # fmt: skip
    _announce(transport, plan, s)
    agreed = time.perf_counter()
    if plan.algorithm == "native":
        info = _run_native(call, transport, plan)
    else:
        info = _run_schedule(call, transport, plan, grid, promised)
    result = call.deliver()
    info.seconds.update(agree=agreed - start, total=time.perf_counter() - start)
    return (result, info) if return_info else result


def _common_grid(
    call: Reduction, transport: MpiTransport, low: float, high: float
) -> tuple[Grid, float]:
    """Return the common grid, of step 0 where nothing is quantised, and the promised bound."""
    s = call.signature
    if not s.codable or s.error_bound is None:
        return NO_GRID, 0.0
    assert isinstance(s.op, Op)  # others take no bound
    size, budget = transport.size, s.options.error_budget
    bound = errorbound.absolute_bound(s.error_bound, s.mode, low, high)
    rank_bound = errorbound.rank_bound(bound, s.op, size, budget)
    step = errorbound.grid_step(rank_bound, call.source.dtype)
    added = size if s.op in (Op.SUM, Op.AVG) else 1
    grid = Grid(step, rank_bound, movement=False, ranks=added, rank=transport.rank, fill=s.fill)
    return grid, errorbound.result_bound(bound, s.op, size, budget)


def _announce(transport: MpiTransport, plan: Plan, s: Signature) -> None:
    if transport.rank == 0 and _log.isEnabledFor(logging.INFO):
        a = s.arguments
        _log.info(
            "%s: %s of %s %s over %d ranks: %s (%s)",
            a["collective"], a["op"], a["dtype"], a["shape"], transport.size, *plan,
        )  # fmt: skip


def _run_schedule(
    call: Reduction, transport: MpiTransport, plan: Plan, grid: Grid, promised: float
) -> Info:
    """Run one of zccl's own algorithms, on codes where there is a grid, else on plain values."""
    source, target, s = call.source, call.target, call.signature
    codec: Codec
    if grid.step:
        assert isinstance(s.op, Op)
        codec = QuantisedCodec(source, target, grid, s.op, cpu_threads(transport.local_size))
    else:
        divisor = float(transport.size) if s.op is Op.AVG else 1.0
        codec = PlainCodec(source, target, _plain_reduction(s.op), divisor)
    chunks = chunk_parts(source.size, source.itemsize, transport.size, s.options.segment_nbytes)
    link = Link(transport, codec)
    waited = run(_ALGORITHMS[plan.algorithm](link, chunks))
    agree(transport.comm, {}, link.fault())
    return Info(
        s.arguments["collective"], plan.algorithm, plan.reason, promised if grid.step else 0.0,
        grid.step, source.nbytes, link.sent_nbytes, link.plain_nbytes, codec.escapes,
        {"code": codec.seconds, "wire": waited},
    )  # fmt: skip


def _plain_reduction(op: Op | MPI.Op) -> Callable[[Array, Array], Array]:
    if isinstance(op, Op):
        return lambda a, b: reduce_plain(op, a, b)
    if not op.Is_commutative():
        raise NotImplementedError(
            "op: a non-commutative operation works with algorithm='native' only"
        )

    def reduce(a: Array, b: Array) -> Array:
        result = b.copy()
        op.Reduce_local(a, result)
        return result

    return reduce


def _run_native(call: Reduction, transport: MpiTransport, plan: Plan) -> Info:
    """Run MPI's own allreduce."""
    start = time.perf_counter()
    s = call.signature
    op = _MPI_OPS[s.op] if isinstance(s.op, Op) else s.op
    transport.comm.Allreduce(MPI.IN_PLACE if call.in_place else call.source, call.target, op)
    if s.op is Op.AVG:
        np.divide(call.target, transport.size, out=call.target)
    sent = 2 * call.source.nbytes * (transport.size - 1) // transport.size
    return Info(
        s.arguments["collective"], plan.algorithm, plan.reason, 0.0, 0.0, call.source.nbytes, sent,
        sent, seconds={"code": 0.0, "wire": time.perf_counter() - start},
    )  # fmt: skip
