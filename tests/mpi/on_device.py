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


class Twins:
    """Arrays of the host, and those of the device that stand for them."""

    def __init__(self):
        import cupy

        self._cupy = cupy
        self._pairs = []

    def there(self, array):
        """Return the array on the device."""
        if not can_move(array):
            return array
        known = next((device for host, device in self._pairs if host is array), None)
        if known is None:
            known = self._cupy.asarray(array.astype(array.dtype.newbyteorder("=")))
            self._pairs.append((array, known))
        return known

    def renew(self):
        """Copy what the host's arrays hold now."""
        for host, device in self._pairs:
            device.set(np.ascontiguousarray(host.astype(device.dtype)))

    def arguments(self, args, keywords):
        buffers = {name: self.there(keywords[name]) for name in BUFFERS if name in keywords}
        return [*map(self.there, args[:2]), *args[2:]], {**keywords, **buffers}

    def back(self, found):
        """Return a result on the host, always in the same array."""
        if isinstance(found, tuple):
            return tuple(map(self.back, found))
        if not isinstance(found, self._cupy.ndarray):
            return found
        for host, device in self._pairs:
            if found is device:
                if not host.flags.writeable:
                    return device.get()
                host[...] = device.get()
                return host
        self._pairs.append((found.get(), found))
        return self._pairs[-1][0]


def on_device(call):
    """Return a collective that works on CuPy arrays, seen from outside as on NumPy's."""

    @functools.wraps(call)
    def moved(*args, **keywords):
        if keywords.get("stream") is not None:  # which an array of the host must not have
            return call(*args, **keywords)
        twins = Twins()
        args, keywords = twins.arguments(args, keywords)
        return twins.back(call(*args, **keywords))

    return moved


class MovedRequest(zccl.PersistentRequest):
    """A request whose arrays are on the device."""

    def __init__(self, request, twins):
        self._request = request
        self._twins = twins

    def wait(self):
        return self._twins.back(self._request.wait())

    def test(self):
        return self._twins.back(self._request.test())

    def Start(self):
        self._twins.renew()
        self._request.Start()

    def Free(self):
        self._request.Free()

    @property
    def _operation(self):
        return self._request._operation

    @property
    def result(self):
        return self._twins.back(self._request.result)

    @property
    def info(self):
        return self._request.info


def request_on_device(call):
    """Do as `on_device` with what returns a request."""

    @functools.wraps(call)
    def moved(*args, **keywords):
        twins = Twins()
        args, keywords = twins.arguments(args, keywords)
        return MovedRequest(call(*args, **keywords), twins)

    return moved


def install():
    """Let all collectives work on CuPy arrays, on a GPU for each rank as far as there are any."""
    zccl.bind_gpu()
    for name in COLLECTIVES:
        setattr(zccl, name, on_device(getattr(zccl, name)))
        for form in (f"i{name}", f"{name}_init"):
            setattr(zccl, form, request_on_device(getattr(zccl, form)))
