"""What the values of any tile stand for (docs/format.md section 7), in slots of 8 bytes.

Slot j holds the code of value j where its flag is 0, and the bits of a float64 where it is 1: a
value of a raw tile, or one that escaped in some contribution. Slots and flags lie in shared memory;
the functions take addresses. In rows: lane L of row k has value 32 k + L. A row takes 33 slots, so
that lanes that take runs meet different banks too.
"""

from zccl.formats import RAW, SAME, WIDTH_WORDS, ZERO
from zccl.kernels.cuda._compat import LANES, cuda, device, f64, i32, i64, u32
from zccl.kernels.cuda._intrinsics import (
    bits_of_f64,
    f64_of_bits,
    i64_to_f64,
    load_i64_any,
    load_u8_any,
    load_u32_any,
    mul_f64,
    store_i64_any,
    store_u8_any,
)
from zccl.kernels.cuda.axes import put_axes_codes, slot_of
from zccl.kernels.cuda.blocks import offset_of, unpack_blocks
from zccl.kernels.cuda.checksum import stage_any
from zccl.kernels.cuda.record import load_code, place_of_blocks
from zccl.kernels.cuda.values import VALUES
from zccl.kernels.cuda.warp import running_sum_64

SLOTS = 1056
FLAG_WORDS = 128  # of 8 bytes


@device
def read_differences(words, at, address, nwords, kind, base_words, first, second, d, lane):
    """Unpack a lane's differences of an opened coded record by way of a shared array.

    `nwords` are the words in front of its escapes.
    """
    if (kind & i32(ZERO)) != i32(0):
        for j in range(32):
            d[j] = i32(0)
    else:
        stage_any(words, at, nwords, address, lane)
        cuda.syncwarp()
        before = place_of_blocks(first, second, lane)[0]
        start = i32(at + base_words + i32(WIDTH_WORDS))
        half = i32(i32(start << i32(1)) + before)
        unpack_blocks(words, half, d, first, second, offset_of(first), offset_of(second), False)
    cuda.syncwarp()


@device
def clear_flags(flags, lane):
    """Say that all slots have codes."""
    for k in range(4):
        store_i64_any(flags + i64(8) * i64(i32(i32(32 * k) + lane)), i64(0))
    cuda.syncwarp()


@device
def put_codes(slots, base, d, lane):
    """Codes of a lane's run into their slots."""
    total = i64(0)
    for j in range(32):
        total += i64(d[j])
    code = base + running_sum_64(total, lane) - total
    for j in range(32):
        code += i64(d[j])
        index = i64(i32(lane << i32(5)) + i32(j))
        store_i64_any(slot_of(slots, index), code)
    cuda.syncwarp()


@device
def run_of(address):
    """Run (start, stop) of an entry of a list that was found sound."""
    word = load_u32_any(address)
    start = i32(word & u32(1023))
    return start, i32(start + i32(1) + i32(word >> u32(10)))


@device
def take_out_stand_ins(slots, flags, list_at, entries, value_words, lane):
    """Take the stand-ins of all entries out of the codes, and flag what is left.

    What is left times the step is -0 where no code is left: values are added to it.
    """
    size = i64(4 * (2 + 2 * value_words))
    for e in range(entries):
        at = list_at + size * i64(e)
        start, stop = run_of(at)
        stand_in = load_code(at + 8, i32(value_words))
        j = i32(start + lane)
        while j < stop:
            slot = slot_of(slots, j)
            store_i64_any(slot, load_i64_any(slot) - stand_in)
            store_u8_any(flags + i64(j), u32(1))
            j = i32(j + i32(LANES))
        cuda.syncwarp()


@device
def scale_flagged(slots, flags, step, lane):
    """Turn the codes of flagged slots into numbers."""
    for row in range(32):
        j = i64(i32(LANES * row) + lane)
        if load_u8_any(flags + j) != u32(0):
            code = load_i64_any(slot_of(slots, j))
            number = f64(-0.0)
            if code != i64(0):
                number = mul_f64(i64_to_f64(code), step)
            store_i64_any(slot_of(slots, j), bits_of_f64(number))
    cuda.syncwarp()


@device
def number_of(slots, flags, j, step):
    """Return the number that a slot stands for."""
    content = load_i64_any(slot_of(slots, j))
    if load_u8_any(flags + j) != u32(0):
        return f64_of_bits(content)
    return mul_f64(i64_to_f64(content), step)


def _make(value_words):
    form = VALUES[value_words]
    load_bits, number = form.load_bits, form.number
    value_nbytes = 4 * value_words
    value_at = 4 * (2 + value_words)
    entry_nbytes = 4 * (2 + 2 * value_words)

    @device
    def add_values(slots, list_at, entries, lane):
        """Add the values of all entries, in their order."""
        for e in range(entries):
            at = list_at + entry_nbytes * i64(e)
            start, stop = run_of(at)
            value = number(load_bits(at + value_at))
            j = i32(start + lane)
            while j < stop:
                old = f64_of_bits(load_i64_any(slot_of(slots, j)))
                store_i64_any(slot_of(slots, j), bits_of_f64(old + value))
                j = i32(j + i32(LANES))
            cuda.syncwarp()

    @device
    def raw_numbers(slots, flags, address, kind, m, lane):
        """Values of a raw record into slots."""
        for row in range(32):
            j = i32(i32(LANES * row) + lane)
            if j < m:
                at = address + value_nbytes * i64(j)
                if (kind & i32(SAME)) != i32(0):
                    at = address
                store_i64_any(slot_of(slots, j), bits_of_f64(number(load_bits(at))))
                store_u8_any(flags + i64(j), u32(1))
        cuda.syncwarp()

    @device
    def open_numbers(
        slots, flags, address, kind, base, base_words, first, second, used, entries, m, step,
        words, at, d, lane, axes,
    ):  # fmt: skip
        """Fill slots and flags from an opened record."""
        if (kind & i32(RAW)) != i32(0):
            raw_numbers(slots, flags, address, kind, m, lane)
        else:
            read_differences(words, at, address, used, kind, base_words, first, second, d, lane)
            if axes == i32(1):
                put_codes(slots, base, d, lane)
            else:
                put_axes_codes(slots, base, d, lane, axes)
            clear_flags(flags, lane)
            if entries > i32(0):
                list_at = address + 4 * (i64(used) + 1)
                take_out_stand_ins(slots, flags, list_at, entries, value_words, lane)
                scale_flagged(slots, flags, step, lane)
                add_values(slots, list_at, entries, lane)

    return open_numbers


OPEN_NUMBERS = {1: _make(1), 2: _make(2)}
