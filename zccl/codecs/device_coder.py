"""Rows of values on a GPU to messages and back, by the CUDA kernels, on the current stream.

Messages lie in pinned memory of the host, for transports that cannot read a GPU's memory, or on
the GPU. What is decoded is checked late, by `finish`, so that decoding waits for nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import cupy
import numpy as np

from zccl import pool
from zccl.arrays import empty
from zccl.codecs import device_packing
from zccl.codecs.device_tiles import DeviceTiles
from zccl.codecs.host_coder import Coded, check_length, max_nbytes
from zccl.codecs.tiles import Body, Grid, Values, tile_count
from zccl.device import DeviceArray
from zccl.errors import StreamError
from zccl.formats import ENTROPY, FIXED, RAW
from zccl.kernels.cpu.checksum import words_checksum
from zccl.ops import Op
from zccl.typing import Array

UNDER_WAY = 4  # messages that are kept while the device may still read them


class DeviceMemory:
    """Messages on CuPy's current device, in its own pool."""

    ahead = pool.DEVICE_AHEAD

    def take(self, nbytes: int) -> DeviceArray:
        """Return uninitialised memory of so many bytes."""
        return empty(nbytes, np.dtype(np.uint8), device=True)

    def fitted(self, message: DeviceArray) -> DeviceArray:
        """Return a message that will be kept for a while, in memory of its own size."""
        if not isinstance(message, cupy.ndarray) or message.base is None:
            return message
        if message.base.nbytes <= 2 * message.nbytes:
            return message
        try:
            return message.copy()
        except cupy.cuda.memory.OutOfMemoryError:
            return message

    def numbers(self, row: DeviceArray) -> list[int]:
        """Read int64 numbers."""
        return list(row.view(np.int64).get().tolist())

    def put_numbers(self, row: DeviceArray, numbers: list[int]) -> None:
        """Write int64 numbers."""
        row.view(np.int64).set(np.array(numbers, np.int64))


class _UnderWay(NamedTuple):
    """A message that the device reads, and where its verdict will be."""

    message: Any
    done: Any  # event
    verdict: Array | None  # int64: words, checksum, status, raw values
    checksum: int


class DeviceCoder:
    """Values are CuPy arrays on the current device.

    Parameters
    ----------
    dtype : dtype
        Of the values, or of the elements where they are carried as they are.
    direct : bool
        Whether messages are on the device, too.
    coding : int
        `formats.ENTROPY` to make bodies denser where the entropy coder can.
    axes : int
        Along how many axes tiles are cut.
    """

    def __init__(self, dtype: np.dtype, direct: bool, coding: int = FIXED, axes: int = 1):
        self._dtype = dtype
        self._direct = direct
        self._coding = coding
        self._axes = axes
        self._stream = cupy.cuda.get_current_stream()
        self._tiles = DeviceTiles(dtype) if dtype in (np.float32, np.float64) else None
        self._under_way: deque[_UnderWay] = deque()
        self.memory: Any = DeviceMemory() if direct else pool.PINNED

    def read_head(self, message: DeviceArray, nbytes: int) -> bytes:
        """Return the first bytes of a message."""
        if message.size < nbytes:
            raise StreamError(f"damaged message of {message.size} bytes")
        head = message[:nbytes]
        return bytes(head.get() if self._direct else head)

    def write_head(self, message: DeviceArray, head: bytes) -> None:
        """Set the first bytes of a message; one of the host is then there as a whole."""
        row = np.frombuffer(head, np.uint8)
        if self._direct:
            pinned = pool.PINNED.take(row.size)
            pinned[:] = row
            message.data.copy_from_host_async(pinned.ctypes.data, row.size, self._stream)
            self._keep(pinned)
        else:
            message[: row.size] = row
            self._stream.synchronize()

    def encode(self, values: Values, grid: Grid, head_nbytes: int) -> tuple[Coded, int]:
        """Return the message of values, its head unset, and how many values travel raw."""
        room = self._room(values.size, head_nbytes)
        table, words = _split(room, values.size, head_nbytes)
        nwords, checksum, raw = self._kernels.compress(values, grid, table, words)
        return self._fitted(room, nwords, checksum, values.size, head_nbytes), raw

    def combine(self, a: Coded, b: Coded, op: Op, n: int, step: float) -> Coded:
        """Reduce two messages of n values on one grid."""
        room = self._room(n, a.head_nbytes)
        table, words = _split(room, n, a.head_nbytes)
        nwords, checksum = self._kernels.hop(
            self._body(a, n), self._body(b, n), op, n, step, table, words, axes=self._axes
        )
        return self._fitted(room, nwords, checksum, n, a.head_nbytes)

    def add_values(self, values: Values, grid: Grid, b: Coded, op: Op) -> tuple[Coded, int]:
        """Reduce values and a message: what `combine(encode(values), b)` would give."""
        n = values.size
        room = self._room(n, b.head_nbytes)
        table, words = _split(room, n, b.head_nbytes)
        nwords, checksum, raw = self._kernels.hop_with_values(
            values, grid, self._body(b, n), op, table, words
        )
        return self._fitted(room, nwords, checksum, n, b.head_nbytes), raw

    def decode(
        self, coded: Coded, step: float, out: Values, divisor: float = 1.0, reduced: bool = False
    ) -> None:
        """Put the values of a message into `out`; `finish` raises where it was damaged."""
        body = self._body(coded, out.size)
        verdict = pool.PINNED.take(32).view(np.int64)
        self._kernels.decompress(body, step, divisor, reduced, out, verdict)
        self._keep(coded.message, verdict, coded.checksum)

    def store(self, elements: DeviceArray, head_nbytes: int = 0) -> DeviceArray:
        """Return the message of elements as they are, behind a head that is unset.

        One of the host is there when its head has been written, or at once when it has none.
        """
        message = self.memory.take(head_nbytes + elements.nbytes)
        row = elements.view(np.uint8)
        if self._direct:
            message[head_nbytes:] = row
        elif elements.size:
            row.data.copy_to_host_async(message[head_nbytes:].ctypes.data, row.nbytes, self._stream)
        if not head_nbytes and not self._direct:
            self._stream.synchronize()
        return message

    def message(self, elements: DeviceArray) -> DeviceArray:
        """Return the message of elements that nobody else uses."""
        return self.store(elements.reshape(-1))

    def elements(self, message: DeviceArray, head_nbytes: int = 0) -> Array:
        """Return the elements of such a message, on the device."""
        return self._on_device(message)[head_nbytes:].view(self._dtype)

    def plain_checksum(self, message: DeviceArray, head_nbytes: int) -> int:
        """Return the checksum of the words behind the head."""
        self._stream.synchronize()
        words = message[head_nbytes:]
        words = words.get() if self._direct else words
        return int(words_checksum(words.view(np.uint32), RAW))

    def finish(self) -> None:
        """Wait for the device, and raise StreamError where a decoded message was damaged."""
        self._stream.synchronize()  # before anything is let go of
        while self._under_way:
            self._settle()

    @property
    def _kernels(self) -> DeviceTiles:
        assert self._tiles is not None
        return self._tiles

    def _room(self, n: int, head_nbytes: int) -> Any:
        return DeviceMemory().take(max_nbytes(n, self._dtype, head_nbytes))

    def _on_device(self, message: DeviceArray) -> Any:
        """Return a message on the device; one of the host is kept until it has been copied."""
        if isinstance(message, cupy.ndarray):
            return message
        copy = DeviceMemory().take(message.size)
        if message.size:
            copy.data.copy_from_host_async(message.ctypes.data, message.size, self._stream)
            self._keep(message)
        return copy

    def _body(self, coded: Coded, n: int) -> Body:
        check_length(coded, n)
        message = self._on_device(coded.message)
        if coded.coding == ENTROPY:
            packed = message[coded.head_nbytes :].view(np.uint32)
            body = device_packing.unpack(packed, n, self._dtype)
            return Body(body.table, body.words, coded.checksum)
        return Body(*_split(message, n, coded.head_nbytes), coded.checksum)

    def _fitted(self, room: Any, nwords: int, checksum: int, n: int, head_nbytes: int) -> Coded:
        """Copy a message to its length, to where messages lie."""
        size = head_nbytes + 8 * tile_count(n) + 4 * nwords
        if self._coding == ENTROPY:
            table, words = _split(room[:size], n, head_nbytes)
            packed = device_packing.pack(Body(table, words, checksum), n, self._dtype)
            if packed is not None:
                return Coded(self.store(packed, head_nbytes), head_nbytes, checksum, ENTROPY)
        return Coded(self.store(room[head_nbytes:size], head_nbytes), head_nbytes, checksum)

    def _keep(self, message: Any, verdict: Array | None = None, checksum: int = 0) -> None:
        """Keep a message until the work that was started on it is done."""
        done = cupy.cuda.Event(disable_timing=True)
        done.record(self._stream)
        self._under_way.append(_UnderWay(message, done, verdict, checksum))
        while len(self._under_way) > UNDER_WAY:
            self._settle()

    def _settle(self) -> None:
        first = self._under_way.popleft()
        first.done.synchronize()
        if first.verdict is not None:
            self._kernels.check(first.verdict, first.checksum)


def _split(message: Any, n: int, head_nbytes: int) -> tuple[Any, Any]:
    """Return the table and the room for records of a message."""
    end = head_nbytes + 8 * tile_count(n)
    return message[head_nbytes:end].view(np.uint64), message[end:].view(np.uint32)
