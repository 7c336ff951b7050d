"""MAX and MIN of tiles that are coded without escapes; others go on the list for `combine_rest`.

Codes stand for multiples of one step, so that the larger code is the larger value. One warp owns a
tile of both operands, each in shared memory of its own:

    record of a   staged -> codes of L0: 0..31 | L1: 32..63 | ... | L31, put back in its place
    record of b   staged -> codes in registers, compared to those of a
    winners       differences, packed in the place of a, written as by `combine`

`make_with_values` has values in the place of a, quantised as `compress` does.
"""

import numpy as np

from zccl.formats import SMALL, TILE, ZERO
from zccl.kernels.cuda._compat import ALL, cuda, device, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    load_4_shared,
    load_i64_in_place,
    max_i32,
    min_i32,
    shift_left,
    sum_of_lanes,
    wait_for_previous,
)
from zccl.kernels.cuda.blocks import offset_of, unpack_blocks
from zccl.kernels.cuda.checksum import fetch_record
from zccl.kernels.cuda.columns import end_group, wait_for_all
from zccl.kernels.cuda.decompress import integrate, is_quick, read_head
from zccl.kernels.cuda.hop import MAX
from zccl.kernels.cuda.quantise import QUANTISE_TILE, difference_run, largest_code
from zccl.kernels.cuda.record import (
    HEAD,
    place_of_blocks,
    put_quick,
    quick_nwords,
    split_entry,
)
from zccl.kernels.cuda.turning import put_run, run_place
from zccl.kernels.cuda.widths import widths_of
from zccl.kernels.cuda.writing import reserve, write_tiles

WARPS = 4
ROOM = WARPS * 2 * TILE + 4
REACH = 2**27  # codes within it of a base within it are within 2^29 - 1 of each other

_i, _d, _w = types.int64, types.float64, types.int32
SIGNATURE = (_w, _i, _w, _w, _i, _i, _i, _i, _i, _i, _i, _i, _i)
VALUES_SIGNATURE = (_w, _i, _i, _d, _d, _w, _w, _i, _i, _i, _i, _i, _i)


@device
def is_near(first, second, base, kind):
    """Whether all codes of a tile are near 0, for all that kind and widths say.

    A block of width w is 16 steps of at most 2^(w - 1); here in units of 2^12, rounded up.
    """
    own = u32(u32(shift_left(u32(1), first) >> u32(9)) + u32(1))
    own = u32(own + u32(u32(shift_left(u32(1), second) >> u32(9)) + u32(1)))
    reached = sum_of_lanes(own)
    near = reached < u32(REACH >> 12) and base < i32(REACH) and base > i32(-REACH)
    return near or (kind & i32(SMALL)) != i32(0)


@device
def take_codes(words, at, kind, nwords, d, lane):
    """Decode a staged record; returns whether that is possible here."""
    first, second, before, due = read_head(words, at, kind, lane)
    base = i32(words[u32(at)])
    possible = due == nwords and is_near(first, second, base, kind)
    half = i32(i32(i32(at + i32(HEAD)) << i32(1)) + before)
    unpack_blocks(words, half, d, first, second, offset_of(first), offset_of(second), False)
    integrate(d, lane)
    for j in range(32):
        d[j] = i32(d[j] + base)
    return possible


@device
def keep_winners(op, words, at, lane, d):
    """Compare a lane's run of codes to that in a shared array; returns the largest size."""
    largest = i32(0)
    for k in range(8):
        a, b, c, e = load_4_shared(words, i32(at + run_place(k, lane)))
        if op == i32(MAX):
            d[4 * k] = max_i32(d[4 * k], a)
            d[4 * k + 1] = max_i32(d[4 * k + 1], b)
            d[4 * k + 2] = max_i32(d[4 * k + 2], c)
            d[4 * k + 3] = max_i32(d[4 * k + 3], e)
        else:
            d[4 * k] = min_i32(d[4 * k], a)
            d[4 * k + 1] = min_i32(d[4 * k + 1], b)
            d[4 * k + 2] = min_i32(d[4 * k + 2], c)
            d[4 * k + 3] = min_i32(d[4 * k + 3], e)
    for j in range(32):
        largest = max_i32(largest, max_i32(d[j], i32(-d[j])))
    return largest


@device
def kind_of(largest, small_code, halves):
    """Kind of a tile without escapes."""
    kind = i32(0)
    if halves == i32(0):
        kind = i32(ZERO)
    if cuda.all_sync(ALL, largest <= small_code):
        kind = i32(kind | i32(SMALL))
    return kind


def extremes_tiles(
    op, n, allowed, small_code,
    table_a, words_a, nwords_a,
    table_b, words_b, nwords_b,
    table, words, work,
):  # fmt: skip
    """Keep the larger or smaller one of each two values of two streams on one grid.

    Parameters
    ----------
    op : 1 maximum, 2 minimum
    small_code : largest size of a code in a SMALL tile, negative where there are none
    others : as for `combine_tiles`
    """
    wait_for_previous()
    tile_words = cuda.shared.array(ROOM, u32, alignment=16)
    sizes = cuda.shared.array(WARPS, i32)
    first_word = cuda.shared.array(1, i64)
    sums = cuda.shared.array(WARPS, i64)
    lane = i32(i32(cuda.threadIdx.x) & i32(31))
    warp = i32(i32(cuda.threadIdx.x) >> i32(5))
    at = i32(warp << i32(10))
    at_b = i32(at + i32(WARPS * TILE))
    tile = i32(i32(i32(cuda.blockIdx.x) * i32(WARPS)) + warp)
    d = cuda.local.array(32, i32)
    base = i32(0)
    nwords = i32(0)
    kind = i32(0)
    first = i32(0)
    second = i32(0)
    before = i32(0)
    halves = i32(0)
    if (i64(tile) + i64(1)) * i64(TILE) <= n:
        place_a, size_a, kind_a = split_entry(load_i64_in_place(table_a + i64(8) * i64(tile)))
        place_b, size_b, kind_b = split_entry(load_i64_in_place(table_b + i64(8) * i64(tile)))
        quick_a = is_quick(place_a, size_a, kind_a, nwords_a, allowed)
        quick_b = is_quick(place_b, size_b, kind_b, nwords_b, allowed)
        if quick_a & quick_b:
            fetch_record(tile_words, at, size_a, words_a + i64(4) * place_a, lane)
            fetch_record(tile_words, at_b, size_b, words_b + i64(4) * place_b, lane)
            end_group()
            wait_for_all()
            cuda.syncwarp()
            possible_a = take_codes(tile_words, at, kind_a, size_a, d, lane)
            cuda.syncwarp()
            put_run(tile_words, at, lane, d)
            possible_b = take_codes(tile_words, at_b, kind_b, size_b, d, lane)
            largest = keep_winners(op, tile_words, at, lane, d)
            cuda.syncwarp()
            base = difference_run(d, lane)
            first, second = widths_of(d)
            before, halves = place_of_blocks(first, second, lane)
            if possible_a and possible_b:
                nwords = quick_nwords(halves)
                kind = kind_of(largest, small_code, halves)
    reserve(WARPS, sizes, first_word, nwords, tile, n, work)
    if nwords > i32(0):
        put_quick(tile_words, at, lane, base, d, first, second, before, halves)
    write_tiles(WARPS, tile_words, sizes, first_word, sums, tile, nwords, kind, table, words, work)


def make_with_values(value_words):
    """Return the kernel for float32 (1) or float64 (2) values and a stream."""
    quantise_tile = QUANTISE_TILE[value_words]
    value_nbytes = np.int64(4 * value_words)

    def extremes_with_values(
        op, values, n, inverse, quick_code, allowed, small_code,
        table_b, words_b, nwords_b, table, words, work,
    ):  # fmt: skip
        """Keep the larger or smaller ones of values, quantised on the fly, and a stream.

        Parameters
        ----------
        values, n, inverse, quick_code : as for `compress_tiles`
        others : as for `extremes_tiles`
        """
        wait_for_previous()
        tile_words = cuda.shared.array(ROOM, u32, alignment=16)
        sizes = cuda.shared.array(WARPS, i32)
        first_word = cuda.shared.array(1, i64)
        sums = cuda.shared.array(WARPS, i64)
        lane = i32(i32(cuda.threadIdx.x) & i32(31))
        warp = i32(i32(cuda.threadIdx.x) >> i32(5))
        at = i32(warp << i32(10))
        at_b = i32(at + i32(WARPS * TILE))
        tile = i32(i32(i32(cuda.blockIdx.x) * i32(WARPS)) + warp)
        start = i64(tile) * i64(TILE)
        d = cuda.local.array(32, i32)
        base = i32(0)
        nwords = i32(0)
        kind = i32(0)
        first = i32(0)
        second = i32(0)
        before = i32(0)
        halves = i32(0)
        if start + i64(TILE) <= n:
            place_b, size_b, kind_b = split_entry(load_i64_in_place(table_b + i64(8) * i64(tile)))
            quick = is_quick(place_b, size_b, kind_b, nwords_b, allowed)
            if quick:
                fetch_record(tile_words, at_b, size_b, words_b + i64(4) * place_b, lane)
                end_group()
            address = values + start * value_nbytes
            top = largest_code(quantise_tile(address, lane, inverse, tile_words, at), inverse)
            wait_for_all()
            cuda.syncwarp()
            if quick and cuda.all_sync(ALL, top <= quick_code):
                possible = take_codes(tile_words, at_b, kind_b, size_b, d, lane)
                largest = keep_winners(op, tile_words, at, lane, d)
                cuda.syncwarp()
                base = difference_run(d, lane)
                first, second = widths_of(d)
                before, halves = place_of_blocks(first, second, lane)
                if possible:
                    nwords = quick_nwords(halves)
                    kind = kind_of(largest, small_code, halves)
        reserve(WARPS, sizes, first_word, nwords, tile, n, work)
        if nwords > i32(0):
            put_quick(tile_words, at, lane, base, d, first, second, before, halves)
        write_tiles(
            WARPS, tile_words, sizes, first_word, sums, tile, nwords, kind, table, words, work
        )

    return extremes_with_values
