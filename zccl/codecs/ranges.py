"""What is asked of a row of values before it is quantised: its range, its largest code."""

from __future__ import annotations

import numpy as np

from zccl.arrays import is_on_device
from zccl.codecs.threads import run_all, tile_runs
from zccl.codecs.tiles import tile_count
from zccl.formats import TILE
from zccl.kernels.cpu import value_range as kernels
from zccl.typing import Array


def finite_range(values: Array, fill: float, threads: int = 1) -> tuple[float, float]:
    """Return the smallest and largest finite value that is not `fill`; (inf, -inf) for none."""
    if is_on_device(values):
        from zccl.codecs.device_tiles import DeviceTiles

        return DeviceTiles(values.dtype).finite_range(values, fill)

    def work(run: slice) -> tuple[float, float]:
        low, high = kernels.value_range(values[run.start * TILE : run.stop * TILE], fill)
        return float(low), float(high)

    ends = run_all(work, tile_runs(tile_count(values.size), threads))
    return min(low for low, _ in ends), max(high for _, high in ends)


def largest_below(values: Array, limit: float) -> float:
    """Return the largest absolute value that does not exceed `limit`; 0 when there is none."""
    if not is_on_device(values):
        return float(kernels.largest_below(values, limit))
    import cupy

    if not values.size:
        return 0.0
    sizes = cupy.abs(values)
    return float(cupy.where(sizes.astype(np.float64) <= limit, sizes, 0).max())
