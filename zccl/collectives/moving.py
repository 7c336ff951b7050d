"""What the collectives that move data share: from agreed arguments to a result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from zccl import errorbound
from zccl.algorithms.agreement import NO_RANGE, Terms
from zccl.algorithms.primitives import Link, Steps
from zccl.algorithms.protocols import Codec
from zccl.arrays import value_dtype
from zccl.codecs.movement import MovementCodec
from zccl.codecs.places import Nowhere, Place
from zccl.codecs.plain import PlainCodec
from zccl.codecs.ranges import finite_range
from zccl.codecs.tiles import Grid
from zccl.collectives.arguments import refuse_stream
from zccl.collectives.grids import movement_grid
from zccl.collectives.running import NO_GRID, Decision, Traffic, announce, info, run_schedule
from zccl.collectives.shares import Shares, components
from zccl.config import cpu_threads, overrides
from zccl.options import Options, effective_options
from zccl.plan import Plan, check_algorithm, chunk_parts, own_plan, row_parts, settled_plan
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array, Bytes


class Settings(NamedTuple):
    """The arguments of a collective that moves data, beside its buffers, as given."""

    collective: str
    error_bound: float | None
    mode: str
    algorithm: str
    stream: object
    options: Options | None


@dataclass(frozen=True)
class Signature:
    """Those arguments, checked; they must be equal on all ranks."""

    collective: str
    error_bound: float | None
    mode: str
    algorithm: str
    options: Options
    terms: Terms

    @property
    def fill(self) -> float:
        """The named fill value; NaN for none."""
        return math.nan if self.options.fill_value is None else self.options.fill_value

    def codable(self, dtype: np.dtype) -> bool:
        """Whether values of arrays of this dtype may be quantised."""
        return bool(self.error_bound) and value_dtype(dtype) is not None

    def settled(
        self, dtype: np.dtype, transport: MpiTransport, share_nbytes: float = math.inf
    ) -> Plan | None:
        """Return the plan where it does not depend on the values."""
        return settled_plan(
            self.algorithm, share_nbytes, transport.size, codable=self.codable(dtype),
            exact=self.error_bound == 0, one_node=transport.one_node,
            reproducible=self.options.reproducible,
        )  # fmt: skip


def signature(settings: Settings, **more: object) -> Signature:
    """Check arguments; `more` is what else must be equal. Raises what is wrong with them."""
    refuse_stream(settings.stream)
    options = effective_options(settings.options)
    algorithm = check_algorithm(
        settings.collective, settings.algorithm, overrides().get("algorithm")
    )
    bound = errorbound.check_error_bound(settings.error_bound)
    errorbound.check_mode(settings.mode)
    arguments = {
        "collective": settings.collective,
        **{name: str(value) for name, value in more.items()},
        "error_bound": repr(bound),
        "mode": settings.mode,
        "algorithm": algorithm,
        "options": repr(options),
    }
    return Signature(
        settings.collective, bound, settings.mode, algorithm, options, Terms.of(arguments)
    )


class Movement:
    """A movement of data with this rank's buffers.

    Parameters
    ----------
    signature : Signature
        The arguments.
    source : Shares or None
        What this rank gives; None for nothing.
    dtype : dtype or None
        Of the array; None where only the root knows yet.
    transport : MpiTransport
        Of the communicator.
    """

    def __init__(
        self,
        signature: Signature,
        source: Shares | None,
        dtype: np.dtype | None,
        transport: MpiTransport,
    ):
        self.signature = signature
        self.source = source
        self.target: Shares | None = None
        self._ends = NO_RANGE
        self._values: Array | None = None
        if source is not None and dtype is not None and signature.codable(dtype):
            if signature.settled(dtype, transport) is None:
                self._values = source.values()
                threads = cpu_threads(transport.local_size)
                self._ends = finite_range(self._values, signature.fill, threads)

    def value_ends(self) -> tuple[float, float]:
        """Return the smallest and largest finite value here."""
        return self._ends

    def codec(self, decision: Decision, dtype: np.dtype, threads: int) -> Codec:
        """Return the codec: of values where there is a grid, else of plain elements."""
        s = self.signature
        place: Place = Nowhere()
        given: Place = Nowhere()
        if not decision.grid.step:
            if self.source is not None:
                given = self.source.place(self.source.elements())
            if self.target is not None:
                place = self.target.place(self.target.elements_target())
            return PlainCodec(given, place, dtype)
        grid = decision.grid
        if self.source is not None:
            assert self._values is not None
            given = self.source.place(self._values)
            grid = movement_grid(
                self._values, decision.promised, self._ends, s.fill, half=dtype == np.float16
            )
        if self.target is not None:
            place = self.target.place(self.target.values_target())
        values = value_dtype(dtype)
        assert values is not None
        return MovementCodec(given, place, values, grid, threads)

    def native_buffers(self) -> tuple[Bytes | None, Bytes | None]:
        """Return what to send and where to receive, as bytes."""
        send = None if self.source is None else self.source.elements().view(np.uint8)
        into = None if self.target is None else self.target.elements_target().view(np.uint8)
        return send, into


class Cutter(NamedTuple):
    """Cuts the row of all ranks' shares into parts of one message."""

    components: int
    itemsize: int
    segment_nbytes: int
    size: int

    def rows(self, counts: list[int]) -> list[list[slice]]:
        """Cut shares of so many elements, each a row of its own."""
        counts = [count * self.components for count in counts]
        return row_parts(counts, self.itemsize, self.segment_nbytes)

    def chunks(self, count: int) -> list[list[slice]]:
        """Cut an array of so many elements into a chunk for each rank."""
        return chunk_parts(count * self.components, self.itemsize, self.size, self.segment_nbytes)


class Route(NamedTuple):
    """How data gets where it belongs.

    Attributes
    ----------
    schedule : function of algorithm, link and cutter
        One of zccl's own algorithms.
    native : function of the bytes to send and those to fill
        MPI's own collective.
    native_nbytes : int
        Bytes that this rank sends there.
    """

    schedule: Callable[[str, Link, Cutter], Steps]
    native: Callable[[Bytes | None, Bytes | None], None]
    native_nbytes: int


def move(
    transport: MpiTransport,
    call: Movement,
    ends: tuple[float, float],
    dtype: np.dtype,
    nbytes: int,
    share_nbytes: int,
    route: Route,
    start: float,
) -> Any:
    """Move the data of a call whose arguments are agreed on; returns what happened."""
    at = time.perf_counter()
    s = call.signature
    decision = _decide(s, transport, ends, dtype, share_nbytes)
    announce(transport, decision.plan, s.terms)
    if decision.plan.algorithm == "native":
        route.native(*call.native_buffers())
        sent = route.native_nbytes
        traffic = Traffic(sent, sent, wire_seconds=time.perf_counter() - at)
    else:
        codec = call.codec(decision, dtype, cpu_threads(transport.local_size))
        link = Link(transport, codec)
        coded = decision.grid.step > 0
        cutter = Cutter(
            components(dtype) if coded else 1, codec.itemsize, s.options.segment_nbytes,
            transport.size,
        )  # fmt: skip
        steps = route.schedule(decision.plan.algorithm, link, cutter)
        traffic = run_schedule(transport, link, codec, steps)
    if call.target is not None:
        call.target.deliver()
    return info(s.collective, decision, nbytes, traffic, start, at)


def _decide(
    s: Signature,
    transport: MpiTransport,
    ends: tuple[float, float],
    dtype: np.dtype,
    share_nbytes: int,
) -> Decision:
    """Return what all ranks do, from what they have agreed on."""
    settled = s.settled(dtype, transport, share_nbytes)
    if settled is not None:
        return Decision(settled, NO_GRID, 0.0)
    plan = own_plan(s.collective, s.algorithm, share_nbytes, transport.size)
    values = value_dtype(dtype)
    if values is None or not s.error_bound:
        return Decision(plan, NO_GRID, 0.0)
    bound = errorbound.absolute_bound(s.error_bound, s.mode, *ends)
    grid = Grid(errorbound.grid_step(bound, values), bound, fill=s.fill)
    return Decision(plan, grid, bound)


def counted(buffer: Bytes | None, counts: list[int], itemsize: int) -> Any:
    """Return a message of shares of so many elements, as MPI's calls with counts take it."""
    sizes = [count * itemsize for count in counts]
    return None if buffer is None else [buffer, sizes, MPI.BYTE]
