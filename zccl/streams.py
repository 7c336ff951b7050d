"""CUDA streams of any library, as the number that the driver knows them by."""

from __future__ import annotations

import contextlib
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
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
    one; `end` gives what has happened when all of it is done, and `join` makes the caller's stream
    wait for that.

    Parameters
    ----------
    buffers : sequence
        Arrays of the call.
    stream : stream or None
        The caller's.
    streams : dict
        Own streams by GPU. Operations that take turns in one can use each other's memory.
    """

    def __init__(self, buffers: Sequence[Any], stream: Any, streams: dict[int, Any]):
        self._device: Any = None
        self._ended: Any = None
        with contextlib.suppress(Exception), callers_stream(buffers, stream):
            if _may_use_gpus(buffers):
                self._fork(streams)

    def _fork(self, streams: dict[int, Any]) -> None:
        import cupy

        device = cupy.cuda.Device()
        self._callers = cupy.cuda.get_current_stream()
        if device.id not in streams:
            streams[device.id] = cupy.cuda.Stream(non_blocking=True)
        self._own = streams[device.id]
        self._own.wait_event(self._callers.record())
        self._device = device

    @property
    def is_used(self) -> bool:
        """Whether there is one: where arrays are on a GPU, or may be made there."""
        return self._device is not None

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Make it CuPy's current stream, on its GPU."""
        if self._device is None:
            yield
            return
        with self._device, self._own:
            before, _current.own = getattr(_current, "own", None), self
            try:
                yield
            finally:
                _current.own = before

    @contextlib.contextmanager
    def for_caller(self) -> Iterator[None]:
        """Take memory that the caller may give back, in the order of his stream."""
        with self._callers:
            yield
        self._own.wait_event(self._callers.record())  # he may have used it before

    def end(self) -> Callable[[], bool]:
        """Return whether all that is queued now is done, to be asked again and again."""
        if self._device is None:
            return lambda: True
        import cupy

        self._ended = self._own.record(cupy.cuda.Event(disable_timing=True))
        return lambda: bool(self._ended.done)

    def join(self) -> None:
        """Let what the caller's stream does next see what was done until the end."""
        if self._ended is not None:
            with self._device:
                self._callers.wait_event(self._ended)


_current = threading.local()  # the own stream that this thread works on


def memory_for_caller() -> AbstractContextManager[None]:
    """Return what makes new arrays the caller's, where an operation works on its own stream."""
    own = getattr(_current, "own", None)
    return contextlib.nullcontext() if own is None else own.for_caller()


def _may_use_gpus(buffers: Sequence[Any]) -> bool:
    """Whether an array of a call is on a GPU, or may be made there."""
    given = [buffer for buffer in buffers if buffer is not None]
    if not given:
        return "cupy" in sys.modules
    return any(is_device_array(buffer) for buffer in given)
