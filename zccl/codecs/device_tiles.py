"""Rows of values to tables and records and back, by the CUDA kernels, on a stream."""

from __future__ import annotations

import functools
import math
import threading

import cupy
import numpy as np

from zccl.codecs.tiles import Body, Grid, Tiles, Values, axes_of, room_nwords, tile_count
from zccl.device import DeviceArray
from zccl.errors import StreamError
from zccl.formats import TILE
from zccl.kernels.cpu.checksum import K32, K64
from zccl.kernels.cuda import rows
from zccl.kernels.cuda.rows import Rows
from zccl.ops import Op
from zccl.typing import Array

_OP_CODES = {Op.SUM: 0, Op.AVG: 0, Op.MAX: 1, Op.MIN: 2}


_SLOTS = 3  # results of four numbers each: of an operation, and of checks of its two operands


class _Workspace:
    """A zeroed work area of one stream, and pinned memory that kernels leave their results in."""

    def __init__(self) -> None:
        self.work = cupy.zeros(1 << 16, np.uint8)
        pinned = cupy.cuda.alloc_pinned_memory(32 * _SLOTS)
        self.result = pinned.ptr
        self.numbers = np.frombuffer(pinned, np.int64, 4 * _SLOTS).reshape(_SLOTS, 4)

    def room(self, n: int) -> int:
        """Return the address of a work area for n values."""
        if self.work.size < rows.work_nbytes(n):
            self.work = cupy.zeros(rows.work_nbytes(n), np.uint8)
        return int(self.work.data.ptr)

    def slot(self, k: int) -> int:
        """Return the address of a result."""
        return int(self.result) + 32 * k

    def wait(self) -> None:
        """Wait for the stream, whose results are then there."""
        cupy.cuda.get_current_stream().synchronize()


@functools.lru_cache(64)
def _workspace_of(device: int, stream: int, thread: int) -> _Workspace:
    return _Workspace()


@functools.lru_cache(64)
def rows_of(device: int, dtype: np.dtype) -> Rows:
    """Return the kernels for a value type on a device, which is the current one."""
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
        self._rows = rows_of(device, self._dtype)
        self._workspace = _workspace_of(device, self._stream, threading.get_ident())

    def finite_range(self, values: DeviceArray, fill: float) -> tuple[float, float]:
        """Return the smallest and largest finite value that is not `fill`; (inf, -inf) for none."""
        if not values.size:
            return math.inf, -math.inf
        w = self._workspace
        self._rows.value_range(
            values.data.ptr, values.size, fill, w.room(values.size), w.slot(0)
        )(self._stream)  # fmt: skip
        w.wait()
        low, high = w.numbers[0, :2].view(np.float64).tolist()
        return low, high

    def compress(
        self, values: Values, grid: Grid, table: DeviceArray, words: DeviceArray
    ) -> tuple[int, int, int]:
        """Compress values; records lie in any order.

        Returns the words in use, the checksum, and how many values are raw.
        """
        n, w = values.size, self._workspace
        row = self._gathered(values)
        self._rows.compress(
            row.data.ptr, n, grid.step, grid.error_bound, grid.movement, grid.ranks, grid.rank,
            grid.fill, table.data.ptr, words.data.ptr, w.room(n), w.slot(0), axes=axes_of(values),
        )(self._stream)  # fmt: skip
        return self._outcome()

    def _gathered(self, values: Values) -> DeviceArray:
        """Return values as a row of tiles."""
        if not isinstance(values, Tiles):
            return values
        row = cupy.empty(values.size, values.dtype)
        self._rows.gather(
            values.values.data.ptr, row.data.ptr, values.first, values.size, values.tiling
        )(self._stream)  # fmt: skip
        return row

    def encode(self, values: Values, grid: Grid) -> tuple[Body, int]:
        """Compress values: the body, records in the order of their tiles, and how many are raw."""
        table, words = self._room(values.size)
        nwords, checksum, raw = self.compress(values, grid, table, words)
        return self._ordered(values.size, table, words, nwords, checksum), raw

    def decode(self, body: Body, step: float, out: Values, reduced: bool = False) -> None:
        """Decompress a body into `out`.

        Raises
        ------
        StreamError
            When it is damaged.
        """
        w = self._workspace
        self.decompress(body, step, 1.0, reduced, out, w.numbers[0])
        w.wait()
        self.check(w.numbers[0], body.checksum)

    def decompress(
        self,
        body: Body,
        step: float,
        divisor: float,
        reduced: bool,
        out: Values,
        verdict: Array,
    ) -> None:
        """Start to decompress a body into `out`; `verdict`, pinned memory, is for `check` later."""
        is_row = not isinstance(out, Tiles)
        row = out if is_row else cupy.empty(out.size, out.dtype)
        self._rows.decompress(
            body.table.data.ptr, body.words.data.ptr, body.words.size, step, divisor, reduced,
            row.data.ptr, out.size, self._workspace.room(out.size), verdict.ctypes.data,
            axes=axes_of(out),
        )(self._stream)  # fmt: skip
        if not is_row:
            self._rows.scatter(
                out.values.data.ptr, row.data.ptr, out.first, out.size, out.tiling
            )(self._stream)  # fmt: skip

    def combine(self, a: Body, b: Body, op: Op, n: int, step: float, axes: int = 1) -> Body:
        """Reduce two bodies of n values on one grid; records in the order of their tiles.

        Raises
        ------
        StreamError
            When one is damaged.
        OverflowError
            When the codes of a sum outgrow the format.
        """
        table, words = self._room(n)
        nwords, checksum = self.hop(a, b, op, n, step, table, words, keep_small=False, axes=axes)
        return self._ordered(n, table, words, nwords, checksum)

    def hop(
        self,
        a: Body,
        b: Body,
        op: Op,
        n: int,
        step: float,
        table: DeviceArray,
        words: DeviceArray,
        keep_small: bool = True,
        axes: int = 1,
    ) -> tuple[int, int]:
        """Do as `combine` into given memory; records lie in any order.

        Returns the words in use and the checksum.
        """
        w = self._workspace
        self._start_check(n, a, 1)
        self._start_check(n, b, 2)
        self._rows.combine(
            _OP_CODES[op], n, step, keep_small,
            a.table.data.ptr, a.words.data.ptr, a.words.size,
            b.table.data.ptr, b.words.data.ptr, b.words.size,
            table.data.ptr, words.data.ptr, w.room(n), w.slot(0), axes,
        )(self._stream)  # fmt: skip
        nwords, checksum, _ = self._outcome(a, b)
        return nwords, checksum

    def hop_with_values(
        self,
        values: Values,
        grid: Grid,
        b: Body,
        op: Op,
        table: DeviceArray,
        words: DeviceArray,
    ) -> tuple[int, int, int]:
        """Reduce values and a body on one grid into given memory; records lie in any order.

        Returns the words in use, the checksum, and how many values are raw.

        Raises
        ------
        StreamError, OverflowError
            As `combine`.
        """
        if isinstance(values, Tiles):
            return self._hop_with_tiles(values, grid, b, op, table, words)
        n, w = values.size, self._workspace
        own = cupy.empty(self._rows.own_nbytes(n), np.uint8)
        self._start_check(n, b, 1)
        self._rows.combine_with_values(
            _OP_CODES[op], values.data.ptr, n, grid.step, grid.ranks, grid.rank, grid.fill,
            own.data.ptr, b.table.data.ptr, b.words.data.ptr, b.words.size,
            table.data.ptr, words.data.ptr, w.room(n), w.slot(0),
        )(self._stream)  # fmt: skip
        return self._outcome(b)

    def _hop_with_tiles(
        self,
        values: Tiles,
        grid: Grid,
        b: Body,
        op: Op,
        table: DeviceArray,
        words: DeviceArray,
    ) -> tuple[int, int, int]:
        """Do as `hop_with_values` in two steps; no kernel does both for tiles of several axes."""
        n = values.size
        own_table, own_words = self._room(n)
        nwords, checksum, raw = self.compress(values, grid, own_table, own_words)
        own = Body(own_table, own_words[:nwords], checksum)
        axes = values.tiling.axes
        return *self.hop(own, b, op, n, grid.step, table, words, axes=axes), raw

    def check(self, verdict: Array, checksum: int) -> None:
        """Raise StreamError where a verdict says that a body is damaged."""
        _, found, status, _ = verdict.tolist()
        if status == rows.DAMAGED or found % 2**64 != checksum:
            raise StreamError("damaged stream: a length or the checksum is wrong")

    def _start_check(self, n: int, body: Body, slot: int) -> None:
        w = self._workspace
        self._rows.verify(
            n, body.table.data.ptr, body.words.data.ptr, body.words.size, w.room(n), w.slot(slot)
        )(self._stream)  # fmt: skip

    def _outcome(self, *operands: Body) -> tuple[int, int, int]:
        """Wait for an operation; returns its words, checksum and raw values."""
        w = self._workspace
        w.wait()
        for slot, body in enumerate(operands, 1):
            self.check(w.numbers[slot], body.checksum)
        nwords, checksum, status, raw = w.numbers[0].tolist()
        if status == rows.DAMAGED:
            raise StreamError("damaged stream: a length is wrong")
        if status == rows.OVERFLOW:
            raise OverflowError(
                "the codes of a sum outgrow the format: too many streams, or too fine a bound"
            )
        return nwords, checksum % 2**64, raw

    def _room(self, n: int) -> tuple[DeviceArray, DeviceArray]:
        return (
            cupy.empty(max(tile_count(n), 1), np.uint64),
            cupy.empty(room_nwords(n, self._dtype), np.uint32),
        )

    def _ordered(
        self, n: int, table: DeviceArray, words: DeviceArray, nwords: int, checksum: int
    ) -> Body:
        """Put records in the order of their tiles."""
        tiles = tile_count(n)
        parts = cupy.empty(rows.order_nbytes(n), np.uint8)
        body = Body(
            cupy.empty(max(tiles, 1), np.uint64), cupy.empty(max(nwords, 1), np.uint32), checksum
        )
        self._rows.order(
            n, table.data.ptr, words.data.ptr, parts.data.ptr, self._workspace.room(n),
            body.table.data.ptr, body.words.data.ptr,
        )(self._stream)  # fmt: skip
        return Body(body.table[:tiles], body.words[:nwords], checksum)


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
