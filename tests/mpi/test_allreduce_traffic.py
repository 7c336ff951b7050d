"""Promise 7: private traffic, sub-communicators, and communicators that come and go."""

import os

import numpy as np
import pytest
from mpi.checks import (
    CODED_ALGORITHMS,
    COMM,
    RANK,
    SIZE,
    assert_bound,
    assert_usable,
    same_bits,
    wave,
)
from mpi4py import MPI

import zccl

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("fresh", [True, False], ids=["first use", "later use"])
@pytest.mark.parametrize("algorithm", [*CODED_ALGORITHMS, "native"])
def test_user_traffic_is_left_alone(algorithm, fresh):
    """Wildcard receives of the user do not catch zccl's messages, and zccl does not catch the
    user's.
    """
    comm = COMM.Dup() if fresh else COMM
    x = wave(3000)
    caught = np.zeros((3, 5))
    wild = [comm.Irecv(row, MPI.ANY_SOURCE, MPI.ANY_TAG) for row in caught[:2]]
    early = comm.Isend(np.full(5, RANK + 1.0), (RANK + 1) % SIZE, 1)
    tagged = comm.Irecv(caught[2], (RANK - 1) % SIZE, MPI.ANY_TAG)
    for bound in (1e-3, 0):
        result = zccl.allreduce(x, comm=comm, error_bound=bound, algorithm=algorithm)
        assert_bound(result, x, bound + 1e-5)
    assert not caught[1:].any()
    comm.Barrier()
    late = [comm.Isend(np.full(5, RANK + k), (RANK + 1) % SIZE, 2) for k in (11.0, 21.0)]
    MPI.Request.Waitall([*wild, tagged, early, *late])
    left = (RANK - 1) % SIZE
    assert caught.tolist() == [[left + k] * 5 for k in (1.0, 11.0, 21.0)]
    if fresh:
        comm.Free()


def test_user_requests_in_flight_around_nonblocking_collectives():
    """A nonblocking collective of the user on the same communicator may be under way."""
    x, total = wave(2000), np.zeros(1)
    request = COMM.Iallreduce(np.full(1, RANK + 1.0), total)
    result = zccl.allreduce(x, error_bound=1e-3, algorithm="ring")
    request.Wait()
    assert total[0] == SIZE * (SIZE + 1) / 2
    assert_bound(result, x, 1e-3)


def test_sub_communicators_at_once():
    """Parts of the world work at the same time, with calls of their own, and on overlapping
    communicators in turn.
    """
    parts = COMM.Split(RANK % 2, -RANK)  # ranks in reverse order
    pairs = COMM.Split(RANK // 2, RANK)
    x = wave(2100 + 100 * (RANK % 2), [np.float32, np.float64][RANK % 2])
    y = wave(2100, rank=RANK + 100)
    for repeat in range(3):
        algorithm = CODED_ALGORITHMS[(repeat + RANK) % 2]  # alone, a rank chooses for itself
        in_part = zccl.allreduce(
            x, comm=parts, error_bound=1e-3, algorithm=CODED_ALGORITHMS[RANK % 2]
        )
        in_pair = zccl.allreduce(y, comm=pairs, error_bound=1e-2, algorithm="ring")
        in_world = zccl.allreduce(y, op=zccl.MAX, error_bound=1e-4, algorithm="ring")
        alone = zccl.allreduce(x, comm=MPI.COMM_SELF, error_bound=1e-3, algorithm=algorithm)
        assert_bound(in_part, x, 1e-3, comm=parts)
        assert_bound(in_pair, y, 1e-2, comm=pairs)
        assert_bound(in_world, y, 1e-4, zccl.MAX)
        assert_bound(alone, x, 1e-3, comm=MPI.COMM_SELF)
    parts.Free()
    pairs.Free()


def test_calls_in_a_row_do_not_mix():
    """Ranks that are out of step, and calls of all sizes in a row: every result is that of its own
    call.
    """
    rng = np.random.default_rng(5)
    for k, n in enumerate(rng.integers(1, 5000, 12)):
        if rng.integers(SIZE) == RANK:
            sum(range(100_000))  # lag behind
        x = np.full(n, float(RANK + k))
        result = zccl.allreduce(x, error_bound=0.125, algorithm=CODED_ALGORITHMS[k % 2])
        assert np.abs(result - (SIZE * k + SIZE * (SIZE - 1) / 2)).max() <= 0.125


def test_duplicates_do_not_inherit_the_private_communicator():
    """A duplicate of a used communicator works beside it and after it."""
    x = wave(2000)
    first = COMM.Dup()
    expected = zccl.allreduce(x, comm=first, error_bound=1e-3, algorithm="ring")
    second = first.Dup()
    assert same_bits(zccl.allreduce(x, comm=second, error_bound=1e-3, algorithm="ring"), expected)
    first.Free()
    assert same_bits(zccl.allreduce(x, comm=second, error_bound=1e-3, algorithm="ring"), expected)
    second.Free()


def resident_nbytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cycle(comm, x):
    duplicate = comm.Dup()
    zccl.allreduce(x, comm=duplicate, error_bound=1e-3, algorithm="ring")
    duplicate.Free()


@pytest.mark.timeout(3600 if "ZCCL_TEST_CYCLES" in os.environ else 120)
def test_communicators_that_come_and_go():
    """Cycles of Dup, allreduce and Free leak neither memory nor communicators.

    In small worlds each rank alone runs more of them than MPICH has communicators (2048), then all
    ranks together a few; ZCCL_TEST_CYCLES sets the number of both.
    """
    wanted = int(os.environ.get("ZCCL_TEST_CYCLES", 0))
    alone = wanted or (2200 if SIZE <= 2 else 0)
    x = wave(100)
    for comm, cycles in ((MPI.COMM_SELF, alone), (COMM, wanted or 40)):
        for _ in range(cycles // 4):
            cycle(comm, x)
        before = resident_nbytes()
        for _ in range(cycles - cycles // 4):
            cycle(comm, x)
        grown = resident_nbytes() - before
        assert grown <= 2 << 20, f"{cycles} cycles leaked {grown} bytes"
    assert_usable()
