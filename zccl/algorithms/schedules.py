"""Who talks to whom at which step: pure functions of rank and size."""

from __future__ import annotations

from typing import NamedTuple


class RingStep(NamedTuple):
    """One step of a ring: the chunk that goes to the right and the one that comes from the left."""

    send: int
    receive: int


def ring_reduce_scatter_steps(rank: int, size: int) -> list[RingStep]:
    """Return the steps after which each rank holds the whole sum of the chunk of its number."""
    return [RingStep((rank - 1 - k) % size, (rank - 2 - k) % size) for k in range(size - 1)]


def ring_allgather_steps(rank: int, size: int) -> list[RingStep]:
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
    groups: list[list[int]]  # the ranks whose data each of these partners has by then


def recursive_doubling(rank: int, size: int) -> Doubling:
    """Return the schedule of recursive doubling for one rank."""
    power = 1 << (size.bit_length() - 1)
    rest = size - power
    if rank < 2 * rest and rank % 2 == 0:
        return Doubling(rank + 1, None, [], [])
    folds_from = rank - 1 if rank < 2 * rest else None
    virtual = rank // 2 if rank < 2 * rest else rank - rest

    def real(v: int) -> int:
        return 2 * v + 1 if v < rest else v + rest

    def behind(v: int) -> list[int]:
        return [real(v) - 1, real(v)] if v < rest else [real(v)]

    partners, groups = [], []
    for k in range(power.bit_length() - 1):
        partner = virtual ^ (1 << k)
        partners.append(real(partner))
        first = partner >> k << k
        groups.append([r for v in range(first, first + (1 << k)) for r in behind(v)])
    return Doubling(None, folds_from, partners, groups)


class Branch(NamedTuple):
    """A child in a tree, and the ranks of its sub-tree: those of its own branches, then itself."""

    child: int
    ranks: list[int]


class Tree(NamedTuple):
    """A binomial tree seen from one rank; the largest branch comes first."""

    parent: int | None
    branches: list[Branch]


def binomial_tree(rank: int, size: int, root: int) -> Tree:
    """Return one rank's place in the binomial tree of a root."""
    place = (rank - root) % size

    def real(v: int) -> int:
        return (v + root) % size

    def below(v: int) -> list[int]:
        reach = v & -v or 1 << (size - 1).bit_length()
        steps = [1 << k for k in reversed(range(reach.bit_length() - 1))]
        return [v + step for step in steps if v + step < size]

    def subtree(v: int) -> list[int]:
        return [r for child in below(v) for r in subtree(child)] + [real(v)]

    branches = [Branch(real(child), subtree(child)) for child in below(place)]
    return Tree(None if place == 0 else real(place & (place - 1)), branches)
