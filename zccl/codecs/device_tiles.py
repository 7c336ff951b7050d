"""Rows of values to tables and records and back, by the CUDA kernels, on a stream."""

from __future__ import annotations

import functools

import cupy
import numpy as np

from zccl.codecs.tiles import Body, Grid, room_nwords, tile_count
from zccl.device import DeviceArray
from zccl.errors import StreamError
from zccl.formats import TILE
from zccl.kernels.cpu.checksum import K32, K64
from zccl.kernels.cuda import rows
from zccl.kernels.cuda.rows import Rows
from zccl.ops import Op

_OP_CODES = {Op.SUM: 0, Op.AVG: 0, Op.MAX: 1, Op.MIN: 2}


class _Workspace:
    """A zeroed work area of one stream, and pinned memory that kernels leave their results in."""

    def __init__(self) -> None:
        self.work = cupy.zeros(1 << 16, np.uint8)
        pinned = cupy.cuda.alloc_pinned_memory(32)
        self.result = pinned.ptr
        self._numbers = np.frombuffer(pinned, np.int64, 4)

    def room(self, n: int) -> int:
        """Return the address of a work area for n values."""
        if self.work.size < rows.work_nbytes(n):
            self.work = cupy.zeros(rows.work_nbytes(n), np.uint8)
        return int(self.work.data.ptr)

    def read(self) -> tuple[int, int, int, int]:
        """Wait for the stream, and return its result: words, checksum, status, raw values."""
        cupy.cuda.get_current_stream().synchronize()
        nwords, checksum, status, raw = self._numbers.tolist()
        return nwords, checksum % 2**64, status, raw

    def read_ends(self) -> tuple[float, float]:
        """Wait for the stream, and return its result as two numbers."""
        cupy.cuda.get_current_stream().synchronize()
        low, high = self._numbers[:2].view(np.float64).tolist()
        return low, high


@functools.lru_cache(64)
def _workspace_of(device: int, stream: int) -> _Workspace:
    return _Workspace()


@functools.lru_cache(64)
def _rows_of(device: int, dtype: np.dtype) -> Rows:
    return Rows(dtype)


class DeviceTiles:
    """The kernels for one value type, on CuPy's current device and stream.

    Parameters
    ----------
    dtype : dtype
        float32 or float64.
    """

    def __init__(self, dtype: np.dtype):
        device = cupy.cuda.runtime.getDevice()
        self._stream = int(cupy.cuda.get_current_stream().ptr)
        self._dtype = np.dtype(dtype)
        self._rows = _rows_of(device, self._dtype)
        self._workspace = _workspace_of(device, self._stream)

    def finite_range(self, values: DeviceArray, fill: float) -> tuple[float, float]:
        """Return the smallest and largest finite value that is not `fill`; (inf, -inf) for none."""
        w = self._workspace
        self._rows.value_range(
            values.data.ptr, values.size, fill, w.room(values.size), w.result
        )(self._stream)  # fmt: skip
        return w.read_ends()

    def encode(self, values: DeviceArray, grid: Grid) -> tuple[Body, int]:
        """Compress values: the body, records in the order of their tiles, and how many are raw."""
        n = values.size
        table, words = self._room(n)
        w = self._workspace
        self._rows.compress(
            values.data.ptr, n, grid.step, grid.error_bound, grid.movement, grid.ranks, grid.rank,
            grid.fill, table.data.ptr, words.data.ptr, w.room(n), w.result,
        )(self._stream)  # fmt: skip
        return self._ordered(n, table, words)

    def decode(self, body: Body, step: float, out: DeviceArray, reduced: bool = False) -> None:
        """Decompress a body into `out`.

        Raises
        ------
        StreamError
            When it is damaged.
        """
        w = self._workspace
        self._rows.decompress(
            body.table.data.ptr, body.words.data.ptr, body.words.size, step, 1.0, reduced,
            out.data.ptr, out.size, w.room(out.size), w.result,
        )(self._stream)  # fmt: skip
        self._check(body)

    def combine(self, a: Body, b: Body, op: Op, n: int, step: float) -> Body:
        """Reduce two bodies of n values on one grid.

        Raises
        ------
        StreamError
            When one is damaged.
        OverflowError
            When the codes of a sum outgrow the format.
        """
        w = self._workspace
        for body in (a, b):
            self._rows.verify(
                n, body.table.data.ptr, body.words.data.ptr, body.words.size, w.room(n), w.result
            )(self._stream)  # fmt: skip
            self._check(body)
        table, words = self._room(n)
        self._rows.combine(
            _OP_CODES[op], n, step, False,
            a.table.data.ptr, a.words.data.ptr, a.words.size,
            b.table.data.ptr, b.words.data.ptr, b.words.size,
            table.data.ptr, words.data.ptr, w.room(n), w.result,
        )(self._stream)  # fmt: skip
        return self._ordered(n, table, words)[0]

    def _room(self, n: int) -> tuple[DeviceArray, DeviceArray]:
        return (
            cupy.empty(max(tile_count(n), 1), np.uint64),
            cupy.empty(room_nwords(n, self._dtype), np.uint32),
        )

    def _ordered(self, n: int, table: DeviceArray, words: DeviceArray) -> tuple[Body, int]:
        """Put records in the order of their tiles."""
        w = self._workspace
        nwords, checksum, status, raw = w.read()
        if status == rows.DAMAGED:
            raise StreamError("damaged stream: a length is wrong")
        if status == rows.OVERFLOW:
            raise OverflowError(
                "the codes of a sum outgrow the format: too many streams, or too fine a bound"
            )
        tiles = tile_count(n)
        parts = cupy.empty(rows.order_nbytes(n), np.uint8)
        body = Body(
            cupy.empty(max(tiles, 1), np.uint64), cupy.empty(max(nwords, 1), np.uint32), checksum
        )
        self._rows.order(
            n, table.data.ptr, words.data.ptr, parts.data.ptr, w.room(n),
            body.table.data.ptr, body.words.data.ptr,
        )(self._stream)  # fmt: skip
        return Body(body.table[:tiles], body.words[:nwords], checksum), raw

    def _check(self, body: Body) -> None:
        _, checksum, status, _ = self._workspace.read()
        if status == rows.DAMAGED or checksum != body.checksum:
            raise StreamError("damaged stream: a length or the checksum is wrong")


def plain_checksum(words: DeviceArray, kind: int) -> int:
    """Return the checksum of plain words (docs/format.md section 5)."""
    total = 0
    for first in range(0, words.size, 1 << 22):  # a bounded room for the products
        part = words[first : first + (1 << 22)].astype(np.uint64)
        index = cupy.arange(part.size, dtype=np.uint64)
        factor = ((index % TILE + 1) * np.uint64(K32) & np.uint64(0xFFFFFFFF)) | np.uint64(1)
        padded = cupy.zeros(tile_count(part.size) * TILE, np.uint64)
        padded[: part.size] = part * factor
        sums = padded.reshape(-1, TILE).sum(axis=1).get().tolist()
        for k, of_words in enumerate(sums):
            nwords = min(TILE, part.size - k * TILE)
            number = first // TILE + k
            weight = (number * int(K64) | 1) % 2**64
            total += (of_words + kind * int(K32) + nwords) * weight
    return total % 2**64
