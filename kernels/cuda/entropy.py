"""The entropy coder's units on a GPU, a warp each (docs/format.md section 8).

The host makes frequencies of counts, and tables of frequencies: they are small. All kernels take a
body's table and records, in any order, and go through units in turns of all warps of the launch.

    lanes of a step     0 ... 15    field j of a block       16 ... 31    field j of the next one
"""

from zccl.formats import BLOCK, BLOCKS, ESCAPES, LONG, RAW, TILE, ZERO
from zccl.kernels.cuda._compat import ALL, cuda, device, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    add_to,
    div_u32,
    funnel_wrap,
    load_i64_any,
    load_u16_any,
    load_u32_any,
    or_to,
    shift_left,
    shift_right,
    store_i64,
    store_u16,
    store_u32,
    wait_for_previous,
)
from zccl.kernels.cuda.record import (
    load_code,
    place_of_blocks,
    split_entry,
)
from zccl.kernels.cuda.warp import bits_below, running_sum, vote
from zccl.kernels.cuda.widths import load_widths

CONTEXTS = 66
KIND, CLASS, WIDTH, FIRST, FIELD = 0, 1, 2, 32, 34
WHOLE = 8  # bits of a field that are coded
LOW = 1 << 16
UNIT_HEAD = 33  # words before a unit's pieces
PIECES = TILE + BLOCKS + 2  # most of a tile

# Counts and tables have the symbols of a context behind those of the context before.
_ALPHABETS = [64, 65, *[32] * 33, *(1 << min(w, WHOLE) for w in range(1, 32))]
STARTS = [sum(_ALPHABETS[:c]) for c in range(CONTEXTS)]
SYMBOLS = sum(_ALPHABETS)
_WIDTHS_AT, _NARROW_AT, _WIDE_AT = STARTS[WIDTH], STARTS[FIELD + 1], STARTS[FIELD + 9]
_NARROW = _WIDE_AT - _NARROW_AT
COPIES = 8  # of the counts of narrow fields, which all lanes meet in
_COUNTS = SYMBOLS + (COPIES - 1) * _NARROW

# A decoder's tables: for each context one sum more than symbols; where to start looking by the
# upper bits of a slot.
SUMS = SYMBOLS + CONTEXTS
COARSE_BITS = 7
ABSENT = 0xFFFF  # the first sum of a context that occurs nowhere

WARPS = 8  # of a block that counts or codes
_FOUND = WARPS * BLOCKS

_i, _w = types.int64, types.int32


@device
def symbols_at(context):
    """Where the symbols of a context start among all."""
    if context < i32(2):
        return i32(context * i32(64))
    if context < i32(35):
        return i32(i32(_WIDTHS_AT) + i32(i32(context - i32(2)) << i32(5)))
    width = i32(context - i32(FIELD))
    if width <= i32(WHOLE):
        return i32(i32(_NARROW_AT) + i32(i32(shift_left(u32(1), width)) - i32(2)))
    return i32(i32(_WIDE_AT) + i32(i32(width - i32(9)) << i32(8)))


@device
def has_widths(kind):
    """Whether a record has widths and blocks."""
    return (kind & i32(RAW | ZERO)) == i32(0)


@device
def base_words(kind):
    """Words of the base of a coded record."""
    if (kind & i32(LONG)) != i32(0):
        return i32(2)
    return i32(1)


@device
def read_bits(address, bit, count):
    """Read up to 31 bits from bit `bit` of an array in memory on."""
    at = address + i64(4) * (bit >> i64(5))
    shift = i32(bit & i64(31))
    low = load_u32_any(at)
    high = u32(0)
    if i32(shift + count) > i32(32):
        high = load_u32_any(at + i64(4))
    return u32(funnel_wrap(low, high, shift) & u32(shift_left(u32(1), count) - u32(1)))


@device
def zigzag(change):
    """Return a signed number without a sign."""
    return i64((change << i64(1)) ^ (change >> i64(63)))


@device
def class_of(z):
    """Bits of a number below 2^63, or 64."""
    if z < i64(0):
        return i32(64)
    return i32(i32(64) - i32(cuda.clz(z)))


@device
def tiles_of(tiles, first, unit):
    """Return how many tiles a unit has."""
    left = i32(tiles - first)
    if left < unit:
        return left
    return unit


@device
def survey_unit(table, words, first, count, lists, lane):
    """List the bases' changes of a unit's coded tiles, and the tiles that have widths.

    `lists` is the address of two int64 a tile. Returns how many of both there are.
    """
    coded = i32(0)
    wide = i32(0)
    before = i64(0)
    start = i32(0)
    while start < count:
        k = i32(start + lane)
        kind = i32(RAW)
        base = i64(0)
        if k < count:
            place, _, kind = split_entry(load_i64_any(table + i64(8) * i64(i32(first + k))))
            if (kind & i32(RAW)) == i32(0):
                base = load_code(words + i64(4) * place, base_words(kind))
        mine = (kind & i32(RAW)) == i32(0)
        mask = vote(mine)
        below = u32(mask & bits_below(lane))
        previous = before
        source = i32(0)
        if below != u32(0):
            source = i32(i32(31) - i32(cuda.clz(i32(below))))
        other = cuda.shfl_sync(ALL, base, source)
        if below != u32(0):
            previous = other
        if mine:
            at = i32(coded + i32(cuda.popc(i32(below))))
            store_i64(lists + i64(16) * i64(at), zigzag(base - previous))
        if mask != u32(0):
            last = i32(i32(31) - i32(cuda.clz(i32(mask))))
            before = cuda.shfl_sync(ALL, base, last)
        coded = i32(coded + i32(cuda.popc(i32(mask))))
        wides = vote(k < count and has_widths(kind))
        if k < count and has_widths(kind):
            at = i32(wide + i32(cuda.popc(i32(u32(wides & bits_below(lane))))))
            store_i64(lists + i64(16) * i64(at) + i64(8), i64(k))
        wide = i32(wide + i32(cuda.popc(i32(wides))))
        start = i32(start + i32(32))
    cuda.syncwarp()
    return coded, wide


@device
def width_number(table, words, first, lists, number):
    """Width of a block of a unit, by its number among those that are coded."""
    k = load_i64_any(lists + i64(16) * i64(i32(number >> i32(6))) + i64(8))
    place, _, kind = split_entry(load_i64_any(table + i64(8) * (i64(first) + k)))
    bit = i64(32) * (place + i64(base_words(kind))) + i64(5) * i64(i32(number & i32(63)))
    return i32(read_bits(words, bit, i32(5)))


@device
def width_context(table, words, first, lists, number, i):
    """Context of a width, the i-th of its lane."""
    before = i32(FIRST)
    if i > i32(0):
        before = width_number(table, words, first, lists, i32(number - i32(1)))
    return i32(i32(WIDTH) + before)


def count_units(table, words, tiles, unit, lists, counts):
    """Count the symbols of each context.

    Parameters
    ----------
    table, words : addresses of a body's table and records
    tiles, unit : tiles of the body, and of a unit
    lists : address of two int64 a tile: changes of bases, and tiles with widths, of each unit
    counts : address of an int64 for each symbol of all contexts, added to
    """
    wait_for_previous()
    mine = cuda.shared.array(_COUNTS, u32)
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    i = thread
    while i < i32(_COUNTS):
        mine[u32(i)] = u32(0)
        i = i32(i + i32(32 * WARPS))
    cuda.syncthreads()
    copy = i32(0)
    if i32(lane & i32(7)) > i32(0):
        copy = i32(i32(SYMBOLS - _NARROW_AT) + i32(i32(i32(lane & i32(7)) - i32(1)) * i32(_NARROW)))
    first = i32(i32(i32(cuda.blockIdx.x) * i32(WARPS)) + i32(thread >> i32(5)))
    first = i32(first * unit)
    while first < tiles:
        count = tiles_of(tiles, first, unit)
        own = lists + i64(16) * i64(first)
        coded, wide = survey_unit(table, words, first, count, own, lane)
        k = lane
        while k < count:
            _, _, kind = split_entry(load_i64_any(table + i64(8) * i64(i32(first + k))))
            cuda.atomic.add(mine, u32(kind), u32(1))
            k = i32(k + i32(32))
        k = lane
        while k < coded:
            symbol = class_of(load_i64_any(own + i64(16) * i64(k)))
            cuda.atomic.add(mine, u32(i32(i32(64) + symbol)), u32(1))
            k = i32(k + i32(32))
        i = i32(0)
        while i < i32(wide << i32(1)):
            number = i32(i32(i32(wide << i32(1)) * lane) + i)
            context = width_context(table, words, first, own, number, i)
            width = width_number(table, words, first, own, number)
            cuda.atomic.add(mine, u32(i32(symbols_at(context) + width)), u32(1))
            i = i32(i + i32(1))
        row = i32(0)
        while row < wide:
            k = i32(load_i64_any(own + i64(16) * i64(row) + i64(8)))
            place, _, kind = split_entry(load_i64_any(table + i64(8) * i64(i32(first + k))))
            at = place + i64(base_words(kind))
            one, two = load_widths(words + i64(4) * at, lane)
            before, _ = place_of_blocks(one, two, lane)
            bit = i64(32) * (at + i64(10)) + i64(16) * i64(before)
            for half in range(2):
                width = one if half == 0 else two
                if width > i32(0):
                    start = symbols_at(i32(i32(FIELD) + width))
                    low = i32(0)
                    if width > i32(WHOLE):
                        low = i32(width - i32(WHOLE))
                    else:
                        start = i32(start + copy)
                    j = i32(0)
                    while j < i32(BLOCK):
                        symbol = shift_right(read_bits(words, bit, width), low)
                        cuda.atomic.add(mine, u32(i32(start + i32(symbol))), u32(1))
                        bit += i64(width)
                        j = i32(j + i32(1))
            row = i32(row + i32(1))
        first = i32(first + i32(i32(i32(cuda.gridDim.x) * i32(WARPS)) * unit))
    cuda.syncthreads()
    i = thread
    while i < i32(SYMBOLS):
        total = i64(mine[u32(i)])
        if i >= i32(_NARROW_AT) and i < i32(_WIDE_AT):
            k = i32(0)
            while k < i32(COPIES - 1):
                at = i32(i32(i32(SYMBOLS) + i32(k * i32(_NARROW))) + i32(i - i32(_NARROW_AT)))
                total += i64(mine[u32(at)])
                k = i32(k + i32(1))
        if total > i64(0):
            add_to(counts + i64(8) * i64(i), total)
        i = i32(i + i32(32 * WARPS))


@device
def put(takes, x, pair, pieces, used, lane):
    """Code a symbol of each lane that takes part; returns (state, pieces in use)."""
    f = u32(pair & u32(8191))
    full = takes and u32(x >> u32(20)) >= f
    mask = vote(full)
    if full:
        at = i32(used + i32(cuda.popc(i32(u32(mask & bits_below(lane))))))
        store_u16(pieces + i64(2) * i64(at), u32(x & u32(0xFFFF)))
        x = u32(x >> u32(16))
    if takes:
        q = div_u32(x, f)
        x = u32(u32(q << u32(12)) + u32(u32(x - u32(q * f)) + u32(pair >> u32(13))))
    return x, i32(used + i32(cuda.popc(i32(mask))))


@device
def list_blocks(one, two, before, found, at, lane):
    """List the blocks that have a width: half-words before it, and that. Returns how many.

    `found` is a shared array with room for 64 from `at` on.
    """
    both = i32(i32(one > i32(0)) + i32(two > i32(0)))
    upto = running_sum(both, lane)
    place = i32(at + i32(upto - both))
    if one > i32(0):
        found[u32(place)] = i32(i32(before << i32(5)) | one)
        place = i32(place + i32(1))
    if two > i32(0):
        found[u32(place)] = i32(i32(i32(before + one) << i32(5)) | two)
    cuda.syncwarp()
    return cuda.shfl_sync(ALL, upto, 31)


@device
def list_nwords(kind, nwords, place, words, value_words):
    """Words of a record that are copied: a raw one, or the list of a coded one."""
    if (kind & i32(RAW)) != i32(0):
        return nwords
    if (kind & i32(ESCAPES)) == i32(0):
        return i32(0)
    used = base_words(kind)
    if has_widths(kind):
        total = i32(0)
        k = i32(0)
        bit = i64(32) * (place + i64(used))
        while k < i32(BLOCKS):
            total = i32(total + i32(read_bits(words, bit + i64(5) * i64(k), i32(5))))
            k = i32(k + i32(1))
        used = i32(used + i32(i32(10) + i32(i32(total + i32(1)) >> i32(1))))
    return i32(nwords - used)


@device
def low_bits_of(one, two):
    """Raw bits of the fields of a lane's two blocks."""
    bits = i32(0)
    if one > i32(WHOLE):
        bits = i32(i32(one - i32(WHOLE)) << i32(4))
    if two > i32(WHOLE):
        bits = i32(bits + i32(i32(two - i32(WHOLE)) << i32(4)))
    return bits


@device
def sum_lanes(value):
    """Sum of an int32 over the lanes."""
    return cuda.shfl_sync(ALL, running_sum(value, i32(cuda.laneid)), 31)


@device
def raw_bits(z):
    """Bits of a base that are not coded."""
    bits = i32(class_of(z) - i32(1))
    if bits < i32(0):
        return i32(0)
    return bits


def encode_units(
    table, words, tiles, unit, value_words, lists, pairs, pieces, states, sizes
):  # fmt: skip
    """Code the units, and find out how long they are.

    Parameters
    ----------
    table, words, tiles, unit, lists : as for `count_units`, which has filled the lists
    pairs : address of a packed frequency (f | F << 13) for each symbol of all contexts
    pieces : address of 2 * PIECES bytes a tile, written: pieces of units
    states : address of 33 words a unit, written: number of pieces, states
    sizes : address of an int64 a unit, written: words of the whole unit
    """
    wait_for_previous()
    found = cuda.shared.array(_FOUND, i32)
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    room = i32(i32(thread >> i32(5)) << i32(6))
    number = i32(i32(i32(cuda.blockIdx.x) * i32(WARPS)) + i32(thread >> i32(5)))
    while i64(number) * i64(unit) < i64(tiles):
        first = i32(number * unit)
        count = tiles_of(tiles, first, unit)
        own = lists + i64(16) * i64(first)
        coded, wide = survey_unit(table, words, first, count, own, lane)
        to = pieces + i64(2 * PIECES) * i64(first)
        x = u32(LOW)
        used = i32(0)
        low_bits = i32(0)
        row = i32(wide - i32(1))
        while row >= i32(0):
            k = i32(load_i64_any(own + i64(16) * i64(row) + i64(8)))
            place, _, kind = split_entry(load_i64_any(table + i64(8) * i64(i32(first + k))))
            at = place + i64(base_words(kind))
            one, two = load_widths(words + i64(4) * at, lane)
            before, _ = place_of_blocks(one, two, lane)
            low_bits = i32(low_bits + low_bits_of(one, two))
            cuda.syncwarp()
            blocks = list_blocks(one, two, before, found, room, lane)
            start = i64(32) * (at + i64(10))
            step = i32(i32(blocks - i32(1)) >> i32(1))
            while step >= i32(0):
                mine = i32(i32(step << i32(1)) + i32(lane >> i32(4)))
                takes = mine < blocks
                pair = u32(1)
                if takes:
                    entry = found[u32(i32(room + mine))]
                    width = i32(entry & i32(31))
                    bit = start + i64(16) * i64(i32(entry >> i32(5)))
                    bit += i64(i32(i32(lane & i32(15)) * width))
                    low = i32(0)
                    if width > i32(WHOLE):
                        low = i32(width - i32(WHOLE))
                    symbol = i32(shift_right(read_bits(words, bit, width), low))
                    index = i32(symbols_at(i32(i32(FIELD) + width)) + symbol)
                    pair = load_u32_any(pairs + i64(4) * i64(index))
                x, used = put(takes, x, pair, to, used, lane)
                step = i32(step - i32(1))
            row = i32(row - i32(1))
        i = i32(i32(wide << i32(1)) - i32(1))
        while i >= i32(0):
            k = i32(i32(i32(wide << i32(1)) * lane) + i)
            context = width_context(table, words, first, own, k, i)
            width = width_number(table, words, first, own, k)
            pair = load_u32_any(pairs + i64(4) * i64(i32(symbols_at(context) + width)))
            x, used = put(True, x, pair, to, used, lane)
            i = i32(i - i32(1))
        base_bits = i32(0)
        start_at = i32(i32(i32(coded - i32(1)) >> i32(5)) << i32(5))
        while start_at >= i32(0):
            k = i32(start_at + lane)
            takes = k < coded
            pair = u32(1)
            if takes:
                z = load_i64_any(own + i64(16) * i64(k))
                base_bits = i32(base_bits + raw_bits(z))
                pair = load_u32_any(pairs + i64(4) * i64(i32(i32(64) + class_of(z))))
            x, used = put(takes, x, pair, to, used, lane)
            start_at = i32(start_at - i32(32))
        copied = i32(0)
        start_at = i32(i32(i32(count - i32(1)) >> i32(5)) << i32(5))
        while start_at >= i32(0):
            k = i32(start_at + lane)
            takes = k < count
            pair = u32(1)
            if takes:
                place, nwords, kind = split_entry(
                    load_i64_any(table + i64(8) * i64(i32(first + k)))
                )
                copied = i32(copied + list_nwords(kind, nwords, place, words, value_words))
                pair = load_u32_any(pairs + i64(4) * i64(kind))
            x, used = put(takes, x, pair, to, used, lane)
            start_at = i32(start_at - i32(32))
        low_bits = sum_lanes(low_bits)
        base_bits = sum_lanes(base_bits)
        copied = sum_lanes(copied)
        head = states + i64(4 * UNIT_HEAD) * i64(number)
        store_u32(head + i64(4) + i64(4) * i64(lane), x)
        if lane == i32(0):
            store_u32(head, u32(used))
            total = i64(UNIT_HEAD) + i64(i32(i32(used + i32(1)) >> i32(1)))
            total += i64(i32(i32(base_bits + i32(31)) >> i32(5)))
            total += i64(i32(i32(low_bits + i32(31)) >> i32(5))) + i64(copied)
            store_i64(sizes + i64(8) * i64(number), total)
        number = i32(number + i32(i32(cuda.gridDim.x) * i32(WARPS)))


@device
def write_bits(address, bit, value, count):
    """Set up to 32 bits from bit `bit` of zeroed memory on; others may set those beside them."""
    if count > i32(0):
        at = address + i64(4) * (bit >> i64(5))
        shift = i32(bit & i64(31))
        or_to(at, u32(shift_left(value, shift)))
        if i32(shift + count) > i32(32):
            or_to(at + i64(4), u32(shift_right(value, i32(i32(32) - shift))))


@device
def copy_words(source, target, count, lane):
    """Copy words from memory to memory."""
    k = lane
    while k < count:
        store_u32(target + i64(4) * i64(k), load_u32_any(source + i64(4) * i64(k)))
        k = i32(k + i32(32))


@device
def write_low_bits(words, bit, width, target, to):
    """Write the raw bits of a block's fields; returns the bit behind them."""
    low = i32(width - i32(WHOLE))
    j = i32(0)
    while j < i32(BLOCK):
        write_bits(target, to, read_bits(words, bit, low), low)
        bit += i64(width)
        to += i64(low)
        j = i32(j + i32(1))
    return to


def write_units(
    table, words, tiles, unit, value_words, lists, pieces, states, offsets, out
):  # fmt: skip
    """Write the units one behind the other.

    Parameters
    ----------
    table to states : as for `encode_units`, which has filled pieces and states
    offsets : address of an int64 a unit: its first word
    out : address of the first unit, zero all over, written
    """
    wait_for_previous()
    lane = i32(i32(cuda.threadIdx.x) & i32(31))
    number = i32(i32(i32(cuda.blockIdx.x) * i32(WARPS)) + i32(i32(cuda.threadIdx.x) >> i32(5)))
    while i64(number) * i64(unit) < i64(tiles):
        first = i32(number * unit)
        count = tiles_of(tiles, first, unit)
        own = lists + i64(16) * i64(first)
        coded, wide = survey_unit(table, words, first, count, own, lane)
        to = out + i64(4) * load_i64_any(offsets + i64(8) * i64(number))
        head = states + i64(4 * UNIT_HEAD) * i64(number)
        copy_words(head, to, i32(UNIT_HEAD), lane)
        used = i32(load_u32_any(head))
        source = pieces + i64(2 * PIECES) * i64(first)
        full = i32(used >> i32(1))
        copy_words(source, to + i64(4 * UNIT_HEAD), full, lane)
        if lane == i32(0) and (used & i32(1)) != i32(0):
            last = load_u16_any(source + i64(4) * i64(full))
            store_u32(to + i64(4) * i64(i32(i32(UNIT_HEAD) + full)), last)
        bit = i64(32) * i64(i32(i32(UNIT_HEAD) + i32(i32(used + i32(1)) >> i32(1))))
        start = i32(0)
        while start < coded:
            k = i32(start + lane)
            z = i64(0)
            bits = i32(0)
            if k < coded:
                z = load_i64_any(own + i64(16) * i64(k))
                bits = raw_bits(z)
            upto = running_sum(bits, lane)
            at = bit + i64(i32(upto - bits))
            value = z & ((i64(1) << i64(bits)) - i64(1))
            write_bits(to, at, u32(value & i64(0xFFFFFFFF)), min(bits, i32(32)))
            if bits > i32(32):
                write_bits(to, at + i64(32), u32(value >> i64(32)), i32(bits - i32(32)))
            bit += i64(cuda.shfl_sync(ALL, upto, 31))
            start = i32(start + i32(32))
        bit = ((bit + i64(31)) >> i64(5)) << i64(5)
        row = i32(0)
        while row < wide:
            k = i32(load_i64_any(own + i64(16) * i64(row) + i64(8)))
            place, _, kind = split_entry(load_i64_any(table + i64(8) * i64(i32(first + k))))
            at = place + i64(base_words(kind))
            one, two = load_widths(words + i64(4) * at, lane)
            bits = low_bits_of(one, two)
            upto = running_sum(bits, lane)
            if vote(bits > i32(0)) != u32(0):
                before, _ = place_of_blocks(one, two, lane)
                source_bit = i64(32) * (at + i64(10)) + i64(16) * i64(before)
                target = bit + i64(i32(upto - bits))
                if one > i32(WHOLE):
                    target = write_low_bits(words, source_bit, one, to, target)
                if two > i32(WHOLE):
                    write_low_bits(words, source_bit + i64(16) * i64(one), two, to, target)
            bit += i64(cuda.shfl_sync(ALL, upto, 31))
            row = i32(row + i32(1))
        target = to + i64(4) * ((bit + i64(31)) >> i64(5))
        k = i32(0)
        while k < count:
            place, nwords, kind = split_entry(load_i64_any(table + i64(8) * i64(i32(first + k))))
            copied = i32(0)
            if (kind & i32(RAW | ESCAPES)) != i32(0):
                copied = list_nwords(kind, nwords, place, words, value_words)
                copy_words(
                    words + i64(4) * (place + i64(i32(nwords - copied))), target, copied, lane
                )
            target += i64(4) * i64(copied)
            k = i32(k + i32(1))
        number = i32(number + i32(i32(cuda.gridDim.x) * i32(WARPS)))


COUNT_SIGNATURE = (_i, _i, _w, _w, _i, _i)
ENCODE_SIGNATURE = (_i, _i, _w, _w, _w, _i, _i, _i, _i, _i)
WRITE_SIGNATURE = (_i, _i, _w, _w, _w, _i, _i, _i, _i, _i)
