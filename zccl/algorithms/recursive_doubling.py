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
            yield from _take_in(link, schedule.folds_from, parts, sums)
        for partner in schedule.partners:
            for part, message in zip(parts, sums, strict=True):
                link.send(message, partner, part)
            yield from _take_in(link, partner, parts, sums)
        for part, message in zip(parts, sums, strict=True):
            if schedule.folds_from is not None:
                link.send(message, schedule.folds_from, part)
            link.decode(message, part)
    yield from link.finish_sends()


def _take_in(link: Link, source: int, parts: list[slice], sums: list[Bytes]) -> Steps:
    """Add the messages of another rank to one's own."""
    inbox = Inbox(link, source, parts)
    for k, part in enumerate(parts):
        message = yield from inbox.take()
        sums[k] = link.combine(message, sums[k], part)
