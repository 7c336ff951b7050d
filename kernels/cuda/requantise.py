"""The exact tests of docs/format.md section 2, for full tiles whose largest value proves nothing.

Values are read once more, in rows as `quantise` reads them, and tested one by one; the loop over
rows stays a loop, since few tiles come here. What votes over a row say of neighbouring values is
kept by the lane whose run they are part of:

    row k of 128   lane L has values 128 k + 4 L ...     runs 4 k ... 4 k + 3     (float32)
    row k of 64    lane L has values  64 k + 2 L ...     runs 2 k, 2 k + 1        (float64)
"""

from zccl.kernels.cuda._compat import ALL, cuda, device, f64, i32, i64, u32
from zccl.kernels.cuda._intrinsics import (
    add_f64,
    bits_of_f32,
    bits_of_f64,
    hidden,
    load_2_f64,
    load_4_f32,
    low_word,
    mul_f64,
    shift_left,
    shift_right,
    store_2_shared,
    store_4_shared,
    sub_f64,
    to_f32,
    to_f64,
)
from zccl.kernels.cuda.turning import half_row_place, row_place
from zccl.kernels.cuda.warp import vote

MAX_CODE_F32, MAX_CODE_F64 = 2.0**24, 2.0**40 - 1


@device
def code_and_test(x, decoded, code, max_code, error_bound, movement, fill):
    """Whether a value is good, its distance from the base aside."""
    good = abs(code) <= f64(max_code) and x != fill and abs(decoded) < f64(float("inf"))
    if movement:
        good = good and abs(sub_f64(x, decoded)) <= error_bound
    return good


@device
def rounded_to_integer(x, inverse):
    """Code of a value as float64, and 1.5 * 2^52 more, whose low word is that of the code."""
    shifted = add_f64(mul_f64(x, inverse), f64(6755399441055744.0))
    return shifted, sub_f64(shifted, f64(6755399441055744.0))


@device
def test_f32(x, grid, largest):
    """Low word of the code of a float32, whether it escapes, and the largest good code so far."""
    inverse, step, error_bound, movement, fill = grid
    x = to_f64(x)
    shifted, code = rounded_to_integer(x, inverse)
    decoded = to_f64(to_f32(mul_f64(code, step)))
    good = code_and_test(x, decoded, code, MAX_CODE_F32, error_bound, movement, fill)
    if good:
        largest = max(largest, abs(code))
    return low_word(shifted), not good, largest


@device
def test_f64(x, grid, largest):
    """Low word of the code of a float64, whether it escapes, and the largest good code so far."""
    inverse, step, error_bound, movement, fill = grid
    shifted, code = rounded_to_integer(x, inverse)
    good = code_and_test(x, mul_f64(code, step), code, MAX_CODE_F64, error_bound, movement, fill)
    if good:
        largest = max(largest, abs(code))
    return low_word(shifted), not good, largest


@device
def part_of(votes, k, bits):
    """Return the votes of the lanes of part k of a warp, `bits` lanes each."""
    return u32(shift_right(votes, i32(k * bits)) & u32((1 << bits) - 1))


@device
def spread_4(byte):
    """Bits of a byte, four places apart."""
    byte = u32(u32(byte | u32(byte << u32(12))) & u32(0x000F000F))
    byte = u32(u32(byte | u32(byte << u32(6))) & u32(0x03030303))
    return u32(u32(byte | u32(byte << u32(3))) & u32(0x11111111))


@device
def spread_2(half):
    """Bits of a half-word, two places apart."""
    half = u32(u32(half | u32(half << u32(8))) & u32(0x00FF00FF))
    half = u32(u32(half | u32(half << u32(4))) & u32(0x0F0F0F0F))
    half = u32(u32(half | u32(half << u32(2))) & u32(0x33333333))
    return u32(u32(half | u32(half << u32(1))) & u32(0x55555555))


@device
def pack_f32(a, b, c, d, lane):
    """Votes of the lanes of this lane's run in its row, on their four values: a byte each."""
    k = i32(lane & i32(3))
    low = u32(part_of(a, k, 8) | u32(part_of(b, k, 8) << u32(8)))
    return u32(low | u32(u32(part_of(c, k, 8) << u32(16)) | u32(part_of(d, k, 8) << u32(24))))


@device
def unpack_f32(packed):
    """Mask of a run from the votes on its values: bits of the four bytes in turn."""
    mask = spread_4(u32(packed & u32(0xFF)))
    mask = u32(mask | u32(spread_4(u32(u32(packed >> u32(8)) & u32(0xFF))) << u32(1)))
    mask = u32(mask | u32(spread_4(u32(u32(packed >> u32(16)) & u32(0xFF))) << u32(2)))
    return u32(mask | u32(spread_4(u32(packed >> u32(24))) << u32(3)))


@device
def pack_f64(a, b, lane):
    """Votes of the lanes of this lane's run in its row, on their two values: a half-word each."""
    k = i32(lane & i32(1))
    return u32(part_of(a, k, 16) | u32(part_of(b, k, 16) << u32(16)))


@device
def unpack_f64(packed):
    """Mask of a run from the votes on its values: bits of the two half-words in turn."""
    low = spread_2(u32(packed & u32(0xFFFF)))
    return u32(low | u32(spread_2(u32(packed >> u32(16))) << u32(1)))


@device
def test_row_f32(values, grid, words, at, row, lane, carried, masks, largest):
    """Test a row of float32 values and park their codes.

    `grid` is (inverse, step, error_bound, movement, fill), `carried` the bits of the value before
    the row, `masks` what the lane's run has of values that escape, and of values like the one
    before. Returns (carried, masks, largest good code) for the next row.
    """
    a, b, c, d = values
    code_a, out_a, largest = test_f32(a, grid, largest)
    code_b, out_b, largest = test_f32(b, grid, largest)
    code_c, out_c, largest = test_f32(c, grid, largest)
    code_d, out_d, largest = test_f32(d, grid, largest)
    store_4_shared(words, i32(at + row_place(row, lane)), code_a, code_b, code_c, code_d)
    bits_a, bits_b = bits_of_f32(a), bits_of_f32(b)
    bits_c, bits_d = bits_of_f32(c), bits_of_f32(d)
    before = u32(cuda.shfl_up_sync(ALL, i32(bits_d), 1))
    if lane == i32(0):
        before = carried
    carried = u32(cuda.shfl_sync(ALL, i32(bits_d), 31))
    escaped = pack_f32(vote(out_a), vote(out_b), vote(out_c), vote(out_d), lane)
    same = pack_f32(
        vote(bits_a == before), vote(bits_b == bits_a), vote(bits_c == bits_b),
        vote(bits_d == bits_c), lane,
    )  # fmt: skip
    if i32(lane >> i32(2)) == row:
        masks = escaped, same
    return carried, masks, largest


@device
def requantise_f32(address, lane, grid, words, at):
    """Test all values of a full tile and park their codes; `grid` as for `test_row_f32`.

    Returns (mask of the values of the lane's run that escape, mask of those whose bits are those of
    the value before, a lane's largest good code).
    """
    masks = u32(0), u32(0)
    largest = f64(0)
    source = address + i64(lane) * i64(16)
    carried = u32(cuda.shfl_sync(ALL, i32(bits_of_f32(load_4_f32(source)[0])), 0))
    row = i32(0)
    rows = hidden(i32(8))
    while row < rows:
        r0 = load_4_f32(source)
        r1 = load_4_f32(source + i64(512))
        r2 = load_4_f32(source + i64(1024))
        r3 = load_4_f32(source + i64(1536))
        carried, masks, largest = test_row_f32(
            r0, grid, words, at, row, lane, carried, masks, largest
        )
        carried, masks, largest = test_row_f32(
            r1, grid, words, at, i32(row + i32(1)), lane, carried, masks, largest
        )
        carried, masks, largest = test_row_f32(
            r2, grid, words, at, i32(row + i32(2)), lane, carried, masks, largest
        )
        carried, masks, largest = test_row_f32(
            r3, grid, words, at, i32(row + i32(3)), lane, carried, masks, largest
        )
        source += i64(2048)
        row = i32(row + i32(4))
    return unpack_f32(masks[0]), unpack_f32(masks[1]), largest


@device
def test_row_f64(values, grid, words, at, row, lane, carried, masks, largest):
    """Test a row of float64 values and park the low words of their codes; as for float32."""
    a, b = values
    code_a, out_a, largest = test_f64(a, grid, largest)
    code_b, out_b, largest = test_f64(b, grid, largest)
    store_2_shared(words, i32(at + half_row_place(row, lane)), code_a, code_b)
    bits_a, bits_b = bits_of_f64(a), bits_of_f64(b)
    before = cuda.shfl_up_sync(ALL, bits_b, 1)
    if lane == i32(0):
        before = carried
    carried = cuda.shfl_sync(ALL, bits_b, 31)
    escaped = pack_f64(vote(out_a), vote(out_b), lane)
    same = pack_f64(vote(bits_a == before), vote(bits_b == bits_a), lane)
    if i32(lane >> i32(1)) == row:
        masks = escaped, same
    return carried, masks, largest


@device
def requantise_f64(address, lane, grid, words, at):
    """Test all values of a full tile and park the low words of their codes; as for float32."""
    masks = u32(0), u32(0)
    largest = f64(0)
    source = address + i64(lane) * i64(16)
    carried = cuda.shfl_sync(ALL, bits_of_f64(load_2_f64(source)[0]), 0)
    row = i32(0)
    rows = hidden(i32(16))
    while row < rows:
        r0 = load_2_f64(source)
        r1 = load_2_f64(source + i64(512))
        r2 = load_2_f64(source + i64(1024))
        r3 = load_2_f64(source + i64(1536))
        carried, masks, largest = test_row_f64(
            r0, grid, words, at, row, lane, carried, masks, largest
        )
        carried, masks, largest = test_row_f64(
            r1, grid, words, at, i32(row + i32(1)), lane, carried, masks, largest
        )
        carried, masks, largest = test_row_f64(
            r2, grid, words, at, i32(row + i32(2)), lane, carried, masks, largest
        )
        carried, masks, largest = test_row_f64(
            r3, grid, words, at, i32(row + i32(3)), lane, carried, masks, largest
        )
        source += i64(2048)
        row = i32(row + i32(4))
    return unpack_f64(masks[0]), unpack_f64(masks[1]), largest


@device
def put_stand_ins(d, escaped, lane):
    """Put the chain's code in the place of each escaped one of a lane's run of codes."""
    last = i32(0)
    first = i32(0)
    good = u32(~escaped)
    for j in range(31, -1, -1):
        if (good & u32(1 << j)) != u32(0):
            first = d[j]
    for j in range(32):
        if (good & u32(1 << j)) != u32(0):
            last = d[j]
    lanes = vote(good != u32(0))
    base = cuda.shfl_sync(ALL, first, i32(i32(cuda.ffs(i32(lanes))) - i32(1)) & i32(31))
    if lanes == u32(0):
        base = i32(0)
    below = u32(lanes & u32(shift_left(u32(1), lane) - u32(1)))
    source = i32(i32(31) - i32(cuda.clz(i32(below))))
    before = cuda.shfl_sync(ALL, last, source & i32(31))
    if source < i32(0):
        before = base
    for j in range(32):
        if (escaped & u32(1 << j)) != u32(0):
            d[j] = before
        before = d[j]


REQUANTISE = {1: requantise_f32, 2: requantise_f64}
