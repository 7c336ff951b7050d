"""The shares of an array, one a rank, as rows of values or elements."""

from __future__ import annotations

import itertools

import numpy as np

from zccl.arrays import (
    contiguous_row,
    from_values,
    is_on_device,
    is_plain,
    new_array,
    overlap,
    to_values,
    value_dtype,
    values_target,
)
from zccl.codecs.places import Row
from zccl.typing import Array


class Shares:
    """An array that holds shares of some ranks, one behind the other in C order.

    In the row of all ranks' shares each one is a row of its own: of elements, or of values, which
    are all first components, then all second ones.

    Parameters
    ----------
    array : ndarray
        Native byte order where it is read; any where it is filled.
    counts : list of int
        Elements of each share in it.
    before : int
        Elements of the shares before these in the row of all ranks' shares.
    """

    def __init__(self, array: Array, counts: list[int], before: int = 0):
        self.on_device = is_on_device(array)
        self._array = array if self.on_device else np.asarray(array)
        self._starts = list(itertools.accumulate(counts, initial=0))
        self._before = before
        self._target: Array | None = None

    @property
    def dtype(self) -> np.dtype:
        """Of its elements."""
        return self._array.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(self._array.nbytes)

    def elements(self) -> Array:
        """Return the elements to read, contiguous."""
        return contiguous_row(self._array)

    def values(self) -> Array:
        """Return the values to read, contiguous."""
        if self._array.dtype.kind != "c" or len(self._starts) == 2:
            return to_values(self._array)
        return np.concatenate([to_values(share) for share in self._pieces(self.elements())])

    def elements_target(self) -> Array:
        """Return elements to fill; `deliver` puts them into the array."""
        plain = is_plain(self._array)
        dtype = self._array.dtype.newbyteorder("=")
        row = self._array.reshape(-1) if plain else self._new(self._array.size, dtype)
        self._target = row
        return row

    def values_target(self) -> Array:
        """Return values to fill; `deliver` puts them into the array."""
        self._target = values_target(self._array)
        return self._target

    def place(self, row: Array) -> Row:
        """Return where a row of these shares is in the row of all."""
        return Row(row, self._before * max(row.size // max(self._array.size, 1), 1))

    def deliver(self) -> None:
        """Put what was filled into the array, where it is not there yet."""
        row = self._target
        if row is None or overlap(row, self._array):
            return
        native = self._array.dtype.newbyteorder("=")
        if row.dtype == native:
            self._array[...] = row.reshape(self._array.shape)
        elif native.kind != "c" or len(self._starts) == 2:
            from_values(row, self._array)
        else:
            elements = self._new(self._array.size, native)
            for share, values in zip(self._pieces(elements), self._pieces(row, 2), strict=True):
                from_values(values, share)
            self._array[...] = elements.reshape(self._array.shape)

    def _new(self, n: int, dtype: np.dtype) -> Array:
        return new_array(n, dtype, like=self._array)

    def _pieces(self, row: Array, components: int = 1) -> list[Array]:
        ends = zip(self._starts, self._starts[1:], strict=False)
        return [row[components * start : components * stop] for start, stop in ends]


def components(dtype: np.dtype) -> int:
    """Return the values of an element of a floating dtype."""
    values = value_dtype(dtype)
    return 2 if values is not None and dtype.kind == "c" else 1
