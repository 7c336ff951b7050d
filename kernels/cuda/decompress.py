"""Decompression of full coded tiles with few escapes; others go on the list for `decompress_rest`.

The way of `compress` backwards, one warp a tile:

    record    staged in shared memory, 32 words a step, summed for the checksum on the way
    run       L0: 0..31   L1: 32..63   ...     unpacked and integrated: codes
    values    row 0 |L0 |L1 |  ...  |L31|      codes turned, scaled, 16 bytes a lane
"""

from zccl.formats import ESCAPES, SMALL, TILE, ZERO
from zccl.kernels.cuda._compat import cuda, device, f64, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    div_f64,
    fma_f64,
    i32_to_f32,
    i64_to_f64,
    load_2_shared,
    load_4_shared,
    load_i64,
    min_i32,
    mul_f32,
    mul_f64,
    shift_left,
    shifted_code,
    store_2_f64,
    store_4_f32,
    sum_of_lanes,
    to_f32,
    wait_for_previous,
)
from zccl.kernels.cuda.blocks import offset_of, unpack_blocks
from zccl.kernels.cuda.checksum import stage_record, tile_checksum
from zccl.kernels.cuda.patching import PATCH
from zccl.kernels.cuda.placement import add_checksums, leave
from zccl.kernels.cuda.record import HEAD, place_of_blocks, quick_nwords, split_entry
from zccl.kernels.cuda.turning import half_row_place, put_run, row_place
from zccl.kernels.cuda.warp import running_sum, sum_64
from zccl.kernels.cuda.widths import get_widths

WARPS = 4
ROOM = WARPS * TILE + 4

_i, _d = types.int64, types.float64
SIGNATURE = (_i, _i, _d, _d, types.int32, _i, _i, _i, _i)


@device
def is_quick(first, nwords, kind, total_nwords, allowed):
    """Whether an entry is that of a coded record without rare features that lies in the stream."""
    inside = (first + i64(nwords) <= total_nwords) & (u32(i32(nwords - i32(1))) < u32(TILE))
    return inside & ((kind & ~allowed) == i32(0))


@device
def read_head(words, at, kind, lane):
    """Widths of a lane's blocks of a staged record, their place and the words that are due.

    A ZERO record has widths 0, and unpacks to zeros whatever lies behind it.
    """
    first = i32(0)
    second = i32(0)
    if (kind & i32(ZERO)) == i32(0):
        first, second = get_widths(words, i32(at + i32(1)), lane)
    before, halves = place_of_blocks(first, second, lane)
    due = quick_nwords(halves)
    if (kind & i32(ZERO)) == i32(0) and halves == i32(0):
        due = i32(HEAD)
    return first, second, before, due


@device
def has_due_length(nwords, due, kind):
    """Whether a record is as long as its widths say; a list of escapes is looked at later."""
    if (kind & i32(ESCAPES)) != i32(0):
        return due < nwords
    return due == nwords


@device
def may_wrap(first, second):
    """Whether distances from the base may leave 31 bits, for all that the widths say."""
    own = u32(shift_left(u32(8), min_i32(first, i32(22))))
    own = u32(own + shift_left(u32(8), min_i32(second, i32(22))))
    return sum_of_lanes(own) >= u32(1 << 30)


@device
def integrate(d, lane):
    """Turn a lane's differences into distances from the base."""
    for j in range(1, 32):
        d[j] = i32(d[j] + d[j - 1])
    before = i32(running_sum(d[31], lane) - d[31])
    for j in range(32):
        d[j] = i32(before + d[j])


@device
def store_small_f32(out, words, at, lane, base, step):
    """Scale codes of at most 24 bits in float32: the step is a float32 number."""
    scale = to_f32(step)
    target = out + i64(lane) * i64(16)
    for row in range(8):
        a, b, c, d = load_4_shared(words, i32(at + row_place(row, lane)))
        store_4_f32(
            target + i64(512 * row),
            mul_f32(i32_to_f32(i32(base + a)), scale), mul_f32(i32_to_f32(i32(base + b)), scale),
            mul_f32(i32_to_f32(i32(base + c)), scale), mul_f32(i32_to_f32(i32(base + d)), scale),
        )  # fmt: skip


@device
def scaled(distance, shifted_base, step):
    """Return (base + distance) * step in float64."""
    return mul_f64(shifted_code(distance, shifted_base), step)


@device
def store_f32(out, words, at, lane, base, step):
    """Scale any codes in float64 and round."""
    shifted = i64_to_f64(i64(base)) - f64(4503601774854144.0)  # 2^52 + 2^31
    target = out + i64(lane) * i64(16)
    for row in range(8):
        a, b, c, d = load_4_shared(words, i32(at + row_place(row, lane)))
        store_4_f32(
            target + i64(512 * row),
            to_f32(scaled(a, shifted, step)), to_f32(scaled(b, shifted, step)),
            to_f32(scaled(c, shifted, step)), to_f32(scaled(d, shifted, step)),
        )  # fmt: skip


@device
def quotient(a, divisor, inverse):
    """Return a / divisor, rounded once: the second correction of a quotient is exact to the bit.

    `inverse` is 1 / divisor, rounded. Nothing may underflow on the way, which the caller sees to.
    """
    q = mul_f64(a, inverse)
    q = fma_f64(fma_f64(-q, divisor, a), inverse, q)
    return fma_f64(fma_f64(-q, divisor, a), inverse, q)


@device
def store_divided_f32(out, words, at, lane, base, step, divisor):
    """Scale, divide and round."""
    shifted = i64_to_f64(i64(base)) - f64(4503601774854144.0)
    inverse = div_f64(f64(1), divisor)
    target = out + i64(lane) * i64(16)
    for row in range(8):
        a, b, c, d = load_4_shared(words, i32(at + row_place(row, lane)))
        store_4_f32(
            target + i64(512 * row),
            to_f32(quotient(scaled(a, shifted, step), divisor, inverse)),
            to_f32(quotient(scaled(b, shifted, step), divisor, inverse)),
            to_f32(quotient(scaled(c, shifted, step), divisor, inverse)),
            to_f32(quotient(scaled(d, shifted, step), divisor, inverse)),
        )


@device
def store_f64(out, words, at, lane, base, step, divisor, divides):
    """Scale to float64, and divide where `divides`, a constant, says so."""
    shifted = i64_to_f64(i64(base)) - f64(4503601774854144.0)
    inverse = f64(0)
    if divides:
        inverse = div_f64(f64(1), divisor)
    target = out + i64(lane) * i64(16)
    for row in range(16):
        a, b = load_2_shared(words, i32(at + half_row_place(row, lane)))
        x = scaled(a, shifted, step)
        y = scaled(b, shifted, step)
        if divides:
            x = quotient(x, divisor, inverse)
            y = quotient(y, divisor, inverse)
        store_2_f64(target + i64(512 * row), x, y)


def _make_store(value_words, divides):
    if value_words == 2:

        @device
        def store(out, words, at, lane, base, kind, step, divisor):
            store_f64(out, words, at, lane, base, step, divisor, divides)

    elif divides:

        @device
        def store(out, words, at, lane, base, kind, step, divisor):
            store_divided_f32(out, words, at, lane, base, step, divisor)

    else:

        @device
        def store(out, words, at, lane, base, kind, step, divisor):
            if (kind & i32(SMALL)) != i32(0):
                store_small_f32(out, words, at, lane, base, step)
            else:
                store_f32(out, words, at, lane, base, step)

    return store


def make(value_words, divides=False):
    """Return the kernel for float32 (1) or float64 (2) values, with a divisor or without."""
    store = _make_store(value_words, divides)
    patch = PATCH[value_words]
    allowed = ZERO | SMALL | ESCAPES if value_words == 1 else ZERO | ESCAPES

    def decompress_tiles(out, n, step, divisor, reduced, table, words, total_nwords, work):
        """Decompress tiles that need no rare feature but a few escapes, checking their lengths.

        Parameters
        ----------
        out, n : address and number of the values, written; the address is a multiple of 16
        step, divisor, reduced : as for the CPU kernel
        table, words, total_nwords : addresses of table and records, words that belong to the stream
        work : address of a work area
        """
        wait_for_previous()
        tile_words = cuda.shared.array(ROOM, u32, alignment=16)
        sums = cuda.shared.array(WARPS, i64)
        thread = i32(cuda.threadIdx.x)
        lane = i32(thread & i32(31))
        warp = i32(thread >> i32(5))
        at = i32(warp << i32(10))
        tile = i32(i32(i32(cuda.blockIdx.x) * i32(WARPS)) + warp)
        start = i64(tile) * i64(TILE)
        found = i64(0)
        if start < n:
            place, nwords, kind = split_entry(load_i64(table + i64(8) * i64(tile)))
            quick = is_quick(place, nwords, kind, total_nwords, i32(allowed))
            quick = quick and start + i64(TILE) <= n
            if quick:
                found = stage_record(tile_words, at, nwords, words + i64(4) * place, lane)
                cuda.syncwarp()
                first, second, before, due = read_head(tile_words, at, kind, lane)
                quick = has_due_length(nwords, due, kind)
                if (kind & i32(SMALL)) == i32(0):
                    quick = quick and not may_wrap(first, second)
                if quick:
                    d = cuda.local.array(32, i32)
                    base = i32(tile_words[u32(at)])
                    half = i32(i32(i32(at + i32(HEAD)) << i32(1)) + before)
                    unpack_blocks(
                        tile_words, half, d, first, second, offset_of(first), offset_of(second),
                        False,
                    )  # fmt: skip
                    integrate(d, lane)
                    cuda.syncwarp()
                    put_run(tile_words, at, lane, d)
                    cuda.syncwarp()
                    address = out + start * i64(4 * value_words)
                    store(address, tile_words, at, lane, base, kind, step, divisor)
                    if (kind & i32(ESCAPES)) != i32(0):
                        quick = patch(
                            address, words + i64(4) * (place + i64(due)), i32(nwords - due),
                            tile_words, at, base, step, divisor, reduced != i32(0), lane,
                        )  # fmt: skip
                    found = tile_checksum(sum_64(found), nwords, kind, tile)
            if not quick:
                found = i64(0)
                if lane == i32(0):
                    leave(work, tile)
        if lane == i32(0):
            sums[u32(warp)] = found
        cuda.syncthreads()
        if thread == i32(0):
            add_checksums(sums, WARPS, work)

    return decompress_tiles
