"""Communicators for operations at once: what one of them sends never meets another one's messages.

MPI wants all ranks to start the collectives of a communicator in one order, but operations at once
go on as their messages come. So each that was started has a duplicate of its own while it lasts. A
blocking call needs none: it ends before the next one begins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi4py import MPI

from zccl.errors import TransportError
from zccl.transport.waiting import Until

if TYPE_CHECKING:
    from zccl.transport.mpi import MpiTransport

LANES = 4  # operations at once; later ones wait until one of them has ended


class Lane(NamedTuple):
    """The place of one operation.

    Attributes
    ----------
    transport : MpiTransport
        Its own.
    ready : Wait
        That the operation which had it before has ended.
    release : function
        Gives it to the next one.
    """

    transport: MpiTransport
    ready: Until
    release: Callable[[], object]


class Lanes:
    """The communicators beside a transport's; collective.

    All are made at once, where all ranks are: a pending `MPI_Comm_idup` holds up whatever else
    makes communicators in Open MPI.

    Parameters
    ----------
    transport : MpiTransport
        Of the user's communicator.

    Attributes
    ----------
    streams : dict
        What operations use on each GPU.
    """

    def __init__(self, transport: MpiTransport):
        self.streams: dict[int, Any] = {}
        self._transport = transport
        self._comms = [transport.comm.Dup() for _ in range(LANES)]
        self._count = 0
        self._live: dict[int, Callable[[], object]] = {}

    def take(self, finish: Callable[[], object]) -> Lane:
        """Return the lane of the next operation; never waits.

        All ranks start operations in one order, so the n-th one has the same lane on all of them.
        `finish` drives it to its end, for the case that the user's communicator is freed before.

        Raises
        ------
        TransportError
            When the user's communicator was freed.
        """
        if self._transport.comm == MPI.COMM_NULL:
            raise TransportError("comm: it was freed; this rank can start nothing on it any more")
        number, self._count = self._count, self._count + 1
        self._live[number] = finish
        return Lane(
            self._transport.beside(self._comms[number % LANES], number),
            Until(lambda: number - LANES not in self._live),
            functools.partial(self._live.pop, number),
        )

    def none_before(self, number: int | None) -> bool:
        """Whether no operation lasts that began before this one (None: before now)."""
        return not any(number is None or other < number for other in list(self._live))

    def none_but(self, number: int | None) -> bool:
        """Whether no operation lasts but this one."""
        return not any(other != number for other in list(self._live))

    def free(self) -> None:
        """End all operations, and give the communicators back; collective."""
        for finish in list(self._live.values()):
            finish()
        for comm in self._comms:
            comm.Free()
