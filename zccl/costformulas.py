"""What zccl's own algorithms send and code, step by step: a formula each, for `zccl.costmodel`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from zccl.formats import TILE
from zccl.machines import BUNDLE_NBYTES, Machine, part_nbytes

WIDENING = 0.5
"""Bits by which a code grows when independent values of twice as many ranks are added up."""


def coded_nbytes(
    nbytes: float, ratio: float, *, itemsize: int = 4, doublings: float = 0, widening: float = 0
) -> float:
    """Return the bytes of coded values of `2 ** doublings` ranks added up.

    A value of a rank has `8 * itemsize / ratio` bits, one of a sum `widening * doublings` more, but
    never more than an uncompressed one or what a rank's own has: codes of N independent ranks
    spread sqrt(N) times as far, which is half a bit for each doubling.
    """
    plain = 8 * itemsize
    own = plain / ratio
    return nbytes * min(own + widening * doublings, max(own, plain)) / plain


class Job(NamedTuple):
    """A collective of at least two ranks; attributes as the parameters of `predict`."""

    nbytes: float
    size: int
    machine: Machine
    ratio: float
    itemsize: int
    widening: float

    @property
    def share(self) -> float:
        """Bytes of a rank's chunk of the array."""
        return self.nbytes / self.size

    @property
    def levels(self) -> int:
        """Levels of a binomial tree: log2 N, rounded up."""
        return (self.size - 1).bit_length()

    def coded(self, nbytes: float, doublings: float = 0) -> float:
        """Return the bytes of values of which so many ranks' are added up."""
        return coded_nbytes(
            nbytes, self.ratio, itemsize=self.itemsize, doublings=doublings, widening=self.widening
        )

    def parts(self, nbytes: float) -> float:
        """Return the messages of a chunk; not rounded."""
        return max(1.0, nbytes / self._part_nbytes(nbytes))

    def bundles(self, rows: int, nbytes: float) -> float:
        """Return the messages of so many rows that go the same way; not rounded."""
        each = max(min(nbytes, self._part_nbytes(nbytes)), BUNDLE_NBYTES)
        return max(1.0, rows * nbytes / each)

    def _part_nbytes(self, nbytes: float) -> float:
        part = part_nbytes(int(nbytes), self.machine.segment_nbytes)
        return max(part, TILE * self.itemsize)

    def encode(self, nbytes: float) -> float:
        """Return the seconds that encoding takes."""
        return nbytes / self.machine.encode

    def decode(self, nbytes: float) -> float:
        """Return the seconds that decoding takes."""
        return nbytes / self.machine.decode

    def hop(self, nbytes: float) -> float:
        """Return the seconds that adding values to a message takes."""
        return nbytes / self.machine.hop


class Phase(NamedTuple):
    """Equal steps in a row.

    Attributes
    ----------
    steps : int
        How many.
    parts : float
        Pieces in which a step's data travels.
    wire : float
        Bytes through the busiest port in a step.
    work : tuple of float
        Seconds of coding in a step, of each rank that works while the others do.
    hops : int
        Messages that a piece waits for one after another in a step.
    copies : int
        Messages of each piece.
    """

    steps: int
    parts: float
    wire: float
    work: tuple[float, ...]
    hops: int = 1
    copies: int = 1


class Schedule(NamedTuple):
    """An algorithm's phases, what the rank that sends most sends, and coding that overlaps nothing.

    The last is what is encoded before the first byte leaves or decoded after the last has come.
    """

    phases: list[Phase]
    sent_nbytes: float
    alone: float = 0.0


def schedule(collective: str, algorithm: str, job: Job) -> Schedule:
    """Return what an algorithm does; a single rank only codes."""
    return _FORMULAS[collective, algorithm](job) if job.size > 1 else _alone(job)


def _alone(job: Job) -> Schedule:
    return Schedule([], 0.0, job.encode(job.nbytes) + job.decode(job.nbytes))


def _round(job: Job, nbytes: float, wire: float, work: float, first: float) -> list[Phase]:
    """Return the N - 1 steps of a ring; the first has some more work."""
    parts = job.parts(nbytes)
    return [
        Phase(1, parts, wire, (work + first,)),
        Phase(job.size - 2, parts, wire, (work,)),
    ]


def _reducing_round(job: Job) -> list[Phase]:
    """Return a ring's steps: encode a chunk, then add to what comes, of 1 to N - 1 ranks."""
    doublings = math.lgamma(job.size) / math.log(2) / (job.size - 1)  # mean of their log2
    wire = job.coded(job.share, doublings)
    return _round(job, job.share, wire, job.hop(job.share), first=job.encode(job.share))


def _gathering_round(job: Job, nbytes: float, doublings: float = 0, own: float = 0) -> list[Phase]:
    """Return a ring's steps: decode what comes and pass it on."""
    return _round(job, nbytes, job.coded(nbytes, doublings), job.decode(nbytes), first=own)


def _wire(phases: list[Phase]) -> float:
    return sum(phase.steps * phase.wire for phase in phases)


def _ring_allreduce(job: Job) -> Schedule:
    full = math.log2(job.size)
    phases = _reducing_round(job)
    phases += _gathering_round(job, job.share, full, own=job.decode(job.share))
    return Schedule(phases, _wire(phases))


def _ring_reduce_scatter(job: Job) -> Schedule:
    phases = _reducing_round(job)
    return Schedule(phases, _wire(phases), alone=job.decode(job.share))


def _ring_allgather(job: Job) -> Schedule:
    own = job.encode(job.nbytes) + job.decode(job.nbytes)
    phases = _gathering_round(job, job.nbytes, own=own)
    return Schedule(phases, _wire(phases))


def _doubling_allreduce(job: Job) -> Schedule:
    """Send all in each of log2 N steps; ranks beyond a power of two fold into others."""
    n, parts = job.nbytes, job.parts(job.nbytes)
    steps = job.size.bit_length() - 1
    folded = math.log2(job.size / (1 << steps))
    exchanges = [Phase(1, parts, job.coded(n, k + folded), (job.hop(n),)) for k in range(steps)]
    back = Phase(1, parts, job.coded(n, steps + folded), ())
    folds = [Phase(1, parts, job.coded(n), (job.hop(n),)), back] if folded else []
    sent = _wire(exchanges) + (back.wire if folded else 0)
    return Schedule(folds + exchanges, sent, alone=job.encode(n) + job.decode(n))


def _doubling_allgather(job: Job) -> Schedule:
    """Send what is there so far in each of log2 N steps; decode all of it in the end."""
    n, size = job.nbytes, job.size
    steps = size.bit_length() - 1
    behind = size / (1 << steps)  # ranks that one of the power of two stands for
    exchanges = [
        Phase(1, job.bundles(math.ceil(rows), n), rows * job.coded(n), ())
        for rows in (behind * (1 << k) for k in range(steps))
    ]
    rest = size - 1
    back = Phase(1, job.bundles(rest, n), rest * job.coded(n), ())
    folds = [Phase(1, job.parts(n), job.coded(n), ()), back] if behind > 1 else []
    sent = _wire(exchanges) + (back.wire if folds else 0)
    return Schedule(folds + exchanges, sent, alone=job.encode(n) + job.decode(size * n))


def _binomial_reduce(job: Job) -> Schedule:
    """Let the root add up what log2 N children send; what is below them streams meanwhile."""
    n, parts = job.nbytes, job.parts(job.nbytes)
    phases = [
        Phase(1, parts, job.coded(n, k), (job.hop(n), job.encode(n) if k == 0 else 0.0))
        for k in range(job.levels)
    ]
    return Schedule(phases, phases[-1].wire, alone=job.decode(n))


def _reduce_scatter_gather(job: Job) -> Schedule:
    full = math.log2(job.size)
    phases = _reducing_round(job)
    sent = _wire(phases) + _largest_branch(job.size) * job.coded(job.share, full)
    work = (job.decode(job.nbytes),)
    return Schedule([*phases, _tree(job, job.share, job.coded(job.share, full), work)], sent)


def _binomial_bcast(job: Job) -> Schedule:
    """Let the root send all to log2 N children; others pass on and decode meanwhile."""
    wire = job.levels * job.coded(job.nbytes)
    work = (job.encode(job.nbytes), job.decode(job.nbytes))
    parts = job.parts(job.nbytes)
    return Schedule([Phase(1, parts, wire, work, hops=job.levels, copies=job.levels)], wire)


def _scatter_allgather(job: Job) -> Schedule:
    phases = [_tree(job, job.share, job.coded(job.share), (job.encode(job.nbytes),))]
    phases += _gathering_round(job, job.share, own=job.decode(job.share))
    return Schedule(phases, _wire(phases))


def _binomial_scatter(job: Job) -> Schedule:
    work = (job.encode(job.size * job.nbytes), job.decode(job.nbytes))
    phase = _tree(job, job.nbytes, job.coded(job.nbytes), work)
    return Schedule([phase], phase.wire)


def _binomial_gather(job: Job) -> Schedule:
    work = (job.encode(job.nbytes), job.decode(job.size * job.nbytes))
    phase = _tree(job, job.nbytes, job.coded(job.nbytes), work)
    return Schedule([phase], _largest_branch(job.size) * job.coded(job.nbytes))


def _tree(job: Job, nbytes: float, coded: float, work: tuple[float, ...]) -> Phase:
    """Return all rows but the root's on their way through its port."""
    rows = job.size - 1
    return Phase(1, job.bundles(rows, nbytes), rows * coded, work, hops=job.levels)


def _largest_branch(size: int) -> int:
    """Return the ranks of the largest branch of a binomial tree."""
    half = 1 << (size - 1).bit_length() - 1
    return max(size - half, half // 2)


def _pairwise_alltoall(job: Job) -> Schedule:
    own = job.encode(job.nbytes) + job.decode(job.nbytes)
    phases = _round(job, job.nbytes, job.coded(job.nbytes), own, first=own)
    return Schedule(phases, _wire(phases))


_FORMULAS: dict[tuple[str, str], Callable[[Job], Schedule]] = {
    ("allreduce", "ring"): _ring_allreduce,
    ("allreduce", "recursive_doubling"): _doubling_allreduce,
    ("reduce_scatter", "ring"): _ring_reduce_scatter,
    ("reduce", "binomial"): _binomial_reduce,
    ("reduce", "reduce_scatter_gather"): _reduce_scatter_gather,
    ("bcast", "binomial"): _binomial_bcast,
    ("bcast", "scatter_allgather"): _scatter_allgather,
    ("scatter", "binomial"): _binomial_scatter,
    ("gather", "binomial"): _binomial_gather,
    ("allgather", "ring"): _ring_allgather,
    ("allgather", "recursive_doubling"): _doubling_allgather,
    ("alltoall", "pairwise"): _pairwise_alltoall,
}
