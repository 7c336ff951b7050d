"""NCCL's own collectives through CuPy alone: what zccl on GPUs is held against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np
from cupy.cuda import nccl
from mpi4py import MPI

from zccl.bench.checks import real_row
from zccl.device import DeviceArray
from zccl.ops import Op
from zccl.plan import even_split

_KINDS = {"float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64}
_OPS = {
    Op.SUM: nccl.NCCL_SUM,
    Op.AVG: nccl.NCCL_SUM,
    Op.MAX: nccl.NCCL_MAX,
    Op.MIN: nccl.NCCL_MIN,
}


class NcclPeer:
    """NCCL's collectives of some ranks, on CuPy's current stream.

    Parameters
    ----------
    comm : MPI.Intracomm
        The ranks, each with a GPU of its own.
    """

    def __init__(self, comm: MPI.Intracomm):
        self.rank, self.size = comm.rank, comm.size
        name = comm.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
        self._nccl = nccl.NcclCommunicator(comm.size, name, comm.rank)

    def allreduce(self, send: DeviceArray, into: DeviceArray, op: Op) -> None:
        """Reduce to all."""
        row, out = real_row(send), real_row(into)
        self._nccl.allReduce(
            _address(row), _address(out), row.size, _kind(row), _OPS[op], _stream()
        )  # fmt: skip
        self._divide(out, op)

    def reduce(self, send: DeviceArray, into: DeviceArray, op: Op, root: int) -> None:
        """Reduce to the root."""
        row, out = real_row(send), real_row(into)
        self._nccl.reduce(
            _address(row), _address(out), row.size, _kind(row), _OPS[op], root, _stream()
        )
        if self.rank == root:
            self._divide(out, op)

    def reduce_scatter(self, send: DeviceArray, into: DeviceArray, op: Op) -> None:
        """Reduce; each rank gets a share, an even one up to an element."""
        row, out = real_row(send), real_row(into)
        if row.size == out.size * self.size:
            self._nccl.reduceScatter(
                _address(row), _address(out), out.size, _kind(row), _OPS[op], _stream()
            )
        else:
            start = _address(send)
            with _group():
                for root, count in enumerate(even_split(send.size, self.size)):
                    values = count * (row.size // send.size)
                    self._nccl.reduce(
                        start, _address(out), values, _kind(row), _OPS[op], root, _stream()
                    )
                    start += count * send.itemsize
        self._divide(out, op)

    def bcast(self, buffer: DeviceArray, root: int) -> None:
        """Give all ranks the root's array."""
        row = real_row(buffer)
        self._nccl.bcast(_address(row), row.size, _kind(row), root, _stream())

    def scatter(self, send: DeviceArray | None, into: DeviceArray, root: int) -> None:
        """Give each rank its row of the root's array."""
        with _group():
            if send is not None:
                for rank in range(self.size):
                    if rank != root:
                        self._send(send[rank], rank)
            if self.rank != root:
                self._receive(into, root)
        if send is not None:
            into[...] = send[root]

    def gather(self, send: DeviceArray, into: DeviceArray | None, root: int) -> None:
        """Give the root all ranks' rows."""
        with _group():
            if into is not None:
                for rank in range(self.size):
                    if rank != root:
                        self._receive(into[rank], rank)
            if self.rank != root:
                self._send(send, root)
        if into is not None:
            into[root] = send

    def allgather(self, send: DeviceArray, into: DeviceArray) -> None:
        """Give all ranks all ranks' rows."""
        row, out = real_row(send), real_row(into)
        self._nccl.allGather(_address(row), _address(out), row.size, _kind(row), _stream())

    def alltoall(self, send: DeviceArray, into: DeviceArray) -> None:
        """Give each rank its row of all ranks' arrays."""
        with _group():
            for rank in range(self.size):
                if rank != self.rank:
                    self._send(send[rank], rank)
                    self._receive(into[rank], rank)
        into[self.rank] = send[self.rank]

    def _send(self, array: DeviceArray, rank: int) -> None:
        row = real_row(array)
        self._nccl.send(_address(row), row.size, _kind(row), rank, _stream())

    def _receive(self, array: DeviceArray, rank: int) -> None:
        row = real_row(array)
        self._nccl.recv(_address(row), row.size, _kind(row), rank, _stream())

    def _divide(self, out: DeviceArray, op: Op) -> None:
        if op is Op.AVG:
            np.divide(out, self.size, out=out)


@contextmanager
def _group() -> Iterator[None]:
    nccl.groupStart()
    yield
    nccl.groupEnd()


def _address(row: Any) -> int:
    return int(row.data.ptr)


def _kind(row: DeviceArray) -> int:
    return int(_KINDS[row.dtype.name])


def _stream() -> int:
    return int(cupy.cuda.get_current_stream().ptr)
