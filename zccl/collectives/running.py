"""How every collective runs: agree, decide, move messages, tell about it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from mpi4py import MPI

from zccl.algorithms.agreement import NO_FACTS, NO_TERMS, Agreed, Facts, Terms, agree
from zccl.algorithms.primitives import Link, Steps, StepsTo, timed
from zccl.algorithms.progress import Blocking
from zccl.algorithms.protocols import Codec
from zccl.codecs.tiles import Grid
from zccl.collectives.carriers import Carrier
from zccl.device import is_device_array
from zccl.info import Info
from zccl.machines import Machine, default_machine
from zccl.options import Options
from zccl.plan import Plan, segment_size
from zccl.transport.mpi import MpiTransport, transport_of
from zccl.transport.waiting import Waiting

NO_GRID = Grid(0.0, 0.0)

_log = logging.getLogger("zccl")


class Decision(NamedTuple):
    """What a call will do: algorithm, grid (step 0: nothing is quantised) and promised bound."""

    plan: Plan
    grid: Grid
    promised: float


class Traffic(NamedTuple):
    """What a call did."""

    sent_nbytes: int
    plain_nbytes: int
    escapes: int = 0
    code_seconds: float = 0.0
    wire_seconds: float = 0.0


class Outcome(NamedTuple):
    """What a collective gives.

    Attributes
    ----------
    result : ndarray or None
        What it returns.
    tell : function that returns Info
        How it went.
    """

    result: Any
    tell: Callable[[], Info]

    @property
    def info(self) -> Info:
        """How it went."""
        return self.tell()

    def given(self, return_info: bool) -> Any:
        """Return what a caller gets."""
        return (self.result, self.tell()) if return_info else self.result


class _Signature(Protocol):
    @property
    def terms(self) -> Terms: ...


class Call(Protocol):
    """Arguments and buffers of a collective, checked on this rank."""

    @property
    def signature(self) -> _Signature:
        """What must be equal on all ranks."""
        ...

    def facts(self) -> Facts:
        """Return what this rank knows that all must."""
        ...


AnyCall = TypeVar("AnyCall", bound=Call)
Made = TypeVar("Made")


def communicator(comm: MPI.Intracomm | None) -> MpiTransport:
    """Return the transport of a communicator, MPI.COMM_WORLD by default."""
    return transport_of(MPI.COMM_WORLD if comm is None else comm)


def agreed(transport: MpiTransport, make: Callable[[], AnyCall]) -> StepsTo[tuple[AnyCall, Agreed]]:
    """Check the arguments on all ranks: the call, and what is known of all.

    Raises
    ------
    Exception
        What `make` raised on the lowest faulty rank, on all ranks; ValueError where arguments
        differ.
    """
    call: AnyCall | None = None
    fault: Exception | None = None
    terms, facts = NO_TERMS, NO_FACTS
    try:
        call = make()
        terms, facts = call.signature.terms, call.facts()
    except Exception as error:
        fault = error
    known = yield from agree(transport.comm, terms, fault, facts)
    assert call is not None  # else there was a fault
    return call, known


def holds_everywhere(transport: MpiTransport, fact: bool) -> StepsTo[bool]:
    """Return whether something is true on all ranks."""
    known = yield from agree(transport.comm, facts=Facts(number=float(not fact)))
    return not known.fact


def done_by_all(transport: MpiTransport, work: Callable[[], Made]) -> StepsTo[Made]:
    """Return what something gives that may fail on one rank; raise what it raised on all."""
    made: Made | None = None
    fault: Exception | None = None
    try:
        made = work()
    except Exception as error:
        fault = error
    yield from agree(transport.comm, NO_TERMS, fault)
    return cast(Made, made)  # else there was a fault


def machine_of(
    transport: MpiTransport, carrier: Carrier, known: Agreed, options: Options
) -> Machine:
    """Return what a call's messages travel on; its segments are those of the call."""
    segment = segment_size(options.segment_nbytes, known.device)
    return default_machine(
        carrier.name, transport.one_node, known.cores, segment, options.link_gbits
    )  # fmt: skip


def native(transport: MpiTransport, name: str, *arguments: Any) -> Steps:
    """Run one of MPI's own collectives.

    Its blocking form is faster, but must be called by all ranks or by none: in blocking calls,
    where MPI has threads that let other operations go on.
    """
    if transport.is_lane or MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        yield Waiting(getattr(transport.comm, f"I{name.lower()}")(*arguments))
    else:
        yield Blocking(getattr(transport.comm, name), *arguments)


def as_given(result: Any, recvbuf: Any) -> Any:
    """Return the caller's own array where the result is CuPy's view of one of another library."""
    if result is None or isinstance(recvbuf, np.ndarray | None) or not is_device_array(recvbuf):
        return result
    same = recvbuf.__class__ is not result.__class__ and recvbuf is not result
    return recvbuf if same and tuple(recvbuf.shape) == result.shape else result


def announce(transport: MpiTransport, plan: Plan, carrier: Carrier, terms: Terms) -> None:
    """Log a new plan, on rank 0: what will be done, and why."""
    if transport.rank or not _log.isEnabledFor(logging.INFO):
        return
    if (terms.key, plan, carrier.name) not in transport.announced:
        transport.announced.add((terms.key, plan, carrier.name))
        a = terms.arguments
        what = " ".join(a[name] for name in ("op", "dtype", "shape") if name in a)
        _log.info(
            "%s: %s over %d ranks: %s (%s)", a["collective"], what or "data", transport.size, *plan
        )
        if carrier.reason:
            _log.info("%s: carried by %s (%s)", a["collective"], carrier.name, carrier.reason)


def run_schedule(
    transport: MpiTransport, link: Link, codec: Codec, steps: Steps
) -> StepsTo[Traffic]:
    """Run one of zccl's own algorithms.

    Raises
    ------
    TransportError
        When it failed on any rank, on all ranks.
    """
    waited = yield from timed(steps)
    link.finish_codec()
    yield from agree(transport.comm, NO_TERMS, link.fault())
    return Traffic(link.sent_nbytes, link.plain_nbytes, codec.escapes, codec.seconds, waited)


def info(
    collective: str,
    decision: Decision,
    carrier: Carrier,
    nbytes: int,
    traffic: Traffic,
    start: float,
    agreed: float,
    ended: float,
) -> Info:
    """Gather what a call tells about itself; the last three are clock times."""
    plan, grid, promised = decision
    quantised = plan.algorithm != "native" and grid.step > 0
    return Info(
        collective, plan.algorithm, plan.reason, carrier.name, carrier.reason,
        promised if quantised else 0.0,
        grid.step if quantised else 0.0, nbytes, traffic.sent_nbytes, traffic.plain_nbytes,
        traffic.escapes,
        {
            "agree": agreed - start, "code": traffic.code_seconds, "wire": traffic.wire_seconds,
            "total": ended - start,
        },
    )  # fmt: skip
