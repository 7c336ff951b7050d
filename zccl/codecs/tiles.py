"""Rows of values to tables and records and back, by the CPU kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from zccl.codecs.threads import MAX_THREADS, run_all, tile_runs
from zccl.errors import StreamError
from zccl.formats import SHORT_NWORDS, SHORT_SLACK, TILE
from zccl.kernels.cpu import combine as combine_kernel
from zccl.kernels.cpu.combine import combine_tiles
from zccl.kernels.cpu.compress import compress_tiles
from zccl.kernels.cpu.decompress import decompress_tiles
from zccl.kernels.cpu.stages import OVERRUN
from zccl.ops import Op
from zccl.tiling import Tiling
from zccl.typing import Array

SLACK = OVERRUN // 4  # words that kernels may touch behind the records of a thread

_OP_CODES = {Op.SUM: 0, Op.AVG: 0, Op.MAX: 1, Op.MIN: 2}


@dataclass(frozen=True)
class Grid:
    """How values are quantised.

    Attributes
    ----------
    step : float
        Grid step.
    error_bound : float
        Bound of a decoded value against its source; only tested when `movement`.
    movement : bool
        Whether decoded values keep the bound as they are; False for sums, which are rounded once at
        the end.
    ranks : int
        Number of arrays that may be added up.
    rank : int
        Written beside escaped values.
    fill : float
        Value that always escapes; NaN for none.
    """

    step: float
    error_bound: float
    movement: bool = True
    ranks: int = 1
    rank: int = 0
    fill: float = math.nan


@dataclass
class Body:
    """Table and records of a row of n values: NumPy arrays, or CuPy's in device memory."""

    table: Any  # uint64, one entry a tile
    words: Any  # uint32
    checksum: int

    @property
    def nbytes(self) -> int:
        """Bytes of table and records."""
        return int(self.table.nbytes + self.words.nbytes)


@dataclass(frozen=True)
class Tiles:
    """A run of the tiles of an array, in the order of its tiling: what a slice of a row is to rows.

    Attributes
    ----------
    values : 1-D ndarray
        All values of the array, C order.
    tiling : Tiling
        How it is cut; along more than one axis.
    part : slice
        Of the row of tiles, in values; its ends are multiples of 1024.
    """

    values: Any
    tiling: Tiling
    part: slice

    @classmethod
    def of(cls, values: Any, tiling: Tiling) -> Any:
        """Return all tiles of an array; for a row the values themselves."""
        return values if tiling.axes == 1 else cls(values, tiling, slice(0, tiling.n))

    def __getitem__(self, part: slice) -> Tiles:
        """Return a run of these tiles."""
        start = self.part.start
        return Tiles(self.values, self.tiling, slice(start + part.start, start + part.stop))

    @property
    def size(self) -> int:
        """Values, those beyond the edges of the array included."""
        return self.part.stop - self.part.start

    @property
    def dtype(self) -> np.dtype:
        """Of the values."""
        dtype: np.dtype = self.values.dtype
        return dtype

    @property
    def first(self) -> int:
        """Number of the first tile in the array."""
        return self.part.start // TILE


Values = Any  # a row (1-D ndarray) or `Tiles`


def axes_of(values: Values) -> int:
    """Return along how many axes tiles are cut."""
    return values.tiling.axes if isinstance(values, Tiles) else 1


def _run(values: Values, run: slice) -> tuple[Array, tuple[int, int, int, int], int]:
    """Return the array, tiling and first tile that a kernel takes for a run of tiles."""
    if isinstance(values, Tiles):
        tiling = values.tiling
        return values.values, (tiling.axes, *tiling.lengths[1:]), values.first + run.start
    part = values[run.start * TILE : run.stop * TILE]
    return part, (1, 1, 1, part.size), 0


def tile_count(n: int) -> int:
    """Tiles of a row of n values."""
    return -(-n // TILE)


def room_nwords(n: int, dtype: np.dtype) -> int:
    """Return the words of an array that records of n values are written into.

    These are the allowances of docs/format.md section 4 and a few that kernels touch behind them.
    """
    value_words = dtype.itemsize // 4
    full, short = divmod(n, TILE)
    last = max(short * value_words + SHORT_SLACK, SHORT_NWORDS) if short else 0
    return full * TILE * value_words + last + SLACK * MAX_THREADS


def encode(
    values: Values, grid: Grid, table: Array, words: Array, threads: int = 1
) -> tuple[Body, int]:
    """Compress values into the given arrays.

    Returns the body (views of them) and how many values travel raw. With several threads each
    compresses a run of tiles; then the records are moved together.
    """

    def work(run: slice) -> tuple[int, int, int]:
        room = words[_start(runs, run, values.dtype) :]
        return compress_tiles(
            *_run(values, run), grid.step, grid.error_bound, grid.movement, grid.ranks, grid.rank,
            grid.fill, run.start, table[run], room,
        )  # fmt: skip

    runs = tile_runs(table.size, threads)
    results = run_all(work, runs)
    used = _move_together(runs, [int(r[0]) for r in results], values.dtype, table, words)
    checksum = sum(int(r[1]) for r in results) % 2**64
    return Body(table, words[:used], checksum), sum(int(r[2]) for r in results)


def decode(
    body: Body,
    step: float,
    out: Values,
    divisor: float = 1.0,
    reduced: bool = False,
    threads: int = 1,
) -> None:
    """Decompress a body into `out`.

    Raises
    ------
    StreamError
        When it is damaged.
    """

    def work(run: slice) -> tuple[int, int]:
        part, tiling, origin = _run(out, run)
        return decompress_tiles(
            body.table[run], body.words, body.words.size, step, divisor, reduced, run.start,
            part, tiling, origin,
        )  # fmt: skip

    results = run_all(work, tile_runs(body.table.size, threads))
    _check(body, [int(r[0]) for r in results], [int(r[1]) for r in results])


def combine(
    a: Body,
    b: Body,
    op: Op,
    n: int,
    dtype: np.dtype,
    step: float,
    table: Array,
    words: Array,
    keep_small: bool,
    threads: int = 1,
    axes: int = 1,
) -> Body:
    """Reduce two bodies of n values on one grid into the given arrays.

    Raises
    ------
    StreamError
        When one is damaged.
    OverflowError
        When the codes of a sum outgrow the format.
    """

    def work(run: slice) -> tuple[int, int, int, int, int]:
        room = words[_start(runs, run, dtype) :]
        return combine_tiles(
            _OP_CODES[op], min(n - run.start * TILE, (run.stop - run.start) * TILE), axes, step,
            keep_small, run.start,
            a.table[run], a.words, a.words.size,
            b.table[run], b.words, b.words.size,
            table[run], room, np.empty(0, dtype),
        )  # fmt: skip

    runs = tile_runs(table.size, threads)
    results = run_all(work, runs)
    statuses = [int(r[2]) for r in results]
    _check(a, statuses, [int(r[3]) for r in results])
    _check(b, statuses, [int(r[4]) for r in results])
    _refuse_overflow(statuses)
    used = _move_together(runs, [int(r[0]) for r in results], dtype, table, words)
    return Body(table, words[:used], sum(int(r[1]) for r in results) % 2**64)


def combine_with_values(
    values: Values, grid: Grid, b: Body, op: Op, table: Array, words: Array, threads: int = 1
) -> tuple[Body, int]:
    """Reduce values and a body on one grid into the given arrays.

    Returns what `combine(encode(values), b)` would, and how many values travel raw.

    Raises
    ------
    StreamError, OverflowError
        As `combine`.
    """

    def work(run: slice) -> tuple[int, int, int, int, int]:
        return combine_kernel.combine_with_values(
            _OP_CODES[op], *_run(values, run), grid.step, grid.ranks,
            grid.rank, grid.fill, run.start,
            b.table[run], b.words, b.words.size,
            table[run], words[_start(runs, run, values.dtype) :],
        )  # fmt: skip

    runs = tile_runs(table.size, threads)
    results = run_all(work, runs)
    statuses = [int(r[2]) for r in results]
    _check(b, statuses, [int(r[3]) for r in results])
    _refuse_overflow(statuses)
    used = _move_together(runs, [int(r[0]) for r in results], values.dtype, table, words)
    body = Body(table, words[:used], sum(int(r[1]) for r in results) % 2**64)
    return body, sum(int(r[4]) for r in results)


def _refuse_overflow(statuses: list[int]) -> None:
    if combine_kernel.OVERFLOW in statuses:
        raise OverflowError(
            "the codes of a sum outgrow the format: too many streams, or too fine a bound"
        )


def _check(body: Body, statuses: list[int], checksums: list[int]) -> None:
    if combine_kernel.DAMAGED in statuses or sum(checksums) % 2**64 != body.checksum:
        raise StreamError("damaged stream: a length or the checksum is wrong")


def _start(runs: list[slice], run: slice, dtype: np.dtype) -> int:
    """Return the word where the room of a run of tiles starts."""
    return run.start * TILE * dtype.itemsize // 4 + SLACK * runs.index(run)


def _move_together(
    runs: list[slice], used: list[int], dtype: np.dtype, table: Array, words: Array
) -> int:
    """Close the gaps between the records of several threads; returns the words in use."""
    total = used[0] if used else 0
    for run, count in zip(runs[1:], used[1:], strict=True):
        start = _start(runs, run, dtype)
        words[total : total + count] = words[start : start + count]
        table[run] += np.uint64(total)
        total += count
    return total
