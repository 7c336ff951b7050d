"""The entropy coder's units: 32 interleaved rANS states over a few tiles (format section 8).

A unit is coded backwards and decoded forwards; both go through the same steps.
"""

from collections import namedtuple

import numpy as np

from zccl.formats import (
    BLOCK,
    BLOCKS,
    ESCAPES,
    LONG,
    MAX_SUM,
    RAW,
    SAME,
    SMALL,
    TILE,
    WIDTH_WORDS,
    ZERO,
)
from zccl.kernels.cpu._compile import helper, kernel
from zccl.kernels.cpu.bits import append_bits, read_bits
from zccl.kernels.cpu.frequencies import M_BITS, M
from zccl.kernels.cpu.memory import address, load_32, load_64, store_32, store_64
from zccl.kernels.cpu.record import (
    allowance,
    base_nwords,
    coded_nwords,
    entries_are_sound,
    entry_nwords,
    open_record,
    put_code,
    table_entry,
)
from zccl.kernels.cpu.stages import pack_block
from zccl.kernels.cpu.widths import pack_widths

LANES = 32
MAX_UNIT = 256  # tiles
KIND, CLASS, WIDTH, FIRST, FIELD = 0, 1, 2, 32, 34  # contexts; FIRST is the width before none
WHOLE = 8  # bits of a field that are coded
LOW = 1 << 16  # a state is never below
HEAD_NWORDS = 1 + LANES

# Arrays for the work on one unit: kinds, bases, places of blocks and of what is copied and its
# words, by tile; widths by coded tile that is not ZERO; states; pieces.
Unit = namedtuple("Unit", "kinds bases blocks copied copied_nwords widths states pieces")


@helper
def make_unit():
    """Arrays for the work on one unit."""
    return Unit(
        np.empty(MAX_UNIT, np.int64),
        np.empty(MAX_UNIT, np.int64),
        np.empty(MAX_UNIT, np.int64),
        np.empty(MAX_UNIT, np.int64),
        np.empty(MAX_UNIT, np.int64),
        np.empty(MAX_UNIT * BLOCKS + 8, np.uint8),
        np.empty(LANES, np.uint32),
        np.empty(MAX_UNIT * (TILE + BLOCKS + 2), np.uint16),
    )


@helper
def has_widths(kind):
    """Whether a record has widths and blocks."""
    return (kind & (RAW | ZERO)) == 0


@helper
def open_unit(u, table, words, nwords, first, last, n, value_words, spare):
    """Take the records of tiles `first` to `last` apart.

    Returns how many have widths; -1 for a damaged one. `words` have `OVERRUN` bytes to spare.
    """
    wide = 0
    for t in range(first, last):
        m = min(TILE, n - TILE * t)
        widths = u.widths[BLOCKS * wide : BLOCKS * (wide + 1)]
        record = open_record(table[t], words, nwords, m, value_words, widths, spare)
        if record.nwords < 0:
            return -1
        k = t - first
        u.kinds[k] = record.kind
        u.bases[k] = record.base
        u.blocks[k] = record.blocks
        if record.kind & RAW:
            u.copied[k] = record.at
            u.copied_nwords[k] = record.nwords
        elif record.kind & ESCAPES:
            u.copied[k] = record.escapes - 4
            u.copied_nwords[k] = 1 + record.entries * entry_nwords(value_words)
        else:
            u.copied_nwords[k] = 0
        if has_widths(record.kind):
            wide += 1
    return wide


@helper
def zigzag(d):
    """Code a signed number without a sign."""
    return np.uint64((d << np.int64(1)) ^ (d >> np.int64(63)))


@helper
def class_of(z):
    """Bits of an unsigned number."""
    bits = 0
    while bits < 64 and z >> np.uint64(bits):
        bits += 1
    return bits


@helper
def field(source, bit, width):
    """Read a field of a block."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    return np.int64((load_64(source + (bit >> 3)) >> np.uint64(bit & 7)) & mask)


@helper
def width_context(widths, at, i):
    """Context of width number `at`, the i-th of a lane."""
    return WIDTH + (FIRST if i == 0 else np.int64(widths[at - 1]))


@kernel
def count_symbols(table, words, nwords, first_unit, last_unit, unit, n, value_words, counts):
    """Count the symbols of each context in some units.

    Parameters
    ----------
    table, words, nwords : a body; words have `OVERRUN` bytes to spare
    first_unit, last_unit : units to look at
    unit : tiles of a unit
    n : values of the row
    value_words : words of a value
    counts : int64 array of 256 a context, added to

    Returns
    -------
    Whether all records are sound.
    """
    u = make_unit()
    spare = np.empty(1, np.uint32)
    for number in range(first_unit, last_unit):
        first = number * unit
        last = min(first + unit, table.size)
        wide = open_unit(u, table, words, nwords, first, last, n, value_words, spare)
        if wide < 0:
            return False
        before = np.int64(0)
        row = 0
        for k in range(last - first):
            counts[KIND, u.kinds[k]] += 1
            if u.kinds[k] & RAW:
                continue
            counts[CLASS, class_of(zigzag(u.bases[k] - before))] += 1
            before = u.bases[k]
            if not has_widths(u.kinds[k]):
                continue
            source = u.blocks[k]
            for block in range(BLOCKS):
                width = np.int64(u.widths[BLOCKS * row + block])
                if width:
                    of_width = counts[FIELD + width]
                    low = max(width - WHOLE, 0)
                    for j in range(BLOCK):
                        of_width[field(source, j * width, width) >> low] += 1
                    source += 2 * width
            row += 1
        for lane in range(LANES):
            for i in range(2 * wide):
                at = 2 * wide * lane + i
                counts[width_context(u.widths, at, i), u.widths[at]] += 1
    return True


@helper
def put(u, used, lane, pair):
    """Code a symbol, given by its packed frequencies; returns the number of pieces."""
    f = pair & np.uint32(2 * M - 1)
    x = u.states[lane]
    if np.uint64(x) >= np.uint64(f) << np.uint64(32 - M_BITS):
        u.pieces[used] = np.uint16(x & np.uint32(0xFFFF))
        used += 1
        x >>= np.uint32(16)
    q = x // f
    u.states[lane] = (q << np.uint32(M_BITS)) + (x - q * f) + (pair >> np.uint32(13))
    return used


@helper
def put_blocks(u, used, tile, row, pairs, nonzero):
    """Code the differences of a tile, last step first."""
    count = 0
    source = u.blocks[tile]
    for block in range(BLOCKS):
        width = np.int64(u.widths[BLOCKS * row + block])
        if width:
            nonzero[count] = source << 5 | width
            count += 1
        source += 2 * width
    for step in range((count - 1) // 2, -1, -1):
        for half in range(2):
            if 2 * step + half >= count:
                continue
            width = nonzero[2 * step + half] & 31
            at = nonzero[2 * step + half] >> 5
            low = max(width - WHOLE, 0)
            of_width = pairs[FIELD + width]
            for j in range(BLOCK):
                symbol = field(at, j * width, width) >> low
                used = put(u, used, BLOCK * half + j, of_width[symbol])
    return used


@helper
def put_steps(u, tiles, wide, pairs, scratch):
    """Code all symbols of a unit; returns the number of pieces."""
    u.states[:] = LOW
    used = 0
    row = wide
    for k in range(tiles - 1, -1, -1):
        if has_widths(u.kinds[k]):
            row -= 1
            used = put_blocks(u, used, k, row, pairs, scratch)
    for i in range(2 * wide - 1, -1, -1):
        for lane in range(LANES):
            at = 2 * wide * lane + i
            used = put(u, used, lane, pairs[width_context(u.widths, at, i), u.widths[at]])
    coded = 0
    for k in range(tiles):
        if not u.kinds[k] & RAW:
            before = u.bases[scratch[coded - 1]] if coded else np.int64(0)
            scratch[MAX_UNIT + coded] = class_of(zigzag(u.bases[k] - before))
            scratch[coded] = k
            coded += 1
    for start in range((coded - 1) // LANES * LANES, -1, -LANES):
        for lane in range(min(LANES, coded - start)):
            used = put(u, used, lane, pairs[CLASS, scratch[MAX_UNIT + start + lane]])
    for start in range((tiles - 1) // LANES * LANES, -1, -LANES):
        for lane in range(min(LANES, tiles - start)):
            used = put(u, used, lane, pairs[KIND, u.kinds[start + lane]])
    return used


@helper
def low_bits(u, wide):
    """Raw bits of all differences of a unit."""
    bits = np.int64(0)
    for block in range(BLOCKS * wide):
        bits += BLOCK * max(np.int64(u.widths[block]) - WHOLE, 0)
    return bits


@helper
def put_raw_bits(u, tiles, words, at):
    """Write what is not coded, from word `at` on; returns the word behind it."""
    bit = 32 * at
    before = np.int64(0)
    for k in range(tiles):
        if not u.kinds[k] & RAW:
            z = zigzag(u.bases[k] - before)
            before = u.bases[k]
            bit = append_bits(words, bit, z, max(class_of(z) - 1, 0))
    bit = (bit + 31) // 32 * 32
    row = 0
    for k in range(tiles):
        if not has_widths(u.kinds[k]):
            continue
        source = u.blocks[k]
        for block in range(BLOCKS):
            width = np.int64(u.widths[BLOCKS * row + block])
            if width > WHOLE:
                for j in range(BLOCK):
                    value = np.uint64(field(source, j * width, width))
                    bit = append_bits(words, bit, value, width - WHOLE)
            source += 2 * width
        row += 1
    at = (bit + 31) // 32
    for k in range(tiles):
        for i in range(u.copied_nwords[k]):
            words[at + i] = np.uint32(load_32(u.copied[k] + 4 * i))
        at += u.copied_nwords[k]
    return at


@kernel
def encode_units(
    table, words, nwords, first_unit, last_unit, unit, n, value_words, pairs, out, sizes
):
    """Code some units, one behind the other.

    Parameters
    ----------
    table to value_words : as for `count_symbols`
    pairs : as `fill_encoder` made them
    out : uint32 array, written
    sizes : int64 array of all units, those of these written: words

    Returns
    -------
    Words in use; -1 where `out` might not suffice.
    """
    u = make_unit()
    scratch = np.empty(2 * MAX_UNIT, np.int64)
    spare = np.empty(1, np.uint32)
    used = 0
    for number in range(first_unit, last_unit):
        first = number * unit
        last = min(first + unit, table.size)
        wide = open_unit(u, table, words, nwords, first, last, n, value_words, spare)
        pieces = put_steps(u, last - first, wide, pairs, scratch)
        most = HEAD_NWORDS + (pieces + 1) // 2 + 2 * (last - first) + (low_bits(u, wide) + 31) // 32
        for k in range(last - first):
            most += u.copied_nwords[k]
        if used + most > out.size:
            return -1
        out[used] = pieces
        for lane in range(LANES):
            out[used + 1 + lane] = u.states[lane]
        at = used + HEAD_NWORDS
        if pieces & 1:
            u.pieces[pieces] = 0
        for i in range(0, pieces, 2):
            out[at] = np.uint32(u.pieces[i]) | np.uint32(u.pieces[i + 1]) << np.uint32(16)
            at += 1
        end = put_raw_bits(u, last - first, out, at)
        sizes[number] = end - used
        used = end
    return used


@helper
def get(u, left, lane, slots):
    """Decode a symbol of a lane; returns it and the pieces left, -1 where they are used up."""
    x = u.states[lane]
    entry = slots[x & np.uint32(M - 1)]
    f = ((entry >> np.uint32(8)) & np.uint32(M - 1)) + np.uint32(1)
    x = f * (x >> np.uint32(M_BITS)) + (entry >> np.uint32(20))
    if x < LOW:
        left -= 1
        if left < 0:
            return np.int64(0), np.int64(-1)
        x = x << np.uint32(16) | np.uint32(u.pieces[left])
    u.states[lane] = x
    return np.int64(entry & np.uint32(0xFF)), left


@helper
def get_heads(u, left, tiles, value_words, slots, scratch):
    """Decode kinds and classes, these into `scratch`.

    Returns (coded tiles, those with widths, pieces left); the last is -1 for what no encoder
    writes.
    """
    known = RAW | SAME | ZERO | ESCAPES | LONG | (SMALL if value_words == 1 else 0)
    coded = 0
    wide = 0
    for start in range(0, tiles, LANES):
        for lane in range(min(LANES, tiles - start) - 1, -1, -1):
            kind, left = get(u, left, lane, slots[KIND])
            if left < 0 or kind & ~known or (kind & RAW and kind & ~(RAW | SAME)):
                return 0, 0, np.int64(-1)
            if kind & SAME and not kind & RAW:
                return 0, 0, np.int64(-1)
            u.kinds[start + lane] = kind
            coded += (kind & RAW) == 0
            wide += has_widths(kind)
    for start in range(0, coded, LANES):
        for lane in range(min(LANES, coded - start) - 1, -1, -1):
            scratch[start + lane], left = get(u, left, lane, slots[CLASS])
            if left < 0 or scratch[start + lane] > 64:
                return 0, 0, np.int64(-1)
    return coded, wide, left


@helper
def get_widths(u, left, wide, slots):
    """Decode widths; returns the pieces left."""
    for i in range(2 * wide):
        for lane in range(LANES - 1, -1, -1):
            at = 2 * wide * lane + i
            u.widths[at], left = get(u, left, lane, slots[width_context(u.widths, at, i)])
            if left < 0:
                return left
    return left


@helper
def is_padded(words, bit, end):
    """Whether the rest of the word that ends with a string of bits is there and zero."""
    if (bit + 31) // 32 > end:
        return False
    return read_bits(words, bit, end, (32 - bit % 32) % 32) == 0


@helper
def get_bases(u, tiles, words, bit, end, classes):
    """Read the raw bits of the bases; returns the bit behind them, -1 for unsound ones."""
    before = np.int64(0)
    coded = 0
    for k in range(tiles):
        u.bases[k] = 0
        if u.kinds[k] & RAW:
            continue
        bits = classes[coded]
        coded += 1
        z = np.uint64(0)
        if bits:
            z = np.uint64(1) << np.uint64(bits - 1)
            z |= read_bits(words, bit, end, bits - 1)
            bit += bits - 1
        before += np.int64(z >> np.uint64(1)) ^ -np.int64(z & np.uint64(1))
        u.bases[k] = before
        is_long = base_nwords(before) == 2
        if not -MAX_SUM < before < MAX_SUM or is_long != ((u.kinds[k] & LONG) != 0):
            return np.int64(-1)
    return bit


@helper
def get_block(u, left, half, width, of_width, differences):
    """Decode the coded bits of a block's differences, the last one first; returns the pieces left.

    Half 0 or 1 of the lanes.
    """
    low = max(width - WHOLE, 0)
    offset = np.int64(1) << (width - 1)
    for j in range(BLOCK - 1, -1, -1):
        symbol, left = get(u, left, BLOCK * half + j, of_width)
        if left < 0:
            return left
        differences[BLOCK * half + j] = np.int32((symbol << low) - offset)
    return left


@helper
def add_low_bits(words, bit, half, low, differences):
    """Add the raw bits of a block's differences; returns the bit behind them."""
    for j in range(BLOCK * half, BLOCK * (half + 1)):
        differences[j] += np.int32(read_bits(words, bit, words.size, low))
        bit += low
    return bit


@helper
def get_blocks(u, left, row, slots, words, bit, target, nonzero, differences):
    """Decode the differences of a tile into blocks at an address.

    Returns the pieces left, -1 where they are used up, and the bit behind the raw bits.
    """
    count = 0
    for block in range(BLOCKS):
        width = np.int64(u.widths[BLOCKS * row + block])
        if width:
            nonzero[count] = width
            count += 1
    for first in range(0, count, 2):
        last = min(first + 1, count - 1)
        for k in range(last, first - 1, -1):
            width = nonzero[k]
            left = get_block(u, left, k - first, width, slots[FIELD + width], differences)
            if left < 0:
                return left, bit
        for k in range(first, last + 1):
            width = nonzero[k]
            if width > WHOLE:
                bit = add_low_bits(words, bit, k - first, width - WHOLE, differences)
            pack_block(address(differences) + 4 * BLOCK * (k - first), width, target)
            target += 2 * width
    store_64(target, np.uint64(0))
    return left, bit


@helper
def open_coded_unit(u, words, first, end):
    """Read the states and pieces of a unit; returns the pieces, -1 for an unsound unit."""
    if end - first < HEAD_NWORDS or end > words.size:
        return np.int64(-1)
    pieces = np.int64(words[first])
    if first + HEAD_NWORDS + (pieces + 1) // 2 > end or pieces >= u.pieces.size:
        return np.int64(-1)
    for lane in range(LANES):
        u.states[lane] = words[first + 1 + lane]
        if u.states[lane] < LOW:
            return np.int64(-1)
    for i in range(0, pieces, 2):
        word = words[first + HEAD_NWORDS + i // 2]
        u.pieces[i] = np.uint16(word & np.uint32(0xFFFF))
        u.pieces[i + 1] = np.uint16(word >> np.uint32(16))
    return pieces if pieces % 2 == 0 or u.pieces[pieces] == 0 else np.int64(-1)


@helper
def copy_words(words, at, count, target):
    """Copy words to an address."""
    for i in range(count):
        store_32(target + 4 * i, np.int32(words[at + i]))


@helper
def decode_unit(
    u, words, first, end, tile, tiles, n, value_words, slots, table, out, used, scratch
):
    """Decode a unit into records from word `used` on; returns the word behind them, or -1."""
    left = open_coded_unit(u, words, first, end)
    if left < 0:
        return left
    bit = 32 * (first + HEAD_NWORDS + (left + 1) // 2)
    coded, wide, left = get_heads(u, left, tiles, value_words, slots, scratch.numbers)
    if left < 0:
        return left
    bit = get_bases(u, tiles, words, bit, end, scratch.numbers)
    if bit < 0 or not is_padded(words, bit, end):
        return np.int64(-1)
    left = get_widths(u, left, wide, slots)
    low_bit = (bit + 31) // 32 * 32
    behind = low_bit + low_bits(u, wide)
    if left < 0 or not is_padded(words, behind, end):
        return np.int64(-1)
    at = (behind + 31) // 32  # of what is copied
    row = 0
    for k in range(tiles):
        m = min(TILE, n - TILE * (tile + k))
        kind = u.kinds[k]
        most = allowance(m, value_words)
        place = address(out) + 4 * used
        if kind & RAW:
            nwords = value_words if kind & SAME else m * value_words
            if nwords > end - at or used + nwords > out.size:
                return np.int64(-1)
            copy_words(words, at, nwords, place)
            at += nwords
        else:
            widths = scratch.widths
            widths[:] = 0
            if has_widths(kind):
                widths[:] = u.widths[BLOCKS * row : BLOCKS * (row + 1)]
                if not widths.any():
                    return np.int64(-1)
            listed = 0
            if kind & ESCAPES:
                count = np.int64(words[at]) if at < end else np.int64(0)
                if count == 0 or count > most:
                    return np.int64(-1)
                listed = 1 + count * entry_nwords(value_words)
            nwords = coded_nwords(
                u.bases[k], widths, max(listed - 1, 0) // entry_nwords(value_words), value_words
            )
            if nwords > most or listed > end - at or used + nwords > out.size:
                return np.int64(-1)
            head = base_nwords(u.bases[k])
            put_code(place, u.bases[k], head)
            if has_widths(kind):
                pack_widths(address(widths), place + 4 * head)
                left, low_bit = get_blocks(
                    u, left, row, slots, words, low_bit, place + 4 * (head + WIDTH_WORDS),
                    scratch.numbers, scratch.differences,
                )  # fmt: skip
                if left < 0:
                    return left
                row += 1
            copy_words(words, at, listed, place + 4 * (nwords - listed))
            at += listed
            if listed and not entries_are_sound(
                place + 4 * (nwords - listed + 1), (listed - 1) // entry_nwords(value_words), m,
                value_words,
            ):  # fmt: skip
                return np.int64(-1)
        table[tile + k] = table_entry(used, nwords, kind)
        used += nwords
    for lane in range(LANES):
        if u.states[lane] != LOW:
            return np.int64(-1)
    return used if left == 0 and at == end else np.int64(-1)


Scratch = namedtuple("Scratch", "numbers widths differences")


@kernel
def decode_units(
    words, offsets, base, first_unit, last_unit, unit, n, value_words, slots, table, out
):
    """Decode some units into records, one behind the other.

    Parameters
    ----------
    words : uint32 array of an entropy-coded body
    offsets : uint64 array: first word of each unit, from word `base` on, and the end of the last
    base : word where units start
    first_unit, last_unit, unit, n, value_words : as for `count_symbols`
    slots : as `fill_decoder` made them
    table : uint64 array of all tiles, those of these units written
    out : uint32 array with room for their allowances, written; `OVERRUN` bytes must follow it

    Returns
    -------
    Words in use; -1 for an unsound unit.
    """
    u = make_unit()
    scratch = Scratch(
        np.empty(MAX_UNIT, np.int64), np.empty(BLOCKS + 8, np.uint8)[:BLOCKS],
        np.empty(2 * BLOCK + 8, np.int32),
    )  # fmt: skip
    used = np.int64(0)
    for number in range(first_unit, last_unit):
        if offsets[number] > offsets[number + 1] or offsets[number + 1] > np.uint64(words.size):
            return np.int64(-1)
        first, end = base + np.int64(offsets[number]), base + np.int64(offsets[number + 1])
        tile = number * unit
        tiles = min(unit, table.size - tile)
        used = decode_unit(
            u, words, first, end, tile, tiles, n, value_words, slots, table, out, used, scratch
        )
        if used < 0:
            return used
    return used
