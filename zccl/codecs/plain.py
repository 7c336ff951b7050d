"""Plain values: the reductions of numbers as they are, and the codec that sends them so."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from zccl import pool
from zccl.codecs.places import Place
from zccl.ops import Op
from zccl.typing import Array, Bytes


def reduce_plain(op: Op, a: Array, b: Array) -> Array:
    """Reduce two arrays element by element.

    Sums are those of the dtype. Maxima and minima propagate NaN and take -0 for less than +0, so
    that their order does not matter; NaN results lose their payload.
    """
    with np.errstate(all="ignore"):
        if op in (Op.SUM, Op.AVG):
            result = np.asarray(np.add(a, b))
        else:
            result = np.asarray(np.maximum(a, b) if op is Op.MAX else np.minimum(a, b))
            if result.dtype.kind == "f":
                zero = (a == 0) & (b == 0)
                # Sums of zeros: -0 only from two of them. Minima: the same with all signs changed.
                result[zero] = (a + b)[zero] if op is Op.MAX else -((-a) + (-b))[zero]
        if result.dtype.kind in "fc":
            result[np.isnan(result)] = np.nan
    return result


class PlainCodec:
    """Carries elements as they are, for schedules that run without a bound.

    Parameters
    ----------
    source : 1-D ndarray
        Elements to send.
    place : Place
        Where the results go, of the same dtype; it may be the source.
    reduce : function of two arrays
        The reduction of a hop.
    divisor : float
        Results are divided by it (averages).
    """

    def __init__(
        self,
        source: Array,
        place: Place,
        reduce: Callable[[Array, Array], Array],
        divisor: float = 1.0,
    ):
        self._source = source
        self._place = place
        self._reduce = reduce
        self._divisor = divisor
        self.itemsize = source.dtype.itemsize
        self.escapes = 0
        self.seconds = 0.0

    def max_nbytes(self, part: slice) -> int:
        """Return the bytes of the message of these elements."""
        return (part.stop - part.start) * self.itemsize

    def encode(self, part: slice) -> Bytes:
        """Return the message of one's own elements."""
        message = pool.take(self.max_nbytes(part))
        message[:] = self._source[part].view(np.uint8)
        return message

    def combine(self, a: Bytes, b: Bytes, part: slice) -> Bytes:
        """Reduce two messages of the same elements."""
        start = time.perf_counter()
        result = self._reduce(a.view(self._source.dtype), b.view(self._source.dtype))
        self.seconds += time.perf_counter() - start
        return result.view(np.uint8)

    def add_own(self, message: Bytes, part: slice) -> Bytes:
        """Reduce a message and one's own elements."""
        start = time.perf_counter()
        result = self._reduce(message.view(self._source.dtype), self._source[part])
        self.seconds += time.perf_counter() - start
        return result.view(np.uint8)

    def decode(self, message: Bytes, part: slice) -> None:
        """Put the elements of a message in their place."""
        elements = message.view(self._source.dtype)
        self._place(part)[...] = elements if self._divisor == 1.0 else elements / self._divisor
