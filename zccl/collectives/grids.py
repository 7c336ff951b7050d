"""The grid of data that is moved."""

from __future__ import annotations

from zccl import errorbound
from zccl.codecs.ranges import largest_below
from zccl.codecs.tiles import Grid
from zccl.formats import MAX_CODE_BITS
from zccl.typing import Array


def movement_grid(
    values: Array, bound: float, ends: tuple[float, float], fill: float, half: bool
) -> Grid:
    """Return the grid of a rank's own values, whose decoded ones keep the bound without rounding.

    Parameters
    ----------
    values : 1-D ndarray, float32 or float64
        All that this rank will send: the grid must not depend on how it is cut.
    bound : float
        Absolute bound.
    ends : (float, float)
        Smallest and largest finite value.
    fill : float
        Value that always escapes; NaN for none.
    half : bool
        Whether the values will be rounded to float16.

    Returns
    -------
    Grid
        Of step 0 where there is no grid so fine: the values travel as they are.
    """
    step = errorbound.grid_step(bound, values.dtype)
    if step:
        limit = 2.0 ** MAX_CODE_BITS[values.dtype.str[1:]] * step
        largest = max(abs(ends[0]), abs(ends[1])) if ends[0] <= ends[1] else 0.0
        if largest > limit:
            largest = largest_below(values, limit)
        if half:
            step = errorbound.half_step(largest, bound)
        else:
            step = errorbound.aligned_step(largest, bound, values.dtype) or step
    return Grid(step, bound, fill=fill)
