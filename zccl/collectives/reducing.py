"""What the reductions share: from agreed arguments to a result."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from mpi4py import MPI

from zccl import errorbound
from zccl.algorithms.agreement import Agreed
from zccl.algorithms.primitives import ReducingLink, Steps, StepsTo
from zccl.algorithms.protocols import ReducingCodec
from zccl.arrays import is_on_device, overlap
from zccl.codecs.coder import make_coder
from zccl.codecs.places import Place, Row
from zccl.codecs.plain import PlainReduction, divide, reduce_plain
from zccl.codecs.quantised import QuantisedCodec
from zccl.codecs.tiles import Grid, axes_of
from zccl.collectives.carriers import Carrier, chosen_carrier, made, messages_by
from zccl.collectives.reduction import HostTwin, Reduction, Settings, Signature
from zccl.collectives.running import (
    NO_GRID,
    Decision,
    Made,
    Outcome,
    Traffic,
    agreed,
    announce,
    as_given,
    done_by_all,
    holds_everywhere,
    info,
    machine_of,
    run_schedule,
)
from zccl.config import cpu_threads
from zccl.device import array_on_device, array_on_host
from zccl.machines import Machine
from zccl.ops import Op
from zccl.options import CODINGS
from zccl.plan import choose
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
        The steps of MPI's own collective.
    native_share : function of the number of ranks
        What part of the array the native algorithm with the fewest bytes sends.
    nccl : function of NCCL's collectives and the call
        NCCL's collective.
    """

    make: Callable[[Settings, Any, Any, MpiTransport], Reduction]
    schedule: Callable[
        [str, Reduction, MpiTransport, int], tuple[Callable[[ReducingLink], Steps], Place]
    ]
    native: Callable[[MpiTransport, Reduction | HostTwin, MPI.Op], Steps]
    native_share: Callable[[int], float]
    nccl: Callable[[Any, Reduction], None]


class ReadyReduction:
    """A reduction whose arguments all ranks have agreed on.

    Parameters
    ----------
    family : Family
        Which one.
    settings, sendbuf, recvbuf
        As the caller gave them.
    """

    def __init__(self, family: Family, settings: Settings, sendbuf: Any, recvbuf: Any):
        self._family = family
        self._settings = settings
        self._sendbuf = sendbuf
        self._recvbuf = recvbuf
        self._steady = False
        self._kept: dict[Any, Work] = {}
        self._carrier: Carrier | None = None

    def agree(self, transport: MpiTransport) -> Steps:
        """Check the arguments, and agree on them."""
        self._call, self._known = yield from agreed(
            transport,
            lambda: self._family.make(self._settings, self._sendbuf, self._recvbuf, transport),
        )
        self._kept.clear()
        self._carrier = None

    def keep(self, transport: MpiTransport) -> Steps:
        """Get ready to be run again and again, always into the same array."""
        call = self._call
        if self._recvbuf is None:
            self._recvbuf = call.result
        given = self._recvbuf if self._sendbuf is MPI.IN_PLACE else self._sendbuf
        there = not call.source.size or overlap(call.source, given)
        self._steady = yield from holds_everywhere(transport, there and not call.counts_range)
        if self._steady:
            wanted = call.signature.options.transport
            self._carrier = yield from chosen_carrier(transport, wanted, self._known)

    def renew(self, transport: MpiTransport) -> Steps:
        """Read the input again where it was copied, and agree on its range where that counts."""
        if not self._steady:
            yield from self.agree(transport)

    def run(self, transport: MpiTransport, start: float) -> StepsTo[Outcome]:
        """Reduce."""
        family, call, known = self._family, self._call, self._known
        s = call.signature
        carrier = yield from chosen_carrier(transport, s.options.transport, known, self._carrier)
        machine = machine_of(transport, carrier, known, s.options)
        decision = decide(
            s, transport.rank, transport.size, *known.ends, machine, known.ratio, known.settled
        )
        announce(transport, decision.plan, carrier, s.terms)
        at = time.perf_counter()
        if decision.plan.algorithm == "native":
            yield from _native(family, transport, call, carrier, known)
            sent = round(s.nbytes * family.native_share(transport.size))
            traffic = Traffic(sent, sent, wire_seconds=time.perf_counter() - at)
        else:
            work = yield from self._work(transport, carrier, decision, machine.segment_nbytes)
            traffic = yield from _own(transport, carrier, work)
            if self._steady:
                self._kept = {(decision, carrier.direct): work}
        result = as_given(call.deliver(), self._recvbuf)
        end = time.perf_counter()
        return Outcome(
            result,
            lambda: info(s.collective, decision, carrier, s.nbytes, traffic, start, at, end),
        )

    def _work(
        self, transport: MpiTransport, carrier: Carrier, decision: Decision, segment: int
    ) -> StepsTo[Work]:
        """Return the schedule and its codec: those of the last run, where nothing has changed."""
        kept = self._kept.pop((decision, carrier.direct), None)  # to be kept when it has worked
        if kept is not None:
            kept.codec.escapes, kept.codec.seconds = 0, 0.0
            return kept
        call, known = self._call, self._known
        if decision.grid.step:
            call.cut(known.axes)
        schedule, place = self._family.schedule(decision.plan.algorithm, call, transport, segment)
        codec = yield from _made(
            transport, known, lambda: _codec(call, place, transport, decision.grid, carrier.direct)
        )
        return Work(schedule, place, codec)


def _native(
    family: Family, transport: MpiTransport, call: Reduction, carrier: Carrier, known: Agreed
) -> Steps:
    """Run MPI's own collective, or NCCL's."""
    s = call.signature
    if carrier.collectives is not None and _nccl_can(s):
        family.nccl((yield from made(transport, carrier.collectives)), call)
    else:
        twin = yield from _made(
            transport, known, lambda: call.on_host() if call.on_device else None
        )
        yield from family.native(transport, twin or call, s.mpi_op)
        if twin is not None:
            twin.deliver()
    if s.op is Op.AVG and call.target is not None:
        divide(call.target, float(transport.size))


def _nccl_can(s: Signature) -> bool:
    from zccl.transport.nccl import can_reduce  # there where NCCL is

    return can_reduce(s.op, s.dtype)


class Work(NamedTuple):
    """One of zccl's own algorithms: who talks to whom, where results go, and the codec."""

    schedule: Callable[[ReducingLink], Steps]
    place: Place
    codec: ReducingCodec


def _own(transport: MpiTransport, carrier: Carrier, work: Work) -> StepsTo[Traffic]:
    """Run one of zccl's own algorithms."""
    link = ReducingLink((yield from messages_by(transport, carrier)), work.codec)
    traffic = yield from run_schedule(transport, link, work.codec, work.schedule(link))
    work.place.finish()
    return traffic


def _made(transport: MpiTransport, known: Agreed, make: Callable[[], Made]) -> StepsTo[Made]:
    """Return what `make` makes, which may fail on one rank where memory of GPUs is asked for."""
    if known.device:
        return (yield from done_by_all(transport, make))
    return make()


@functools.lru_cache(1024)
def decide(
    s: Signature,
    rank: int,
    size: int,
    low: float,
    high: float,
    machine: Machine,
    ratio: float,
    settled: bool,
) -> Decision:
    """Return what all ranks do, from what they have agreed on."""
    choice = s.settled(size, settled) or choose(
        s.collective, s.algorithm, s.nbytes, size, machine, ratio, codable=s.codable,
        exact=s.error_bound == 0, reproducible=s.options.reproducible, itemsize=s.dtype.itemsize,
        op=s.op if isinstance(s.op, Op) else None,
    )  # fmt: skip
    if choice.algorithm == "native":
        return Decision(choice, NO_GRID, 0.0)
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
    return Decision(choice, grid, promised)


def _codec(
    call: Reduction, place: Place, transport: MpiTransport, grid: Grid, direct: bool
) -> ReducingCodec:
    """Return the codec: of codes where there is a grid, else of plain values."""
    s = call.signature
    op = s.op
    threads = cpu_threads(transport.local_size)
    if grid.step:
        assert isinstance(op, Op)
        coding = CODINGS.index(s.options.coding)
        coder = make_coder(s.dtype, threads, call.on_device, direct, coding, axes_of(call.sent))
        return QuantisedCodec(call.sent, place, grid, op, coder)
    coder = make_coder(s.dtype, threads, call.on_device, direct)
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
