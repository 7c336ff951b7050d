"""Hops: a compressed row and another one, or values, into one (docs/format.md section 7)."""

import numpy as np

from zccl.formats import RAW, TILE
from zccl.kernels.cpu._compile import helper, kernel
from zccl.kernels.cpu.checksum import tile_checksum
from zccl.kernels.cpu.compress import (
    EXACT,
    WINDOWS,
    encode,
    make_quantiser,
    make_scratch,
    quantise_exactly,
    quantise_quickly,
)
from zccl.kernels.cpu.hop import SUM, TOO_LONG, combine_records, make_operand, sum_local
from zccl.kernels.cpu.record import (
    MAX_RECORD_NWORDS,
    open_record,
    split_entry,
    table_entry,
)
from zccl.kernels.cpu.tilings import gather_tile

GOOD, DAMAGED, OVERFLOW = 0, 1, 2


@helper
def record_checksum(words, entry, tile):
    """Return what a record whose lengths were checked adds to the checksum."""
    first, nwords, kind = split_entry(entry)
    return tile_checksum(words, first, nwords, kind, tile)


@kernel
def combine_tiles(
    op, n, axes, step, keep_small, first_tile,
    table_a, words_a, nwords_a,
    table_b, words_b, nwords_b,
    table, words, probe,
):  # fmt: skip
    """Reduce two compressed rows of n values on the same grid into a third.

    Parameters
    ----------
    op : 0 sum, 1 maximum, 2 minimum
    axes : of the tiles
    keep_small : whether at most `ranks` of the sources are being added up, so that SMALL stays true
        in a sum
    first_tile : number of the first tile in its row, for the checksums
    table_x, words_x, nwords_x : operand as `compress_tiles` or this kernel wrote it
    table, words : result, written; `words` has room for each tile's allowance and `OVERRUN` bytes
        more
    probe : empty array of the value type

    Returns
    -------
    (words used, checksum, status, checksum of a, checksum of b); status 1: an operand is damaged,
    2: a sum outgrows its 53 or 31 bits. The caller compares the checksums of a and b with those
    expected, and believes an overflow only if they agree.
    """
    value_words = probe.itemsize // 4
    op_a = make_operand()
    op_b = make_operand()
    s = make_scratch()
    out = np.empty(TILE, probe.dtype)
    one = np.empty(1, probe.dtype)
    used = 0
    checksum = np.uint64(0)
    found_a = np.uint64(0)
    found_b = np.uint64(0)
    status = GOOD
    for tile in range(table.size):
        m = min(TILE, n - TILE * tile)
        a = open_record(table_a[tile], words_a, nwords_a, m, value_words, op_a.widths, op_a.spare)
        b = open_record(table_b[tile], words_b, nwords_b, m, value_words, op_b.widths, op_b.spare)
        if a.nwords < 0 or b.nwords < 0:
            return used, checksum, DAMAGED, found_a, found_b
        found_a += record_checksum(words_a, table_a[tile], first_tile + tile)
        found_b += record_checksum(words_b, table_b[tile], first_tile + tile)
        nwords, kind = combine_records(
            op, a, op_a, b, op_b, s, m, value_words, axes, step, keep_small, out[:m], one, words,
            used,
        )  # fmt: skip
        if nwords == 0:
            status = OVERFLOW  # the other tiles still count for the checksums
        table[tile] = table_entry(used, nwords, kind)
        checksum += tile_checksum(words, used, nwords, kind, first_tile + tile)
        used += nwords
    return used, checksum, status, found_a, found_b


@kernel
def combine_with_values(
    op, values, tiling, origin, step, ranks, rank, fill, first_tile,
    table_b, words_b, nwords_b,
    table, words,
):  # fmt: skip
    """Reduce a row of values, quantised on the fly, and a compressed row on the same grid.

    The result is that of `compress_tiles` for a reduction followed by `combine_tiles`.

    Parameters
    ----------
    op : 0 sum, 1 maximum, 2 minimum
    values, tiling, origin, step, ranks, rank, fill, first_tile : as for `compress_tiles`
    table_b, words_b, nwords_b : operand as `compress_tiles` or these kernels wrote it
    table, words : result, written; `words` has room for each tile's allowance and `OVERRUN` bytes
        more

    Returns
    -------
    (words used, checksum, status, checksum of b, number of values that travel as raw bits); as for
    `combine_tiles`
    """
    value_words = values.itemsize // 4
    all_bits = values.view(np.uint32)
    largest_value = np.float64(np.finfo(values.dtype).max)
    fill = np.float64(values.dtype.type(fill))
    p = make_quantiser(value_words, tiling[0], largest_value, step, 0.0, False, ranks, fill)
    named_fill = fill == fill
    gathered = np.empty(TILE, values.dtype)
    gathered_bits = gathered.view(np.uint32)
    op_a = make_operand()
    op_b = make_operand()
    s = make_scratch()
    own = np.empty(MAX_RECORD_NWORDS, np.uint32)
    out = np.empty(TILE, values.dtype)
    one = np.empty(1, values.dtype)
    used = 0
    checksum = np.uint64(0)
    found_b = np.uint64(0)
    raw_values = 0
    status = GOOD
    way = WINDOWS
    for tile in range(table.size):
        if tiling[0] == 1:
            x = values[TILE * tile : TILE * (tile + 1)]
            bits = all_bits[TILE * tile * value_words : (TILE * tile + x.size) * value_words]
        else:
            gather_tile(values, tiling, origin + tile, gathered)
            x = gathered
            bits = gathered_bits
        m = x.size
        b = open_record(table_b[tile], words_b, nwords_b, m, value_words, op_b.widths, op_b.spare)
        if b.nwords < 0:
            return used, checksum, DAMAGED, found_b, raw_values
        found_b += record_checksum(words_b, table_b[tile], first_tile + tile)
        base = np.int64(0)
        small = value_words == 1
        escaped = 0
        kind = 0
        if m == TILE and not named_fill:
            way, base = quantise_quickly(x, value_words, p, way, s.low)
        else:
            way = EXACT
        nwords = TOO_LONG
        if way != EXACT and op == SUM and not b.kind & RAW:
            nwords, kind = sum_local(base, b, op_b, s, m, value_words, tiling[0], words, used)
        if nwords == TOO_LONG:
            if way == EXACT:
                base, escaped, largest = quantise_exactly(x, p, s)
                small = value_words == 1 and max(largest, abs(base)) <= p.small_code
                way = EXACT if escaped else WINDOWS
            nwords, kind = encode(
                bits, value_words, tiling[0], base, escaped, small, rank, s, own, 0
            )
            raw_values += m if kind & RAW else escaped
            entry = table_entry(0, nwords, kind)
            a = open_record(entry, own, nwords, m, value_words, op_a.widths, op_a.spare)
            nwords, kind = combine_records(
                op, a, op_a, b, op_b, s, m, value_words, tiling[0], step, True, out[:m], one, words,
                used,
            )  # fmt: skip
        if nwords == 0:
            status = OVERFLOW
        table[tile] = table_entry(used, nwords, kind)
        checksum += tile_checksum(words, used, nwords, kind, first_tile + tile)
        used += nwords
    return used, checksum, status, found_b, raw_values
