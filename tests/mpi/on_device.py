"""Runs the MPI tests on a GPU: NumPy arrays become CuPy's on their way into a collective, and
results become NumPy's again.

Set `ZCCL_TEST_DEVICE=1`; `ZCCL_TRANSPORT` chooses what carries the messages. Tests that look at the
host's memory are marked `host`.
"""

import functools

import numpy as np

import zccl
from zccl.formats import DTYPE_CODES

COLLECTIVES = (
    "allreduce", "reduce", "reduce_scatter", "bcast", "scatter", "gather", "allgather", "alltoall",
)  # fmt: skip
BUFFERS = ("sendbuf", "recvbuf", "buf")


def can_move(array):
    """Whether CuPy has arrays of this kind, but for the byte order, which changes on the way."""
    return type(array) is np.ndarray and array.dtype.newbyteorder("=") in DTYPE_CODES


def on_device(call):
    """Return a collective that works on CuPy arrays, seen from outside as on NumPy's."""
    import cupy

    @functools.wraps(call)
    def moved(*args, **keywords):
        copies = []

        def there(array):
            if not can_move(array):
                return array
            known = next((device for host, device in copies if host is array), None)
            if known is None:
                known = cupy.asarray(array.astype(array.dtype.newbyteorder("=")))
                copies.append((array, known))
            return known

        if keywords.get("stream") is not None:  # which an array of the host must not have
            return call(*args, **keywords)
        buffers = {name: there(keywords[name]) for name in BUFFERS if name in keywords}
        result = call(*map(there, args[:2]), *args[2:], **{**keywords, **buffers})

        def back(found):
            for host, device in copies:
                if found is device:
                    if not host.flags.writeable:
                        return device.get()
                    host[...] = device.get()
                    return host
            return found.get() if isinstance(found, cupy.ndarray) else found

        if isinstance(result, tuple):
            return tuple(back(found) for found in result)
        return back(result)

    return moved


def install():
    """Let all collectives work on CuPy arrays, on a GPU for each rank as far as there are any."""
    zccl.bind_gpu()
    for name in COLLECTIVES:
        setattr(zccl, name, on_device(getattr(zccl, name)))
