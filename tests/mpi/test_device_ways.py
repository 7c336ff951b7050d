"""What carries device arrays, without a GPU: it is kept for each choice of GPUs."""

import sys
import types

import pytest
from mpi.checks import RANK, SIZE
from mpi4py import MPI

from zccl.algorithms.progress import finish
from zccl.transport import ways
from zccl.transport.mpi import MpiTransport

pytestmark = [pytest.mark.mpi, pytest.mark.host]


class Transports:
    """A stand-in for `DeviceTransports`."""

    def __init__(self, _transport, places):
        self.places, self.freed = places, False

    def free(self):
        self.freed = True


@pytest.fixture
def gpus(monkeypatch):
    """A function that puts this rank on a GPU, or on none."""
    modules = types.SimpleNamespace(DeviceTransports=Transports)
    monkeypatch.setitem(sys.modules, "zccl.transport.devices", modules)

    def use(device):
        monkeypatch.setattr(ways, "current_device", lambda: device)
        place = "no GPU" if device is None else (RANK, device)
        monkeypatch.setattr(ways, "_place", lambda: place)

    return use


def now(found, transport):
    moved = transport.comm.allreduce(found.have_moved(), MPI.LOR)
    return finish(found.now(transport, moved))


def test_a_rank_that_changes_its_gpu_takes_all_to_other_ways(gpus):
    found, transport = ways.WaysOfRanks(), MpiTransport(MPI.COMM_WORLD)
    gpus(0)
    first = now(found, transport)
    assert first is now(found, transport) and first.places == [(rank, 0) for rank in range(SIZE)]
    if RANK == SIZE - 1:
        gpus(1)
    second = now(found, transport)
    assert second is now(found, transport) is not first
    assert second.places[:-1] == first.places[:-1] and second.places[-1] == (SIZE - 1, 1)
    gpus(0)
    assert now(found, transport) is first
    if RANK == SIZE - 1:
        gpus(None)
    works, reason = now(found, transport).nccl()
    assert not works and reason == f"rank {SIZE - 1}: no GPU"
    found.free()
    assert first.freed and second.freed


def test_a_communicator_follows_the_gpus(gpus):
    transport = MpiTransport(MPI.COMM_WORLD)
    gpus(0)
    first = finish(transport.device_transports(transport._ways.have_moved()))
    gpus(1)
    assert finish(transport.device_transports(transport._ways.have_moved())) is not first
    gpus(0)
    assert finish(transport.device_transports(transport._ways.have_moved())) is first
