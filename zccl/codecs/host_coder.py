"""Rows of values in host memory to messages and back, by the CPU kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zccl import pool
from zccl.codecs import tiles
from zccl.codecs.tiles import Body, Grid, tile_count
from zccl.errors import StreamError
from zccl.formats import RAW
from zccl.kernels.cpu.checksum import words_checksum
from zccl.ops import Op
from zccl.typing import Array, Bytes


class Coded(NamedTuple):
    """A message of tiles: a head that the codec owns, the table and the records.

    Attributes
    ----------
    message : 1-D ndarray of uint8
        All of it.
    head_nbytes : int
        Length of the head, a multiple of 8.
    checksum : int
        What the body must have.
    """

    message: Any
    head_nbytes: int
    checksum: int


def max_nbytes(n: int, dtype: np.dtype, head_nbytes: int) -> int:
    """Return the most bytes that the message of n values can have."""
    return head_nbytes + 8 * tile_count(n) + 4 * tiles.room_nwords(n, dtype)


def check_length(message: Any, n: int, head_nbytes: int) -> None:
    """Raise StreamError where a message is too short for the table of n values."""
    if message.size < head_nbytes + 8 * tile_count(n) or message.size % 4:
        raise StreamError(f"damaged message of {message.size} bytes")


class HostCoder:
    """Values and messages are NumPy arrays.

    Parameters
    ----------
    dtype : dtype
        Of the values, or of the elements where they are carried as they are.
    threads : int
        Cores to work on.
    """

    memory = pool.HOST

    def __init__(self, dtype: np.dtype, threads: int = 1):
        self._dtype = dtype
        self._threads = threads

    def read_head(self, message: Bytes, nbytes: int) -> bytes:
        """Return the first bytes of a message."""
        if message.size < nbytes:
            raise StreamError(f"damaged message of {message.size} bytes")
        return message[:nbytes].tobytes()

    def write_head(self, message: Bytes, head: bytes) -> None:
        """Set the first bytes of a message."""
        message[: len(head)] = np.frombuffer(head, np.uint8)

    def encode(self, values: Array, grid: Grid, head_nbytes: int) -> tuple[Coded, int]:
        """Return the message of values, its head unset, and how many values travel raw."""
        message = self._room(values.size, head_nbytes)
        body, raw = tiles.encode(
            values, grid, *_split(message, values.size, head_nbytes), self._threads
        )
        return self._fitted(message, body, head_nbytes), int(raw)

    def combine(self, a: Coded, b: Coded, op: Op, n: int, step: float) -> Coded:
        """Reduce two messages of n values on one grid."""
        message = self._room(n, a.head_nbytes)
        body = tiles.combine(
            self._body(a, n), self._body(b, n), op, n, self._dtype, step,
            *_split(message, n, a.head_nbytes), keep_small=True, threads=self._threads,
        )  # fmt: skip
        return self._fitted(message, body, a.head_nbytes)

    def add_values(self, values: Array, grid: Grid, b: Coded, op: Op) -> tuple[Coded, int]:
        """Reduce values and a message: what `combine(encode(values), b)` would give."""
        n = values.size
        message = self._room(n, b.head_nbytes)
        table, words = _split(message, n, b.head_nbytes)
        body, raw = tiles.combine_with_values(
            values, grid, self._body(b, n), op, table, words, self._threads
        )
        return self._fitted(message, body, b.head_nbytes), int(raw)

    def decode(
        self, coded: Coded, step: float, out: Array, divisor: float = 1.0, reduced: bool = False
    ) -> None:
        """Put the values of a message into `out`."""
        body = self._body(coded, out.size)
        tiles.decode(body, step, out, divisor, reduced, threads=self._threads)

    def store(self, elements: Array, head_nbytes: int = 0) -> Bytes:
        """Return the message of elements as they are, behind a head that is unset."""
        message = pool.HOST.take(head_nbytes + elements.nbytes)
        message[head_nbytes:] = elements.view(np.uint8)
        return message

    def message(self, elements: Array) -> Bytes:
        """Return the message of elements that nobody else uses."""
        return elements.reshape(-1).view(np.uint8)

    def elements(self, message: Bytes, head_nbytes: int = 0) -> Array:
        """Return the elements of such a message."""
        return message[head_nbytes:].view(self._dtype)

    def plain_checksum(self, message: Bytes, head_nbytes: int) -> int:
        """Return the checksum of the words behind the head."""
        return int(words_checksum(message[head_nbytes:].view(np.uint32), RAW))

    def finish(self) -> None:
        """Nothing is under way."""

    def _room(self, n: int, head_nbytes: int) -> Bytes:
        return pool.HOST.take(max_nbytes(n, self._dtype, head_nbytes))

    def _body(self, coded: Coded, n: int) -> Body:
        check_length(coded.message, n, coded.head_nbytes)
        return Body(*_split(coded.message, n, coded.head_nbytes), coded.checksum)

    def _fitted(self, message: Bytes, body: Body, head_nbytes: int) -> Coded:
        """Copy a message to its length: the room for the worst case goes back to the pool."""
        result = pool.HOST.take(head_nbytes + body.nbytes)
        result[head_nbytes:] = message[head_nbytes : result.size]
        return Coded(result, head_nbytes, body.checksum)


def _split(message: Bytes, n: int, head_nbytes: int) -> tuple[Array, Array]:
    """Return the table and the room for records of a message."""
    end = head_nbytes + 8 * tile_count(n)
    return message[head_nbytes:end].view(np.uint64), message[end:].view(np.uint32)
