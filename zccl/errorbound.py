"""From the bound of a result to the step of a grid.

Pure functions; docs/format.md section 2 has the arithmetic.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from zccl.ops import Op

BUDGETS = ("guaranteed", "per_rank")
MODES = ("abs", "rel")

# Half a step is this much below the bound. The gap holds every rounding on the way from a code to a
# value.
MARGIN = 2.0**-10
ALIGNED_MARGIN = 2.0**-20


def check_error_bound(error_bound: float | None) -> float | None:
    """Return the bound as a float, or None for an exact result.

    Raises
    ------
    TypeError
        When it is neither None nor a real number.
    ValueError
        When it is negative, NaN or infinite.
    """
    if error_bound is None:
        return None
    is_number = isinstance(error_bound, int | float | np.integer | np.floating)
    if isinstance(error_bound, bool) or not is_number:
        raise TypeError(
            f"error_bound: got {type(error_bound).__name__}, wanted a real number or None for exact"
        )
    bound = float(error_bound) + 0.0  # no -0
    if not 0 <= bound < math.inf:
        raise ValueError(f"error_bound: got {error_bound}, wanted a finite number >= 0")
    return bound


def check_mode(mode: str) -> str:
    """Return the mode, or raise ValueError when it is neither 'abs' nor 'rel'."""
    if mode not in MODES:
        raise ValueError(f"mode: got {mode!r}, wanted one of {', '.join(map(repr, MODES))}")
    return mode


def absolute_bound(error_bound: float, mode: str, low: float, high: float) -> float:
    """Return the absolute bound that `error_bound` means for values between `low` and `high`.

    `low > high` says that no value is finite; then, as for a range of 0, the bound is 0: exact.

    Raises
    ------
    ValueError
        When the value range overflows float64.
    """
    if mode == "abs":
        return error_bound
    if low > high:
        return 0.0
    value_range = high - low
    if math.isinf(value_range):
        raise ValueError(
            f"mode='rel': the value range {high} - ({low}) overflows float64; use mode='abs', or"
            " name a fill value in Options(fill_value=...)"
        )
    bound = error_bound * value_range
    if math.isinf(bound):
        raise ValueError(
            f"error_bound: {error_bound} times the value range {value_range} overflows float64"
        )
    return bound


def rank_bound(error_bound: float, op: Op | None, ranks: int, budget: str) -> float:
    """Return the bound that each rank's own values must keep so that the result keeps its bound.

    A sum adds the errors of all ranks: under the budget "guaranteed" each gets `error_bound /
    ranks`, under "per_rank" the full bound, as gZCCL (section 3 of arXiv 2308.05199) and its
    relatives mean it. Averages, extremes and data movement (`op` None) do not add errors.
    """
    if op is Op.SUM and budget == "guaranteed":
        return error_bound / ranks
    return error_bound


def result_bound(error_bound: float, op: Op | None, ranks: int, budget: str) -> float:
    """Return what is guaranteed for the result, up to its one rounding."""
    return error_bound * ranks if op is Op.SUM and budget == "per_rank" else error_bound


@functools.lru_cache(1024)
def grid_step(bound: float, dtype: np.dtype) -> float:
    """Return the grid step for values that must keep `bound`.

    0 when the dtype has no step that small.

    For float32 values the step is a float32 number, so that a product with a small code is exact in
    float64.
    """
    step = min(2 * (bound * (1 - MARGIN)), float(np.finfo(dtype).max))
    return _round_down(step, dtype)


def aligned_step(largest: float, bound: float, dtype: np.dtype) -> float:
    """Return the largest multiple of `ulp(largest)` that keeps `bound`.

    0 when there is none or it is not needed.

    Multiples of such a step are numbers of the dtype, so that decoded values need no rounding.
    `largest` is the largest absolute value that the grid can hold.
    """
    with np.errstate(all="ignore"):  # at the largest number
        ulp = float(np.spacing(np.asarray(largest, dtype)))
    if not 2.0**-10 * bound < ulp <= 2 * bound:
        return 0.0
    return math.floor(2 * bound * (1 - ALIGNED_MARGIN) / ulp) * ulp


def half_step(largest: float, bound: float) -> float:
    """Return a step whose multiples up to `largest + bound` round to float16 within the bound.

    0 for none.

    float16 values are coded as float32 ones, so no later test sees the rounding to float16.
    """
    reach = largest + bound
    if reach > float(np.finfo(np.float16).max):
        return 0.0
    _, exponent = math.frexp(float(np.float16(reach)))
    ulp = 2.0 ** (max(exponent, -13) - 11)  # not np.spacing, which is inf for the largest number
    if ulp <= MARGIN * bound:
        return grid_step(bound, np.dtype(np.float32))
    return math.floor(2 * bound * (1 - ALIGNED_MARGIN) / ulp) * ulp


def _round_down(step: float, dtype: np.dtype) -> float:
    rounded = np.asarray(step, dtype)
    if float(rounded) > step:
        rounded = np.nextafter(rounded, np.zeros((), dtype))
    return float(rounded)
