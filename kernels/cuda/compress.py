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

from zccl.formats import SMALL, TILE, ZERO
from zccl.kernels.cuda._compat import ALL, cuda, i32, i64, types, u32
from zccl.kernels.cuda.quantise import QUANTISE_TILE, difference_run, largest_code
from zccl.kernels.cuda.record import place_of_blocks, quick_nwords
from zccl.kernels.cuda.turning import take_run
from zccl.kernels.cuda.widths import widths_of
from zccl.kernels.cuda.writing import write_tiles

WARPS = 8
ROOM = WARPS * TILE + 4  # words of shared memory; readers may look a few words behind a tile

_i, _d = types.int64, types.float64
SIGNATURE = (_i, _i, _i, _d, _d, _d, _i, _i, _i, _i, _i, _i)


def make(value_words):
    """Return the kernel for float32 (1) or float64 (2) values."""
    quantise_tile = QUANTISE_TILE[value_words]
    value_nbytes = np.int64(4 * value_words)

    def compress_tiles(
        values, n, share, inverse, quick_code, small_code,
        table, table_stride, words, words_stride, work, work_stride,
    ):  # fmt: skip
        """Compress the tiles whose codes are at most `quick_code` in size.

        Parameters
        ----------
        values, n : address and number of the values
        share : values of a share, a multiple of 1024; blocks with y index s compress share s
        inverse : 1 / step
        quick_code : largest size of a code for which the bound and all other tests are proven
        small_code : largest size of a code in a SMALL tile
        table, words, work : addresses for the first share; work area as in `placement`
        *_stride : bytes from one share to the next
        """
        tile_words = cuda.shared.array(ROOM, u32, alignment=16)
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
            top = largest_code(
                quantise_tile(address, lane, inverse, tile_words, at, False), inverse
            )
            cuda.syncwarp()
            take_run(tile_words, at, lane, d)
            cuda.syncwarp()
            base = difference_run(d, lane)
            first, second = widths_of(d)
            before, halves = place_of_blocks(first, second, lane)
            if cuda.all_sync(ALL, top <= quick_code):
                nwords = quick_nwords(halves)
                if halves == i32(0):
                    kind = i32(ZERO)
                if cuda.all_sync(ALL, top <= small_code):
                    kind = i32(kind | i32(SMALL))
        write_tiles(
            WARPS, tile_words, sizes, first_word, sums, tile, in_share, base, nwords, kind, d,
            first, second, before, halves, table + s * table_stride, words + s * words_stride,
            work + s * work_stride,
        )  # fmt: skip

    return compress_tiles
