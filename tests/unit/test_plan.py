"""The pure functions: schedules, chunks, choice of the algorithm, bounds."""

import math

import numpy as np
import pytest

from zccl import errorbound
from zccl.algorithms.schedules import (
    recursive_doubling,
    ring_allgather_steps,
    ring_reduce_scatter_steps,
)
from zccl.formats import TILE
from zccl.ops import AVG, MAX, SUM
from zccl.plan import chunk_parts, even_split, own_plan, settled_plan

SIZES = range(1, 18)


@pytest.mark.parametrize("size", SIZES)
def test_ring_sums_every_chunk_over_all_ranks_and_gives_it_to_all(size):
    held = [{c: {r} for c in range(size)} for r in range(size)]
    for k in range(size - 1):
        sent = [
            (
                ring_reduce_scatter_steps(r, size)[k].send,
                held[r][ring_reduce_scatter_steps(r, size)[k].send],
            )
            for r in range(size)
        ]
        for r in range(size):
            chunk, ranks = sent[(r - 1) % size]
            assert chunk == ring_reduce_scatter_steps(r, size)[k].receive
            assert not held[r][chunk] & ranks
            held[r][chunk] = held[r][chunk] | ranks
    whole = set(range(size))
    assert all(held[r][r] == whole for r in range(size))
    have = [{r} for r in range(size)]
    for k in range(size - 1):
        sent = [ring_allgather_steps(r, size)[k].send for r in range(size)]
        assert all(sent[r] in have[r] for r in range(size))
        for r in range(size):
            assert sent[(r - 1) % size] == ring_allgather_steps(r, size)[k].receive
            have[r].add(sent[(r - 1) % size])
    assert all(h == whole for h in have)


@pytest.mark.parametrize("size", SIZES)
def test_recursive_doubling_sums_each_rank_once(size):
    plans = [recursive_doubling(r, size) for r in range(size)]
    held = [{r} for r in range(size)]
    for r, plan in enumerate(plans):
        if plan.folds_to is not None:
            assert plans[plan.folds_to].folds_from == r
            held[plan.folds_to] |= held[r]
    for k in range(max(len(p.partners) for p in plans)):
        before = [set(h) for h in held]
        for r, plan in enumerate(plans):
            if plan.folds_to is None:
                partner = plan.partners[k]
                assert plans[partner].partners[k] == r
                assert not before[r] & before[partner]
                held[r] = before[r] | before[partner]
    assert all(held[r] == set(range(size)) for r in range(size) if plans[r].folds_to is None)


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 100_000, 1_234_567])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 200])
def test_chunks_cover_the_row_once_in_whole_tiles(count, size):
    chunks = chunk_parts(count, 4, size, 4 << 20)
    parts = [part for chunk in chunks for part in chunk]
    assert len(chunks) == size
    assert [p.start for p in parts] == [0, *(p.stop for p in parts)][: len(parts)]
    assert (parts[-1].stop if parts else 0) == count
    assert all(p.start % TILE == 0 and p.stop > p.start for p in parts)
    assert all((p.stop - p.start) * 4 <= 4 << 20 for p in parts)


def test_even_split():
    assert even_split(10, 4) == [3, 3, 2, 2]
    assert even_split(2, 4) == [1, 1, 0, 0]


def plan(algorithm="auto", nbytes=1 << 26, size=4, **changes):
    agreed = {"codable": True, "exact": False, "one_node": False, "reproducible": False} | changes
    settled = settled_plan(algorithm, nbytes, size, **agreed)
    return (settled or own_plan("allreduce", algorithm, nbytes, size)).algorithm


def test_auto_chooses_what_pays():
    assert plan() == "ring"
    assert plan(nbytes=1 << 20) == "recursive_doubling"
    assert plan(nbytes=1 << 10) == "native"
    assert plan(one_node=True) == "native"
    assert plan(one_node=True, reproducible=True) == "ring"
    assert plan(nbytes=1 << 10, reproducible=True) == "recursive_doubling"
    assert plan(size=1) == "native"
    assert plan(codable=False) == "native"
    assert plan(codable=False, exact=True) == "ring"
    assert plan("recursive_doubling") == "recursive_doubling"


def test_budgets():
    assert errorbound.rank_bound(1.0, SUM, 4, "guaranteed") == 0.25
    assert errorbound.rank_bound(1.0, SUM, 4, "per_rank") == 1.0
    assert errorbound.rank_bound(1.0, AVG, 4, "guaranteed") == 1.0
    assert errorbound.rank_bound(1.0, MAX, 4, "guaranteed") == 1.0
    assert errorbound.result_bound(1.0, SUM, 4, "per_rank") == 4.0
    assert errorbound.result_bound(1.0, AVG, 4, "per_rank") == 1.0


@pytest.mark.parametrize("bound", [1e-300, 1e-45, 1e-38, 1e-3, 1.0, 1e30, 1e38, 1e308])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_are_numbers_of_the_dtype_below_twice_the_bound(bound, dtype):
    step = errorbound.grid_step(bound, np.dtype(dtype))
    assert math.isfinite(step) and float(dtype(step)) == step
    assert step / 2 <= bound * (1 - 2.0**-10)
    if float(np.finfo(dtype).tiny) < bound < float(np.finfo(dtype).max) / 4:
        assert step > 1.997 * bound


def test_aligned_steps_are_multiples_of_the_ulp():
    step = errorbound.aligned_step(300.0, 1e-4, np.dtype(np.float32))
    ulp = float(np.spacing(np.float32(300)))
    assert step % ulp == 0 and 2e-4 - ulp <= step <= 2e-4
    assert errorbound.aligned_step(300.0, 1.0, np.dtype(np.float32)) == 0  # not needed
    assert errorbound.aligned_step(300.0, ulp / 4, np.dtype(np.float32)) == 0  # there is none


def test_range_that_overflows_is_refused():
    with pytest.raises(ValueError, match="overflows"):
        errorbound.absolute_bound(1e-3, "rel", -1.7e308, 1.7e308)
    assert errorbound.absolute_bound(1e-3, "rel", math.inf, -math.inf) == 0
