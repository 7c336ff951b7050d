"""The operations of the codec on arrays that are there before, timed by the thread's CPU clock."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from zccl import errorbound
from zccl.formats import TILE
from zccl.kernels.cpu.value_range import value_range
from zccl.ops import Op
from zccl.typing import Array

NAMES = ("compress", "reduction", "decompress", "hop", "escapes")
"""Compress with the bound promised; for a reduction; decompress; add two compressed arrays;
compress with one NaN in every tile."""


def with_escapes(values: Array) -> Array:
    """Return a copy with one NaN in every tile, not always in the same place."""
    tiles = np.arange(0, values.size, TILE)
    places = np.minimum(tiles + (tiles // TILE * 617) % TILE, values.size - 1)
    copy = values.copy()
    copy[places] = np.nan
    return copy


def absolute_bound(values: Array, bound: float) -> float:
    """Return a bound that is a fraction of the value range as a number.

    Raises
    ------
    ValueError
        When there is no range.
    """
    found = errorbound.absolute_bound(bound, "rel", *value_range(values, np.nan))
    if not errorbound.grid_step(found, values.dtype):
        raise ValueError("the field is constant, or its range too small for the bound")
    return found


class Operations:
    """The operations of one `zccl.codecs.tiles` module on one row of values.

    Parameters
    ----------
    tiles : module
        `zccl.codecs.tiles`, or its plain-loop twin.
    values, other, escaped : 1-D ndarray, float32 or float64
        Two operands of a sum, and the first with escapes.
    bound : float
        Absolute bound of each operand.

    Attributes
    ----------
    calls : dict of str to function
        By the names of `NAMES`.
    decoded : ndarray
        Where "decompress" writes.
    """

    def __init__(
        self, tiles: ModuleType, values: Array, other: Array, escaped: Array, bound: float
    ):
        self._tiles = tiles
        n, dtype = values.size, values.dtype
        step = errorbound.grid_step(bound, dtype)
        movement = tiles.Grid(step, bound)
        reduction = tiles.Grid(step, bound, movement=False, ranks=2)
        encode, decode = _on_one_thread(tiles.encode), _on_one_thread(tiles.decode)
        combine = _on_one_thread(tiles.combine)
        self.decoded = np.empty_like(values)
        rooms = [self._room(n, dtype) for _ in range(4)]
        body, self.escapes = encode(values, movement, *rooms[0])
        first, _ = encode(values, reduction, *rooms[1])
        second, _ = encode(other, reduction, *rooms[2])
        total = combine(first, second, Op.SUM, n, dtype, step, *rooms[3], keep_small=True)
        self.ratio = values.nbytes / body.nbytes
        self.sum_ratio = values.nbytes / total.nbytes
        # Kernels write the same bytes again each time, so `body`, `first` and `second` stay true.
        self.calls: dict[str, Callable[[], object]] = {
            "compress": partial(encode, values, movement, *rooms[0]),
            "reduction": partial(encode, values, reduction, *rooms[1]),
            "decompress": partial(decode, body, step, self.decoded),
            "hop": partial(
                combine, first, second, Op.SUM, n, dtype, step, *rooms[3], keep_small=True
            ),
            "escapes": partial(encode, escaped, movement, *rooms[3]),
        }

    def _room(self, n: int, dtype: np.dtype) -> tuple[Array, Array]:
        table = np.empty(self._tiles.tile_count(n), np.uint64)
        return table, np.empty(self._tiles.room_nwords(n, dtype), np.uint32)


def _on_one_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function for one thread, where it has a choice."""
    if "threads" in inspect.signature(function).parameters:
        return partial(function, threads=1)
    return function


def cpu_seconds(
    calls: Mapping[str, Callable[[], object]], rounds: int, warmup: int
) -> dict[str, Array]:
    """Return each call's CPU seconds of this thread in every round; calls take turns."""
    seconds = np.empty((len(calls), rounds))
    for i in range(-warmup, rounds):
        for k, call in enumerate(calls.values()):
            start = time.thread_time()
            call()
            stop = time.thread_time()
            if i >= 0:
                seconds[k, i] = stop - start
    return dict(zip(calls, seconds, strict=True))
