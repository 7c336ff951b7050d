"""Compression: quantise on the common grid, difference, pack (docs/format.md sections 2 to 5)."""

import numpy as np

from zccl.formats import BLOCKS, ESCAPES, MAX_DISTANCE, TILE
from zccl.kernels.cpu._compile import helper, kernel
from zccl.kernels.cpu.checksum import tile_checksum
from zccl.kernels.cpu.escapes import count_entries, put_entries
from zccl.kernels.cpu.record import (
    all_same,
    allowance,
    coded_nwords,
    measure,
    put_coded,
    put_raw,
    table_entry,
)

# Adding and subtracting it rounds a float64 below 2^51 to the nearest integer, ties to even; unlike
# rint it vectorises.
ROUND = 1.5 * 2.0**52


@helper
def quantise(x, inverse, step, error_bound, movement, fill, max_code, limit, codes, good):
    """Codes of one tile's values into the chain `codes`; returns (base, number of escaped values).

    The first loop assumes the usual case: every value is good and near the first one.
    """
    m = x.size
    first = (np.float64(x[0]) * inverse + ROUND) - ROUND
    usual = True
    for j in range(m):
        v = np.float64(x[j])
        q = (v * inverse + ROUND) - ROUND
        usual &= (abs(q) <= max_code) & (abs(q - first) <= limit) & (v != fill)
        if movement:
            usual &= abs(v - np.float64(x.dtype.type(q * step))) <= error_bound
        codes[j] = np.int64(q)
    if usual:
        return np.int64(first), 0

    base = np.int64(0)
    found = False
    for j in range(m):
        v = np.float64(x[j])
        q = (v * inverse + ROUND) - ROUND
        good[j] = (abs(q) <= max_code) & (v != fill)
        if movement:
            good[j] &= abs(v - np.float64(x.dtype.type(q * step))) <= error_bound
        if good[j]:
            codes[j] = np.int64(q)
            if not found:
                base = codes[j]
                found = True
    return base, chain(codes[:m], good[:m], base, limit)


@helper
def chain(codes, good, base, limit):
    """Escape what is too far from the base and put stand-ins for escaped values.

    Returns the number of escapes.
    """
    last = base
    escaped = 0
    for j in range(codes.size):
        good[j] &= abs(codes[j] - base) <= limit
        if good[j]:
            last = codes[j]
        else:
            codes[j] = last
            escaped += 1
    return escaped


@helper
def encode(
    bits, codes, good, base, escaped, value_words, rank, small_code, differences, widths, words, at
):
    """Write the record of one tile from its chain; returns (words, kind).

    `bits` are the words of its m values and `good` their flags, of which only m are looked at.
    """
    m = bits.size // value_words
    entries = 0
    if escaped:
        if all_same(bits, value_words):
            return put_raw(words, at, bits, value_words)
        entries = count_entries(good[:m], bits, value_words)
    largest = np.int64(0)
    last = base
    for j in range(m):
        differences[j] = np.int32(codes[j] - last)
        last = codes[j]
        largest = max(largest, abs(last))
    for j in range(m, TILE):
        differences[j] = 0
    measure(differences, widths)
    if coded_nwords(base, widths, entries, value_words) > allowance(m, value_words):
        return put_raw(words, at, bits, value_words)
    nwords, kind = put_coded(
        words, at, base, differences, widths, value_words == 1 and largest <= small_code
    )
    if entries:
        nwords += put_entries(good[:m], bits, value_words, codes, rank, entries, words, at + nwords)
        kind |= ESCAPES
    return nwords, kind


@kernel
def compress_tiles(values, step, error_bound, movement, ranks, rank, fill, table, words):
    """Compress a row of values.

    Parameters
    ----------
    values : float32 or float64 array of n values
    step : grid step, float64
    error_bound : bound of each decoded value; only used when `movement`
    movement : whether the bound is promised for decoded values; False in reductions, whose sum is
        rounded anyway
    ranks : number of arrays that may be added up
    rank : written beside escaped values
    fill : value that always escapes; NaN for none
    table : uint64 array of one entry a tile, written
    words : uint32 array with room for a raw record a tile, written

    Returns
    -------
    (words used, checksum, number of values that travel as raw bits)
    """
    value_words = values.itemsize // 4
    all_bits = values.view(np.uint32)
    inverse = 1.0 / step
    max_code = 2.0**24 if value_words == 1 else 2.0**40 - 1
    limit = MAX_DISTANCE // ranks
    small_code = 2**24 // ranks
    codes = np.empty(TILE, np.int64)
    good = np.empty(TILE, np.bool_)
    differences = np.empty(TILE, np.int32)
    widths = np.empty(BLOCKS, np.uint8)
    used = 0
    checksum = np.uint64(0)
    raw_values = 0
    for tile in range(table.size):
        x = values[TILE * tile : TILE * (tile + 1)]
        bits = all_bits[TILE * tile * value_words : (TILE * tile + x.size) * value_words]
        base, escaped = quantise(
            x, inverse, step, error_bound, movement, fill, max_code, limit, codes, good
        )
        nwords, kind = encode(
            bits,
            codes,
            good,
            base,
            escaped,
            value_words,
            rank,
            small_code,
            differences,
            widths,
            words,
            used,
        )
        table[tile] = table_entry(used, nwords, kind)
        checksum += tile_checksum(words, used, nwords, kind, tile)
        raw_values += x.size if kind & 1 else escaped
        used += nwords
    return used, checksum, raw_values
