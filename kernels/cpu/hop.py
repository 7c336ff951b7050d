"""A hop on one tile: two records, or a record and values, into one (docs/format.md section 7)."""

from collections import namedtuple

import numpy as np

from zccl.formats import BLOCK, BLOCKS, ESCAPES, MAX_SUM, RAW, SMALL, TILE
from zccl.kernels.cpu._compile import helper
from zccl.kernels.cpu.compress import MAX_DISTANCES, chain, encode
from zccl.kernels.cpu.decompress import decode_sums
from zccl.kernels.cpu.escapes import apply_entries, entry_run, merge_entries
from zccl.kernels.cpu.memory import address
from zccl.kernels.cpu.record import (
    MAX_RECORD_NWORDS,
    Record,
    allowance,
    coded_nwords,
    entry_nwords,
    put_coded,
    put_raw,
    read_codes,
)
from zccl.kernels.cpu.stages import (
    NARROW,
    OVERRUN,
    add_16,
    difference_16,
    difference_add_16,
    unpack_add_16,
    unpack_block,
)
from zccl.kernels.cpu.tilings import block_of_chain, difference_rows

SUM, MAX, MIN = 0, 1, 2
TOO_LONG = -2  # words of a coded sum that outgrows its allowance

# Arrays for the work on one tile of one operand.
Operand = namedtuple("Operand", "widths differences codes coded values spare")


@helper
def make_operand():
    """Arrays for the work on one tile of one operand."""
    return Operand(
        np.empty(BLOCKS, np.uint8),
        np.empty(TILE, np.int32),
        np.empty(TILE, np.int64),
        np.empty(TILE, np.bool_),
        np.empty(TILE, np.float64),
        np.empty(MAX_RECORD_NWORDS + OVERRUN, np.uint32),
    )


@helper
def add_blocks(a, widths_a, b, widths_b, scratch_a, scratch_b, sums, widths):
    """Add the differences of two coded records; returns the largest width of the sums."""
    at_a = a.blocks
    at_b = b.blocks
    target = address(sums)
    largest = np.int64(0)
    for k in range(BLOCKS):
        wide_a = np.int64(widths_a[k])
        wide_b = np.int64(widths_b[k])
        if max(wide_a, wide_b) <= NARROW or NARROW < 0:
            width = unpack_add_16(at_a, wide_a, at_b, wide_b, target)
        else:
            unpack_block(at_a, wide_a, address(scratch_a))
            unpack_block(at_b, wide_b, address(scratch_b))
            width = add_16(address(scratch_a), address(scratch_b), target)
        widths[k] = width
        largest = max(largest, width)
        at_a += 2 * wide_a
        at_b += 2 * wide_b
        target += 4 * BLOCK
    return largest


@helper
def in_range(code):
    """Whether a sum of codes keeps to 53 bits."""
    return -MAX_SUM < code < MAX_SUM


@helper
def finish_sum(base, a, b, s, small, m, value_words, words, at):
    """Write the record of a sum from its differences and widths; returns (words, kind).

    The words are `TOO_LONG` when both tiles must be decoded instead.
    """
    entries = a.entries + b.entries
    # Without escapes only a forged short tile, with differences behind its end, is too long.
    if entries or m < TILE:
        if coded_nwords(base, s.widths, entries, value_words) > allowance(m, value_words):
            return TOO_LONG, 0
    place = address(words) + 4 * at
    nwords, kind = put_coded(place, base, s.differences, s.widths, small)
    if entries:
        target = place + 4 * nwords
        nwords += merge_entries(a.escapes, a.entries, b.escapes, b.entries, value_words, target)
        kind |= ESCAPES
    return nwords, kind


@helper
def sum_coded(a, op_a, b, op_b, s, keep_small, m, value_words, words, at):
    """Sum of two coded records; returns (words, kind), words 0 when codes outgrow the format."""
    base = a.base + b.base
    if not (in_range(a.base) and in_range(b.base) and in_range(base)):
        return 0, 0
    largest = add_blocks(
        a, op_a.widths, b, op_b.widths, op_a.differences, op_b.differences, s.differences, s.widths
    )
    if largest > 31:
        return 0, 0
    small = keep_small and (a.kind & b.kind & SMALL) != 0
    return finish_sum(base, a, b, s, small, m, value_words, words, at)


@helper
def sum_local(base_a, b, op_b, s, m, value_words, axes, words, at):
    """Sum of the chain in `s.low`, all of it good, and a coded record; as `sum_coded`."""
    base = base_a + b.base
    if not (in_range(b.base) and in_range(base)):
        return 0, 0
    s.low[0] = np.int32(base_a)
    difference_rows(axes, s.low, s.rows)
    at_b = b.blocks
    target = address(s.differences)
    scratch = address(op_b.differences)
    largest = np.int64(0)
    for k in range(BLOCKS):
        wide = np.int64(op_b.widths[k])
        codes = block_of_chain(axes, s.low, s.rows, k)
        if wide <= NARROW:
            width = difference_add_16(codes, at_b, wide, target)
        else:
            unpack_block(at_b, wide, scratch)
            difference_16(codes, target)
            width = add_16(target, scratch, target)
        s.widths[k] = width
        largest = max(largest, width)
        at_b += 2 * wide
        target += 4 * BLOCK
    if largest > 31:
        return 0, 0
    small = (b.kind & SMALL) != 0  # the chain is small, or the values are float64
    return finish_sum(base, b, no_entries(b), s, small, m, value_words, words, at)


@helper
def no_entries(record):
    """Like a record, but without escapes."""
    zero = np.int64(0)
    return Record(record.at, record.nwords, record.kind, record.base, record.blocks, zero, zero)


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
def open_extremes(record, operand, m, value_words, axes, step, one):
    """Values of a coded record as float64 and which of them are codes.

    Returns False when a code outgrows the format. What escaped may be a sum already; it is rounded
    as it will be at the end.
    """
    read_codes(record, axes, operand.widths, operand.differences, operand.codes)
    for j in range(m):
        if not in_range(operand.codes[j]):
            return False
        operand.coded[j] = True
        operand.values[j] = np.float64(operand.codes[j]) * step
    apply_entries(
        record.escapes, record.entries, value_words, one, operand.codes, step, operand.values
    )
    at = record.escapes
    for _ in range(record.entries):
        start, stop = entry_run(at)
        for j in range(start, stop):
            if operand.coded[j]:
                operand.coded[j] = False
                operand.values[j] = np.float64(one.dtype.type(operand.values[j]))
        at += 4 * entry_nwords(value_words)
    return True


@helper
def select_extremes(op, a, b, out):
    """Winners of two coded tiles into the codes and flags of a, and into `out` as values.

    A tie between a code and an escaped value keeps the code, so that any order of hops ends alike.
    """
    for j in range(out.size):
        b_wins = wins(op, b.values[j], a.values[j])
        tie = not b_wins and not wins(op, a.values[j], b.values[j])
        if b_wins or (tie and b.coded[j]):
            a.codes[j] = b.codes[j]
            a.coded[j] = b.coded[j]
            out[j] = out.dtype.type(b.values[j])
        else:
            out[j] = out.dtype.type(a.values[j])
        if out[j] != out[j]:
            out[j] = np.nan


@helper
def encode_extremes(codes, coded, bits, value_words, axes, s, words, at):
    """Code the winners that are codes and near the first one; returns (words, kind)."""
    m = bits.size // value_words
    base = np.int64(0)
    for j in range(m):
        if coded[j]:
            base = codes[j]
            break
    largest = abs(base)
    for j in range(m):
        near = coded[j] and abs(codes[j] - base) <= MAX_DISTANCES[axes]
        s.flags[j] = np.int32(near)
        s.low[j + 1] = np.int32(codes[j])
        if near:
            largest = max(largest, abs(codes[j]))
    escaped = chain(m, base, s)
    small = value_words == 1 and largest <= 2**24
    return encode(bits, value_words, axes, base, escaped, small, 0, s, words, at)


@helper
def combine_numbers(op, a, b, out):
    """Sum or winners of two rows of float64 values, rounded once; NaN loses its payload."""
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
def combine_records(
    op, a, op_a, b, op_b, s, m, value_words, axes, step, keep_small, out, one, words, at
):  # fmt: skip
    """Reduce two opened records into one; returns (words, kind).

    The words are 0 when codes outgrow the format. `out` is scratch of m values.
    """
    bits = out.view(np.uint32)
    raw = ((a.kind | b.kind) & RAW) != 0
    nwords = TOO_LONG
    kind = 0
    if op == SUM and not raw:
        nwords, kind = sum_coded(a, op_a, b, op_b, s, keep_small, m, value_words, words, at)
    elif not raw:
        if not open_extremes(a, op_a, m, value_words, axes, step, one):
            return 0, 0
        if not open_extremes(b, op_b, m, value_words, axes, step, one):
            return 0, 0
        select_extremes(op, op_a, op_b, out)
        nwords, kind = encode_extremes(
            op_a.codes, op_a.coded, bits, value_words, axes, s, words, at
        )
    if nwords == TOO_LONG:
        decode_sums(
            a, m, value_words, axes, op_a.widths, op_a.differences, op_a.codes, step, one, out,
            op_a.values,
        )  # fmt: skip
        decode_sums(
            b, m, value_words, axes, op_b.widths, op_b.differences, op_b.codes, step, one, out,
            op_b.values,
        )  # fmt: skip
        combine_numbers(op, op_a.values, op_b.values, out)
        nwords, kind = put_raw(words, at, bits, value_words)
    return nwords, kind
