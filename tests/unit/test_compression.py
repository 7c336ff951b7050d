"""compress, decompress, inspect and compress_bound, as users call them; test_streams.py has sums
and damage.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit import hostile
from unit.bounds import assert_within, same_bits

import zccl

CODED = [np.float16, np.float32, np.float64, np.complex64, np.complex128]
EXACT = [
    bool, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
]  # fmt: skip
some = settings(derandomize=True, deadline=None, max_examples=25)
pytestmark = pytest.mark.filterwarnings("error")  # zccl lets no warning of NumPy through


def wave(n, dtype):
    """A smooth row of n values with both signs, of any dtype."""
    x = np.arange(n)
    if np.dtype(dtype).kind == "c":
        return (np.sin(x / 40) + 2j * np.cos(x / 90)).astype(dtype)
    scale = 1 if np.dtype(dtype).kind == "f" else 100
    return (scale * np.sin(x / 40)).astype("i8" if scale > 1 else dtype).astype(dtype)


def check(array, bound=1e-3, mode="abs", options=None):
    """Round trip, with everything that holds for any array; returns the decoded array and what
    inspect says.
    """
    before = array.tobytes()
    stream = zccl.compress(array, bound, mode, options=options)
    assert array.tobytes() == before
    assert isinstance(stream, np.ndarray) and stream.dtype == np.uint8 and stream.ndim == 1
    assert stream.nbytes <= zccl.compress_bound(array.size, array.dtype)
    decoded = zccl.decompress(stream)
    assert decoded.dtype.isnative and decoded.flags.c_contiguous and decoded.flags.writeable
    info = zccl.inspect(stream)
    assert (info.dtype, info.shape) == (decoded.dtype, array.shape)
    assert info.nbytes == stream.nbytes and info.contributors == 1
    assert math.isclose(info.ratio, decoded.nbytes / stream.nbytes)
    if mode == "abs":
        assert_within(decoded, array, bound or 0)
        assert info.error_bound in (0, bound)
    else:
        assert_within(decoded, array, info.error_bound)
    return decoded, info


@st.composite
def rows(draw, dtype, sizes=tuple(hostile.SIZES)):
    return hostile.make(
        draw(st.sampled_from(sorted(hostile.RECIPES))),
        draw(st.sampled_from(sorted(hostile.DAMAGES))),
        dtype, draw(st.sampled_from(sizes)), draw(st.integers(0, 2**32 - 1)),
    )  # fmt: skip


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
@some
def test_hostile_values(dtype, data):
    bound = data.draw(st.sampled_from([1e-3, 1.0, 1e-7, 1e-30, 1e30, 1e-43, 5e-324, 1e308]))
    fill = data.draw(st.sampled_from([None, *hostile.FILLS]))
    check(data.draw(rows(dtype)), bound, options=zccl.Options(fill_value=fill))


@pytest.mark.parametrize("dtype", [np.float16, np.complex64, np.complex128])
@given(data=st.data())
@some
def test_hostile_values_of_other_dtypes(dtype, data):
    bound = data.draw(st.sampled_from([1e-3, 1.0, 1e-7, 30.0, 1e-30]))
    real = data.draw(rows(np.float64 if dtype == np.complex128 else np.float32))
    with np.errstate(over="ignore"):
        array = real.astype(dtype)
    if array.dtype.kind == "c":
        array.imag = real[::-1]
    check(array, bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
@some
def test_hostile_values_with_a_relative_bound(dtype, data):
    """The bound is the fraction of the finite range; no range or no finite value: exact; overflow:
    ValueError.
    """
    array = data.draw(rows(dtype))
    finite = array[np.isfinite(array)].astype("f8")
    with np.errstate(over="ignore"):
        value_range = float(finite.max() - finite.min()) if finite.size else 0.0
    if math.isinf(value_range):
        with pytest.raises(ValueError, match="overflow"):
            zccl.compress(array, 1e-3, "rel")
    else:
        decoded, info = check(array, 1e-3, "rel")
        assert info.error_bound in (0, 1e-3 * value_range)
        if value_range == 0:
            assert same_bits(decoded, array)


def test_relative_bound_that_overflows():
    """A range and a bound that are fine but whose product is not: no bound could be promised."""
    with pytest.raises(ValueError):
        zccl.compress(np.linspace(-4e307, 4e307, 3000), 100.0, "rel")


def test_relative_bound_counts_both_components():
    """The range of a complex array goes over real and imaginary parts together."""
    array = (np.linspace(0, 1, 500) + 1j * np.linspace(5, 8, 500)).astype(np.complex64)
    assert check(array, 1e-2, "rel")[1].error_bound == pytest.approx(0.08)


@pytest.mark.parametrize("dtype", CODED)
def test_dtypes_that_are_coded(dtype):
    array = wave(5000, dtype)
    decoded, info = check(array, 1e-2)
    assert info.form == "coded" and info.error_bound == 1e-2 and info.step > 0
    assert sum(info.tiles.values()) == (10 if array.dtype.kind == "c" else 5)
    assert info.ratio > 1.5
    assert not same_bits(decoded, array)


@pytest.mark.parametrize("bound", [None, 0, 0.0, 1e-2, 1000])
@pytest.mark.parametrize("dtype", EXACT)
def test_dtypes_that_are_exact(dtype, bound):
    array = wave(1500, dtype)
    decoded, info = check(array, bound)
    assert same_bits(decoded, array)
    assert info.form == "exact" and info.error_bound == info.step == 0


@pytest.mark.parametrize("bound", [None, 0, 0.0])
@pytest.mark.parametrize("dtype", CODED)
def test_without_a_bound_exact(dtype, bound):
    decoded, info = check(wave(1500, dtype), bound)
    assert same_bits(decoded, wave(1500, dtype))
    assert info.form == "exact"


@pytest.mark.parametrize(
    "bits", [0x7FC00000, 0x7FC00001, 0xFFC12345, 0x7F800001, 0x7F800000, 0x80000000]
)
@pytest.mark.parametrize("where", [slice(7, 8), slice(0, None, 50), slice(100, 900), slice(None)])
def test_special_bits_come_back(bits, where):
    """NaN payloads, signalling NaNs too, and infinities, alone, spread, in runs, everywhere."""
    array = wave(3000, np.float32)
    array.view("u4")[where] = bits
    decoded, _ = check(array)
    if bits != 0x80000000:
        assert decoded.view("u4")[where].tolist() == array.view("u4")[where].tolist()


def test_outlier_leaves_neighbours_untouched():
    """One 1e36 costs its neighbours nothing."""
    array = np.ones(2048, np.float32)
    array[1500] = 1e36
    decoded, info = check(array, 1e-4)
    assert decoded[1500] == array[1500]
    assert info.escapes == 1 and info.ratio > 20


@pytest.mark.parametrize("value", [0.0, -0.0, 3.25, 1e36, np.nan, np.inf, 1e-42])
@pytest.mark.parametrize("dtype", [*CODED, np.int32])
@pytest.mark.parametrize("n", [1, 15, 5000])
def test_constant_arrays_are_one_value(value, dtype, n):
    if np.dtype(dtype).kind == "i":
        value = -7
    with np.errstate(over="ignore"):
        array = np.full(n, value, dtype)
    for bound, mode in [(1e-3, "abs"), (1e-3, "rel"), (None, "abs")]:
        decoded, info = check(array, bound, mode)
        assert same_bits(decoded, array)
        assert info.form == "constant" and info.nbytes <= 88


def test_fill_value():
    """A named fill value travels exactly and does not count in the range; not named, it does."""
    array = wave(4000, np.float32)
    array[1000:1800] = -9999.0
    decoded, info = check(array, 1e-3, "rel", zccl.Options(fill_value=-9999.0))
    assert (decoded[1000:1800] == -9999).all()
    assert info.error_bound == pytest.approx(2e-3, rel=1e-3)
    _, without = check(array, 1e-3, "rel")
    assert without.error_bound == pytest.approx(10, rel=1e-3)


def test_options_from_the_environment(setenv):
    array = wave(1000, np.float32)
    array[3] = -9999.0
    setenv("ZCCL_FILL_VALUE", "-9999")
    assert check(array, 1e-3, "rel")[1].error_bound == pytest.approx(2e-3, rel=1e-2)
    setenv("ZCCL_FILL_VALUE", "plenty")
    with pytest.raises(ValueError, match="ZCCL_FILL_VALUE"):
        zccl.compress(array, 1e-3)


@pytest.mark.parametrize("offset", [300.0, 1e4, -77777.0])
def test_aligned_step(offset):
    """Values on an offset, where the rounding of decoded values would break the bound: another
    step, few escapes.
    """
    array = (offset + 3 * np.sin(np.arange(50_000) / 300)).astype(np.float32)
    ulp = float(np.spacing(np.abs(array).max()))
    for bound in (1.5 * ulp, 3.7 * ulp, 20 * ulp):
        _, info = check(array, bound)
        assert info.form == "coded" and info.escapes <= array.size / 1024
        assert info.tiles["raw"] == 0


# ---------------------------------------------------------------- shapes and layouts


@pytest.mark.parametrize(
    "shape",
    [(), (0,), (1,), (0, 3), (3, 0, 2), (1, 1), (7, 11), (33, 1, 32), (5, 4, 3, 2, 3), (1,) * 40],
)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int16])
def test_shapes(shape, dtype):
    check(wave(math.prod(shape), dtype).reshape(shape), 1e-2)


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def unaligned(a):
    buffer = np.zeros(a.nbytes + 1, np.uint8)[1:]
    b = buffer.view(a.dtype).reshape(a.shape)
    b[...] = a
    return b


#: Name -> function that lays out a 2-D array in another way.
LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "every second": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    "negative strides": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "a field of a record": lambda a: np.rec.fromarrays([a, a], names="x,y")["x"],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "big-endian Fortran": lambda a: np.asfortranarray(a.astype(a.dtype.newbyteorder(">"))),
    "read-only": read_only,
    "unaligned": unaligned,
    "matrix": lambda a: a.copy().view(np.matrix),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.int32])
def test_layouts(layout, dtype):
    """Any layout gives the stream of the plain array, and any `out` takes the same result."""
    plain = wave(30 * 70, dtype).reshape(30, 70)
    array = LAYOUTS[layout](plain)
    decoded, _ = check(array, 1e-2)
    stream = zccl.compress(plain, 1e-2)
    assert same_bits(zccl.compress(array, 1e-2), stream)
    out = LAYOUTS[layout](np.zeros_like(plain))
    if layout == "read-only":
        with pytest.raises(ValueError, match="read-only"):
            zccl.decompress(stream, out)
    else:
        assert zccl.decompress(stream, out) is out
        assert same_bits(np.asarray(out).astype(plain.dtype, "C"), decoded)


def test_broadcast_array():
    array = np.broadcast_to(wave(700, np.float32), (5, 700))
    assert check(array)[1].form == "coded"


def test_out_leaves_the_rest_of_its_memory_alone():
    array = wave(1500, np.float32)
    memory = np.full((1500, 3), 7.0, np.float32)
    zccl.decompress(zccl.compress(array, 1e-3), memory[:, 1])
    assert_within(np.ascontiguousarray(memory[:, 1]), array, 1e-3)
    assert (memory[:, ::2] == 7).all()


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_mapped_files(tmp_path, mode):
    """Sources and targets on disk."""
    array = wave(5000, np.float32)
    array.tofile(tmp_path / "source")
    check(np.memmap(tmp_path / "source", np.float32, mode))
    stream = zccl.compress(array, 1e-3)
    stream.tofile(tmp_path / "stream")
    out = np.memmap(tmp_path / "out", np.float32, "w+", shape=5000)
    zccl.decompress(np.memmap(tmp_path / "stream", np.uint8, "r"), out)
    out.flush()
    assert_within(np.fromfile(tmp_path / "out", np.float32), array, 1e-3)


@pytest.mark.parametrize(
    "form", [bytes, bytearray, memoryview, unaligned, read_only, lambda s: s.reshape(2, -1)]
)
def test_stream_in_any_buffer(form):
    array = wave(5001, np.float32)
    stream = zccl.compress(array, 1e-3)
    assert same_bits(zccl.decompress(form(stream)), zccl.decompress(stream))
    assert zccl.inspect(form(stream)) == zccl.inspect(stream)


# ---------------------------------------------------------------- refusals and sizes


@pytest.mark.parametrize(
    "array",
    [
        np.ma.masked_equal([1.0, 2.0], 2), [1.0, 2.0], 3.0, None, "abc", b"abc",
        np.array(["a"]), np.array([object()]), np.array(["2020"], "M8[D]"),
        np.zeros(3, np.longdouble), np.zeros(3, "f4,f4"), np.zeros(3, "V4"),
    ],
)  # fmt: skip
def test_what_is_no_array_of_numbers(array):
    with pytest.raises(TypeError, match="array"):
        zccl.compress(array, 1e-3)


@pytest.mark.parametrize("bound", [-1e-3, -math.inf, math.inf, math.nan, np.float32("nan")])
def test_impossible_bounds(bound):
    with pytest.raises(ValueError, match="error_bound"):
        zccl.compress(np.ones(3), bound)


@pytest.mark.parametrize("bound", ["1e-3", True, 1j, [1e-3]])
def test_bounds_of_wrong_types(bound):
    with pytest.raises(TypeError, match="error_bound"):
        zccl.compress(np.ones(3), bound)


def test_other_wrong_arguments():
    with pytest.raises(ValueError, match="mode"):
        zccl.compress(np.ones(3), 1e-3, "relative")
    with pytest.raises(TypeError, match="options"):
        zccl.compress(np.ones(3), 1e-3, options={})
    with pytest.raises(ValueError, match="fill_value"):
        zccl.Options(fill_value=math.nan)
    stream = zccl.compress(np.ones(3, np.float32), 1e-3)
    for out, kind in [
        (np.ones(4, np.float32), ValueError), (np.ones((3, 1), np.float32), ValueError),
        (np.ones(3), TypeError), ([1, 2, 3], TypeError), (np.ma.ones(3, np.float32), TypeError),
    ]:  # fmt: skip
        with pytest.raises(kind, match="out"):
            zccl.decompress(stream, out)


@pytest.mark.parametrize("dtype", [*CODED, *EXACT])
@pytest.mark.parametrize("n", [0, 1, 100, 1023, 1025, 4096])
def test_random_bits_stay_below_compress_bound(dtype, n):
    """What does not compress costs little more than its bytes."""
    rng = np.random.default_rng(n)
    nbytes = n * np.dtype(dtype).itemsize
    data = rng.integers(0, 2 if dtype is bool else 256, nbytes, np.uint8)
    decoded, info = check(data.view(dtype), 1e-3)
    assert info.nbytes <= 1.02 * nbytes + 4096
    assert zccl.compress_bound(n, dtype) <= 1.02 * nbytes + 4096


def test_compress_bound():
    assert zccl.compress_bound(10**12, "f8") > 8 * 10**12
    assert zccl.compress_bound(np.int64(7), np.float32) == zccl.compress_bound(7, "f4")
