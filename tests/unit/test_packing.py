"""The entropy coder: the CPU kernels against kernels/entropy_spec.py, its density, damage."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit import hostile

import zccl
from zccl.codecs import packing, tiles
from zccl.codecs.tiles import Body, Grid
from zccl.errors import StreamError
from zccl.kernels import entropy_spec, spec

CROPS = Path(__file__).parent.parent / "data"
NAMES = sorted(path.stem for path in CROPS.glob("*.npy"))


def coded(values, bound, ranks=1):
    """Return the body of values by the kernels."""
    grid = Grid(hostile.step_for(bound, values.dtype), bound, ranks == 1, ranks)
    table = np.empty(tiles.tile_count(values.size), np.uint64)
    words = np.empty(tiles.room_nwords(values.size, values.dtype), np.uint32)
    return tiles.encode(values, grid, table, words)[0]


def shuffled(body, seed):
    """Return the body with its records in another order, and gaps between them."""
    random = np.random.default_rng(seed)
    table, parts, at = body.table.copy(), [], 0
    for t in random.permutation(table.size):
        first, nwords = int(table[t]) % 2**40, (int(table[t]) >> 40) % 2**12
        parts.append(body.words[first : first + nwords])
        table[t] = table[t] - np.uint64(first) + np.uint64(at)
        at += nwords
    return Body(table, np.concatenate(parts), body.checksum)


def check(values, bound):
    """Compare with the definition, and go there and back."""
    n, dtype = values.size, values.dtype
    body = coded(values, bound)
    packed = packing.pack(body, n, dtype)
    wanted = entropy_spec.encode(body, n, dtype)
    assert (packed is None) == (wanted is None)
    other = packing.pack(shuffled(body, n), n, dtype, threads=3)
    assert (packed is None) == (other is None)
    if packed is None:
        return None
    assert packed.tolist() == wanted.tolist() == other.tolist()
    for threads in (1, 3):
        back = packing.unpack(packed, n, dtype, threads)
        assert back.table.tolist() == body.table.tolist()
        assert back.words.tolist() == body.words.tolist()
        assert back.checksum == body.checksum
    assert entropy_spec.decode(packed, n, dtype).words.tolist() == body.words.tolist()
    return packed


def test_words_of_real_fields_are_those_of_the_definition():
    for name in NAMES:
        field = np.load(CROPS / f"{name}.npy").reshape(-1)[:40_000]
        assert check(field, 1e-3 * float(np.ptp(field))) is not None, name


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 1023, 1025, 33 * 1024 - 1, 300 * 1024 + 5])
def test_words_of_hard_arrays(n, dtype):
    random = np.random.default_rng(n)
    values = np.zeros(n, dtype)
    some = min(n, 30 * 1024)
    values[:some] = np.cumsum(random.standard_normal(some)) + (2**33 if dtype == np.float64 else 0)
    values[random.integers(0, some, some // 500 + 1)] = np.nan
    values[some // 2 : some // 2 + 3000] *= 1e5  # wide blocks
    values[some // 3 : some // 3 + 1500] = random.standard_normal(values[some // 3 :][:1500].size)
    values[some // 3 : some // 3 + 1100 : 2] = 1e36  # raw
    values[some // 4 : some // 4 + 2048] = np.inf  # one raw value, repeated
    packed = check(values, 1e-2)
    assert n < 33 * 1024 - 1 or packed is not None


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 60_000), st.integers(0, 2**32), st.sampled_from([np.float32, np.float64]),
    st.floats(0.1, 1e5), st.integers(0, 50),
)  # fmt: skip
def test_all_records_come_back(n, seed, dtype, scale, spoiled):
    random = np.random.default_rng(seed)
    values = (np.cumsum(random.standard_normal(n)) * scale).astype(dtype)
    values[random.integers(0, n, spoiled)] = random.choice(hostile.specials(dtype), spoiled)
    body = coded(values, 0.5)
    packed = packing.pack(body, n, np.dtype(dtype))
    if packed is not None:
        assert packed.size < body.nbytes // 4
        back = packing.unpack(packed, n, np.dtype(dtype))
        assert back.words.tolist() == body.words.tolist() and back.checksum == body.checksum


def entropy(counts):
    """Return the bits that symbols take at least, by how often each occurs."""
    counts = counts[counts > 0]
    return float((counts * np.log2(counts.sum() / counts)).sum())


def ideal_nbytes(body, n, dtype):
    """Return what the model of docs/format.md section 8 needs at least: bases take four bytes."""
    records = []
    for t, entry in enumerate(body.table.tolist()):
        at, nwords, kind = entry % 2**40, (entry >> 40) % 2**12, entry >> 52
        words = body.words[at : at + nwords].tolist()
        records.append(spec._read(kind, words, min(1024, n - 1024 * t), np.dtype(dtype), 1))
    differences = np.array([r.differences for r in records if any(r.differences)])
    blocks = differences.reshape(-1, 16)
    widths = np.array([spec._width(block) for block in blocks.tolist()])
    before = np.concatenate([[0], widths[:-1]])
    bits = 32.0 * len(records)
    for w in np.unique(before):
        bits += entropy(np.bincount(widths[before == w]))
    for w in range(1, widths.max() + 1):
        fields = blocks[widths == w].reshape(-1) + 2 ** (w - 1)
        low = max(w - 8, 0)
        bits += entropy(np.bincount(fields >> low)) + low * fields.size
    return bits / 8


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("relative", [1e-2, 1e-3, 1e-4])
def test_length_is_near_the_ideal(name, relative):
    field = np.load(CROPS / f"{name}.npy").reshape(-1)
    field = np.resize(field, (1 << 20) // field.itemsize)  # 1 MiB
    bound = relative * float(np.ptp(field))
    body = coded(field, bound)
    packed = packing.pack(body, field.size, field.dtype)
    assert packed is not None and packed.nbytes < body.nbytes
    ideal = ideal_nbytes(body, field.size, field.dtype)
    assert packed.nbytes <= 1.04 * ideal + 1024  # tables of a short array weigh more


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_damage_is_found(dtype):
    random = np.random.default_rng(3)
    values = np.cumsum(random.standard_normal(60_000)).astype(dtype)
    values[::3001] = np.nan
    values[5000:7000] = random.choice([1e36, 1, 2], 2000)
    body = coded(values, 1e-2)
    packed = packing.pack(body, values.size, values.dtype)
    for k in range(1500):
        spoiled = packed.copy()
        where = int(random.integers(0, packed.size if k % 3 else min(400, packed.size)))
        spoiled[where] ^= np.uint32(1 << int(random.integers(0, 32)))
        if k % 50 == 0:
            spoiled = packed[: int(random.integers(0, packed.size))]
        if k % 50 == 1:
            spoiled = random.integers(0, 2**32, packed.size, dtype=np.uint32)
            spoiled[:4] = packed[:4]
        try:
            back = packing.unpack(spoiled, values.size, values.dtype)
        except StreamError:
            continue
        # What no check finds here, the checksum of the stream does.
        assert back.checksum != body.checksum or back.words.tolist() == body.words.tolist()


def test_whole_streams_are_denser_and_equal():
    field = np.load(CROPS / "rtm_partial_images_f32.npy")
    field = np.resize(field, (8, *field.shape[-2:]))
    streams = {
        (predictor, coding): zccl.compress(
            field, 1e-3, "rel", options=zccl.Options(predictor=predictor, coding=coding)
        )
        for predictor in ("1d", "2d")
        for coding in ("fixed", "entropy")
    }
    assert len({zccl.decompress(stream).tobytes() for stream in streams.values()}) == 1
    for predictor in ("1d", "2d"):
        fixed, dense = streams[predictor, "fixed"], streams[predictor, "entropy"]
        assert dense.nbytes < fixed.nbytes
        info = zccl.inspect(dense)
        assert (info.predictor, info.coding) == (predictor, "entropy")
        total = zccl.reduce_streams(dense, fixed)
        assert zccl.inspect(total).coding == "entropy"
        np.testing.assert_allclose(
            zccl.decompress(total), 2 * zccl.decompress(fixed), rtol=1e-5, atol=1e-30
        )
    with pytest.raises(ValueError, match="predictors"):
        zccl.reduce_streams(streams["1d", "fixed"], streams["2d", "fixed"])
    spoiled = streams["2d", "entropy"].copy()
    spoiled[spoiled.size // 2] ^= 1
    with pytest.raises(StreamError):
        zccl.decompress(spoiled)


def test_every_option_can_be_set_from_outside():
    from zccl import config, options

    fields = [field.name for field in dataclasses.fields(zccl.Options)]
    assert sorted(options._PARSERS) == sorted(fields)
    assert sorted(config._OVERRIDES) == sorted([*fields, "algorithm"])
