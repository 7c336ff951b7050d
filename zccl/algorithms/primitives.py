"""The vocabulary that algorithms are written in.

An algorithm is a generator that yields messages it must wait for. `run` drives it to its end.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator

import numpy as np

from zccl import pool
from zccl.algorithms.protocols import Codec, Pending, Transport
from zccl.errors import TransportError
from zccl.typing import Bytes

Steps = Generator[Pending, None, None]
"""What an algorithm is."""

AHEAD = 2  # receives that are posted before the message in hand is worked on

# A rank that fails while data moves sends this, a message without bytes, in place of each one that
# it owes (no part is empty). Whoever gets it passes it on, so that nobody waits for ever and the
# communicator stays usable; an agreement at the end raises the failure on all ranks.
_FAILED = np.empty(0, np.uint8)


class Link:
    """One operation's messages: a transport with its tag, and what was counted on it."""

    def __init__(self, transport: Transport, codec: Codec):
        self.rank = transport.rank
        self.size = transport.size
        self.sent_nbytes = 0
        self.plain_nbytes = 0  # what the same messages would have had without compression
        self.failure: Exception | None = None
        self._transport = transport
        self._codec = codec
        self._tag = transport.next_tag()
        self._sends: deque[Pending] = deque()

    def send(self, message: Bytes, dest: int, part: slice) -> Pending:
        """Start to send the message of a part; `finish_sends` waits for it in any case."""
        self.sent_nbytes += message.nbytes
        self.plain_nbytes += (part.stop - part.start) * self._codec.itemsize
        while self._sends and self._sends[0].done():  # lets go of their buffers
            self._sends.popleft()
        self._sends.append(self._transport.isend(message, dest, self._tag))
        return self._sends[-1]

    def receive(self, source: int, part: slice) -> Pending:
        """Start to receive the message of a part."""
        buffer = pool.take(self._codec.max_nbytes(part))
        return self._transport.irecv(buffer, source, self._tag)

    def finish_sends(self) -> Steps:
        """Wait until all messages have left."""
        while self._sends:
            yield self._sends.popleft()

    def encode(self, part: slice) -> Bytes:
        """Return the message of one's own part."""
        return self._guarded(lambda: self._codec.encode(part))

    def combine(self, a: Bytes, b: Bytes, part: slice) -> Bytes:
        """Reduce two messages; a failure among them stays one."""
        if not a.size or not b.size:
            return _FAILED
        return self._guarded(lambda: self._codec.combine(a, b, part))

    def add_own(self, message: Bytes, part: slice) -> Bytes:
        """Reduce a message and one's own part; a failure stays one."""
        if not message.size:
            return _FAILED
        return self._guarded(lambda: self._codec.add_own(message, part))

    def decode(self, message: Bytes, part: slice) -> None:
        """Put a message in its place in the result."""
        if message.size:
            self._guarded(lambda: self._codec.decode(message, part))

    def _guarded(self, work: Callable[[], Bytes | None]) -> Bytes:
        try:
            result = work()
        except Exception as error:
            self.failure = self.failure or error
            result = None
        return _FAILED if result is None else result

    def fault(self) -> TransportError | None:
        """Return what failed on this rank."""
        if self.failure is None:
            return None
        reason = f"{type(self.failure).__name__}: {self.failure}"
        fault = TransportError(f"failed while data moved: {reason}")
        fault.__cause__ = self.failure
        return fault


class Inbox:
    """The messages of a row of parts from one rank, in order.

    A few receives are always posted ahead.
    """

    def __init__(self, link: Link, source: int, parts: list[slice]):
        self._link = link
        self._source = source
        self._parts = deque(parts)
        self._posted: deque[Pending] = deque()
        self._post()

    def _post(self) -> None:
        while self._parts and len(self._posted) < AHEAD:
            self._posted.append(self._link.receive(self._source, self._parts.popleft()))

    def take(self) -> Generator[Pending, None, Bytes]:
        """Wait for the next message and return it."""
        pending = self._posted.popleft()
        yield pending
        self._post()
        return pending.message()


def run(steps: Steps) -> float:
    """Drive an algorithm to its end, blocking; returns the seconds spent waiting."""
    waited = 0.0
    for pending in steps:
        start = time.perf_counter()
        pending.wait()
        waited += time.perf_counter() - start
    return waited
