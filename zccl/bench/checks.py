"""Results against exact ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from zccl import errorbound
from zccl.ops import Op
from zccl.typing import Array

_CHUNK = 1 << 18  # elements of all ranks that are brought together at a time


class Check(NamedTuple):
    """Outcome of a check.

    Attributes
    ----------
    error : float
        Largest absolute error.
    violations : int
        Elements beyond the bound and, where it is allowed, one rounding.
    """

    error: float
    violations: int


def wider(dtype: np.dtype) -> np.dtype:
    """Return a dtype in which sums and differences of a real one are exact enough to judge by."""
    return np.dtype(np.float64 if dtype == np.float32 else np.longdouble)


def real_row(array: Array) -> Array:
    """View an array as a row of real numbers."""
    row = array.reshape(-1)
    return row.view(row.real.dtype) if row.dtype.kind == "c" else row


def compare(result: Array, exact: Array, bound: float, rounding: bool) -> Check:
    """Hold real results against exact values of a wider dtype.

    `rounding` allows what a result may be off on top of the bound: half an ulp of its dtype, and
    2^-29 ulp for two roundings in a row.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(result - exact)
        limit = np.full(error.shape, bound, exact.dtype)
        if rounding:
            limit += np.spacing(np.abs(result)).astype(exact.dtype) * (0.5 + 2.0**-29)
    same = (result == exact) | (np.isnan(result) & np.isnan(exact))
    error[same] = 0
    violations = int(np.count_nonzero(~(error <= limit) & ~same))
    return Check(float(np.fmax.reduce(error, initial=0)), violations)


def _exact_reduction(comm: MPI.Intracomm, source: Array, op: Op) -> Iterator[tuple[slice, Array]]:
    """Reduce a real array exactly enough, chunk by chunk: the part and its values, wider."""
    wide = wider(source.dtype)
    for start in range(0, source.size, _CHUNK):
        part = slice(start, min(start + _CHUNK, source.size))
        everyone = np.empty((comm.size, part.stop - part.start), source.dtype)
        comm.Allgather(source[part], everyone)
        if op in (Op.SUM, Op.AVG):
            total = everyone.astype(wide).sum(axis=0)
            yield part, total / comm.size if op is Op.AVG else total
        else:
            yield (
                part,
                (everyone.max(axis=0) if op is Op.MAX else everyone.min(axis=0)).astype(wide),
            )


def check_reduction(
    comm: MPI.Intracomm, source: Array, result: Array | None, op: Op, bound: float, start: int = 0
) -> Check:
    """Check the result of a reduction on all ranks; the worst rank counts.

    `result` is what this rank has of it, from element `start` on; None for nothing.
    """
    row = real_row(source[:0] if result is None else result)
    start *= real_row(source[:1]).size if source.size else 1
    error, violations = 0.0, 0
    for part, exact in _exact_reduction(comm, real_row(source), op):
        first, stop = max(part.start, start), min(part.stop, start + row.size)
        if first < stop:
            inside = exact[first - part.start : stop - part.start]
            found = compare(row[first - start : stop - start], inside, bound, rounding=True)
            error, violations = max(error, found.error), violations + found.violations
    return worst(comm, Check(error, violations))


def check_movement(
    comm: MPI.Intracomm, exact: Array | None, result: Array | None, bound: float
) -> Check:
    """Check what was received on all ranks; the worst rank counts."""
    found = Check(0.0, 0)
    if exact is not None and result is not None:
        wide = real_row(exact).astype(wider(real_row(exact).dtype))
        found = compare(real_row(result), wide, bound, rounding=False)
    return worst(comm, found)


def worst(comm: MPI.Intracomm, found: Check) -> Check:
    """Return the outcome of the worst rank."""
    return Check(*(comm.allreduce(value, MPI.MAX) for value in found))


def promised_bound(
    comm: MPI.Intracomm, source: Array, error_bound: float, mode: str, op: Op | None, budget: str
) -> float:
    """Return the absolute bound that the arguments of a call promise for its result."""
    row = real_row(source)
    finite = row[np.isfinite(row)]
    ends = (float(finite.min()), float(finite.max())) if finite.size else (np.inf, -np.inf)
    return bound_of_range(comm, ends, error_bound, mode, op, budget)


def bound_of_range(
    comm: MPI.Intracomm,
    ends: tuple[float, float],
    error_bound: float,
    mode: str,
    op: Op | None,
    budget: str,
) -> float:
    """Do as `promised_bound` for a rank's smallest and largest finite value."""
    low, high = comm.allreduce(ends[0], MPI.MIN), comm.allreduce(ends[1], MPI.MAX)
    bound = errorbound.absolute_bound(error_bound, mode, low, high)
    return errorbound.result_bound(bound, op, comm.size, budget)
