"""Recursive doubling: log2 N exchanges of the whole compressed array (arXiv 2308.05199)."""

from __future__ import annotations

from zccl.algorithms.primitives import Inbox, Link, Steps
from zccl.algorithms.schedules import recursive_doubling
from zccl.typing import Bytes


def recursive_doubling_allreduce(link: Link, chunks: list[list[slice]]) -> Steps:
    """Reduce a row of values over all ranks.

    Parameters
    ----------
    link : Link
        The operation.
    chunks : list of list of slice
        The parts of the row, one message each; how they are grouped does not matter here.
    """
    parts = [part for chunk in chunks for part in chunk]
    schedule = recursive_doubling(link.rank, link.size)
    if schedule.folds_to is not None:
        inbox = Inbox(link, schedule.folds_to, parts)
        for part in parts:
            link.send(link.encode(part), schedule.folds_to, part)
        for part in parts:
            link.decode((yield from inbox.take()), part)
    else:
        sums = [link.encode(part) for part in parts]
        if schedule.folds_from is not None:
            inbox = Inbox(link, schedule.folds_from, parts)
            for k, part in enumerate(parts):
                sums[k] = link.combine((yield from inbox.take()), sums[k], part)
        for partner in schedule.partners:
            yield from _exchange(link, partner, parts, sums)
        for part, message in zip(parts, sums, strict=True):
            if schedule.folds_from is not None:
                link.send(message, schedule.folds_from, part)
            link.decode(message, part)
    yield from link.finish_sends()


def _exchange(link: Link, partner: int, parts: list[slice], sums: list[Bytes]) -> Steps:
    """Give one's own messages to a partner and add the partner's to them.

    A message is kept until it has left, so at most one more than the array's worth lives here: the
    partner always has receives posted ahead.
    """
    inbox = Inbox(link, partner, parts)
    sends = [link.send(message, partner, part) for part, message in zip(parts, sums, strict=True)]
    for k, part in enumerate(parts):
        sums[k] = link.combine((yield from inbox.take()), sums[k], part)
        yield sends[k]
