"""The collectives on CuPy arrays: zccl's calls, NCCL's, and what the result should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import cupy
import numpy as np
from mpi4py import MPI

import zccl
from zccl.bench.device_checks import Piece
from zccl.bench.gpus import DeviceField
from zccl.device import DeviceArray
from zccl.ops import Op
from zccl.plan import even_split

if TYPE_CHECKING:
    from zccl.bench.nccl_peer import NcclPeer  # cannot be imported where CuPy has no NCCL


@dataclass(frozen=True)
class Setup:
    """What buffers are made from; `count` is of the whole array, as sizes are."""

    comm: MPI.Intracomm
    field: DeviceField
    count: int
    op: Op
    root: int

    def part(self, rank: int, count: int) -> DeviceArray:
        """Return a rank's first elements."""
        return self.field.filled(rank, count)

    def room(self, *shape: int) -> tuple[DeviceArray, DeviceArray]:
        """Return two arrays to fill: zccl's and the one of what stands beside it."""
        return cupy.empty(shape, self.field.dtype), cupy.empty(shape, self.field.dtype)


class Calls(NamedTuple):
    """A collective on buffers of this rank.

    Attributes
    ----------
    own, plain : function of keywords
        zccl's call into a buffer of its own, and into another one.
    nccl : function of an NcclPeer
        The same by NCCL alone, into the other buffer.
    source : CuPy array or None
        What this rank gives.
    result : CuPy array or None
        Where zccl's result lies; None on ranks that get none.
    pieces : list of Piece
        What the result should be.
    """

    own: Callable[..., Any]
    plain: Callable[..., Any]
    nccl: Callable[[NcclPeer], None]
    source: DeviceArray | None
    result: DeviceArray | None
    pieces: list[Piece]


def _allreduce(s: Setup) -> Calls:
    source = s.part(s.comm.rank, s.count)
    result, other = s.room(s.count)
    own, plain = (partial(zccl.allreduce, source, out, s.op, s.comm) for out in (result, other))
    pieces = [Piece(range(s.comm.size), 0, s.count)]
    return Calls(own, plain, lambda n: n.allreduce(source, other, s.op), source, result, pieces)


def _reduce(s: Setup) -> Calls:
    source = s.part(s.comm.rank, s.count)
    result, other = s.room(s.count)
    own, plain = (
        partial(zccl.reduce, source, out, s.op, s.root, s.comm) for out in (result, other)
    )
    at_root = s.comm.rank == s.root
    pieces = [Piece(range(s.comm.size), 0, s.count)] if at_root else []
    return Calls(
        own, plain, lambda n: n.reduce(source, other, s.op, s.root), source,
        result if at_root else None, pieces,
    )  # fmt: skip


def _reduce_scatter(s: Setup) -> Calls:
    source = s.part(s.comm.rank, s.count)
    counts = even_split(s.count, s.comm.size)
    result, other = s.room(counts[s.comm.rank])
    own, plain = (
        partial(zccl.reduce_scatter, source, out, None, s.op, s.comm) for out in (result, other)
    )
    start = sum(counts[: s.comm.rank])
    pieces = [Piece(range(s.comm.size), start, start + counts[s.comm.rank])]
    return Calls(
        own, plain, lambda n: n.reduce_scatter(source, other, s.op), source, result, pieces
    )


def _bcast(s: Setup) -> Calls:
    if s.comm.rank == s.root:
        source = s.part(s.root, s.count)
        own = partial(zccl.bcast, source, s.root, s.comm)
        return Calls(own, own, lambda n: n.bcast(source, s.root), source, None, [])
    result, other = s.room(s.count)
    own, plain = (partial(zccl.bcast, out, s.root, s.comm) for out in (result, other))
    pieces = [Piece([s.root], 0, s.count)]
    return Calls(own, plain, lambda n: n.bcast(other, s.root), None, result, pieces)


def _scatter(s: Setup) -> Calls:
    share = s.count // s.comm.size
    source = _all_parts(s, share) if s.comm.rank == s.root else None
    result, other = s.room(share)
    own, plain = (
        partial(zccl.scatter, source, out, None, s.root, s.comm) for out in (result, other)
    )
    pieces = [Piece([s.comm.rank], 0, share)]
    return Calls(own, plain, lambda n: n.scatter(source, other, s.root), source, result, pieces)


def _all_parts(s: Setup, share: int) -> DeviceArray:
    """Return each rank's share, one a row."""
    rows = cupy.empty((s.comm.size, share), s.field.dtype)
    for rank in range(s.comm.size):
        s.field.fill(rows[rank], rank)
    return rows


def _gather(s: Setup) -> Calls:
    share = s.count // s.comm.size
    source = s.part(s.comm.rank, share)
    at_root = s.comm.rank == s.root
    result, other = s.room(s.comm.size, share) if at_root else (None, None)
    own, plain = (
        partial(zccl.gather, source, out, None, s.root, s.comm) for out in (result, other)
    )
    pieces = [Piece([rank], 0, share) for rank in range(s.comm.size)] if at_root else []
    return Calls(own, plain, lambda n: n.gather(source, other, s.root), source, result, pieces)


def _allgather(s: Setup) -> Calls:
    share = s.count // s.comm.size
    source = s.part(s.comm.rank, share)
    result, other = s.room(s.comm.size, share)
    own, plain = (partial(zccl.allgather, source, out, None, s.comm) for out in (result, other))
    pieces = [Piece([rank], 0, share) for rank in range(s.comm.size)]
    return Calls(own, plain, lambda n: n.allgather(source, other), source, result, pieces)


def _alltoall(s: Setup) -> Calls:
    share = s.count // s.comm.size
    source = s.part(s.comm.rank, share * s.comm.size).reshape(s.comm.size, share)
    result, other = s.room(s.comm.size, share)
    own, plain = (
        partial(zccl.alltoall, source, out, None, None, s.comm) for out in (result, other)
    )
    start = s.comm.rank * share
    pieces = [Piece([rank], start, start + share) for rank in range(s.comm.size)]
    return Calls(own, plain, lambda n: n.alltoall(source, other), source, result, pieces)


MAKERS: dict[str, Callable[[Setup], Calls]] = {
    "allreduce": _allreduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "bcast": _bcast,
    "scatter": _scatter,
    "gather": _gather,
    "allgather": _allgather,
    "alltoall": _alltoall,
}
"""Makes the buffers and calls of each collective."""

OF_SHARES = ("scatter", "gather", "allgather", "alltoall")
"""Collectives in which each rank's part is a share of the size."""


def spoil(calls: Calls) -> None:
    """Fill the result with NaN, so that nothing of an earlier call can pass for it."""
    if calls.result is not None:
        calls.result[...] = np.nan
