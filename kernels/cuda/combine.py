"""Sums of tiles that are coded, with a base of one word; others go on the list for `combine_rest`.

One warp owns a tile of both operands; differences never leave the registers of their lane:

    record of a   fetched into shared memory -> L0: 0..31 | L1: 32..63 | ... | L31
    record of b   fetched meanwhile, behind it where it is short, and added
    result        packed in the place of a, placed with one atomic a block, written in rows

Lists of escapes are merged from where they lie. `make_with_values` has values in the place of a,
quantised as `compress` does.
"""

import numpy as np

from zccl.formats import ESCAPES, SMALL, TILE, ZERO
from zccl.kernels.cuda._compat import ALL, cuda, device, f64, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    address_of,
    load_i64,
    load_i64_in_place,
    max_i32,
    wait_for_previous,
)
from zccl.kernels.cuda.blocks import offset_of, unpack_blocks
from zccl.kernels.cuda.checksum import fetch_record
from zccl.kernels.cuda.columns import end_group, wait_for_all, wait_for_all_but_one
from zccl.kernels.cuda.compress import count_raw
from zccl.kernels.cuda.decompress import has_due_length, is_quick, read_head
from zccl.kernels.cuda.escapes import (
    count_entries,
    count_of,
    merge_entries,
    put_own_entries,
    run_starts,
    with_list,
)
from zccl.kernels.cuda.quantise import QUANTISE_TILE, difference_run, largest_code
from zccl.kernels.cuda.record import (
    HEAD,
    allowance,
    list_is_sound,
    place_of_blocks,
    put_quick,
    quick_nwords,
    split_entry,
)
from zccl.kernels.cuda.requantise import REQUANTISE, put_stand_ins
from zccl.kernels.cuda.turning import take_run
from zccl.kernels.cuda.widths import widths_of
from zccl.kernels.cuda.writing import reserve, write_tiles

WARPS = 4
# Words of shared memory a warp: a tile, and a second record as far as it is short.
ROOM_B = 640
ROOM = WARPS * (TILE + ROOM_B) + 4

_i, _d, _w = types.int64, types.float64, types.int32
SIGNATURE = (_i, _w, _w, _i, _i, _i, _i, _i, _i, _i, _i, _i)
VALUES_SIGNATURE = (_i, _i, _d, _d, _d, _d, _d, _d, _w, _w, _i, _i, _i, _i, _i, _i)
OWN_ENTRIES = 16  # escaped runs of one's own values that are merged here


@device
def place_of_second(at, warp, nwords):
    """Where a warp stages the record that is added: behind all tiles, or in its tile if long."""
    if nwords > i32(ROOM_B - 4):
        return at
    return i32(i32(WARPS * TILE) + i32(warp * i32(ROOM_B)))


@device
def take_staged(words, at, kind, nwords, d, lane):
    """Unpack a staged record, offsets of its fields included, into `d`.

    Returns (whether its length can be right, base, offsets of the lane's two blocks, words of its
    list): who adds the next record takes the offsets of both away at once.
    """
    first, second, before, due = read_head(words, at, kind, lane)
    base = i32(words[u32(at)])
    half = i32(i32(i32(at + i32(HEAD)) << i32(1)) + before)
    unpack_blocks(words, half, d, first, second, i32(0), i32(0), False)
    fits = has_due_length(nwords, due, kind)
    return fits, base, offset_of(first), offset_of(second), i32(nwords - due)


@device
def add_staged(words, at, kind, nwords, d, first_bias, second_bias, lane):
    """Add a staged record to `d` and take a bias from the values of each block.

    Returns (whether its length can be right, base, words of its list).
    """
    first, second, before, due = read_head(words, at, kind, lane)
    base = i32(words[u32(at)])
    half = i32(i32(i32(at + i32(HEAD)) << i32(1)) + before)
    first_bias = i32(first_bias + offset_of(first))
    second_bias = i32(second_bias + offset_of(second))
    unpack_blocks(words, half, d, first, second, first_bias, second_bias, True)
    return has_due_length(nwords, due, kind), base, i32(nwords - due)


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
    """Kind of the sum of two tiles."""
    kind = i32(i32(kind_a | kind_b) & i32(ESCAPES))
    if keep_small:
        kind = i32(kind | i32(kind_a & kind_b & i32(SMALL)))
    if halves == i32(0):
        kind = i32(kind | i32(ZERO))
    return kind


@device
def words_of_value(allowed):
    """Words of a value, by the kinds of tiles that there are."""
    if (allowed & i32(SMALL)) != i32(0):
        return i32(1)
    return i32(2)


@device
def list_of(table, words, tile, list_nwords):
    """Address of the list at the end of a record."""
    place, nwords, _ = split_entry(load_i64(table + i64(8) * i64(tile)))
    return words + i64(4) * (place + i64(i32(nwords - list_nwords)))


@device
def count_sound(address, list_nwords, value_words, lane):
    """Entries of a list, -1 where it is damaged."""
    entries = i32(0)
    if list_nwords > i32(0):
        entries = count_of(address, list_nwords, value_words)
        if entries == i32(0):
            entries = i32(-1)
        elif not list_is_sound(address + 4, entries, i32(TILE), value_words, lane):
            entries = i32(-1)
    return entries


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
    wait_for_previous()
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
    lists = i32(0)
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
            fetch_record(tile_words, at, size_a, words_a + i64(4) * place_a, lane)
            end_group()
            at_b = place_of_second(at, warp, size_b)
            if at_b != at:
                fetch_record(tile_words, at_b, size_b, words_b + i64(4) * place_b, lane)
            end_group()
            wait_for_all_but_one()
            cuda.syncwarp()
            sound_a, base_a, first_bias, second_bias, list_a = take_staged(
                tile_words, at, kind_a, size_a, d, lane
            )
            cuda.syncwarp()
            if at_b == at:
                fetch_record(tile_words, at_b, size_b, words_b + i64(4) * place_b, lane)
                end_group()
            wait_for_all()
            cuda.syncwarp()
            sound_b, base_b, list_b = add_staged(
                tile_words, at_b, kind_b, size_b, d, first_bias, second_bias, lane
            )
            cuda.syncwarp()
            base, is_short = sum_of_bases(base_a, base_b)
            first, second = widths_of(d)
            before, halves = place_of_blocks(first, second, lane)
            sound = sound_a and sound_b and is_short and fits(first, second)
            kind = kind_of_sum(kind_a, kind_b, halves, keep_small)
            entries = i32(0)
            if sound and (kind & i32(ESCAPES)) != i32(0):
                value_words = words_of_value(allowed)
                at_list = list_of(table_a, words_a, tile, list_a)
                entries_a = count_sound(at_list, list_a, value_words, lane)
                at_list = list_of(table_b, words_b, tile, list_b)
                entries_b = count_sound(at_list, list_b, value_words, lane)
                sound = entries_a >= i32(0) and entries_b >= i32(0)
                entries = i32(entries_a + entries_b)
                lists = i32(entries_a | i32(entries_b << i32(16)))
            nwords = with_list(quick_nwords(halves), entries, words_of_value(allowed))
            if not sound or nwords > i32(TILE):
                nwords = i32(0)
    reserve(WARPS, sizes, first_word, nwords, tile, n, work)
    if nwords > i32(0):
        put_quick(tile_words, at, lane, base, d, first, second, before, halves)
        if (kind & i32(ESCAPES)) != i32(0):
            value_words = words_of_value(allowed)
            entries_a = i32(lists & i32(0xFFFF))
            entries_b = i32(lists >> i32(16))
            list_a = with_list(i32(0), entries_a, value_words)
            list_b = with_list(i32(0), entries_b, value_words)
            target = address_of(tile_words) + i64(4) * i64(i32(at + quick_nwords(halves)))
            merge_entries(
                list_of(table_a, words_a, tile, list_a) + 4, entries_a,
                list_of(table_b, words_b, tile, list_b) + 4, entries_b,
                value_words, target, lane,
            )  # fmt: skip
    write_tiles(WARPS, tile_words, sizes, first_word, sums, tile, nwords, kind, table, words, work)


@device
def stays_coded(d, entries, value_words, lane):
    """Whether a tile of one's own values with escapes would not be a raw record."""
    first, second = widths_of(d)
    halves = place_of_blocks(first, second, lane)[1]
    coded = with_list(quick_nwords(halves), entries, value_words)
    return coded <= allowance(i32(TILE), value_words)


def make_with_values(value_words):
    """Return the kernel that adds float32 (1) or float64 (2) values and a stream."""
    quantise_tile, requantise = QUANTISE_TILE[value_words], REQUANTISE[value_words]
    value_nbytes = np.int64(4 * value_words)
    own_nwords = 1 + OWN_ENTRIES * (2 + 2 * value_words)
    own_room = WARPS * own_nwords

    def combine_with_values(
        values, n, inverse, step, quick_code, near_code, small_code, fill, rank, allowed,
        table_b, words_b, nwords_b, table, words, work,
    ):  # fmt: skip
        """Add values, quantised on the fly, and a stream.

        Parameters
        ----------
        values to rank : as for `compress_tiles`
        others : as for `combine_tiles`
        """
        wait_for_previous()
        tile_words = cuda.shared.array(ROOM, u32, alignment=16)
        own_lists = cuda.shared.array(own_room, u32)
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
        lists = i32(0)
        escaped = u32(0)
        own_list = address_of(own_lists) + i64(i32(warp * i32(4 * own_nwords)))
        first = i32(0)
        second = i32(0)
        before = i32(0)
        halves = i32(0)
        if start + i64(TILE) <= n:
            place_b, size_b, kind_b = split_entry(load_i64_in_place(table_b + i64(8) * i64(tile)))
            quick = is_quick(place_b, size_b, kind_b, nwords_b, allowed)
            at_b = place_of_second(at, warp, size_b)
            if quick and at_b != at:
                fetch_record(tile_words, at_b, size_b, words_b + i64(4) * place_b, lane)
                end_group()
            address = values + start * value_nbytes
            top = largest_code(quantise_tile(address, lane, inverse, tile_words, at), inverse)
            own_entries = i32(0)
            starts = u32(0)
            if quick and not cuda.all_sync(ALL, top <= quick_code):
                grid = inverse, step, f64(0), i32(0), fill
                escaped, same, top = requantise(address, lane, grid, tile_words, at)
                starts = run_starts(escaped, same, lane)
                own_entries = count_entries(starts)
                quick = cuda.all_sync(ALL, top <= near_code) and own_entries <= i32(OWN_ENTRIES)
                if own_entries > i32(0) and cuda.all_sync(ALL, same == u32(0xFFFFFFFF)):
                    quick = False
            cuda.syncwarp()
            if quick:
                take_run(tile_words, at, lane, d)
                cuda.syncwarp()
                if own_entries > i32(0):
                    put_stand_ins(d, escaped, lane)
                base_a = difference_run(d, lane)
                own_fits = True
                if own_entries > i32(0):
                    own_fits = stays_coded(d, own_entries, i32(value_words), lane)
                    put_own_entries(
                        own_list, escaped, starts, d, base_a, rank, address, value_words, lane
                    )
                if at_b == at:
                    fetch_record(tile_words, at_b, size_b, words_b + i64(4) * place_b, lane)
                    end_group()
                wait_for_all()
                cuda.syncwarp()
                sound, base_b, list_b = add_staged(
                    tile_words, at_b, kind_b, size_b, d, i32(0), i32(0), lane
                )
                cuda.syncwarp()
                base, is_short = sum_of_bases(base_a, base_b)
                first, second = widths_of(d)
                before, halves = place_of_blocks(first, second, lane)
                sound = sound and own_fits and is_short and fits(first, second)
                entries = own_entries
                if sound and (kind_b & i32(ESCAPES)) != i32(0):
                    at_list = list_of(table_b, words_b, tile, list_b)
                    entries_b = count_sound(at_list, list_b, i32(value_words), lane)
                    sound = entries_b >= i32(0)
                    entries = i32(own_entries + entries_b)
                    lists = i32(entries_b << i32(16))
                is_small = cuda.all_sync(ALL, top <= small_code)
                kind = kind_of_sum(kind_b, kind_b, halves, is_small)
                if entries > i32(0):
                    kind = i32(kind | i32(ESCAPES))
                    lists = i32(lists | own_entries)
                nwords = with_list(quick_nwords(halves), entries, i32(value_words))
                if not sound or nwords > i32(TILE):
                    nwords = i32(0)
        reserve(WARPS, sizes, first_word, nwords, tile, n, work)
        if nwords > i32(0):
            put_quick(tile_words, at, lane, base, d, first, second, before, halves)
            if (kind & i32(ESCAPES)) != i32(0):
                entries_b = i32(lists >> i32(16))
                list_b = with_list(i32(0), entries_b, i32(value_words))
                target = address_of(tile_words) + i64(4) * i64(i32(at + quick_nwords(halves)))
                merge_entries(
                    own_list + 4, i32(lists & i32(0xFFFF)),
                    list_of(table_b, words_b, tile, list_b) + 4, entries_b,
                    i32(value_words), target, lane,
                )  # fmt: skip
                count_raw(escaped, work, lane)
        write_tiles(
            WARPS, tile_words, sizes, first_word, sums, tile, nwords, kind, table, words, work
        )

    return combine_with_values
