"""From values to codes, for whole tiles of usual values (docs/format.md sections 2 and 3).

The codes of a tile grow with its values, so the largest value proves all of them: its code keeps
the code range, the bound and a finite decoded value, or the tile is left to the exact kernel.
"""

from zccl.kernels.cuda._compat import ALL, cuda, device, f32, f64, i32, i64, u32
from zccl.kernels.cuda._intrinsics import (
    code_of_f32,
    code_of_f64,
    f64_of_bits,
    high_word,
    load_2_f64,
    load_4_f32,
    max_abs_f32,
    max_u32,
    mul_f64,
    store_2_shared,
    store_4_shared,
    to_f64,
)
from zccl.kernels.cuda.turning import half_row_place, row_place


@device
def quantise_row_f32(values, row, lane, inverse, words, at, largest):
    """Quantise four values of a row of 128 and park their codes; returns the largest |value|."""
    a, b, c, d = values
    largest = max_abs_f32(largest, a)
    largest = max_abs_f32(largest, b)
    largest = max_abs_f32(largest, c)
    largest = max_abs_f32(largest, d)
    store_4_shared(
        words, i32(at + row_place(row, lane)),
        code_of_f32(a, inverse), code_of_f32(b, inverse),
        code_of_f32(c, inverse), code_of_f32(d, inverse),
    )  # fmt: skip
    return largest


@device
def quantise_tile_f32(address, lane, inverse, words, at):
    """Quantise a full tile of float32 values into a shared array; returns a lane's largest |value|.

    The loads are written out so that all eight are under way together.
    """
    p = address + i64(lane) * i64(16)
    r0 = load_4_f32(p)
    r1 = load_4_f32(p + i64(512))
    r2 = load_4_f32(p + i64(1024))
    r3 = load_4_f32(p + i64(1536))
    r4 = load_4_f32(p + i64(2048))
    r5 = load_4_f32(p + i64(2560))
    r6 = load_4_f32(p + i64(3072))
    r7 = load_4_f32(p + i64(3584))
    largest = quantise_row_f32(r0, 0, lane, inverse, words, at, f32(0))
    largest = quantise_row_f32(r1, 1, lane, inverse, words, at, largest)
    largest = quantise_row_f32(r2, 2, lane, inverse, words, at, largest)
    largest = quantise_row_f32(r3, 3, lane, inverse, words, at, largest)
    largest = quantise_row_f32(r4, 4, lane, inverse, words, at, largest)
    largest = quantise_row_f32(r5, 5, lane, inverse, words, at, largest)
    largest = quantise_row_f32(r6, 6, lane, inverse, words, at, largest)
    largest = quantise_row_f32(r7, 7, lane, inverse, words, at, largest)
    return to_f64(largest)


@device
def quantise_row_f64(values, row, lane, inverse, words, at, largest):
    """Quantise two values of a row of 64; returns the high word of the largest |value|.

    As integers, high words order floats of one sign; those of NaN and infinity are above all.
    """
    a, b = values
    mask = u32(0x7FFFFFFF)
    largest = max_u32(largest, u32(high_word(a) & mask))
    largest = max_u32(largest, u32(high_word(b) & mask))
    place = i32(at + half_row_place(row, lane))
    store_2_shared(words, place, code_of_f64(a, inverse), code_of_f64(b, inverse))
    return largest


@device
def quantise_half_f64(p, row, lane, inverse, words, at, largest):
    """Quantise eight rows of 64 values."""
    r0 = load_2_f64(p)
    r1 = load_2_f64(p + i64(512))
    r2 = load_2_f64(p + i64(1024))
    r3 = load_2_f64(p + i64(1536))
    r4 = load_2_f64(p + i64(2048))
    r5 = load_2_f64(p + i64(2560))
    r6 = load_2_f64(p + i64(3072))
    r7 = load_2_f64(p + i64(3584))
    largest = quantise_row_f64(r0, row, lane, inverse, words, at, largest)
    largest = quantise_row_f64(r1, row + 1, lane, inverse, words, at, largest)
    largest = quantise_row_f64(r2, row + 2, lane, inverse, words, at, largest)
    largest = quantise_row_f64(r3, row + 3, lane, inverse, words, at, largest)
    largest = quantise_row_f64(r4, row + 4, lane, inverse, words, at, largest)
    largest = quantise_row_f64(r5, row + 5, lane, inverse, words, at, largest)
    largest = quantise_row_f64(r6, row + 6, lane, inverse, words, at, largest)
    return quantise_row_f64(r7, row + 7, lane, inverse, words, at, largest)


@device
def quantise_tile_f64(address, lane, inverse, words, at):
    """Quantise a full tile of float64 values into a shared array.

    Returns a number that no |value| of the lane exceeds: the largest one, its low word all ones.
    Only the low words of codes are kept: quick tiles have no codes beyond 31 bits.
    """
    p = address + i64(lane) * i64(16)
    largest = quantise_half_f64(p, 0, lane, inverse, words, at, u32(0))
    largest = quantise_half_f64(p + i64(4096), 8, lane, inverse, words, at, largest)
    return f64_of_bits((i64(largest) << i64(32)) | i64(0xFFFFFFFF))


@device
def largest_code(largest, inverse):
    """Size of the code of a lane's largest |value|: NaN for NaN."""
    rounded = mul_f64(largest, inverse) + f64(6755399441055744.0)
    return rounded - f64(6755399441055744.0)


@device
def difference_run(d, lane):
    """Turn the codes of a lane's run into differences; returns the tile's first code."""
    first = cuda.shfl_sync(ALL, d[0], 0)
    before = cuda.shfl_up_sync(ALL, d[31], 1)
    if lane == i32(0):
        before = first
    for j in range(31, 0, -1):
        d[j] = i32(d[j] - d[j - 1])
    d[0] = i32(d[0] - before)
    return first


QUANTISE_TILE = {1: quantise_tile_f32, 2: quantise_tile_f64}
