"""Communicators for operations at once: what one of them sends never meets another one's messages.

MPI wants all ranks to start the collectives of a communicator in one order, but operations at once
go on as their messages come. So each that was started has a duplicate of its own while it lasts. A
blocking call needs none: it ends before the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mpi4py import MPI

from zccl.transport.waiting import Until, Waiting

if TYPE_CHECKING:
    from zccl.transport.mpi import MpiTransport

LANES = 8  # operations at once; later ones wait until one of them has ended


class Lane(NamedTuple):
    """The place of one operation.

    Attributes
    ----------
    transport : MpiTransport
        Its own.
    ready : Wait
        That its communicator is there, and the operation that had it before has ended.
    release : function
        Gives it to the next one.
    """

    transport: MpiTransport
    ready: Until | Waiting
    release: Callable[[], None]


class Lanes:
    """The communicators beside a transport's.

    All ranks start operations in one order, so the n-th one has the same lane on all of them.

    Parameters
    ----------
    transport : MpiTransport
        Of the user's communicator.
    """

    def __init__(self, transport: MpiTransport):
        self._transport = transport
        self._comms: list[MPI.Intracomm] = []
        self._count = 0
        self._live: dict[int, Callable[[], object]] = {}

    def take(self, finish: Callable[[], object]) -> Lane:
        """Return the lane of the next operation; collective, but never waits.

        `finish` drives it to its end, for the case that the user's communicator is freed before.
        """
        number, self._count = self._count, self._count + 1
        ready: Until | Waiting
        if number < LANES:
            comm, request = self._transport.comm.Idup()
            self._comms.append(comm)
            ready = Waiting(request)
        else:
            ready = Until(lambda: number - LANES not in self._live)
        self._live[number] = finish
        transport = self._transport.beside(self._comms[number % LANES], number)
        return Lane(transport, ready, lambda: self._release(number))

    def _release(self, number: int) -> None:
        del self._live[number]

    def none_before(self, number: int | None) -> bool:
        """Whether no operation lasts that began before this one (None: before now)."""
        return not any(number is None or other < number for other in list(self._live))

    def free(self) -> None:
        """End all operations, and give the communicators back; collective."""
        for finish in list(self._live.values()):
            finish()
        for comm in self._comms:
            comm.Free()
