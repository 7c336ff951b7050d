"""Decompression of coded tiles (docs/format.md sections 4 and 7)."""

import numpy as np

from zccl.formats import BLOCK, BLOCKS, RAW, SAME, SMALL, TILE, ZERO
from zccl.kernels.cpu._compile import helper, kernel
from zccl.kernels.cpu.checksum import tile_checksum
from zccl.kernels.cpu.escapes import apply_entries, entry_run
from zccl.kernels.cpu.memory import address, load_32
from zccl.kernels.cpu.record import (
    MAX_RECORD_NWORDS,
    entry_nwords,
    open_record,
    read_codes,
    split_entry,
)
from zccl.kernels.cpu.stages import (
    NARROW,
    OVERRUN,
    scan_f4,
    scan_f8,
    scan_small,
    unpack_block,
    unpack_scan_f4,
    unpack_scan_f8,
    unpack_scan_small,
)
from zccl.kernels.cpu.tilings import (
    distances_fit,
    place_alone,
    place_inside,
    read_values,
    scatter_tile,
)

GOOD, DAMAGED = 0, 1


@helper
def copy_raw(record, value_words, out_bits):
    """Bits of a raw record into the words of its values."""
    if record.kind & SAME:
        for i in range(out_bits.size):
            out_bits[i] = np.uint32(load_32(record.at + 4 * (i % value_words)))
    else:
        for i in range(out_bits.size):
            out_bits[i] = np.uint32(load_32(record.at + 4 * i))


@helper
def decode_tile(record, widths, differences, step, y):
    """Decode a full coded tile without escapes."""
    code = record.base
    if record.kind & ZERO:
        value = y.dtype.type(np.float64(code) * step)
        for j in range(TILE):
            y[j] = value
        return
    source = record.blocks
    target = address(y)
    scratch = address(differences)
    for k in range(BLOCKS):
        width = np.int64(widths[k])
        if width <= NARROW:
            if y.itemsize == 8:
                code += unpack_scan_f8(source, width, code, step, target)
            elif record.kind & SMALL:
                code += unpack_scan_small(source, width, code, step, target)
            else:
                code += unpack_scan_f4(source, width, code, step, target)
        else:
            unpack_block(source, width, scratch)
            if y.itemsize == 8:
                code += scan_f8(scratch, code, step, target)
            elif record.kind & SMALL:
                code += scan_small(scratch, code, step, target)
            else:
                code += scan_f4(scratch, code, step, target)
        source += 2 * width
        target += BLOCK * y.itemsize


@helper
def decode_axes_tile(record, tiling, tile, widths, differences, zeros, codes, step, y, out):
    """Decode a coded tile of more than one axis, escapes left aside.

    Into its place in `out` where it can; returns whether it is in `y` instead.
    """
    if not distances_fit(widths):
        read_codes(record, tiling[0], widths, differences, codes)
        for j in range(TILE):
            y[j] = y.dtype.type(np.float64(codes[j]) * step)
        return True
    place = place_inside(tiling, tile)
    if place[0] >= 0 and not record.entries:
        read_values(tiling[0], record, widths, zeros, differences, step, out, place)
        return False
    read_values(tiling[0], record, widths, zeros, differences, step, y, place_alone(tiling))
    return True


@helper
def decode_sums(record, m, value_words, axes, widths, differences, codes, step, one, raw, sums):
    """Values of an opened record as float64, not yet divided or rounded.

    `raw` is scratch of m values of the value type.
    """
    if record.kind & RAW:
        copy_raw(record, value_words, raw.view(np.uint32))
        for j in range(m):
            sums[j] = np.float64(raw[j])
        return
    read_codes(record, axes, widths, differences, codes)
    for j in range(m):
        sums[j] = np.float64(codes[j]) * step
    apply_entries(record.escapes, record.entries, value_words, one, codes, step, sums)


@helper
def restore_bits(record, value_words, out_bits):
    """Put escaped values of an array that was never reduced back, NaN payloads included."""
    at = record.escapes
    for _ in range(record.entries):
        start, stop = entry_run(at)
        for j in range(start, stop):
            for i in range(value_words):
                bits = load_32(at + 8 + 4 * (value_words + i))
                out_bits[value_words * j + i] = np.uint32(bits)
        at += 4 * entry_nwords(value_words)


@helper
def put_escaped(record, value_words, sums, reduced, y):
    """Round the sums of the elements that escaped somewhere, or restore their bits."""
    if not reduced:
        restore_bits(record, value_words, y.view(np.uint32))
        return
    at = record.escapes
    for _ in range(record.entries):
        start, stop = entry_run(at)
        for j in range(start, stop):
            y[j] = y.dtype.type(sums[j])
            if y[j] != y[j]:
                y[j] = np.nan
        at += 4 * entry_nwords(value_words)


@helper
def finish_values(sums, divisor, reduced, y):
    """Divide and round; NaN of a reduction loses its payload."""
    for j in range(y.size):
        y[j] = y.dtype.type(sums[j] / divisor)
    if reduced:
        for j in range(y.size):
            if y[j] != y[j]:
                y[j] = np.nan


@kernel
def decompress_tiles(table, words, nwords, step, divisor, reduced, first_tile, out, tiling, origin):
    """Decompress a run of tiles, checking every length and the checksum.

    Parameters
    ----------
    table, words : as `compress_tiles` wrote them
    nwords : words that belong to the stream
    step : grid step
    divisor : the results are divided by it before they are rounded (averages); 1.0 otherwise
    reduced : whether this is the result of a reduction: NaN becomes the quiet NaN without payload
    first_tile : number of the first tile in its row, for the checksum
    out : float32 or float64 array, written: the n values of a row, or all values of an array of
        more axes
    tiling : (axes, Z, Y, X)
    origin : number of the first tile in the array; 0 for a row

    Returns
    -------
    (status, checksum); status 1, or a checksum other than expected: the stream is damaged and `out`
    holds anything
    """
    value_words = out.itemsize // 4
    all_bits = out.view(np.uint32)
    codes = np.empty(TILE, np.int64)
    sums = np.empty(TILE, np.float64)
    raw = np.empty(TILE, out.dtype)
    one = np.empty(1, out.dtype)
    differences = np.empty(TILE, np.int32)
    widths = np.empty(BLOCKS, np.uint8)
    spare = np.empty(MAX_RECORD_NWORDS + OVERRUN, np.uint32)
    zeros = np.zeros(BLOCK, np.int32)
    gathered = np.empty(TILE, out.dtype)
    gathered_bits = gathered.view(np.uint32)
    found = np.uint64(0)
    for tile in range(table.size):
        if tiling[0] == 1:
            y = out[TILE * tile : TILE * (tile + 1)]
            bits = all_bits[TILE * tile * value_words : (TILE * tile + y.size) * value_words]
        else:
            y = gathered
            bits = gathered_bits
        m = y.size
        in_scratch = tiling[0] != 1
        record = open_record(table[tile], words, nwords, m, value_words, widths, spare)
        if record.nwords < 0:
            return DAMAGED, found
        first = split_entry(table[tile])[0]
        found += tile_checksum(words, first, record.nwords, record.kind, first_tile + tile)
        if record.kind & RAW and not reduced:
            copy_raw(record, value_words, bits)
        elif m == TILE and not record.kind & RAW and divisor == 1.0:
            if tiling[0] == 1 or record.kind & ZERO:
                decode_tile(record, widths, differences, step, y)
            else:
                in_scratch = decode_axes_tile(
                    record, tiling, origin + tile, widths, differences, zeros, codes, step, y, out
                )
            if record.entries:
                read_codes(record, tiling[0], widths, differences, codes)
                apply_entries(record.escapes, record.entries, value_words, one, codes, step, sums)
                put_escaped(record, value_words, sums, reduced, y)
        else:
            decode_sums(
                record, m, value_words, tiling[0], widths, differences, codes, step, one, raw[:m],
                sums,
            )  # fmt: skip
            finish_values(sums, divisor, reduced, y)
            if not reduced:
                restore_bits(record, value_words, bits)
        if in_scratch:
            scatter_tile(y, tiling, origin + tile, out)
    return GOOD, found
