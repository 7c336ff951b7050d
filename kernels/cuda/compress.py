"""Compression of tiles of usual values; others go on the list for `compress_rest`.

One warp owns a tile, a lane 32 consecutive values of it once the tile is turned:

    values    row 0 |L0 |L1 |L2 |  ...  |L31|      16 bytes a lane, 8 rows (float64: 16)
              row 1 |L0 |L1 |L2 |  ...  |L31|
    run       L0: 0..31   L1: 32..63   ...  L31: 992..1023
    record    base | widths | blocks of L0, of L1, ...    packed in shared memory, written in rows

A thread block of 8 warps reserves the words of its records with one atomic. So records lie in any
order; `order` puts them into that of the tiles.
"""

import numpy as np

from zccl.formats import ESCAPES, SMALL, TILE, ZERO
from zccl.kernels.cuda._compat import ALL, LANES, cuda, device, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    add_to,
    address_of,
    hidden,
    sum_of_lanes,
    wait_for_previous,
)
from zccl.kernels.cuda.escapes import count_entries, put_own_entries, run_starts, with_list
from zccl.kernels.cuda.placement import RAW_AT
from zccl.kernels.cuda.quantise import QUANTISE_TILE, difference_run, largest_code
from zccl.kernels.cuda.record import place_of_blocks, put_quick, quick_nwords
from zccl.kernels.cuda.requantise import REQUANTISE, put_stand_ins
from zccl.kernels.cuda.turning import take_run
from zccl.kernels.cuda.widths import widths_of
from zccl.kernels.cuda.writing import reserve, write_tiles

WARPS = 8
ROOM = WARPS * TILE + 4  # words of shared memory; readers may look a few words behind a tile
MASKS = WARPS * 2 * LANES

_i, _d, _w = types.int64, types.float64, types.int32
SIGNATURE = (_i, _i, _i, _d, _d, _d, _d, _d, _d, _d, _w, _w, _i, _i, _i, _i, _i, _i)


@device
def keep_masks(masks, warp, lane, escaped, same):
    """Put a lane's masks of escaped values and of starts of entries aside.

    Returns the entries of the tile, and whether all of its values are the same.
    """
    starts = run_starts(escaped, same, lane)
    i = i32(i32(warp << i32(6)) + lane)
    masks[i] = escaped
    masks[i32(i + i32(32))] = starts
    return count_entries(starts), cuda.all_sync(ALL, same == u32(0xFFFFFFFF))


@device
def kept_masks(masks, warp, lane):
    """Masks of escaped values and of starts of entries of a lane."""
    i = i32(i32(warp << i32(6)) + lane)
    return masks[i], masks[i32(i + i32(32))]


@device
def count_raw(escaped, work, lane):
    """Count the escaped values of a tile in the work area."""
    number = sum_of_lanes(u32(cuda.popc(escaped)))
    if lane == i32(0):
        add_to(work + i64(RAW_AT), i64(number))


def make(value_words):
    """Return the kernel for float32 (1) or float64 (2) values."""
    quantise_tile, requantise = QUANTISE_TILE[value_words], REQUANTISE[value_words]
    value_nbytes = np.int64(4 * value_words)

    def compress_tiles(
        values, n, share, inverse, step, error_bound, quick_code, near_code, small_code, fill,
        movement, rank, table, table_stride, words, words_stride, work, work_stride,
    ):  # fmt: skip
        """Compress full tiles that end up coded, with a base of one word.

        Parameters
        ----------
        values, n : address and number of the values
        share : values of a share, a multiple of 1024; blocks with y index s compress share s
        inverse : 1 / step
        step, error_bound, movement, fill, rank : as for the CPU kernel
        quick_code : largest size of a code for which the bound and all other tests are proven
        near_code : largest size of a code for which its distance from any other is allowed
        small_code : largest size of a code in a SMALL tile
        table, words, work : addresses for the first share; work area as in `placement`
        *_stride : bytes from one share to the next
        """
        wait_for_previous()
        tile_words = cuda.shared.array(ROOM, u32, alignment=16)
        masks = cuda.shared.array(MASKS, u32)
        sizes = cuda.shared.array(WARPS, i32)
        first_word = cuda.shared.array(1, i64)
        sums = cuda.shared.array(WARPS, i64)
        thread = i32(cuda.threadIdx.x)
        lane = i32(thread & i32(31))
        warp = i32(thread >> i32(5))
        s = i64(cuda.blockIdx.y)
        tile = i32(i32(i32(cuda.blockIdx.x) * i32(WARPS)) + warp)
        start = i64(tile) * i64(TILE)
        in_share = min(n - s * share, share)
        at = i32(warp << i32(10))
        d = cuda.local.array(32, i32)
        base = i32(0)
        nwords = i32(0)
        kind = i32(0)
        first = i32(0)
        second = i32(0)
        before = i32(0)
        halves = i32(0)
        if start + i64(TILE) <= in_share:
            address = values + (s * share + start) * value_nbytes
            top = largest_code(quantise_tile(address, lane, inverse, tile_words, at), inverse)
            entries = i32(0)
            escaped = u32(0)
            fine = True
            if not cuda.all_sync(ALL, top <= near_code):
                fine = False  # an escape is certain: the exact kernel is quicker at those
            elif not cuda.all_sync(ALL, top <= quick_code):
                grid = inverse, step, error_bound, movement, fill
                escaped, same, top = requantise(address, lane, grid, tile_words, at)
                entries, all_same = keep_masks(masks, warp, lane, escaped, same)
                fine = cuda.all_sync(ALL, top <= near_code)
                fine = fine and not (entries > i32(0) and all_same)
            cuda.syncwarp()
            take_run(tile_words, at, lane, d)
            cuda.syncwarp()
            if entries > i32(0):
                put_stand_ins(d, escaped, lane)
            base = difference_run(d, lane)
            first, second = widths_of(d)
            before, halves = place_of_blocks(first, second, lane)
            nwords = with_list(quick_nwords(halves), entries, i32(value_words))
            if halves == i32(0):
                kind = i32(ZERO)
            if cuda.all_sync(ALL, top <= small_code):
                kind = i32(kind | i32(SMALL))
            if entries > i32(0):
                kind = i32(kind | i32(ESCAPES))
            if not fine or nwords > i32(TILE):
                nwords = i32(0)
        table += s * table_stride
        words += s * words_stride
        work += s * work_stride
        reserve(WARPS, sizes, first_word, nwords, tile, in_share, work)
        if nwords > i32(0):
            put_quick(tile_words, at, lane, base, d, first, second, before, halves)
            if (kind & i32(ESCAPES)) != i32(0):
                escaped, starts = kept_masks(masks, warp, lane)
                first_value = s * share + i64(hidden(tile)) * i64(TILE)  # computed again: registers
                list_at = address_of(tile_words) + i64(4) * i64(i32(at + quick_nwords(halves)))
                put_own_entries(
                    list_at, escaped, starts, d, base, rank, values + first_value * value_nbytes,
                    value_words, lane,
                )  # fmt: skip
                count_raw(escaped, work, lane)
        write_tiles(
            WARPS, tile_words, sizes, first_word, sums, tile, nwords, kind, table, words, work
        )

    return compress_tiles
