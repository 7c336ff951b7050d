"""Arrays at the edge: what is accepted, and how it becomes a row of values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zccl.device import (
    DeviceArray,
    device_array,
    device_from_values,
    device_values,
    device_values_target,
    is_device_array,
)
from zccl.formats import DTYPE_CODES, value_dtype
from zccl.streams import memory_for_caller, stream_pointer
from zccl.typing import Array


def given_array(array: Any, name: str) -> Array:
    """Return an array as NumPy's or, where it is on a GPU, CuPy's; a view where possible.

    Raises
    ------
    TypeError
        When it is no array, is masked, or has a dtype that zccl cannot carry.
    ValueError
        When it is on another GPU than the one that the call works on.
    """
    if type(array) is np.ndarray or not is_device_array(array):
        return host_array(array, name)
    found = device_array(array, name)
    check_device(found, name)
    return found


def is_on_device(array: Any) -> bool:
    """Whether an array is on a GPU."""
    return type(array) is not np.ndarray and is_device_array(array)


def check_device(array: DeviceArray, name: str) -> None:
    """Raise ValueError when a CuPy array is not on CuPy's current device."""
    import cupy

    current = cupy.cuda.runtime.getDevice()
    if array.device.id != current:
        raise ValueError(
            f"{name}: got an array on GPU {array.device.id}, wanted one on GPU {current}, where the"
            " other array is"
        )


def new_array(shape: Any, dtype: np.dtype, like: Array) -> Array:
    """Return an uninitialised array where another one is.

    Raises
    ------
    MemoryError
        When there is no room.
    """
    return empty(shape, dtype, is_on_device(like))


def empty(shape: Any, dtype: np.dtype, device: bool) -> Array:
    """Return an uninitialised array of NumPy, or of CuPy on its current device.

    Raises
    ------
    MemoryError
        When there is no room.
    """
    if not device:
        return np.empty(shape, dtype)
    import cupy

    try:
        return cupy.empty(shape, dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise MemoryError(str(error)) from error


def contiguous_row(array: Array) -> Array:
    """Return the elements of an array as a row in C order, a view where possible."""
    if is_on_device(array):
        return array.ravel()
    return np.ascontiguousarray(array).reshape(-1)


def overlap(array: Any, other: Any) -> bool:
    """Whether an array and something else may share memory."""
    if isinstance(array, np.ndarray):
        return isinstance(other, np.ndarray) and np.may_share_memory(array, other)
    if other is None or not is_on_device(other):
        return False
    import cupy

    return bool(cupy.may_share_memory(array, device_array(other, "array")))


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


def to_values(array: Array) -> Array:
    """Return the row of values of a floating array, C order; a view where possible."""
    if is_on_device(array):
        return device_values(array)
    dtype = value_dtype(array.dtype)
    if array.dtype == dtype:
        return writeable(array.ravel())
    if array.dtype.kind != "c":
        return array.ravel().astype(dtype)
    return np.concatenate([array.real.reshape(-1), array.imag.reshape(-1)])


def values_target(out: Array) -> Array:
    """Return a row of values to fill for the array `out`: its own memory where possible."""
    if is_on_device(out):
        return device_values_target(out)
    dtype = value_dtype(out.dtype)
    if out.dtype == dtype and out.flags.carray:
        return np.asarray(out).reshape(-1)  # matrices stay matrices when reshaped
    dtype = value_dtype(out.dtype.newbyteorder("="))
    return np.empty(out.size * (2 if out.dtype.kind == "c" else 1), dtype)


def is_plain(array: Array) -> bool:
    """Whether an array's memory is a row of native numbers."""
    if is_on_device(array):
        return bool(array.flags.c_contiguous)
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
    if is_on_device(out):
        device_from_values(values, out)
        return
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
        _address(a) == _address(b)
        and a.shape == b.shape
        and a.strides == b.strides
        and a.dtype == b.dtype
    )


def _address(array: Any) -> int:
    if is_on_device(array):
        return int(array.data.ptr)
    return int(array.__array_interface__["data"][0])


def given_result(
    out: Any, name: str, shape: tuple[int, ...], dtype: np.dtype, device: bool
) -> Array:
    """Return an array to fill: a view of `out`, or a new one where that is None.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `check_writeable`; where it is not on a GPU as the input is, or the other way round.
    """
    if out is None:
        with memory_for_caller():
            return empty(shape, dtype, device)
    if is_on_device(out) != device:
        where = ("on the host", "on a GPU")
        raise TypeError(
            f"{name}: got an array {where[not device]}, wanted one {where[device]}, where the"
            " other array is"
        )
    if device:
        found = given_array(out, name)
        interface = getattr(out, "__cuda_array_interface__", None)
        if interface is not None and interface["data"][1]:
            raise ValueError(f"{name}: got a read-only array, wanted a writeable one")
        _check_form(found, name, shape, dtype)
        return found
    check_writeable(out, name, shape, dtype)
    return out


def _check_form(out: Array, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if out.dtype.newbyteorder("=") != dtype:
        raise TypeError(f"{name}: got dtype {out.dtype}, wanted {dtype}")
    if out.shape != shape:
        raise ValueError(f"{name}: got shape {out.shape}, wanted {shape}")


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
    _check_form(out, name, shape, dtype)
    if not out.flags.writeable:
        raise ValueError(f"{name}: got a read-only array, wanted a writeable one")


def check_stream(stream: object, device: bool) -> None:
    """Check the stream of a call.

    Raises
    ------
    ValueError
        When one was given for an array that is not on a GPU.
    TypeError
        When it is no stream.
    """
    if stream is None:
        return
    if not device:
        raise ValueError(f"stream: got {stream!r}, wanted None: the array is not on a GPU")
    stream_pointer(stream)


def fill_number(fill: float | None, dtype: np.dtype) -> float:
    """Return a fill value as arrays of a dtype have it; NaN for none."""
    if fill is None or dtype.kind not in "fc":
        return math.nan
    with np.errstate(over="ignore"):
        return float(np.asarray(fill, np.empty(0, dtype).real.dtype))


def given_room(out: Any, name: str, shape: tuple[int, ...], dtype: np.dtype, device: bool) -> Array:
    """Do as `given_result` with an array of as many elements as `shape` has, as MPI's buffers do.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `given_result`.
    """
    own = getattr(out, "shape", None)
    fits = isinstance(own, tuple) and math.prod(own) == math.prod(shape)
    return given_result(out, name, own if isinstance(own, tuple) and fits else shape, dtype, device)
