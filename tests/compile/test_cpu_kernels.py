"""Compiled CPU kernels: cached for the next process, and really made of vector instructions."""

import os
import subprocess
import sys

import pytest

ALL_KERNELS = """
import numpy as np
from zccl.codecs import tiles
from zccl.kernels.cpu.combine import combine_tiles
from zccl.kernels.cpu.compress import compress_tiles
from zccl.kernels.cpu.decompress import decompress_tiles
from zccl.kernels.cpu.value_range import value_range
from zccl.ops import SUM

for dtype in (np.float32, np.float64):
    values = np.linspace(0, 1, 3000, dtype=dtype)
    grid = tiles.Grid(2.0**-10, 2.0**-11, movement=False, ranks=2)

    def room():
        words = np.empty(tiles.room_nwords(3000, values.dtype), np.uint32)
        return np.empty(3, np.uint64), words

    body, _ = tiles.encode(values, grid, *room())
    total = tiles.combine(body, body, SUM, 3000, values.dtype, grid.step, *room(), True)
    tiles.decode(total, grid.step, values)
    value_range(values, np.nan)
for kernel in (compress_tiles, decompress_tiles, combine_tiles, value_range):
    stats = kernel.stats
    print(kernel.__name__, sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
if sum(compress_tiles.stats.cache_misses.values()):  # Numba shows no code that came from the cache
    for kernel in (compress_tiles, decompress_tiles, combine_tiles):
        code = "".join(kernel.inspect_llvm().values())
        assert "<16 x i32>" in code or "<8 x i32>" in code, f"{kernel} has no vector instructions"
"""


def run_kernels(folder):
    result = subprocess.run(
        [sys.executable, "-c", ALL_KERNELS],
        env=os.environ | {"ZCCL_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


@pytest.mark.timeout(400)
def test_second_process_loads_all_kernels_from_the_cache(tmp_path):
    assert all(hits == "0" and misses == "2" for _, hits, misses in run_kernels(tmp_path))
    assert all(hits == "2" and misses == "0" for _, hits, misses in run_kernels(tmp_path))
    assert not [p for p in tmp_path.rglob("*") if p.stat().st_mode & 0o022], "writable by others"
