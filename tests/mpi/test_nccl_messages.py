"""The transport of messages by NCCL, on a stand-in for a GPU."""

import importlib
import sys
import time

import numpy as np
import pytest
from mpi.checks import RANK, SIZE
from mpi.fake_nccl import Gpu, Row
from mpi4py import MPI

from zccl.transport.mpi import MpiTransport

pytestmark = [pytest.mark.mpi, pytest.mark.host]
OTHERS = [rank for rank in range(SIZE) if rank != RANK]
NAME = "zccl.transport.nccl"


@pytest.fixture
def gpu():
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        pytest.skip("needs an MPI that takes calls of several threads")
    gpu = Gpu()
    yield gpu
    gpu.stop()


@pytest.fixture
def transport(gpu, monkeypatch):
    for name, module in gpu.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    transport = importlib.import_module(NAME).NcclTransport(MpiTransport(MPI.COMM_WORLD))
    monkeypatch.delitem(sys.modules, NAME)
    gpu.started = 0
    yield transport
    MPI.COMM_WORLD.Barrier()
    transport.free()


def content(source, dest, k):
    return np.arange(1 + 7 * k + source, dtype=np.uint8) + np.uint8(31 * dest)


def test_the_host_may_wait_for_its_gpu_at_any_time(transport, gpu):
    """Whatever a rank does between its calls: messages in all directions, some ahead."""
    tag = transport.next_tag()
    count, ahead = 12, 3
    rng = np.random.default_rng(RANK)
    received = {rank: [] for rank in OTHERS}
    sends = []

    def post(source):
        if len(received[source]) < count:
            received[source].append(transport.irecv(Row(np.zeros(200)), source, tag))

    for source in OTHERS:
        for _ in range(ahead):
            post(source)
    for k in range(count):
        for dest in OTHERS:
            sends.append(transport.isend(Row(content(RANK, dest, k)), dest, tag))
            sends[0].done()  # asked in passing
            gpu.synchronize()
        for source in OTHERS:
            received[source][k].wait()
            time.sleep(rng.random() * 2e-3)
            gpu.synchronize()
            message = received[source][k].message()
            assert message.host.tobytes() == content(source, RANK, k).tobytes()
            post(source)
    for pending in sends:
        pending.wait()


@pytest.mark.skipif(SIZE == 1, reason="nobody to send to")
def test_sending_starts_nothing_on_the_gpu(transport, gpu):
    """Even where another rank's message could be granted."""
    tag = transport.next_tag()
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    pending = transport.irecv(Row(np.zeros(200)), left, tag)
    sends = [transport.isend(Row(content(RANK, right, 1)), right, tag)]
    MPI.COMM_WORLD.Barrier()
    time.sleep(0.1)
    sends.append(transport.isend(Row([]), right, tag))
    assert not sends[0].done()
    assert gpu.started == 0
    MPI.COMM_WORLD.Barrier()
    pending.wait()
    assert pending.message().host.tobytes() == content(left, RANK, 1).tobytes()
    last = transport.irecv(Row(np.zeros(200)), left, tag)
    last.wait()
    assert not last.message().size
    for sent in sends:
        sent.wait()


@pytest.mark.skipif(SIZE == 1, reason="nobody to send to")
def test_what_a_rank_has_no_room_for_is_refused(transport):
    """It counts as sent, and what comes behind it arrives."""
    tag = transport.next_tag()
    if RANK == 0:
        for source in OTHERS:
            first = transport.irecv(np.empty(200, np.uint8), source, tag)
            second = transport.irecv(Row(np.zeros(200)), source, tag)
            second.wait()
            first.wait()
            assert not first.message().size
            assert second.message().host.tobytes() == content(source, 0, 2).tobytes()
    else:
        for pending in [transport.isend(Row(content(RANK, 0, k)), 0, tag) for k in (1, 2)]:
            pending.wait()
