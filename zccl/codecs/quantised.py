"""The codec of collectives with an error bound: codes on one grid, added as integers."""

from __future__ import annotations

import time

import numpy as np

from zccl import pool
from zccl.codecs import tiles
from zccl.codecs.places import Place
from zccl.codecs.tiles import Body, Grid, tile_count
from zccl.errors import StreamError
from zccl.ops import Op
from zccl.typing import Array, Bytes


class QuantisedCodec:
    """Turns parts of a row of values into messages, adds messages, and turns them back into values.

    A message is the checksum (8 bytes), the table and the records of docs/format.md; the number of
    tiles is known to both sides.

    Parameters
    ----------
    source : 1-D ndarray, float32 or float64
        Values to send.
    place : Place
        Where the results go, of the same dtype; it may be the source.
    grid : Grid
        The common grid of all ranks, with this rank.
    op : Op
        The reduction of a hop.
    threads : int
        Cores to work on.
    """

    def __init__(self, source: Array, place: Place, grid: Grid, op: Op, threads: int = 1):
        self._source = source
        self._place = place
        self._grid = grid
        self._op = op
        self._dtype = source.dtype
        self._threads = threads
        self._divisor = float(grid.ranks) if op is Op.AVG else 1.0
        self.itemsize = source.dtype.itemsize
        self.escapes = 0
        self.seconds = 0.0

    def max_nbytes(self, part: slice) -> int:
        """Return the most bytes that a message of these values can have."""
        n = part.stop - part.start
        return 8 + 8 * tile_count(n) + 4 * tiles.room_nwords(n, self._dtype)

    def encode(self, part: slice) -> Bytes:
        """Return the message of one's own values."""
        start = time.perf_counter()
        message = pool.take(self.max_nbytes(part))
        table, words = self._split(message, part)
        body, raw = tiles.encode(self._source[part], self._grid, table, words, self._threads)
        self.escapes += int(raw)
        return self._finish(message, body, start)

    def combine(self, a: Bytes, b: Bytes, part: slice) -> Bytes:
        """Reduce two messages of the same values."""
        start = time.perf_counter()
        message = pool.take(self.max_nbytes(part))
        body = tiles.combine(
            self._open(a, part), self._open(b, part), self._op, part.stop - part.start, self._dtype,
            self._grid.step, *self._split(message, part), keep_small=True, threads=self._threads,
        )  # fmt: skip
        return self._finish(message, body, start)

    def add_own(self, message: Bytes, part: slice) -> Bytes:
        """Reduce a message and one's own values; the same as `combine(message, encode(part))`."""
        start = time.perf_counter()
        result = pool.take(self.max_nbytes(part))
        table, words = self._split(result, part)
        body, raw = tiles.combine_with_values(
            self._source[part], self._grid, self._open(message, part), self._op, table, words,
            self._threads,
        )  # fmt: skip
        self.escapes += int(raw)
        return self._finish(result, body, start)

    def decode(self, message: Bytes, part: slice) -> None:
        """Put the values of a message in their place."""
        start = time.perf_counter()
        tiles.decode(
            self._open(message, part), self._grid.step, self._place(part), self._divisor,
            reduced=True, threads=self._threads,
        )  # fmt: skip
        self.seconds += time.perf_counter() - start

    def _split(self, message: Bytes, part: slice) -> tuple[Array, Array]:
        end = 8 + 8 * tile_count(part.stop - part.start)
        return message[8:end].view(np.uint64), message[end:].view(np.uint32)

    def _open(self, message: Bytes, part: slice) -> Body:
        if message.size < 8 + 8 * tile_count(part.stop - part.start) or message.size % 4:
            raise StreamError(f"damaged message of {message.size} bytes")
        return Body(*self._split(message, part), int(message[:8].view(np.uint64)[0]))

    def _finish(self, message: Bytes, body: Body, start: float) -> Bytes:
        """Copy a message to its length: the room for the worst case goes back to the pool."""
        message[:8].view(np.uint64)[0] = body.checksum
        result = pool.take(8 + body.nbytes)
        result[:] = message[: result.size]
        self.seconds += time.perf_counter() - start
        return result
