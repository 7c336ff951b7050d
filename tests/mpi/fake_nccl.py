"""A stand-in for CuPy and NCCL: rows of the host, and a GPU whose transfers MPI carries.

As on a GPU, a transfer ends only when both ranks have started their half, those of a stream run one
after the other, and no host is needed for that: a thread takes its place.
"""

import ctypes
import itertools
import threading
import time
from collections import deque
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

SECONDS = 20


class Row:
    """A row of bytes on the stand-in for a GPU."""

    def __init__(self, values):
        self.host = np.array(values, np.uint8)
        self.size = self.host.size
        self.data = SimpleNamespace(ptr=self.host.ctypes.data)

    def __getitem__(self, part):
        return Row(self.host[part])


def _memory(address, nbytes):
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)


class Gpu:
    """All streams of a rank; `started` counts transfers."""

    def __init__(self):
        self.comm = MPI.COMM_WORLD.Dup()
        self.streams = []
        self.started = 0
        self._numbers = itertools.count()
        self._on = True
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self):
        while self._on:
            for stream in list(self.streams):
                stream.advance()
            time.sleep(1e-4)

    def stop(self):
        self._on = False
        self._thread.join()
        self.comm.Free()

    def synchronize(self):
        """Wait for all that is on the GPU, as memory that is given back to CUDA does."""
        give_up = time.monotonic() + SECONDS
        while any(stream.work for stream in self.streams):
            time.sleep(1e-4)
            assert time.monotonic() < give_up, "the GPU waits for a host that waits for the GPU"

    def modules(self):
        """Return what stands for CuPy, by the names of its modules."""
        nccl = SimpleNamespace(
            get_unique_id=lambda: (self.comm.rank, next(self._numbers)),
            NcclCommunicator=lambda *words: Channel(self, *words),
        )
        kinds = ["INT8", "UINT8", "INT32", "UINT32", "INT64", "UINT64"]
        for name in [*kinds, "FLOAT16", "FLOAT32", "FLOAT64", "SUM", "MAX", "MIN"]:
            setattr(nccl, f"NCCL_{name}", name)
        host = Stream(self)
        cuda = SimpleNamespace(
            Stream=lambda **_: Stream(self),
            Event=lambda **_: None,
            get_current_stream=lambda: host,
            nccl=nccl,
        )
        cupy = SimpleNamespace(cuda=cuda, zeros=lambda n, kind: Row(np.zeros(n, kind)))
        return {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.nccl": nccl}


class Stream:
    """Transfers that run one after the other."""

    def __init__(self, gpu):
        self.gpu, self.work = gpu, deque()
        self.count = self.ended = 0
        self.ptr = len(gpu.streams)
        gpu.streams.append(self)

    def start(self, transfer):
        self.gpu.started += 1
        self.count += 1
        self.work.append([transfer, None])

    def advance(self):
        while self.work:
            first = self.work[0]
            first[1] = first[1] or first[0]()
            if not first[1].Test():
                return
            self.ended += 1
            self.work.popleft()

    def record(self, _event=None):
        return Event(self, self.count)

    def wait_event(self, _event):
        pass  # nothing here is late but transfers

    def synchronize(self):
        self.gpu.synchronize()


class Event:
    def __init__(self, stream, number):
        self._stream, self._number = stream, number

    @property
    def done(self):
        return self._stream.ended >= self._number


class Channel:
    """NCCL's communicator of two ranks."""

    def __init__(self, gpu, size, name, index):
        assert size == 2
        first, self._tag = name
        self._gpu = gpu
        if index:
            gpu.comm.send(gpu.comm.rank, first, self._tag)
            self._peer = first
        else:
            self._peer = gpu.comm.recv(None, MPI.ANY_SOURCE, self._tag)

    def send(self, address, nbytes, _kind, _peer, stream):
        part = _memory(address, nbytes)
        begin = self._gpu.comm.Issend  # which ends when the other half is there
        self._gpu.streams[stream].start(lambda: begin(part, self._peer, self._tag))

    def recv(self, address, nbytes, _kind, _peer, stream):
        part = _memory(address, nbytes)
        begin = self._gpu.comm.Irecv
        self._gpu.streams[stream].start(lambda: begin(part, self._peer, self._tag))

    def destroy(self):
        pass
