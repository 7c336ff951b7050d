"""Promises 1 to 3: the bound, exactness, and what a relative bound is a fraction of."""

import functools
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from mpi.checks import (
    CODED_ALGORITHMS,
    COMM,
    OPS,
    RANK,
    SIZE,
    assert_bound,
    assert_raises_everywhere,
    assert_same_everywhere,
    everyone,
    same_bits,
    thinned,
    wave,
)
from mpi4py import MPI

import zccl

pytestmark = pytest.mark.mpi
FIELDS = Path(__file__).parent.parent / "data"
by_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.value)
by_algorithm = pytest.mark.parametrize("algorithm", CODED_ALGORITHMS)


# ---------------------------------------------------------------- promise 1: the bound


@by_algorithm
@pytest.mark.parametrize(
    "dtype, op",
    [
        *itertools.product([np.float16, np.float32, np.float64], OPS),
        *itertools.product([np.complex64, np.complex128], [zccl.SUM, zccl.AVG]),
    ],
)
def test_absolute_bound(dtype, op, algorithm):
    """Each element, each component of a complex one, is within the bound of the exact result, up to
    one rounding.
    """
    x = wave(3100, dtype)
    bound = 2e-2 if dtype == np.float16 else 1e-3
    result, info = zccl.allreduce(
        x, op=op, error_bound=bound, algorithm=algorithm, return_info=True
    )
    assert_bound(result, x, bound, op)
    assert info.error_bound == bound and info.step > 0
    assert not same_bits(result, zccl.allreduce(x, op=op)), (
        "nothing was lost, so nothing was tested"
    )


@by_algorithm
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_per_rank_budget(dtype, algorithm):
    """With the budget per_rank a sum is within N times the bound, and messages are smaller; others
    do not change.
    """
    x = wave(3100, dtype)
    call = functools.partial(
        zccl.allreduce, x, error_bound=1e-3, algorithm=algorithm, return_info=True
    )
    options = zccl.Options(error_budget="per_rank")
    result, info = call(options=options)
    assert_bound(result, x, SIZE * 1e-3)
    guaranteed, other = call()
    assert info.error_bound == SIZE * 1e-3 and other.error_bound == 1e-3
    assert math.isclose(info.step, SIZE * other.step, rel_tol=1e-6)
    if SIZE > 1:
        assert COMM.allreduce(info.wire_nbytes) < COMM.allreduce(other.wire_nbytes)
        assert not same_bits(result, guaranteed)
    assert same_bits(call(op=zccl.MAX, options=options)[0], call(op=zccl.MAX)[0])


@by_op
def test_relative_bound(op):
    """A relative bound is a fraction of the range of all ranks' values, also under both budgets."""
    x = wave(2500, np.float64) * 100
    low, high = COMM.allreduce(float(x.min()), MPI.MIN), COMM.allreduce(float(x.max()), MPI.MAX)
    result, info = zccl.allreduce(
        x, op=op, error_bound=1e-4, mode="rel", algorithm="ring", return_info=True
    )
    assert info.error_bound == 1e-4 * (high - low)
    assert_bound(result, x, info.error_bound, op)
    _, loose = zccl.allreduce(
        x, op=op, error_bound=1e-4, mode="rel", algorithm="ring", return_info=True,
        options=zccl.Options(error_budget="per_rank"),
    )  # fmt: skip
    assert loose.error_bound == info.error_bound * (SIZE if op is zccl.SUM else 1)


@pytest.mark.parametrize("bound", [1e-2, 1e-4])
@pytest.mark.parametrize("name", thinned(sorted(path.stem for path in FIELDS.glob("*.npy"))))
def test_real_fields(name, bound):
    """Sums of measured and simulated fields, each rank with its own window and scale."""
    field = np.load(FIELDS / f"{name}.npy").ravel()
    n = min(4000, field.size)
    start = (field.size - n) * RANK // SIZE
    x = field[start : start + n] * field.dtype.type(1 + RANK / 7)
    result, info = zccl.allreduce(
        x, error_bound=bound, mode="rel", algorithm="recursive_doubling", return_info=True
    )
    assert_bound(result, x, info.error_bound)


def test_neighbours_of_an_outlier():
    """A field of ones with a single 1e36 on one rank keeps every neighbour within the bound."""
    for dtype in (np.float32, np.float64):
        x = np.ones(2100, dtype)
        if RANK == SIZE - 1:
            x[1030] = 1e36
        for algorithm in CODED_ALGORITHMS:
            result = zccl.allreduce(x, error_bound=1e-3, algorithm=algorithm)
            assert_same_everywhere(result)
            assert math.isclose(result[1030], 1e36, rel_tol=1e-6)
            assert np.abs(np.delete(result, 1030).astype("f8") - SIZE).max() <= 1e-3


def test_bounds_of_all_sizes():
    """From below the smallest step to beyond the values: kept, and never a crash."""
    for dtype in (np.float32, np.float64):
        x = wave(1100, dtype)
        for bound in (5e-324, 1e-310, 1e-44, 1e-20, 1e-9, 10.0, 1e30, 1e300):
            result, info = zccl.allreduce(x, error_bound=bound, algorithm="ring", return_info=True)
            assert info.error_bound in (0, bound)
            # Bounds below the spacing of the numbers make raw tiles: ordinary sums.
            loose = (SIZE + 1) * float(np.finfo(dtype).eps) * 10 * SIZE
            assert_bound(result, x, max(bound, loose))


# ---------------------------------------------------------------- promise 2: exact


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int32, np.uint64])
def test_no_bound_is_the_native_collective(dtype):
    """Without a bound the result is that of MPI's own allreduce, bit for bit."""
    x = wave(1100, dtype)
    expected = np.empty_like(x)
    COMM.Allreduce(x, expected)
    result, info = zccl.allreduce(x, return_info=True)
    assert same_bits(result, expected)
    assert info.algorithm == "native" and info.error_bound == info.step == 0


@pytest.mark.parametrize("bound, op", [*((0, op) for op in OPS), (None, zccl.SUM)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_on_own_transport(dtype, bound, op):
    """A bound of 0, and a schedule without a bound, are exact for numbers whose sums are."""
    x = np.round(64 * wave(1100, dtype)) * SIZE
    rough = wave(1100, dtype) * 10.0**RANK
    size = np.abs(everyone(rough)).sum(0).max()
    for algorithm in [*CODED_ALGORITHMS, "auto"] if bound == 0 else CODED_ALGORITHMS:
        result, info = zccl.allreduce(
            x, op=op, error_bound=bound, algorithm=algorithm, return_info=True
        )
        assert info.algorithm in CODED_ALGORITHMS
        assert info.error_bound == info.step == 0 and info.wire_nbytes == info.raw_wire_nbytes
        assert_bound(result, x, 0, op)
        if algorithm != "auto":
            result = zccl.allreduce(rough, op=op, error_bound=bound, algorithm=algorithm)
            rounding = 0 if op in (zccl.MAX, zccl.MIN) else SIZE * float(np.finfo(dtype).eps)
            assert_bound(result, rough, rounding * size, op)


# ---------------------------------------------------------------- promise 3: modes


def test_range_over_ranks_and_finite_values_only():
    """The range goes over all ranks and leaves NaN and infinities out; fills count unless they are
    named.
    """
    x = np.full(1100, float(RANK))
    x[0] = [np.nan, np.inf, -np.inf][RANK % 3]
    x[1] = RANK + 0.5
    call = functools.partial(
        zccl.allreduce, mode="rel", error_bound=1e-3, algorithm="ring", return_info=True
    )
    assert call(x)[1].error_bound == 1e-3 * (SIZE - 0.5)
    x[2] = 1e30 if RANK == 0 else 0
    assert call(x)[1].error_bound == 1e-3 * 1e30
    named = call(x, options=zccl.Options(fill_value=1e30))
    assert named[1].error_bound == 1e-3 * (SIZE - 0.5)
    assert math.isclose(named[0][2], 1e30, rel_tol=1e-12)
    z = np.full(1100, 1.0 + 5j)
    assert call(z)[1].error_bound == 4e-3


@by_algorithm
@pytest.mark.parametrize("value", [0.1, 0.0, -0.0, np.nan, np.inf, 1e36])
def test_range_of_zero_is_exact(value, algorithm):
    """When all finite values are one, or there is none, the result is exact."""
    x = np.full(1100, value, np.float32)
    result, info = zccl.allreduce(
        x, op=zccl.MAX, error_bound=1e-2, mode="rel", algorithm=algorithm, return_info=True
    )
    assert info.error_bound == info.step == 0
    assert same_bits(result, x)


def test_range_that_overflows():
    """A range beyond float64 over all ranks is a ValueError on all of them, though fine on each."""
    top = np.finfo("f8").max
    x = np.full(1100, top if RANK % 2 else -top)
    x[0] = 0 if SIZE > 1 else top
    texts = assert_raises_everywhere(
        ValueError, lambda: zccl.allreduce(x, error_bound=1e-3, mode="rel", algorithm="ring")
    )
    assert all("overflow" in text for text in texts)


def test_relative_bound_that_overflows():
    """A bound times a range beyond float64 is one too: nothing could be promised."""
    x = np.linspace(-4e307, 4e307, 1100)
    assert_raises_everywhere(
        ValueError,
        lambda: zccl.allreduce(
            x, op=zccl.AVG, error_bound=100.0, mode="rel", algorithm="recursive_doubling"
        ),
    )


@pytest.mark.parametrize("bound", [-1e-3, math.nan, math.inf, -math.inf])
def test_impossible_bounds(bound):
    """Negative, NaN and infinite bounds are a ValueError."""
    x = np.ones(3)
    texts = assert_raises_everywhere(ValueError, lambda: zccl.allreduce(x, error_bound=bound))
    assert all("error_bound" in text for text in texts)
