"""CUDA streams of any library, as the number that the driver knows them by."""

from __future__ import annotations

import operator
from typing import Any

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
