"""Sums, maxima, minima and quotients of plain values: the bits that NumPy gives.

CuPy's kernels take subnormal numbers for zero, these do not. float32 values are worked on as
float64: one more rounding does not show in a sum or quotient of two of them.

    thread t of all T   takes values t, t + T, t + 2 T, ...
"""

from zccl.kernels.cuda._compat import LANES, cuda, device, f64, i32, i64, types
from zccl.kernels.cuda._intrinsics import div_f64, wait_for_previous
from zccl.kernels.cuda.values import VALUES

WARPS = 8
SUM, MAX, MIN, QUOTIENT = 0, 1, 2, 3

SIGNATURE = (types.int32, types.int64, types.int64, types.int64, types.float64, types.int64)


@device
def larger(x, y):
    """Return the larger of two numbers; NaN wins, -0 is less than +0."""
    if x != x or y != y:
        return x + y
    if x == f64(0.0) and y == f64(0.0):
        return x + y
    return max(x, y)


@device
def result_of(op, x, y, divisor):
    """Return the result of an operation."""
    if op == i32(SUM):
        return x + y
    if op == i32(MAX):
        return larger(x, y)
    if op == i32(MIN):
        return -larger(-x, -y)
    return div_f64(x, divisor)


def make(value_words):
    """Return the kernel for float32 (1) or float64 (2) values."""
    load_bits, store_bits = VALUES[value_words].load_bits, VALUES[value_words].store_bits
    number, rounded_bits = VALUES[value_words].number, VALUES[value_words].rounded_bits
    value_nbytes = 4 * value_words

    def plain(op, a, b, n, divisor, out):
        """Reduce two rows of values, or divide one; NaN results have no payload.

        Parameters
        ----------
        op : SUM, MAX, MIN, or QUOTIENT of `a` and `divisor`
        a, b, out : addresses of rows of n values; `out` may be one of the others
        divisor : a number of the value type
        """
        wait_for_previous()
        i = i64(cuda.blockIdx.x) * i64(LANES * WARPS) + i64(cuda.threadIdx.x)
        stride = i64(cuda.gridDim.x) * i64(LANES * WARPS)
        while i < n:
            place = i64(value_nbytes) * i
            x = number(load_bits(a + place))
            y = x if op == i32(QUOTIENT) else number(load_bits(b + place))
            store_bits(out + place, rounded_bits(result_of(op, x, y, divisor)))
            i += stride

    return plain
