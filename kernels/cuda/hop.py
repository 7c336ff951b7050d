"""A hop on one tile by all rules of docs/format.md section 7: sums and extremes of any records.

Two opened records become a record in one of three ways: differences are added (`COMBINED`), values
are added (`SUMMED`), or the winners of each value are coded again (`SELECTED`). The first needs
registers alone; the others fill slots (see `numbers`), and leave values in the slots of a.
"""

from collections import namedtuple

from zccl.formats import MAX_DISTANCE  # along one axis; half as far with each more
from zccl.kernels.cuda._compat import ALL, LANES, cuda, device, f64, i32, i64, u32
from zccl.kernels.cuda._intrinsics import (
    f64_of_bits,
    i64_to_f64,
    load_i64_any,
    load_u8_any,
    max_i32,
    mul_f64,
)
from zccl.kernels.cuda.axes import row_word, slot_of
from zccl.kernels.cuda.exact import choose_base, previous_bits
from zccl.kernels.cuda.values import VALUES
from zccl.kernels.cuda.warp import vote

SUM, MAX, MIN = 0, 1, 2
MAX_SUM_CODE = 2**53

# An opened record, as `open_record` returns it, and the words of its base.
Opened = namedtuple("Opened", "address nwords kind base base_words first second used entries")


@device
def wins(op, a, b):
    """Whether a beats b: NaN beats numbers, -0 < +0, and a tie is not won."""
    if b != b:
        return False
    if a != a:
        return True
    if a == f64(0) and b == f64(0):
        a = f64(1) / a
        b = f64(1) / b
    if op == i32(MAX):
        return a > b
    return a < b


@device
def in_range(code):
    """Whether a sum of codes keeps to 53 bits."""
    return code > i64(-MAX_SUM_CODE) and code < i64(MAX_SUM_CODE)


def _make(value_words):
    form = VALUES[value_words]
    rounded, rounded_bits, store_bits = form.rounded, form.rounded_bits, form.store_bits
    value_nbytes = 4 * value_words

    @device
    def contender(slots, flags, j, step, rounds):
        """Return number, code and whether it is a code, of one value."""
        content = load_i64_any(slot_of(slots, j))
        coded = load_u8_any(flags + i64(j)) == u32(0)
        number = f64(0)
        if coded:
            number = mul_f64(i64_to_f64(content), step)
        else:
            number = f64_of_bits(content)
            content = i64(0)
            if rounds:
                number = rounded(number)
        return number, content, coded

    @device
    def reduce_values(
        op, slots_a, flags_a, slots_b, flags_b, m, step, recodes, words, at, lane, axes
    ):  # fmt: skip
        """Sum or winners of two tiles in slots, as values in the slots of a.

        With `recodes` the codes among the winners also go to the shared array, as for
        `exact.quantise`; values that escaped are then rounded before they are compared.

        Returns (whether all codes are in range, base, flags of the lane's run of good values and
        of values like the one before, largest size of a code).
        """
        base = i64(0)
        found = False
        good_run = u32(0)
        same_run = u32(0)
        carried = i64(0)
        largest = i32(0)
        fine = True
        for row in range(32):
            j = i32(i32(LANES) * i32(row) + lane)
            inside = j < m
            if not inside:
                j = i32(m - i32(1))
            x, code, coded = contender(slots_a, flags_a, j, step, recodes)
            y, code_b, coded_b = contender(slots_b, flags_b, j, step, recodes)
            if inside and not (in_range(code) and in_range(code_b)):
                fine = False
            if op == i32(SUM):
                x = x + y
                coded = False
            else:
                b_wins = wins(op, y, x)
                if not b_wins and coded_b:
                    b_wins = not wins(op, x, y)
                if b_wins:
                    x = y
                    code = code_b
                    coded = coded_b
            bits = rounded_bits(x)
            cuda.syncwarp()  # a row writes where this row or an earlier one has read
            if inside:
                store_bits(slots_a + value_nbytes * i64(j), bits)
            cuda.syncwarp()  # lanes behind the end of a short tile read its last value in all rows
            good = inside and coded
            found, base = choose_base(found, base, good, code)
            near = good and abs(code - base) <= (i64(MAX_DISTANCE) >> i64(i32(axes - i32(1))))
            if row == 0:
                carried = cuda.shfl_sync(ALL, bits, 0)
            same = bits == previous_bits(bits, carried, lane)
            carried = cuda.shfl_sync(ALL, bits, 31)
            if recodes:
                words[u32(at + row_word(i32(row), lane))] = u32(code & i64(0xFFFFFFFF))
            if near:
                largest = max_i32(largest, i32(min(abs(code), i64(1 << 30))))
            near_mask = vote(near)
            same_mask = vote(same or not inside)
            if lane == i32(row):
                good_run = near_mask
                same_run = same_mask
        cuda.syncwarp()
        return cuda.all_sync(ALL, fine), base, good_run, same_run, largest

    return reduce_values


REDUCE_VALUES = {1: _make(1), 2: _make(2)}
