"""Recursive doubling: log2 N exchanges of all that is there so far (arXiv 2308.05199)."""

from __future__ import annotations

from zccl.algorithms.primitives import Inbox, Link, Outbox, ReducingLink, Steps
from zccl.algorithms.schedules import recursive_doubling
from zccl.typing import Bytes


def recursive_doubling_allreduce(link: ReducingLink, chunks: list[list[slice]]) -> Steps:
    """Reduce a row of values over all ranks.

    Parameters
    ----------
    link : ReducingLink
        The operation.
    chunks : list of list of slice
        The parts of the row, one message each; how they are grouped does not matter here.
    """
    parts = [part for chunk in chunks for part in chunk]
    schedule = recursive_doubling(link.rank, link.size)
    if schedule.folds_to is not None:
        inbox = Inbox.of_parts(link, schedule.folds_to, parts)
        for part in parts:
            link.send(link.encode(part), schedule.folds_to, part)
        for part in parts:
            link.decode((yield from inbox.take()), part)
    else:
        sums = [link.encode(part) for part in parts]
        if schedule.folds_from is not None:
            inbox = Inbox.of_parts(link, schedule.folds_from, parts)
            for k, part in enumerate(parts):
                sums[k] = link.combine((yield from inbox.take()), sums[k], part)
        for partner in schedule.partners:
            yield from _exchange(link, partner, parts, sums)
        for part, message in zip(parts, sums, strict=True):
            if schedule.folds_from is not None:
                link.send(message, schedule.folds_from, part)
            link.decode(message, part)
    yield from link.finish_sends()


def _exchange(link: ReducingLink, partner: int, parts: list[slice], sums: list[Bytes]) -> Steps:
    """Give one's own messages to a partner and add the partner's to them.

    A message is kept until it has left, so at most one more than the array's worth lives here: the
    partner always has receives posted ahead.
    """
    inbox = Inbox.of_parts(link, partner, parts)
    sends = [link.send(message, partner, part) for part, message in zip(parts, sums, strict=True)]
    for k, part in enumerate(parts):
        sums[k] = link.combine((yield from inbox.take()), sums[k], part)
        yield sends[k]


def recursive_doubling_allgather(link: Link, chunks: list[list[slice]]) -> Steps:
    """Give every rank the chunks of all: compressed once, passed on as bytes, decoded once."""
    schedule = recursive_doubling(link.rank, link.size)
    held = {link.rank: [link.encode(part) for part in chunks[link.rank]]}

    def decode(rank: int) -> None:
        for message, part in zip(held[rank], chunks[rank], strict=True):
            link.decode(message, part)

    def give(dest: int, ranks: list[int]) -> None:
        outbox = Outbox(link, dest, [part for rank in ranks for part in chunks[rank]])
        for rank in ranks:
            for message in held[rank]:
                outbox.put(message)

    def take(source: int, ranks: list[int]) -> Steps:
        inbox = Inbox.of_bundles(link, source, [part for rank in ranks for part in chunks[rank]])
        for rank in ranks:
            held[rank] = []
            for _ in chunks[rank]:
                held[rank].append(link.memory.fitted((yield from inbox.take())))

    others = [rank for rank in range(link.size) if rank != link.rank]
    if schedule.folds_to is not None:
        give(schedule.folds_to, [link.rank])
        yield from take(schedule.folds_to, others)
    else:
        if schedule.folds_from is not None:
            yield from take(schedule.folds_from, [schedule.folds_from])
        for partner, ranks in zip(schedule.partners, schedule.groups, strict=True):
            give(partner, sorted(held))
            yield from take(partner, ranks)
        if schedule.folds_from is not None:
            give(schedule.folds_from, [r for r in range(link.size) if r != schedule.folds_from])
    for rank in range(link.size):
        decode(rank)
    yield from link.finish_sends()
