"""Decompression of the tiles that `decompress` left; it also says what is damaged.

block   one warp: takes every so many-th tile of the list
lane L  of row k: value 32 k + L (see `numbers`)
"""

from zccl.formats import LONG, RAW, SAME, TILE
from zccl.kernels.cuda._compat import LANES, cuda, device, f64, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    add_to,
    address_of,
    div_f64,
    load_i64,
)
from zccl.kernels.cuda.checksum import record_checksum
from zccl.kernels.cuda.numbers import FLAG_WORDS, OPEN_NUMBERS, SLOTS, number_of, run_of
from zccl.kernels.cuda.placement import (
    CHECKSUM_AT,
    DAMAGED,
    busy_blocks,
    finish,
    listed_tile,
    set_status,
    tiles_to_take,
)
from zccl.kernels.cuda.record import open_record
from zccl.kernels.cuda.values import VALUES

WARPS = 1
ROOM = TILE + 8

_i, _d = types.int64, types.float64
SIGNATURE = (_i, _i, _d, _d, types.int32, _i, _i, _i, _i, types.int32, _i, types.int32)


@device
def base_words_of(kind):
    """Words of the base of a coded record."""
    if (kind & i32(LONG)) != i32(0):
        return i32(2)
    return i32(1)


def make(value_words):
    """Return the kernel for float32 (1) or float64 (2) values."""
    form = VALUES[value_words]
    load_bits, store_bits, rounded_bits = form.load_bits, form.store_bits, form.rounded_bits
    open_numbers = OPEN_NUMBERS[value_words]
    value_nbytes = 4 * value_words
    value_at = 4 * (2 + value_words)
    entry_nbytes = 4 * (2 + 2 * value_words)

    @device
    def copy_values(out, address, kind, m, lane):
        """Bits of a raw record."""
        j = lane
        while j < m:
            at = address + value_nbytes * i64(j)
            if (kind & i32(SAME)) != i32(0):
                at = address
            store_bits(out + value_nbytes * i64(j), load_bits(at))
            j = i32(j + i32(LANES))

    @device
    def restore_bits(out, list_at, entries, lane):
        """Put escaped values back as they were, NaN payloads included."""
        for e in range(entries):
            at = list_at + entry_nbytes * i64(e)
            start, stop = run_of(at)
            bits = load_bits(at + value_at)
            j = i32(start + lane)
            while j < stop:
                store_bits(out + value_nbytes * i64(j), bits)
                j = i32(j + i32(LANES))
            cuda.syncwarp()

    def decompress_rest(
        out, n, step, divisor, reduced, table, words, total_nwords, work, everything, result, axes
    ):
        """Decompress the tiles of the list and hand over the result of the whole call.

        Parameters
        ----------
        out : as for `decompress_tiles`, but the address need only suit the value type
        reduced : whether this is the result of a reduction: NaN loses its payload
        everything : whether all tiles are taken instead of those of the list
        result : address of four words, as in `placement.finish`
        axes : of the tiles
        others : as for `decompress_tiles`
        """
        tile_words = cuda.shared.array(ROOM, u32)
        slot_array = cuda.shared.array(SLOTS, i64)
        flag_array = cuda.shared.array(FLAG_WORDS, i64)
        lane = i32(cuda.threadIdx.x)
        slots = address_of(slot_array)
        flags = address_of(flag_array)
        tiles = (n + i64(TILE - 1)) >> i64(10)
        count = tiles_to_take(work, result, everything, tiles)
        blocks = busy_blocks(count, WARPS)
        if count == i64(0) or i64(cuda.blockIdx.x) >= blocks:
            return
        d = cuda.local.array(32, i32)
        sums = i64(0)
        i = i64(cuda.blockIdx.x)
        while i < count:
            tile = listed_tile(work, everything, i)
            start = i64(tile) * i64(TILE)
            m = i32(min(n - start, i64(TILE)))
            entry = load_i64(table + i64(8) * i64(tile))
            sound, address, nwords, kind, base, first, second, used, entries = open_record(
                entry, words, total_nwords, m, i32(value_words), lane
            )
            y = out + start * value_nbytes
            if not sound:
                set_status(work, DAMAGED)
            else:
                sums += record_checksum(address, nwords, kind, tile, lane)
                if (kind & i32(RAW)) != i32(0) and not reduced:
                    copy_values(y, address, kind, m, lane)
                else:
                    open_numbers(
                        slots, flags, address, kind, base, base_words_of(kind), first, second,
                        used, entries, m, step, tile_words, i32(0), d, lane, axes,
                    )  # fmt: skip
                    for row in range(32):
                        j = i32(i32(LANES * row) + lane)
                        if j < m:
                            value = number_of(slots, flags, i64(j), step)
                            if divisor != f64(1):
                                value = div_f64(value, divisor)
                            store_bits(y + value_nbytes * i64(j), rounded_bits(value))
                    cuda.syncwarp()
                    if not reduced:
                        restore_bits(y, address + 4 * (i64(used) + 1), entries, lane)
                cuda.syncwarp()
            i += blocks
        if lane == i32(0) and sums != i64(0):
            add_to(work + i64(CHECKSUM_AT), sums)
        finish(work, result, blocks)

    return decompress_rest
