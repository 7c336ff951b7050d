"""The entropy coder on a GPU: the CPU's bytes, records that come back, damage."""

from pathlib import Path

import numpy as np
import pytest

import zccl
from zccl.codecs import packing, tiles
from zccl.codecs.tiles import Body, Grid
from zccl.errors import StreamError

pytestmark = pytest.mark.gpu

FIELDS = sorted(Path(__file__).parent.parent.glob("data/*.npy"))


@pytest.fixture
def cupy(device):
    """CuPy, where there is a GPU."""
    import cupy

    return cupy


def coded(values, bound):
    """Return the body of values by the CPU's kernels."""
    step = float(np.float32(2 * bound * (1 - 2.0**-10)))
    table = np.empty(tiles.tile_count(values.size), np.uint64)
    words = np.empty(tiles.room_nwords(values.size, values.dtype), np.uint32)
    return tiles.encode(values, Grid(step, bound, False), table, words)[0]


def uploaded(cupy, body):
    return Body(cupy.asarray(body.table), cupy.asarray(body.words), body.checksum)


def records(body):
    """Return the record and kind of each tile; those on a GPU lie in any order."""
    table, words = np.asarray(body.table), np.asarray(body.words)
    return [(words[e % 2**40 :][: (e >> 40) % 2**12].tobytes(), e >> 52) for e in table.tolist()]


def check(cupy, values, bound):
    """Compare with the CPU both ways; returns the packed words, None where there are none."""
    from zccl.codecs import device_packing

    body = coded(values, bound)
    wanted = packing.pack(body, values.size, values.dtype)
    packed = device_packing.pack(uploaded(cupy, body), values.size, values.dtype)
    assert (packed is None) == (wanted is None)
    if wanted is None:
        return None
    got = packed.get()
    different = np.flatnonzero(got[: wanted.size] != wanted[: got.size])
    assert got.size == wanted.size and not different.size, (got.size, wanted.size, different[:5])
    back = device_packing.unpack(packed, values.size, values.dtype)
    host = Body(back.table.get(), back.words.get(), 0)
    assert records(host) == records(body)
    return wanted


def hard(n, dtype):
    """Return values of all kinds of tiles."""
    random = np.random.default_rng(n)
    values = np.zeros(n, dtype)
    some = min(n, 60 * 1024)
    values[:some] = np.cumsum(random.standard_normal(some)) + (2**33 if dtype == np.float64 else 0)
    values[random.integers(0, some, some // 500 + 1)] = np.nan
    values[some // 2 : some // 2 + 3000] *= 1e5
    values[some // 3 : some // 3 + 1100 : 2] = 1e36
    values[some // 4 : some // 4 + 2048] = np.inf
    return values


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: path.stem)
def test_words_of_fields(cupy, path):
    field = np.load(path).reshape(-1)
    field = np.resize(field, max(field.size, 300_001))
    for relative in (1e-2, 1e-3, 1e-4):
        assert check(cupy, field, relative * float(np.ptp(field))) is not None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 1023, 1025, 33 * 1024 - 1, 300 * 1024 + 5, 3000 * 1024])
def test_words_of_hard_arrays(cupy, n, dtype):
    for bound in (1e-2, 1.0):
        packed = check(cupy, hard(n, dtype), bound)
        assert n < 100 * 1024 or packed is not None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_damage_is_found(cupy, dtype):
    from zccl.codecs import device_packing

    random = np.random.default_rng(3)
    values = hard(120 * 1024 + 77, dtype)
    body = coded(values, 1e-2)
    packed = packing.pack(body, values.size, values.dtype)
    refused = 0
    for k in range(1000):
        spoiled = packed.copy()
        where = int(random.integers(0, packed.size if k % 3 else min(900, packed.size)))
        spoiled[where] ^= np.uint32(1 << int(random.integers(0, 32)))
        if k % 20 == 0:
            spoiled = packed[: int(random.integers(0, packed.size))]
        if k % 20 == 1:
            some = slice(where, where + int(random.integers(1, 200)))
            spoiled[some] = random.integers(0, 2**32, spoiled[some].size, dtype=np.uint32)
        try:
            back = device_packing.unpack(cupy.asarray(spoiled), values.size, values.dtype)
        except StreamError:
            refused += 1
            continue
        host = Body(back.table.get(), back.words.get(), 0)
        try:
            found = packing.unpack(spoiled, values.size, values.dtype)
        except StreamError:
            # What the CPU has checked besides must then change the records, and so the checksum.
            assert records(host) != records(body)
        else:
            assert records(host) == records(found)
    assert refused > 500


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "c8"])
def test_streams(cupy, dtype):
    random = np.random.default_rng(5)
    x, y = (np.cumsum(random.standard_normal(200_000)).astype(dtype) for _ in range(2))
    options = zccl.Options(coding="entropy")
    streams = []
    for array in (x, y):
        wanted = zccl.compress(array, 0.1, options=options)
        stream = zccl.compress(cupy.asarray(array), 0.1, options=options)
        assert stream.get().tobytes() == wanted.tobytes()
        assert zccl.inspect(stream) == zccl.inspect(wanted)
        assert zccl.decompress(stream).get().tobytes() == zccl.decompress(wanted).tobytes()
        streams.append((wanted, stream))
    (a, a_there), (b, b_there) = streams
    if zccl.inspect(a).coding == "entropy" and zccl.inspect(a).step == zccl.inspect(b).step:
        total = zccl.reduce_streams(a_there, b_there)
        assert total.get().tobytes() == zccl.reduce_streams(a, b).tobytes()
    spoiled = a_there.copy()
    spoiled[spoiled.size // 2] ^= 1
    with pytest.raises(StreamError):
        zccl.decompress(spoiled)
