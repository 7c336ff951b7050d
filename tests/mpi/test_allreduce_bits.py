"""Promises 4 and 5: the same bits everywhere, and values that no grid holds."""

import functools

import numpy as np
import pytest
from mpi.checks import (
    CODED_ALGORITHMS,
    COMM,
    OPS,
    RANK,
    SIZE,
    assert_bound,
    assert_same_everywhere,
    everyone,
    same_bits,
    wave,
)
from unit import hostile

import zccl

pytestmark = pytest.mark.mpi
by_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.value)
by_algorithm = pytest.mark.parametrize("algorithm", CODED_ALGORITHMS)


def with_escapes(n, dtype=np.float32, rank=RANK):
    """A wave with few enough specials a tile for it to stay coded, some at the same places on all
    ranks.
    """
    x = wave(n, dtype, rank)
    x[rank * 7 :: 311] = 1e30
    x[100::500] = [1e30, 1e16, -1e30, 3e15][rank % 4]  # their sum depends on the order
    x[101::700] = np.nan if rank % 2 else 3.0
    x[102::700] = np.inf
    x[103::900] = -np.inf if rank == 0 else np.inf
    return x


def with_raw_tiles(n, dtype=np.float32, rank=RANK):
    """A wave with tiles that hold nothing but numbers of all sizes, others of one fill value."""
    x = wave(n, dtype, rank)
    rng = np.random.default_rng(rank)
    x[:1024] = rng.standard_normal(1024) * 10.0 ** rng.uniform(-30, 30, 1024)
    x[2048:3072] = -9999e20
    if rank == 0:
        x[1024:1500] = rng.standard_normal(476) * 1e25
    return x


# ---------------------------------------------------------------- promise 4: the same bits


@by_op
@pytest.mark.parametrize("make", [wave, with_escapes], ids=["plain", "escapes"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_from_all_algorithms_and_segments(dtype, make, op):
    """All ranks hold the same bytes, those of the other algorithm and of any size of segments, run
    after run.
    """
    x = make(5 * 1024 + 77, dtype)
    call = functools.partial(zccl.allreduce, x, op=op, error_bound=1e-3)
    first = call(algorithm="ring")
    assert_same_everywhere(first)
    for algorithm, segment in [
        ("recursive_doubling", 4096),
        ("ring", 4096),
        ("recursive_doubling", 1 << 20),
        ("ring", 9000),
    ]:
        again = call(algorithm=algorithm, options=zccl.Options(segment_nbytes=segment))
        assert same_bits(again, first), (algorithm, segment)
    auto, info = call(options=zccl.Options(reproducible=True), return_info=True)
    assert info.algorithm in CODED_ALGORITHMS
    assert same_bits(auto, first)


def test_same_bits_at_every_number_of_ranks():
    """On communicators of 1 to N ranks, with escapes: ring and doubling agree, and so do
    all ranks.
    """
    x = with_escapes(3000)
    for size in range(1, SIZE + 1):
        comm = COMM.Split(0 if size > RANK else 1, RANK)
        ring, doubling = (
            zccl.allreduce(x, comm=comm, error_bound=1e-3, algorithm=algorithm)
            for algorithm in CODED_ALGORITHMS
        )
        assert same_bits(ring, doubling)
        assert_same_everywhere(ring, comm)
        comm.Free()


@by_op
@by_algorithm
def test_same_bits_with_raw_tiles(algorithm, op):
    """What travels uncoded is summed in the algorithm's order: still the same bytes on all ranks,
    run after run.
    """
    x = with_raw_tiles(4000)
    call = functools.partial(zccl.allreduce, x, op=op, error_bound=1e-3, algorithm=algorithm)
    result = call()
    assert_same_everywhere(result)
    assert same_bits(call(), result)
    columns = everyone(x)
    assert_bound(result[3072:], x[3072:], 1e-3, op)
    scale = np.abs(columns).astype("f8").sum(0)
    exact = {zccl.SUM: np.sum, zccl.AVG: np.mean, zccl.MAX: np.max, zccl.MIN: np.min}[op](
        np.array(columns, "f8"), axis=0
    )
    assert (np.abs(result - exact) <= 1e-3 + 2.0**-23 * SIZE * scale).all()


# ---------------------------------------------------------------- promise 5: specials


def expected_special(arrays, op):
    """Return what floating-point rules say, element by element, in float64; NaN where any operand
    is NaN.
    """
    columns = np.array(arrays, "f8")
    with np.errstate(all="ignore"):
        if op is zccl.SUM or op is zccl.AVG:
            total = columns[0].copy()
            for row in columns[1:]:
                total += row
            return total / (len(columns) if op is zccl.AVG else 1)
        return columns.max(0) if op is zccl.MAX else columns.min(0)


@by_op
@pytest.mark.parametrize(
    "dtype, who",
    [("f4", "one rank"), ("f4", "some ranks"), ("f4", "all ranks"), ("f8", "some ranks")],
)
def test_specials_and_their_neighbours(dtype, who, op):
    """NaN, infinities and fills on one, some or all ranks follow floating-point rules; all other
    elements keep the bound.
    """
    x = wave(3000, dtype)
    fill = 1e36 if dtype == "f4" else 1e300
    specials = [np.nan, np.inf, -np.inf, fill, -fill, -0.0, 1e-42, -1e-310]
    places = np.arange(50, 50 + 90 * len(specials), 90)
    if who == "all ranks" or RANK == 0 or (who == "some ranks" and RANK % 2 == 0):
        x[places] = specials
    arrays = everyone(x)
    for algorithm in CODED_ALGORITHMS:
        result = zccl.allreduce(x, op=op, error_bound=1e-3, algorithm=algorithm)
        assert_same_everywhere(result)
        special = places[:5]
        expected = expected_special([a[special] for a in arrays], op)
        with np.errstate(over="ignore"):
            expected = expected.astype(dtype)
        finite = np.isfinite(expected)
        nan = np.isnan(expected)
        got = result[special]
        assert (np.isnan(got) == nan).all() and (
            got[~nan & ~finite] == expected[~nan & ~finite]
        ).all()
        np.testing.assert_allclose(got[finite], expected[finite], rtol=1e-6, atol=1e-3)
        rest = np.delete(np.arange(3000), special)
        assert_bound(result[rest], x[rest], 1e-3, op)


@by_op
@by_algorithm
def test_nan_results_are_the_quiet_nan(algorithm, op):
    """Payloads, signs and signalling bits of NaN do not reach a reduction's result."""
    x = np.ones(1200, np.float32)
    x.view("u4")[RANK * 3 : 1200 : 400] = [0xFFC12345, 0x7F800001, 0x7FC00000][RANK % 3]
    x[600:] = np.nan  # a whole block, and a run
    x.view("u4")[1100:] = 0xFF812345
    result = zccl.allreduce(x, op=op, error_bound=1e-3, algorithm=algorithm)
    nan = np.isnan(result)
    assert nan[600:].all() and nan.sum() == 600 + 2 * SIZE
    assert set(result.view("u4")[nan].tolist()) == {0x7FC00000}


@by_algorithm
@pytest.mark.parametrize("bound", [0, 1e-3])
def test_signed_zeros(bound, algorithm):
    """MAX and MIN take -0 for less than +0 where nothing is lost, and within the bound
    otherwise.
    """
    x = np.full(1100, -0.0 if RANK else 0.0)
    largest = zccl.allreduce(x, op=zccl.MAX, error_bound=bound, algorithm=algorithm)
    smallest = zccl.allreduce(x, op=zccl.MIN, error_bound=bound, algorithm=algorithm)
    assert not largest.any() and not smallest.any()
    if bound == 0:
        assert not np.signbit(largest).any()
        assert np.signbit(smallest).all() == (SIZE > 1)


@by_op
def test_subnormals(op):
    """Subnormal numbers keep bounds of their own size, and vanish under larger ones within
    these.
    """
    for dtype, unit in ((np.float32, 1e-42), (np.float64, 1e-315)):
        x = (wave(1100, np.float64) * unit).astype(dtype)
        for bound in (unit / 10, unit * 1e3, 1e-3):
            result = zccl.allreduce(x, op=op, error_bound=bound, algorithm="ring")
            assert_bound(result, x, bound, op)


@by_algorithm
def test_all_values_escape(algorithm):
    """Arrays of NaN or of fills alone, on one rank or on all."""
    for value in (np.nan, np.inf, 1e36):
        for ranks in (1, SIZE):
            x = np.full(1500, value if ranks > RANK else 1.0, np.float32)
            result = zccl.allreduce(x, error_bound=1e-3, algorithm=algorithm)
            assert_same_everywhere(result)
            with np.errstate(invalid="ignore"):
                np.testing.assert_allclose(result, value * ranks + (SIZE - ranks), rtol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_hostile_arrays(seed):
    """Arrays that are hard on a codec, another on each rank; the bound, or ordinary rounding where
    values are raw.
    """
    rng = np.random.default_rng(seed)  # draws the same on all ranks
    dtype = [np.float32, np.float64][seed % 2]
    op = OPS[rng.integers(4)]
    n = int(rng.choice(hostile.SIZES))
    bound = float(rng.choice([1e-3, 1.0, 1e-7, 1e30, 1e-30]))
    recipe, damage = rng.choice(sorted(hostile.RECIPES)), rng.choice(sorted(hostile.DAMAGES))
    x = hostile.make(recipe, damage, dtype, n, 1000 * seed + RANK)
    arrays = everyone(x)
    results = [
        zccl.allreduce(x, op=op, error_bound=bound, algorithm=algorithm)
        for algorithm in CODED_ALGORITHMS
    ]
    with np.errstate(all="ignore"):
        expected = expected_special(arrays, op)
        scale = np.abs(np.array(arrays, "f8")).sum(0)
    for result in results:
        assert_same_everywhere(result)
        usual = scale < float(np.finfo(dtype).max) / 4
        allowed = bound + (SIZE + 1) * float(np.finfo(dtype).eps) * scale[usual]
        assert (np.abs(result[usual] - expected[usual]) <= allowed).all()
        assert (np.isnan(result) >= np.isnan(expected)).all()
