"""Plain values: the reductions of numbers as they are, and the codec that sends them so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from zccl.arrays import is_on_device
from zccl.codecs.coder import Coder
from zccl.codecs.host_coder import HostCoder
from zccl.codecs.places import Place
from zccl.errors import StreamError
from zccl.ops import Op
from zccl.typing import Array, Bytes


def reduce_plain(op: Op, a: Array, b: Array) -> Array:
    """Reduce two arrays element by element.

    Sums are those of the dtype. Maxima and minima propagate NaN and take -0 for less than +0, so
    that their order does not matter; NaN results lose their payload.
    """
    if is_on_device(a) and a.dtype.char in "fd":
        from zccl.codecs.device_plain import reduce_floats

        return reduce_floats(op, a, b)
    with np.errstate(all="ignore"):
        if op in (Op.SUM, Op.AVG):
            result = _array(np.add(a, b))
        else:
            result = _array(np.maximum(a, b) if op is Op.MAX else np.minimum(a, b))
            if result.dtype.kind == "f":
                zero = (a == 0) & (b == 0)
                # Sums of zeros: -0 only from two of them. Minima: the same with all signs changed.
                result[zero] = (a + b)[zero] if op is Op.MAX else -((-a) + (-b))[zero]
        if result.dtype.kind in "fc":
            result[np.isnan(result)] = np.nan
    return result


def divide(row: Array, divisor: float) -> None:
    """Divide a row of values in its place."""
    if is_on_device(row):
        row[...] = _divide(row, divisor)
    else:
        np.divide(row, divisor, out=row)


def _divide(a: Array, divisor: float) -> Array:
    if not is_on_device(a):
        return _array(a / divisor)
    from zccl.codecs.device_plain import divide_floats

    return divide_floats(a, divisor)


def _array(found: Any) -> Array:
    """Return an array where NumPy made a scalar of one; device arrays stay where they are."""
    return found if hasattr(found, "__cuda_array_interface__") else np.asarray(found)


class PlainCodec:
    """Carries elements as they are, for schedules that run without a bound.

    Parameters
    ----------
    source : Place
        Where the elements to send are.
    place : Place
        Where the results go, of the same dtype; it may be the source.
    dtype : dtype
        Of both.
    coder : Coder, optional
        What to work with; on the host by default.
    """

    def __init__(self, source: Place, place: Place, dtype: np.dtype, coder: Coder | None = None):
        self._source = source
        self._place = place
        self._coder = coder or HostCoder(dtype)
        self.memory = self._coder.memory
        self.itemsize = dtype.itemsize
        self.escapes = 0
        self.seconds = 0.0

    def max_nbytes(self, part: slice) -> int:
        """Return the bytes of the message of these elements."""
        return (part.stop - part.start) * self.itemsize

    def encode(self, part: slice) -> Bytes:
        """Return the message of one's own elements."""
        return self._coder.store(self._source(part))

    def decode(self, message: Bytes, part: slice) -> None:
        """Put the elements of a message in their place."""
        self._place(part)[...] = self._elements(message, part)

    def finish(self) -> None:
        """Wait for what is under way."""
        self._coder.finish()

    def _elements(self, message: Bytes, part: slice) -> Array:
        if message.size != self.max_nbytes(part):
            raise StreamError(f"damaged message of {message.size} bytes")
        return self._coder.elements(message)


class PlainReduction(PlainCodec):
    """Reduces elements as they are.

    Parameters
    ----------
    source, place, dtype, coder
        As for `PlainCodec`.
    reduce : function of two arrays
        The reduction of a hop.
    divisor : float
        Results are divided by it (averages).
    """

    def __init__(
        self,
        source: Place,
        place: Place,
        dtype: np.dtype,
        reduce: Callable[[Array, Array], Array],
        divisor: float = 1.0,
        coder: Coder | None = None,
    ):
        super().__init__(source, place, dtype, coder)
        self._reduce = reduce
        self._divisor = divisor

    def combine(self, a: Bytes, b: Bytes, part: slice) -> Bytes:
        """Reduce two messages of the same elements."""
        return self._reduced(self._elements(a, part), self._elements(b, part))

    def add_own(self, message: Bytes, part: slice) -> Bytes:
        """Reduce a message and one's own elements."""
        return self._reduced(self._elements(message, part), self._source(part))

    def _reduced(self, a: Array, b: Array) -> Bytes:
        start = time.perf_counter()
        message = self._coder.message(self._reduce(a, b))
        self.seconds += time.perf_counter() - start
        return message

    def decode(self, message: Bytes, part: slice) -> None:
        """Put the elements of a message in their place."""
        elements = self._elements(message, part)
        if self._divisor != 1.0:
            elements = _divide(elements, self._divisor)
        self._place(part)[...] = elements
