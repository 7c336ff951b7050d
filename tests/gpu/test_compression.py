"""zccl.compress and its relatives on device arrays: the bytes of the CPU, of any array library."""

from pathlib import Path

import numpy as np
import pytest

import zccl

pytestmark = pytest.mark.gpu

FIELDS = sorted(Path(__file__).parent.parent.glob("data/*.npy"))
DTYPES = ["f4", "f8", "f2", "c8", "c16"]


@pytest.fixture
def cupy(device):
    """CuPy, where there is a GPU."""
    import cupy

    return cupy


def wave(n, dtype="f4", seed=0):
    rng = np.random.default_rng([n, seed])

    def row():
        return np.cumsum(rng.standard_normal(n)) / 20 + np.sin(np.arange(n) / 300)

    if np.dtype(dtype).kind == "c":
        return (row() + 1j * row()).astype(dtype)
    return row().astype(dtype) if np.dtype(dtype).kind == "f" else (9 * row()).astype(dtype)


def check(cupy, array, bound, mode="abs", options=None):
    """Compress and decompress on both sides; returns the stream as NumPy bytes."""
    wanted = zccl.compress(array, bound, mode, options=options)
    stream = zccl.compress(cupy.asarray(array), bound, mode, options=options)
    assert isinstance(stream, cupy.ndarray)
    assert stream.get().tobytes() == wanted.tobytes()
    decoded = zccl.decompress(stream)
    assert isinstance(decoded, cupy.ndarray)
    assert decoded.shape == array.shape and decoded.dtype == array.dtype
    assert decoded.get().tobytes() == zccl.decompress(wanted).tobytes()
    assert zccl.inspect(stream) == zccl.inspect(wanted)
    return wanted


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: path.stem)
def test_fields(cupy, path):
    field = np.load(path)
    for bound in (1e-2, 1e-3, 1e-4):
        check(cupy, field, bound, "rel")


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_sizes(cupy, dtype):
    for n in (0, 1, 5, 1023, 1024, 1025, 70_001):
        for bound in (1e-1, 1e-3, 0, None):
            check(cupy, wave(n, dtype), bound)
    check(cupy, wave(6000, dtype).reshape(10, 20, 30), 1e-3, "rel")


def test_what_is_exact(cupy):
    for dtype in ("i4", "u1", "?", "i8"):
        check(cupy, wave(5000, dtype), 1e-3)
    check(cupy, np.full(5000, 3.25, np.float32), 1e-3)
    check(cupy, np.full(5000, np.nan), 1e-3)
    check(cupy, np.full(3, 1 + 2j), None)
    check(cupy, np.random.default_rng(1).integers(0, 2**32, 9000, np.uint32).view("f4"), 1e-3)


def test_specials_fills_and_offsets(cupy):
    x = wave(20_000)
    x[5:9] = [np.nan, np.inf, -np.inf, -0.0]
    x[300:1300] = 1e36
    x[4000:4040] = -9999
    check(cupy, x, 1e-3)
    check(cupy, x, 1e-3, "abs", zccl.Options(fill_value=-9999.0))
    for offset in (300.0, -7e4):
        check(cupy, wave(20_000) + np.float32(offset), 1e-2)
        check(cupy, wave(20_000).astype("f8") + offset, 1e-12)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_sums(cupy, dtype):
    a, b = wave(30_000, dtype, 1), wave(30_000, dtype, 2)
    a[7] = np.nan
    x, y = zccl.compress(a, 1e-3), zccl.compress(b, 1e-3)
    dx, dy = cupy.asarray(x), cupy.asarray(y)
    for op in (zccl.SUM,) if dtype == "c8" else (zccl.SUM, zccl.MAX, zccl.MIN):
        total = zccl.reduce_streams(dx, dy, op)
        wanted = zccl.reduce_streams(x, y, op)
        assert total.get().tobytes() == wanted.tobytes()
        assert zccl.decompress(total).get().tobytes() == zccl.decompress(wanted).tobytes()
    exact = zccl.reduce_streams(
        zccl.compress(cupy.asarray(a), 0), zccl.compress(cupy.asarray(b), 0)
    )
    wanted = zccl.reduce_streams(zccl.compress(a, 0), zccl.compress(b, 0))
    assert exact.get().tobytes() == wanted.tobytes()
    constant = np.full(30_000, 2.5, dtype)
    mixed = zccl.reduce_streams(dx, zccl.compress(cupy.asarray(constant), 1e-3))
    assert mixed.get().tobytes() == zccl.reduce_streams(x, zccl.compress(constant, 1e-3)).tobytes()
    with pytest.raises(TypeError, match="one on a GPU"):
        zccl.reduce_streams(dx, y)


def test_layouts_and_out(cupy):
    x = wave(6000).reshape(60, 100)
    wanted = zccl.compress(x, 1e-3).tobytes()
    for given in (cupy.asfortranarray(cupy.asarray(x)), cupy.repeat(cupy.asarray(x), 2, 1)[:, ::2]):
        assert zccl.compress(given, 1e-3).get().tobytes() == wanted
    stream = zccl.compress(cupy.asarray(x), 1e-3)
    out = cupy.empty((60, 200), np.float32)[:, ::2]
    assert zccl.decompress(stream, out) is out
    assert np.array_equal(out.get(), zccl.decompress(stream.get()))
    shifted = cupy.empty(stream.size + 1, np.uint8)
    shifted[1:] = stream
    assert np.array_equal(zccl.decompress(shifted[1:]).get(), out.get())
    for wrong, kind in ((np.empty((60, 100), "f4"), TypeError), (cupy.empty(3, "f4"), ValueError),
                        (cupy.empty((60, 100)), TypeError)):  # fmt: skip
        with pytest.raises(kind):
            zccl.decompress(stream, wrong)
    with pytest.raises(ValueError, match="stream"):
        zccl.compress(x, 1e-3, stream=7)  # a host array


def test_other_libraries(cupy):
    x = wave(50_000)
    wanted = zccl.compress(x, 1e-3).tobytes()
    torch = pytest.importorskip("torch")
    tensor = torch.as_tensor(x, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for stream in (None, side, side.cuda_stream):
        found = zccl.compress(tensor, 1e-3, stream=stream)
        cupy.cuda.Device().synchronize()
        assert found.get().tobytes() == wanted
    from numba import cuda

    assert zccl.compress(cuda.to_device(x), 1e-3).get().tobytes() == wanted
    stream = cuda.stream()
    assert zccl.compress(cuda.to_device(x), 1e-3, stream=stream).get().tobytes() == wanted


def test_work_is_ordered_on_the_stream(cupy):
    """Values that are still being made by many slow kernels before."""
    n = 1 << 22
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(n, np.float32)
        ramp = cupy.arange(n, dtype=np.float32) / n
        for _ in range(300):
            x += ramp
    found = zccl.compress(x, 1e-2, stream=stream)
    back = zccl.decompress(found, stream=stream)
    stream.synchronize()
    exact = x.get()
    assert found.get().tobytes() == zccl.compress(exact, 1e-2).tobytes()
    assert np.abs(back.get() - exact).max() <= 1e-2


def test_damaged_streams(cupy):
    rng = np.random.default_rng(3)
    x = wave(5000)
    x[9] = np.nan
    good = zccl.compress(x, 1e-2)
    right = zccl.decompress(good).tobytes()
    for bit in {*range(0, 8 * 100, 7), *rng.integers(0, 8 * good.size, 300).tolist()}:
        wrong = good.copy()
        wrong[bit // 8] ^= 1 << bit % 8
        try:
            found = zccl.decompress(cupy.asarray(wrong)).get().tobytes()
        except zccl.StreamError:
            continue
        assert found == right
    for size in (0, 5, 63, 64, 100, good.size - 4):
        with pytest.raises(zccl.StreamError):
            zccl.decompress(cupy.asarray(good[:size]))
