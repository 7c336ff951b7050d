"""Decompression of coded tiles (docs/format.md sections 4 and 7)."""

import numpy as np

from zccl.formats import BLOCKS, RAW, SAME, TILE
from zccl.kernels.cpu._compile import helper, kernel
from zccl.kernels.cpu.checksum import tile_checksum
from zccl.kernels.cpu.escapes import apply_entries, entry_nwords, entry_run
from zccl.kernels.cpu.record import open_record, read_codes

GOOD, DAMAGED = 0, 1


@helper
def copy_raw(words, first, kind, value_words, out_bits):
    """Bits of a raw record into the words of its values."""
    period = value_words if kind & SAME else out_bits.size
    for i in range(out_bits.size):
        out_bits[i] = words[first + i % period]


@helper
def decode_sums(words, record, m, value_words, widths, differences, codes, step, one, raw, sums):
    """Values of an opened record as float64, not yet divided or rounded.

    Returns False when it is damaged.

    `raw` is scratch of m values of the value type.
    """
    first, nwords, kind, base, blocks_at, entries, entries_at = record
    if kind & RAW:
        copy_raw(words, first, kind, value_words, raw.view(np.uint32))
        for j in range(m):
            sums[j] = np.float64(raw[j])
        return True
    read_codes(words, base, blocks_at, widths, differences, codes)
    for j in range(m):
        sums[j] = np.float64(codes[j]) * step
    return apply_entries(words, entries_at, entries, m, value_words, one, codes, step, sums)


@helper
def restore_bits(words, entries, entries_at, m, value_words, out_bits):
    """Put escaped values of an array that was never reduced back, NaN payloads included."""
    size = entry_nwords(value_words)
    for e in range(entries):
        at = entries_at + e * size
        start, stop = entry_run(words, at, m)
        for j in range(start, stop):
            for i in range(value_words):
                out_bits[value_words * j + i] = words[at + 2 + value_words + i]


@kernel
def decompress_tiles(table, words, nwords, checksum, step, divisor, reduced, out):
    """Decompress a row of values, checking every length and the checksum.

    Parameters
    ----------
    table, words : as `compress_tiles` wrote them
    nwords : words that belong to the stream
    checksum : expected checksum
    step : grid step
    divisor : the results are divided by it before they are rounded (averages); 1.0 otherwise
    reduced : whether this is the result of a reduction: NaN becomes the quiet NaN without payload
    out : float32 or float64 array of n values, written

    Returns
    -------
    0 when all was well, 1 for a damaged stream (`out` then holds anything)
    """
    value_words = out.itemsize // 4
    all_bits = out.view(np.uint32)
    codes = np.empty(TILE, np.int64)
    sums = np.empty(TILE, np.float64)
    raw = np.empty(TILE, out.dtype)
    one = np.empty(1, out.dtype)
    differences = np.empty(TILE, np.int32)
    widths = np.empty(BLOCKS, np.uint8)
    found = np.uint64(0)
    for tile in range(table.size):
        y = out[TILE * tile : TILE * (tile + 1)]
        bits = all_bits[TILE * tile * value_words : (TILE * tile + y.size) * value_words]
        record = open_record(table[tile], words, nwords, y.size, value_words, widths)
        first, size, kind, base, blocks_at, entries, entries_at = record
        if first < 0:
            return DAMAGED
        found += tile_checksum(words, first, size, kind, tile)
        if kind & RAW and not reduced:
            copy_raw(words, first, kind, value_words, bits)
            continue
        good = decode_sums(
            words,
            record,
            y.size,
            value_words,
            widths,
            differences,
            codes,
            step,
            one,
            raw[: y.size],
            sums,
        )
        if not good:
            return DAMAGED
        for j in range(y.size):
            y[j] = y.dtype.type(sums[j] / divisor)
        if reduced:
            for j in range(y.size):
                if y[j] != y[j]:
                    y[j] = np.nan
        else:
            restore_bits(words, entries, entries_at, y.size, value_words, bits)
    return GOOD if found == np.uint64(checksum) else DAMAGED
