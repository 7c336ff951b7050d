"""The kernels of the codec on rows of values on a GPU, timed by events.

Only launches lie between two events: results stay on the device until they are over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import cupy
import numpy as np

from zccl import errorbound
from zccl.bench.operations import with_escapes
from zccl.codecs.tiles import room_nwords, tile_count
from zccl.device import DeviceArray
from zccl.kernels.cuda.rows import GOOD, Rows, work_nbytes
from zccl.typing import Array

NAMES = ("compress", "reduction", "decompress", "hop", "hop_values", "verify", "escapes")
"""Compress with the bound promised; for a reduction; decompress; add two compressed arrays; add an
array and a compressed one; verify a compressed array; compress with one NaN in every tile."""

Call = Callable[[int], object]  # of a stream


def seconds(call: Call, rounds: int, warmup: int) -> float:
    """Return the mean time of a call on the device, from the first start to the last end."""
    stream = cupy.cuda.get_current_stream()
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(warmup):
        call(stream.ptr)
    start.record()
    for _ in range(rounds):
        call(stream.ptr)
    stop.record()
    stop.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, stop)) / rounds * 1e-3


class _Stream:
    """Room for one compressed array, a work area, and the result of the last operation on them."""

    def __init__(self, n: int, dtype: np.dtype):
        self.table = cupy.zeros(tile_count(n), np.uint64)
        self.words = cupy.zeros(room_nwords(n, dtype), np.uint32)
        self.work = cupy.zeros(work_nbytes(n), np.uint8)
        self.result = cupy.zeros(4, np.int64)
        self.nwords = 0
        self.raw = 0

    def read(self) -> None:
        """Wait, and take over what an operation said of the records."""
        nwords, _, status, self.raw = self.result.get().tolist()
        if status != GOOD:
            raise AssertionError(f"an operation ended with status {status}")
        self.nwords = nwords

    @property
    def nbytes(self) -> int:
        """Bytes of table and records."""
        return int(self.table.nbytes + 4 * self.nwords)

    @property
    def records(self) -> tuple[int, int]:
        """Addresses of table and words."""
        return int(self.table.data.ptr), int(self.words.data.ptr)

    @property
    def areas(self) -> tuple[int, int]:
        """Addresses of work area and result."""
        return int(self.work.data.ptr), int(self.result.data.ptr)


class Operation(NamedTuple):
    """An operation, and the bytes that it must read and write at least."""

    call: Call
    nbytes: int


class DeviceRow:
    """A field on the GPU, another operand for sums, and the field with escapes."""

    def __init__(self, values: Array):
        self.values: DeviceArray = cupy.asarray(values)
        self.other: DeviceArray = cupy.asarray(np.roll(values, values.size // 2))
        self.escaped: DeviceArray = cupy.asarray(with_escapes(values))
        self._copy = cupy.empty_like(self.values)

    def copy_gbps(self, rounds: int, warmup: int) -> float:
        """Return the rate of a copy, bytes read and written, in GB/s."""

        def copy(stream: int) -> None:
            cupy.copyto(self._copy, self.values)

        return 2 * self.values.nbytes / seconds(copy, rounds, warmup) / 1e9


class DeviceOperations:
    """The operations on one field at one bound.

    Parameters
    ----------
    row : DeviceRow
        Operands.
    bound : float
        Absolute bound of each operand.

    Attributes
    ----------
    calls : dict of str to Operation
        By the names of `NAMES`.
    decoded : CuPy array
        Where "decompress" writes.
    ratio, sum_ratio : float
        Of one array, and of the sum of two.
    escapes : int
        Values that travel as they are.
    """

    def __init__(self, row: DeviceRow, bound: float):
        values = row.values
        n, dtype = values.size, values.dtype
        step = errorbound.grid_step(bound, dtype)
        rows = Rows(dtype)
        moved, a, b, escaped, total, mixed = (_Stream(n, dtype) for _ in range(6))
        self.decoded = cupy.empty_like(values)
        own = cupy.zeros(rows.own_nbytes(n), np.uint8)
        check = cupy.zeros(4, np.int64)
        self._kept = [moved, a, b, escaped, total, mixed, own, check, row]

        def compress(source: DeviceArray, s: _Stream, rank: int, movement: bool) -> Call:
            return rows.compress(
                source.data.ptr, n, step, bound, movement, 1 if movement else 2, rank, math.nan,
                *s.records, *s.areas,
            )  # fmt: skip

        def read(s: _Stream, call: Call) -> Call:
            call(cupy.cuda.get_current_stream().ptr)
            s.read()
            return call

        # Kernels write as many words again each time, in any order: what is read stays true.
        moving = read(moved, compress(values, moved, 0, True))
        reducing = read(a, compress(values, a, 0, False))
        read(b, compress(row.other, b, 1, False))
        escaping = read(escaped, compress(row.escaped, escaped, 0, True))
        hop = read(total, rows.combine(
            0, n, step, True, *a.records, a.nwords, *b.records, b.nwords, *total.records,
            *total.areas,
        ))  # fmt: skip
        hop_values = read(mixed, rows.combine_with_values(
            0, values.data.ptr, n, step, 2, 0, math.nan, own.data.ptr, *b.records, b.nwords,
            *mixed.records, *mixed.areas,
        ))  # fmt: skip
        decompress = rows.decompress(
            *moved.records, moved.nwords, step, 1.0, False, self.decoded.data.ptr, n,
            moved.work.data.ptr, check.data.ptr,
        )  # fmt: skip
        verify = rows.verify(n, *a.records, a.nwords, a.work.data.ptr, check.data.ptr)
        for call in (decompress, verify):
            call(cupy.cuda.get_current_stream().ptr)
            if int(check.get()[2]) != GOOD:
                raise AssertionError("an undamaged stream was found damaged")
        nbytes = values.nbytes
        self.ratio, self.sum_ratio = nbytes / moved.nbytes, nbytes / total.nbytes
        self.escapes = moved.raw
        self.calls = {
            "compress": Operation(moving, nbytes + moved.nbytes),
            "reduction": Operation(reducing, nbytes + a.nbytes),
            "decompress": Operation(decompress, moved.nbytes + nbytes),
            "hop": Operation(hop, a.nbytes + b.nbytes + total.nbytes),
            "hop_values": Operation(hop_values, nbytes + b.nbytes + mixed.nbytes),
            "verify": Operation(verify, a.nbytes),
            "escapes": Operation(escaping, nbytes + escaped.nbytes),
        }
