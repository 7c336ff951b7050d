"""The collectives that move data, all in one form: every rank's row in, what each should get."""

import functools

import numpy as np
from mpi.checks import COMM, RANK, SIZE, wave

import zccl

#: Every collective with its algorithms.
ALGORITHMS = {
    "bcast": ["binomial", "scatter_allgather"],
    "scatter": ["binomial"],
    "gather": ["binomial"],
    "allgather": ["ring", "recursive_doubling"],
    "alltoall": ["pairwise"],
}
WAYS = [(name, algorithm) for name, names in ALGORITHMS.items() for algorithm in names]
ROOTED = {"bcast", "scatter", "gather"}


def rows(counts, dtype=np.float32):
    """Return a row of so many values for each rank, the same ones on all ranks."""
    return [wave(n, dtype, rank) for rank, n in enumerate(counts)]


def joined(parts, dtype):
    return np.concatenate([*parts, np.empty(0, dtype)])


def part_of(array, counts, rank):
    start = sum(counts[:rank])
    return array[start : start + counts[rank]]


def call(name, counts, arrays, root=0, comm=COMM, **keywords):
    """Make a call with counts; returns (result, what it should be), None where nothing comes.

    `arrays[k]` is the row of rank k: for bcast, scatter and gather its own, in allgather too; in
    alltoall each rank gives all of them.
    """
    rank, dtype = comm.rank, arrays[0].dtype
    everything = joined(arrays, dtype)
    at_root = rank == root
    if name == "bcast":
        buf = everything if at_root else None
        return zccl.bcast(buf, root, comm, **keywords), everything
    if name == "scatter":
        send, given = (everything, counts) if at_root else (None, None)
        return zccl.scatter(send, None, given, root, comm, **keywords), arrays[rank]
    if name == "gather":
        result = zccl.gather(arrays[rank], None, counts, root, comm, **keywords)
        return result, everything if at_root else None
    if name == "allgather":
        return zccl.allgather(arrays[rank], None, counts, comm, **keywords), everything
    result = zccl.alltoall(everything, None, counts, comm=comm, **keywords)
    return result, joined([arrays[rank]] * comm.size, dtype)


def bound_is_kept(result, exact, bound):
    """Whether every component of every element is within the bound, without any allowance."""
    if result is None or exact is None:
        return result is exact
    if result.shape != exact.shape or result.dtype != exact.dtype:
        return False
    if exact.dtype.kind not in "fc":
        return bool((result == exact).all())
    wide = np.longdouble
    return all(
        (np.abs(part(result).astype(wide) - part(exact).astype(wide)) <= bound).all()
        for part in (np.real, np.imag)
    )


def assert_all(condition, comm=COMM):
    """Check a condition on all ranks at once, so that none goes on alone."""
    assert all(comm.allgather(bool(condition))), comm.allgather(bool(condition))


def uneven(n):
    """Return counts of which some are 0 and none are alike."""
    return [0 if rank % 3 == 1 else n + 37 * rank for rank in range(SIZE)]


forms = functools.partial(zip, strict=True)

__all__ = ["ALGORITHMS", "COMM", "RANK", "ROOTED", "SIZE", "WAYS"]
