"""What the reductions share: from agreed arguments to a result."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from mpi4py import MPI

from zccl import errorbound
from zccl.algorithms.primitives import ReducingLink, Steps, StepsTo, finish
from zccl.algorithms.protocols import ReducingCodec
from zccl.arrays import is_on_device
from zccl.codecs.coder import make_coder
from zccl.codecs.places import Place, Row
from zccl.codecs.plain import PlainReduction, divide, reduce_plain
from zccl.codecs.quantised import QuantisedCodec
from zccl.codecs.tiles import Grid
from zccl.collectives.carriers import Carrier, can_reduce, choose_carrier
from zccl.collectives.reduction import HostTwin, Reduction, Settings, Signature
from zccl.collectives.running import (
    NO_GRID,
    Decision,
    Traffic,
    agreed,
    announce,
    as_given,
    communicator,
    done_by_all,
    info,
    run_schedule,
)
from zccl.config import cpu_threads
from zccl.device import array_on_device, array_on_host
from zccl.ops import Op
from zccl.plan import own_plan, segment_size
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array


class Family(NamedTuple):
    """What is special about one reduction.

    Attributes
    ----------
    make : function of settings, sendbuf, recvbuf and transport
        Checks the arguments on this rank.
    schedule : function of algorithm, call, transport and segment size
        The schedule to run, and the place for its results.
    native : function of transport, call (or its twin on the host) and operation
        MPI's own collective.
    native_share : function of the number of ranks
        What part of the array the native algorithm with the fewest bytes sends.
    nccl : function of NCCL's collectives and the call
        NCCL's collective.
    """

    make: Callable[[Settings, Any, Any, MpiTransport], Reduction]
    schedule: Callable[
        [str, Reduction, MpiTransport, int], tuple[Callable[[ReducingLink], Steps], Place]
    ]
    native: Callable[[MpiTransport, Reduction | HostTwin, MPI.Op], None]
    native_share: Callable[[int], float]
    nccl: Callable[[Any, Reduction], None]


def reduce_over(
    family: Family,
    settings: Settings,
    sendbuf: Any,
    recvbuf: Any,
    comm: MPI.Intracomm | None,
    return_info: bool,
) -> Any:
    """Make the call of one of the reductions."""
    steps = _reduction(family, settings, sendbuf, recvbuf, communicator(comm), return_info)
    return finish(steps)


def _reduction(
    family: Family,
    settings: Settings,
    sendbuf: Any,
    recvbuf: Any,
    transport: MpiTransport,
    return_info: bool,
) -> StepsTo[Any]:
    start = time.perf_counter()
    call, known = yield from agreed(
        transport, lambda: family.make(settings, sendbuf, recvbuf, transport)
    )
    s = call.signature
    carrier = choose_carrier(transport, s.options.transport, known)
    decision = decide(s, transport.rank, transport.size, transport.one_node, *known.ends)
    announce(transport, decision.plan, carrier, s.terms)
    native = decision.plan.algorithm == "native"
    tools = Tools()

    def get_ready() -> None:
        if native:
            tools.twin = call.on_host() if call.on_device and not by_nccl(call, carrier) else None
        else:
            segment = segment_size(s.options.segment_nbytes, known.device)
            tools.schedule, tools.place = family.schedule(
                decision.plan.algorithm, call, transport, segment
            )
            tools.codec = _codec(call, tools.place, transport, decision.grid, carrier.direct)

    if known.device:  # on one rank memory or kernels may be missing
        yield from done_by_all(transport, get_ready)
    else:
        get_ready()
    at = time.perf_counter()
    if native:
        _native(family, transport, call, carrier, tools.twin)
        sent = round(s.nbytes * family.native_share(transport.size))
        traffic = Traffic(sent, sent, wire_seconds=time.perf_counter() - at)
    else:
        link = ReducingLink(carrier.messages(), tools.codec)
        traffic = yield from run_schedule(transport, link, tools.codec, tools.schedule(link))
        tools.place.finish()
    result = as_given(call.deliver(), recvbuf)
    if not return_info:
        return result
    return result, info(settings.collective, decision, carrier, s.nbytes, traffic, start, at)


class Tools:
    """What a call works with, made before data moves: `twin`, or the other three."""

    twin: HostTwin | None
    schedule: Callable[[ReducingLink], Steps]
    place: Place
    codec: ReducingCodec


def by_nccl(call: Reduction, carrier: Carrier) -> bool:
    """Whether NCCL's collective takes the place of MPI's."""
    s = call.signature
    return carrier.collectives is not None and can_reduce(s.op, s.dtype)


def _native(
    family: Family,
    transport: MpiTransport,
    call: Reduction,
    carrier: Carrier,
    twin: HostTwin | None,
) -> None:
    """Run MPI's own collective, or NCCL's."""
    s = call.signature
    if carrier.collectives is not None and by_nccl(call, carrier):
        family.nccl(carrier.collectives(), call)
    else:
        family.native(transport, twin or call, s.mpi_op)
        if twin is not None:
            twin.deliver()
    if s.op is Op.AVG and call.target is not None:
        divide(call.target, float(transport.size))


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


def _codec(
    call: Reduction, place: Place, transport: MpiTransport, grid: Grid, direct: bool
) -> ReducingCodec:
    """Return the codec: of codes where there is a grid, else of plain values."""
    s = call.signature
    op = s.op
    coder = make_coder(s.dtype, cpu_threads(transport.local_size), call.on_device, direct)
    if grid.step:
        assert isinstance(op, Op)
        return QuantisedCodec(call.source, place, grid, op, coder)
    divisor = float(transport.size) if op is Op.AVG else 1.0
    return PlainReduction(Row(call.source), place, s.dtype, _plain_reduction(op), divisor, coder)


def _plain_reduction(op: Op | MPI.Op) -> Callable[[Array, Array], Array]:
    if isinstance(op, Op):
        return lambda a, b: reduce_plain(op, a, b)
    if not op.Is_commutative():
        raise NotImplementedError(
            "op: a non-commutative operation works with algorithm='native' only"
        )

    def reduce(a: Array, b: Array) -> Array:
        if is_on_device(a):
            return array_on_device(reduce(array_on_host(a), array_on_host(b)))
        result = b.copy()
        op.Reduce_local(a, result)
        return result

    return reduce
