"""Coding one tile by all rules of docs/format.md sections 2 to 4: any size, any values.

A warp owns the tile. Values are looked at in rows of 32 neighbours, so that a vote over row k is
the mask of the run of lane k; the low words of their codes lie in shared memory, value i at word
i + i // 32, where rows and runs meet all banks.
"""

from collections import namedtuple

from zccl.formats import ESCAPES, LONG, MAX_DISTANCE, RAW, SAME, SMALL, WIDTH_WORDS, ZERO
from zccl.kernels.cuda._compat import ALL, LANES, cuda, device, f64, i32, i64, u32
from zccl.kernels.cuda._intrinsics import (
    add_f64,
    bits_of_f64,
    load_u32_any,
    low_word,
    max_i32,
    min_i32,
    mul_f64,
    store_u32_any,
    sub_f64,
)
from zccl.kernels.cuda.axes import difference_axes, row_word
from zccl.kernels.cuda.blocks import pack_blocks
from zccl.kernels.cuda.escapes import count_entries, put_entries, run_starts
from zccl.kernels.cuda.record import allowance, place_of_blocks
from zccl.kernels.cuda.values import VALUES
from zccl.kernels.cuda.warp import bit, bits_below, first_bit, last_bit, vote
from zccl.kernels.cuda.widths import put_widths, widths_of

ROOM = 1056  # words of shared memory a warp

Exact = namedtuple("Exact", "quantise form write")


@device
def run_mask(lane, m):
    """Mask of the values of a lane's run that are inside a tile of m values."""
    inside = i32(m - i32(lane << i32(5)))
    if inside <= i32(0):
        return u32(0)
    if inside >= i32(LANES):
        return u32(0xFFFFFFFF)
    return bits_below(inside)


@device
def previous_bits(bits, carried, lane):
    """Bits of the value before that of a lane; `carried` are those of the last one of a row."""
    before = cuda.shfl_up_sync(ALL, bits, 1)
    if lane == i32(0):
        before = carried
    return before


@device
def choose_base(found, base, good, code):
    """Take the code of the first good value of a row as the base, unless there is one."""
    mask = vote(good)
    if not found and mask != u32(0):
        base = cuda.shfl_sync(ALL, code, first_bit(mask))
        found = True
    return found, base


@device
def difference_chain(words, at, lane, good, base, d):
    """Differences of a lane's run, stand-ins taken for values without a flag.

    Returns the distance from the base of the code in front of the run.
    """
    low_base = i32(base & i64(0xFFFFFFFF))
    last = low_base
    own = last_bit(good)
    if own >= i32(0):
        last = i32(words[u32(at + row_word(lane, own))])
    lanes = u32(vote(good != u32(0)) & bits_below(lane))
    source = last_bit(lanes)
    before = cuda.shfl_sync(ALL, last, max_i32(source, i32(0)))
    if source < i32(0):
        before = low_base
    code = before
    for j in range(32):
        following = code
        if bit(good, j):
            following = i32(words[u32(at + row_word(lane, i32(j)))])
        d[j] = i32(following - code)
        code = following
    return i32(before - low_base)


@device
def base_nwords(base):
    """Words that a base takes."""
    if base >= i64(-(2**31)) and base < i64(2**31):
        return i32(1)
    return i32(2)


@device
def coded_nwords(base, halves, entries, value_words):
    """Words of a coded record."""
    nwords = base_nwords(base)
    if halves > i32(0):
        nwords = i32(nwords + i32(WIDTH_WORDS) + i32(i32(halves + i32(1)) >> i32(1)))
    if entries > i32(0):
        nwords = i32(nwords + i32(1) + entries * (i32(2) + i32(2) * value_words))
    return nwords


@device
def copy_to(address, words, at, nwords, lane):
    """Copy words of a shared array to memory."""
    i = lane
    while i < nwords:
        store_u32_any(address + 4 * i64(i), words[u32(at + i)])
        i = i32(i + i32(LANES))


@device
def put_coded(words, at, address, base, d, first, second, before, halves, lane):
    """Write base, widths and blocks by way of a shared array; returns their words."""
    nbase = base_nwords(base)
    if lane == i32(0):
        words[u32(at)] = u32(base & i64(0xFFFFFFFF))
        if nbase == i32(2):
            words[u32(at + i32(1))] = u32((base >> i64(32)) & i64(0xFFFFFFFF))
    nwords = nbase
    if halves > i32(0):
        start = i32(at + nbase)
        put_widths(words, start, lane, first, second)
        start = i32(start + i32(WIDTH_WORDS))
        half = i32(i32(start << i32(1)) + before)
        is_last = i32(before + i32(first + second)) == halves
        pack_blocks(words, half, d, first, second, is_last)
        nwords = i32(nwords + i32(WIDTH_WORDS) + i32(i32(halves + i32(1)) >> i32(1)))
    cuda.syncwarp()
    copy_to(address, words, at, nwords, lane)
    return nwords


@device
def coded_kind(base, halves, entries, small):
    """Kind of a coded record."""
    kind = i32(0)
    if halves == i32(0):
        kind = i32(ZERO)
    if entries > i32(0):
        kind = i32(kind | i32(ESCAPES))
    if small:
        kind = i32(kind | i32(SMALL))
    if base_nwords(base) == i32(2):
        kind = i32(kind | i32(LONG))
    return kind


@device
def put_raw(address, values, nwords, lane):
    """Copy the words of values into a raw record."""
    i = lane
    while i < nwords:
        store_u32_any(address + 4 * i64(i), load_u32_any(values + 4 * i64(i)))
        i = i32(i + i32(LANES))


def _make_quantise(value_words):
    values_type = VALUES[value_words]
    load_bits, number, rounded = values_type.load_bits, values_type.number, values_type.rounded
    max_code = 2.0**24 if value_words == 1 else 2.0**40 - 1
    value_nbytes = 4 * value_words

    @device
    def quantise(values, m, inverse, step, error_bound, movement, limit, fill, words, at, lane):
        """Test all values of a tile.

        Returns (base, flags of the lane's run of good values and of values like the one before,
        largest size of a code as far as 31 bits show it).
        """
        base = f64(0)
        found = False
        good_run = u32(0)
        same_run = u32(0)
        carried = load_bits(values)
        largest = i32(0)
        held = cuda.local.array(8, i64)
        for first_row in range(0, 32, 8):
            for k in range(8):
                i = i32(i32(LANES) * i32(first_row + k) + lane)
                held[k] = load_bits(values + i64(value_nbytes) * i64(min_i32(i, i32(m - i32(1)))))
            for k in range(8):
                row = i32(first_row + k)
                inside = i32(i32(LANES) * row + lane) < m
                bits = held[k]
                x = number(bits)
                shifted = add_f64(mul_f64(x, inverse), f64(6755399441055744.0))
                code = sub_f64(shifted, f64(6755399441055744.0))
                decoded = rounded(mul_f64(code, step))
                good = inside and abs(code) <= f64(max_code) and x != fill
                good = good and abs(decoded) < f64(float("inf"))
                if movement:
                    good = good and abs(sub_f64(x, decoded)) <= error_bound
                found, base = choose_base(found, base, good, code)
                near = good and abs(code - base) <= limit
                same = bits == previous_bits(bits, carried, lane)
                carried = cuda.shfl_sync(ALL, bits, 31)
                low = low_word(shifted)
                words[u32(at + row_word(row, lane))] = u32(low)
                if near:
                    largest = max_i32(largest, abs(low))
                near_mask = vote(near)
                same_mask = vote(same or not inside)
                if lane == row:
                    good_run = near_mask
                    same_run = same_mask
        # The low 52 bits of a sum with 1.5 * 2^52 are the integer.
        integer = bits_of_f64(base + f64(6755399441055744.0)) - i64(0x4338000000000000)
        return integer, good_run, same_run, largest

    return quantise


def _make_form(value_words):
    @device
    def form(m, base, good, same, words, at, lane, d, e, axes):
        """Choose the form of a tile from its flags and the codes in the shared array.

        `d` gets its differences along the row, `e` those along all axes, which a record has.
        Returns (words, kind without SMALL, entries, escaped, starts, before, first, second, place
        of blocks, half-words of blocks): the last ones are what `write` needs.
        """
        inside = run_mask(lane, m)
        escaped = u32(inside & ~good)
        before_run = difference_chain(words, at, lane, good, base, d)
        starts = run_starts(escaped, same, lane)
        entries = count_entries(starts)
        if axes == i32(1):
            for j in range(32):
                e[j] = d[j]
        else:
            difference_axes(words, at, before_run, d, e, lane, axes)
        first, second = widths_of(e)
        before, halves = place_of_blocks(first, second, lane)
        nwords = coded_nwords(base, halves, entries, i32(value_words))
        kind = coded_kind(base, halves, entries, False)
        all_same = cuda.all_sync(ALL, same == u32(0xFFFFFFFF))
        if entries > i32(0):
            if all_same:
                kind = i32(RAW | SAME)
                nwords = i32(value_words)
            elif nwords > allowance(m, i32(value_words)):
                kind = i32(RAW)
                nwords = i32(m * i32(value_words))
        return (
            nwords, kind, entries, escaped, starts, before_run, first, second, before, halves
        )  # fmt: skip

    return form


def _make_write(value_words):
    @device
    def write(
        address, nwords, kind, base, entries, escaped, starts, before_run, d, e, first, second,
        before, halves, rank, values, words, at, lane,
    ):  # fmt: skip
        """Write the record of a tile whose form is chosen."""
        if (kind & i32(RAW)) != i32(0):
            put_raw(address, values, nwords, lane)
        else:
            used = put_coded(words, at, address, base, e, first, second, before, halves, lane)
            if entries > i32(0):
                put_entries(
                    address + 4 * i64(used), escaped, starts, entries, d, before_run, base, rank,
                    values, value_words, lane,
                )  # fmt: skip
        cuda.syncwarp()

    return write


EXACT = {
    words: Exact(_make_quantise(words), _make_form(words), _make_write(words)) for words in (1, 2)
}
FAR = MAX_DISTANCE
