"""What the 32 lanes of a warp do together. A lane owns 32 consecutive values of a tile."""

from zccl.kernels.cuda._compat import ALL, cuda, device, i32, i64, u32
from zccl.kernels.cuda._intrinsics import shift_left, shift_right, sum_of_lanes


@device
def running_sum(value, lane):
    """Sum of an int32 over this lane and those before it."""
    total = value
    for k in range(5):
        before = cuda.shfl_up_sync(ALL, total, 1 << k)
        if lane >= i32(1 << k):
            total = i32(total + before)
    return total


@device
def running_sum_64(value, lane):
    """Sum of an int64 over this lane and those before it."""
    total = value
    for k in range(5):
        before = cuda.shfl_up_sync(ALL, total, 1 << k)
        if lane >= i32(1 << k):
            total += before
    return total


@device
def sum_64(value):
    """Sum of an int64 over the lanes modulo 2^64: pieces of 16 bits, that 32-bit sums hold."""
    mask = i64(0xFFFF)
    a = i64(sum_of_lanes(u32(value & mask)))
    b = i64(sum_of_lanes(u32((value >> i64(16)) & mask)))
    c = i64(sum_of_lanes(u32((value >> i64(32)) & mask)))
    d = i64(sum_of_lanes(u32((value >> i64(48)) & mask)))
    return a + (b << i64(16)) + (c << i64(32)) + (d << i64(48))


@device
def bit(mask, j):
    """Bit j of a mask, as a truth value."""
    return (shift_right(mask, i32(j)) & u32(1)) != u32(0)


@device
def bits_below(j):
    """Mask of the bits below bit j, which is at most 32."""
    return u32(shift_left(u32(1), i32(j)) - u32(1))


@device
def first_bit(mask):
    """Place of the lowest bit of a mask, 32 for none."""
    if mask == u32(0):
        return i32(32)
    return i32(i32(cuda.ffs(i32(mask))) - i32(1))


@device
def last_bit(mask):
    """Place of the highest bit of a mask, -1 for none."""
    return i32(i32(31) - i32(cuda.clz(i32(mask))))


@device
def vote(condition):
    """Mask of the lanes for which a condition holds."""
    return u32(cuda.ballot_sync(ALL, condition))
