"""The ratio that a few tiles promise, against that of the whole stream."""

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import zccl
from zccl.codecs.sample import sample_ratio

FIELDS = sorted((Path(__file__).parent.parent / "data").glob("*.npy"))


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: path.stem)
@pytest.mark.parametrize("bound", [1e-2, 1e-3, 1e-4])
def test_fields(path, bound):
    """Within a quarter of the truth; on these crops within 6 %."""
    field = np.load(path)
    error_bound = bound * (float(field.max()) - float(field.min()))
    stream = zccl.compress(field, error_bound)
    expected = sample_ratio(field.ravel(), 2 * error_bound)
    assert expected == pytest.approx(field.nbytes / stream.nbytes, rel=0.25)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("tiles", [1, 2, 15, 16, 17, 31, 33, 200])
def test_any_number_of_tiles(dtype, tiles):
    values = np.sin(np.arange(tiles * 1024) / 50).astype(dtype)
    header_nbytes = 72
    true = values.nbytes / (zccl.compress(values, 1e-4).nbytes - header_nbytes)
    assert sample_ratio(values, 2e-4) == pytest.approx(true, rel=0.02)


@pytest.mark.parametrize("spacing", [10, 50, 500])
def test_escapes_are_counted(spacing):
    values = np.sin(np.arange(1 << 18) / 50).astype("f4")
    values[::spacing] = np.nan
    true = values.nbytes / zccl.compress(values, 1e-4).nbytes
    assert sample_ratio(values, 2e-4) == pytest.approx(true, rel=0.1)


def test_a_named_fill_value_escapes():
    values = np.sin(np.arange(1 << 18) / 50)
    values[::50] = 2.0
    with_nan = np.where(values == 2, np.nan, values)
    assert sample_ratio(values, 2e-4, 2.0) == sample_ratio(with_nan, 2e-4)


def test_a_jump_beyond_the_reach_of_differences_escapes():
    values = np.zeros(4096)
    values[5::1024] = 2.0**35
    assert 20 < sample_ratio(values, 1.0) < 8192 / 12


def test_a_field_of_two_halves_is_seen_as_both():
    """Features rarer than a tile in 16 are missed; this one is not."""
    noise = np.random.default_rng(0).normal(size=1 << 19)
    values = np.concatenate([np.zeros(1 << 19), noise])
    true = values.nbytes / zccl.compress(values, 1e-3).nbytes
    assert sample_ratio(values, 2e-3) == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize("step", [0.0, -1.0, np.nan, np.inf])
def test_without_a_grid_nothing_shrinks(step):
    assert sample_ratio(np.ones(5000), step) == 1


def test_empty():
    assert sample_ratio(np.empty(0, "f4"), 1e-3) == 1


@given(
    arrays(st.sampled_from(["f4", "f8"]), st.integers(0, 3000)),
    st.floats(5e-324, 1e308),
)
def test_any_values_give_a_positive_number_again_and_again(values, step):
    ratio = sample_ratio(values, step)
    assert 0 < ratio < np.inf
    assert sample_ratio(values.copy(), step) == ratio


def test_fast():
    """0.2 ms when measured alone; machines of tests are busy."""
    values = np.sin(np.arange(1 << 20) / 50).astype("f4")
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        sample_ratio(values, 2e-4)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1.5e-3
