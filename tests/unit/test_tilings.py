"""Tiles along two and three axes: the CPU kernels against kernels/spec.py, and whole streams."""

import math

import numpy as np
import pytest

from zccl.codecs import tiles
from zccl.codecs.tiles import Grid, Tiles
from zccl.kernels import spec
from zccl.ops import Op
from zccl.tiling import Tiling

SHAPES = [
    (2, (1, 1)), (2, (32, 32)), (2, (2, 33, 40)), (2, (2, 2, 5, 65)), (2, (0, 5)),
    (3, (1, 1, 1)), (3, (8, 8, 16)), (3, (2, 3, 9, 17)), (3, (9, 7, 17)),
]  # fmt: skip
OPS = {Op.SUM: "sum", Op.MAX: "max", Op.MIN: "min"}


def field(shape, dtype, seed=0):
    """Return something smooth with a little noise."""
    random = np.random.default_rng(seed)
    grids = np.meshgrid(*(np.linspace(0, 3 + k, n) for k, n in enumerate(shape)), indexing="ij")
    waves = sum(np.sin(g + seed) for g in grids)
    return (waves + 0.01 * random.standard_normal(shape)).astype(dtype)


def spoiled(array, seed):
    """Return an array with some values that no grid holds, and some wild regions."""
    random = np.random.default_rng(seed)
    flat = array.reshape(-1).copy()
    if flat.size:
        for value in (math.nan, math.inf, 1e36, -0.0, 1e9):
            flat[random.integers(0, flat.size, max(flat.size // 400, 1))] = value
        start = int(random.integers(0, flat.size))
        flat[start : start + 300] = random.standard_normal(flat[start : start + 300].size) * 1e7
    return flat.reshape(array.shape)


def room(n, dtype):
    words = np.empty(tiles.room_nwords(n, np.dtype(dtype)), np.uint32)
    return np.empty(tiles.tile_count(n), np.uint64), words


def same(got, wanted):
    return (
        got.table.tolist() == wanted.table.tolist()
        and got.words.tolist() == wanted.words.tolist()
        and got.checksum == wanted.checksum
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axes, shape", SHAPES)
@pytest.mark.parametrize("hostile", [False, True])
def test_kernels_follow_the_definition(axes, shape, dtype, hostile):
    tiling = Tiling.of(shape, axes)
    arrays = [field(shape, dtype, seed) for seed in (1, 2)]
    if hostile:
        arrays = [spoiled(array, seed) for seed, array in enumerate(arrays)]
    bound, step = 1e-3, 2e-3 * (1 - 2.0**-10)
    step = float(dtype(step))
    rows = [spec.to_row(array, axes) for array in arrays]
    assert all(row.size == tiling.n for row in rows)
    for movement in (True, False):
        ranks = 1 if movement else 2
        wanted = [
            spec.encode(row, step, bound, movement=movement, ranks=ranks, rank=k, axes=axes)
            for k, row in enumerate(rows)
        ]
        got = []
        for k, array in enumerate(arrays):
            grid = Grid(step, bound, movement, ranks, k)
            values = Tiles.of(array.reshape(-1), tiling)
            body, escaped = tiles.encode(values, grid, *room(tiling.n, dtype))
            assert same(body, wanted[k][0]) and escaped == wanted[k][1]
            got.append(body)
        out = np.empty_like(arrays[0])
        tiles.decode(got[0], step, Tiles.of(out.reshape(-1), tiling))
        again = spec.from_row(
            spec.decode(wanted[0][0], tiling.n, dtype, step, axes=axes), shape, axes
        )
        assert out.tobytes() == again.tobytes()
        if movement:
            continue
        for op, name in OPS.items():
            wanted_sum = spec.combine(wanted[0][0], wanted[1][0], name, tiling.n, dtype, step,
                                      axes=axes)  # fmt: skip
            total = tiles.combine(
                got[0], got[1], op, tiling.n, np.dtype(dtype), step, *room(tiling.n, dtype), True,
                axes=axes,
            )  # fmt: skip
            assert same(total, wanted_sum)
            grid = Grid(step, bound, False, 2, 0)
            fused, _ = tiles.combine_with_values(
                Tiles.of(arrays[0].reshape(-1), tiling), grid, got[1], op, *room(tiling.n, dtype)
            )
            assert same(fused, wanted_sum)
            for divisor in (1.0, 2.0):
                tiles.decode(total, step, Tiles.of(out.reshape(-1), tiling), divisor, True)
                row = spec.decode(
                    wanted_sum, tiling.n, dtype, step, divisor=divisor, reduced=True, axes=axes
                )
                assert out.tobytes() == spec.from_row(row, shape, axes).tobytes()
