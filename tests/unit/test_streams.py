"""Sums, maxima and minima of streams, and damaged streams, at the public API."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit import hostile
from unit.bounds import same_bits

import zccl

some = settings(derandomize=True, deadline=None, max_examples=25)
pytestmark = pytest.mark.filterwarnings("error")  # zccl lets no warning of NumPy through
FUNCTIONS = {zccl.SUM: np.add, zccl.MAX: np.maximum, zccl.MIN: np.minimum}
DTYPES = [np.float16, np.float32, np.float64, np.complex64, np.complex128]


def pair(n, dtype, seed=0):
    """Two rough rows with steps of their own."""
    rng = np.random.default_rng([n, seed])
    x, y = (np.cumsum(rng.standard_normal((2, n)), axis=1) / 30).astype(dtype)
    if np.dtype(dtype).kind == "c":
        x.imag, y.imag = y.real[::-1], x.real[::-1]
    return x, y


def reduced(x, y, op, bound):
    return zccl.reduce_streams(zccl.compress(x, bound), zccl.compress(y, bound), op)


def assert_reduced(stream, x, y, op, bound):
    """The bound of one operand, or of both for a sum, and one rounding to the dtype."""
    result = zccl.decompress(stream)
    assert result.dtype == x.dtype and result.shape == x.shape
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    exact = FUNCTIONS[op](x.astype(wide), y.astype(wide))
    allowed = bound * (2 if op is zccl.SUM else 1) + float(np.spacing(np.abs(result).max())) / 2
    error = result - exact
    assert np.abs(error.real).max() <= allowed
    assert np.abs(error.imag).max() <= allowed


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.value)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 17, 1024, 5000])
def test_reduce(op, dtype, n):
    bound = 2.0**-5 if dtype == np.float16 else 1e-3
    x, y = pair(n, dtype)
    if x.dtype.kind == "c" and op is not zccl.SUM:
        with pytest.raises(TypeError, match="complex"):
            reduced(x, y, op, bound)
        return
    stream = reduced(x, y, op, bound)
    assert_reduced(stream, x, y, op, bound)
    info = zccl.inspect(stream)
    assert info.contributors == 2
    if info.form == "coded":
        assert info.error_bound == bound * (2 if op is zccl.SUM else 1)


def test_sum_of_many_is_the_same_in_any_order():
    """Sums of codes are exact: their streams are equal whatever the order, and the error does not
    pile up.
    """
    rows = [np.cumsum(np.random.default_rng(k).standard_normal(3000)) / 9 for k in range(9)]
    streams = [zccl.compress(row, 1e-3) for row in rows]
    total = streams[0]
    for stream in streams[1:]:
        total = zccl.reduce_streams(total, stream)
    backwards = streams[-1]
    for stream in streams[-2::-1]:
        backwards = zccl.reduce_streams(stream, backwards)
    assert same_bits(zccl.decompress(total), zccl.decompress(backwards))
    assert zccl.inspect(total).contributors == 9
    assert np.abs(zccl.decompress(total) - np.sum(rows, axis=0)).max() <= 9e-3 + 1e-12


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.value)
def test_specials_in_sums(op):
    """NaN wins without its payload, infinities follow floating-point rules, neighbours keep the
    bound.
    """
    x, y = pair(3000, np.float32)
    x.view("u4")[[5, 2000]] = 0xFFC12345
    x[6], y[6] = np.inf, -np.inf
    x[7], y[8], y[9] = np.inf, -np.inf, 1e36
    result = zccl.decompress(reduced(x, y, op, 1e-3))
    with np.errstate(invalid="ignore"):
        exact = FUNCTIONS[op](x, y)
    special = [5, 2000, 6, 7, 8, 9]
    exact.view("u4")[np.isnan(exact)] = 0x7FC00000
    plain = np.delete(np.arange(3000), special)
    assert np.abs(result[plain] - exact[plain]).max() <= 2e-3 + 1e-6
    kept = [5, 2000, 6] + ([7, 8, 9] if op is zccl.SUM else [7] if op is zccl.MAX else [8])
    assert result.view("u4")[kept].tolist() == exact.view("u4")[kept].tolist()


@pytest.mark.parametrize("form", ["coded and constant", "two constants", "exact", "integers"])
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.value)
def test_reduce_other_forms(form, op):
    x, y = pair(2000, np.float32)
    bound = 1e-3
    if form == "exact":
        bound = 0
    elif form == "integers":
        x, y = (100 * x).astype(np.int32), (100 * y).astype(np.int32)
    elif form == "two constants":
        x[:], y[:] = 1.5, -2.25
    else:
        y[:] = 1.0 / 3
    stream = reduced(x, y, op, bound)
    if form == "coded and constant":
        assert_reduced(stream, x, y, op, bound)
        assert zccl.inspect(stream).form == "coded"
    elif form == "two constants":
        assert_reduced(stream, x, y, op, bound)
    else:
        assert same_bits(zccl.decompress(stream), FUNCTIONS[op](x, y))


def test_what_does_not_fit_together():
    x, y = pair(500, np.float32)
    stream = zccl.compress(x, 1e-3)
    for other in (
        zccl.compress(y, 1e-2),
        zccl.compress(y[:-1], 1e-3),
        zccl.compress(y.astype("f8"), 1e-3),
    ):
        with pytest.raises(ValueError) as caught:
            zccl.reduce_streams(stream, other)
        assert not isinstance(caught.value, zccl.StreamError)
    for op in ("sum", None, zccl.AVG):
        with pytest.raises(ValueError, match="op"):
            zccl.reduce_streams(stream, stream, op)


def test_bounds_whose_sum_overflows():
    """The stream of a sum can be read even where the sum of the bounds leaves float64."""
    x, y = pair(500, np.float64)
    result = zccl.decompress(reduced(1e307 * x, 1e307 * y, zccl.SUM, 1e308))
    assert result.shape == x.shape


def test_sums_that_outgrow_the_format():
    """Differences beyond 32 bits are refused, never wrapped."""
    x = np.tile(np.float64([0, 2.0**28]), 500)
    total = zccl.compress(x, 0.5)
    assert zccl.inspect(total).tiles["coded"] == 1
    with pytest.raises(OverflowError):
        for _ in range(5):
            total = zccl.reduce_streams(total, total)


# ---------------------------------------------------------------- damage


def streams():
    """Streams of every form and kind of tile."""
    x = np.cumsum(np.random.default_rng(3).standard_normal(3500)).astype(np.float32)
    special = x.copy()
    special[::300] = np.nan
    special[1024:2048] = -9999
    noisy = hostile.make("noise", "some specials", np.float64, 2049, 1)
    return {
        "coded": zccl.compress(x, 1e-2),
        "escapes": zccl.compress(special, 1e-2),
        "hostile": zccl.compress(noisy, 1e-4),
        "sum": zccl.reduce_streams(zccl.compress(special, 1e-2), zccl.compress(x, 1e-2)),
        "complex": zccl.compress((x + 1j * x[::-1]).astype(np.complex64), 1e-2),
        "half": zccl.compress((x / 10).astype(np.float16), 1e-2),
        "constant": zccl.compress(np.full((30, 40), 2.5), 1e-2),
        "exact": zccl.compress(x[:700], 0),
        "integers": zccl.compress(np.arange(777), None),
        "empty": zccl.compress(np.empty((0, 4)), 1e-3),
        "scalar": zccl.compress(np.float32(2), 1e-3),
    }


STREAMS = streams()


def assert_refused_or_same(damaged, wanted):
    """Damage is found, or (padding) does not matter."""
    try:
        got = zccl.decompress(damaged)
    except zccl.StreamError:
        pass
    else:
        assert same_bits(got, wanted)
    try:
        zccl.inspect(damaged)
    except zccl.StreamError:
        pass
    for a, b in ((damaged, damaged), (damaged, STREAMS["coded"])):
        try:
            zccl.reduce_streams(a, b)
        except (ValueError, OverflowError):  # StreamErrors, or streams that do not fit together
            pass


@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
@some
def test_flipped_bits(name, data):
    """One or more flipped bits, half of them in the header and the table."""
    stream = STREAMS[name].copy()
    end = stream.size if data.draw(st.booleans()) else min(stream.size, 160)
    places = st.tuples(st.integers(0, end - 1), st.integers(0, 7))
    for at, bit in data.draw(st.lists(places, min_size=1, max_size=4, unique=True)):
        stream[at] ^= 1 << bit
    assert_refused_or_same(stream, zccl.decompress(STREAMS[name]))


@pytest.mark.parametrize("name", STREAMS)
def test_every_truncation(name):
    """Any missing end, and any extra byte, is found."""
    stream = STREAMS[name]
    lengths = [*range(min(stream.size, 200)), *range(200, stream.size, 397), stream.size - 1]
    for length in lengths:
        for read in (zccl.decompress, zccl.inspect):
            with pytest.raises(zccl.StreamError):
                read(stream[:length])
    for extra in (1, 4, 8):
        with pytest.raises(zccl.StreamError):
            zccl.decompress(np.append(stream, np.zeros(extra, np.uint8)))


@pytest.mark.parametrize("name", ["coded", "escapes", "sum", "exact", "complex"])
@given(data=st.data())
@some
def test_moved_bytes(name, data):
    """Bytes copied from one place of a stream to another, or swapped."""
    stream = STREAMS[name].copy()
    at, source = (4 * data.draw(st.integers(0, stream.size // 4 - 16)) for _ in range(2))
    length = data.draw(st.integers(1, 64))
    stream[at : at + length] = STREAMS[name][source : source + length]
    assert_refused_or_same(stream, zccl.decompress(STREAMS[name]))


@given(st.binary(max_size=300))
@some
def test_any_bytes(data):
    for start in (b"", b"ZCCL", STREAMS["coded"][:64].tobytes(), STREAMS["coded"][:72].tobytes()):
        for read in (zccl.decompress, zccl.inspect):
            with pytest.raises(zccl.StreamError):
                read(start + data)


def forged(stream, **changes):
    """Return a stream with other fields in its header, and the right checksum of the header."""
    from zccl.formats import Header

    header = Header.unpack(memoryview(stream))
    body = stream[header.header_nbytes :]
    for name, value in changes.items():
        setattr(header, name, value)
    return np.append(np.frombuffer(header.pack(), np.uint8), body)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (2**40,)}, {"shape": (0,)}, {"shape": (5000,)},
        {"dtype": np.dtype("f8")}, {"dtype": np.dtype("i4")}, {"dtype": np.dtype("c16")},
        {"form": 0}, {"form": 1}, {"form": 7}, {"step": 0.0}, {"step": math.nan}, {"step": -1.0},
        {"error_bound": math.inf}, {"contributors": 0}, {"nbytes": 2**63}, {"checksum": 1},
    ],
    ids=str,
)  # fmt: skip
def test_forged_headers(changes):
    """Whoever writes a checksum too is still refused before anything large is allocated or read out
    of bounds.
    """
    for name in ("coded", "escapes"):
        with pytest.raises(zccl.StreamError):
            zccl.decompress(forged(STREAMS[name], **changes))


@pytest.mark.parametrize("name, shape", [("constant", (2**32, 2**31)), ("empty", (0, 2**62))])
def test_forged_shapes_that_no_array_has(name, shape):
    with pytest.raises(zccl.StreamError):
        zccl.decompress(forged(STREAMS[name], shape=shape))
    with pytest.raises(zccl.StreamError):
        zccl.inspect(forged(STREAMS[name], shape=shape))


@pytest.mark.parametrize("stream", [None, 3, "abc", [1, 2], np.zeros((9, 9), np.uint8)[:, ::2]])
@pytest.mark.parametrize(
    "read", [zccl.decompress, zccl.inspect, lambda s: zccl.reduce_streams(s, s)]
)
def test_what_is_no_buffer(stream, read):
    with pytest.raises(TypeError, match="stream"):
        read(stream)


def test_decoded_values_do_not_share_memory_with_the_stream():
    for name in ("exact", "constant", "coded"):
        stream = STREAMS[name].copy()
        decoded = zccl.decompress(stream)
        kept = decoded.copy()
        stream[:] = 0
        assert same_bits(decoded, kept)
        operator.iadd(decoded, 1)  # writeable
