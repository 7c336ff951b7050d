"""The data of benchmarks: fields made here, and .npy files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from zccl.typing import Array

_SHAPE = (64, 128, 128)


def wave() -> Array:
    """Return a smooth field: spherical waves, Ricker wavelets, around a few points."""
    z, y, x = np.ogrid[0:1:64j, 0:1:128j, 0:1:128j]
    random = np.random.default_rng(7)
    total = np.zeros(_SHAPE)
    for source in random.uniform(0.1, 0.9, (5, 3)):
        r = np.sqrt((z - source[0]) ** 2 + (y - source[1]) ** 2 + (x - source[2]) ** 2)
        phase = ((r - random.uniform(0.1, 0.4)) / 0.04) ** 2
        total += (1 - 2 * phase) * np.exp(-phase) / (r + 0.1)
    return total.astype(np.float32)


def layers() -> Array:
    """Return a field of steps, speeds of sound in folded layers, with a weak trend."""
    z, y, x = np.ogrid[0:1:64j, 0:1:128j, 0:1:128j]
    depth = z + 0.05 * np.sin(5 * x) * np.cos(3 * y)
    return (1500 + 250 * np.floor(10 * depth) + 40 * depth).astype(np.float32)


def noise() -> Array:
    """Return a rough field: independent normal numbers."""
    return np.random.default_rng(7).standard_normal(_SHAPE, np.float32)


SYNTHETIC: dict[str, Callable[[], Array]] = {"wave": wave, "layers": layers, "noise": noise}


def load_field(name: str) -> Array:
    """Make the field of this name or read it from a .npy file.

    Raises
    ------
    OSError
        When the file cannot be read.
    ValueError
        When it does not hold floating-point numbers.
    """
    if name in SYNTHETIC:
        return SYNTHETIC[name]()
    try:
        field = np.load(name, allow_pickle=False)
    except (ValueError, EOFError):
        raise ValueError(f"{name}: not a .npy file of numbers") from None
    if not isinstance(field, np.ndarray) or field.dtype.kind != "f" or not field.size:
        got = f"{getattr(field, 'dtype', 'an archive')} {getattr(field, 'shape', '')}"
        raise ValueError(f"{name}: got {got}, wanted an array of floating-point numbers")
    return field


def load_folder(folder: str) -> dict[str, Array]:
    """Read all .npy files of a folder, by name.

    Raises
    ------
    OSError, ValueError
        As `load_field`; ValueError when there are none.
    """
    paths = sorted(Path(folder).glob("*.npy"))
    if not paths:
        raise ValueError(f"{folder}: no .npy files there")
    return {path.stem: load_field(str(path)) for path in paths}


def tile_field(field: Array, count: int, dtype: np.dtype) -> Array:
    """Return the field repeated or cut to at most `count` elements, in whole slabs if it can."""
    slab = int(np.prod(field.shape[1:]))
    shape = (count // slab, *field.shape[1:]) if count >= slab else (count,)
    return np.resize(field.astype(dtype), shape)


def component_row(field: Array, dtype: np.dtype) -> Array:
    """Return the field as a row of a dtype.

    Complex numbers take their imaginary parts from half a field further on.
    """
    row = field.reshape(-1)
    if dtype.kind == "c":
        row = row + 1j * np.roll(row, row.size // 2)
    return row.astype(dtype)


def rank_part(field: Array, count: int, dtype: np.dtype, rank: int, size: int) -> Array:
    """Return `count` elements of the field for one rank, 1-D; each rank starts elsewhere in it."""
    row = component_row(field, dtype)
    return np.resize(np.roll(row, -(rank * row.size // size)), count)
