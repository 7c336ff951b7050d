"""What the MPI tests share: the world, arrays, exact reductions, and checks that all ranks take
part in.
"""

import hashlib
import math

import numpy as np
from mpi4py import MPI

import zccl

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
CODED_ALGORITHMS = ["ring", "recursive_doubling"]
OPS = [zccl.SUM, zccl.AVG, zccl.MAX, zccl.MIN]


def thinned(cases):
    """Return all cases; beyond 4 ranks, where calls are slow on few cores, every third one.

    For cases that do not depend on the number of ranks. Which third depends on it.
    """
    cases = list(cases)
    return cases if SIZE <= 4 else cases[SIZE // 2 % 3 :: 3]


def wave(n, dtype=np.float32, rank=RANK):
    """A rough, smooth-on-average row of n values, another one on each rank."""
    rng = np.random.default_rng([n, rank])

    def row():
        return np.cumsum(rng.standard_normal(n)) / 20 + np.sin(np.arange(n) / 300 + rank)

    if np.dtype(dtype).kind == "c":
        return (row() + 1j * row()).astype(dtype)
    return row().astype(dtype) if np.dtype(dtype).kind == "f" else (9 * row()).astype(dtype)


def everyone(array, comm=COMM):
    """Return the arrays of all ranks, by plain MPI."""
    return comm.allgather(np.asarray(array).astype(array.dtype.newbyteorder("=")))


def assert_same_everywhere(array, comm=COMM):
    """Check that all ranks hold the same bytes."""
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest()
    assert len(set(comm.allgather((digest, array.shape, str(array.dtype))))) == 1


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def error(result, column, op):
    """Return |result - exact| of one element in real numbers, rounded once at the very end."""
    if op is zccl.MAX or op is zccl.MIN:
        return abs(result - (max if op is zccl.MAX else min)(column))
    if op is zccl.AVG:
        n = len(column)
        return abs(math.fsum([result] * n + [-x for x in column])) / n
    return abs(math.fsum([result, *(-x for x in column)]))


def largest_excess(result, arrays, op, bound, comm):
    """Return by how much the worst element of this rank's share exceeds the bound and one rounding
    to the dtype.

    Ranks share the elements out: results are the same on all of them anyway.
    """
    mine = slice(comm.rank, None, comm.size)
    worst = -math.inf
    parts = ("real", "imag") if result.dtype.kind == "c" else ("real",)
    for part in parts:
        share = getattr(result, part).reshape(-1)[mine]
        columns = np.array([getattr(a, part).reshape(-1)[mine] for a in arrays], "f8")
        # Half an ulp, and the double rounding on the way from float64; the division of AVG is one
        # more in float64.
        rounding = np.spacing(np.abs(share)).astype("f8") * 0.5 * (1 + 2.0**-28)
        if result.dtype.itemsize // len(parts) == 8 and op is zccl.AVG:
            rounding *= 2
        for x, column, slack in zip(
            share.astype("f8").tolist(), columns.T.tolist(), rounding.tolist(), strict=True
        ):
            worst = max(worst, error(x, column, op) - bound - slack)
    return worst


def assert_bound(result, array, bound, op=zccl.SUM, comm=COMM):
    """Check a result against the exact one of all ranks' arrays (finite numbers), and that all
    ranks hold its bytes.
    """
    assert_same_everywhere(result, comm)
    assert result.dtype == array.dtype.newbyteorder("=") and result.shape == array.shape
    assert largest_excess(result, everyone(array, comm), op, bound, comm) <= 0


def raised(function):
    """Return the class and the text of what a function raises, and class None when it does not."""
    try:
        function()
    except Exception as caught:
        return type(caught), str(caught)
    return None, ""


def assert_raises_everywhere(kind, function, comm=COMM):
    """Check that a collective call raises the very same class on all ranks; returns the texts of
    all ranks.
    """
    found, text = raised(function)
    everywhere = comm.allgather((found, text))
    assert [k for k, _ in everywhere] == [kind] * comm.size, everywhere
    return [t for _, t in everywhere]


def assert_usable(comm=COMM):
    """Check that the next calls work, coded and plain."""
    total = comm.size * (comm.size + 1) / 2
    for bound in (0.25, 0):
        mine = np.full(40, comm.rank + 1.0)
        result = zccl.allreduce(mine, comm=comm, error_bound=bound, algorithm="ring")
        assert np.abs(result - total).max() <= bound
