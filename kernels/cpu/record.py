"""The record of a tile: written, opened with all lengths checked, read (docs/format.md section 4).

`value_words` is the number of 32-bit words of a value: 1 for float32, 2 for float64. Records are
written into arrays with `OVERRUN` bytes to spare and read at addresses that have as many behind.
"""

from collections import namedtuple

import numpy as np

from zccl.formats import (
    BLOCK,
    BLOCKS,
    ESCAPES,
    LONG,
    MAX_SUM,
    NWORDS_BITS,
    OFFSET_BITS,
    RAW,
    SAME,
    SHORT_NWORDS,
    SHORT_SLACK,
    SMALL,
    TILE,
    WIDTH_WORDS,
    ZERO,
)
from zccl.kernels.cpu._compile import helper
from zccl.kernels.cpu.memory import address, load_32, load_64, store_32, store_64
from zccl.kernels.cpu.stages import OVERRUN, pack_block, unpack_block
from zccl.kernels.cpu.tilings import sum_along_axes
from zccl.kernels.cpu.widths import pack_widths, unpack_widths

MAX_RECORD_NWORDS = 2**NWORDS_BITS

# An opened record: address, words, kind, base, address of the blocks, number of escape entries
# and address of the first; the number of words is -1 when the record is damaged.
Record = namedtuple("Record", "at nwords kind base blocks entries escapes")


@helper
def table_entry(first, nwords, kind):
    """Pack one entry of the table."""
    return (
        np.uint64(first)
        | (np.uint64(nwords) << np.uint64(OFFSET_BITS))
        | (np.uint64(kind) << np.uint64(OFFSET_BITS + NWORDS_BITS))
    )


@helper
def split_entry(entry):
    """First word, number of words and kind of a table entry."""
    first = np.int64(entry & np.uint64(2**OFFSET_BITS - 1))
    nwords = np.int64((entry >> np.uint64(OFFSET_BITS)) & np.uint64(2**NWORDS_BITS - 1))
    return first, nwords, np.int64(entry >> np.uint64(OFFSET_BITS + NWORDS_BITS))


@helper
def allowance(m, value_words):
    """Most words of a coded record.

    A tile that needs more is raw. Without escapes none ever does.
    """
    if m == TILE:
        return m * value_words
    return max(m * value_words + SHORT_SLACK, SHORT_NWORDS)


@helper
def put_code(at, code, nwords):
    """Write a code as one or two words."""
    store_32(at, np.int32(code))
    if nwords == 2:
        store_32(at + 4, np.int32(code >> 32))


@helper
def get_code(at, nwords):
    """Read a code of one or two words."""
    return np.int64(load_64(at)) if nwords == 2 else np.int64(load_32(at))


@helper
def entry_nwords(value_words):
    """Words of one entry of the list of escapes."""
    return 2 + 2 * value_words


@helper
def base_nwords(base):
    """Words that a base takes."""
    return 1 if base == np.int64(np.int32(base)) else 2


@helper
def coded_nwords(base, widths, entries, value_words):
    """Words of the coded record with these widths and this many escape entries."""
    total = 0
    for k in range(BLOCKS):
        total += widths[k]
    nwords = base_nwords(base)
    if total:
        nwords += WIDTH_WORDS + (total + 1) // 2
    if entries:
        nwords += 1 + entries * entry_nwords(value_words)
    return nwords


@helper
def put_coded(at, base, differences, widths, small):
    """Write base, widths and blocks at an address; returns (words, kind).

    `widths` must be those of `differences`, each at most 31.
    """
    kind = SMALL if small else 0
    nwords = base_nwords(base)
    if nwords == 2:
        kind |= LONG
    put_code(at, base, nwords)
    start = at + 4 * nwords + 4 * WIDTH_WORDS
    pack_widths(address(widths), start - 4 * WIDTH_WORDS)
    source = address(differences)
    target = start
    for k in range(BLOCKS):
        width = np.int64(widths[k])
        pack_block(source + 4 * BLOCK * k, width, target)
        target += 2 * width
    if target == start:
        return nwords, kind | ZERO
    store_64(target, np.uint64(0))
    return nwords + WIDTH_WORDS + (target - start + 3) // 4, kind


@helper
def all_same(bits, value_words):
    """Whether all values have the same bits."""
    for i in range(value_words, bits.size):
        if bits[i] != bits[i - value_words]:
            return False
    return True


@helper
def put_raw(words, first, bits, value_words):
    """Write a raw record of the words of the values, one value if it repeats.

    Returns (words, kind).
    """
    nwords = bits.size
    kind = RAW
    if all_same(bits, value_words):
        nwords = value_words
        kind |= SAME
    for i in range(nwords):
        words[first + i] = bits[i]
    return nwords, kind


@helper
def _damaged():
    zero = np.int64(0)
    return Record(zero, np.int64(-1), zero, zero, zero, zero, zero)


@helper
def entries_are_sound(at, entries, m, value_words):
    """Whether all runs of a list lie in the tile and ranks never descend."""
    last_rank = np.int64(-1)
    for _ in range(entries):
        word = np.int64(np.uint32(load_32(at)))
        rank = np.int64(np.uint32(load_32(at + 4)))
        if (word & 1023) + 1 + (word >> 10) > m or rank < last_rank:
            return False
        last_rank = rank
        at += 4 * entry_nwords(value_words)
    return True


@helper
def open_record(entry, words, total_words, m, value_words, widths, spare):
    """Check a record's lengths and read what stands at its head.

    `widths` is filled for coded records, with zeros for ZERO. A record at the very end of `words`
    is copied into `spare`, so that stages may read a few bytes behind it.
    """
    first, nwords, kind = split_entry(entry)
    zero = np.int64(0)
    if first + nwords > total_words or nwords == 0:
        return _damaged()
    at = address(words) + 4 * first
    if 4 * (first + nwords) + OVERRUN > 4 * words.size:
        for i in range(nwords):
            spare[i] = words[first + i]
        at = address(spare)
    if kind & RAW:
        expected = value_words if kind == RAW | SAME else m * value_words
        if (kind & ~SAME) != RAW or nwords != expected:
            return _damaged()
        return Record(at, nwords, kind, zero, zero, zero, zero)
    if kind & ~(ZERO | ESCAPES | SMALL | LONG) or (kind & SMALL and value_words == 2):
        return _damaged()
    base_words = 2 if kind & LONG else 1
    used = base_words if kind & ZERO else base_words + WIDTH_WORDS
    if used > nwords:
        return _damaged()
    base = get_code(at, base_words)
    if not -MAX_SUM < base < MAX_SUM:
        return _damaged()
    blocks = at + 4 * used
    nbytes = zero
    if kind & ZERO:
        widths[:] = 0
    else:
        nbytes = 2 * unpack_widths(blocks - 4 * WIDTH_WORDS, address(widths))
        used += (nbytes + 3) // 4
    entries = zero
    if kind & ESCAPES:
        if used + 1 > nwords:
            return _damaged()
        entries = np.int64(load_32(at + 4 * used))
        used += 1
        if entries <= 0 or entries > nwords:
            return _damaged()
    if used + entries * entry_nwords(value_words) != nwords or nwords > allowance(m, value_words):
        return _damaged()
    if not entries_are_sound(at + 4 * used, entries, m, value_words):
        return _damaged()
    return Record(at, nwords, kind, base, blocks, entries, at + 4 * used)


@helper
def read_differences(record, widths, differences):
    """Unpack the differences of an opened coded record."""
    source = record.blocks
    target = address(differences)
    for k in range(BLOCKS):
        width = np.int64(widths[k])
        unpack_block(source, width, target + 4 * BLOCK * k)
        source += 2 * width


@helper
def read_codes(record, axes, widths, differences, codes):
    """Codes of an opened coded record."""
    read_differences(record, widths, differences)
    for j in range(TILE):
        codes[j] = np.int64(differences[j])
    sum_along_axes(axes, codes)
    for j in range(TILE):
        codes[j] += record.base
