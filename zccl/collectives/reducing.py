"""What the reductions share: from agreed arguments to a result."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from zccl import errorbound
from zccl.algorithms.primitives import ReducingLink, Steps
from zccl.algorithms.protocols import ReducingCodec
from zccl.codecs.places import Place, Row
from zccl.codecs.plain import PlainReduction, reduce_plain
from zccl.codecs.quantised import QuantisedCodec
from zccl.codecs.tiles import Grid
from zccl.collectives.reduction import Reduction, Settings, Signature
from zccl.collectives.running import (
    NO_GRID,
    Decision,
    Traffic,
    agreed,
    announce,
    communicator,
    info,
    run_schedule,
)
from zccl.config import cpu_threads
from zccl.ops import Op
from zccl.plan import own_plan
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array


class Family(NamedTuple):
    """What is special about one reduction.

    Attributes
    ----------
    make : function of settings, sendbuf, recvbuf and transport
        Checks the arguments on this rank.
    schedule : function of algorithm, call and transport
        The schedule to run, and the place for its results.
    native : function of transport, call and operation
        MPI's own collective.
    native_share : function of the number of ranks
        What part of the array the native algorithm with the fewest bytes sends.
    """

    make: Callable[[Settings, Any, Any, MpiTransport], Reduction]
    schedule: Callable[
        [str, Reduction, MpiTransport], tuple[Callable[[ReducingLink], Steps], Place]
    ]
    native: Callable[[MpiTransport, Reduction, MPI.Op], None]
    native_share: Callable[[int], float]


def reduce_over(
    family: Family,
    settings: Settings,
    sendbuf: Any,
    recvbuf: Any,
    comm: MPI.Intracomm | None,
    return_info: bool,
) -> Any:
    """Make the call of one of the reductions."""
    start = time.perf_counter()
    transport = communicator(comm)
    call, low, high = agreed(transport, lambda: family.make(settings, sendbuf, recvbuf, transport))
    s = call.signature
    decision = decide(s, transport.rank, transport.size, transport.one_node, low, high)
    announce(transport, decision.plan, s.terms)
    at = time.perf_counter()
    if decision.plan.algorithm == "native":
        family.native(transport, call, s.mpi_op)
        if s.op is Op.AVG and call.target is not None:
            np.divide(call.target, transport.size, out=call.target)
        sent = round(s.nbytes * family.native_share(transport.size))
        traffic = Traffic(sent, sent, wire_seconds=time.perf_counter() - at)
    else:
        schedule, place = family.schedule(decision.plan.algorithm, call, transport)
        codec = _codec(call, place, transport, decision.grid)
        link = ReducingLink(transport, codec)
        traffic = run_schedule(transport, link, codec, schedule(link))
        place.finish()
    result = call.deliver()
    if not return_info:
        return result
    return result, info(settings.collective, decision, s.nbytes, traffic, start, at)


@functools.lru_cache(1024)
def decide(s: Signature, rank: int, size: int, one_node: bool, low: float, high: float) -> Decision:
    """Return what all ranks do, from what they have agreed on."""
    settled = s.settled(size, one_node)
    if settled is not None:
        return Decision(settled, NO_GRID, 0.0)
    grid, promised = NO_GRID, 0.0
    if s.codable:
        assert isinstance(s.op, Op)  # others take no bound
        assert s.error_bound is not None
        budget = s.options.error_budget
        bound = errorbound.absolute_bound(s.error_bound, s.mode, low, high)
        rank_bound = errorbound.rank_bound(bound, s.op, size, budget)
        step = errorbound.grid_step(rank_bound, s.dtype)
        added = size if s.op in (Op.SUM, Op.AVG) else 1
        grid = Grid(step, rank_bound, movement=False, ranks=added, rank=rank, fill=s.fill)
        promised = errorbound.result_bound(bound, s.op, size, budget)
    choice = own_plan(s.collective, s.algorithm, s.nbytes, size)
    return Decision(choice, grid, promised)


def _codec(call: Reduction, place: Place, transport: MpiTransport, grid: Grid) -> ReducingCodec:
    """Return the codec: of codes where there is a grid, else of plain values."""
    s = call.signature
    op = s.op
    if grid.step:
        assert isinstance(op, Op)
        return QuantisedCodec(call.source, place, grid, op, cpu_threads(transport.local_size))
    divisor = float(transport.size) if op is Op.AVG else 1.0
    return PlainReduction(Row(call.source), place, s.dtype, _plain_reduction(op), divisor)


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
