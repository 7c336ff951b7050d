"""What a collective should cost: limits that are known, and order."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zccl import costformulas, machines
from zccl.algorithms import primitives, schedules
from zccl.costformulas import coded_nbytes
from zccl.costmodel import Estimate, Machine, predict
from zccl.machines import MACHINES, default_machine
from zccl.plan import ALGORITHMS

PAIRS = [(c, a) for c, names in ALGORITHMS.items() for a in (*names, "native")]
OWN = [(c, a) for c, a in PAIRS if a != "native"]
ALL_ON_WIRE = Machine(0.0, 1e9, 0.0, 0.0, math.inf, math.inf, math.inf, 0.0, 1e9)
ALL_LATENCY = Machine(1.0, math.inf, 0.0, 0.0, math.inf, math.inf, math.inf, 1.0, math.inf)

named = st.sampled_from(list(MACHINES.values()))
pairs = st.sampled_from(PAIRS)
sizes = st.integers(1, 300)
bytes_ = st.floats(1, 1e10)
ratios = st.floats(0.3, 1000)


@given(pairs, sizes, named, bytes_, ratios)
def test_parts_are_finite_and_add_up_to_no_less(pair, size, machine, nbytes, ratio):
    cost = predict(*pair, nbytes, size, machine, ratio)
    assert all(math.isfinite(number) and number >= 0 for number in cost)
    separate = cost.latency_seconds + cost.wire_seconds + cost.code_seconds
    assert cost.seconds <= separate * (1 + 1e-9)


@given(pairs, sizes, named, bytes_, bytes_, ratios)
def test_more_bytes_take_no_less_time(pair, size, machine, a, b, ratio):
    less, more = (predict(*pair, n, size, machine, ratio).seconds for n in sorted((a, b)))
    # The parts of a chunk are whole bytes long.
    assert less <= more * (1 + 1e-4)


@given(pairs, sizes, named, bytes_, ratios, ratios)
def test_a_higher_ratio_takes_no_more_time(pair, size, machine, nbytes, a, b):
    worse, better = (predict(*pair, nbytes, size, machine, r).seconds for r in sorted((a, b)))
    assert better <= worse * (1 + 1e-9)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_single_rank_sends_nothing(pair):
    cost = predict(*pair, 1e8, 1, default_machine("mpi", False), 5)
    assert (cost.sent_nbytes, cost.messages, cost.wire_seconds) == (0, 0, 0)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 64])
def test_a_ring_sends_each_coded_chunk_twice(size):
    cost = predict("allreduce", "ring", 1e8, size, ALL_ON_WIRE, 8, widening=0)
    assert cost.sent_nbytes == pytest.approx(2 * (size - 1) / size * 1e8 / 8)
    assert cost.seconds == pytest.approx(cost.sent_nbytes / 1e9)


def shares_sent(collective, algorithm, size):
    """Arrays or shares that the busiest port passes on, from who talks to whom."""
    levels = (size - 1).bit_length()
    tree = schedules.binomial_tree(0, size, 0)
    below = sum(len(branch.ranks) for branch in tree.branches)
    return {
        ("allreduce", "recursive_doubling"): len(schedules.recursive_doubling(0, size).partners),
        ("reduce_scatter", "ring"): (size - 1) / size,
        ("reduce", "binomial"): len(tree.branches),
        ("reduce", "reduce_scatter_gather"): 2 * (size - 1) / size,
        ("bcast", "binomial"): levels,
        ("bcast", "scatter_allgather"): 2 * (size - 1) / size,
        ("scatter", "binomial"): below,
        ("gather", "binomial"): below,
        ("allgather", "ring"): size - 1,
        ("allgather", "recursive_doubling"): size - 1,
        ("alltoall", "pairwise"): size - 1,
        ("allreduce", "ring"): 2 * (size - 1) / size,
    }[collective, algorithm]


@pytest.mark.parametrize("pair", OWN)
@pytest.mark.parametrize("size", [2, 4, 8, 64])
def test_the_wire_alone_takes_bytes_over_bandwidth(pair, size):
    cost = predict(*pair, 1e8, size, ALL_ON_WIRE, 8, widening=0)
    assert cost.seconds == pytest.approx(shares_sent(*pair, size) * 1e8 / 8 / 1e9)


@pytest.mark.parametrize("size", [2, 3, 6, 8, 13])
def test_the_largest_branch_is_that_of_the_tree(size):
    largest = max(
        len(branch.ranks)
        for rank in range(size)
        for branch in schedules.binomial_tree(rank, size, 0).branches
    )
    assert costformulas._largest_branch(size) == largest


def test_latency_alone_counts_steps():
    def steps(*pair):
        return predict(*pair, 1e5, 64, ALL_LATENCY, 8).seconds

    assert steps("allreduce", "ring") == 126
    assert steps("allreduce", "recursive_doubling") == 6
    assert steps("bcast", "binomial") == 6
    assert steps("alltoall", "pairwise") == 63
    assert predict("allreduce", "recursive_doubling", 1e5, 65, ALL_LATENCY, 8).seconds == 8


def test_coding_hides_behind_the_wire_but_for_one_segment():
    slow = ALL_ON_WIRE._replace(hop=1e10, encode=math.inf)
    n = 2 * 64 << 20
    wire, hop = n / 2 / 4 / 1e9, n / 2 / 1e10
    cost = predict("reduce_scatter", "ring", n, 2, slow, 4, widening=0)
    assert cost.seconds == pytest.approx(wire + hop / 16)  # 64 MiB are 16 segments


def test_sums_are_wider():
    assert coded_nbytes(4e6, 8, doublings=2, widening=0.5) == pytest.approx(4e6 * 5 / 32)
    assert coded_nbytes(4e6, 1, doublings=9, widening=1) == 4e6  # no more than raw
    assert coded_nbytes(4e6, 0.5, doublings=9, widening=1) == 8e6
    assert coded_nbytes(8e6, 8, itemsize=8, doublings=2, widening=1) == pytest.approx(8e6 * 10 / 64)


@pytest.mark.parametrize("ratio", [0, -1, math.nan, math.inf])
def test_a_ratio_is_a_positive_number(ratio):
    with pytest.raises(ValueError, match="ratio"):
        predict("allreduce", "ring", 1e6, 4, ALL_ON_WIRE, ratio)


@pytest.mark.parametrize(
    ("pair", "nbytes", "ratio", "seconds"),
    [
        # docs/benchmarks/results.md: two H200, 10 Gbit/s that both directions share, NCCL.
        (("allreduce", "ring"), 512 << 20, 9.68, 89.8e-3),
        (("allreduce", "ring"), 512 << 20, 3.43, 252.8e-3),
        (("allgather", "ring"), 256 << 20, 7.18, 63.0e-3),
        (("reduce_scatter", "ring"), 512 << 20, 6.08, 71.7e-3),
    ],
)
def test_what_was_measured_on_gpus(pair, nbytes, ratio, seconds):
    machine = default_machine("nccl", False).on_link(40e-6, 0.62e9)
    cost = predict(*pair, nbytes, 2, machine, ratio, widening=0)
    assert cost.seconds == pytest.approx(seconds, rel=0.2)


def test_what_was_measured_on_hosts():
    """Ring of 64 MiB on two ranks, 1 Gbit/s that both directions share."""
    machine = default_machine("mpi", False).on_link(20e-6, 0.0625e9)
    cost = predict("allreduce", "ring", 64 << 20, 2, machine, 11.79, widening=0)
    assert cost.seconds == pytest.approx(0.103, rel=0.2)
    native = predict("allreduce", "native", 64 << 20, 2, machine, 11.79)
    assert native.seconds == pytest.approx(1.10, rel=0.1)


def test_named_machines():
    assert default_machine("mpi-device", True) == default_machine("mpi-staged", True)
    assert default_machine("mpi", True, threads=4).encode == 4 * default_machine("mpi", True).encode
    assert default_machine("nccl", True, threads=4) == default_machine("nccl", True)
    assert machines.BUNDLE_NBYTES == primitives.BUNDLE_NBYTES
    assert isinstance(predict("bcast", "native", 1, 2, ALL_LATENCY, 1), Estimate)
