"""Checks of arguments that several collectives have; a fault is raised on all ranks later."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from zccl.arrays import given_array
from zccl.typing import Array


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
        if not isinstance(counts, Sequence | np.ndarray):
            raise TypeError
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


def rows_of(shape: tuple[int, ...], name: str, size: int) -> list[int]:
    """Return the elements of each rank's share of an array that has one along its first axis.

    Raises
    ------
    ValueError
        When the first axis is not the number of ranks.
    """
    if not shape or shape[0] != size:
        raise ValueError(
            f"{name}: got shape {shape}, wanted a first axis of {size}, one for each rank; or give"
            " counts"
        )
    return [math.prod(shape[1:])] * size


def check_own_count(counts: list[int], name: str, rank: int, count: int) -> None:
    """Raise ValueError when a rank's count is not that of the elements it gives."""
    if counts[rank] != count:
        raise ValueError(
            f"{name}: rank {rank} should give {counts[rank]} elements, but its array has {count}"
        )


def check_same_counts(given: Sequence[int] | None, counts: list[int], name: str) -> None:
    """Check counts that a rank gives though only the root need to.

    Raises
    ------
    TypeError, ValueError
        When they are not the root's.
    """
    if given is not None and check_counts(given, name, len(counts), None) != counts:
        raise ValueError(f"{name}: got {list(given)}, but the root has {counts}")


def own_slot(recvbuf: Any, counts: Sequence[int] | None, rank: int, size: int) -> Array:
    """Return a rank's own share of an array for those of all, its input in place.

    Raises
    ------
    TypeError
        When `recvbuf` is no array.
    ValueError
        When it has no such share.
    """
    if recvbuf is None:
        raise ValueError("recvbuf: got None, wanted the array, since sendbuf is MPI.IN_PLACE")
    array = given_array(recvbuf, "recvbuf")
    if counts is None:
        rows_of(array.shape, "recvbuf", size)
        return array[rank]
    found = check_counts(counts, "recvcounts", size, array.size)
    start = sum(found[:rank])
    return array.reshape(-1)[start : start + found[rank]]
