"""Smallest and largest finite value of an array.

    thread t of all T   takes 16 bytes at places t, t + T, t + 2 T, ...
    block               votes by shuffles, then through shared memory; one atomic for each end

Ends travel as unsigned integers that order like the numbers: the largest of all keys is that of the
largest value, and the largest key of a negated value that of the smallest.
"""

import numpy as np

from zccl.kernels.cuda._compat import ALL, LANES, cuda, device, f64, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    atomic_add,
    bits_of_f64,
    f64_of_bits,
    load_2_f64,
    load_4_f32,
    load_f32,
    load_f64,
    load_i64_now,
    max_to,
    store_i64,
    store_i64_for_host,
    to_f64,
    wait_for_previous,
)
from zccl.kernels.cuda.placement import DONE_AT

WARPS = 8
HIGH_AT, LOW_AT = 0, 8  # words of the work area, zero for no value
SIGN = np.int64(-(2**63))

SIGNATURE = (types.int64, types.int64, types.float64, types.int64, types.int64)


@device
def key_of(number):
    """Key of a number: keys order, as unsigned integers, like numbers."""
    bits = bits_of_f64(number)
    if bits < i64(0):
        return ~bits
    return bits | SIGN


@device
def number_of(key):
    """Return the number of a key."""
    if key < i64(0):
        return f64_of_bits(key ^ SIGN)
    return f64_of_bits(~key)


@device
def widen(low, high, x, fill):
    """Widen a range by a value, unless it is not finite or the fill."""
    if abs(x) < f64(float("inf")) and x != fill:
        low = min(low, x)
        high = max(high, x)
    return low, high


@device
def widen_4_f32(low, high, address, fill):
    """Widen a range by 16 bytes of float32 values."""
    a, b, c, d = load_4_f32(address)
    low, high = widen(low, high, to_f64(a), fill)
    low, high = widen(low, high, to_f64(b), fill)
    low, high = widen(low, high, to_f64(c), fill)
    return widen(low, high, to_f64(d), fill)


@device
def widen_2_f64(low, high, address, fill):
    """Widen a range by 16 bytes of float64 values."""
    a, b = load_2_f64(address)
    low, high = widen(low, high, a, fill)
    return widen(low, high, b, fill)


@device
def load_one_f32(address):
    """Load a float32 as a float64."""
    return to_f64(load_f32(address))


@device
def load_one_f64(address):
    """Load a float64."""
    return load_f64(address)


@device
def hand_over(work, result):
    """Write the range of all blocks and clear the work area: by one thread."""
    high_key = load_i64_now(work + i64(HIGH_AT))
    low_key = load_i64_now(work + i64(LOW_AT))
    high = f64(-float("inf"))
    low = f64(float("inf"))
    if high_key != i64(0):
        high = number_of(high_key)
        low = -number_of(low_key)
    store_i64_for_host(result + i64(8), bits_of_f64(high))
    store_i64_for_host(result, bits_of_f64(low))
    store_i64(work + i64(HIGH_AT), i64(0))
    store_i64(work + i64(LOW_AT), i64(0))
    store_i64(work + i64(DONE_AT), i64(0))


def make(value_words):
    """Return the kernel for float32 (1) or float64 (2) values."""
    widen_16_bytes = widen_4_f32 if value_words == 1 else widen_2_f64
    load_one = load_one_f32 if value_words == 1 else load_one_f64
    value_nbytes = 4 * value_words
    vector = 4 // value_words

    def value_range(values, n, fill, work, result):
        """Find the smallest and largest finite value that is not `fill`; (inf, -inf) for none.

        Parameters
        ----------
        values, n : address and number of the values
        fill : a number of the value type, NaN for none
        work : address of a work area
        result : address of two float64: smallest, largest
        """
        wait_for_previous()
        lows = cuda.shared.array(WARPS, f64)
        highs = cuda.shared.array(WARPS, f64)
        thread = i32(cuda.threadIdx.x)
        i = i64(cuda.blockIdx.x) * i64(LANES * WARPS) + i64(thread)
        stride = i64(cuda.gridDim.x) * i64(LANES * WARPS)
        head = min(((i64(0) - values) & i64(15)) // i64(value_nbytes), n)
        vectors = (n - head) // i64(vector)
        low = f64(float("inf"))
        high = f64(-float("inf"))
        if i < head:
            low, high = widen(low, high, load_one(values + value_nbytes * i), fill)
        tail = head + vectors * i64(vector) + i
        if tail < n:
            low, high = widen(low, high, load_one(values + value_nbytes * tail), fill)
        start = values + value_nbytes * head
        while i < vectors:
            low, high = widen_16_bytes(low, high, start + i64(16) * i, fill)
            i += stride
        for k in range(5):
            low = min(low, cuda.shfl_xor_sync(ALL, low, 1 << k))
            high = max(high, cuda.shfl_xor_sync(ALL, high, 1 << k))
        if (thread & i32(31)) == i32(0):
            lows[u32(thread >> i32(5))] = low
            highs[u32(thread >> i32(5))] = high
        cuda.syncthreads()
        if thread == i32(0):
            for k in range(WARPS):
                low = min(low, lows[k])
                high = max(high, highs[k])
            if low <= high:
                max_to(work + i64(HIGH_AT), key_of(high))
                max_to(work + i64(LOW_AT), key_of(-low))
            cuda.threadfence()
            done = atomic_add(work + i64(DONE_AT), i64(1))
            if done == i64(cuda.gridDim.x) - i64(1):
                cuda.threadfence()
                hand_over(work, result)

    return value_range
