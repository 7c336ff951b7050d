"""Smallest and largest finite value of an array."""

import numpy as np

from zccl.kernels.cpu._compile import kernel


@kernel
def value_range(values, fill):
    """Smallest and largest finite value that is not `fill`, as float64.

    (inf, -inf) when there is none.
    """
    fill = np.float64(values.dtype.type(fill))
    low = np.inf
    high = -np.inf
    for i in range(values.size):
        v = np.float64(values[i])
        counts = (abs(v) < np.inf) & (v != fill)
        low = v if counts & (v < low) else low
        high = v if counts & (v > high) else high
    return low, high


@kernel
def largest_below(values, limit):
    """Largest absolute value that does not exceed `limit`, as float64; 0 when there is none."""
    largest = 0.0
    for i in range(values.size):
        v = abs(np.float64(values[i]))
        largest = v if (v <= limit) & (v > largest) else largest
    return largest
