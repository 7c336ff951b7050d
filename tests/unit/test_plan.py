"""The pure functions: schedules, chunks, choice of the algorithm, bounds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zccl import errorbound
from zccl.algorithms.schedules import (
    recursive_doubling,
    ring_allgather_steps,
    ring_reduce_scatter_steps,
)
from zccl.forecast import forecast
from zccl.formats import TILE
from zccl.machines import MACHINES, default_machine
from zccl.ops import AVG, MAX, SUM
from zccl.plan import (
    ALGORITHMS,
    SMALL_NBYTES,
    WORTH,
    candidates,
    choose,
    chunk_count,
    chunk_parts,
    even_split,
    in_units,
    settled_plan,
)

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


# gZCCL's rule (arXiv 2308.05199): below this many bytes a rank, many small ring steps lose to log2
# N large ones.
RING_NBYTES = 1 << 20


def plan(algorithm="auto", nbytes=1 << 26, size=4, **changes):
    agreed = {"codable": True, "exact": False, "one_node": False, "reproducible": False} | changes
    settled = settled_plan(algorithm, nbytes, size, **agreed)
    del agreed["one_node"]
    machine = default_machine("mpi-staged", False, link_gbits=10)
    chosen = settled or choose("allreduce", algorithm, nbytes, size, machine, 6.0, **agreed)
    return chosen.algorithm


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


HOSTS = default_machine("mpi", False)
ONE_GBIT = HOSTS.on_link(20e-6, 0.125e9)


def chosen(collective="allreduce", wanted="auto", nbytes=1 << 26, size=8, machine=HOSTS, ratio=6.0,
           **changes):  # fmt: skip
    agreed = {"codable": True, "exact": False, "reproducible": False} | changes
    return choose(collective, wanted, nbytes, size, machine, ratio, **agreed)


def test_what_needs_no_forecast():
    assert chosen(wanted="native") == ("native", "asked for")
    assert chosen(wanted="recursive_doubling") == ("recursive_doubling", "asked for")
    assert chosen(size=1).algorithm == "native"
    assert chosen(nbytes=SMALL_NBYTES, machine=ONE_GBIT).algorithm == "native"
    assert chosen(codable=False).algorithm == "native"
    assert chosen(codable=False, exact=True, ratio=9.0).algorithm == "ring"
    assert chosen(nbytes=1 << 10, reproducible=True).algorithm == "recursive_doubling"
    assert chosen(size=1, reproducible=True).algorithm == "ring"


@pytest.mark.parametrize("collective", ALGORITHMS)
@pytest.mark.parametrize("ratio", [3, 10, 100])
def test_coded_on_slow_networks(collective, ratio):
    assert chosen(collective, machine=ONE_GBIT, ratio=ratio).algorithm != "native"
    two_cores = default_machine("mpi", False, threads=2)
    assert chosen(collective, machine=two_cores, ratio=ratio).algorithm != "native"


@pytest.mark.parametrize("collective", ALGORITHMS)
def test_native_where_nothing_is_to_gain(collective):
    for nbytes in (1 << 17, 1 << 22, 1 << 28):
        for size in (2, 8, 64):
            assert chosen(collective, nbytes=nbytes, size=size, ratio=1.0).algorithm == "native"
            on_one_node = chosen(
                collective, nbytes=nbytes, size=size, machine=default_machine("mpi", True), ratio=50
            )
            assert on_one_node.algorithm == "native"


def threshold(machine, size):
    """Bytes from which the ring should be faster than recursive doubling."""
    for bits in range(12, 34):
        if chosen(nbytes=1 << bits, size=size, machine=machine, reproducible=True)[0] == "ring":
            return 1 << bits
    return math.inf


@pytest.mark.parametrize("size", [4, 16, 64])
def test_ring_for_long_arrays(size):
    """gZCCL's rule, 1 MiB a rank, came from GPUs on a network; hops are dear on hosts."""
    gpus = default_machine("nccl", False)
    assert RING_NBYTES / 8 <= threshold(gpus, size) / size <= 32 * RING_NBYTES
    assert RING_NBYTES / 64 <= threshold(HOSTS, size) / size <= RING_NBYTES


cases = st.tuples(
    st.sampled_from(list(ALGORITHMS)), st.sampled_from(list(MACHINES.values())),
    st.integers(2, 300), st.integers(SMALL_NBYTES + 1, 1 << 33), st.floats(0.3, 1000),
)  # fmt: skip


@given(cases)
def test_the_choice_is_the_least_or_native(case):
    collective, machine, size, nbytes, ratio = case
    plan = chosen(collective, "auto", nbytes, size, machine, ratio)
    assert plan == chosen(collective, "auto", nbytes, size, machine._replace(), ratio)
    costs = candidates(collective, nbytes, size, machine, ratio)
    assert "nan" not in plan.reason and in_units(costs["native"].seconds) in plan.reason
    own = min(costs[name].seconds for name in ALGORITHMS[collective])
    if plan.algorithm == "native":
        assert own > WORTH * costs["native"].seconds
    else:
        assert costs[plan.algorithm].seconds == own <= WORTH * costs["native"].seconds


def test_times_in_words():
    assert [in_units(s) for s in (0, 4e-6, 9.96e-4, 1.24e-3, 0.0123, 0.999, 75.2)] == [
        "0.0 us", "4.0 us", "1.0 ms", "1.2 ms", "12 ms", "1.0 s", "75 s",
    ]  # fmt: skip
    assert chosen().reason == "66 ms expected, native 94 ms"


@given(cases, st.sampled_from(["auto", "native"]), st.booleans(), st.booleans())
def test_forecasts_can_be_read(case, wanted, reproducible, codable):
    collective, machine, size, nbytes, ratio = case
    told = forecast(
        collective, nbytes, size, machine, ratio, wanted=wanted, codable=codable,
        reproducible=reproducible, error_bound=1e-3,
    )  # fmt: skip
    text = told.explain()
    assert 10 <= len(text.splitlines()) <= 15
    assert all(name in text for name in (*ALGORITHMS[collective], "native"))
    assert not {"nan", "inf"} & set(text.replace(",", " ").split())
    assert text.count("chosen") == 1 and told.reason in text
    assert (told.promised_bound > 0) == (codable and told.algorithm != "native")


def test_forecast_of_a_sum():
    told = forecast("allreduce", 1 << 26, 8, HOSTS, 6.0, error_bound=8e-3)
    assert told.plan == chosen() and (told.algorithm, told.reason) == told.plan
    assert (told.rank_bound, told.promised_bound) == (1e-3, 8e-3)
    assert told.segments == sum(map(len, chunk_parts((1 << 26) // 4, 4, 8, 4 << 20)))
    per_rank = forecast(
        "allreduce", 1 << 26, 8, HOSTS, 6.0, op=SUM, error_bound=1e-3, budget="per_rank"
    )
    assert "0.008 promised" in per_rank.explain() and "'per_rank'" in per_rank.explain()
    extremes = forecast("allreduce", 1 << 26, 8, HOSTS, 6.0, op=MAX, error_bound=1e-3)
    assert extremes.rank_bound == 1e-3
    assert extremes.estimate.sent_nbytes < told.estimate.sent_nbytes


def test_forecasts_say_why_others_lose():
    text = forecast("allreduce", 1 << 26, 8, HOSTS, 6.0).explain()
    assert "1.4 times as long, most of it wire" in text
    assert (
        "not asked for" in forecast("allreduce", 1 << 26, 8, HOSTS, 6.0, wanted="native").explain()
    )
    exact = {"codable": False, "exact": True}
    assert "other bits" in forecast("allreduce", 1 << 26, 8, HOSTS, 6.0, **exact).explain()


def test_arrays_that_travel_whole_are_not_cut_for_each_rank():
    assert chunk_count("allreduce", "ring", 8) == 8
    assert chunk_count("allreduce", "recursive_doubling", 8) == 2
    assert chunk_count("allgather", "ring", 8) == 1  # each share is cut by itself


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
