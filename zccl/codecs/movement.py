"""The codec of collectives that move data: each value quantised once, at its source."""

from __future__ import annotations

import struct
import time

import numpy as np

from zccl import pool
from zccl.codecs import tiles
from zccl.codecs.places import Place
from zccl.codecs.tiles import Body, Grid, tile_count
from zccl.errors import StreamError
from zccl.formats import RAW
from zccl.kernels.cpu.checksum import words_checksum
from zccl.typing import Array, Bytes

HEAD_NBYTES = 16  # checksum and step
_STEP_FACTOR = 0x9E3779B97F4A7C15  # odd: a damaged step changes the checksum


class MovementCodec:
    """Turns parts of a row of values into messages and messages back into values.

    A message is the checksum and the grid step of its source (8 bytes each), the table and the
    records of docs/format.md; with step 0 the plain values follow instead.

    Parameters
    ----------
    source : Place
        Where the values to send are, of dtype float32 or float64.
    place : Place
        Where the results go, of the same dtype.
    dtype : dtype
        Of both.
    grid : Grid
        Of this rank's own values.
    threads : int
        Cores to work on.
    """

    def __init__(self, source: Place, place: Place, dtype: np.dtype, grid: Grid, threads: int = 1):
        self._source = source
        self._place = place
        self._dtype = dtype
        self._grid = grid
        self._threads = threads
        self.itemsize = dtype.itemsize
        self.escapes = 0
        self.seconds = 0.0

    def max_nbytes(self, part: slice) -> int:
        """Return the most bytes that a message of these values can have."""
        n = part.stop - part.start
        return HEAD_NBYTES + 8 * tile_count(n) + 4 * tiles.room_nwords(n, self._dtype)

    def encode(self, part: slice) -> Bytes:
        """Return the message of one's own values."""
        start = time.perf_counter()
        values, step = self._source(part), self._grid.step
        message = pool.take(self.max_nbytes(part))
        checksum, nbytes = 0, values.nbytes
        if step:
            body, raw = tiles.encode(values, self._grid, *self._split(message, part), self._threads)
            self.escapes += int(raw)
            checksum, nbytes = body.checksum, body.nbytes
        else:
            message[HEAD_NBYTES : HEAD_NBYTES + nbytes] = values.view(np.uint8)
            checksum = _plain_checksum(message[HEAD_NBYTES : HEAD_NBYTES + nbytes])
        struct.pack_into("<Qd", message.data, 0, _sealed(checksum, step), step)
        result = pool.take(HEAD_NBYTES + nbytes)
        result[:] = message[: result.size]
        self.seconds += time.perf_counter() - start
        return result

    def decode(self, message: Bytes, part: slice) -> None:
        """Put the values of a message in their place."""
        start = time.perf_counter()
        n = part.stop - part.start
        if message.size < HEAD_NBYTES or message.size % 4:
            raise StreamError(f"damaged message of {message.size} bytes")
        sealed, step = struct.unpack_from("<Qd", message.data)
        checksum = _unsealed(sealed, step)
        if not 0 <= step < float("inf"):
            raise StreamError(f"damaged message: grid step {step}")
        if not step:
            plain = message[HEAD_NBYTES:]
            if plain.size != n * self.itemsize or _plain_checksum(plain) != checksum:
                raise StreamError(f"damaged message of {message.size} bytes")
            self._place(part)[...] = plain.view(self._dtype)
        else:
            if message.size < HEAD_NBYTES + 8 * tile_count(n):
                raise StreamError(f"damaged message of {message.size} bytes")
            body = Body(*self._split(message, part), checksum)
            tiles.decode(body, step, self._place(part), threads=self._threads)
        self.seconds += time.perf_counter() - start

    def _split(self, message: Bytes, part: slice) -> tuple[Array, Array]:
        end = HEAD_NBYTES + 8 * tile_count(part.stop - part.start)
        return message[HEAD_NBYTES:end].view(np.uint64), message[end:].view(np.uint32)


def _plain_checksum(plain: Bytes) -> int:
    return int(words_checksum(plain.view(np.uint32), RAW))


def _step_bits(step: float) -> int:
    (bits,) = struct.unpack("<Q", struct.pack("<d", step))
    return int(bits) * _STEP_FACTOR


def _sealed(checksum: int, step: float) -> int:
    return (checksum + _step_bits(step)) % 2**64


def _unsealed(sealed: int, step: float) -> int:
    return (sealed - _step_bits(step)) % 2**64
