"""A hop that quantises one's own values on the fly equals one that compresses them first."""

import numpy as np
import pytest

from zccl import errorbound
from zccl.codecs import tiles
from zccl.ops import MAX, MIN, SUM

rng = np.random.default_rng(7)
SPECIALS = np.array([np.nan, np.inf, -np.inf, 1e36, -3e9, 3.0])


def walk(n, dtype, rank):
    return np.cumsum(np.random.default_rng([n, rank]).normal(size=n)).astype(dtype)


def some_specials(n, dtype, rank):
    values = walk(n, dtype, rank)
    values[rng.random(n) < 0.02] = rng.choice(SPECIALS)
    return values


def many_specials(n, dtype, rank):
    values = walk(n, dtype, rank)
    hit = rng.random(n) < 0.3
    values[hit] = rng.choice(SPECIALS, hit.sum())
    return values


def random_bits(n, dtype, rank):
    return rng.integers(0, 2**32, n * np.dtype(dtype).itemsize // 4, np.uint32).view(dtype)


def constant(n, dtype, rank):
    return np.full(n, 3, dtype)


def room(n, dtype):
    words = np.empty(tiles.room_nwords(n, np.dtype(dtype)), np.uint32)
    return np.empty(tiles.tile_count(n), np.uint64), words


@pytest.mark.parametrize("op", [SUM, MAX, MIN])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 17, 1024, 1025, 20_000])
@pytest.mark.parametrize("make", [walk, some_specials, many_specials, random_bits, constant])
def test_equal_bytes(make, n, dtype, op):
    mine, theirs = make(n, dtype, 0), make(n, dtype, 1)
    for bound in (1.0, 1e-2, 1e-5):
        step = errorbound.grid_step(bound, np.dtype(dtype))
        for fill in (np.nan, 3.0):
            ranks = 2 if op is SUM else 1
            grids = [tiles.Grid(step, bound, False, ranks, rank, fill) for rank in (0, 1)]
            a, a_raw = tiles.encode(mine, grids[0], *room(n, dtype))
            b, _ = tiles.encode(theirs, grids[1], *room(n, dtype))
            want = tiles.combine(a, b, op, n, np.dtype(dtype), step, *room(n, dtype), True)
            got, raw = tiles.combine_with_values(mine, grids[0], b, op, *room(n, dtype))
            assert got.table.tobytes() == want.table.tobytes()
            assert got.words.tobytes() == want.words.tobytes()
            assert (got.checksum, raw) == (want.checksum, a_raw)
