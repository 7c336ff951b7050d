"""Arrays at the edge: what is accepted, and how it becomes a row of values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zccl.formats import DTYPE_CODES
from zccl.typing import Array

_VALUE_DTYPES = {
    np.dtype(name): np.dtype(values)
    for name, values in (("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("c8", "f4"), ("c16", "f8"))
}


def host_array(array: Any, name: str) -> Array:
    """Return `array` as a NumPy array of native byte order, without a copy where it already is one.

    Raises
    ------
    TypeError
        When it is no array, is masked, or has a dtype that zccl cannot carry.
    """
    if type(array) is np.ndarray and array.dtype in DTYPE_CODES and array.flags.aligned:
        return array
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: got a masked array, whose mask would be lost; pass array.filled(value)"
        )
    if not isinstance(array, np.ndarray | np.generic | memoryview) and not hasattr(
        array, "__array_interface__"
    ):
        raise TypeError(f"{name}: got {type(array).__name__}, wanted a NumPy array")
    found = np.asarray(array)
    native = found.dtype.newbyteorder("=")
    if native not in DTYPE_CODES:
        raise TypeError(
            f"{name}: got dtype {found.dtype}, wanted one of {', '.join(map(str, DTYPE_CODES))}"
        )
    found = found.astype(native, copy=False)
    return found if found.flags.aligned else found.copy()


def value_dtype(dtype: np.dtype) -> np.dtype | None:
    """Return the dtype that the values of an array of native byte order are coded in.

    None for integers, which never are.
    """
    return _VALUE_DTYPES.get(dtype)


def to_values(array: Array) -> Array:
    """Return the row of values of a floating array, C order; a view where possible."""
    dtype = value_dtype(array.dtype)
    if array.dtype == dtype:
        return writeable(array.ravel())
    if array.dtype.kind != "c":
        return array.ravel().astype(dtype)
    return np.concatenate([array.real.reshape(-1), array.imag.reshape(-1)])


def values_target(out: Array) -> Array:
    """Return a row of values to fill for the array `out`: its own memory where possible."""
    dtype = value_dtype(out.dtype)
    if out.dtype == dtype and out.flags.carray:
        return np.asarray(out).reshape(-1)  # matrices stay matrices when reshaped
    dtype = value_dtype(out.dtype.newbyteorder("="))
    return np.empty(out.size * (2 if out.dtype.kind == "c" else 1), dtype)


def is_plain(array: Array) -> bool:
    """Whether an array's memory is a row of native numbers."""
    return array.dtype.isnative and array.flags.c_contiguous and array.flags.aligned


class _Alias:
    """An array's memory without its read-only flag."""

    def __init__(self, array: Array):
        self._array = array  # kept alive
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def writeable(array: Array) -> Array:
    """Return an array for kernels that only read: for read-only ones they would compile anew."""
    return array if array.flags.writeable else np.asarray(_Alias(array))


def from_values(values: Array, out: Array) -> None:
    """Put a row of values into the array `out`.

    Nothing to do where `values_target` gave its own memory.
    """
    out = np.asarray(out)
    if out.dtype.kind == "c":
        out.real = values[: out.size].reshape(out.shape)
        out.imag = values[out.size :].reshape(out.shape)
    elif out.size and not np.may_share_memory(values, out):
        with np.errstate(
            over="ignore"
        ):  # float16: a sum may leave its range, as it may in float16 itself
            out[...] = values.reshape(out.shape)


def same_memory(a: Array, b: Array) -> bool:
    """Whether two arrays are one: same address, shape, strides and dtype."""
    return (
        a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
        and a.shape == b.shape
        and a.strides == b.strides
        and a.dtype == b.dtype
    )


def check_writeable(out: Any, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Check that `out` can take a result of this shape and dtype, any layout and byte order.

    Raises
    ------
    TypeError
        When it is no NumPy array, masked, or of another dtype.
    ValueError
        When it has another shape or is read-only.
    """
    if type(out) is np.ndarray and out.dtype == dtype and out.shape == shape:
        if out.flags.writeable:
            return
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"{name}: got {type(out).__name__}, wanted a NumPy array")
    if out.dtype.newbyteorder("=") != dtype:
        raise TypeError(f"{name}: got dtype {out.dtype}, wanted {dtype}")
    if out.shape != shape:
        raise ValueError(f"{name}: got shape {out.shape}, wanted {shape}")
    if not out.flags.writeable:
        raise ValueError(f"{name}: got a read-only array, wanted a writeable one")


def refuse_stream(stream: object) -> None:
    """Raise ValueError when a stream was given for an array that is not on a GPU."""
    if stream is not None:
        raise ValueError(f"stream: got {stream!r}, wanted None: the array is not on a GPU")


def fill_number(fill: float | None, dtype: np.dtype) -> float:
    """Return a fill value as arrays of a dtype have it; NaN for none."""
    if fill is None or dtype.kind not in "fc":
        return math.nan
    with np.errstate(over="ignore"):
        return float(np.asarray(fill, np.empty(0, dtype).real.dtype))


def check_room(out: Any, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Check that `out` can take as many elements as this shape has, as MPI's flat buffers do.

    Raises
    ------
    TypeError, ValueError
        As `check_writeable`.
    """
    fits = isinstance(out, np.ndarray) and out.size == math.prod(shape)
    check_writeable(out, name, out.shape if fits else shape, dtype)
