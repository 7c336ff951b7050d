"""Who talks to whom at which step: pure functions of rank and size."""

from __future__ import annotations

from typing import NamedTuple


class RingStep(NamedTuple):
    """One step of a ring: the chunk that goes to the right and the one that comes from the left."""

    send: int
    receive: int


def ring_reduce_scatter(rank: int, size: int) -> list[RingStep]:
    """Return the steps after which each rank holds the whole sum of the chunk of its number."""
    return [RingStep((rank - 1 - k) % size, (rank - 2 - k) % size) for k in range(size - 1)]


def ring_allgather(rank: int, size: int) -> list[RingStep]:
    """Return the size - 1 steps that pass each rank's own chunk round the ring."""
    return [RingStep((rank - k) % size, (rank - 1 - k) % size) for k in range(size - 1)]


class Doubling(NamedTuple):
    """Recursive doubling seen from one rank (MPICH's scheme for sizes that are no power of two).

    The first `2 * rest` ranks fold in pairs: the even one hands its data to the odd one and waits
    for the result.
    """

    folds_to: int | None  # partner that takes this rank's data and returns the result
    folds_from: int | None  # partner whose data this rank takes
    partners: list[int]  # partners of the exchanges, in order


def recursive_doubling(rank: int, size: int) -> Doubling:
    """Return the schedule of recursive doubling for one rank."""
    power = 1 << (size.bit_length() - 1)
    rest = size - power
    if rank < 2 * rest and rank % 2 == 0:
        return Doubling(rank + 1, None, [])
    folds_from = rank - 1 if rank < 2 * rest else None
    virtual = rank // 2 if rank < 2 * rest else rank - rest

    def real(v: int) -> int:
        return 2 * v + 1 if v < rest else v + rest

    distances = [1 << k for k in range(power.bit_length() - 1)]
    return Doubling(None, folds_from, [real(virtual ^ d) for d in distances])
