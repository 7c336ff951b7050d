"""The record of a tile and its table entry (docs/format.md sections 4 and 5).

`value_words` is the number of 32-bit words of a value: 1 for float32, 2 for float64.
"""

from zccl.formats import (
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
    WIDTH_WORDS,
    ZERO,
)
from zccl.kernels.cuda._compat import ALL, TILE, cuda, device, i32, i64, u32
from zccl.kernels.cuda._intrinsics import load_u32_any
from zccl.kernels.cuda.blocks import pack_blocks
from zccl.kernels.cuda.warp import running_sum
from zccl.kernels.cuda.widths import load_widths, put_widths

OFFSET_MASK = 2**OFFSET_BITS - 1
NWORDS_MASK = 2**NWORDS_BITS - 1
KIND_AT = OFFSET_BITS + NWORDS_BITS
HEAD = 1 + WIDTH_WORDS  # words in front of the blocks, with a base of one word


@device
def table_entry(first, nwords, kind):
    """Pack one entry of the table."""
    return first | (i64(nwords) << i64(OFFSET_BITS)) | (i64(kind) << i64(KIND_AT))


@device
def split_entry(entry):
    """First word, number of words and kind of a table entry."""
    first = entry & i64(OFFSET_MASK)
    nwords = i32((entry >> i64(OFFSET_BITS)) & i64(NWORDS_MASK))
    kind = i32((entry >> i64(KIND_AT)) & i64(NWORDS_MASK))
    return first, nwords, kind


@device
def allowance(m, value_words):
    """Most words of a coded record of m values."""
    nwords = i32(m * value_words)
    if m == i32(TILE):
        return nwords
    return max(i32(nwords + i32(SHORT_SLACK)), i32(SHORT_NWORDS))


@device
def place_of_blocks(first_width, second_width, lane):
    """Half-words of the blocks of all lanes before this one, and of all lanes."""
    own = i32(first_width + second_width)
    upto = running_sum(own, lane)
    return i32(upto - own), cuda.shfl_sync(ALL, upto, 31)


@device
def quick_nwords(halves):
    """Words of a coded record without escapes and with a base of one word."""
    if halves == i32(0):
        return i32(1)
    return i32(i32(HEAD) + i32(i32(halves + i32(1)) >> i32(1)))


@device
def put_quick(words, at, lane, base, d, first, second, before, halves):
    """Write such a record into a shared array from the differences of all lanes."""
    if lane == i32(0):
        words[u32(at)] = u32(base)
    if halves > i32(0):
        put_widths(words, i32(at + i32(1)), lane, first, second)
        start = i32(i32(i32(at + i32(HEAD)) << i32(1)) + before)
        is_last = i32(before + i32(first + second)) == halves
        pack_blocks(words, start, d, first, second, is_last)


@device
def load_code(address, nwords):
    """Read a code of one or two words."""
    low = load_u32_any(address)
    if nwords == i32(2):
        return i64((i64(load_u32_any(address + 4)) << i64(32)) | i64(low))
    return i64(i32(low))


@device
def list_is_sound(address, entries, m, value_words, lane):
    """Whether all runs of a list of escapes lie in the tile and ranks never descend."""
    size = i64(4) * i64(i32(2) + i32(2) * value_words)
    sound = True
    i = lane
    while i < entries:
        at = address + size * i64(i)
        word = load_u32_any(at)
        stop = i64(word & u32(1023)) + i64(1) + i64(word >> u32(10))
        if stop > i64(m):
            sound = False
        if i > i32(0) and load_u32_any(at + 4) < load_u32_any(at + 4 - size):
            sound = False
        i = i32(i + i32(32))
    return cuda.all_sync(ALL, sound)


@device
def is_raw_sound(nwords, kind, m, value_words):
    """Whether kind and length of a raw record fit."""
    expected = i32(m * value_words)
    if kind == i32(RAW | SAME):
        expected = value_words
    return (kind == i32(RAW) or kind == i32(RAW | SAME)) and nwords == expected


@device
def open_record(entry, words, total_nwords, m, value_words, lane):
    """Check all lengths of a record and read what stands at its head.

    `words` is the address of the first word behind the table, `total_nwords` counts those there
    are.

    Returns
    -------
    (sound, address, nwords, kind, base, widths of the lane's two blocks, words in front of the
    escapes, number of escape entries); all but the widths are the same on all lanes
    """
    first, nwords, kind = split_entry(entry)
    address = words + i64(4) * first
    base = i64(0)
    wide_0 = i32(0)
    wide_1 = i32(0)
    used = nwords
    entries = i32(0)
    sound = first + i64(nwords) <= total_nwords and nwords > i32(0)
    if sound and (kind & i32(RAW)) != i32(0):
        sound = is_raw_sound(nwords, kind, m, value_words)
    elif sound:
        allowed = i32(ZERO | ESCAPES | LONG)
        if value_words == i32(1):
            allowed = i32(allowed | i32(SMALL))
        base_words = i32(1)
        if (kind & i32(LONG)) != i32(0):
            base_words = i32(2)
        used = base_words
        if (kind & i32(ZERO)) == i32(0):
            used = i32(used + i32(WIDTH_WORDS))
        sound = (kind & ~allowed) == i32(0) and used <= nwords
        if sound:
            base = load_code(address, base_words)
            if base >= i64(MAX_SUM) or base <= i64(-MAX_SUM):
                sound = False
            if (kind & i32(ZERO)) == i32(0):
                wide_0, wide_1 = load_widths(address + 4 * i64(base_words), lane)
                halves = place_of_blocks(wide_0, wide_1, lane)[1]
                used = i32(used + i32(i32(halves + i32(1)) >> i32(1)))
            if (kind & i32(ESCAPES)) != i32(0):
                if used + 1 > nwords:
                    sound = False
                else:
                    entries = i32(load_u32_any(address + 4 * i64(used)))
                    if entries <= i32(0) or entries > nwords:
                        sound = False
                        entries = i32(0)
            behind = used
            if entries > i32(0):
                behind = i32(used + i32(1) + entries * (i32(2) + i32(2) * value_words))
            if behind != nwords or nwords > allowance(m, value_words):
                sound = False
            if sound and entries > i32(0):
                at = address + 4 * (i64(used) + i64(1))
                sound = list_is_sound(at, entries, m, value_words, lane)
    return sound, address, nwords, kind, base, wide_0, wide_1, used, entries
