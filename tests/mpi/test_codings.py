"""Every promise with tiles along several axes and with the entropy coder."""

import functools

import numpy as np
import pytest
from mpi import checks
from mpi.checks import COMM, OPS, RANK, SIZE, assert_bound, assert_same_everywhere, same_bits, wave
from mpi4py import MPI

import zccl

pytestmark = pytest.mark.mpi
WAYS = [("2d", "fixed"), ("3d", "entropy"), ("1d", "entropy"), ("auto", "entropy")]
by_way = pytest.mark.parametrize("predictor, coding", checks.thinned(WAYS))
SHAPES = [(9, 33, 50), (70, 130), (3, 2), (2, 0, 5)]


def field(shape, dtype=np.float32, spoiled=False):
    """A smooth array, another one on each rank."""
    total = sum(np.cos(x * (0.05 + 0.01 * RANK)) for x in np.ogrid[tuple(map(slice, shape))])
    array = (total + wave(total.size).reshape(shape) / 50).astype(dtype)
    if spoiled and array.size:
        flat = array.reshape(-1)
        flat[RANK::311] = 1e30
        flat[5::700] = np.nan if RANK % 2 else 3.0
        flat[: flat.size // 3 : 2] *= np.float32(1e7)
    return array


@by_way
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.value)
def test_reductions_keep_the_bound(predictor, coding, op):
    options = zccl.Options(predictor=predictor, coding=coding)
    for dtype in (np.float32, np.float64):
        for shape in SHAPES:
            x = field(shape, dtype)
            call = functools.partial(zccl.allreduce, x, op=op, error_bound=1e-3, options=options)
            result = call(algorithm="ring")
            assert_bound(result, x, 1e-3, op)
            assert same_bits(result, call(algorithm="recursive_doubling"))
            at_root = zccl.reduce(x, op=op, error_bound=1e-3, algorithm="binomial", options=options)
            assert RANK or same_bits(result, at_root)


@by_way
def test_bits_are_those_of_rows(predictor, coding):
    """Codes are on one grid, however they are packed."""
    options = zccl.Options(predictor=predictor, coding=coding)
    for spoiled in (False, True):
        x = field((40, 90), np.float32, spoiled)
        kept = x.copy()
        rows = zccl.allreduce(x, error_bound=1e-2, algorithm="ring")
        packed = zccl.allreduce(x, error_bound=1e-2, algorithm="ring", options=options)
        assert_same_everywhere(packed)
        assert same_bits(x, kept)
        if not spoiled:  # else raw tiles may differ
            assert same_bits(rows, packed)
            into = x.copy()
            zccl.allreduce(MPI.IN_PLACE, into, error_bound=1e-2, algorithm="ring", options=options)
            assert same_bits(into, packed)


@by_way
def test_movements_keep_the_bound(predictor, coding):
    options = {"error_bound": 1e-3, "options": zccl.Options(predictor=predictor, coding=coding)}
    for dtype in (np.float32, np.float64, np.complex64):
        x = field((SIZE, 40, 90), dtype, spoiled=dtype == np.float32)

        def close(a, b):
            same = (a == b) | ((a != a) & (b != b))
            return bool((same | (np.abs(a - b) <= 1.5e-3)).all())

        for algorithm in ("binomial", "scatter_allgather"):
            root = SIZE - 1
            got = zccl.bcast(x if root == RANK else None, root=root, algorithm=algorithm, **options)
            assert close(got, COMM.bcast(x, root))
        everyone = COMM.allgather(x)
        got = zccl.allgather(x, algorithm="ring", **options)
        assert close(got.reshape(SIZE, *x.shape), np.stack(everyone))
        assert_same_everywhere(got)
        got = zccl.alltoall(x, algorithm="pairwise", **options)
        assert close(got.reshape(x.shape), np.stack([other[RANK] for other in everyone]))
        got = zccl.reduce_scatter(x.real.copy(), algorithm="ring", **options)
        assert got.size == x[0].size


def test_denser_options_move_fewer_bytes():
    x = np.add.outer(np.sin(np.arange(300) / 40), np.cos(np.arange(500) / 30)).astype(np.float32)
    x += wave(x.size).reshape(x.shape) / 100
    sent = []
    for predictor, coding in [("1d", "fixed"), ("2d", "fixed"), ("2d", "entropy")]:
        options = zccl.Options(predictor=predictor, coding=coding)
        _, info = zccl.allreduce(
            x, error_bound=1e-3, algorithm="ring", options=options, return_info=True
        )
        sent.append(info.wire_nbytes)
    assert SIZE == 1 or sent[0] > sent[1] > sent[2]


def test_options_must_be_equal_on_all_ranks():
    if SIZE == 1:
        pytest.skip("needs two ranks")
    options = zccl.Options(coding="entropy" if RANK else "fixed")
    call = functools.partial(zccl.allreduce, np.ones(5000), error_bound=1e-3, options=options)
    checks.assert_raises_everywhere(ValueError, call)
    checks.assert_usable()
