"""Sums of tiles that are coded without escapes; others go on the list for `combine_rest`.

One warp owns a tile of both operands; differences never leave the registers of their lane:

    record of a   staged in shared memory -> L0: 0..31 | L1: 32..63 | ... | L31
    record of b   loaded meanwhile, staged in the same place, added to them
    result        packed there, placed with one atomic a block, written in rows

`make_with_values` has values in the place of a, quantised as `compress` does.
"""

import numpy as np

from zccl.formats import SMALL, TILE, ZERO
from zccl.kernels.cuda._compat import ALL, cuda, device, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    load_column,
    load_i64_in_place,
    max_i32,
    shared_address,
    store_column_shared,
)
from zccl.kernels.cuda.blocks import offset_of, unpack_blocks
from zccl.kernels.cuda.checksum import stage_record
from zccl.kernels.cuda.decompress import is_quick, read_head
from zccl.kernels.cuda.quantise import QUANTISE_TILE, difference_run, largest_code
from zccl.kernels.cuda.record import HEAD, place_of_blocks, quick_nwords, split_entry
from zccl.kernels.cuda.turning import take_run
from zccl.kernels.cuda.widths import widths_of
from zccl.kernels.cuda.writing import write_tiles

WARPS = 4
ROOM = WARPS * TILE + 4

_i, _d, _w = types.int64, types.float64, types.int32
SIGNATURE = (_i, _w, _w, _i, _i, _i, _i, _i, _i, _i, _i, _i)
VALUES_SIGNATURE = (_i, _i, _d, _d, _d, _w, _i, _i, _i, _i, _i, _i)


@device
def stage_held(words, at, held, nwords, address, lane):
    """Put a record into a shared array; `held` has the first eight words of each lane."""
    target = shared_address(words, i32(at + lane))
    source = address + i64(4) * i64(lane)
    left = i32(nwords - lane)
    while True:
        a, b, c, d, e, f, g, h = held
        store_column_shared(target, left, a, b, c, d, e, f, g, h)
        left = i32(left - i32(256))
        if left <= i32(0):
            break
        source += i64(1024)
        target = i32(target + i32(1024))
        held = load_column(source, left)


@device
def take_staged(words, at, kind, nwords, d, lane):
    """Unpack a staged record, offsets of its fields included, into `d`.

    Returns (whether its length is right, base, offsets of the lane's two blocks): who adds the next
    record takes the offsets of both away at once.
    """
    first, second, before, due = read_head(words, at, kind, lane)
    base = i32(words[u32(at)])
    half = i32(i32(i32(at + i32(HEAD)) << i32(1)) + before)
    unpack_blocks(words, half, d, first, second, i32(0), i32(0), False)
    return due == nwords, base, offset_of(first), offset_of(second)


@device
def add_staged(words, at, kind, nwords, d, first_bias, second_bias, lane):
    """Add a staged record to `d` and take a bias from the values of each block.

    Returns (whether its length is right, base).
    """
    first, second, before, due = read_head(words, at, kind, lane)
    base = i32(words[u32(at)])
    half = i32(i32(i32(at + i32(HEAD)) << i32(1)) + before)
    first_bias = i32(first_bias + offset_of(first))
    second_bias = i32(second_bias + offset_of(second))
    unpack_blocks(words, half, d, first, second, first_bias, second_bias, True)
    return due == nwords, base


@device
def sum_of_bases(a, b):
    """Sum of two bases, and whether it takes one word."""
    total = i64(a) + i64(b)
    return i32(total & i64(0xFFFFFFFF)), total == i64(i32(total & i64(0xFFFFFFFF)))


@device
def fits(first, second):
    """Whether no difference of the tile needs more than 31 bits."""
    return cuda.all_sync(ALL, max_i32(first, second) <= i32(31))


@device
def kind_of_sum(kind_a, kind_b, halves, keep_small):
    """Kind of the sum of two tiles without escapes."""
    kind = i32(0)
    if keep_small:
        kind = i32(kind_a & kind_b & i32(SMALL))
    if halves == i32(0):
        kind = i32(kind | i32(ZERO))
    return kind


def combine_tiles(
    n, keep_small, allowed,
    table_a, words_a, nwords_a,
    table_b, words_b, nwords_b,
    table, words, work,
):  # fmt: skip
    """Add two streams of n values on one grid, of float32 or float64 values.

    Parameters
    ----------
    keep_small : as for the CPU kernel
    allowed : kinds of tiles that are added here: ZERO, and SMALL for float32
    table_x, words_x, nwords_x : addresses of the table and records of an operand, and its words
    table, words, work : addresses of the result and of a work area
    """
    tile_words = cuda.shared.array(ROOM, u32, alignment=16)
    sizes = cuda.shared.array(WARPS, i32)
    first_word = cuda.shared.array(1, i64)
    sums = cuda.shared.array(WARPS, i64)
    lane = i32(i32(cuda.threadIdx.x) & i32(31))
    warp = i32(i32(cuda.threadIdx.x) >> i32(5))
    at = i32(warp << i32(10))
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
        # One test of both, or the assembler waits for one entry before it asks for the other.
        quick_a = is_quick(place_a, size_a, kind_a, nwords_a, allowed)
        quick_b = is_quick(place_b, size_b, kind_b, nwords_b, allowed)
        if quick_a & quick_b:
            at_b = words_b + i64(4) * place_b
            held = load_column(at_b + i64(4) * i64(lane), i32(size_b - lane))
            stage_record(tile_words, at, size_a, words_a + i64(4) * place_a, lane, False)
            cuda.syncwarp()
            sound_a, base_a, first_bias, second_bias = take_staged(
                tile_words, at, kind_a, size_a, d, lane
            )
            cuda.syncwarp()
            stage_held(tile_words, at, held, size_b, at_b, lane)
            cuda.syncwarp()
            sound_b, base_b = add_staged(
                tile_words, at, kind_b, size_b, d, first_bias, second_bias, lane
            )
            cuda.syncwarp()
            base, is_short = sum_of_bases(base_a, base_b)
            first, second = widths_of(d)
            before, halves = place_of_blocks(first, second, lane)
            if sound_a and sound_b and is_short and fits(first, second):
                nwords = quick_nwords(halves)
                kind = kind_of_sum(kind_a, kind_b, halves, keep_small)
    write_tiles(
        WARPS, tile_words, sizes, first_word, sums, tile, n, base, nwords, kind, d, first, second,
        before, halves, table, words, work,
    )  # fmt: skip


def make_with_values(value_words):
    """Return the kernel that adds float32 (1) or float64 (2) values and a stream."""
    quantise_tile = QUANTISE_TILE[value_words]
    value_nbytes = np.int64(4 * value_words)

    def combine_with_values(
        values, n, inverse, quick_code, small_code, allowed,
        table_b, words_b, nwords_b, table, words, work,
    ):  # fmt: skip
        """Add values, quantised on the fly, and a stream.

        Parameters
        ----------
        values, n, inverse, quick_code, small_code : as for `compress_tiles`
        others : as for `combine_tiles`
        """
        tile_words = cuda.shared.array(ROOM, u32, alignment=16)
        sizes = cuda.shared.array(WARPS, i32)
        first_word = cuda.shared.array(1, i64)
        sums = cuda.shared.array(WARPS, i64)
        lane = i32(i32(cuda.threadIdx.x) & i32(31))
        warp = i32(i32(cuda.threadIdx.x) >> i32(5))
        at = i32(warp << i32(10))
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
            address = values + start * value_nbytes
            top = largest_code(quantise_tile(address, lane, inverse, tile_words, at, True), inverse)
            quick = is_quick(place_b, size_b, kind_b, nwords_b, allowed)
            if quick and cuda.all_sync(ALL, top <= quick_code):
                at_b = words_b + i64(4) * place_b
                held = load_column(at_b + i64(4) * i64(lane), i32(size_b - lane))
                cuda.syncwarp()
                take_run(tile_words, at, lane, d)
                cuda.syncwarp()
                base_a = difference_run(d, lane)
                stage_held(tile_words, at, held, size_b, at_b, lane)
                cuda.syncwarp()
                sound_b, base_b = add_staged(
                    tile_words, at, kind_b, size_b, d, i32(0), i32(0), lane
                )
                cuda.syncwarp()
                base, is_short = sum_of_bases(base_a, base_b)
                first, second = widths_of(d)
                before, halves = place_of_blocks(first, second, lane)
                if sound_b and is_short and fits(first, second):
                    nwords = quick_nwords(halves)
                    is_small = cuda.all_sync(ALL, top <= small_code)
                    kind = kind_of_sum(kind_b, kind_b, halves, is_small)
        write_tiles(
            WARPS, tile_words, sizes, first_word, sums, tile, n, base, nwords, kind, d, first,
            second, before, halves, table, words, work,
        )  # fmt: skip

    return combine_with_values
