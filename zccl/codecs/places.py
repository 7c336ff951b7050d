"""Where decoded values go: a part of a row of values to the memory for it."""

from __future__ import annotations

from typing import Protocol

from zccl.arrays import new_array
from zccl.codecs.tiles import Values
from zccl.typing import Array


class Place(Protocol):
    """Memory for the results of a collective."""

    def __call__(self, part: slice) -> Values:
        """Return the memory for a part of the row."""
        ...

    def finish(self) -> None:
        """Do what is left when all parts are there."""
        ...


class Row:
    """A place for all of a row of values, or for a run of it that starts at `offset`."""

    def __init__(self, target: Values, offset: int = 0):
        self._target = target
        self._offset = offset

    def __call__(self, part: slice) -> Values:
        """Return a view."""
        return self._target[part.start - self._offset : part.stop - self._offset]

    def finish(self) -> None:
        """Nothing is left."""


class Nowhere:
    """The place of a rank that gets no result."""

    def __call__(self, part: slice) -> Array:
        """Nothing may ask for it."""
        raise AssertionError("this rank gets no result")

    def finish(self) -> None:
        """Nothing is left."""


class Runs:
    """A place for runs of a row, cut where parts are not.

    Parameters
    ----------
    target : 1-D ndarray
        Takes the runs, one behind the other.
    runs : list of slice
        The runs, in the row's numbers.
    """

    def __init__(self, target: Array, runs: list[slice]):
        self._target = target
        self._runs = runs
        self._borders: list[tuple[slice, Array]] = []

    def __call__(self, part: slice) -> Array:
        """Return a view, or other memory for a part that sticks out of its run."""
        at = 0
        for run in self._runs:
            if run.start <= part.start and part.stop <= run.stop:
                return self._target[at + part.start - run.start : at + part.stop - run.start]
            at += run.stop - run.start
        border = new_array(part.stop - part.start, self._target.dtype, like=self._target)
        self._borders.append((part, border))
        return border

    def finish(self) -> None:
        """Copy what lies in the runs out of the parts that stick out."""
        for part, border in self._borders:
            at = 0
            for run in self._runs:
                start, stop = max(run.start, part.start), min(run.stop, part.stop)
                if start < stop:
                    inside = border[start - part.start : stop - part.start]
                    self._target[at + start - run.start : at + stop - run.start] = inside
                at += run.stop - run.start
        self._borders.clear()
