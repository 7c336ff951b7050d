"""The buffer specifications of mpi4py's capitalised methods.

An array, or a list or tuple of an array, a count or counts, displacements and an MPI datatype.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from zccl.arrays import empty, is_on_device
from zccl.device import device_array
from zccl.typing import Array

_WANTED = "wanted an array, or a list or tuple of an array with count or counts and datatype"


def is_in_place(spec: Any) -> bool:
    """Whether a specification stands for the other buffer, where that is allowed."""
    return spec is None or spec is MPI.IN_PLACE


def array_of(spec: Any) -> Any:
    """Return the array of a specification, None where there is none."""
    if isinstance(spec, list | tuple):
        return spec[0] if spec else None
    return None if is_in_place(spec) else spec


class Message:
    """Pieces of a buffer, one for each rank, or one in all.

    Attributes
    ----------
    array : array or None
        As given.
    name : str
        Of the argument.
    counts, displs : list of int
        Elements of each piece, and elements before it in the memory of the array.

    Parameters
    ----------
    row : 1-D ndarray or CuPy array
        The elements of the array in the order of its memory, as the datatype has them.
    """

    def __init__(self, array: Any, name: str, row: Array, counts: list[int], displs: list[int]):
        self.array = array
        self.name = name
        self.counts = counts
        self.displs = displs
        self._row = row
        self._room: Array | None = None  # what is filled in place of pieces that lie apart
        for count, displ in zip(counts, displs, strict=True):
            if count and displ + count > row.size:
                raise ValueError(
                    f"{name}: got {count} elements behind {displ} others, but the buffer has"
                    f" {row.size}"
                )

    def piece(self, k: int) -> Array:
        """Return the elements of a piece."""
        return self._row[self.displs[k] : self.displs[k] + self.counts[k]]

    def packed(self) -> Array:
        """Return all pieces one behind the other, to be read; a view where they lie so."""
        together = self._together()
        if together is not None:
            return together
        packed = self._new_row()
        for place, piece in self._pairs(packed):
            place[...] = piece
        return packed

    def room(self) -> Array:
        """Return a row to be filled with all pieces; `deliver` puts them where they belong.

        Raises
        ------
        ValueError
            When the array is read-only, or pieces overlap.
        """
        if _is_read_only(self.array, self._row):
            raise ValueError(f"{self.name}: got a read-only array, wanted a writeable one")
        self._check_apart()
        together = self._together()
        if together is not None:
            return together
        self._room = self._new_row()
        return self._room

    def deliver(self) -> None:
        """Put pieces that have come into the array, where they are not there yet."""
        if self._room is not None:
            for come, piece in self._pairs(self._room):
                piece[...] = come

    def _pairs(self, packed: Array) -> list[tuple[Array, Array]]:
        """Return each piece in a row of all, and where it lies."""
        starts = itertools.accumulate(self.counts, initial=0)
        return [
            (packed[start : start + count], self.piece(k))
            for k, (start, count) in enumerate(zip(starts, self.counts, strict=False))
        ]

    def _new_row(self) -> Array:
        return empty(sum(self.counts), self._row.dtype, is_on_device(self._row))

    def _together(self) -> Array | None:
        """Return all pieces where they lie one behind the other."""
        first = end = None
        for count, displ in zip(self.counts, self.displs, strict=True):
            if not count:
                continue
            if end is not None and displ != end:
                return None
            first = displ if first is None else first
            end = displ + count
        return self._row[first or 0 : end or 0]

    def _check_apart(self) -> None:
        taken = sorted((d, c) for c, d in zip(self.counts, self.displs, strict=True) if c)
        for (displ, count), (other, _) in itertools.pairwise(taken):
            if displ + count > other:
                raise ValueError(
                    f"{self.name}: got displacements {self.displs} with counts {self.counts},"
                    " wanted pieces that do not overlap"
                )


def simple(spec: Any, name: str, blocks: int = 1) -> Message:
    """Read a specification with one count, of each of so many blocks.

    Parameters
    ----------
    spec : array, list or tuple
        `array`, `[array, datatype]`, `[array, count]`, `[array, count, datatype]`; for a count
        there may be `(count, displacement)`, too, or both one after the other.
    name : str
        Of the argument.
    blocks : int
        How many there are; without a count they share the array.

    Raises
    ------
    TypeError
        When it is none of these, or the datatype is not the array's.
    ValueError
        When it does not fit the array.
    """
    array, count, displ, datatype = _split(spec, name, (list, tuple))
    row = _row(array, datatype, name)
    first = 0 if displ is None else _number(displ, f"{name}: displacement")
    if first > row.size:
        raise ValueError(f"{name}: got displacement {first}, but the buffer has {row.size}")
    if count is not None:
        each = _number(count, f"{name}: count")
    else:
        each, rest = divmod(row.size - first, blocks)
        if rest:
            raise ValueError(
                f"{name}: got {row.size - first} elements, wanted a multiple of {blocks}"
            )
    return Message(array, name, row, [each] * blocks, [first + k * each for k in range(blocks)])


def vector(spec: Any, name: str, blocks: int) -> Message:
    """Read a specification with a count and a displacement for each of so many blocks.

    Parameters
    ----------
    spec : array, list or tuple
        `array`, `[array, datatype]`, `[array, counts]`, `[array, counts, datatype]`; for counts
        there may be `(counts, displacements)`, too, or both one after the other. One count is that
        of all blocks, one displacement the distance between two.
    name : str
        Of the argument.
    blocks : int
        How many there are; without counts they share the array, and first ones get what is over.

    Raises
    ------
    TypeError, ValueError
        As `simple`.
    """
    array, given, displs, datatype = _split(spec, name, tuple)
    row = _row(array, datatype, name)
    if given is None:
        each, rest = divmod(row.size, blocks)
        counts = [each + (k < rest) for k in range(blocks)]
    elif _is_number(given):
        counts = [_number(given, f"{name}: count")] * blocks
    else:
        counts = _numbers(given, f"{name}: counts", blocks)
    if displs is None:
        return Message(array, name, row, counts, [*itertools.accumulate(counts, initial=0)][:-1])
    if _is_number(displs):
        stride = _number(displs, f"{name}: displacement")
        return Message(array, name, row, counts, [k * stride for k in range(blocks)])
    return Message(array, name, row, counts, _numbers(displs, f"{name}: displacements", blocks))


class _Parts(NamedTuple):
    """A specification, taken apart; None for what is missing."""

    array: Any
    count: Any
    displ: Any
    datatype: Any


def _split(spec: Any, name: str, pair: Any) -> _Parts:
    """Take a specification apart; `pair` is the type of counts with displacements."""
    if not isinstance(spec, list | tuple):
        return _Parts(spec, None, None, None)
    if not 2 <= len(spec) <= 4:
        raise ValueError(f"{name}: got {len(spec)} items, wanted 2 to 4: array, counts, datatype")
    if len(spec) == 4:
        return _Parts(*spec)
    array, counts, datatype = spec if len(spec) == 3 else (*spec, None)
    if len(spec) == 2 and isinstance(counts, MPI.Datatype | str):
        return _Parts(array, None, None, counts)
    if not isinstance(counts, pair):
        return _Parts(array, counts, None, datatype)
    if len(counts) != 2:
        raise ValueError(f"{name}: got {counts!r}, wanted a pair of counts and displacements")
    return _Parts(array, counts[0], counts[1], datatype)


def _row(array: Any, datatype: Any, name: str) -> Array:
    """Return the elements of an array in the order of its memory, as a datatype has them."""
    wanted = None if datatype is None else _dtype(datatype, name)
    if array is None and wanted is not None:
        return np.empty(0, wanted)
    found = _given(array, name)
    if found.flags.c_contiguous:
        row = found.reshape(-1)
    elif found.flags.f_contiguous:
        row = found.T.reshape(-1)
    else:
        raise ValueError(
            f"{name}: got an array that is not contiguous, wanted a contiguous one; methods in"
            " lower case take any layout"
        )
    if wanted is None or row.dtype == wanted:
        return row
    if row.dtype != np.uint8:
        raise TypeError(f"{name}: got an array of {row.dtype} with a datatype of {wanted}")
    if row.size % wanted.itemsize:
        raise ValueError(
            f"{name}: got {row.size} bytes, wanted a multiple of {wanted.itemsize} for {wanted}"
        )
    return row.view(wanted)


def _given(array: Any, name: str) -> Array:
    """Return an array as NumPy's or CuPy's, with the same memory."""
    if is_on_device(array):
        return device_array(array, name)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: got a masked array, whose mask would be lost; pass array.filled(value)"
        )
    try:
        if array is MPI.IN_PLACE or array is MPI.BOTTOM:  # which pass for empty buffers
            raise TypeError
        return np.asarray(array if isinstance(array, np.ndarray) else memoryview(array))
    except TypeError:
        raise TypeError(f"{name}: got {type(array).__name__}, {_WANTED}") from None


def _is_read_only(array: Any, row: Array) -> bool:
    if not is_on_device(row):
        return not row.flags.writeable
    interface = getattr(array, "__cuda_array_interface__", None)
    return interface is not None and bool(interface["data"][1])


def _dtype(datatype: Any, name: str) -> np.dtype:
    """Return NumPy's name of an MPI datatype, or of its letter."""
    if not isinstance(datatype, MPI.Datatype | str):
        raise TypeError(
            f"{name}: got {type(datatype).__name__} for a datatype, wanted an MPI.Datatype or its"
            " type code"
        )
    try:
        return np.dtype(datatype if isinstance(datatype, str) else datatype.tocode())
    except (TypeError, ValueError):
        what = repr(datatype) if isinstance(datatype, str) else datatype.name or "a derived one"
        raise TypeError(
            f"{name}: got datatype {what}, wanted a basic one, as MPI.FLOAT or 'f'"
        ) from None


def _is_number(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _number(value: Any, name: str) -> int:
    """Return a number of elements."""
    if not _is_number(value):
        raise TypeError(f"{name}: got {value!r}, wanted an integer")
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"{name}: got {number}, wanted an integer >= 0")
    return number


def _numbers(values: Any, name: str, blocks: int) -> list[int]:
    """Return numbers of elements, one for each block."""
    try:
        found = list(values)
    except TypeError:
        raise TypeError(f"{name}: got {values!r}, wanted a sequence of integers") from None
    if len(found) != blocks:
        raise ValueError(f"{name}: got {len(found)}, wanted one for each of {blocks} ranks")
    return [_number(value, name) for value in found]
