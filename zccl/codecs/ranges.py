"""The range of a row of values."""

from __future__ import annotations

from zccl.codecs.threads import run_all, tile_runs
from zccl.codecs.tiles import tile_count
from zccl.formats import TILE
from zccl.kernels.cpu.value_range import value_range
from zccl.typing import Array


def finite_range(values: Array, fill: float, threads: int = 1) -> tuple[float, float]:
    """Return the smallest and largest finite value that is not `fill`; (inf, -inf) for none."""

    def work(run: slice) -> tuple[float, float]:
        low, high = value_range(values[run.start * TILE : run.stop * TILE], fill)
        return float(low), float(high)

    ends = run_all(work, tile_runs(tile_count(values.size), threads))
    return min(low for low, _ in ends), max(high for _, high in ends)
