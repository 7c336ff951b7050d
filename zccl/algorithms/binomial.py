"""Binomial trees: what is compressed at one end travels untouched to the other (arXiv 2308.05199).

A sub-tree's messages travel in the order of `Branch.ranks` downwards, so that the longest way
starts first, and in the reverse order upwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zccl.algorithms.primitives import Inbox, Link, Outbox, ReducingLink, Steps
from zccl.algorithms.ring import pass_from_root, reduce_chunks
from zccl.algorithms.schedules import Branch, binomial_tree
from zccl.typing import Bytes


def binomial_bcast(
    link: Link, chunks: list[list[slice]], root: int, decode_root: bool = False
) -> Steps:
    """Give every rank the root's row of values; how its parts are grouped does not matter."""
    parts = [part for chunk in chunks for part in chunk]
    tree = binomial_tree(link.rank, link.size, root)
    inbox = None if tree.parent is None else Inbox.of_parts(link, tree.parent, parts)
    for part in parts:
        message = link.encode(part) if inbox is None else (yield from inbox.take())
        for branch in tree.branches:
            link.send(message, branch.child, part)
        if inbox is not None or decode_root:
            link.decode(message, part)
    yield from link.finish_sends()


def scatter_allgather_bcast(
    link: Link, chunks: list[list[slice]], root: int, decode_root: bool = False
) -> Steps:
    """Give every rank the root's row of values: scatter compressed chunks, then pass them round."""
    held: dict[int, list[Bytes]] = {rank: [] for rank in range(link.size)}

    def keep(rank: int, message: Bytes, part: slice) -> None:
        held[rank].append(link.memory.fitted(message))
        if link.rank == root and decode_root:
            link.decode(message, part)

    yield from _scatter_messages(link, chunks, root, keep)
    yield from pass_from_root(link, chunks, root, held)
    yield from link.finish_sends()


def binomial_scatter(
    link: Link, rows: list[list[slice]], root: int, decode_root: bool = True
) -> Steps:
    """Give each rank its row; rows[k] are the parts of rank k's."""

    def keep(rank: int, message: Bytes, part: slice) -> None:
        if rank == link.rank:
            link.decode(message, part)

    if link.rank == root and not decode_root:
        rows = [*rows[:root], [], *rows[root + 1 :]]
    yield from _scatter_messages(link, rows, root, keep)
    yield from link.finish_sends()


def binomial_gather(link: Link, rows: list[list[slice]], root: int) -> Steps:
    """Give the root the rows of all."""
    own = (link.encode(part) for part in rows[link.rank])
    yield from _gather_messages(link, rows, root, own)
    yield from link.finish_sends()


def binomial_reduce(link: ReducingLink, chunks: list[list[slice]], root: int) -> Steps:
    """Reduce a row of values to the root; how its parts are grouped does not matter."""
    parts = [part for chunk in chunks for part in chunk]
    tree = binomial_tree(link.rank, link.size, root)
    inboxes = [Inbox.of_parts(link, b.child, parts) for b in reversed(tree.branches)]
    for part in parts:
        if inboxes:
            message = link.add_own((yield from inboxes[0].take()), part)
            for inbox in inboxes[1:]:
                message = link.combine((yield from inbox.take()), message, part)
        else:
            message = link.encode(part)
        if tree.parent is None:
            link.decode(message, part)
        else:
            link.send(message, tree.parent, part)
    yield from link.finish_sends()


def reduce_scatter_gather(link: ReducingLink, chunks: list[list[slice]], root: int) -> Steps:
    """Reduce a row of values to the root: chunks round a ring, then their sums up a tree."""
    sums: list[Bytes] = []
    yield from reduce_chunks(link, chunks, sums)
    yield from _gather_messages(link, chunks, root, sums)
    yield from link.finish_sends()


def _parts(rows: list[list[slice]], branch: Branch) -> list[slice]:
    return [part for rank in branch.ranks for part in rows[rank]]


def _scatter_messages(
    link: Link, rows: list[list[slice]], root: int, keep: Callable[[int, Bytes, slice], None]
) -> Steps:
    """Call `keep` with the messages of this rank's row, at the root with those of all rows."""
    tree = binomial_tree(link.rank, link.size, root)
    mine = rows[link.rank]
    if tree.parent is None:
        for branch in tree.branches:
            outbox = Outbox(link, branch.child, _parts(rows, branch))
            for rank in branch.ranks:
                for part in rows[rank]:
                    message = link.encode(part)
                    outbox.put(message)
                    keep(rank, message, part)
        for part in mine:
            keep(root, link.encode(part), part)
        return
    below = [part for branch in tree.branches for part in _parts(rows, branch)]
    inbox = Inbox.of_bundles(link, tree.parent, below + mine)
    for branch in tree.branches:
        parts = _parts(rows, branch)
        outbox = Outbox(link, branch.child, parts)
        for _ in parts:
            outbox.put((yield from inbox.take()))
    for part in mine:
        keep(link.rank, (yield from inbox.take()), part)


def _gather_messages(link: Link, rows: list[list[slice]], root: int, own: Iterable[Bytes]) -> Steps:
    """Bring the messages of all rows to the root, which decodes them."""
    tree = binomial_tree(link.rank, link.size, root)
    above = list(reversed(tree.branches))
    mine = rows[link.rank]
    deliver: Callable[[Bytes, slice], None] = link.decode
    if tree.parent is not None:
        upwards = mine + [part for branch in above for part in _upwards(rows, branch)]
        outbox = Outbox(link, tree.parent, upwards)

        def deliver(message: Bytes, part: slice) -> None:
            outbox.put(message)

    for message, part in zip(own, mine, strict=True):
        deliver(message, part)
    for branch in above:
        parts = _upwards(rows, branch)
        inbox = Inbox.of_bundles(link, branch.child, parts)
        for part in parts:
            deliver((yield from inbox.take()), part)


def _upwards(rows: list[list[slice]], branch: Branch) -> list[slice]:
    return [part for rank in reversed(branch.ranks) for part in rows[rank]]
