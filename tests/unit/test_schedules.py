"""Every algorithm on 1 to 64 ranks of a simulated network: it ends, and with the right values.

Tiles and bundles are made tiny, so that short rows have many parts.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.simulator import Deadlock, Semantics, Simulator, in_a_row

from zccl import plan, pool
from zccl.algorithms import primitives
from zccl.algorithms.binomial import (
    binomial_bcast,
    binomial_gather,
    binomial_reduce,
    binomial_scatter,
    reduce_scatter_gather,
    scatter_allgather_bcast,
)
from zccl.algorithms.pairwise import pairwise_alltoall
from zccl.algorithms.primitives import Link, ReducingLink
from zccl.algorithms.recursive_doubling import (
    recursive_doubling_allgather,
    recursive_doubling_allreduce,
)
from zccl.algorithms.ring import ring_allgather, ring_allreduce, ring_reduce_scatter
from zccl.codecs.host_coder import HostCoder
from zccl.codecs.places import Nowhere, Row, Runs
from zccl.codecs.plain import PlainCodec, PlainReduction
from zccl.errors import TransportError
from zccl.transport.lanes import LANES

TILE = 4  # values
SEGMENT_NBYTES = 16  # two tiles
BUNDLE_NBYTES = 40
DTYPE = np.dtype(np.int16)
UNTOUCHED = -1
SIZES = [*range(1, 18), 24, 33, 47, 64]
AHEAD = (1, 4)


@pytest.fixture(scope="module", autouse=True)
def tiny_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "TILE", TILE)
        patch.setattr(primitives, "BUNDLE_NBYTES", BUNDLE_NBYTES)
        yield


class Littered(pool.Pool):
    """Memory that nobody may take for zeros, or for what was in it before."""

    def take(self, nbytes):
        memory = super().take(nbytes)
        memory[:] = 0xA5
        return memory


POOLS = {ahead: Littered(lambda nbytes: np.empty(nbytes, np.uint8), ahead) for ahead in AHEAD}


class Job(NamedTuple):
    """What one rank does in one operation."""

    source: Any
    place: Any
    result: Any  # None where there is none
    wanted: Any
    steps: Any


class Draw:
    """The values and lengths of an operation."""

    def __init__(self, size, root, seed, length, in_place=False):
        self.size, self.root, self.in_place = size, root, in_place
        self._random = np.random.default_rng(seed)
        most = 5.0 if size < 9 else 2.5 if size < 18 else 1.2 if size < 40 else 0.8
        few = min(most / 2, 0.6)
        self._tiles = {"short": few, "long": most, "huge": 60.0}[length]  # of a rank
        self.flag = bool(self._random.integers(2))

    def count(self):
        """Elements of a row that is cut into a chunk for each rank."""
        n = int(self._tiles * TILE * self.size)
        return int(self._random.integers(n * 3 // 4, n + 1))

    def counts(self):
        """Elements of each rank's share, some of them none."""
        counts = self._random.integers(0, int(2 * self._tiles * TILE), self.size)
        counts[self._random.random(self.size) < 0.2] = 0
        return counts.tolist()

    def values(self, *shape):
        return self._random.integers(0, 400, shape).astype(DTYPE)


def untouched(*shape):
    return np.full(shape, UNTOUCHED, DTYPE)


def offsets(counts):
    return [0, *itertools.accumulate(counts)]


def chunks_of(draw, count):
    return plan.chunk_parts(count, DTYPE.itemsize, draw.size, SEGMENT_NBYTES)


def rows_of(counts):
    return plan.row_parts(counts, DTYPE.itemsize, SEGMENT_NBYTES)


def allreduce(algorithm, draw):
    rows = draw.values(draw.size, draw.count())
    wanted = rows.sum(0).astype(DTYPE)
    chunks = chunks_of(draw, wanted.size)
    results = rows if draw.in_place else untouched(*rows.shape)
    return [
        Job(Row(row), Row(result), result, wanted, lambda link: algorithm(link, chunks))
        for row, result in zip(rows, results, strict=True)
    ]


def reduce_scatter(algorithm, draw):
    counts = draw.counts()
    rows = draw.values(draw.size, sum(counts))
    wanted = rows.sum(0).astype(DTYPE)
    runs = plan.share_runs(counts, 1)
    chunks = plan.covering_parts(runs, wanted.size, DTYPE.itemsize, SEGMENT_NBYTES)
    starts = offsets(counts)
    jobs = []
    for rank, row in enumerate(rows):
        result = untouched(counts[rank])
        mine = wanted[starts[rank] : starts[rank + 1]]
        place = Runs(result, runs[rank])
        jobs.append(Job(Row(row), place, result, mine, lambda link: algorithm(link, chunks)))
    return jobs


def reduce(algorithm, draw):
    rows = draw.values(draw.size, draw.count())
    wanted = rows.sum(0).astype(DTYPE)
    chunks = chunks_of(draw, wanted.size)
    result = rows[draw.root] if draw.in_place else untouched(wanted.size)
    jobs = []
    for rank, row in enumerate(rows):
        mine = result if rank == draw.root else None
        place = Nowhere() if mine is None else Row(mine)
        jobs.append(
            Job(Row(row), place, mine, wanted, lambda link: algorithm(link, chunks, draw.root))
        )
    return jobs


def bcast(algorithm, draw):
    row = draw.values(draw.count())
    chunks = chunks_of(draw, row.size)
    fills = draw.flag  # whether the root decodes, too
    jobs = []
    for rank in range(draw.size):
        source = Row(row) if rank == draw.root else Nowhere()
        result = untouched(row.size) if fills or rank != draw.root else None
        place = Nowhere() if result is None else Row(result)
        jobs.append(
            Job(source, place, result, row, lambda link: algorithm(link, chunks, draw.root, fills))
        )
    return jobs


def scatter(algorithm, draw):
    counts = draw.counts()
    row = draw.values(sum(counts))
    rows = rows_of(counts)
    starts = offsets(counts)
    fills = draw.flag
    jobs = []
    for rank in range(draw.size):
        source = Row(row) if rank == draw.root else Nowhere()
        result = untouched(counts[rank]) if fills or rank != draw.root else None
        place = Nowhere() if result is None else Row(result, starts[rank])
        mine = row[starts[rank] : starts[rank + 1]]
        jobs.append(
            Job(source, place, result, mine, lambda link: algorithm(link, rows, draw.root, fills))
        )
    return jobs


def gather(algorithm, draw):
    return _collect(draw, [draw.root], lambda link, rows: algorithm(link, rows, draw.root))


def allgather(algorithm, draw):
    return _collect(draw, range(draw.size), algorithm)


def _collect(draw, ranks, steps):
    counts = draw.counts()
    wanted = draw.values(sum(counts))
    rows = rows_of(counts)
    starts = offsets(counts)
    jobs = []
    for rank in range(draw.size):
        mine = wanted[starts[rank] : starts[rank + 1]]
        result = untouched(wanted.size) if rank in ranks else None
        place = Nowhere() if result is None else Row(result)
        source = Row(mine, starts[rank])
        jobs.append(Job(source, place, result, wanted, lambda link: steps(link, rows)))
    return jobs


def alltoall(algorithm, draw):
    counts = np.array([draw.counts() for _ in range(draw.size)])  # [from, to]
    given = [draw.values(int(row.sum())) for row in counts]
    pieces = [
        np.split(row, offsets(row_counts)[1:-1])
        for row, row_counts in zip(given, counts.tolist(), strict=True)
    ]
    jobs = []
    for rank in range(draw.size):
        wanted = np.concatenate([pieces[source][rank] for source in range(draw.size)])
        result = untouched(wanted.size)
        sent, received = rows_of(counts[rank].tolist()), rows_of(counts[:, rank].tolist())
        steps = functools.partial(_alltoall_steps, algorithm, sent, received)
        jobs.append(Job(Row(given[rank]), Row(result), result, wanted, steps))
    return jobs


def _alltoall_steps(algorithm, sent, received, link):
    return algorithm(link, sent, received)


ALGORITHMS = {
    ("allreduce", "ring"): (allreduce, ring_allreduce),
    ("allreduce", "recursive_doubling"): (allreduce, recursive_doubling_allreduce),
    ("reduce_scatter", "ring"): (reduce_scatter, ring_reduce_scatter),
    ("reduce", "binomial"): (reduce, binomial_reduce),
    ("reduce", "reduce_scatter_gather"): (reduce, reduce_scatter_gather),
    ("bcast", "binomial"): (bcast, binomial_bcast),
    ("bcast", "scatter_allgather"): (bcast, scatter_allgather_bcast),
    ("scatter", "binomial"): (scatter, binomial_scatter),
    ("gather", "binomial"): (gather, binomial_gather),
    ("allgather", "ring"): (allgather, ring_allgather),
    ("allgather", "recursive_doubling"): (allgather, recursive_doubling_allgather),
    ("alltoall", "pairwise"): (alltoall, pairwise_alltoall),
}
NAMES = sorted(ALGORITHMS)
ROOTED = {"reduce", "bcast", "scatter", "gather"}


class Operation:
    """One collective on all ranks."""

    def __init__(self, name, draw, ahead):
        self.name = name
        make, algorithm = ALGORITHMS[name]
        self.jobs = make(algorithm, draw)
        reduces = name[0] in plan.REDUCTIONS
        self._make_link = ReducingLink if reduces else Link
        self.codecs = []
        for job in self.jobs:
            if reduces:
                codec = PlainReduction(job.source, job.place, DTYPE, np.add, 1.0, HostCoder(DTYPE))
            else:
                codec = PlainCodec(job.source, job.place, DTYPE, HostCoder(DTYPE))
            codec.memory = POOLS[ahead]
            self.codecs.append(codec)
        self.links = [None] * len(self.jobs)
        self.tags = [None] * len(self.jobs)

    def steps(self, transport):
        """Begin on one rank."""
        rank = transport.rank
        link = self._make_link(transport, self.codecs[rank])
        self.links[rank] = link
        return self.jobs[rank].steps(link)

    def deliver(self):
        for job in self.jobs:
            job.place.finish()

    def check(self):
        self.deliver()
        for rank, (job, link) in enumerate(zip(self.jobs, self.links, strict=True)):
            assert link.fault() is None
            if job.result is not None:
                wrong = np.flatnonzero(job.result != job.wanted)
                assert not wrong.size, f"{self.name}, rank {rank}: wrong values at {wrong[:9]}"


def simulate(operation, semantics, ahead, seed):
    """Run one operation; returns the simulator."""
    simulator = Simulator(len(operation.jobs), semantics, ahead, seed)
    for transport in simulator.transports:
        simulator.start(transport.rank, "/".join(operation.name), operation.steps(transport))
    simulator.run()
    for rank, link in enumerate(operation.links):
        assert link.sent_nbytes == sum(
            nbytes for (source, _), nbytes in simulator.sent_nbytes.items() if source == rank
        )
    return simulator


def test_all_algorithms_are_here():
    there = {(name, own) for name, owns in plan.ALGORITHMS.items() for own in owns}
    assert there == set(ALGORITHMS)


def simulated(size, name):
    """Return kinds of messages, how far receives are posted ahead, lengths and roots."""
    kinds = list(itertools.product(Semantics, AHEAD, ("short", "long")))
    roots = sorted({0, size // 2, size - 1}) if name[0] in ROOTED else [0]
    if size < 6:
        return [(*kind, root) for kind in kinds for root in roots]
    step = 2 if size < 10 else 3 if size < 14 else 5 if size < 40 else 7
    picked = kinds[size % step :: step]
    return [(*kind, roots[(size + k + k // 3) % len(roots)]) for k, kind in enumerate(picked)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_one_operation(name, size):
    for k, (semantics, ahead, length, root) in enumerate(simulated(size, name)):
        seed = 1000 * size + k
        draw = Draw(size, root, seed, length, in_place=bool(seed % 2))
        operation = Operation(name, draw, ahead)
        try:
            simulate(operation, semantics, ahead, seed)
            operation.check()
        except Exception as error:
            what = f"{semantics}, ahead {ahead}, {length}, root {root}, seed {seed}"
            raise AssertionError(what) from error


@pytest.mark.parametrize("ahead", AHEAD)
@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_receives_are_posted_ahead(name, ahead):
    """As far as they may be, where there are as many messages."""
    operation = Operation(name, Draw(4, 0, 3, "huge"), ahead)
    assert simulate(operation, Semantics.RENDEZVOUS, ahead, 0).most_open == ahead
    operation.check()


class Crowd(NamedTuple):
    """Several operations on the same ranks, and how they run."""

    size: int
    names: list
    roots: list
    semantics: Semantics
    ahead: int
    length: str
    seed: int

    def run(self, begin):
        """Run them; `begin` starts those of one rank."""
        operations = [
            Operation(
                name, Draw(self.size, root % self.size, [self.seed, k], self.length), self.ahead
            )
            for k, (name, root) in enumerate(zip(self.names, self.roots, strict=True))
        ]
        simulator = Simulator(self.size, self.semantics, self.ahead, self.seed)
        for transport in simulator.transports:
            begin(simulator, transport, operations)
        simulator.run()
        for operation in operations:
            operation.check()


def at_once(simulator, transport, operations):
    """Begin all; the rank takes their steps in random order."""
    for operation in operations:
        name = "/".join(operation.name)
        simulator.start(transport.rank, name, operation.steps(transport))


def one_by_one(simulator, transport, operations):
    """Begin each when the one before has ended on this rank."""
    makers = [functools.partial(operation.steps, transport) for operation in operations]
    simulator.start(transport.rank, "a row of operations", in_a_row(makers))


@st.composite
def crowds(draw, kinds):
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3))
    return Crowd(
        size=draw(st.integers(2, 6) | st.integers(2, 17)),
        names=names,
        roots=[draw(st.integers(0, 16)) for _ in names],
        semantics=draw(st.sampled_from(kinds)),
        ahead=draw(st.sampled_from(AHEAD)),
        length=draw(st.sampled_from(["short", "long"])),
        seed=draw(st.integers(0, 1 << 30)),
    )


@settings(max_examples=150)
@given(crowds([Semantics.EAGER, Semantics.RENDEZVOUS]))
def test_operations_at_once(crowd):
    crowd.run(at_once)


@pytest.mark.parametrize("size", SIZES)
def test_all_collectives_at_once(size):
    """Each algorithm of each collective, in crowds of as many as go on at once."""
    names = [NAMES[k] for k in np.random.default_rng(size).permutation(len(NAMES))]
    for k in range(0, len(names), LANES):
        crowd = names[k : k + LANES]
        roots = [size * (k + 1) // 3 for k in range(len(crowd))]
        Crowd(size, crowd, roots, Semantics.RENDEZVOUS, 1 + size % 2 * 3, "short", size).run(
            at_once
        )


@settings(max_examples=150)
@given(crowds(list(Semantics)))
def test_operations_one_by_one(crowd):
    """Ranks that are done go ahead with the next operation."""
    crowd.run(one_by_one)


@pytest.mark.xfail(raises=Deadlock, strict=True, reason="operations at once share a sender's queue")
def test_operations_at_once_that_share_a_queue():
    """What a rank offers first may be of an operation whose receiver waits for another message.

    That one may be behind a message of the other operation. So operations over NCCL take turns.
    """
    for seed in range(100):
        names = [("allreduce", "recursive_doubling")] * 2
        Crowd(2, names, [0, 0], Semantics.FIFO, 1, "long", seed).run(at_once)


class Broken(Exception):
    """What a failing codec raises."""


def count_calls(codec, fails):
    """Make the work of a codec raise at the calls that `fails` names; returns those it had."""
    calls = []

    def counted(name, work):
        def call(*arguments):
            calls.append(name)
            if fails(len(calls) - 1):
                raise Broken(name)
            return work(*arguments)

        return call

    for name in ("encode", "decode", "combine", "add_own"):
        if hasattr(codec, name):
            setattr(codec, name, counted(name, getattr(codec, name)))
    return calls


@settings(max_examples=250)
@given(
    name=st.sampled_from(NAMES),
    size=st.integers(2, 6) | st.integers(2, 17),
    root=st.integers(0, 16),
    semantics=st.sampled_from(list(Semantics)),
    ahead=st.sampled_from(AHEAD),
    length=st.sampled_from(["short", "long"]),
    seed=st.integers(0, 1 << 30),
    rank=st.integers(0, 16),
    at=st.floats(0, 1, exclude_max=True),
    stays=st.booleans(),
)
def test_failing_codec(name, size, root, semantics, ahead, length, seed, rank, at, stays):
    """One rank fails at one call, or at all from there: all end, and no result has wrong values."""
    rank %= size
    draw = functools.partial(Draw, size, root % size, seed, length)
    whole = Operation(name, draw(), ahead)
    calls = count_calls(whole.codecs[rank], lambda call: False)
    simulate(whole, semantics, ahead, seed)
    whole.check()
    first = int(at * len(calls))

    broken = Operation(name, draw(), ahead)
    had = count_calls(broken.codecs[rank], lambda call: call == first or (stays and call > first))
    simulate(broken, semantics, ahead, seed)
    broken.deliver()
    assert (len(had) > first) == bool(calls)
    alone = bool(calls) and set(had[first:] if stays else had[first : first + 1]) == {"decode"}
    for other, (job, link) in enumerate(zip(broken.jobs, broken.links, strict=True)):
        fault = link.fault()
        if other == rank:
            assert (fault is not None) == bool(calls)
            if fault is not None:
                assert isinstance(fault, TransportError)
                assert isinstance(fault.__cause__, Broken)
        else:
            assert fault is None
        if job.result is not None:
            right = job.result == job.wanted
            assert np.all(right | (job.result == UNTOUCHED)), f"wrong values on rank {other}"
            if not calls or (alone and other != rank):
                assert np.all(right), f"rank {other} lost values to rank {rank}'s decoding"
            if other == rank and alone:
                assert not np.all(right)
