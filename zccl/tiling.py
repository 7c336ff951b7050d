"""How an array is cut into tiles of 1024 values along one, two or three axes (docs/format.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zccl.formats import TILE, TILE_SHAPES
from zccl.typing import Array


@dataclass(frozen=True)
class Tiling:
    """An array of values, cut into tiles.

    Attributes
    ----------
    axes : int
        Along how many of its last axes: 1 (the array is a row), 2 or 3.
    lengths : (int, int, int, int)
        Of the array as the tiles see it: those before the last three axes joined into one; 1 where
        there are fewer.
    """

    axes: int
    lengths: tuple[int, int, int, int]

    @classmethod
    def of(cls, shape: Sequence[int], axes: int) -> Tiling:
        """Return the tiling of an array of values along its last axes."""
        if axes == 1:
            return cls(1, (1, 1, 1, math.prod(shape)))
        before, cut = shape[: len(shape) - axes], shape[len(shape) - axes :]
        _, y, x = (1, *cut)[-3:]
        return cls(axes, (math.prod(before), cut[0] if axes == 3 else 1, y, x))

    @classmethod
    def of_array(cls, dtype: np.dtype, shape: Sequence[int], axes: int) -> Tiling:
        """Return the tiling of the values of an array of elements of this dtype."""
        return cls.of((2, *shape) if dtype.kind == "c" else shape, axes)

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        if self.axes == 1:
            return -(-self.lengths[3] // TILE)
        along = zip(self.lengths[1:], TILE_SHAPES[self.axes], strict=True)
        return self.lengths[0] * math.prod(-(-length // tile) for length, tile in along)

    @property
    def n(self) -> int:
        """Values of the row of tiles; what lies beyond the edges of an array counts, too."""
        return self.lengths[3] if self.axes == 1 else TILE * self.tiles

    def places(self, tiles: Array) -> Array:
        """Return where the values of some tiles are in the array: a row of 1024 indices each.

        What is beyond an edge is taken from the nearest place inside.
        """
        if self.axes == 1:
            return np.minimum(TILE * tiles[:, np.newaxis] + np.arange(TILE), self.lengths[3] - 1)
        lengths, shape = self.lengths[1:], TILE_SHAPES[self.axes]
        counts = [-(-length // tile) for length, tile in zip(lengths, shape, strict=True)]
        b, *corner = np.unravel_index(tiles, (self.lengths[0], *counts))
        place = b.reshape(-1, 1, 1, 1)
        for axis, (length, tile, at) in enumerate(zip(lengths, shape, corner, strict=True)):
            index = np.arange(tile).reshape(1, *(tile if k == axis else 1 for k in range(3)))
            inside = np.minimum(tile * at.reshape(-1, 1, 1, 1) + index, length - 1)
            place = place * length + inside
        return place.reshape(len(tiles), TILE)
