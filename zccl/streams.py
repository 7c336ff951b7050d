"""CUDA streams of any library, as the number that the driver knows them by."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

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


_BUFFERS = ("sendbuf", "recvbuf", "buf")


def _first_on_device(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    buffers = (*args[:2], *map(keywords.get, _BUFFERS))
    return next((b for b in buffers if b is not None and is_device_array(b)), None)


_Call = TypeVar("_Call", bound=Callable[..., Any])


def on_callers_stream(call: _Call) -> _Call:
    """Let a collective work on the GPU of its arrays and on the caller's stream.

    Both become CuPy's current ones during the call. What is wrong with them is left to its checks,
    whose errors all ranks raise.
    """

    @functools.wraps(call)
    def ordered(*args: Any, **keywords: Any) -> Any:
        stream = keywords.get("stream")
        if stream is None and args and type(args[0]) is np.ndarray:  # calls are short, too
            return call(*args, **keywords)
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(Exception):
                array = _first_on_device(args, keywords)
                if array is not None or stream is not None:
                    stack.enter_context(on_stream(array, stream))
            return call(*args, **keywords)

    return ordered  # type: ignore[return-value]
