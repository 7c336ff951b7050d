"""CUDA streams of any library, as the number that the driver knows them by."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from zccl.device import device_array, is_device_array

_ATTRIBUTES = ("ptr", "cuda_stream", "handle")  # CuPy, PyTorch, Numba


def stream_pointer(stream: Any) -> int:
    """Return the address of a stream.

    Parameters
    ----------
    stream : None, int, or a stream of CuPy, Numba, PyTorch or with `__cuda_stream__`
        None is CuPy's current stream.

    Raises
    ------
    TypeError
        When it is none of these.
    """
    if stream is None:
        import cupy

        return int(cupy.cuda.get_current_stream().ptr)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version_and_address = protocol() if callable(protocol) else protocol
        return int(version_and_address[1])
    for name in _ATTRIBUTES:
        found = getattr(stream, name, None)
        if found is not None:
            return int(getattr(found, "value", found) or 0)
    try:
        return operator.index(stream)
    except TypeError:
        raise TypeError(
            f"stream: got {type(stream).__name__}, wanted None, an address, or a stream of CuPy,"
            " Numba or PyTorch"
        ) from None


class _Address:
    """A stream for `Stream.from_external`."""

    def __init__(self, pointer: int):
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def cupy_stream(pointer: int) -> Any:
    """Return a stream as CuPy has it, to be made the current one."""
    import cupy

    if hasattr(cupy.cuda.Stream, "from_external"):  # CuPy 14
        return cupy.cuda.Stream.from_external(_Address(pointer))
    return cupy.cuda.ExternalStream(pointer)


@contextlib.contextmanager
def on_stream(array: Any, stream: Any) -> Iterator[None]:
    """Make a stream CuPy's current one, on the device of an array (the current device for None)."""
    with contextlib.nullcontext() if array is None else device_array(array, "array").device:
        if stream is None:
            yield
        else:
            with cupy_stream(stream_pointer(stream)):
                yield


def callers_stream(buffers: Sequence[Any], stream: Any) -> AbstractContextManager[Any]:
    """Return what makes the GPU of a call's arrays and the caller's stream CuPy's current ones.

    What is wrong with them is left to the call's checks, whose errors all ranks raise.
    """
    if stream is None and type(buffers[0]) is np.ndarray:  # calls are short, too
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    with contextlib.suppress(Exception):
        array = next((b for b in buffers if b is not None and is_device_array(b)), None)
        if array is not None or stream is not None:
            stack.enter_context(on_stream(array, stream))
    return stack


class OwnStream:
    """A stream for what goes on while the caller uses his own; of no effect without GPUs.

    It begins when what is queued on the caller's stream now is done. `scope` makes it the current
    one; `join` makes the caller's stream wait for it.
    """

    def __init__(self, buffers: Sequence[Any], stream: Any):
        self._device: Any = None
        with contextlib.suppress(Exception), callers_stream(buffers, stream):
            if _may_use_gpus(buffers):
                self._fork()

    def _fork(self) -> None:
        import cupy

        device = cupy.cuda.Device()
        self._callers = cupy.cuda.get_current_stream()
        self._own = _own_stream(device.id)
        self._own.wait_event(self._callers.record())
        self._device = device

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Make it CuPy's current stream, on its GPU."""
        if self._device is None:
            yield
        else:
            with self._device, self._own:
                yield

    def join(self) -> None:
        """Let what the caller's stream does next see what was done on this one."""
        if self._device is not None:
            with self._device:
                self._callers.wait_event(self._own.record())


def _may_use_gpus(buffers: Sequence[Any]) -> bool:
    """Whether an array of a call is on a GPU, or may be made there."""
    given = [buffer for buffer in buffers if buffer is not None]
    if not given:
        return "cupy" in sys.modules
    return any(is_device_array(buffer) for buffer in given)


@functools.lru_cache(64)
def _own_stream(device: int) -> Any:
    """Return the stream of a GPU that all operations share.

    They take turns in using it, and so the memory that one gives back can be the next one's.
    """
    import cupy

    return cupy.cuda.Stream(non_blocking=True)
