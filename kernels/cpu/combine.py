"""Hops: two compressed rows reduced into one, in codes (docs/format.md section 7)."""

import numpy as np

from zccl.formats import BLOCKS, ESCAPES, MAX_DISTANCE, MAX_SUM, RAW, SMALL, TILE
from zccl.kernels.cpu._compile import helper, kernel
from zccl.kernels.cpu.checksum import tile_checksum
from zccl.kernels.cpu.compress import chain, encode
from zccl.kernels.cpu.decompress import decode_sums
from zccl.kernels.cpu.escapes import entry_nwords, entry_run, entry_value, merge_entries
from zccl.kernels.cpu.record import (
    allowance,
    coded_nwords,
    measure,
    open_record,
    put_coded,
    put_raw,
    read_codes,
    read_differences,
    table_entry,
)

SUM, MAX, MIN = 0, 1, 2
GOOD, DAMAGED, OVERFLOW = 0, 1, 2


@helper
def wins(op, a, b):
    """Whether a beats b: NaN beats numbers, -0 < +0, and a tie is not won."""
    if b != b:
        return False
    if a != a:
        return True
    if a == 0 and b == 0:
        a = np.copysign(1.0, a)
        b = np.copysign(1.0, b)
    return a > b if op == MAX else a < b


@helper
def sum_coded(
    keep_small,
    words_a,
    a,
    widths_a,
    diffs_a,
    words_b,
    b,
    widths_b,
    diffs_b,
    m,
    value_words,
    words,
    at,
):
    """Sum of two coded records.

    Returns (words, kind), words 0 when it overflows and -1 when raw is shorter.

    Differences are added as 64-bit integers, since those of strangers' streams may outgrow 32 bits.
    """
    base = a[3] + b[3]
    if abs(base) >= MAX_SUM:
        return 0, 0
    read_differences(words_a, a[4], widths_a, diffs_a)
    read_differences(words_b, b[4], widths_b, diffs_b)
    for j in range(TILE):
        total = np.int64(diffs_a[j]) + np.int64(diffs_b[j])
        if total != np.int64(np.int32(total)):
            return 0, 0
        diffs_a[j] = np.int32(total)
    if measure(diffs_a, widths_a) > 31:
        return 0, 0
    entries = a[5] + b[5]
    if coded_nwords(base, widths_a, entries, value_words) > allowance(m, value_words):
        return -1, 0
    nwords, kind = put_coded(
        words, at, base, diffs_a, widths_a, keep_small and (a[2] & b[2] & SMALL) != 0
    )
    if entries:
        nwords += merge_entries(
            words_a, a[6], a[5], words_b, b[6], b[5], value_words, words, at + nwords
        )
        kind |= ESCAPES
    return nwords, kind


@helper
def open_extremes(
    words, record, m, value_words, widths, differences, codes, step, one, coded, values
):
    """Values of a coded record as float64 and which of them are codes; False when it is damaged."""
    entries, at = record[5], record[6]
    read_codes(words, record[3], record[4], widths, differences, codes)
    for j in range(m):
        coded[j] = True
        values[j] = np.float64(codes[j]) * step
    for _ in range(entries):
        start, stop = entry_run(words, at, m)
        if stop == 0:
            return False
        value = entry_value(words, at, value_words, one)
        for j in range(start, stop):
            coded[j] = False
            values[j] = value
        at += entry_nwords(value_words)
    return True


@helper
def select_extremes(op, codes_a, coded_a, values_a, codes_b, coded_b, values_b, out):
    """Winners of two coded tiles into the `a` arrays, and as values of the value type into `out`.

    A tie between a code and an escaped value keeps the code, so that any order of hops ends alike.
    """
    for j in range(out.size):
        tie = not wins(op, values_a[j], values_b[j]) and not wins(op, values_b[j], values_a[j])
        if wins(op, values_b[j], values_a[j]) or (tie and coded_b[j]):
            codes_a[j] = codes_b[j]
            coded_a[j] = coded_b[j]
            values_a[j] = values_b[j]
        out[j] = out.dtype.type(values_a[j])
        if out[j] != out[j]:
            out[j] = np.nan


@helper
def combine_values(op, a, b, out):
    """Sum or winners of two rows of float64 values, rounded once to the value type.

    NaN loses its payload.
    """
    for j in range(out.size):
        if op == SUM:
            value = a[j] + b[j]
        elif wins(op, b[j], a[j]):
            value = b[j]
        else:
            value = a[j]
        out[j] = out.dtype.type(value)
        if out[j] != out[j]:
            out[j] = np.nan


@helper
def first_code(codes, coded):
    """Code of the first element that has one; 0 when none has."""
    for j in range(coded.size):
        if coded[j]:
            return codes[j]
    return np.int64(0)


@kernel
def combine_tiles(
    op, n, step, keep_small,
    table_a, words_a, nwords_a, checksum_a,
    table_b, words_b, nwords_b, checksum_b,
    table, words, probe,
):  # fmt: skip
    """Reduce two compressed rows of n values on the same grid into a third.

    Parameters
    ----------
    op : 0 sum, 1 maximum, 2 minimum
    keep_small : whether at most `ranks` of the sources are being added up, so that SMALL stays true
        in a sum
    table_x, words_x, nwords_x, checksum_x : operand as `compress_tiles` or this kernel wrote it;
        verified
    table, words : result, written; `words` has room for a raw record a tile
    probe : empty array of the value type

    Returns
    -------
    (words used, checksum, status); status 1: an operand is damaged, 2: a sum outgrows its 53 or 31
    bits
    """
    value_words = probe.itemsize // 4
    codes_a = np.empty(TILE, np.int64)
    codes_b = np.empty(TILE, np.int64)
    coded_a = np.empty(TILE, np.bool_)
    coded_b = np.empty(TILE, np.bool_)
    values_a = np.empty(TILE, np.float64)
    values_b = np.empty(TILE, np.float64)
    diffs_a = np.empty(TILE, np.int32)
    diffs_b = np.empty(TILE, np.int32)
    widths_a = np.empty(BLOCKS, np.uint8)
    widths_b = np.empty(BLOCKS, np.uint8)
    out = np.empty(TILE, probe.dtype)
    one = np.empty(1, probe.dtype)
    out_bits = out.view(np.uint32)
    used = 0
    checksum = np.uint64(0)
    found_a = np.uint64(0)
    found_b = np.uint64(0)
    for tile in range(table.size):
        m = min(TILE, n - TILE * tile)
        a = open_record(table_a[tile], words_a, nwords_a, m, value_words, widths_a)
        b = open_record(table_b[tile], words_b, nwords_b, m, value_words, widths_b)
        if a[0] < 0 or b[0] < 0:
            return used, checksum, DAMAGED
        found_a += tile_checksum(words_a, a[0], a[1], a[2], tile)
        found_b += tile_checksum(words_b, b[0], b[1], b[2], tile)
        raw = (a[2] | b[2]) & RAW
        nwords = -1
        kind = 0
        if op == SUM and not raw:
            nwords, kind = sum_coded(
                keep_small,
                words_a,
                a,
                widths_a,
                diffs_a,
                words_b,
                b,
                widths_b,
                diffs_b,
                m,
                value_words,
                words,
                used,
            )
            if nwords == 0:
                return used, checksum, OVERFLOW
            if nwords < 0:  # the widths were overwritten by those of the sum
                a = open_record(table_a[tile], words_a, nwords_a, m, value_words, widths_a)
        if op != SUM and not raw:
            good = open_extremes(
                words_a, a, m, value_words, widths_a, diffs_a, codes_a, step, one, coded_a, values_a
            ) and open_extremes(
                words_b, b, m, value_words, widths_b, diffs_b, codes_b, step, one, coded_b, values_b
            )
            if not good:
                return used, checksum, DAMAGED
            select_extremes(op, codes_a, coded_a, values_a, codes_b, coded_b, values_b, out[:m])
            base = first_code(codes_a, coded_a[:m])
            escaped = chain(codes_a[:m], coded_a[:m], base, MAX_DISTANCE)
            nwords, kind = encode(
                out_bits[: m * value_words], codes_a, coded_a, base, escaped, value_words, 0, 2**24,
                diffs_a, widths_a, words, used,
            )  # fmt: skip
        if nwords < 0:
            good = decode_sums(
                words_a, a, m, value_words, widths_a, diffs_a, codes_a, step, one, out[:m], values_a
            ) and decode_sums(
                words_b, b, m, value_words, widths_b, diffs_b, codes_b, step, one, out[:m], values_b
            )
            if not good:
                return used, checksum, DAMAGED
            combine_values(op, values_a, values_b, out[:m])
            nwords, kind = put_raw(words, used, out_bits[: m * value_words], value_words)
        table[tile] = table_entry(used, nwords, kind)
        checksum += tile_checksum(words, used, nwords, kind, tile)
        used += nwords
    if found_a != np.uint64(checksum_a) or found_b != np.uint64(checksum_b):
        return used, checksum, DAMAGED
    return used, checksum, GOOD
