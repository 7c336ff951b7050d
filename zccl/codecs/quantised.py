"""The codec of collectives with an error bound: codes on one grid, added as integers."""

from __future__ import annotations

import struct
import time

from zccl.codecs.coder import Coder
from zccl.codecs.host_coder import Coded, HostCoder, max_nbytes
from zccl.codecs.places import Place
from zccl.codecs.tiles import Grid, Values, axes_of
from zccl.ops import Op
from zccl.typing import Bytes

_HEAD = struct.Struct("<QQ")
HEAD_NBYTES = 16  # checksum and coding


class QuantisedCodec:
    """Turns parts of a row of values into messages, adds messages, and turns them back into values.

    A message is the checksum and the coding (8 bytes each), and a body of docs/format.md; both
    sides know the number of tiles.

    Parameters
    ----------
    source : 1-D ndarray or Tiles, float32 or float64
        Values to send.
    place : Place
        Where the results go, of the same dtype; it may be the source.
    grid : Grid
        The common grid of all ranks, with this rank.
    op : Op
        The reduction of a hop.
    coder : Coder, optional
        What to work with; on one core of the host by default.
    """

    def __init__(
        self, source: Values, place: Place, grid: Grid, op: Op, coder: Coder | None = None
    ):
        self._source = source
        self._place = place
        self._grid = grid
        self._op = op
        self._dtype = source.dtype
        self._coder = coder or HostCoder(source.dtype, axes=axes_of(source))
        self._divisor = float(grid.ranks) if op is Op.AVG else 1.0
        self.memory = self._coder.memory
        self.itemsize = source.dtype.itemsize
        self.escapes = 0
        self.seconds = 0.0

    def max_nbytes(self, part: slice) -> int:
        """Return the most bytes that a message of these values can have."""
        return max_nbytes(part.stop - part.start, self._dtype, HEAD_NBYTES)

    def encode(self, part: slice) -> Bytes:
        """Return the message of one's own values."""
        start = time.perf_counter()
        coded, raw = self._coder.encode(self._source[part], self._grid, HEAD_NBYTES)
        self.escapes += raw
        return self._sealed(coded, start)

    def combine(self, a: Bytes, b: Bytes, part: slice) -> Bytes:
        """Reduce two messages of the same values."""
        start = time.perf_counter()
        n = part.stop - part.start
        coded = self._coder.combine(self._open(a), self._open(b), self._op, n, self._grid.step)
        return self._sealed(coded, start)

    def add_own(self, message: Bytes, part: slice) -> Bytes:
        """Reduce a message and one's own values; the same as `combine(message, encode(part))`."""
        start = time.perf_counter()
        coded, raw = self._coder.add_values(
            self._source[part], self._grid, self._open(message), self._op
        )
        self.escapes += raw
        return self._sealed(coded, start)

    def decode(self, message: Bytes, part: slice) -> None:
        """Put the values of a message in their place."""
        start = time.perf_counter()
        self._coder.decode(
            self._open(message), self._grid.step, self._place(part), self._divisor, reduced=True
        )
        self.seconds += time.perf_counter() - start

    def finish(self) -> None:
        """Wait for what is under way."""
        start = time.perf_counter()
        self._coder.finish()
        self.seconds += time.perf_counter() - start

    def _open(self, message: Bytes) -> Coded:
        head = self._coder.read_head(message, HEAD_NBYTES)
        return Coded(message, HEAD_NBYTES, *_HEAD.unpack(head))

    def _sealed(self, coded: Coded, start: float) -> Bytes:
        self._coder.write_head(coded.message, _HEAD.pack(coded.checksum, coded.coding))
        self.seconds += time.perf_counter() - start
        message: Bytes = coded.message
        return message
