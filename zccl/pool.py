"""A pool of host memory for messages and scratch: later calls need no fresh pages."""

from __future__ import annotations

import numpy as np

from zccl.typing import Bytes

SMALLEST = 1 << 10  # bytes

_free: dict[int, list[Bytes]] = {}


class _Lease:
    """Memory that goes back to the pool when the last array over it is gone."""

    def __init__(self, memory: Bytes):
        self._memory = memory
        self._home = _free  # still there when the interpreter ends
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._home.setdefault(self._memory.size, []).append(self._memory)


def take(nbytes: int) -> Bytes:
    """Return uninitialised memory, 8-byte aligned, of so many bytes."""
    step = max(SMALLEST, 1 << max(nbytes.bit_length() - 4, 0))  # at most an eighth too much
    size = max(-(-nbytes // step), 1) * step
    stock = _free.get(size)
    memory = stock.pop() if stock else _new(size)
    return np.asarray(_Lease(memory))[:nbytes]


def _new(nbytes: int) -> Bytes:
    try:
        return np.empty(nbytes, np.uint8)
    except MemoryError:
        if not free_workspace():
            raise
        return np.empty(nbytes, np.uint8)


def fitted(message: Bytes) -> Bytes:
    """Return a message that will be kept for a while, in memory of its own size.

    Messages arrive in room for the worst case, which is better used again.
    """
    if message.base is None or message.base.nbytes <= 2 * message.nbytes:
        return message
    try:
        copy = take(message.nbytes)
    except MemoryError:
        return message
    copy[:] = message
    return copy


def free_workspace() -> int:
    """Give the memory that zccl keeps for its next calls back to the system.

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
    nbytes = sum(memory.nbytes for stock in _free.values() for memory in stock)
    _free.clear()
    return nbytes
