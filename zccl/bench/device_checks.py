"""Results on a GPU against exact ones, there.

Every rank makes the exact result by itself, out of the field that all ranks took their parts from,
a chunk at a time. Sums are exact to twice the digits of float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import cupy
import numpy as np

from zccl.bench.checks import Check, real_row
from zccl.bench.gpus import CHUNK, DeviceField
from zccl.device import DeviceArray
from zccl.ops import Op


class Piece(NamedTuple):
    """A run of a result: what became of elements `start` to `stop` of some ranks."""

    ranks: Sequence[int]
    start: int
    stop: int


def finite_range(array: DeviceArray | None) -> tuple[float, float]:
    """Return the smallest and the largest finite value; (inf, -inf) for none."""
    low, high = np.inf, -np.inf
    if array is None:
        return low, high
    row = real_row(array)
    for first in range(0, row.size, CHUNK):
        part = row[first : first + CHUNK]
        finite = cupy.isfinite(part)
        low = min(low, float(cupy.where(finite, part, np.inf).min()))
        high = max(high, float(cupy.where(finite, part, -np.inf).max()))
    return low, high


def check_pieces(
    field: DeviceField,
    result: DeviceArray | None,
    pieces: Sequence[Piece],
    op: Op | None,
    bound: float,
) -> Check:
    """Hold what this rank has of a result against the exact one.

    Parameters
    ----------
    field : DeviceField
        Of all ranks' parts.
    result : CuPy array or None
        Of this rank.
    pieces : sequence of Piece
        What it should be, in order.
    op : Op or None
        The reduction; None where data is moved.
    bound : float
        Absolute.
    """
    error, violations = 0.0, 0
    if result is None:
        return Check(error, violations)
    row = result.reshape(-1)
    at = 0
    for ranks, start, stop in pieces:
        for first in range(start, stop, CHUNK):
            n = min(CHUNK, stop - first)
            exact = _exact([real_row(field.part(rank, n, first)) for rank in ranks], op)
            found = compare(real_row(row[at : at + n]), *exact, bound, op)
            error, violations = max(error, found.error), violations + found.violations
            at += n
    if at != row.size:
        raise AssertionError(f"a result of {row.size} elements, of which {at} were checked")
    return Check(error, violations)


def _exact(parts: list[DeviceArray], op: Op | None) -> tuple[DeviceArray, DeviceArray]:
    """Return what values become: a float64 and the small rest that it lacks."""
    total = parts[0].astype(np.float64)
    rest = cupy.zeros(total.shape, np.float64)
    for part in parts[1:]:
        value = part.astype(np.float64)
        if op in (Op.MAX, Op.MIN):
            total = (cupy.maximum if op is Op.MAX else cupy.minimum)(total, value)
            continue
        new = total + value
        back = new - total
        rest = rest + ((total - (new - back)) + (value - back))
        total = new
    if op is Op.AVG:
        total, rest = total / len(parts), rest / len(parts)
    return total, rest


def compare(
    result: DeviceArray, exact: DeviceArray, rest: DeviceArray | float, bound: float, op: Op | None
) -> Check:
    """Do as `zccl.bench.checks.compare`; an average may be off by float64's rounding as well."""
    same = (result == exact) | (cupy.isnan(result) & cupy.isnan(exact))
    error = cupy.where(same, 0.0, abs((result.astype(np.float64) - exact) - rest))
    limit = cupy.full(error.shape, bound, np.float64)
    if op is not None:
        size = abs(result)
        ulp = (cupy.nextafter(size, cupy.full_like(size, np.inf)) - size).astype(np.float64)
        limit = limit + ulp * (0.5 + 2.0**-29)
        if op is Op.AVG:
            limit = limit + abs(exact) * 2.0**-53
    violations = int(cupy.count_nonzero(~(error <= limit) & ~same))
    return Check(float(cupy.where(cupy.isnan(error), 0.0, error).max()), violations)
