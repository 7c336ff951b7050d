"""What the collectives that move data share: from agreed arguments to a result."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from zccl import errorbound
from zccl.algorithms.agreement import NO_RANGE, Agreed, Facts, Terms
from zccl.algorithms.primitives import Link, Steps, StepsTo
from zccl.algorithms.protocols import Codec
from zccl.arrays import check_stream, fill_number, is_on_device, overlap, value_dtype
from zccl.codecs.coder import make_coder
from zccl.codecs.movement import MovementCodec
from zccl.codecs.places import Nowhere, Place
from zccl.codecs.plain import PlainCodec
from zccl.codecs.ranges import finite_range
from zccl.codecs.sample import chosen_axes, rough, sample_ratio
from zccl.codecs.tiles import Grid, Tiles, Values
from zccl.collectives.carriers import Carrier, chosen_carrier, made, messages_by
from zccl.collectives.grids import movement_grid
from zccl.collectives.running import (
    NO_GRID,
    Decision,
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
from zccl.collectives.shares import Shares, components
from zccl.config import cpu_threads, overrides
from zccl.device import copy_to_device, copy_to_host, pinned_like
from zccl.machines import Machine
from zccl.options import CODINGS, Options, effective_options
from zccl.plan import (
    Plan,
    check_algorithm,
    choose,
    chunk_parts,
    row_parts,
    settled_plan,
)
from zccl.tiling import Tiling
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

    def fill(self, dtype: np.dtype) -> float:
        """Return the named fill value as an array of this dtype has it; NaN for none."""
        return fill_number(self.options.fill_value, dtype)

    def codable(self, dtype: np.dtype) -> bool:
        """Whether values of arrays of this dtype may be quantised."""
        return bool(self.error_bound) and value_dtype(dtype) is not None

    def settled(
        self, dtype: np.dtype, size: int, fast: bool, share_nbytes: float = math.inf
    ) -> Plan | None:
        """Return the plan where it does not depend on the values."""
        return settled_plan(
            self.algorithm, share_nbytes, size, codable=self.codable(dtype),
            exact=self.error_bound == 0, one_node=fast,
            reproducible=self.options.reproducible,
        )  # fmt: skip


def signature(settings: Settings, on_device: bool | None, **more: object) -> Signature:
    """Check arguments; `more` is what else must be equal. Raises what is wrong with them.

    `on_device` says where this rank's arrays are; None where it has none yet.
    """
    check_stream(settings.stream, on_device is not False)
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

    Attributes
    ----------
    result : ndarray or None
        What the call returns.
    target : Shares or None
        Where to put what comes; None for nothing.
    whole : tuple of int or None
        Shape of the array that this rank gives, where all of it is one row of all ranks.
    on_device : bool or None
        Whether the arrays are on a GPU; None where this rank has none yet.
    fact : float
        A number of which all ranks learn the largest; -inf for none.
    """

    def __init__(
        self,
        signature: Signature,
        source: Shares | None,
        dtype: np.dtype | None,
        transport: MpiTransport,
        on_device: bool | None,
        fact: float = -math.inf,
    ):
        self.signature = signature
        self.source = source
        self.on_device = on_device
        self.fact = fact
        self.target: Shares | None = None
        self.result: Array | None = None
        self.whole: tuple[int, ...] | None = None
        self._ends = NO_RANGE
        self._values: Array | None = None
        self._threads = cpu_threads(transport.local_size)
        self._transport = transport
        self._settled = self._coded = False
        if dtype is not None:
            fast = transport.is_fast(on_device)
            self._settled = signature.settled(dtype, transport.size, fast) is not None
            self._coded = source is not None and signature.codable(dtype) and not self._settled
        self.survey()

    @property
    def counts_range(self) -> bool:
        """Whether the bound counts in the range of the values."""
        return self._coded and self.signature.mode == "rel"

    def survey(self) -> None:
        """Look at the values that this rank gives, where they may be quantised."""
        if self._coded:
            assert self.source is not None
            self._values = self.source.values()
            fill = self.signature.fill(self.source.dtype)
            self._ends = finite_range(self._values, fill, self._threads)

    def lies_in(self, given: Any) -> bool:
        """Whether what it gives is read where the caller's array lies."""
        if self.source is None or not self.source.nbytes:
            return True
        row = self._values if self._values is not None else self.source.elements()
        return overlap(row, given)

    def fills_directly(self) -> bool:
        """Whether what it gets needs no other memory on the way."""
        if self.target is None or not self.target.nbytes:
            return True
        values = self.signature.codable(self.target.dtype)
        target = self.target
        row = target.values_target() if values else target.elements_target()
        return overlap(row, self.result)

    def facts(self) -> Facts:
        """Return what this rank knows that all must."""
        moved = self._transport.has_moved(self.on_device)
        return Facts(
            self._ends, self.fact, self.on_device, self._ratio(), self._settled, self._threads,
            moved, self._axes(),
        )  # fmt: skip

    def _ratio(self) -> float:
        """Return the compression ratio to expect, where an algorithm is chosen by it."""
        s, values = self.signature, self._values
        if not self._coded or s.algorithm != "auto" or values is None or not values.size:
            return math.inf
        assert self.source is not None
        fill = s.fill(self.source.dtype)
        return rough(sample_ratio(values, self._step(values), fill))

    def _axes(self) -> int:
        """Return along how many axes tiles should be cut; whoever gives a whole array has a say."""
        s, values = self.signature, self._values
        if not self._coded or self.whole is None or values is None or not values.size:
            return 0
        assert self.source is not None
        if self.source.dtype == np.float16:  # may turn out to have no grid
            return 0
        step = self._step(values)
        fill = s.fill(self.source.dtype)
        return chosen_axes(
            s.options.predictor, values, self.whole, step, fill, self._transport.size
        )

    def _step(self, values: Array) -> float:
        """Return the step of an ordinary grid for this rank's values."""
        s = self.signature
        assert s.error_bound is not None
        bound = errorbound.absolute_bound(s.error_bound, s.mode, *self._ends)
        return errorbound.grid_step(bound, values.dtype)

    def fill(self, result: Array, counts: list[int], before: int = 0) -> None:
        """Name the array to fill and return, with shares of so many elements."""
        self.result = result
        self.target = Shares(result, counts, before)

    def codec(
        self,
        decision: Decision,
        dtype: np.dtype,
        threads: int,
        direct: bool,
        tiling: Tiling | None = None,
    ) -> tuple[Codec, Grid]:
        """Return the codec, of values where there is a grid, else of elements; and its grid."""
        device = bool(self.on_device)
        place: Place = Nowhere()
        given: Place = Nowhere()
        grid = decision.grid
        if not grid.step:
            if self.source is not None:
                given = self.source.place(self.source.elements())
            if self.target is not None:
                place = self.target.place(self.target.elements_target())
            return PlainCodec(given, place, dtype, make_coder(dtype, threads, device, direct)), grid
        if self.source is not None:
            assert self._values is not None
            given = self.source.place(_cut(self._values, tiling))
            fill = self.signature.fill(dtype)
            grid = movement_grid(
                self._values, decision.promised, self._ends, fill, half=dtype == np.float16
            )
        if self.target is not None:
            place = self.target.place(_cut(self.target.values_target(), tiling))
        values = value_dtype(dtype)
        assert values is not None
        coding = CODINGS.index(self.signature.options.coding)
        coder = make_coder(values, threads, device, direct, coding)
        return MovementCodec(given, place, values, grid, coder), grid

    def native_buffers(self) -> tuple[Bytes | None, Bytes | None]:
        """Return what to send and where to receive, as bytes."""
        send = None if self.source is None else self.source.elements().view(np.uint8)
        into = None if self.target is None else self.target.elements_target().view(np.uint8)
        return send, into


def _cut(row: Array, tiling: Tiling | None) -> Values:
    return row if tiling is None else Tiles.of(row, tiling)


class Cutter(NamedTuple):
    """Cuts the row of all ranks' shares into parts of one message."""

    components: int
    itemsize: int
    segment_nbytes: int
    tiling: Tiling | None

    def rows(self, counts: list[int]) -> list[list[slice]]:
        """Cut shares of so many elements, each a row of its own."""
        counts = [count * self.components for count in counts]
        return row_parts(counts, self.itemsize, self.segment_nbytes)

    def chunks(self, count: int, chunks: int) -> list[list[slice]]:
        """Cut an array of so many elements into chunks."""
        values = count * self.components if self.tiling is None else self.tiling.n
        return chunk_parts(values, self.itemsize, chunks, self.segment_nbytes)


class MovingCollective(ABC):
    """A collective that moves data, with its arguments as given.

    Attributes
    ----------
    settings : Settings
        Arguments beside buffers, counts and root.
    sendbuf, recvbuf : array, MPI.IN_PLACE or None
        What is given, and what is to be filled.
    transport : MpiTransport
        Of the communicator, or of this operation.
    call : Movement
        The arguments, checked.
    known : Agreed
        What is known of all ranks.
    """

    def __init__(self, settings: Settings, sendbuf: Any, recvbuf: Any):
        self.settings = settings
        self.sendbuf = sendbuf
        self.recvbuf = recvbuf
        self._prepared = False
        self._steady = False
        self._carrier: Carrier | None = None

    # What each one has of its own.

    @abstractmethod
    def make(self, transport: MpiTransport) -> Movement:
        """Check the arguments on this rank."""

    def tiling(self, axes: int) -> Tiling | None:
        """Return how the whole array is cut into tiles; None for rows."""
        return None

    def share(self, transport: MpiTransport) -> Steps:
        """Tell all ranks what one of them knows."""
        yield from ()

    def prepare(self) -> None:  # noqa: B027
        """Check and make room where that depends on other ranks; an error is raised on all."""

    @property
    def given(self) -> Any:
        """The array that this rank gives; None where it is in its place already, and copied."""
        return None if self.sendbuf is MPI.IN_PLACE else self.sendbuf

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """Of the array, once all have agreed."""

    @property
    @abstractmethod
    def share_nbytes(self) -> int:
        """Uncompressed bytes by which an algorithm is chosen."""

    @property
    @abstractmethod
    def native_nbytes(self) -> int:
        """Bytes that this rank sends in MPI's own collective."""

    @abstractmethod
    def schedule(self, algorithm: str, link: Link, cutter: Cutter) -> Steps:
        """Return the steps of one of zccl's own algorithms."""

    @abstractmethod
    def native(self, send: Bytes | None, into: Bytes | None) -> Steps:
        """Run MPI's own collective on bytes."""

    @abstractmethod
    def by_nccl(self, nccl: Any, send: Bytes | None, into: Bytes | None) -> None:
        """Do it by what NCCL has for it."""

    # What they share.

    def agree(self, transport: MpiTransport) -> Steps:
        """Check the arguments, and agree on them."""
        self.transport = transport
        self._prepared = False
        self._carrier = None
        self.call, self.known = yield from agreed(transport, lambda: self.make(transport))
        yield from self.share(transport)

    def keep(self, transport: MpiTransport) -> Steps:
        """Get ready to be run again and again, always into the same array."""
        yield from done_by_all(transport, self.prepare)
        self._prepared = True
        call = self.call
        if self.recvbuf is None:
            self.recvbuf = call.result
        alike = call.lies_in(self.given) and call.fills_directly() and not call.counts_range
        self._steady = yield from holds_everywhere(transport, alike)
        if self._steady:
            wanted = call.signature.options.transport
            self._carrier = yield from chosen_carrier(transport, wanted, self.known)

    def renew(self, transport: MpiTransport) -> Steps:
        """Read the input again where it was copied, and agree on its range where that counts."""
        if self._steady:
            self.transport = transport
            self.call.survey()
        else:
            yield from self.agree(transport)

    def run(self, transport: MpiTransport, start: float) -> StepsTo[Outcome]:
        """Move the data."""
        self.transport = transport
        call, known, dtype = self.call, self.known, self.dtype
        s = call.signature
        carrier = yield from chosen_carrier(transport, s.options.transport, known, self._carrier)
        machine = machine_of(transport, carrier, known, s.options)
        decision = _decide(s, known, dtype, self.share_nbytes, transport.size, machine)
        tiling = self.tiling(known.axes) if decision.grid.step else None

        def get_ready() -> Buffers | tuple[Codec, Grid]:
            if not self._prepared:
                self.prepare()
            if decision.plan.algorithm == "native":
                return Buffers.of(*call.native_buffers(), carrier.collectives is None)
            threads = cpu_threads(transport.local_size)
            return call.codec(decision, dtype, threads, carrier.direct, tiling)

        if self._prepared and not known.device:
            ready = get_ready()
        else:
            ready = yield from done_by_all(transport, get_ready)
        announce(transport, decision.plan, carrier, s.terms)
        at = time.perf_counter()
        if isinstance(ready, Buffers):
            yield from self._native(carrier, ready)
            sent = self.native_nbytes
            traffic = Traffic(sent, sent, wire_seconds=time.perf_counter() - at)
        else:
            codec, grid = ready
            link = Link((yield from messages_by(transport, carrier)), codec)
            of_element = components(dtype) if decision.grid.step else 1
            cutter = Cutter(of_element, codec.itemsize, machine.segment_nbytes, tiling)
            steps = self.schedule(decision.plan.algorithm, link, cutter)
            traffic = yield from run_schedule(transport, link, codec, steps)
            decision = decision._replace(grid=grid)
        if call.target is not None:
            call.target.deliver()
        nbytes = 0 if call.source is None else call.source.nbytes
        end = time.perf_counter()
        return Outcome(
            as_given(call.result, self.recvbuf),
            lambda: info(s.collective, decision, carrier, nbytes, traffic, start, at, end),
        )

    def _native(self, carrier: Carrier, buffers: Buffers) -> Steps:
        """Run MPI's own collective, or NCCL's; device arrays reach MPI through pinned memory."""
        send, into, given, taken = buffers
        if carrier.collectives is not None:
            nccl = yield from made(self.transport, carrier.collectives)
            self.by_nccl(nccl, send, into)
            return
        if given is not None and given is not send:
            copy_to_host(send, given)
        yield from self.native(given, taken)
        if taken is not None and taken is not into:
            copy_to_device(taken, into)


class Buffers(NamedTuple):
    """What to send and where to receive, as bytes, with pinned copies for MPI.

    Attributes
    ----------
    send, into : row of uint8 or None
        None for nothing.
    given, taken : row of uint8 or None
        Their copies in the host's memory; themselves where they are there.
    """

    send: Bytes | None
    into: Bytes | None
    given: Bytes | None
    taken: Bytes | None

    @classmethod
    def of(cls, send: Bytes | None, into: Bytes | None, by_mpi: bool) -> Buffers:
        """Return buffers with memory for the copies that MPI needs."""

        def twin(row: Bytes | None) -> Bytes | None:
            needs_one = by_mpi and row is not None and is_on_device(row)
            return pinned_like(row) if needs_one else row

        return cls(send, into, twin(send), twin(into))


def _decide(
    s: Signature,
    known: Agreed,
    dtype: np.dtype,
    share_nbytes: int,
    size: int,
    machine: Machine,
) -> Decision:
    """Return what all ranks do, from what they have agreed on."""
    values = value_dtype(dtype)
    plan = s.settled(dtype, size, known.settled, share_nbytes) or choose(
        s.collective, s.algorithm, share_nbytes, size, machine, known.ratio,
        codable=s.codable(dtype), exact=s.error_bound == 0, reproducible=s.options.reproducible,
        itemsize=(values or dtype).itemsize,
    )  # fmt: skip
    if plan.algorithm == "native" or values is None or not s.error_bound:
        return Decision(plan, NO_GRID, 0.0)
    bound = errorbound.absolute_bound(s.error_bound, s.mode, *known.ends)
    grid = Grid(errorbound.grid_step(bound, values), bound)
    return Decision(plan, grid, bound)


# MPI's types of so many bytes: moving elements by them keeps counts small.
_TYPES = {
    1: MPI.BYTE,
    2: MPI.UINT16_T,
    4: MPI.UINT32_T,
    8: MPI.UINT64_T,
    16: MPI.C_DOUBLE_COMPLEX,
}


def whole(buffer: Bytes | None, dtype: np.dtype) -> Any:
    """Return a message of all elements of a buffer, as MPI's calls take it."""
    return None if buffer is None else [buffer, _TYPES[dtype.itemsize]]


def counted(buffer: Bytes | None, counts: list[int], dtype: np.dtype) -> Any:
    """Return a message of shares of so many elements, as MPI's calls with counts take it."""
    return None if buffer is None else [buffer, counts, _TYPES[dtype.itemsize]]


def alone(rank: int, count: int, size: int) -> list[int]:
    """Return counts of which one rank has all."""
    return [count if k == rank else 0 for k in range(size)]


def in_bytes(counts: list[int], dtype: np.dtype) -> list[int]:
    """Return the bytes of shares of so many elements."""
    return [count * dtype.itemsize for count in counts]
