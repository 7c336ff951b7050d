"""Ring allreduce: reduce-scatter, then allgather of the compressed sums (arXiv 2308.05199)."""

from __future__ import annotations

from zccl.algorithms.primitives import Inbox, Link, Steps
from zccl.algorithms.schedules import ring_allgather, ring_reduce_scatter
from zccl.typing import Bytes


def ring_allreduce(link: Link, chunks: list[list[slice]]) -> Steps:
    """Reduce a row of values over all ranks; chunk k is summed up by rank k.

    Parameters
    ----------
    link : Link
        The operation.
    chunks : list of list of slice
        For each rank the parts of its chunk, one message each.
    """
    sums: list[Bytes] = []
    yield from _reduce_scatter(link, chunks, sums)
    yield from _allgather(link, chunks, sums)
    yield from link.finish_sends()


def _reduce_scatter(link: Link, chunks: list[list[slice]], sums: list[Bytes]) -> Steps:
    """Leave the messages of the whole sum of this rank's chunk in `sums`."""
    left, right = (link.rank - 1) % link.size, (link.rank + 1) % link.size
    steps = ring_reduce_scatter(link.rank, link.size)
    if not steps:
        sums.extend(link.encode(part) for part in chunks[link.rank])
        return
    inbox = Inbox(link, left, [part for step in steps for part in chunks[step.receive]])
    for part in chunks[steps[0].send]:
        link.send(link.encode(part), right, part)
    for step in steps:
        for part in chunks[step.receive]:
            message = link.add_own((yield from inbox.take()), part)
            if step is steps[-1]:
                sums.append(message)
            else:
                link.send(message, right, part)


def _allgather(link: Link, chunks: list[list[slice]], sums: list[Bytes]) -> Steps:
    """Pass the summed messages round and decode all of them, one's own too."""
    left, right = (link.rank - 1) % link.size, (link.rank + 1) % link.size
    steps = ring_allgather(link.rank, link.size)
    inbox = Inbox(link, left, [part for step in steps for part in chunks[step.receive]])
    if steps:
        for message, part in zip(sums, chunks[link.rank], strict=True):
            link.send(message, right, part)
    for message, part in zip(sums, chunks[link.rank], strict=True):
        link.decode(message, part)
    for step in steps:
        for part in chunks[step.receive]:
            message = yield from inbox.take()
            if step is not steps[-1]:
                link.send(message, right, part)
            link.decode(message, part)
