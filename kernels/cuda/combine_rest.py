"""Hops on the tiles that `combine` left, and all tiles of MAX and MIN.

block   one warp: takes every so many-th tile of the list
lane L  its run 32 L ... 32 L + 31 of differences; of row k of values: 32 k + L (see `numbers`)
"""

from zccl.formats import RAW, SAME, SMALL, TILE
from zccl.kernels.cuda._compat import ALL, cuda, device, f64, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    add_to,
    address_of,
    load_i64,
    max_i32,
    store_i64,
    sum_of_lanes,
)
from zccl.kernels.cuda.checksum import record_checksum
from zccl.kernels.cuda.combine import fits
from zccl.kernels.cuda.decompress_rest import base_words_of
from zccl.kernels.cuda.escapes import merge_entries
from zccl.kernels.cuda.exact import EXACT, ROOM, coded_kind, coded_nwords, put_coded, put_raw
from zccl.kernels.cuda.hop import REDUCE_VALUES, SUM, in_range
from zccl.kernels.cuda.numbers import FLAG_WORDS, OPEN_NUMBERS, SLOTS, read_differences
from zccl.kernels.cuda.placement import (
    CHECKSUM_AT,
    DAMAGED,
    OVERFLOW,
    RAW_AT,
    busy_blocks,
    finish,
    listed_tile,
    place,
    set_status,
    tiles_to_take,
)
from zccl.kernels.cuda.record import allowance, open_record, place_of_blocks, table_entry
from zccl.kernels.cuda.warp import vote
from zccl.kernels.cuda.widths import widths_of

WARPS = 1
OWN_NWORDS = 4096  # room for the record of one's own values, a block
MAX_SMALL = float(2**24)

_i, _d, _w = types.int64, types.float64, types.int32
SIGNATURE = (_w, _i, _d, _w, _i, _i, _i, _i, _i, _i, _i, _i, _i, _w, _i, _w)
VALUES_SIGNATURE = (
    _w, _i, _i, _d, _d, _d, _d, _d, _w, _i, _i, _i, _i, _i, _i, _i, _w, _i
)  # fmt: skip


@device
def place_on_all(work, nwords, lane):
    """Reserve the words of one record; the first on all lanes."""
    first = i64(0)
    if lane == i32(0):
        first = place(work, i64(nwords))
    return cuda.shfl_sync(ALL, first, 0)


def _make_hop(value_words):
    exact = EXACT[value_words]
    choose_form, write = exact.form, exact.write
    open_numbers = OPEN_NUMBERS[value_words]
    reduce_values = REDUCE_VALUES[value_words]
    has_small = value_words == 1

    @device
    def finish_values(
        op, slots_a, flags_a, slots_b, flags_b, m, step, words, at, d, table, out, work, tile, lane,
        axes,
    ):  # fmt: skip
        """Reduce two tiles that lie in slots, at least one of them raw or a sum too long."""
        _, _, _, same, _ = reduce_values(
            op, slots_a, flags_a, slots_b, flags_b, m, step, False, words, at, lane, axes
        )
        kind = i32(RAW)
        nwords = i32(m * i32(value_words))
        if cuda.all_sync(ALL, same == u32(0xFFFFFFFF)):
            kind = i32(RAW | SAME)
            nwords = i32(value_words)
        first = place_on_all(work, nwords, lane)
        address = out + 4 * first
        put_raw(address, slots_a, nwords, lane)
        cuda.syncwarp()
        if lane == i32(0):
            store_i64(table + 8 * i64(tile), table_entry(first, nwords, kind))
        return record_checksum(address, nwords, kind, tile, lane)

    @device
    def finish_extremes(
        op, slots_a, flags_a, slots_b, flags_b, m, step, words, at, d, e, table, out, work, tile,
        lane, axes,
    ):  # fmt: skip
        """Code the winners of two coded tiles that lie in slots."""
        fine, base, good, same, largest = reduce_values(
            op, slots_a, flags_a, slots_b, flags_b, m, step, True, words, at, lane, axes
        )
        checksum = i64(0)
        if not fine:
            set_status(work, OVERFLOW)
        else:
            (
                nwords, kind, entries, escaped, starts, before_run, first, second, before, halves
            ) = choose_form(m, base, good, same, words, at, lane, d, e, axes)  # fmt: skip
            cuda.syncwarp()
            if has_small and (kind & i32(RAW)) == i32(0):
                size = max_i32(largest, i32(min(abs(base), i64(1 << 30))))
                if vote(f64(size) > f64(MAX_SMALL)) == u32(0):
                    kind = i32(kind | i32(SMALL))
            first_word = place_on_all(work, nwords, lane)
            address = out + 4 * first_word
            write(
                address, nwords, kind, base, entries, escaped, starts, before_run, d, e, first,
                second, before, halves, i32(0), slots_a, words, at, lane,
            )  # fmt: skip
            if lane == i32(0):
                store_i64(table + 8 * i64(tile), table_entry(first_word, nwords, kind))
            checksum = record_checksum(address, nwords, kind, tile, lane)
        return checksum

    @device
    def hop(
        op, m, step, keep_small,
        at_a, kind_a, base_a, first_a, second_a, used_a, entries_a,
        at_b, kind_b, base_b, first_b, second_b, used_b, entries_b,
        slots_a, flags_a, slots_b, flags_b, words, d, e, table, out, work, tile, lane, axes,
    ):  # fmt: skip
        """Reduce two opened records into one; returns what it adds to the checksum."""
        at = i32(0)
        raw = (i32(kind_a | kind_b) & i32(RAW)) != i32(0)
        checksum = i64(0)
        by_values = raw or op != i32(SUM)
        if not by_values:
            read_differences(
                words, at, at_a, used_a, kind_a, base_words_of(kind_a), first_a, second_a, d, lane
            )
            read_differences(
                words, at, at_b, used_b, kind_b, base_words_of(kind_b), first_b, second_b, e, lane
            )
            for j in range(32):
                d[j] = i32(d[j] + e[j])
            base = base_a + base_b
            first, second = widths_of(d)
            before, halves = place_of_blocks(first, second, lane)
            entries = i32(entries_a + entries_b)
            if not in_range(base) or not fits(first, second):
                set_status(work, OVERFLOW)
            else:
                nwords = coded_nwords(base, halves, entries, i32(value_words))
                if nwords > allowance(m, i32(value_words)):
                    by_values = True
                else:
                    small = keep_small and (i32(kind_a & kind_b) & i32(SMALL)) != i32(0)
                    kind = coded_kind(base, halves, entries, small)
                    first_word = place_on_all(work, nwords, lane)
                    address = out + 4 * first_word
                    done = put_coded(
                        words, at, address, base, d, first, second, before, halves, lane
                    )
                    if entries > i32(0):
                        merge_entries(
                            at_a + 4 * (i64(used_a) + 1), entries_a,
                            at_b + 4 * (i64(used_b) + 1), entries_b,
                            i32(value_words), address + 4 * i64(done), lane,
                        )  # fmt: skip
                    cuda.syncwarp()
                    if lane == i32(0):
                        store_i64(table + 8 * i64(tile), table_entry(first_word, nwords, kind))
                    checksum = record_checksum(address, nwords, kind, tile, lane)
        if by_values:
            open_numbers(
                slots_a, flags_a, at_a, kind_a, base_a, base_words_of(kind_a), first_a, second_a,
                used_a, entries_a, m, step, words, at, d, lane, axes,
            )  # fmt: skip
            open_numbers(
                slots_b, flags_b, at_b, kind_b, base_b, base_words_of(kind_b), first_b, second_b,
                used_b, entries_b, m, step, words, at, d, lane, axes,
            )  # fmt: skip
            if raw or op == i32(SUM):
                checksum = finish_values(
                    op, slots_a, flags_a, slots_b, flags_b, m, step, words, at, d, table, out,
                    work, tile, lane, axes,
                )  # fmt: skip
            else:
                checksum = finish_extremes(
                    op, slots_a, flags_a, slots_b, flags_b, m, step, words, at, d, e, table, out,
                    work, tile, lane, axes,
                )  # fmt: skip
        cuda.syncwarp()
        return checksum

    return hop


HOP = {1: _make_hop(1), 2: _make_hop(2)}


def make(value_words):
    """Return the kernel for two streams of float32 (1) or float64 (2) values."""
    hop = HOP[value_words]

    def combine_rest(
        op, n, step, keep_small,
        table_a, words_a, nwords_a,
        table_b, words_b, nwords_b,
        table, words, work, everything, result, axes,
    ):  # fmt: skip
        """Reduce the tiles of the list and hand over the result of the whole call.

        Parameters
        ----------
        op : 0 sum, 1 maximum, 2 minimum
        step : grid step
        everything : whether all tiles are taken instead of those of the list
        result : address of four words, as in `placement.finish`
        axes : of the tiles
        others : as for `combine_tiles`
        """
        tile_words = cuda.shared.array(ROOM, u32)
        slot_array_a = cuda.shared.array(SLOTS, i64)
        slot_array_b = cuda.shared.array(SLOTS, i64)
        flag_array_a = cuda.shared.array(FLAG_WORDS, i64)
        flag_array_b = cuda.shared.array(FLAG_WORDS, i64)
        lane = i32(cuda.threadIdx.x)
        tiles = (n + i64(TILE - 1)) >> i64(10)
        count = tiles_to_take(work, result, everything, tiles)
        blocks = busy_blocks(count, WARPS)
        if count == i64(0) or i64(cuda.blockIdx.x) >= blocks:
            return
        d = cuda.local.array(32, i32)
        e = cuda.local.array(32, i32)
        sums = i64(0)
        i = i64(cuda.blockIdx.x)
        while i < count:
            tile = listed_tile(work, everything, i)
            m = i32(min(n - i64(tile) * i64(TILE), i64(TILE)))
            entry_a = load_i64(table_a + 8 * i64(tile))
            entry_b = load_i64(table_b + 8 * i64(tile))
            sound_a, at_a, _, kind_a, base_a, first_a, second_a, used_a, entries_a = open_record(
                entry_a, words_a, nwords_a, m, i32(value_words), lane
            )
            sound_b, at_b, _, kind_b, base_b, first_b, second_b, used_b, entries_b = open_record(
                entry_b, words_b, nwords_b, m, i32(value_words), lane
            )
            if not (sound_a and sound_b):
                set_status(work, DAMAGED)
            else:
                sums += hop(
                    op, m, step, keep_small != i32(0),
                    at_a, kind_a, base_a, first_a, second_a, used_a, entries_a,
                    at_b, kind_b, base_b, first_b, second_b, used_b, entries_b,
                    address_of(slot_array_a), address_of(flag_array_a),
                    address_of(slot_array_b), address_of(flag_array_b),
                    tile_words, d, e, table, words, work, tile, lane, axes,
                )  # fmt: skip
            i += blocks
        if lane == i32(0) and sums != i64(0):
            add_to(work + i64(CHECKSUM_AT), sums)
        finish(work, result, blocks)

    return combine_rest


def make_with_values(value_words):
    """Return the kernel for float32 (1) or float64 (2) values and a stream."""
    hop = HOP[value_words]
    exact = EXACT[value_words]
    quantise, choose_form, write = exact.quantise, exact.form, exact.write
    value_nbytes = 4 * value_words
    has_small = value_words == 1

    def combine_values_rest(
        op, values, n, inverse, step, limit, small_code, fill, rank, own,
        table_b, words_b, nwords_b, table, words, work, everything, result,
    ):  # fmt: skip
        """Reduce values and a stream in the tiles of the list; hand over the result of the call.

        Parameters
        ----------
        own : address of room for one record a block, of `OWN_NWORDS` words
        values, inverse, step, limit, small_code, fill, rank : as for `compress_rest`
        others : as for `combine_rest`
        """
        tile_words = cuda.shared.array(ROOM, u32)
        slot_array_a = cuda.shared.array(SLOTS, i64)
        slot_array_b = cuda.shared.array(SLOTS, i64)
        flag_array_a = cuda.shared.array(FLAG_WORDS, i64)
        flag_array_b = cuda.shared.array(FLAG_WORDS, i64)
        lane = i32(cuda.threadIdx.x)
        own += i64(cuda.blockIdx.x) * i64(4 * OWN_NWORDS)
        tiles = (n + i64(TILE - 1)) >> i64(10)
        count = tiles_to_take(work, result, everything, tiles)
        blocks = busy_blocks(count, WARPS)
        if count == i64(0) or i64(cuda.blockIdx.x) >= blocks:
            return
        d = cuda.local.array(32, i32)
        e = cuda.local.array(32, i32)
        sums = i64(0)
        raw_values = i64(0)
        i = i64(cuda.blockIdx.x)
        while i < count:
            tile = listed_tile(work, everything, i)
            start = i64(tile) * i64(TILE)
            m = i32(min(n - start, i64(TILE)))
            x = values + start * value_nbytes
            base, good, same, largest = quantise(
                x, m, inverse, step, f64(0), False, limit, fill, tile_words, i32(0), lane
            )
            cuda.syncwarp()
            (nwords, kind, entries, escaped, starts, before_run, first, second, before, halves) = (
                choose_form(m, base, good, same, tile_words, i32(0), lane, d, e, i32(1))
            )
            cuda.syncwarp()
            if has_small and (kind & i32(RAW)) == i32(0):
                is_far = f64(max_i32(largest, i32(abs(base)))) > small_code
                if vote(is_far) == u32(0):
                    kind = i32(kind | i32(SMALL))
            write(
                own, nwords, kind, base, entries, escaped, starts, before_run, d, e, first, second,
                before, halves, rank, x, tile_words, i32(0), lane,
            )  # fmt: skip
            number = i32(sum_of_lanes(u32(cuda.popc(escaped))))
            if (kind & i32(RAW)) != i32(0):
                number = m
            raw_values += i64(number)
            sound_a, at_a, _, kind_a, base_a, first_a, second_a, used_a, entries_a = open_record(
                table_entry(i64(0), nwords, kind), own, i64(nwords), m, i32(value_words), lane
            )
            entry_b = load_i64(table_b + 8 * i64(tile))
            sound_b, at_b, _, kind_b, base_b, first_b, second_b, used_b, entries_b = open_record(
                entry_b, words_b, nwords_b, m, i32(value_words), lane
            )
            if not (sound_a and sound_b):
                set_status(work, DAMAGED)
            else:
                sums += hop(
                    op, m, step, True,
                    at_a, kind_a, base_a, first_a, second_a, used_a, entries_a,
                    at_b, kind_b, base_b, first_b, second_b, used_b, entries_b,
                    address_of(slot_array_a), address_of(flag_array_a),
                    address_of(slot_array_b), address_of(flag_array_b),
                    tile_words, d, e, table, words, work, tile, lane, i32(1),
                )  # fmt: skip
            cuda.syncwarp()
            i += blocks
        if lane == i32(0) and (sums != i64(0) or raw_values != i64(0)):
            add_to(work + i64(CHECKSUM_AT), sums)
            add_to(work + i64(RAW_AT), raw_values)
        finish(work, result, blocks)

    return combine_values_rest
