"""Entropy-coded units back to records on a GPU, a warp each (docs/format.md section 8).

Records lie in any order: a unit reserves the words of all its records at once. Whatever the bytes
are, nothing is read or written outside of what the arguments say; what no encoder writes sets the
status.
"""

from zccl.formats import BLOCKS, ESCAPES, LONG, MAX_SUM, RAW, SAME, SMALL, TILE, ZERO
from zccl.kernels.cuda._compat import ALL, cuda, device, i32, i64, types, u8, u16, u32
from zccl.kernels.cuda._intrinsics import (
    atomic_add,
    load_i64_any,
    load_u8_any,
    load_u16_any,
    load_u32_any,
    max_i32,
    max_to,
    shift_left,
    shift_right,
    store_4_shared,
    store_i64,
    store_u8_any,
    store_u32,
    wait_for_previous,
)
from zccl.kernels.cuda.entropy import (
    ABSENT,
    CLASS,
    COARSE_BITS,
    CONTEXTS,
    FIELD,
    FIRST,
    KIND,
    LOW,
    SUMS,
    UNIT_HEAD,
    WHOLE,
    WIDTH,
    base_words,
    copy_words,
    has_widths,
    low_bits_of,
    read_bits,
    symbols_at,
    tiles_of,
)
from zccl.kernels.cuda.placement import DAMAGED
from zccl.kernels.cuda.record import (
    allowance,
    list_is_sound,
    place_of_blocks,
    put_quick,
    table_entry,
)
from zccl.kernels.cuda.turning import take_run, value_place
from zccl.kernels.cuda.warp import bits_below, running_sum, running_sum_64, vote

WARPS = 4
ROOM = WARPS * TILE + 4
FOUND = WARPS * BLOCKS
COARSE = CONTEXTS << COARSE_BITS
STATUS_AT = 8  # in the work area: words placed so far, status

_i, _w = types.int64, types.int32
SIGNATURE = (_i, _i, _i, _i, _w, _i, _w, _i, _i, _i, _i, _i, _i, _i)


@device
def sums_at(context):
    """Where the sums of a context start among all."""
    return i32(symbols_at(context) + context)


@device
def get(takes, x, context, start, sums, coarse, pieces, left, lane):
    """Decode a symbol of each lane that takes part; `start` is `sums_at(context)`.

    Returns (state, symbol, pieces left; they are negative where they were used up, or where a
    context has no symbols).
    """
    symbol = i32(0)
    bad = False
    if takes:
        slot = u32(x & u32(4095))
        place = i32(i32(context << i32(COARSE_BITS)) + i32(shift_right(slot, i32(5))))
        at = i32(start + i32(coarse[u32(place)]))
        before = u32(sums[u32(at)])
        behind = u32(sums[u32(i32(at + i32(1)))])
        bad = before == u32(ABSENT)
        while behind <= slot:
            at = i32(at + i32(1))
            before = behind
            behind = u32(sums[u32(i32(at + i32(1)))])
        symbol = i32(at - start)
        x = u32(u32(u32(behind - before) * u32(x >> u32(12))) + u32(slot - before))
    hungry = takes and x < u32(LOW)
    mask = vote(hungry)
    count = i32(cuda.popc(i32(mask)))
    left = i32(left - count)
    if left >= i32(0) and hungry:
        at = i32(left + i32(cuda.popc(i32(u32(mask & bits_below(lane))))))
        x = u32(u32(x << u32(16)) | load_u16_any(pieces + i64(2) * i64(at)))
    if vote(bad) != u32(0):
        left = i32(-1)
    return x, symbol, left


@device
def is_known(kind, value_words):
    """Whether a kind is one that an encoder writes."""
    known = i32(RAW | SAME | ZERO | ESCAPES | LONG)
    if value_words == i32(1):
        known = i32(known | i32(SMALL))
    if (kind & ~known) != i32(0):
        return False
    if (kind & i32(RAW)) != i32(0):
        return (kind & ~i32(RAW | SAME)) == i32(0)
    return (kind & i32(SAME)) == i32(0)


@device
def take_bits(address, bit, end, count):
    """Read up to 64 bits from bit `bit` on, zeros from word `end` on."""
    value = i64(0)
    done = i32(0)
    while done < count:
        at = bit + i64(done)
        take = min(i32(count - done), i32(i32(32) - i32(at & i64(31))))
        if (at >> i64(5)) < i64(end):
            word = load_u32_any(address + i64(4) * (at >> i64(5)))
            piece = shift_right(word, i32(at & i64(31)))
            if take < i32(32):
                piece = u32(piece & u32(shift_left(u32(1), take) - u32(1)))
            value |= i64(piece) << i64(done)
        done = i32(done + take)
    return value


@device
def is_padded(address, bit, end):
    """Whether the rest of the word where a string of bits ends is there, and zero."""
    if ((bit + i64(31)) >> i64(5)) > i64(end):
        return False
    rest = i32(i32(i32(32) - i32(bit & i64(31))) & i32(31))
    return take_bits(address, bit, end, rest) == i64(0)


@device
def take_heads(x, left, count, value_words, sums, coarse, pieces, kinds, own, lane):
    """Decode the kinds of a unit's tiles and the classes of their bases.

    Kinds go to `kinds`, one byte each, classes to `own`, as int64. Returns (state, pieces left,
    coded tiles, those with widths).
    """
    coded = i32(0)
    wide = i32(0)
    start = i32(0)
    while start < count and left >= i32(0):
        takes = i32(start + lane) < count
        x, kind, left = get(takes, x, i32(KIND), i32(0), sums, coarse, pieces, left, lane)
        if takes:
            store_u8_any(kinds + i64(i32(start + lane)), u32(kind))
        mask = vote(takes and (kind & i32(RAW)) == i32(0))
        wides = vote(takes and has_widths(kind))
        if vote(takes and not is_known(kind, value_words)) != u32(0):
            left = i32(-1)
        coded = i32(coded + i32(cuda.popc(i32(mask))))
        wide = i32(wide + i32(cuda.popc(i32(wides))))
        start = i32(start + i32(32))
    start = i32(0)
    while start < coded and left >= i32(0):
        takes = i32(start + lane) < coded
        x, bits, left = get(
            takes, x, i32(CLASS), sums_at(i32(CLASS)), sums, coarse, pieces, left, lane
        )
        if takes:
            store_i64(own + i64(8) * i64(i32(start + lane)), i64(bits))
        start = i32(start + i32(32))
    cuda.syncwarp()
    return x, left, coded, wide


@device
def take_bases(unit, bit, end, coded, own, lane):
    """Turn the classes of the bases into bases; returns (bit behind their raw bits, soundness)."""
    before = i64(0)
    sound = True
    start = i32(0)
    while start < coded:
        takes = i32(start + lane) < coded
        at = own + i64(8) * i64(i32(start + lane))
        bits = i32(0)
        raw = i32(0)
        if takes:
            bits = i32(load_i64_any(at))
            if bits > i32(0):
                raw = i32(bits - i32(1))
        upto = running_sum(raw, lane)
        z = i64(0)
        if bits > i32(0):
            z = take_bits(unit, bit + i64(i32(upto - raw)), end, raw) | (i64(1) << i64(raw))
        change = ((z >> i64(1)) & i64(0x7FFFFFFFFFFFFFFF)) ^ -(z & i64(1))
        base = running_sum_64(change, lane) + before
        if takes:
            store_i64(at, base)
            sound = sound and base > i64(-MAX_SUM) and base < i64(MAX_SUM)
        bit += i64(cuda.shfl_sync(ALL, upto, 31))
        before = cuda.shfl_sync(ALL, base, 31)
        start = i32(start + i32(32))
    cuda.syncwarp()
    return bit, cuda.all_sync(ALL, sound)


@device
def take_widths(x, left, wide, sums, coarse, pieces, widths, lane):
    """Decode all widths of a unit, a byte each; returns (state, pieces left)."""
    context = i32(i32(WIDTH) + i32(FIRST))
    i = i32(0)
    while i < i32(wide << i32(1)) and left >= i32(0):
        x, width, left = get(True, x, context, sums_at(context), sums, coarse, pieces, left, lane)
        number = i32(i32(i32(wide << i32(1)) * lane) + i)
        store_u8_any(widths + i64(number), u32(width))
        context = i32(i32(WIDTH) + width)
        i = i32(i + i32(1))
    cuda.syncwarp()
    return x, left


@device
def sum_low_bits(widths, wide, lane):
    """Raw bits of all fields of a unit."""
    bits = i32(0)
    row = i32(0)
    while row < wide:
        at = widths + i64(BLOCKS) * i64(row) + i64(i32(lane << i32(1)))
        bits = i32(bits + low_bits_of(i32(load_u8_any(at)), i32(load_u8_any(at + i64(1)))))
        row = i32(row + i32(1))
    return i64(cuda.shfl_sync(ALL, running_sum(bits, lane), 31))


@device
def measure(unit, at, end, kind, base, halves, m, value_words, lane):
    """Return the words of a record, and of what is copied of it; -1 for an unsound one.

    `at` is the word of the unit where what is copied starts.
    """
    if (kind & i32(RAW)) != i32(0):
        nwords = i32(m * value_words)
        if (kind & i32(SAME)) != i32(0):
            nwords = value_words
        if nwords > i32(end - at):
            return i32(-1), i32(0)
        return nwords, nwords
    is_long = base != i64(i32(base & i64(0xFFFFFFFF)))
    if is_long != ((kind & i32(LONG)) != i32(0)):
        return i32(-1), i32(0)
    nwords = base_words(kind)
    if has_widths(kind):
        if halves == i32(0):
            return i32(-1), i32(0)
        nwords = i32(nwords + i32(i32(10) + i32(i32(halves + i32(1)) >> i32(1))))
    copied = i32(0)
    most = allowance(m, value_words)
    if (kind & i32(ESCAPES)) != i32(0):
        if at >= end:
            return i32(-1), i32(0)
        entries = load_u32_any(unit + i64(4) * i64(at))
        if entries == u32(0) or entries > u32(most):
            return i32(-1), i32(0)
        size = i32(i32(2) + i32(value_words << i32(1)))
        copied = i32(i32(1) + i32(i32(entries) * size))
        if copied > i32(end - at):
            return i32(-1), i32(0)
        list_at = unit + i64(4) * i64(i32(at + i32(1)))
        if not list_is_sound(list_at, i32(entries), m, value_words, lane):
            return i32(-1), i32(0)
    nwords = i32(nwords + copied)
    if nwords > most:
        return i32(-1), i32(0)
    return nwords, copied


@device
def tile_widths(widths, row, kind, lane):
    """Widths of a lane's two blocks."""
    if not has_widths(kind):
        return i32(0), i32(0)
    at = widths + i64(BLOCKS) * i64(row) + i64(i32(lane << i32(1)))
    return i32(load_u8_any(at)), i32(load_u8_any(at + i64(1)))


@device
def place_records(
    unit, at, end, count, first, n, value_words, kinds, own, widths, table, work, room, lane
):  # fmt: skip
    """Measure all records of a unit, reserve their words and fill the table.

    Returns (first word, word of the unit behind what is copied); -1 for an unsound unit.
    """
    total = i64(0)
    coded = i32(0)
    row = i32(0)
    k = i32(0)
    while k < count:
        kind = i32(load_u8_any(kinds + i64(k)))
        base = i64(0)
        if (kind & i32(RAW)) == i32(0):
            base = load_i64_any(own + i64(8) * i64(coded))
            coded = i32(coded + i32(1))
        one, two = tile_widths(widths, row, kind, lane)
        if has_widths(kind):
            row = i32(row + i32(1))
        _, halves = place_of_blocks(one, two, lane)
        m = i32(min(i64(TILE), n - i64(TILE) * i64(i32(first + k))))
        nwords, copied = measure(unit, at, end, kind, base, halves, m, value_words, lane)
        if nwords < i32(0):
            return i64(-1), i32(0)
        if lane == i32(0):
            entry = table_entry(total, nwords, kind)
            store_i64(table + i64(8) * i64(i32(first + k)), entry)
        total += i64(nwords)
        at = i32(at + copied)
        k = i32(k + i32(1))
    start = i64(0)
    if lane == i32(0):
        start = atomic_add(work, total)
    start = cuda.shfl_sync(ALL, start, 0)
    if start + total > room:
        return i64(-1), i32(0)
    cuda.syncwarp()
    k = lane
    while k < count:
        entry = table + i64(8) * i64(i32(first + k))
        store_i64(entry, load_i64_any(entry) + start)
        k = i32(k + i32(32))
    return start, at


@device
def take_blocks(
    x, left, one, two, before, sums, coarse, pieces, unit, bit, words, at, found, warp, lane
):  # fmt: skip
    """Decode the differences of a tile into a shared array; returns (state, left, bit behind)."""
    count = list_numbers(one, two, i32(lane << i32(1)), found, i32(warp << i32(6)), lane)
    if count < i32(BLOCKS):
        k = i32(0)
        while k < i32(8):
            place = i32(at + i32(i32(i32(k << i32(5)) + lane) << i32(2)))
            store_4_shared(words, place, i32(0), i32(0), i32(0), i32(0))
            k = i32(k + i32(1))
        cuda.syncwarp()
    is_deep = vote(max_i32(one, two) > i32(WHOLE)) != u32(0)  # whether some bits are raw
    step = i32(0)
    while i32(step << i32(1)) < count and left >= i32(0):
        mine = i32(i32(step << i32(1)) + i32(lane >> i32(4)))
        takes = mine < count
        entry = i32(0)
        if takes:
            entry = found[u32(i32(i32(warp << i32(6)) + mine))]
        width = i32(entry & i32(31))
        x, symbol, left = get(
            takes, x, i32(i32(FIELD) + width), i32(entry >> i32(11)), sums, coarse, pieces, left,
            lane,
        )  # fmt: skip
        field = u32(symbol)
        if is_deep:
            low = i32(0)
            if width > i32(WHOLE):
                low = i32(width - i32(WHOLE))
            low_one = cuda.shfl_sync(ALL, low, 0)
            low_two = cuda.shfl_sync(ALL, low, 16)
            if low > i32(0):
                place = bit + i64(i32(i32(lane & i32(15)) * low))
                if lane >= i32(16):
                    place += i64(i32(low_one << i32(4)))
                field = u32(shift_left(field, low) | read_bits(unit, place, low))
            bit += i64(i32(i32(low_one + low_two) << i32(4)))
        if takes:
            d = i32(i32(field) - i32(shift_left(u32(1), i32(width - i32(1)))))
            j = i32(i32(i32(entry >> i32(1)) & i32(0x3F0)) | i32(lane & i32(15)))
            words[u32(i32(at + value_place(j)))] = u32(d)
        step = i32(step + i32(1))
    cuda.syncwarp()
    return x, left, bit


@device
def listed(width, block):
    """Pack what a step needs of a block."""
    start = sums_at(i32(i32(FIELD) + width))
    return i32(i32(start << i32(11)) | i32(i32(block << i32(5)) | width))


@device
def list_numbers(one, two, first, found, at, lane):
    """List the blocks that have a width: width, number, place of sums. Returns how many."""
    both = i32(i32(one > i32(0)) + i32(two > i32(0)))
    upto = running_sum(both, lane)
    place = i32(at + i32(upto - both))
    cuda.syncwarp()
    if one > i32(0):
        found[u32(place)] = listed(one, first)
        place = i32(place + i32(1))
    if two > i32(0):
        found[u32(place)] = listed(two, i32(first + i32(1)))
    cuda.syncwarp()
    return cuda.shfl_sync(ALL, upto, 31)


@device
def decode_unit(
    unit, nwords, first, count, n, value_words, sums, coarse, kinds, own, widths, table, words,
    room, work, tile_words, found, warp, lane,
):  # fmt: skip
    """Decode a unit of so many words; returns whether it is sound."""
    if nwords < i64(UNIT_HEAD) or nwords > i64(0x3FFFFFF):
        return False
    end = i32(nwords)
    left = i32(load_u32_any(unit) & u32(0x7FFFFFFF))
    x = load_u32_any(unit + i64(4) + i64(4) * i64(lane))
    pieces = unit + i64(4 * UNIT_HEAD)
    at = i64(UNIT_HEAD) + ((i64(load_u32_any(unit)) + i64(1)) >> i64(1))
    if at > i64(end) or vote(x < u32(LOW)) != u32(0):
        return False
    if (left & i32(1)) != i32(0) and load_u16_any(pieces + i64(2) * i64(left)) != u32(0):
        return False
    x, left, coded, wide = take_heads(
        x, left, count, value_words, sums, coarse, pieces, kinds, own, lane
    )
    if left < i32(0):
        return False
    bit, sound = take_bases(unit, i64(32) * at, end, coded, own, lane)
    if not sound or not is_padded(unit, bit, end):
        return False
    x, left = take_widths(x, left, wide, sums, coarse, pieces, widths, lane)
    if left < i32(0):
        return False
    bit = ((bit + i64(31)) >> i64(5)) << i64(5)
    low_end = bit + sum_low_bits(widths, wide, lane)
    if not is_padded(unit, low_end, end):
        return False
    copied_at = i32((low_end + i64(31)) >> i64(5))
    start, behind = place_records(
        unit, copied_at, end, count, first, n, value_words, kinds, own, widths, table, work, room,
        lane,
    )  # fmt: skip
    if start < i64(0) or behind != end:
        return False
    to = words + i64(4) * start
    at = i32(warp << i32(10))
    coded = i32(0)
    row = i32(0)
    k = i32(0)
    while k < count:
        kind = i32(load_u8_any(kinds + i64(k)))
        m = i32(min(i64(TILE), n - i64(TILE) * i64(i32(first + k))))
        base = i64(0)
        if (kind & i32(RAW)) == i32(0):
            base = load_i64_any(own + i64(8) * i64(coded))
            coded = i32(coded + i32(1))
        one, two = tile_widths(widths, row, kind, lane)
        before, halves = place_of_blocks(one, two, lane)
        size, copied = measure(unit, copied_at, end, kind, base, halves, m, value_words, lane)
        if (kind & i32(RAW)) == i32(0):
            head = base_words(kind)
            if lane < head:
                store_u32(
                    to + i64(4) * i64(lane),
                    u32((base >> i64(i32(lane << i32(5)))) & i64(0xFFFFFFFF)),
                )
            if has_widths(kind):
                row = i32(row + i32(1))
                x, left, bit = take_blocks(
                    x, left, one, two, before, sums, coarse, pieces, unit, bit, tile_words, at,
                    found, warp, lane,
                )  # fmt: skip
                if left < i32(0):
                    return False
                d = cuda.local.array(32, i32)
                take_run(tile_words, at, lane, d)
                cuda.syncwarp()
                put_quick(tile_words, at, lane, i32(0), d, one, two, before, halves)
                cuda.syncwarp()
                coded_words = i32(i32(size - copied) - head)
                j = lane
                while j < coded_words:
                    word = tile_words[u32(i32(at + i32(j + i32(1))))]
                    store_u32(to + i64(4) * i64(i32(head + j)), word)
                    j = i32(j + i32(32))
                cuda.syncwarp()
        copy_words(
            unit + i64(4) * i64(copied_at), to + i64(4) * i64(i32(size - copied)), copied, lane
        )
        copied_at = i32(copied_at + copied)
        to += i64(4) * i64(size)
        k = i32(k + i32(1))
    return left == i32(0) and cuda.all_sync(ALL, x == u32(LOW))


def decode_units(
    body, offsets, nwords, n, unit, tables, value_words, kinds, own, widths, table, words, room,
    work,
):  # fmt: skip
    """Decode all units.

    Parameters
    ----------
    body, nwords : address and words of the units
    offsets : address of where each starts, an int64 each, and the end of the last
    n, unit : values of the row, and tiles of a unit
    tables : address of the sums of frequencies, 16 bits each, and of the coarse table behind them
    kinds, own, widths : addresses of a byte, an int64 and 64 bytes a tile: room to work in
    table, words, room : addresses of the table and records, written, and words for these
    work : address of two int64, zero: words of all records, and the status, written
    """
    wait_for_previous()
    sums = cuda.shared.array(SUMS, u16)
    coarse = cuda.shared.array(COARSE, u8)
    tile_words = cuda.shared.array(ROOM, u32, alignment=16)
    found = cuda.shared.array(FOUND, i32)
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    warp = i32(thread >> i32(5))
    i = thread
    while i < i32(SUMS):
        sums[u32(i)] = u16(load_u16_any(tables + i64(2) * i64(i)))
        i = i32(i + i32(32 * WARPS))
    i = thread
    while i < i32(COARSE):
        coarse[u32(i)] = u8(load_u8_any(tables + i64(2 * SUMS) + i64(i)))
        i = i32(i + i32(32 * WARPS))
    cuda.syncthreads()
    tiles = i32((n + i64(TILE - 1)) >> i64(10))
    number = i32(i32(i32(cuda.blockIdx.x) * i32(WARPS)) + warp)
    while i64(number) * i64(unit) < i64(tiles):
        first = i32(number * unit)
        count = tiles_of(tiles, first, unit)
        start = load_i64_any(offsets + i64(8) * i64(number))
        end = load_i64_any(offsets + i64(8) * i64(number) + i64(8))
        sound = start >= i64(0) and start <= end and end <= nwords
        if number == i32(0):
            sound = sound and start == i64(0)
        if i64(i32(first + count)) == i64(tiles):
            sound = sound and end == nwords
        if sound:
            sound = decode_unit(
                body + i64(4) * start, end - start, first, count, n, value_words, sums, coarse,
                kinds + i64(first), own + i64(8) * i64(first), widths + i64(BLOCKS) * i64(first),
                table, words, room, work, tile_words, found, warp, lane,
            )  # fmt: skip
        if not sound and lane == i32(0):
            max_to(work + i64(STATUS_AT), i64(DAMAGED))
        number = i32(number + i32(i32(cuda.gridDim.x) * i32(WARPS)))
