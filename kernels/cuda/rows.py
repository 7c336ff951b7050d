"""What to launch for a row of values: the quick kernel for usual tiles, then the exact one.

Everything here takes addresses (int) in device memory and returns a `Sequence` of launches whose
parameters are packed; calling it with a stream starts the work. Results are read once the stream
has got there: four int64 (words of all records, checksum, status, raw values), in any memory that
the device can write. A work area of `work_nbytes` must be zero before the first call and is
afterwards.
"""

from __future__ import annotations

import math

import numpy as np

from zccl.formats import ESCAPES, MAX_DISTANCE, SMALL, TILE, ZERO, max_distance
from zccl.kernels.cuda import (
    combine,
    combine_rest,
    compress,
    compress_rest,
    decompress,
    decompress_rest,
    extremes,
    order,
    plain,
    tilings,
    value_range,
    verify,
)
from zccl.kernels.cuda.launch import (
    Kernel,
    Launch,
    Sequence,
    current_device,
    load,
    multiprocessors,
)
from zccl.kernels.cuda.placement import DAMAGED, GOOD, LIST_AT, OVERFLOW
from zccl.tiling import Tiling

__all__ = ["DAMAGED", "GOOD", "OVERFLOW", "KERNELS", "Rows", "order_nbytes", "work_nbytes"]

PROVEN_CODE = 2.0**13  # of float32 values on an ordinary step: half a unit in the last place of a
# decoded value is then less than the margin of the step

_NAMES = {1: "f32", 2: "f64"}


def _kernels() -> dict[str, Kernel]:
    kernels = [
        Kernel("combine", combine.combine_tiles, combine.SIGNATURE, combine.WARPS, 64),
        Kernel("extremes", extremes.extremes_tiles, extremes.SIGNATURE, extremes.WARPS, 64),
        Kernel("sum_groups", order.sum_groups, order.SUM_SIGNATURE, order.SUM_WARPS),
        Kernel("gather", order.gather, order.SIGNATURE, order.WARPS, 32),
        Kernel("verify", verify.verify_tiles, verify.SIGNATURE, verify.WARPS),
    ]
    for value_words, name in _NAMES.items():
        for module, function, kind, registers in [
            ("compress", compress.make(value_words), compress, 64),
            ("compress_rest", compress_rest.make(value_words), compress_rest, 80),
            ("decompress", decompress.make(value_words), decompress, 56),
            ("decompress_divided", decompress.make(value_words, True), decompress, 64),
            ("decompress_rest", decompress_rest.make(value_words), decompress_rest, 0),
            ("combine_rest", combine_rest.make(value_words), combine_rest, 0),
            ("value_range", value_range.make(value_words), value_range, 0),
            ("plain", plain.make(value_words), plain, 0),
            ("gather_tiles", tilings.make_gather(value_words), tilings, 0),
            ("scatter_tiles", tilings.make_scatter(value_words), tilings, 0),
        ]:
            kernels.append(
                Kernel(f"{module}_{name}", function, kind.SIGNATURE, kind.WARPS, registers)
            )
        for module, kind, registers in [
            # The float32 kernel is fastest with eight 16-byte loads of each lane under way.
            ("combine_values", combine, 80 if value_words == 1 else 64),
            ("combine_values_rest", combine_rest, 0),
            ("extremes_values", extremes, 72),
        ]:
            function = kind.make_with_values(value_words)
            kernels.append(
                Kernel(f"{module}_{name}", function, kind.VALUES_SIGNATURE, kind.WARPS, registers)
            )
    return {kernel.name: kernel for kernel in kernels}


KERNELS = _kernels()


def _kernels_of(suffix: str) -> list[Kernel]:
    """Return the kernels for a value type, and those for both."""
    others = {*_NAMES.values()} - {suffix}
    return [kernel for kernel in KERNELS.values() if kernel.name.split("_")[-1] not in others]


def work_nbytes(n: int) -> int:
    """Return the bytes of a work area for n values."""
    return LIST_AT + 4 * max(_tiles(n), 16)


def order_nbytes(n: int) -> int:
    """Return the bytes that `Rows.order` needs beside a work area."""
    return 8 * max(-(-_tiles(n) // order.GROUP), 1)


def _tiles(n: int) -> int:
    return -(-n // TILE)


def quick_code(
    dtype: np.dtype, step: float, error_bound: float, movement: bool, ranks: int
) -> float:
    """Return the largest size of a code for which all tests of docs/format.md section 2 are proven.

    It is negative where none is.

    Two codes of that size are near enough to each other, decoded values are finite, and with
    `movement` they keep the bound: on an ordinary step its margin covers the rounding of decoded
    values, on one whose multiples are numbers of the dtype there is none.
    """
    is_single = dtype == np.float32
    largest = float(np.finfo(dtype).max)
    code = min(2.0**24 if is_single else 2.0**31 - 1, (MAX_DISTANCE // ranks) // 2)
    code = min(code, math.floor(min(largest / step, 2.0**60)))
    if not movement:
        return code
    proven = -1.0
    if step <= 2 * error_bound * (1 - 2.0**-10):
        proven = PROVEN_CODE if is_single else 2.0**40
    if step <= 2 * error_bound * (1 - 2.0**-20):
        mantissa, exponent = math.frexp(step)
        digits = int(mantissa * 2**53)
        lowest_bit = math.ldexp(digits & -digits, exponent - 53)
        digits_of_type = np.finfo(dtype).nmant + 1
        proven = max(proven, math.floor(2.0**digits_of_type * (lowest_bit / step)))
    return min(code, proven)


class Rows:
    """The kernels of one device, for rows of float32 or float64 values.

    All are loaded at once, before there is anything to launch: a load may wait for all that is on
    the device, transfers included that other hosts have yet to start.

    Parameters
    ----------
    dtype : numpy dtype
        Value type.
    """

    def __init__(self, dtype: np.dtype):
        self.dtype = np.dtype(dtype)
        self._device = current_device()
        self._value_words = self.dtype.itemsize // 4
        self._suffix = _NAMES[self._value_words]
        self._multiprocessors = multiprocessors(self._device)
        self._loaded = {
            kernel.name: load(kernel, self._device) for kernel in _kernels_of(self._suffix)
        }

    def _launch(self, name: str, blocks: int | tuple[int, int], *arguments: float) -> Launch:
        blocks = blocks if isinstance(blocks, tuple) else (max(blocks, 1), 1)
        return Launch(self._loaded[name], blocks, *arguments)

    def _rest_blocks(self, tiles: int, warps: int) -> int:
        """Return how many blocks fill the device, or suffice."""
        at_once = self._multiprocessors * (3 if warps > 1 else 14)
        return max(1, min(at_once, -(-tiles // warps)))

    def compress(
        self, values: int, n: int, step: float, error_bound: float, movement: bool, ranks: int,
        rank: int, fill: float, table: int, words: int, work: int, result: int,
        *, share: int = 0, strides: tuple[int, int, int, int] = (0, 0, 0, 0), axes: int = 1,
    ) -> Sequence:  # fmt: skip
        """Compress n values; records lie in any order.

        Arguments up to `fill` are those of the CPU kernel; `words` has room for all allowances.
        With `share`, a multiple of 1024, each so many values are a stream of their own, `strides`
        bytes apart in table, words, work areas and results. With more than one of `axes` they are
        values of `gather`.
        """
        fill = float(self.dtype.type(fill))
        code = quick_code(self.dtype, step, error_bound, movement, ranks)
        if not math.isnan(fill):
            code = -1.0  # each value is compared to it
        size = share or max(n, 1)
        shares = max(-(-n // size), 1)
        tiles = _tiles(min(size, n))
        near = quick_code(self.dtype, step, error_bound, False, ranks)
        everything = n < TILE or values % 16 != 0 or axes != 1
        small = float(2**24 // ranks) if self._value_words == 1 else -1.0
        launches = []
        if not everything:
            launches.append(self._launch(
                f"compress_{self._suffix}", (-(-tiles // compress.WARPS), shares),
                values, n, size, 1 / step, step, error_bound, code, near, small, fill,
                int(movement), rank, table, strides[0], words, strides[1], work, strides[2],
            ))  # fmt: skip
        launches.append(self._launch(
            f"compress_rest_{self._suffix}",
            (self._rest_blocks(tiles, compress_rest.WARPS), shares),
            values, n, size, 1 / step, step, error_bound, int(movement),
            float(max_distance(axes) // ranks), small, fill, rank,
            table, strides[0], words, strides[1], work, strides[2], int(everything),
            result, strides[3], axes,
        ))  # fmt: skip
        return Sequence(*launches)

    def order(
        self, n: int, table: int, words: int, parts: int, work: int, table_out: int, words_out: int
    ) -> Sequence:
        """Move records into the order of their tiles; `parts` has room for `order_nbytes`."""
        tiles = _tiles(n)
        if not tiles:
            return Sequence()
        return Sequence(
            self._launch(
                "sum_groups", -(-tiles // order.SUM_TILES), tiles, table, parts, work
            ),
            self._launch(
                "gather", -(-tiles // order.GROUP), tiles, table, words, parts, table_out,
                words_out,
            ),
        )  # fmt: skip

    def decompress(
        self, table: int, words: int, nwords: int, step: float, divisor: float, reduced: bool,
        out: int, n: int, work: int, result: int, axes: int = 1,
    ) -> Sequence:  # fmt: skip
        """Decompress n values; arguments are those of the CPU kernel."""
        # Quotients are corrected by remainders, which must not underflow.
        divides = divisor != 1 and not (1e-200 < step < 1e200 and 1 <= divisor < 2**40)
        everything = n < TILE or out % 16 != 0 or divides or axes != 1
        launches = []
        if not everything:
            name = "decompress" if divisor == 1 else "decompress_divided"
            launches.append(self._launch(
                f"{name}_{self._suffix}", -(-_tiles(n) // decompress.WARPS),
                out, n, step, divisor, int(reduced), table, words, nwords, work,
            ))  # fmt: skip
        launches.append(self._launch(
            f"decompress_rest_{self._suffix}", self._rest_blocks(_tiles(n), 1),
            out, n, step, divisor, int(reduced), table, words, nwords, work, int(everything),
            result, axes,
        ))  # fmt: skip
        return Sequence(*launches)

    def verify(
        self, n: int, table: int, words: int, nwords: int, work: int, result: int
    ) -> Sequence:
        """Check all lengths of a stream, and sum its records."""
        blocks = -(-_tiles(n) // (verify.WARPS * verify.TILES))
        return Sequence(self._launch(
            "verify", blocks, n, table, words, nwords, self._value_words, work, result
        ))  # fmt: skip

    def combine(
        self, op: int, n: int, step: float, keep_small: bool,
        table_a: int, words_a: int, nwords_a: int,
        table_b: int, words_b: int, nwords_b: int,
        table: int, words: int, work: int, result: int, axes: int = 1,
    ) -> Sequence:  # fmt: skip
        """Reduce two streams; arguments are those of the CPU kernel.

        Lengths are checked, checksums of the operands are not: see `verify`.
        """
        quick_extremes = axes == 1 and self._has_quick_extremes(step)
        everything = n < TILE or (op != 0 and not quick_extremes)
        operands = table_a, words_a, nwords_a, table_b, words_b, nwords_b
        launches = []
        if op != 0 and not everything:
            launches.append(self._launch(
                "extremes", -(-_tiles(n) // extremes.WARPS), op, n, self._allowed() & ~ESCAPES,
                self._extreme_small(), *operands, table, words, work,
            ))  # fmt: skip
        elif not everything:
            launches.append(self._launch(
                "combine", -(-_tiles(n) // combine.WARPS), n, int(keep_small), self._allowed(),
                *operands, table, words, work,
            ))  # fmt: skip
        launches.append(self._launch(
            f"combine_rest_{self._suffix}", self._rest_blocks(_tiles(n), 1),
            op, n, step, int(keep_small), *operands, table, words, work, int(everything), result,
            axes,
        ))  # fmt: skip
        return Sequence(*launches)

    def own_nbytes(self, n: int) -> int:
        """Return the bytes that `combine_with_values` needs beside a work area."""
        return 4 * combine_rest.OWN_NWORDS * self._rest_blocks(_tiles(n), 1)

    def combine_with_values(
        self, op: int, values: int, n: int, step: float, ranks: int, rank: int, fill: float,
        own: int, table_b: int, words_b: int, nwords_b: int,
        table: int, words: int, work: int, result: int,
    ) -> Sequence:  # fmt: skip
        """Reduce values and a stream; arguments are those of the CPU kernel.

        `own` has room for `own_nbytes`.
        """
        fill = float(self.dtype.type(fill))
        code = quick_code(self.dtype, step, 0.0, False, ranks)
        near = code
        if not math.isnan(fill):
            code = -1.0
        everything = n < TILE or values % 16 != 0
        everything = everything or (op != 0 and not self._has_quick_extremes(step))
        small = float(2**24 // ranks) if self._value_words == 1 else -1.0
        operand = table_b, words_b, nwords_b
        launches = []
        if op != 0 and not everything:
            launches.append(self._launch(
                f"extremes_values_{self._suffix}", -(-_tiles(n) // extremes.WARPS),
                op, values, n, 1 / step, min(code, float(extremes.REACH)),
                self._allowed() & ~ESCAPES, self._extreme_small(), *operand, table, words, work,
            ))  # fmt: skip
        elif not everything:
            launches.append(self._launch(
                f"combine_values_{self._suffix}", -(-_tiles(n) // combine.WARPS),
                values, n, 1 / step, step, code, near, small, fill, rank, self._allowed(), *operand,
                table, words, work,
            ))  # fmt: skip
        launches.append(self._launch(
            f"combine_values_rest_{self._suffix}", self._rest_blocks(_tiles(n), 1),
            op, values, n, 1 / step, step, float(MAX_DISTANCE // ranks), small, fill, rank, own,
            *operand, table, words, work, int(everything), result,
        ))  # fmt: skip
        return Sequence(*launches)

    def gather(self, values: int, row: int, first: int, n: int, tiling: Tiling) -> Sequence:
        """Copy the values of tiles of several axes into a row of n, from tile `first` on."""
        return self._move("gather_tiles", values, row, first, n, tiling)

    def scatter(self, values: int, row: int, first: int, n: int, tiling: Tiling) -> Sequence:
        """Copy a row of n values, from tile `first` on, to their places in an array."""
        return self._move("scatter_tiles", values, row, first, n, tiling)

    def _move(
        self, name: str, values: int, row: int, first: int, n: int, tiling: Tiling
    ) -> Sequence:
        blocks = min(-(-n // (TILE * tilings.WARPS)), 8 * self._multiprocessors)
        return Sequence(self._launch(
            f"{name}_{self._suffix}", blocks, values, row, first, n, tiling.axes,
            *tiling.lengths[1:],
        ))  # fmt: skip

    def value_range(self, values: int, n: int, fill: float, work: int, result: int) -> Sequence:
        """Find the smallest and largest finite value; the result is two float64."""
        blocks = min(-(-n // TILE), 4 * self._multiprocessors)
        return Sequence(self._launch(
            f"value_range_{self._suffix}", blocks, values, n, float(self.dtype.type(fill)), work,
            result,
        ))  # fmt: skip

    def _has_quick_extremes(self, step: float) -> bool:
        """Whether all values of codes in reach are finite."""
        return 4 * extremes.REACH * step < float(np.finfo(self.dtype).max)

    def _extreme_small(self) -> int:
        """Return the largest code in a SMALL tile of winners: they are never added up."""
        return 2**24 if self._value_words == 1 else -1

    PLAIN_SUM, PLAIN_MAX, PLAIN_MIN, PLAIN_QUOTIENT = (
        plain.SUM, plain.MAX, plain.MIN, plain.QUOTIENT,
    )  # fmt: skip

    def plain(self, op: int, a: int, b: int, n: int, divisor: float, out: int) -> Sequence:
        """Reduce two rows of plain values, or divide one by `divisor`, into `out`."""
        blocks = min(-(-n // (32 * plain.WARPS)), 16 * self._multiprocessors)
        return Sequence(self._launch(
            f"plain_{self._suffix}", blocks, op, a, b, n, divisor, out
        ))  # fmt: skip

    def _allowed(self) -> int:
        """Return the kinds of tiles that quick hops take."""
        return ZERO | ESCAPES | (SMALL if self._value_words == 1 else 0)
