"""Pairwise exchange: N - 1 steps, each with another partner."""

from __future__ import annotations

from zccl.algorithms.primitives import Inbox, Link, Outbox, Steps


def pairwise_alltoall(link: Link, rows: list[list[slice]], results: list[list[slice]]) -> Steps:
    """Give each rank its row of every rank.

    Parameters
    ----------
    link : Link
        The operation.
    rows : list of list of slice
        For each rank the parts of the row that it gets from here.
    results : list of list of slice
        For each rank the parts of the row that comes from there.
    """
    for part, result in zip(rows[link.rank], results[link.rank], strict=True):
        link.decode(link.encode(part), result)
    for k in range(1, link.size):
        dest, source = (link.rank + k) % link.size, (link.rank - k) % link.size
        inbox = Inbox.of_bundles(link, source, results[source])
        outbox = Outbox(link, dest, rows[dest])
        for part in rows[dest]:
            outbox.put(link.encode(part))
        for part in results[source]:
            link.decode((yield from inbox.take()), part)
    yield from link.finish_sends()
