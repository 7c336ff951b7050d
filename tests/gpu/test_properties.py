"""Any array gives the CPU's bytes on the GPU: streams, sums of streams, and masks."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit import hostile

import zccl

pytestmark = pytest.mark.gpu
some = settings(
    max_examples=int(os.environ.get("ZCCL_TEST_EXAMPLES") or 60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
BOUNDS = [1e-3, 1.0, 1e-7, 1e-30, 1e30, 5e-324]


@pytest.fixture
def cupy(device):
    """CuPy, where there is a GPU."""
    import cupy

    return cupy


@st.composite
def rows(draw, dtype):
    return hostile.make(
        draw(st.sampled_from(sorted(hostile.RECIPES))),
        draw(st.sampled_from(sorted(hostile.DAMAGES))),
        dtype, draw(st.sampled_from(hostile.SIZES)), draw(st.integers(0, 2**32 - 1)),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
@some
def test_streams(cupy, dtype, data):
    array = data.draw(rows(dtype))
    bound = data.draw(st.sampled_from(BOUNDS))
    options = zccl.Options(fill_value=data.draw(st.sampled_from([None, *hostile.FILLS])))
    wanted = zccl.compress(array, bound, options=options)
    stream = zccl.compress(cupy.asarray(array), bound, options=options)
    assert stream.get().tobytes() == wanted.tobytes()
    decoded = zccl.decompress(stream).get()
    assert decoded.tobytes() == zccl.decompress(wanted).tobytes()


def outcome(function):
    """Return the bytes of a result, or the class of what was raised."""
    try:
        found = function()
    except (ValueError, OverflowError) as error:
        return type(error)
    return (found.get() if hasattr(found, "get") else found).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
@some
def test_sums_of_streams(cupy, dtype, data):
    n = data.draw(st.sampled_from(hostile.SIZES))
    recipe = st.sampled_from(sorted(hostile.RECIPES))
    damage = st.sampled_from(sorted(hostile.DAMAGES))
    op = data.draw(st.sampled_from([zccl.SUM, zccl.MAX, zccl.MIN]))
    pair = [
        hostile.make(data.draw(recipe), data.draw(damage), dtype, n, data.draw(st.integers(0, 99)))
        for _ in range(2)
    ]
    streams = [zccl.compress(x, 1e-2) for x in pair]
    wanted = outcome(lambda: zccl.reduce_streams(*streams, op=op))
    there = [cupy.asarray(stream) for stream in streams]
    assert outcome(lambda: zccl.reduce_streams(*there, op=op)) == wanted


@pytest.mark.parametrize("fill", [np.nan, -9999.0])
def test_a_land_mask_keeps_its_ratio_in_sums(cupy, fill):
    """A third of the field is masked, the same in all: the sum is as dense as one of them."""
    rng = np.random.default_rng(5)
    fields = [np.cumsum(rng.standard_normal(1 << 18)) for _ in range(2)]
    edges = rng.integers(0, 1 << 18, 60)
    for start in edges:
        for field in fields:
            field[start : start + (1 << 18) // 180] = fill
    options = zccl.Options(fill_value=None if np.isnan(fill) else fill)
    a, b = (zccl.compress(cupy.asarray(x), 1e-2, options=options) for x in fields)
    total = zccl.reduce_streams(a, b)
    assert total.size <= 1.1 * max(a.size, b.size)
