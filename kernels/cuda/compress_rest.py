"""Compression of the tiles that `compress` left: escapes, raw tiles, short tiles, wide codes.

block   warp 0  warp 1  ...     each takes every so many-th tile of the list
lane L  of row k: value 32 k + L, then its run 32 L ... 32 L + 31 (see `exact`)
"""

import numpy as np

from zccl.formats import RAW, SMALL, TILE
from zccl.kernels.cuda._compat import cuda, f64, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import add_to, max_i32, store_i64, sum_of_lanes
from zccl.kernels.cuda.checksum import record_checksum
from zccl.kernels.cuda.exact import EXACT, ROOM
from zccl.kernels.cuda.placement import (
    CHECKSUM_AT,
    RAW_AT,
    busy_blocks,
    finish,
    listed_tile,
    place,
    tiles_to_take,
)
from zccl.kernels.cuda.record import table_entry
from zccl.kernels.cuda.warp import vote

WARPS = 8
SHARED = WARPS * ROOM + 4

_i, _d = types.int64, types.float64
SIGNATURE = (
    _i, _i, _i, _d, _d, _d, types.int32, _d, _d, _d, types.int32,
    _i, _i, _i, _i, _i, _i, types.int32, _i, _i, types.int32,
)  # fmt: skip


def make(value_words):
    """Return the kernel for float32 (1) or float64 (2) values."""
    exact = EXACT[value_words]
    quantise, choose_form, write = exact.quantise, exact.form, exact.write
    value_nbytes = np.int64(4 * value_words)
    has_small = value_words == 1

    def compress_rest(
        values, n, share, inverse, step, error_bound, movement, limit, small_code, fill, rank,
        table, table_stride, words, words_stride, work, work_stride, everything,
        result, result_stride, axes,
    ):  # fmt: skip
        """Compress the tiles of the list and hand over the result of the whole call.

        Parameters
        ----------
        step, error_bound, movement, fill, rank : as for the CPU kernel
        limit : largest distance of a code from the base
        everything : whether all tiles are taken instead of those of the list
        result : address of four words, as in `placement.finish`
        axes : of the tiles
        others : as for `compress_tiles`
        """
        tile_words = cuda.shared.array(SHARED, u32)
        thread = i32(cuda.threadIdx.x)
        lane = i32(thread & i32(31))
        warp = i32(thread >> i32(5))
        at = i32(warp * i32(ROOM))
        s = i64(cuda.blockIdx.y)
        values += s * share * value_nbytes
        table += s * table_stride
        words += s * words_stride
        work += s * work_stride
        in_share = min(n - s * share, share)
        tiles = (in_share + i64(TILE - 1)) >> i64(10)
        count = tiles_to_take(work, result + s * result_stride, everything, tiles)
        blocks = busy_blocks(count, WARPS)
        if count == i64(0) or i64(cuda.blockIdx.x) >= blocks:
            return
        d = cuda.local.array(32, i32)
        e = cuda.local.array(32, i32)
        sums = i64(0)
        raw_values = i64(0)
        i = i64(cuda.blockIdx.x) * i64(WARPS) + i64(warp)
        while i < count:
            tile = listed_tile(work, everything, i)
            start = i64(tile) * i64(TILE)
            m = i32(min(in_share - start, i64(TILE)))
            x = values + start * value_nbytes
            base, good, same, largest = quantise(
                x, m, inverse, step, error_bound, movement, limit, fill, tile_words, at, lane
            )
            cuda.syncwarp()
            (
                nwords, kind, entries, escaped, starts, before_run, first, second, before, halves
            ) = choose_form(m, base, good, same, tile_words, at, lane, d, e, axes)  # fmt: skip
            cuda.syncwarp()
            if has_small and (kind & i32(RAW)) == i32(0):
                is_far = f64(max_i32(largest, i32(abs(base)))) > small_code
                if vote(is_far) == u32(0):
                    kind = i32(kind | i32(SMALL))
            record_at = i64(0)
            if lane == i32(0):
                record_at = place(work, i64(nwords))
            record_at = cuda.shfl_sync(0xFFFFFFFF, record_at, 0)
            address = words + i64(4) * record_at
            write(
                address, nwords, kind, base, entries, escaped, starts, before_run, d, e,
                first, second, before, halves, rank, x, tile_words, at, lane,
            )  # fmt: skip
            found = record_checksum(address, nwords, kind, tile, lane)
            number = i32(sum_of_lanes(u32(cuda.popc(escaped))))
            if (kind & i32(RAW)) != i32(0):
                number = m
            if lane == i32(0):
                store_i64(table + i64(8) * i64(tile), table_entry(record_at, nwords, kind))
                sums += found
                raw_values += i64(number)
            i += blocks * i64(WARPS)
        if lane == i32(0) and (sums != i64(0) or raw_values != i64(0)):
            add_to(work + i64(CHECKSUM_AT), sums)
            add_to(work + i64(RAW_AT), raw_values)
        finish(work, result + s * result_stride, blocks)

    return compress_rest
