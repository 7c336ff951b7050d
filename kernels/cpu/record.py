"""The record of a tile: written, opened with all lengths checked, read (docs/format.md section 4).

`value_words` is the number of 32-bit words of a value: 1 for float32, 2 for float64.
"""

import numpy as np

from zccl.formats import (
    BLOCK,
    BLOCKS,
    ESCAPES,
    LONG,
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
from zccl.kernels.cpu.blocks import (
    block_width,
    pack_block,
    pack_widths,
    unpack_block,
    unpack_widths,
)


@helper
def table_entry(first, nwords, kind):
    """Pack one entry of the table."""
    return (
        np.uint64(first)
        | (np.uint64(nwords) << np.uint64(OFFSET_BITS))
        | (np.uint64(kind) << np.uint64(OFFSET_BITS + NWORDS_BITS))
    )


@helper
def allowance(m, value_words):
    """Most words of a coded record.

    A tile that needs more is raw. Without escapes none ever does.
    """
    if m == TILE:
        return m * value_words
    return max(m * value_words + SHORT_SLACK, SHORT_NWORDS)


@helper
def put_code(words, at, code, nwords):
    """Write a code as one or two words."""
    words[at] = np.uint32(code & 0xFFFFFFFF)
    if nwords == 2:
        words[at + 1] = np.uint32((code >> 32) & 0xFFFFFFFF)


@helper
def get_code(words, at, nwords):
    """Read a code of one or two words."""
    low = np.int64(words[at])
    if nwords == 2:
        return low | (np.int64(words[at + 1]) << 32)
    return (low ^ 0x80000000) - 0x80000000


@helper
def entry_nwords(value_words):
    """Words of one entry of the list of escapes."""
    return 2 + 2 * value_words


@helper
def put_coded(words, first, base, differences, widths, small):
    """Write base, widths and blocks; returns (words, kind).

    `widths` must be those of `differences`, each at most 31.
    """
    kind = SMALL if small else 0
    base_words = 1
    if base != np.int64(np.int32(base)):
        base_words = 2
        kind |= LONG
    put_code(words, first, base, base_words)
    total = 0
    for k in range(BLOCKS):
        total += widths[k]
    if total == 0:
        return base_words, kind | ZERO
    halves = words.view(np.uint16)
    at = 2 * (first + base_words)
    pack_widths(widths, halves, at)
    at += 2 * WIDTH_WORDS
    for k in range(BLOCKS):
        if widths[k]:
            pack_block(differences, BLOCK * k, widths[k], halves, at)
            at += widths[k]
    if total & 1:
        halves[at] = 0
    return base_words + WIDTH_WORDS + (total + 1) // 2, kind


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
def measure(differences, widths):
    """Fill in the widths of the 64 blocks; returns the largest."""
    largest = 0
    for k in range(BLOCKS):
        widths[k] = block_width(differences, BLOCK * k)
        largest = max(largest, widths[k])
    return largest


@helper
def coded_nwords(base, widths, entries, value_words):
    """Words of the coded record with these widths and this many escape entries."""
    total = 0
    for k in range(BLOCKS):
        total += widths[k]
    nwords = 1 if base == np.int64(np.int32(base)) else 2
    if total:
        nwords += WIDTH_WORDS + (total + 1) // 2
    if entries:
        nwords += 1 + entries * entry_nwords(value_words)
    return nwords


@helper
def open_record(entry, words, total_words, m, value_words, widths):
    """Check a record's lengths and read what stands at its head.

    Returns (first word, words, kind, base, half-word of the blocks, number of escape entries, word
    of the first entry); the first word is -1 when the record is impossible. `widths` is filled for
    coded records, with zeros for ZERO.
    """
    first = np.int64(entry & np.uint64(2**OFFSET_BITS - 1))
    nwords = np.int64((entry >> np.uint64(OFFSET_BITS)) & np.uint64(2**NWORDS_BITS - 1))
    kind = np.int64(entry >> np.uint64(OFFSET_BITS + NWORDS_BITS))
    bad = (
        np.int64(-1),
        np.int64(0),
        np.int64(0),
        np.int64(0),
        np.int64(0),
        np.int64(0),
        np.int64(0),
    )
    if first + nwords > total_words or nwords == 0:
        return bad
    if kind & RAW:
        expected = value_words if kind == RAW | SAME else m * value_words
        if (kind & ~SAME) != RAW or nwords != expected:
            return bad
        return first, nwords, kind, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    if kind & ~(ZERO | ESCAPES | SMALL | LONG) or (kind & SMALL and value_words == 2):
        return bad
    base_words = 2 if kind & LONG else 1
    used = base_words
    if not kind & ZERO:
        used += WIDTH_WORDS
    if used > nwords:
        return bad
    base = get_code(words, first, base_words)
    blocks_at = 2 * (first + used)
    if kind & ZERO:
        widths[:] = 0
    else:
        used += (unpack_widths(words.view(np.uint16), 2 * (first + base_words), widths) + 1) // 2
        if used > nwords:
            return bad
    entries = np.int64(0)
    if kind & ESCAPES:
        if used + 1 > nwords:
            return bad
        entries = np.int64(words[first + used])
        used += 1
        if entries == 0 or entries > TILE * TILE:
            return bad
    if used + entries * entry_nwords(value_words) != nwords:
        return bad
    return first, nwords, kind, base, blocks_at, entries, first + used


@helper
def read_differences(words, blocks_at, widths, differences):
    """Unpack all blocks of an opened coded record."""
    halves = words.view(np.uint16)
    for k in range(BLOCKS):
        unpack_block(halves, blocks_at, widths[k], differences, BLOCK * k)
        blocks_at += widths[k]


@helper
def read_codes(words, base, blocks_at, widths, differences, codes):
    """Codes of an opened coded record."""
    read_differences(words, blocks_at, widths, differences)
    code = base
    for j in range(TILE):
        code += np.int64(differences[j])
        codes[j] = code
