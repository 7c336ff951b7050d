"""Compile all kernels ahead of a job: `python -m zccl warmup`."""

from __future__ import annotations

import argparse
import importlib.util
import time
from typing import Any

import numpy as np

from zccl.codecs import packing, tiles
from zccl.codecs.ranges import finite_range
from zccl.codecs.tiles import Grid
from zccl.formats import TILE
from zccl.kernels.cpu.checksum import words_checksum
from zccl.kernels.cpu.survey import survey_tiles
from zccl.kernels.cpu.value_range import largest_below
from zccl.ops import Op

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def warm_cpu(dtype: np.dtype) -> None:
    """Call every CPU kernel once for a value type, which compiles it or loads it from the cache."""
    n = TILE
    values = np.linspace(0, 1, n).astype(dtype)
    grid = Grid(0.125, 0.0625, movement=False, ranks=2)

    def room() -> tuple[Any, Any]:
        return np.empty(1, np.uint64), np.empty(tiles.room_nwords(n, dtype), np.uint32)

    finite_range(values, np.nan)
    largest_below(values, 1.0)
    body, _ = tiles.encode(values, grid, *room())
    tiles.combine(body, body, Op.SUM, n, dtype, grid.step, *room(), keep_small=True)
    tiles.combine_with_values(values, grid, body, Op.SUM, *room())
    tiles.decode(body, grid.step, values)
    rough = np.random.default_rng(0).standard_normal(64 * n).astype(dtype)  # enough to be packed
    room_of_rough = (
        np.empty(64, np.uint64),
        np.empty(tiles.room_nwords(rough.size, dtype), np.uint32),
    )
    packed = packing.pack(tiles.encode(rough, grid, *room_of_rough)[0], rough.size, dtype)
    assert packed is not None
    packing.unpack(packed, rough.size, dtype)
    words_checksum(body.words, 0)
    survey_tiles(
        body.table, body.words, body.words.size, n, dtype.itemsize // 4, np.zeros(64, np.int64)
    )


def warm_cuda() -> int:
    """Compile every CUDA kernel for the current GPU; returns how many there are.

    Raises
    ------
    ImportError
        When the CUDA packages are missing.
    RuntimeError
        When there is no GPU or no driver.
    """
    from zccl.kernels.cuda import packing, rows
    from zccl.kernels.cuda.launch import current_device, load

    device = current_device()
    kernels = [*rows.KERNELS.values(), *packing.KERNELS.values()]
    for kernel in kernels:
        load(kernel, device)
    return len(kernels)


def run(_found: object, _args: argparse.Namespace) -> int:
    """Compile all kernels into the cache; ranks of one machine wait for the one that compiles."""
    for dtype in DTYPES:
        start = time.perf_counter()
        warm_cpu(dtype)
        print(f"CPU kernels, {dtype}: ready after {time.perf_counter() - start:.1f} s")
    if importlib.util.find_spec("numba_cuda") is None:
        print("CUDA kernels: not compiled, numba-cuda is not installed")
        return 0
    start = time.perf_counter()
    try:
        count = warm_cuda()
    except (ImportError, RuntimeError) as error:
        print(f"CUDA kernels: not compiled: {error}")
        return 0
    print(f"{count} CUDA kernels: ready after {time.perf_counter() - start:.1f} s")
    return 0
