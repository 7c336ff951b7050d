"""The CUDA kernels against the CPU kernels: equal bytes, equal values, equal refusals."""

import math
from pathlib import Path

import numpy as np
import pytest
from unit import forgery, hostile
from unit import test_kernels as cpu
from unit.test_kernels import assert_same_bits, assert_same_body, kinds

from zccl import errorbound
from zccl.formats import ESCAPES, LONG, RAW, SAME, SMALL, TILE, ZERO

pytestmark = pytest.mark.gpu

FIELDS = sorted(Path(__file__).parent.parent.glob("data/*.npy"))
DTYPES = [np.float32, np.float64]
OPS = ["sum", "max", "min"]
DAMAGED = 2


def check(device, values, step, bound, *, movement=True, ranks=1, rank=0, fill=None, shift=0):
    """Compress and decompress on both; returns the body."""
    n = values.size
    gpu = device(values.dtype)
    options = dict(movement=movement, ranks=ranks, rank=rank, fill=fill)
    wanted, raw = cpu.compress(values, step, bound, **options)
    body, gpu_raw = gpu.compress(values, step, bound, shift=shift, **options)
    assert_same_body(body, wanted)
    assert gpu_raw == raw
    assert gpu.verify(wanted, n) == (0, wanted.checksum)
    for divisor, reduced in [(1.0, False)] if movement else [(1.0, True), (3.0, True)]:
        decoded, _ = cpu.decompress(wanted, n, values.dtype, step, divisor=divisor, reduced=reduced)
        got, status, checksum = gpu.decompress(
            wanted, n, step, divisor=divisor, reduced=reduced, shift=shift
        )
        assert (status, checksum) == (0, wanted.checksum)
        assert_same_bits(got, decoded)
    return wanted


def check_hops(device, a_values, b_values, step, bound, ops=OPS, fill=None):
    """Reduce two rows on both, from streams and from values and a stream."""
    n, dtype = a_values.size, a_values.dtype
    gpu = device(dtype)
    for op in ops:
        ranks = 2 if op == "sum" else 1
        a, a_raw = cpu.compress(
            a_values, step, bound, movement=False, ranks=ranks, rank=ranks - 1, fill=fill
        )
        b, _ = cpu.compress(b_values, step, bound, movement=False, ranks=ranks, fill=fill)
        for keep_small in (True, False):
            wanted, status = cpu.combine(a, b, op, n, dtype, step, keep_small=keep_small)
            assert status == 0
            body, status = gpu.combine(a, b, OPS.index(op), n, step, keep_small=keep_small)
            assert status == 0
            assert_same_body(body, wanted)
        wanted, _ = cpu.combine(a, b, op, n, dtype, step)
        body, status, raw = gpu.combine_with_values(
            a_values, b, OPS.index(op), step, ranks=ranks, rank=ranks - 1, fill=fill
        )
        assert (status, raw) == (0, a_raw)
        assert_same_body(body, wanted)
        decoded, _ = cpu.decompress(wanted, n, dtype, step, reduced=True)
        got, status, checksum = gpu.decompress(wanted, n, step, reduced=True)
        assert (status, checksum) == (0, wanted.checksum)
        assert_same_bits(got, decoded)


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: path.stem)
def test_fields(device, path):
    field = np.load(path).ravel()
    for dtype in DTYPES:
        values = field.astype(dtype)
        finite = values[np.isfinite(values)].astype(np.float64)
        spread = float(finite.max() - finite.min())
        for relative in (1e-2, 1e-3, 1e-4, 1e-6):
            bound = relative * spread
            step = errorbound.grid_step(bound, np.dtype(dtype))
            check(device, values, step, bound)
            check(device, values, step, bound, movement=False, ranks=8, rank=3)
            aligned = errorbound.aligned_step(float(abs(finite).max()), bound, np.dtype(dtype))
            if aligned:
                check(device, values, aligned, bound)
        step = errorbound.grid_step(1e-3 * spread, np.dtype(dtype))
        check_hops(device, values, values[::-1].copy(), step, 1e-3 * spread)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_size(device, dtype):
    for n in [*hostile.SIZES, 8191, 8192, 8193, 20_000]:
        for seed, recipe in enumerate(["walk", "wide"]):
            values = hostile.make(recipe, "one special", dtype, n, seed)
            check(device, values, hostile.step_for(1e-3, dtype), 1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("recipe", sorted(hostile.RECIPES))
def test_hostile(device, dtype, recipe):
    for damage in sorted(hostile.DAMAGES):
        values = hostile.make(recipe, damage, dtype, 5040, 7)
        bound = 1e-43 if recipe == "subnormal" else 1e-4
        step = hostile.step_for(bound, dtype)
        for fill in (None, cpu.fill_in(1e36, dtype)):
            check(device, values, step, bound, fill=fill)
            for ranks in (1, 1000, 2**20):
                options = dict(movement=False, ranks=ranks, rank=ranks - 1, fill=fill)
                check(device, values, step, bound, **options)
        other = hostile.make("walk", "runs", dtype, 5040, 8)
        check_hops(device, values, other, step, bound)
        check_hops(device, other, values, step, bound, ["sum"], cpu.fill_in(1e36, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds(device, dtype):
    for bound in cpu.BOUNDS:
        for recipe in ("noise", "walk", "offset", "sine"):
            values = hostile.make(recipe, "some specials", dtype, 9000, 3)
            check(device, values, hostile.step_for(bound, dtype), bound)


@pytest.mark.parametrize("dtype", DTYPES)
def test_unaligned_addresses(device, dtype):
    values = hostile.make("walk", "some specials", dtype, 9000, 3)
    for shift in (1, 2, 3):
        check(device, values, hostile.step_for(1e-3, dtype), 1e-3, shift=shift)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_width(device, dtype):
    widths = range(28) if dtype == np.float32 else range(32)
    rows = [cpu.codes_of_width(w) for w in widths]
    body = check(device, np.concatenate(rows).astype(dtype), 1.0, 0.5)
    assert not (kinds(body) & RAW).any()
    for other in (rows, rows[::-1]):
        check_hops(
            device, np.concatenate(rows).astype(dtype), np.concatenate(other).astype(dtype) / 2,
            1.0, 0.5, ["sum"],
        )  # fmt: skip


def test_long_bases(device):
    values = np.cumsum(np.random.default_rng(1).standard_normal(9000)) + np.repeat(
        [0, 2**33, -(2**35), 2**39, 2**31, -(2**31), 5, -(2**31) + 0.5, 2**40], 1000
    )
    body = check(device, values, 1.0, 0.5)
    assert (kinds(body) & LONG).any()
    check_hops(device, values, values[::-1].copy(), 1.0, 0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 50, 100, 127, 128, 129, 200, 500, 1022, 1023, 1024])
def test_specials_in_a_tile(device, dtype, count):
    rng = np.random.default_rng(count)
    values = np.cumsum(rng.standard_normal(3500)).astype(dtype)
    where = rng.permutation(TILE)[:count]
    cpu.bits(values)[where] = rng.choice(cpu.bits(hostile.specials(dtype)), count)
    check(device, values, hostile.step_for(1e-2, dtype), 1e-2)
    check_hops(device, values, values[::-1].copy(), hostile.step_for(1e-2, dtype), 1e-2)
    check_hops(device, values, values, hostile.step_for(1e-2, dtype), 1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_and_repeated_bits(device, dtype):
    for special in [*hostile.specials(dtype), 0.0, 3.25]:
        values = np.full(2 * TILE + 5, special, dtype)
        check(device, values, hostile.step_for(1e-3, dtype), 1e-3)
        check_hops(device, values, values, hostile.step_for(1e-3, dtype), 1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_bits(device, dtype):
    rng = np.random.default_rng(2)
    words = rng.integers(0, 2**32, 30_000, dtype=np.uint32)
    values = words.view(dtype)
    for bound in (1e-30, 1e-3, 1e10):
        check(device, values, hostile.step_for(bound, dtype), bound)
        check_hops(device, values, values[::-1].copy(), hostile.step_for(bound, dtype), bound)


@pytest.mark.parametrize("dtype", DTYPES)
def test_usual_tiles_stay_quick(device, dtype):
    """Few escapes, a named fill, fine bounds and extremes need no exact kernel."""
    gpu = device(dtype)
    cupy = gpu.cupy
    n = 64 * TILE
    rng = np.random.default_rng(6)
    clean = np.cumsum(rng.standard_normal(n)).astype(dtype)
    spoilt = clean.copy()
    spoilt[rng.permutation(n)[: n // 3000]] = np.nan
    gaps = clean.copy()
    gaps[rng.permutation(n)[: n // 500]] = -9999
    result = gpu.result.data.ptr
    pointers = gpu.work.data.ptr, result

    def left(sequence):
        assert len(sequence.launches) == 2
        sequence.launches[0](0)
        cupy.cuda.runtime.deviceSynchronize()
        count = int(gpu.work[8:16].view(np.int64).get()[0])
        sequence.launches[1](0)
        cupy.cuda.runtime.deviceSynchronize()
        return count

    streams = []
    for values, bound, fill, movement in [
        (spoilt, 1e-2, math.nan, True), (gaps, 1e-2, -9999.0, True),
        (clean, 1e-3 if dtype == np.float32 else 1e-5, math.nan, True),
        (spoilt, 1e-2, math.nan, False), (clean, 1e-2, math.nan, False),
    ]:  # fmt: skip
        x, (table, words) = gpu.upload(values), gpu.room(n)
        step = hostile.step_for(bound, dtype)
        count = left(gpu.rows.compress(
            x.data.ptr, n, step, bound, movement, 1, 0, fill, table.data.ptr, words.data.ptr,
            *pointers,
        ))  # fmt: skip
        assert (count > 0) == (values is spoilt)  # the exact kernel is quicker at certain escapes
        streams.append((table.data.ptr, words.data.ptr, int(gpu.result[0]), table, words))
    step = hostile.step_for(1e-2, dtype)
    out, (table, words) = cupy.zeros(n, dtype), gpu.room(n)
    for reduced in (False, True):
        assert not left(gpu.rows.decompress(
            *streams[0][:3], step, 1.0, reduced, out.data.ptr, n, *pointers
        ))  # fmt: skip
    own = cupy.zeros(gpu.rows.own_nbytes(n), np.uint8)
    target = table.data.ptr, words.data.ptr, *pointers
    for op, a, values in [(0, 3, spoilt), (1, 4, clean), (2, 4, clean)]:
        x = gpu.upload(values)
        assert not left(
            gpu.rows.combine(op, n, step, True, *streams[a][:3], *streams[4][:3], *target)
        )
        assert not left(gpu.rows.combine_with_values(
            op, x.data.ptr, n, step, 2, 1, math.nan, own.data.ptr, *streams[a][:3], *target
        ))  # fmt: skip


def test_many_tiles(device):
    """More tiles than the second kernels have warps, in shuffled order of kinds."""
    rng = np.random.default_rng(4)
    n = 20_000 * TILE + 77
    values = np.cumsum(rng.standard_normal(n)).astype(np.float32)
    values[rng.integers(0, n, n // 3000)] = np.nan
    values[n // 2 : n // 2 + 500 * TILE] = 1e36
    bound = 1e-4 * 2000
    body = check(device, values, hostile.step_for(bound, np.float32), bound)
    seen = set(kinds(body).tolist())
    assert {SMALL, SMALL | ESCAPES, RAW | SAME} <= seen
    check_hops(
        device, values, values[::-1].copy(), hostile.step_for(bound, np.float32), bound, ["sum"]
    )


def test_shares(device):
    """Several streams in one launch are those of several launches."""
    gpu = device(np.float32)
    cupy = gpu.cupy
    n, share = 50_000, 9 * TILE
    values = hostile.make("walk", "some specials", np.float32, n, 5)
    step = hostile.step_for(1e-3, np.float32)
    shares = -(-n // share)
    room = (share + 64) * 4
    table = cupy.zeros((shares, 16), np.uint64)
    words = cupy.zeros((shares, room // 4), np.uint32)
    work = cupy.zeros((shares, gpu.module.work_nbytes(share)), np.uint8)
    result = cupy.zeros((shares, 4), np.int64)
    gpu.rows.compress(
        gpu.upload(values).data.ptr, n, step, 1e-3, True, 1, 0, math.nan, table.data.ptr,
        words.data.ptr, work.data.ptr, result.data.ptr, share=share,
        strides=(table.strides[0], words.strides[0], work.strides[0], result.strides[0]),
    )(0)  # fmt: skip
    cupy.cuda.runtime.deviceSynchronize()
    for s in range(shares):
        part = values[s * share : (s + 1) * share]
        wanted, raw = cpu.compress(part, step, 1e-3, movement=True)
        nwords, checksum, status, got_raw = result[s].get().tolist()
        got_table = table[s].get()[: wanted.table.size]
        got = cpu.spec.Body(*gpu.in_order(got_table, words[s].get()), checksum % 2**64)
        assert_same_body(got, wanted)
        assert (nwords, status, got_raw) == (wanted.words.size, 0, raw)


@pytest.mark.parametrize("dtype", DTYPES)
def test_value_range(device, dtype):
    from zccl.kernels.cpu.value_range import value_range

    gpu = device(dtype)
    rng = np.random.default_rng(3)
    for n in (0, 1, 2, 5, 1000, 1_000_003):
        for damage in ("nothing", "some specials", "all NaN"):
            damage = damage if damage in hostile.DAMAGES else sorted(hostile.DAMAGES)[0]
            values = hostile.make("walk", damage, dtype, n, int(rng.integers(1000)))
            for fill in (math.nan, -9999.0):
                for shift in (0, 1):
                    got = gpu.value_range(values, fill, shift)
                    assert got == tuple(value_range(values, fill))


@pytest.mark.parametrize("value_words", [1, 2])
def test_forged_streams_are_refused_alike(device, value_words):
    dtype = DTYPES[value_words - 1]
    gpu = device(dtype)
    rng = np.random.default_rng(11)
    seen = set()
    for _ in range(300):
        n = int(rng.choice([5, 1024, 3000, 5 * 1024]))
        table, words = forgery.forge_body(rng, n, value_words)
        words = words.astype(np.uint32)
        body = cpu.spec.Body(table, words, forgery.body_checksum(table, words))
        _, wrong = cpu.decompress(body, n, dtype, 0.5)
        _, status, checksum = gpu.decompress(body, n, 0.5)
        assert bool(wrong) == (status == DAMAGED)
        verified, sum_found = gpu.verify(body, n)
        assert bool(wrong) == (verified == DAMAGED)
        if not wrong:
            assert checksum == sum_found == body.checksum
        _, cpu_status = cpu.combine(body, body, "sum", n, dtype, 0.5)
        _, gpu_status = gpu.combine(body, body, 0, n, 0.5)
        assert {0: 0, 1: DAMAGED, 2: 1}[cpu_status] == gpu_status
        seen.add((bool(wrong), cpu_status))
    assert len(seen) >= 3


def test_damaged_streams(device):
    gpu = device(np.float32)
    rng = np.random.default_rng(12)
    values = hostile.make("walk", "some specials", np.float32, 20_000, 5)
    step = hostile.step_for(1e-3, np.float32)
    body, _ = cpu.compress(values, step, 1e-3, movement=True)
    for _ in range(300):
        table, words = body.table.copy(), body.words.copy()
        forgery.forge_words(rng, table, words)
        damaged = cpu.spec.Body(table, words, body.checksum)
        _, wrong = cpu.decompress(damaged, values.size, np.float32, step)
        status, checksum = gpu.verify(damaged, values.size)
        assert bool(wrong) == (status != 0 or checksum != body.checksum)
        _, status, checksum = gpu.decompress(damaged, values.size, step)
        assert bool(wrong) == (status != 0 or checksum != body.checksum)


def test_kinds_are_all_seen(device):
    """The cases above are worth something only if they reach every kind of tile."""
    rng = np.random.default_rng(9)
    values = np.concatenate([
        np.zeros(TILE), rng.standard_normal(TILE), np.full(TILE, np.nan),
        rng.standard_normal(TILE) * 1e30, np.where(rng.random(TILE) < 0.02, np.nan, 1.0),
    ]).astype(np.float32)  # fmt: skip
    body = check(device, values, hostile.step_for(1e-3, np.float32), 1e-3)
    wanted = [ZERO | SMALL, SMALL, RAW | SAME, RAW, ZERO | SMALL | ESCAPES]
    assert kinds(body).tolist() == wanted
