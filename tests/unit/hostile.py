"""Arrays that are hard on a codec of floating-point data; needs NumPy only."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

TILE = 1024

#: Around every boundary: of a block of 16 values, of a group of blocks, of a tile.
SIZES = [
    *range(36), 127, 128, 129, 1008, 1009, 1023, 1024, 1025, 1040, 2047, 2048, 2049,
]  # fmt: skip

#: Two quiet NaNs with payloads, and one that signals.
NAN_BITS = {
    np.dtype(np.float32): [0x7FC00001, 0xFFC12345, 0x7F800001],
    np.dtype(np.float64): [0x7FF8000000000001, 0xFFF8123456789ABC, 0x7FF0000000000001],
}


def bits(array):
    """Return the bits of a float array as unsigned integers: comparing them tells NaNs apart."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def step_for(error_bound, dtype):
    """Return S = 2 e (1 - 2^-10) rounded down; for float32 values a float32 number, as a float."""
    exact = 2 * Fraction(error_bound) * (1 - Fraction(1, 2**10))
    dtype = np.dtype(dtype).type
    step = dtype(min(float(exact), float(np.finfo(dtype).max)))
    if Fraction(float(step)) > exact:
        step = np.nextafter(step, dtype(0))
    return float(step)


def specials(dtype):
    """Return values that no grid holds, and the ends of the range of a float."""
    dtype = np.dtype(dtype)
    info = np.finfo(dtype)
    fill = 1e36 if dtype == np.float32 else 1e300
    plain = [np.nan, np.inf, -np.inf, fill, -3e9, -0.0, info.max, -info.max, info.tiny]
    plain += [info.smallest_subnormal, -9999.0]
    payloads = np.array(NAN_BITS[dtype], f"u{dtype.itemsize}").view(dtype)
    return np.concatenate([np.array(plain, dtype), payloads])


def _noise(rng, n):
    return rng.standard_normal(n)


def _walk(rng, n):
    return np.cumsum(rng.standard_normal(n)) * 0.1


def _sine(rng, n):
    return np.sin(np.arange(n) * rng.uniform(0.001, 0.1))


def _offset(rng, n):
    return 300.0 + np.cumsum(rng.standard_normal(n)) * 1e-3


def _jumps(rng, n):
    return np.repeat(rng.choice([-1e5, -1.0, 0.0, 3.0, 1e6], n // 37 + 1), 37)[:n]


def _wide(rng, n):
    """Numbers of all sizes."""
    return rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-38, 38, n)


def _widths(rng, n):
    """Differences whose fields take each width in turn, block by block."""
    exponents = (np.arange(n) // 16 + rng.integers(32)) % 32
    return rng.choice([-1.0, 1.0], n) * rng.uniform(0.25, 0.5, n) * 2.0**exponents * 1e-3


def _subnormal(rng, n):
    return rng.standard_normal(n) * 1e-41


def _mostly_zero(rng, n):
    return np.where(rng.random(n) < 0.02, rng.standard_normal(n), 0.0)


#: Name -> function of (rng, n) that returns a float64 array.
RECIPES = {
    "zeros": lambda rng, n: np.zeros(n),
    "constant": lambda rng, n: np.full(n, 2.7182818),
    "huge constant": lambda rng, n: np.full(n, 1e36),
    "ramp": lambda rng, n: np.arange(n) * 0.37 - 5,
    "noise": _noise,
    "walk": _walk,
    "sine": _sine,
    "offset": _offset,
    "jumps": _jumps,
    "wide": _wide,
    "widths": _widths,
    "subnormal": _subnormal,
    "mostly zero": _mostly_zero,
}

#: Name -> function of (rng, array) that puts something hostile into a copy of the array.
DAMAGES = {}


def _damage(function):
    DAMAGES[function.__name__.strip("_").replace("_", " ")] = function
    return function


@_damage
def _nothing(rng, a):
    return a


@_damage
def _one_special(rng, a):
    a[rng.integers(a.size)] = rng.choice(specials(a.dtype))
    return a


@_damage
def _some_specials(rng, a):
    """From 1 to 1023 specials a tile."""
    where = rng.random(a.size) < 2.0 ** -rng.uniform(0, 10)
    bits(a)[where] = rng.choice(bits(specials(a.dtype)), int(where.sum()))
    return a


@_damage
def _runs(rng, a):
    """Runs of a fill value, some of them across a boundary of tiles."""
    fill = a.dtype.type(1e36 if a.dtype == np.float32 else 1e300)
    for _ in range(rng.integers(1, 20)):
        start = rng.integers(a.size)
        a[start : start + rng.integers(1, 80)] = fill
    return a


@_damage
def _land(rng, a):
    """Whole tiles of a fill value."""
    start = rng.integers(a.size)
    a[start : start + 2 * TILE] = -9999.0
    return a


@_damage
def _outliers(rng, a):
    a[rng.integers(a.size, size=3)] = [-3e9, 3e9, -3e4]
    return a


@_damage
def _all_nan(rng, a):
    a[:] = np.nan
    return a


@_damage
def _nan_payloads(rng, a):
    choices = np.array(NAN_BITS[a.dtype], f"u{a.dtype.itemsize}")
    where = rng.random(a.size) < 0.05
    bits(a)[where] = rng.choice(choices, int(where.sum()))
    return a


@_damage
def _negative_zeros(rng, a):
    a[rng.random(a.size) < 0.3] = -0.0
    return a


#: -9999 is also named as a fill value by tests.
FILLS = [-9999.0, 1e36, 0.0]


def make(recipe, damage, dtype, n, seed):
    """Return a fresh array of n values of `dtype`, the same for the same arguments."""
    rng = np.random.default_rng([seed, n])
    with np.errstate(over="ignore"):
        array = RECIPES[recipe](rng, n).astype(dtype)
    return DAMAGES[damage](rng, array) if n else array
