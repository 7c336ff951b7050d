"""Checks of arguments that several collectives have; a fault is raised on all ranks later."""

from __future__ import annotations

import operator
from collections.abc import Sequence


def refuse_stream(stream: object) -> None:
    """Raise ValueError when a stream was given for an array that is not on a GPU."""
    if stream is not None:
        raise ValueError(f"stream: got {stream!r}, wanted None: the array is not on a GPU")


def check_root(root: object, size: int) -> int:
    """Return a root's rank.

    Raises
    ------
    TypeError
        When it is no integer.
    ValueError
        When there is no such rank.
    """
    try:
        rank = operator.index(root)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"root: got {type(root).__name__}, wanted a rank") from None
    if not 0 <= rank < size:
        raise ValueError(f"root: got {rank}, wanted a rank from 0 to {size - 1}")
    return rank


def check_counts(counts: Sequence[int], name: str, size: int, total: int | None) -> list[int]:
    """Return the counts of elements of all ranks as a list.

    Raises
    ------
    TypeError
        When they are no sequence of integers.
    ValueError
        When there is not one for each rank, one is negative, or they do not add up to `total`.
    """
    try:
        found = [operator.index(count) for count in counts]
    except TypeError:
        raise TypeError(f"{name}: got {counts!r}, wanted a sequence of integers or None") from None
    if len(found) != size:
        raise ValueError(f"{name}: got {len(found)} counts, wanted one for each of {size} ranks")
    if any(count < 0 for count in found):
        raise ValueError(f"{name}: got {found}, wanted counts >= 0")
    if total is not None and sum(found) != total:
        raise ValueError(
            f"{name}: got {found}, {sum(found)} in all, wanted {total} elements in all"
        )
    return found
