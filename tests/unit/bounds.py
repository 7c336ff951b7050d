"""Checks of error bounds in exact arithmetic."""

from fractions import Fraction

import numpy as np


def components(array):
    """Return the real and the imaginary parts of a complex array, else the array itself."""
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]


def same_bits(a, b):
    """Whether two arrays are equal byte by byte, in dtype and shape too."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def assert_within(decoded, source, bound):
    """Check that `decoded` has every finite value of `source` within `bound`, and the others bit
    for bit.

    No allowance is made for rounding: what is close to the bound is compared as fractions.
    """
    native = np.asarray(source).astype(source.dtype.newbyteorder("="))
    assert decoded.shape == source.shape
    assert decoded.dtype == native.dtype
    for got, wanted in zip(components(decoded), components(native), strict=True):
        finite = np.isfinite(wanted)
        assert got[~finite].tobytes() == wanted[~finite].tobytes()
        got, wanted = got[finite].astype("f8"), wanted[finite].astype("f8")
        assert np.isfinite(got).all()
        with np.errstate(over="ignore"):
            close = np.abs(got - wanted) >= bound * (1 - 2.0**-40)
        for x, y in zip(got[close].tolist(), wanted[close].tolist(), strict=True):
            assert abs(Fraction(x) - Fraction(y)) <= Fraction(float(bound)), (x, y, bound)
