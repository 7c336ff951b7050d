"""Rings: reduce-scatter, allgather of compressed bytes, and both in a row (arXiv 2308.05199)."""

from __future__ import annotations

from zccl.algorithms.primitives import Inbox, Link, ReducingLink, Steps
from zccl.algorithms.schedules import ring_allgather_steps, ring_reduce_scatter_steps
from zccl.typing import Bytes


def ring_allreduce(link: ReducingLink, chunks: list[list[slice]]) -> Steps:
    """Reduce a row of values over all ranks; chunk k is summed up by rank k.

    Parameters
    ----------
    link : ReducingLink
        The operation.
    chunks : list of list of slice
        For each rank the parts of its chunk, one message each.
    """
    sums: list[Bytes] = []
    yield from reduce_chunks(link, chunks, sums)
    yield from pass_round(link, chunks, sums)
    yield from link.finish_sends()


def ring_reduce_scatter(link: ReducingLink, chunks: list[list[slice]]) -> Steps:
    """Reduce chunks over all ranks; rank k gets chunk k. Chunks may overlap."""
    sums: list[Bytes] = []
    yield from reduce_chunks(link, chunks, sums)
    for message, part in zip(sums, chunks[link.rank], strict=True):
        link.decode(message, part)
    yield from link.finish_sends()


def ring_allgather(link: Link, chunks: list[list[slice]]) -> Steps:
    """Give every rank the chunks of all: compressed once, passed on as bytes, decoded once."""
    own = [link.encode(part) for part in chunks[link.rank]]
    yield from pass_round(link, chunks, own)
    yield from link.finish_sends()


def reduce_chunks(link: ReducingLink, chunks: list[list[slice]], sums: list[Bytes]) -> Steps:
    """Leave the messages of the whole sum of this rank's chunk in `sums`."""
    left, right = (link.rank - 1) % link.size, (link.rank + 1) % link.size
    steps = ring_reduce_scatter_steps(link.rank, link.size)
    if not steps:
        sums.extend(link.encode(part) for part in chunks[link.rank])
        return
    inbox = Inbox.of_parts(link, left, [part for step in steps for part in chunks[step.receive]])
    for part in chunks[steps[0].send]:
        link.send(link.encode(part), right, part)
    for step in steps:
        for part in chunks[step.receive]:
            message = link.add_own((yield from inbox.take()), part)
            if step is steps[-1]:
                sums.append(message)
            else:
                link.send(message, right, part)


def pass_round(link: Link, chunks: list[list[slice]], own: list[Bytes]) -> Steps:
    """Pass each rank's own messages round and decode all of them."""
    left, right = (link.rank - 1) % link.size, (link.rank + 1) % link.size
    steps = ring_allgather_steps(link.rank, link.size)
    inbox = Inbox.of_parts(link, left, [part for step in steps for part in chunks[step.receive]])
    if steps:
        for message, part in zip(own, chunks[link.rank], strict=True):
            link.send(message, right, part)
    for message, part in zip(own, chunks[link.rank], strict=True):
        link.decode(message, part)
    for step in steps:
        for part in chunks[step.receive]:
            message = yield from inbox.take()
            if step is not steps[-1]:
                link.send(message, right, part)
            link.decode(message, part)


def pass_from_root(
    link: Link, chunks: list[list[slice]], root: int, held: dict[int, list[Bytes]]
) -> Steps:
    """Pass messages round that the root has already: all do as in `pass_round`, but none reach it.

    `held` has all messages at the root, those of the rank's own chunk elsewhere.
    """
    left, right = (link.rank - 1) % link.size, (link.rank + 1) % link.size
    steps = ring_allgather_steps(link.rank, link.size)
    if link.rank == root:
        for step in steps:
            for message, part in zip(held.get(step.send, []), chunks[step.send], strict=True):
                link.send(message, right, part)
        return
    inbox = Inbox.of_parts(link, left, [part for step in steps for part in chunks[step.receive]])

    def pass_on(message: Bytes, part: slice) -> None:
        if right != root:
            link.send(message, right, part)
        link.decode(message, part)

    for message, part in zip(held[link.rank], chunks[link.rank], strict=True):
        pass_on(message, part)
    for step in steps:
        handle = link.decode if step is steps[-1] else pass_on
        for part in chunks[step.receive]:
            handle((yield from inbox.take()), part)
