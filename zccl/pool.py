"""Pools of memory for messages and scratch: later calls need no fresh pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zccl.typing import Bytes

SMALLEST = 1 << 10  # bytes
DEVICE_AHEAD = 4  # messages: a GPU works on one for a shorter time than it takes to arrive


class _Lease:
    """Memory that goes back to its pool when the last array over it is gone."""

    def __init__(self, memory: Bytes, stock: dict[int, list[Bytes]]):
        self._memory = memory
        self._stock = stock  # still there when the interpreter ends
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._stock.setdefault(self._memory.size, []).append(self._memory)


class Pool:
    """Memory of one kind that the host can reach.

    Parameters
    ----------
    new : function of the number of bytes
        Makes memory; raises MemoryError when there is none.
    ahead : int
        Receives that are posted while the message in hand is worked on.
    """

    def __init__(self, new: Callable[[int], Bytes], ahead: int):
        self.ahead = ahead
        self._new = new
        self._free: dict[int, list[Bytes]] = {}

    def take(self, nbytes: int) -> Bytes:
        """Return uninitialised memory, 8-byte aligned, of so many bytes."""
        step = max(SMALLEST, 1 << max(nbytes.bit_length() - 4, 0))  # at most an eighth too much
        size = max(-(-nbytes // step), 1) * step
        stock = self._free.get(size)
        memory = stock.pop() if stock else self._fresh(size)
        return np.asarray(_Lease(memory, self._free))[:nbytes]

    def _fresh(self, nbytes: int) -> Bytes:
        try:
            return self._new(nbytes)
        except MemoryError:
            if not free_workspace():
                raise
            return self._new(nbytes)

    def fitted(self, message: Bytes) -> Bytes:
        """Return a message that will be kept for a while, in memory of its own size.

        Messages arrive in room for the worst case, which is better used again.
        """
        if message.base is None or message.base.nbytes <= 2 * message.nbytes:
            return message
        try:
            copy = self.take(message.nbytes)
        except MemoryError:
            return message
        copy[:] = message
        return copy

    def numbers(self, row: Bytes) -> list[int]:
        """Read int64 numbers."""
        return list(row.view(np.int64).tolist())

    def put_numbers(self, row: Bytes, numbers: list[int]) -> None:
        """Write int64 numbers."""
        row.view(np.int64)[:] = numbers

    def free(self) -> int:
        """Give back what is not in use; returns its bytes."""
        nbytes = sum(memory.nbytes for stock in self._free.values() for memory in stock)
        self._free.clear()
        return nbytes


def _pageable(nbytes: int) -> Bytes:
    return np.empty(nbytes, np.uint8)


def _pinned(nbytes: int) -> Bytes:
    import cupy

    try:
        memory: Any = cupy.cuda.PinnedMemory(nbytes)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MemoryError(f"{nbytes} bytes of pinned memory: {error}") from error
    return np.frombuffer(cupy.cuda.PinnedMemoryPointer(memory, 0), np.uint8, nbytes)


HOST = Pool(_pageable, ahead=1)
PINNED = Pool(_pinned, DEVICE_AHEAD)  # memory of the host that GPUs copy to and from at full speed


def free_workspace() -> int:
    """Give the memory that zccl keeps for its next calls back to the system.

    That is memory of the host. What is on a GPU is in CuPy's pool:
    `cupy.get_default_memory_pool().free_all_blocks()`.

    Returns
    -------
    int
        Bytes given back.

    Examples
    --------
    >>> import zccl
    >>> zccl.free_workspace() >= 0
    True
    """
    return HOST.free() + PINNED.free()
