"""Arrays on NVIDIA GPUs at the edge: what is accepted, and how it becomes a row of values."""

from __future__ import annotations

from typing import Any

import numpy as np

from zccl import pool
from zccl.formats import DTYPE_CODES, value_dtype

_DLPACK_CUDA = 2

DeviceArray = Any
"""A `cupy.ndarray`."""


def is_device_array(array: Any) -> bool:
    """Whether something lives on a GPU, as `__cuda_array_interface__` or DLPack say."""
    if isinstance(array, np.ndarray | np.generic | bytes | bytearray | memoryview):
        return False
    try:
        if hasattr(array, "__cuda_array_interface__"):
            return True
    except RuntimeError:  # of PyTorch, about a tensor on a GPU that wants gradients
        return True
    device = getattr(array, "__dlpack_device__", None)
    return device is not None and int(device()[0]) == _DLPACK_CUDA


def _interface(array: Any, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] | None = getattr(array, "__cuda_array_interface__", None)
    except RuntimeError as error:  # of PyTorch, which says what to do
        raise TypeError(f"{name}: {error}") from error
    return found


def device_array(array: Any, name: str) -> DeviceArray:
    """Return an array as a CuPy array over the same memory.

    Raises
    ------
    ImportError
        When CuPy is missing.
    TypeError
        When it is masked or its dtype cannot be carried.
    """
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"{name}: arrays on a GPU need CuPy: pip install zccl-mpi[cuda13] or [cuda12]"
        ) from error
    interface = _interface(array, name)
    if interface is not None and interface.get("mask") is not None:
        raise TypeError(f"{name}: got a masked array, whose mask would be lost")
    if isinstance(array, cupy.ndarray):
        found = array
    elif interface is not None:
        found = cupy.asarray(array)
    else:
        found = cupy.from_dlpack(array)
    if found.dtype not in DTYPE_CODES:
        raise TypeError(
            f"{name}: got dtype {found.dtype}, wanted one of {', '.join(map(str, DTYPE_CODES))}"
        )
    return found


def device_values(array: DeviceArray) -> DeviceArray:
    """Return the row of values of a floating array, C order; a view where possible."""
    import cupy

    flat = array.ravel()
    if array.dtype.kind == "c":
        return cupy.concatenate([flat.real, flat.imag])
    return singles_of_halves(flat, cupy) if array.dtype == np.float16 else flat


def singles_of_halves(halves: Any, module: Any) -> Any:
    """Return a row of float16 as float32, NaN with the bits that NumPy gives it.

    A GPU's own conversion makes quiet NaN of all.

    Parameters
    ----------
    halves : row of float16
        Of NumPy or CuPy.
    module : module
        Which of the two.
    """
    bits = halves.view(np.uint16).astype(np.uint32)
    payload = (bits & 0x3FF) << 13
    nan = (bits & 0x8000) << 16 | 0x7F800000 | payload
    singles = halves.astype(np.float32)
    found = module.where(halves != halves, nan, singles.view(np.uint32))
    return found.view(np.float32)


def halves_of_singles(singles: Any, module: Any) -> Any:
    """Return a row of float32 as float16, NaN with the bits that NumPy gives it.

    Parameters
    ----------
    singles : row of float32
        Of NumPy or CuPy.
    module : module
        Which of the two.
    """
    bits = singles.view(np.uint32)
    payload = module.maximum(bits >> 13 & 0x3FF, 1)  # of a NaN: none would be an infinity
    nan = (bits >> 16 & 0x8000 | 0x7C00 | payload).astype(np.uint16)
    halves = singles.astype(np.float16)
    found = module.where(singles != singles, nan, halves.view(np.uint16))
    return found.view(np.float16)


def device_values_target(out: DeviceArray) -> DeviceArray:
    """Return a row of values to fill for the array `out`: its own memory where possible."""
    import cupy

    dtype = value_dtype(out.dtype)
    if out.dtype == dtype and out.flags.c_contiguous:
        return out.reshape(-1)
    return cupy.empty(out.size * (2 if out.dtype.kind == "c" else 1), dtype)


def device_from_values(values: DeviceArray, out: DeviceArray) -> None:
    """Put a row of values into the array `out`, where it is not there yet."""
    import cupy

    if out.dtype.kind == "c":
        out.real = values[: out.size].reshape(out.shape)
        out.imag = values[out.size :].reshape(out.shape)
    elif out.dtype == np.float16:
        out[...] = halves_of_singles(values, cupy).reshape(out.shape)
    elif out.size and values.data.ptr != out.data.ptr:
        out[...] = values.reshape(out.shape)


def array_on_device(array: np.ndarray) -> DeviceArray:
    """Copy an array of the host to CuPy's current device."""
    import cupy

    return cupy.asarray(array)


def pinned_like(row: DeviceArray) -> np.ndarray:
    """Return memory of the host for a copy of a row, of the pool."""
    return pool.PINNED.take(row.nbytes).view(row.dtype)


def array_on_host(array: DeviceArray) -> np.ndarray:
    """Copy an array of a GPU to the host."""
    found: np.ndarray = array.get()
    return found


def copy_to_host(row: DeviceArray, out: np.ndarray) -> None:
    """Copy a row on CuPy's current stream, and wait for that."""
    if row.size:
        row.get(out=out)


def copy_to_device(row: np.ndarray, out: DeviceArray) -> None:
    """Copy a row on CuPy's current stream, and wait for that."""
    if row.size:
        out.set(row)
        synchronize()


def current_device() -> int | None:
    """Return the number of CuPy's current device; None where there is no GPU or no CuPy."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDevice())
    except Exception:  # whatever a driver that does not fit makes of it
        return None


def synchronize() -> None:
    """Wait for CuPy's current stream."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()
