"""Rows of values in host memory to messages and back, by the CPU kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zccl import pool
from zccl.codecs import packing, tiles
from zccl.codecs.tiles import Body, Grid, Values, tile_count
from zccl.errors import StreamError
from zccl.formats import ENTROPY, FIXED, RAW
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
    coding : int
        Of the body: `formats.FIXED` or `ENTROPY`.
    """

    message: Any
    head_nbytes: int
    checksum: int
    coding: int = FIXED


def max_nbytes(n: int, dtype: np.dtype, head_nbytes: int) -> int:
    """Return the most bytes that the message of n values can have."""
    return head_nbytes + 8 * tile_count(n) + 4 * tiles.room_nwords(n, dtype)


def check_length(coded: Coded, n: int) -> None:
    """Raise StreamError where a message is too short for the table of n values."""
    least = 8 * tile_count(n) if coded.coding == FIXED else 4
    size = coded.message.size
    if size < coded.head_nbytes + least or size % 4 or coded.coding not in (FIXED, ENTROPY):
        raise StreamError(f"damaged message of {size} bytes")


class HostCoder:
    """Values and messages are NumPy arrays.

    Parameters
    ----------
    dtype : dtype
        Of the values, or of the elements where they are carried as they are.
    threads : int
        Cores to work on.
    coding : int
        `formats.ENTROPY` to make bodies denser where the entropy coder can.
    axes : int
        Along how many axes tiles are cut.
    """

    memory = pool.HOST

    def __init__(self, dtype: np.dtype, threads: int = 1, coding: int = FIXED, axes: int = 1):
        self._dtype = dtype
        self._threads = threads
        self._coding = coding
        self._axes = axes

    def read_head(self, message: Bytes, nbytes: int) -> bytes:
        """Return the first bytes of a message."""
        if message.size < nbytes:
            raise StreamError(f"damaged message of {message.size} bytes")
        return message[:nbytes].tobytes()

    def write_head(self, message: Bytes, head: bytes) -> None:
        """Set the first bytes of a message."""
        message[: len(head)] = np.frombuffer(head, np.uint8)

    def encode(self, values: Values, grid: Grid, head_nbytes: int) -> tuple[Coded, int]:
        """Return the message of values, its head unset, and how many values travel raw."""
        message = self._room(values.size, head_nbytes)
        body, raw = tiles.encode(
            values, grid, *_split(message, values.size, head_nbytes), self._threads
        )
        return self._fitted(message, body, values.size, head_nbytes), int(raw)

    def combine(self, a: Coded, b: Coded, op: Op, n: int, step: float) -> Coded:
        """Reduce two messages of n values on one grid."""
        message = self._room(n, a.head_nbytes)
        body = tiles.combine(
            self._body(a, n), self._body(b, n), op, n, self._dtype, step,
            *_split(message, n, a.head_nbytes), keep_small=True, threads=self._threads,
            axes=self._axes,
        )  # fmt: skip
        return self._fitted(message, body, n, a.head_nbytes)

    def add_values(self, values: Values, grid: Grid, b: Coded, op: Op) -> tuple[Coded, int]:
        """Reduce values and a message: what `combine(encode(values), b)` would give."""
        n = values.size
        message = self._room(n, b.head_nbytes)
        table, words = _split(message, n, b.head_nbytes)
        body, raw = tiles.combine_with_values(
            values, grid, self._body(b, n), op, table, words, self._threads
        )
        return self._fitted(message, body, n, b.head_nbytes), int(raw)

    def decode(
        self, coded: Coded, step: float, out: Values, divisor: float = 1.0, reduced: bool = False
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
        check_length(coded, n)
        if coded.coding == ENTROPY:
            packed = coded.message[coded.head_nbytes :].view(np.uint32)
            body = packing.unpack(packed, n, self._dtype, self._threads)
            return Body(body.table, body.words, coded.checksum)
        return Body(*_split(coded.message, n, coded.head_nbytes), coded.checksum)

    def _fitted(self, message: Bytes, body: Body, n: int, head_nbytes: int) -> Coded:
        """Copy a message to its length: the room for the worst case goes back to the pool."""
        if self._coding == ENTROPY and n:
            packed = packing.pack(body, n, self._dtype, self._threads)
            if packed is not None:
                return Coded(self.store(packed, head_nbytes), head_nbytes, body.checksum, ENTROPY)
        result = pool.HOST.take(head_nbytes + body.nbytes)
        result[head_nbytes:] = message[head_nbytes : result.size]
        return Coded(result, head_nbytes, body.checksum)


def _split(message: Bytes, n: int, head_nbytes: int) -> tuple[Array, Array]:
    """Return the table and the room for records of a message."""
    end = head_nbytes + 8 * tile_count(n)
    return message[head_nbytes:end].view(np.uint64), message[end:].view(np.uint32)
