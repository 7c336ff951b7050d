"""How well a row of values will compress, from a few of its tiles (docs/format.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zccl.arrays import is_on_device
from zccl.device import array_on_device, array_on_host
from zccl.formats import BLOCK, BLOCKS, MAX_CODE_BITS, TILE, TILE_SHAPES, max_distance
from zccl.tiling import Tiling
from zccl.typing import Array

SAMPLE_TILES = 16
MAX_PADDING = 2.0  # values of all tiles over those of the array, for tiles of more than one axis

_TABLE_NBYTES, _BASE_NBYTES, _WIDTHS_NBYTES = 8, 4, BLOCKS * 5 // 8


def sample_ratio(values: Array, step: float, fill: float = math.nan) -> float:
    """Return the compression ratio to expect of a row of values.

    At most 16 whole tiles, evenly spread, are coded in thought, so features that are rarer than a
    tile in so many are missed: the ratio holds for fields that are alike everywhere.

    Parameters
    ----------
    values : 1-D ndarray
        float32 or float64, contiguous, on the host or on a GPU, of which the sample is copied.
    step : float
        Of the grid; 0 for none.
    fill : float
        The named fill value; NaN for none.

    Returns
    -------
    float
        Uncompressed over coded bytes, always positive and finite; 1 for what is not coded: an empty
        row, or no grid.
    """
    if not values.size or not 0 < step < math.inf:
        return 1.0
    tiles = _sample(values)
    nbytes = min(values.size, TILE) * tiles.itemsize
    return float(len(tiles) * nbytes / _coded_nbytes(tiles, nbytes, step, fill, 1).sum())


def chosen_axes(
    predictor: str,
    values: Array,
    shape: tuple[int, ...],
    step: float,
    fill: float = math.nan,
    least: int = 1,
) -> int:
    """Return along how many axes an array is cut into tiles.

    Parameters
    ----------
    predictor : {"1d", "2d", "3d", "auto"}
        As in `zccl.Options`. "auto" takes what makes a sample of tiles shortest.
    values : 1-D ndarray
        As for `sample_ratio`: all values of the array.
    shape : tuple of int
        Of the array; its last axes are those of the values, too.
    step, fill
        As for `sample_ratio`.
    least : int
        Number of tiles that there must be.

    Returns
    -------
    int
        1, 2 or 3. Never more than the array has, nor where there would be fewer tiles than `least`,
        or tiles would stick out so far that they held more than twice the array's values.
    """
    if predictor == "1d" or not values.size or not 0 < step < math.inf:
        return 1
    most = min(3 if predictor == "auto" else int(predictor[0]), len(shape))
    allowed = [axes for axes in range(2, most + 1) if _suits(Tiling.of(shape, axes), least)]
    if predictor != "auto":
        return most if most in allowed else 1
    nbytes = {axes: _sampled_nbytes(values, shape, axes, step, fill) for axes in [1, *allowed]}
    return min(nbytes, key=lambda axes: nbytes[axes])


def _suits(tiling: Tiling, least: int) -> bool:
    return tiling.tiles >= least and tiling.n <= MAX_PADDING * math.prod(tiling.lengths)


def _sampled_nbytes(
    values: Array, shape: tuple[int, ...], axes: int, step: float, fill: float
) -> float:
    """Return the bytes to expect of all tiles."""
    # Complex arrays have their second components behind all first ones.
    tiling = Tiling.of((values.size // math.prod(shape), *shape), axes)
    count = min(tiling.tiles, 2 * SAMPLE_TILES)
    chosen = (2 * np.arange(count) + 1) * tiling.tiles // (2 * count)
    places = tiling.places(chosen)
    if is_on_device(values):
        tiles = array_on_host(values[array_on_device(places)])
    else:
        tiles = values[places]
    nbytes = _coded_nbytes(tiles, TILE * tiles.itemsize, step, fill, axes)
    return float(nbytes.mean() * tiling.tiles)


def rough(ratio: float) -> float:
    """Return a ratio by two digits: values that change a little should not change what is done."""
    return float(f"{ratio:.2g}")


def _sample(values: Array) -> np.ndarray:
    """Return some tiles, one a row, on the host; a row shorter than one is filled up."""
    whole = values.size // TILE
    stride = max(-(-whole // SAMPLE_TILES), 1)
    tiles: Any = values[: whole * TILE].reshape(whole, TILE) if whole else values[np.newaxis]
    tiles = tiles[(whole - 1) % stride // 2 :: stride]  # a view, so that a GPU gathers at once
    tiles = array_on_host(tiles) if is_on_device(tiles) else tiles
    return tiles if whole else np.pad(tiles, ((0, 0), (0, TILE - values.size)), "edge")


def _coded_nbytes(
    tiles: np.ndarray, nbytes: int, step: float, fill: float, axes: int
) -> np.ndarray:
    """Return the bytes of each tile's record and its place in the table."""
    largest = 2.0 ** MAX_CODE_BITS[tiles.dtype.str[1:]]
    with np.errstate(all="ignore"):
        codes = np.rint(np.multiply(tiles, 1 / np.float64(step), dtype=np.float64))
        # False for NaN; a range test of all is several times as fast as one of each.
        easy = math.isnan(fill) and max(codes.max(), -codes.min()) <= largest
    if easy and np.ptp(codes, axis=1).max() <= max_distance(axes):
        listed = np.zeros(len(codes), np.int64)
    else:
        codes, listed = _without_escapes(codes, tiles, largest, fill, axes)
    record = _BASE_NBYTES + _differences_nbytes(codes, axes) + listed
    return _TABLE_NBYTES + np.minimum(record, nbytes)


def _differences_nbytes(codes: np.ndarray, axes: int) -> np.ndarray:
    """Return the bytes of each tile's widths and blocks."""
    zigzag = np.zeros_like(codes)
    if axes == 1:
        np.subtract(codes[:, 1:], codes[:, :-1], out=zigzag[:, 1:])
    else:
        zigzag = (codes - codes[:, :1]).reshape(-1, *TILE_SHAPES[axes])
        for axis in (1, 2, 3):
            zigzag = np.diff(zigzag, axis=axis, prepend=0)
        zigzag = zigzag.reshape(len(codes), TILE)
    # 2 d, or -2 d - 1 below 0, has as many bits as d has in two's complement.
    zigzag += zigzag
    zigzag += 0.5
    np.abs(zigzag, out=zigzag)
    zigzag -= 0.5
    blocks = zigzag.reshape(-1, BLOCKS, BLOCK)
    for half in (8, 4, 2, 1):  # several times as fast as a maximum over 16
        blocks = np.maximum(blocks[..., :half], blocks[..., half : 2 * half])
    bits = np.frexp(blocks[..., 0])[1].sum(axis=1)
    words = -(-bits * BLOCK // 32)
    return np.where(bits > 0, _WIDTHS_NBYTES + 4 * words, 0)


def _without_escapes(
    codes: np.ndarray, tiles: np.ndarray, largest: float, fill: float, axes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes with stand-ins where the grid holds no value, and the bytes of their lists."""
    rows = np.arange(len(codes))
    with np.errstate(all="ignore"):
        good = (np.abs(codes) <= largest) & (tiles != fill)
        base = np.where(good.any(axis=1), codes[rows, good.argmax(axis=1)], 0)
        good &= np.abs(codes - base[:, np.newaxis]) <= max_distance(axes)
    places = np.maximum.accumulate(np.where(good, np.arange(TILE), -1), axis=1)
    stand_ins = np.where(places < 0, base[:, np.newaxis], codes[rows[:, np.newaxis], places])
    # A run of one value is one entry: place, rank, stand-in, value.
    bits = tiles.view(np.int32 if tiles.itemsize == 4 else np.int64)
    starts = ~good
    starts[:, 1:] &= good[:, :-1] | (bits[:, 1:] != bits[:, :-1])
    entries = starts.sum(axis=1)
    return stand_ins, np.where(entries > 0, 4 + entries * (8 + 2 * tiles.itemsize), 0)
