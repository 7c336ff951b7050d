"""Rows of values to tables and records and back, by the CPU kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zccl.errors import StreamError
from zccl.formats import SHORT_NWORDS, SHORT_SLACK, TILE
from zccl.kernels.cpu import combine as combine_kernel
from zccl.kernels.cpu.combine import combine_tiles
from zccl.kernels.cpu.compress import compress_tiles
from zccl.kernels.cpu.decompress import decompress_tiles
from zccl.kernels.cpu.stages import OVERRUN
from zccl.ops import Op
from zccl.typing import Array

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
    """Table and records of a row of n values."""

    table: Array  # uint64, one entry a tile
    words: Array  # uint32
    checksum: int

    @property
    def nbytes(self) -> int:
        """Bytes of table and records."""
        return self.table.nbytes + self.words.nbytes


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
    return full * TILE * value_words + last + OVERRUN // 4


def encode(values: Array, grid: Grid, table: Array, words: Array) -> tuple[Body, int]:
    """Compress values into the given arrays.

    Returns the body (views of them) and how many values travel raw.
    """
    nwords, checksum, raw = compress_tiles(
        values,
        grid.step,
        grid.error_bound,
        grid.movement,
        grid.ranks,
        grid.rank,
        grid.fill,
        table,
        words,
    )
    return Body(table, words[:nwords], int(checksum)), raw


def decode(
    body: Body, step: float, out: Array, divisor: float = 1.0, reduced: bool = False
) -> None:
    """Decompress a body into `out`.

    Raises
    ------
    StreamError
        When it is damaged.
    """
    status = decompress_tiles(
        body.table,
        body.words,
        body.words.size,
        np.uint64(body.checksum),
        step,
        divisor,
        reduced,
        out,
    )
    if status:
        raise StreamError("damaged stream: a length or the checksum is wrong")


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
) -> Body:
    """Reduce two bodies of n values on one grid into the given arrays.

    Raises
    ------
    StreamError
        When one is damaged.
    OverflowError
        When the codes of a sum outgrow the format.
    """
    nwords, checksum, status = combine_tiles(
        _OP_CODES[op], n, step, keep_small,
        a.table, a.words, a.words.size, np.uint64(a.checksum),
        b.table, b.words, b.words.size, np.uint64(b.checksum),
        table, words, np.empty(0, dtype),
    )  # fmt: skip
    if status == combine_kernel.DAMAGED:
        raise StreamError("damaged stream: a length or the checksum is wrong")
    if status == combine_kernel.OVERFLOW:
        raise OverflowError(
            "the codes of a sum outgrow the format: too many streams, or too fine a bound"
        )
    return Body(table, words[:nwords], int(checksum))
