"""Communicators for operations at once: what one of them sends never meets another one's messages.

MPI wants all ranks to start the collectives of a communicator in one order, but operations at once
go on as their messages come. So each that was started has a duplicate of its own while it lasts. A
blocking call needs none: it ends before the next one begins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mpi4py import MPI

from zccl.transport.waiting import Until

if TYPE_CHECKING:
    from zccl.transport.mpi import MpiTransport

LANES = 8  # operations at once; later ones wait until one of them has ended


class Lane(NamedTuple):
    """The place of one operation.

    Attributes
    ----------
    ready : Wait
        That its communicator is there, and the operation that had it before has ended.
    transport : function that returns a MpiTransport
        Its own, once it is ready.
    release : function
        Gives the communicator to the next one.
    """

    ready: Until
    transport: Callable[[], MpiTransport]
    release: Callable[[], object]


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
        self._origin = transport.comm.Dup()  # of nothing but duplicates
        self._openings: list[_Opening] = []
        self._count = 0
        self._live: dict[int, Callable[[], object]] = {}

    def take(self, finish: Callable[[], object]) -> Lane:
        """Return the lane of the next operation; never waits.

        `finish` drives it to its end, for the case that the user's communicator is freed before.
        """
        number, self._count = self._count, self._count + 1
        self._live[number] = finish
        if number < LANES:
            before = self._openings[-1] if self._openings else None
            self._openings.append(_Opening(self._origin, before))
        opening = self._openings[number % LANES]

        def ready() -> bool:
            return opening.done() and number - LANES not in self._live

        return Lane(
            Until(ready), lambda: self._transport.beside(opening.comm, number),
            functools.partial(self._live.pop, number),
        )  # fmt: skip

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
        for opening in self._openings:
            opening.comm.Free()
        self._origin.Free()


class _Opening:
    """A communicator in the making.

    One after the other: Open MPI takes the steps of `MPI_Comm_idup` by collectives of the original,
    as it comes to them, and those of two would meet each other.
    """

    def __init__(self, origin: MPI.Intracomm, before: _Opening | None):
        self.comm: MPI.Intracomm = MPI.COMM_NULL  # type: ignore[assignment]
        self._origin = origin
        self._before = before
        self._request: MPI.Request | None = None
        self._done = False

    def done(self) -> bool:
        """Whether it is there."""
        if not self._done and (self._before is None or self._before.done()):
            self._before = None
            if self._request is None:
                self.comm, self._request = self._origin.Idup()
            self._done = bool(self._request.Test())
        return self._done
