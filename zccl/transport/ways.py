"""What is said of ways to carry device arrays, on machines without CuPy, too."""

from __future__ import annotations

import pickle
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from zccl.device import current_device
from zccl.transport.waiting import Waiting

if TYPE_CHECKING:
    from zccl.transport.mpi import MpiTransport


class Way(NamedTuple):
    """Whether something works, and the reason."""

    works: bool
    reason: str


class NoDeviceTransports:
    """What a `DeviceTransports` says where some rank has no GPU or no CuPy.

    Parameters
    ----------
    reason : str
        What is missing.
    """

    def __init__(self, reason: str):
        self._way = Way(False, reason)

    def nccl(self) -> Way:
        """Not usable."""
        return self._way

    def nccl_works(self) -> bool:
        """Whether that is known."""
        return False

    def mpi_device(self) -> Way:
        """Not usable."""
        return self._way

    def free(self) -> None:
        """Nothing was made."""


class WaysOfRanks:
    """What can carry device arrays of a communicator, for the GPUs that its ranks work on.

    NCCL's communicators belong to the GPUs that they were made on. Where a rank has gone to another
    one all ranks go on with what there is, or is made, for the GPUs that they are on now.
    """

    def __init__(self) -> None:
        self._device: int | None = -1  # none yet
        self._ways: Any = None
        self._known: dict[tuple[Any, ...], Any] = {}

    def have_moved(self) -> bool:
        """Whether this rank's GPU is another one than in the last call."""
        return current_device() != self._device

    def nccl_works(self) -> bool:
        """Whether NCCL has been found to work between these GPUs."""
        return self._ways is not None and not self.have_moved() and bool(self._ways.nccl_works())

    def now(self, transport: MpiTransport, moved: bool) -> Generator[Waiting, None, Any]:
        """Take steps to a `DeviceTransports` for the ranks' current GPUs; collective.

        It is a `NoDeviceTransports` where some rank has no GPU or no CuPy.

        Parameters
        ----------
        transport : MpiTransport
            Of the communicator.
        moved : bool
            Whether some rank's GPU may be another one than in the last call.
        """
        if moved or self._ways is None:
            anywhere = np.array([self._ways is None or self.have_moved()], np.int32)
            yield Waiting(transport.comm.Iallreduce(MPI.IN_PLACE, anywhere, MPI.MAX))
            if anywhere[0]:
                places = tuple((yield from _gathered(transport.comm, _place())))
                if places not in self._known:
                    self._known[places] = yield from _between(places, transport)
                self._ways = self._known[places]
                self._device = current_device()
        return self._ways

    def free(self) -> None:
        """Give back what was made; collective."""
        for ways in self._known.values():
            ways.free()


def _gathered(comm: MPI.Intracomm, mine: object) -> Generator[Waiting, None, list[Any]]:
    """Return an object of each rank."""
    text = np.frombuffer(pickle.dumps(mine), np.uint8)
    sizes = np.zeros(comm.size, np.int32)
    yield Waiting(comm.Iallgather(np.array([text.size], np.int32), sizes))
    texts = np.empty(sizes.sum(), np.uint8)
    yield Waiting(comm.Iallgatherv(text, [texts, sizes.tolist(), MPI.BYTE]))
    return [pickle.loads(part.tobytes()) for part in np.split(texts, np.cumsum(sizes)[:-1])]


def _between(places: tuple[Any, ...], transport: MpiTransport) -> Generator[Waiting, None, Any]:
    """Return the ways between some places; a text is the fault of a rank that has none."""
    for rank, place in enumerate(places):
        if isinstance(place, str):
            return NoDeviceTransports(f"rank {rank}: {place}")
    from zccl.transport.devices import DeviceTransports

    comm, request = transport.comm.Idup()
    yield Waiting(request)
    return DeviceTransports(transport.beside(comm), list(places))


def _place() -> object:
    """Return this rank's `Place`, or why it has none."""
    try:
        from zccl.transport.devices import DeviceTransports  # noqa: F401  # may be what fails
        from zccl.transport.gpus import current_place

        return current_place()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
