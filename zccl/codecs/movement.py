"""The codec of collectives that move data: each value quantised once, at its source."""

from __future__ import annotations

import struct
import time

import numpy as np

from zccl.codecs.coder import Coder
from zccl.codecs.host_coder import Coded, HostCoder, max_nbytes
from zccl.codecs.places import Place
from zccl.codecs.tiles import Grid
from zccl.errors import StreamError
from zccl.formats import FIXED
from zccl.typing import Bytes

_HEAD = struct.Struct("<QdQ")
HEAD_NBYTES = _HEAD.size  # checksum, step and coding
_STEP_FACTOR = 0x9E3779B97F4A7C15  # odd: a damaged step changes the checksum


class MovementCodec:
    """Turns parts of a row of values into messages and messages back into values.

    A message is the checksum, the grid step of its source and the coding (8 bytes each), and a body
    of docs/format.md; with step 0 the plain values follow instead.

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
    coder : Coder, optional
        What to work with; on one core of the host by default.
    """

    def __init__(
        self, source: Place, place: Place, dtype: np.dtype, grid: Grid, coder: Coder | None = None
    ):
        self._source = source
        self._place = place
        self._dtype = dtype
        self._grid = grid
        self._coder = coder or HostCoder(dtype)
        self.memory = self._coder.memory
        self.itemsize = dtype.itemsize
        self.escapes = 0
        self.seconds = 0.0

    def max_nbytes(self, part: slice) -> int:
        """Return the most bytes that a message of these values can have."""
        return max_nbytes(part.stop - part.start, self._dtype, HEAD_NBYTES)

    def encode(self, part: slice) -> Bytes:
        """Return the message of one's own values."""
        start = time.perf_counter()
        values, step = self._source(part), self._grid.step
        if step:
            coded, raw = self._coder.encode(values, self._grid, HEAD_NBYTES)
            self.escapes += raw
            message, checksum, coding = coded.message, coded.checksum, coded.coding
        else:
            message = self._coder.store(values, HEAD_NBYTES)
            checksum, coding = self._coder.plain_checksum(message, HEAD_NBYTES), FIXED
        self._coder.write_head(message, _HEAD.pack(_sealed(checksum, step), step, coding))
        self.seconds += time.perf_counter() - start
        return message

    def decode(self, message: Bytes, part: slice) -> None:
        """Put the values of a message in their place."""
        start = time.perf_counter()
        sealed, step, coding = _HEAD.unpack(self._coder.read_head(message, HEAD_NBYTES))
        checksum = _unsealed(sealed, step)
        if not 0 <= step < float("inf"):
            raise StreamError(f"damaged message: grid step {step}")
        if step:
            coded = Coded(message, HEAD_NBYTES, checksum, coding)
            self._coder.decode(coded, step, self._place(part))
        else:
            nbytes = (part.stop - part.start) * self.itemsize
            intact = message.size == HEAD_NBYTES + nbytes and coding == FIXED
            if not intact or self._coder.plain_checksum(message, HEAD_NBYTES) != checksum:
                raise StreamError(f"damaged message of {message.size} bytes")
            self._place(part)[...] = self._coder.elements(message, HEAD_NBYTES)
        self.seconds += time.perf_counter() - start

    def finish(self) -> None:
        """Wait for what is under way."""
        start = time.perf_counter()
        self._coder.finish()
        self.seconds += time.perf_counter() - start


def _step_bits(step: float) -> int:
    (bits,) = struct.unpack("<Q", struct.pack("<d", step))
    return int(bits) * _STEP_FACTOR


def _sealed(checksum: int, step: float) -> int:
    return (checksum + _step_bits(step)) % 2**64


def _unsealed(sealed: int, step: float) -> int:
    return (sealed - _step_bits(step)) % 2**64
