"""Smallest and largest finite value of an array."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from zccl.kernels.cpu._compile import helper, kernel
from zccl.kernels.cpu.memory import address, load
from zccl.kernels.cpu.vectors import splat

LANES = 32  # enough independent minima and maxima to hide their latency


@intrinsic
def vector_range(typing_context, start, rows, fill, low, high):
    """Range of rows of 32 values at an address; lows and highs of the lanes are stored.

    `low` and `high` are addresses of 32 values, set to inf and -inf before. The type of the values
    is that of `fill`; NaN fails every comparison, also as a fill.
    """
    kind = ir.FloatType() if fill == types.float32 else ir.DoubleType()

    def codegen(context, b, sig, a):
        start, rows, fill, low, high = a
        vector = ir.VectorType(kind, LANES)
        lowest = cgutils.alloca_once_value(b, load(b, low, vector))
        highest = cgutils.alloca_once_value(b, load(b, high, vector))
        nbytes = LANES * (4 if isinstance(kind, ir.FloatType) else 8)
        infinity = ir.Constant(vector, [float("inf")] * LANES)
        minus_infinity = ir.Constant(vector, [float("-inf")] * LANES)
        fills = splat(b, fill, LANES)
        with cgutils.for_range(b, rows) as loop:
            at = b.add(start, b.mul(loop.index, ir.Constant(ir.IntType(64), nbytes)))
            v = load(b, at, vector)
            finite = b.and_(
                b.fcmp_ordered("<", v, infinity), b.fcmp_ordered(">", v, minus_infinity)
            )
            counts = b.and_(finite, b.fcmp_unordered("!=", v, fills))
            least, most = b.load(lowest), b.load(highest)
            less = b.and_(counts, b.fcmp_ordered("<", v, least))
            more = b.and_(counts, b.fcmp_ordered(">", v, most))
            b.store(b.select(less, v, least), lowest)
            b.store(b.select(more, v, most), highest)
        b.store(b.load(lowest), b.inttoptr(low, vector.as_pointer())).align = 1
        b.store(b.load(highest), b.inttoptr(high, vector.as_pointer())).align = 1
        return context.get_dummy_value()

    i = types.int64
    return types.void(i, i, fill, i, i), codegen


@helper
def _wider(low, high, values, fill):
    """Widen a range by some values, one by one."""
    for i in range(values.size):
        v = np.float64(values[i])
        if abs(v) < np.inf and v != fill:
            low = min(low, v)
            high = max(high, v)
    return low, high


@kernel
def value_range(values, fill):
    """Smallest and largest finite value that is not `fill`, as float64; (inf, -inf) for none."""
    kind = values.dtype.type
    lows = np.full(LANES, kind(np.inf))
    highs = np.full(LANES, kind(-np.inf))
    rows = values.size // LANES
    vector_range(address(values), rows, kind(fill), address(lows), address(highs))
    low = np.inf
    high = -np.inf
    for k in range(LANES):
        low = min(low, np.float64(lows[k]))
        high = max(high, np.float64(highs[k]))
    return _wider(low, high, values[rows * LANES :], np.float64(kind(fill)))


@kernel
def largest_below(values, limit):
    """Largest absolute value that does not exceed `limit`, as float64; 0 when there is none."""
    largest = 0.0
    for i in range(values.size):
        v = abs(np.float64(values[i]))
        largest = v if (v <= limit) & (v > largest) else largest
    return largest
