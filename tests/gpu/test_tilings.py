"""Tiles of several axes on a GPU: the CPU's bytes, there and back, in sums and winners."""

import math
from pathlib import Path

import numpy as np
import pytest

import zccl
from zccl.ops import Op

pytestmark = pytest.mark.gpu

FIELDS = sorted(Path(__file__).parent.parent.glob("data/*.npy"))
SHAPES = [(32, 32), (33, 70), (3, 40, 65), (8, 8, 16), (2, 9, 17, 33), (16, 24, 32), (130, 257)]


@pytest.fixture
def cupy(device):
    """CuPy, where there is a GPU."""
    import cupy

    return cupy


def smooth(shape, dtype, seed, spoiled=False):
    """Return a smooth array, with values that no grid holds where that is asked for."""
    random = np.random.default_rng(seed)
    total = sum(np.sin(x * (0.1 + 0.01 * seed)) for x in np.ogrid[tuple(map(slice, shape))])
    array = (total + 0.01 * random.standard_normal(shape)).astype(dtype)
    if spoiled:
        flat = array.reshape(-1)
        for value in (math.nan, math.inf, 1e36, -0.0):
            flat[random.integers(0, flat.size, flat.size // 300 + 1)] = value
        flat[flat.size // 2 : flat.size // 2 + 700] *= 1e6
        flat[: flat.size // 4 : 2] = random.standard_normal(flat[: flat.size // 4 : 2].size) * 1e30
    return array


def check(cupy, array, bound, mode="abs", **options):
    """Compress and decompress on both sides; returns both streams."""
    options = zccl.Options(**options)
    wanted = zccl.compress(array, bound, mode, options=options)
    stream = zccl.compress(cupy.asarray(array), bound, mode, options=options)
    assert stream.get().tobytes() == wanted.tobytes()
    assert zccl.inspect(stream) == zccl.inspect(wanted)
    assert zccl.decompress(stream).get().tobytes() == zccl.decompress(wanted).tobytes()
    return wanted, stream


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: path.stem)
def test_fields(cupy, path):
    field = np.load(path)
    for predictor in ("2d", "3d", "auto"):
        for coding in ("fixed", "entropy"):
            check(cupy, field, 1e-3, "rel", predictor=predictor, coding=coding)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(cupy, shape, dtype):
    for spoiled in (False, True):
        if spoiled and dtype == np.float16:
            continue
        arrays = [smooth(shape, dtype, seed, spoiled) for seed in (1, 2)]
        for predictor in ("2d", "3d"):
            (a, a_there), (b, b_there) = [
                check(cupy, array, 1e-3, predictor=predictor) for array in arrays
            ]
            if zccl.inspect(a).form != "coded" or zccl.inspect(b).form != "coded":
                continue
            if zccl.inspect(a).step != zccl.inspect(b).step:
                continue
            for op in (Op.SUM, Op.MAX, Op.MIN) if dtype != np.complex64 else (Op.SUM,):
                try:
                    total = zccl.reduce_streams(a, b, op)
                except OverflowError:
                    with pytest.raises(OverflowError):
                        zccl.reduce_streams(a_there, b_there, op)
                    continue
                total_there = zccl.reduce_streams(a_there, b_there, op)
                assert total_there.get().tobytes() == total.tobytes()
                assert zccl.decompress(total_there).get().tobytes() == (
                    zccl.decompress(total).tobytes()
                )


def test_many_sums(cupy):
    """Codes of a sum that leave 32 bits are summed up right."""
    array = smooth((64, 96), np.float64, 3) * 1e4
    options = zccl.Options(predictor="2d")
    stream = zccl.compress(array, 1e-3, options=options)
    there = cupy.asarray(stream)
    for _ in range(6):
        stream = zccl.reduce_streams(stream, stream)
        there = zccl.reduce_streams(there, there)
        assert there.get().tobytes() == stream.tobytes()
        assert zccl.decompress(there).get().tobytes() == zccl.decompress(stream).tobytes()
