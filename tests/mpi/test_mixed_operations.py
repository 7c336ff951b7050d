"""Many operations of all kinds at once, beside the program's own messages on the same tags."""

import gc
import random
import weakref

import numpy as np
import pytest
from mpi.checks import COMM, RANK, SIZE, same_bits, wave
from mpi4py import MPI

import zccl
from zccl.algorithms import progress
from zccl.transport.mpi import transport_of

pytestmark = pytest.mark.mpi
COUNT = 200
ALGORITHMS = {
    "allreduce": ["ring", "recursive_doubling", "native"],
    "reduce": ["binomial", "reduce_scatter_gather", "native"],
    "reduce_scatter": ["ring", "native"],
    "allgather": ["ring", "recursive_doubling", "native"],
    "bcast": ["binomial", "scatter_allgather", "native"],
    "scatter": ["binomial", "native"],
    "gather": ["binomial", "native"],
    "alltoall": ["pairwise", "native"],
}
ROOTED = ("reduce", "bcast", "scatter", "gather")


class Traffic:
    """The program's own messages: one round the ring on every tag that zccl might use."""

    def __init__(self, comm):
        self._comm = comm
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        self._sent = [np.full(5, 1000 * comm.rank + tag) for tag in range(COUNT)]
        self._taken = [np.zeros(5, int) for _ in range(COUNT)]
        self._left = left
        self._requests = [
            start
            for tag in range(COUNT)
            for start in (
                comm.Irecv(self._taken[tag], left, tag),
                comm.Isend(self._sent[tag], right, tag),
            )
        ]

    def finish(self):
        MPI.Request.Waitall(self._requests)
        for tag, row in enumerate(self._taken):
            assert (row == 1000 * self._left + tag).all()


class Job:
    """A collective with its arguments, drawn by all ranks of its communicator alike."""

    def __init__(self, draw, comm, number):
        self.name = draw.choice(sorted(ALGORITHMS))
        n = draw.choice([0, 1, 700, 5000, 30_000])
        root = draw.randrange(comm.size)
        self.keywords = {
            "comm": comm,
            "algorithm": draw.choice(ALGORITHMS[self.name]),
            "error_bound": draw.choice([None, 0, 1e-3]),
            "options": zccl.Options(
                progress=draw.choice(["thread", "call"]),
                segment_nbytes=draw.choice([None, 4096, 65536]),
            ),
        }
        # Small multiples of 1/4: exact in sums, whatever their order.
        values = np.rint(4 * wave(n * comm.size, rank=comm.rank)) / 4 + number
        if self.name in ROOTED:
            self.keywords["root"] = root
        if self.name in ("scatter", "alltoall"):
            self.array = values.reshape(comm.size, n)
        else:
            self.array = values[:n].copy()
        if self.name in ("bcast", "scatter") and comm.rank != root:
            self.array = None
        self.wanted = getattr(zccl, self.name)(self.array, **self.keywords)

    def start(self):
        return getattr(zccl, f"i{self.name}")(self.array, **self.keywords)

    def set_up(self):
        return getattr(zccl, f"{self.name}_init")(self.array, **self.keywords)

    def check(self, found):
        if self.wanted is None:
            assert found is None
        else:
            assert same_bits(np.asarray(found), np.asarray(self.wanted)), self.name


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2] if SIZE <= 4 else [SIZE])
def test_all_kinds_mixed_on_three_communicators(seed):
    comms = [COMM, COMM.Dup(), COMM.Split(RANK % 2, -RANK)]
    draw = random.Random(seed)  # the same on all ranks
    own = random.Random((seed, RANK).__hash__())  # another one on each
    traffic = Traffic(COMM)
    open_requests = []
    kept = []
    for number in range(COUNT):
        job = Job(random.Random(draw.random()), comms[draw.randrange(3)], number % 7)
        kind = draw.choice(["blocking", "started", "started", "persistent"])
        if kind == "blocking":
            job.check(getattr(zccl, job.name)(job.array, **job.keywords))
        else:
            request = job.start() if kind == "started" else job.set_up()
            if kind == "persistent":
                request.Start()
                kept.append((job, request))
            open_requests.append((job, request))
        if own.random() < 0.5 and open_requests:
            job, request = open_requests[own.randrange(len(open_requests))]
            done, found = request.test()
            if done:
                job.check(found)
        if len(open_requests) > 12:
            own.shuffle(open_requests)
            for job, request in [open_requests.pop() for _ in range(6)]:
                job.check(request.wait())
    own.shuffle(open_requests)
    for job, request in open_requests:
        job.check(request.wait())
    for _, request in kept:  # once more, all of them at once
        request.Start()
    own.shuffle(kept)
    for job, request in kept:
        job.check(request.wait())
        request.Free()
    traffic.finish()
    assert not progress._live
    for comm in comms:
        assert transport_of(comm).lanes.none_before(None)
    for comm in comms[1:]:
        comm.Free()


@pytest.mark.host
def test_nothing_is_left_behind():
    """Arrays, and duplicates of communicators: MPI has a few thousand of them."""
    x = wave(3000)
    for _ in range(300 if SIZE <= 4 else 50):
        comm = COMM.Dup()
        request = zccl.iallreduce(x, comm=comm, error_bound=1e-3, algorithm="ring")
        private = transport_of(comm)
        request.wait()
        comm.Free()
        assert private.comm == MPI.COMM_NULL
    array = x.copy()
    gone = weakref.ref(array)
    request = zccl.iallreduce(array, error_bound=1e-3, algorithm="ring")
    del array
    result = request.wait()
    there = weakref.ref(result)
    del request, result
    gc.collect()
    assert gone() is None and there() is None
    assert SIZE == COMM.size
