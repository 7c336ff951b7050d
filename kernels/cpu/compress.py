"""Compression: quantise on the common grid, difference, pack (docs/format.md sections 2 to 5)."""

from collections import namedtuple

import numpy as np

from zccl.formats import BLOCK, BLOCKS, ESCAPES, RAW, TILE, max_distance
from zccl.kernels.cpu._compile import helper, kernel
from zccl.kernels.cpu.checksum import tile_checksum
from zccl.kernels.cpu.escapes import count_entries, put_entries
from zccl.kernels.cpu.memory import address, float_bits, float_bits_32
from zccl.kernels.cpu.record import (
    all_same,
    allowance,
    coded_nwords,
    put_coded,
    put_raw,
    table_entry,
)
from zccl.kernels.cpu.stages import difference_16
from zccl.kernels.cpu.tilings import block_of_chain, difference_rows, gather_tile, make_rows

MAX_DISTANCES = (0, max_distance(1), max_distance(2), max_distance(3))

# Adding and subtracting it rounds a float64 below 2^51 to the nearest integer, ties to even; unlike
# rint it vectorises. The low bits of such a sum are the integer, so codes need no conversion.
ROUND = 1.5 * 2.0**52
ROUND_BITS = np.int64(np.float64(ROUND).view(np.int64))

# What the quantiser needs to know: docs/format.md section 2. `near` and `tiny` are powers of two
# for the window tests of whole tiles: distances from the first code, and sizes of codes. `proven`
# says that codes within 2^13 prove the bound of decoded float32 values: half a unit in the last
# place is then less than the margin of an ordinary step. Decoded float64 values need no test up to
# 2^40.
Quantiser = namedtuple(
    "Quantiser",
    "step inverse error_bound movement fill max_code limit small_code near tiny proven",
)
PROVEN_CODE = 2**13
# Arrays of one tile: low halves of the chain behind that of the base, which values are good (1 or
# 0), the places of those that are not, rows of an n-D tile, differences, widths.
Scratch = namedtuple("Scratch", "low flags places rows differences widths")

# Ways to quantise a tile, from quick to slow; each is tried first in the way that did for the last.
WINDOWS, TESTED, EXACT = 0, 1, 2


@helper
def power_of_two_below(n):
    """Largest power of two that is at most n."""
    power = np.int64(1)
    while 2 * power <= n:
        power *= 2
    return power


@helper
def make_quantiser(value_words, axes, largest, step, error_bound, movement, ranks, fill):
    """Gather what the quantiser needs; `largest` is the largest finite value of the type."""
    max_code = 2.0**24 if value_words == 1 else 2.0**40 - 1
    limit = MAX_DISTANCES[axes] // ranks
    small_code = 2**24 // ranks
    ordinary = step <= 2 * error_bound * (1 - 2.0**-10)  # else an aligned one, without margin
    window = min(small_code, np.int64(min(largest / step, 2.0**24)))  # its codes decode finite
    return Quantiser(
        step, 1.0 / step, error_bound, movement, np.float64(fill), max_code, np.int64(limit),
        np.int64(small_code), power_of_two_below(limit), power_of_two_below(window), ordinary,
    )  # fmt: skip


@helper
def quantise_windows(x, inverse, near, tiny, low):
    """Quantise a full tile; returns whether all codes are near the first, and all are tiny.

    A sum of bit patterns leaves its window, as NaN, infinities and huge values do, exactly when its
    OR over the tile has a bit at or above the window's size.
    """
    first = float_bits(np.float64(x[0]) * inverse + ROUND)
    far = np.int64(0)
    big = np.int64(0)
    for j in range(TILE):
        pattern = float_bits(np.float64(x[j]) * inverse + ROUND)
        low[j + 1] = np.int32(pattern)
        far |= pattern + (near - first)
        big |= pattern + (tiny - ROUND_BITS)
    is_near = np.uint64(far) < np.uint64(2 * near)
    is_tiny = np.uint64(big) < np.uint64(2 * tiny)
    return is_near, is_tiny, first - ROUND_BITS


@helper
def quantise_tested(x, p, low):
    """Quantise a full tile of float32 values, test each decoded one; returns whether all is well.

    Products of float32 numbers decode codes below 2^24 exactly as float64 arithmetic would; their
    distance is rounded once more, hence the limit one step below the bound.
    """
    step = np.float32(p.step)
    bound = np.float32(p.error_bound)
    below = float_bits_32(bound) - (2 if np.float64(bound) > p.error_bound else 1)
    first = float_bits(np.float64(x[0]) * p.inverse + ROUND)
    far = np.int64(0)
    big = np.int64(0)
    wrong = np.int32(0)
    for j in range(TILE):
        pattern = float_bits(np.float64(x[j]) * p.inverse + ROUND)
        code = np.int32(pattern)
        low[j + 1] = code
        far |= pattern + (p.near - first)
        big |= pattern + (p.tiny - ROUND_BITS)
        wrong |= np.int32(below - float_bits_32(abs(np.float32(x[j]) - np.float32(code) * step)))
    is_near = np.uint64(far) < np.uint64(2 * p.near)
    is_tiny = np.uint64(big) < np.uint64(2 * p.tiny)
    return is_near and is_tiny and wrong >= 0


@helper
def quantise_quickly(x, value_words, p, way, low):
    """Quantise a full tile of usual values, starting with a way to do it.

    Returns (the way that did, base); the codes are in `low` unless that way is EXACT.
    """
    if way == WINDOWS and (p.proven or not p.movement):
        tiny = min(p.tiny, PROVEN_CODE) if p.movement else p.tiny
        is_near, is_tiny, base = quantise_windows(x, p.inverse, p.near, tiny, low)
        if value_words == 2:
            is_tiny = abs(base) < 2**39 and 2.0**40 * p.step < np.inf
        if is_near and is_tiny:
            return WINDOWS, base
    if way <= TESTED and p.movement and value_words == 1 and quantise_tested(x, p, low):
        return TESTED, np.int64(low[1])
    return EXACT, np.int64(0)


@helper
def decoded(x, q, step):
    """Return the decoded value of a code, as the reader will see it."""
    return np.float64(x.dtype.type(q * step))


@helper
def is_good(v, q, rounded, p):
    """Whether a value passes the tests that need no base."""
    good = (abs(q) <= p.max_code) & (v != p.fill) & (abs(rounded) < np.inf)
    if p.movement:
        good &= abs(v - rounded) <= p.error_bound
    return good


@helper
def find_base(x, p):
    """Code of the first good value; 0 when there is none."""
    for j in range(x.size):
        v = np.float64(x[j])
        q = (v * p.inverse + ROUND) - ROUND
        if is_good(v, q, decoded(x, q, p.step), p):
            return q
    return 0.0


@helper
def quantise_exactly(x, p, s):
    """Quantise a tile with all tests; returns (base, number of escapes, largest size of a code)."""
    base = find_base(x, p)
    limit = np.float64(p.limit)
    largest = np.int32(0)
    for j in range(x.size):
        v = np.float64(x[j])
        y = v * p.inverse + ROUND
        q = y - ROUND
        good = is_good(v, q, decoded(x, q, p.step), p) & (abs(q - base) <= limit)
        low = np.int32(float_bits(y))
        s.low[j + 1] = low
        s.flags[j] = np.int32(good)
        largest = max(largest, abs(low) if good else np.int32(0))
    return np.int64(base), chain(x.size, np.int64(base), s), np.int64(largest)


@helper
def chain(m, base, s):
    """Put stand-ins for values without a flag and list their places; returns how many there are."""
    last = np.int32(base)
    escaped = 0
    for k in range(0, m, BLOCK):
        stop = min(k + BLOCK, m)
        good = 0
        for j in range(k, stop):
            good += s.flags[j]
        if good == stop - k:
            last = s.low[stop]
            continue
        for j in range(k, stop):
            if s.flags[j]:
                last = s.low[j + 1]
            else:
                s.low[j + 1] = last
                s.places[escaped] = j
                escaped += 1
    s.low[m + 1 :] = last
    return escaped


@helper
def encode(bits, value_words, axes, base, escaped, small, rank, s, words, at):
    """Write the record of one tile from its chain; returns (words, kind).

    `bits` are the words of its m values.
    """
    m = bits.size // value_words
    entries = 0
    if escaped:
        if all_same(bits, value_words):
            return put_raw(words, at, bits, value_words)
        entries = count_entries(s.places, escaped, bits, value_words)
    s.low[0] = np.int32(base)
    difference_rows(axes, s.low, s.rows)
    target = address(s.differences)
    for k in range(BLOCKS):
        source = block_of_chain(axes, s.low, s.rows, k)
        s.widths[k] = difference_16(source, target + 4 * BLOCK * k)
    if entries and coded_nwords(base, s.widths, entries, value_words) > allowance(m, value_words):
        return put_raw(words, at, bits, value_words)
    place = address(words) + 4 * at
    nwords, kind = put_coded(place, base, s.differences, s.widths, small)
    if entries:
        to = place + 4 * nwords
        nwords += put_entries(s.places, escaped, bits, value_words, base, s.low, rank, entries, to)
        kind |= ESCAPES
    return nwords, kind


@helper
def make_scratch():
    """Arrays for the work on one tile."""
    return Scratch(
        np.zeros(TILE + 1, np.int32),
        np.empty(TILE, np.int32),
        np.empty(TILE, np.int32),
        make_rows(),
        np.empty(TILE, np.int32),
        np.empty(BLOCKS, np.uint8),
    )


@kernel
def compress_tiles(
    values, tiling, origin, step, error_bound, movement, ranks, rank, fill, first_tile, table, words
):
    """Compress a run of tiles.

    Parameters
    ----------
    values : float32 or float64 array: the n values of a row, or all values of an array of more axes
    tiling : (axes, Z, Y, X)
    origin : number of the first tile in the array; 0 for a row
    step : grid step, float64
    error_bound : bound of each decoded value; only used when `movement`
    movement : whether the bound is promised for decoded values; False in reductions, whose sum is
        rounded anyway
    ranks : number of arrays that may be added up
    rank : written beside escaped values
    fill : value that always escapes; NaN for none
    first_tile : number of the first tile in its row, for the checksum
    table : uint64 array of one entry a tile, written
    words : uint32 array with room for each tile's allowance and `OVERRUN` bytes more, written

    Returns
    -------
    (words used, checksum, number of values that travel as raw bits)
    """
    value_words = values.itemsize // 4
    all_bits = values.view(np.uint32)
    largest_value = np.float64(np.finfo(values.dtype).max)
    fill = np.float64(values.dtype.type(fill))
    p = make_quantiser(
        value_words, tiling[0], largest_value, step, error_bound, movement, ranks, fill
    )
    named_fill = fill == fill
    s = make_scratch()
    gathered = np.empty(TILE, values.dtype)
    gathered_bits = gathered.view(np.uint32)
    used = 0
    checksum = np.uint64(0)
    raw_values = 0
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
        base = np.int64(0)
        small = value_words == 1
        escaped = 0
        if m == TILE and not named_fill:
            way, base = quantise_quickly(x, value_words, p, way, s.low)
        else:
            way = EXACT
        if way == EXACT:
            base, escaped, largest = quantise_exactly(x, p, s)
            small = value_words == 1 and max(largest, abs(base)) <= p.small_code
            way = EXACT if escaped else WINDOWS
        elif abs(base) < PROVEN_CODE:
            way = WINDOWS
        nwords, kind = encode(
            bits, value_words, tiling[0], base, escaped, small, rank, s, words, used
        )
        table[tile] = table_entry(used, nwords, kind)
        checksum += tile_checksum(words, used, nwords, kind, first_tile + tile)
        raw_values += m if kind & RAW else escaped
        used += nwords
    return used, checksum, raw_values
