"""The vocabulary that algorithms are written in.

An algorithm, and all of a collective, is a generator that yields what it must wait for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from typing import TypeVar

import numpy as np

from zccl.algorithms.protocols import Codec, Memory, Pending, ReducingCodec, Transport, Wait
from zccl.errors import StreamError, TransportError
from zccl.typing import Bytes

Result = TypeVar("Result")
StepsTo = Generator[Wait, None, Result]
"""Steps to a result."""

Steps = StepsTo[None]
"""What an algorithm is."""

BUNDLE_NBYTES = 64 << 10  # uncompressed bytes that share a message

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
        self.memory = codec.memory
        self._transport = transport
        self._codec = codec
        self._tag = transport.next_tag()
        self._sends: deque[Pending] = deque()

    def send(self, message: Bytes, dest: int, *parts: slice) -> Pending:
        """Start to send the message of some parts; `finish_sends` waits for it in any case."""
        self.sent_nbytes += message.nbytes
        self.plain_nbytes += sum(map(self.plain_size, parts))
        while self._sends and self._sends[0].done():  # lets go of their buffers
            self._sends.popleft()
        self._sends.append(self._transport.isend(self.memory.fitted(message), dest, self._tag))
        return self._sends[-1]

    def plain_size(self, part: slice) -> int:
        """Return the uncompressed bytes of a part."""
        return (part.stop - part.start) * self._codec.itemsize

    def receive(self, source: int, parts: list[slice]) -> Pending:
        """Start to receive the message of some parts."""
        nbytes = packed_nbytes([self._codec.max_nbytes(part) for part in parts])
        buffer = self._guarded(lambda: self.memory.take(nbytes))
        if not buffer.size:  # no room: MPI fills other memory, and NCCL refuses the message
            buffer = np.empty(nbytes, np.uint8)
        return self._transport.irecv(buffer, source, self._tag)

    def finish_sends(self) -> Steps:
        """Wait until all messages have left."""
        while self._sends:
            yield self._sends.popleft()

    def encode(self, part: slice) -> Bytes:
        """Return the message of one's own part."""
        return self._guarded(lambda: self._codec.encode(part))

    def decode(self, message: Bytes, part: slice) -> None:
        """Put a message in its place in the result."""
        if message.size:
            self._guarded(lambda: self._codec.decode(message, part))

    def pack(self, messages: list[Bytes]) -> Bytes:
        """Return the bundle of some messages."""
        return self._guarded(lambda: pack(messages, self.memory))

    def split(self, message: Bytes, count: int) -> list[Bytes]:
        """Return the messages of a bundle; all of a damaged one are failures."""
        try:
            return unpack(message, count, self.memory)
        except StreamError as error:
            self.failure = self.failure or error
            return [_FAILED] * count

    def finish_codec(self) -> None:
        """Wait for what the codec has under way."""
        self._guarded(self._codec.finish)

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


class ReducingLink(Link):
    """The messages of a reduction."""

    def __init__(self, transport: Transport, codec: ReducingCodec):
        super().__init__(transport, codec)
        self._reducer = codec

    def combine(self, a: Bytes, b: Bytes, part: slice) -> Bytes:
        """Reduce two messages; a failure among them stays one."""
        if not a.size or not b.size:
            return _FAILED
        return self._guarded(lambda: self._reducer.combine(a, b, part))

    def add_own(self, message: Bytes, part: slice) -> Bytes:
        """Reduce a message and one's own part; a failure stays one."""
        if not message.size:
            return _FAILED
        return self._guarded(lambda: self._reducer.add_own(message, part))


def bundles(link: Link, parts: list[slice]) -> list[list[slice]]:
    """Group neighbours, so that short parts share a message: the same on both sides."""
    groups: list[list[slice]] = []
    room = 0
    for part in parts:
        nbytes = link.plain_size(part)
        if nbytes > room:
            groups.append([])
            room = BUNDLE_NBYTES
        groups[-1].append(part)
        room -= nbytes
    return groups


def packed_nbytes(sizes: list[int]) -> int:
    """Return the bytes of a bundle of messages of so many bytes; a single one stays as it is."""
    if len(sizes) == 1:
        return sizes[0]
    return 8 * len(sizes) + sum(-(-nbytes // 8) * 8 for nbytes in sizes)


def pack(messages: list[Bytes], memory: Memory) -> Bytes:
    """Join messages: their lengths, then each on an 8-byte border."""
    if len(messages) == 1:
        return messages[0]
    sizes = [message.nbytes for message in messages]
    bundle = memory.take(packed_nbytes(sizes))
    memory.put_numbers(bundle[: 8 * len(sizes)], sizes)
    at = 8 * len(sizes)
    for message in messages:
        if message.nbytes:
            bundle[at : at + message.nbytes] = message
        at += -(-message.nbytes // 8) * 8
    return bundle


def unpack(bundle: Bytes, count: int, memory: Memory) -> list[Bytes]:
    """Split a bundle into its messages, views of it.

    Raises
    ------
    StreamError
        When the lengths do not add up.
    """
    if count == 1:
        return [bundle]
    sizes = memory.numbers(bundle[: 8 * count]) if bundle.nbytes >= 8 * count else []
    if not sizes or min(sizes) < 0 or packed_nbytes(sizes) != bundle.nbytes:
        raise StreamError(f"damaged bundle of {bundle.nbytes} bytes")
    messages = []
    at = 8 * count
    for nbytes in sizes:
        messages.append(bundle[at : at + nbytes])
        at += -(-nbytes // 8) * 8
    return messages


class Outbox:
    """The messages of a row of parts to one rank, in order, short ones bundled."""

    def __init__(self, link: Link, dest: int, parts: list[slice]):
        self._link = link
        self._dest = dest
        self._bundles = deque(bundles(link, parts))
        self._held: list[Bytes] = []

    def put(self, message: Bytes) -> None:
        """Send the next message, or hold it until its bundle is full."""
        self._held.append(message)
        if len(self._held) == len(self._bundles[0]):
            message = self._link.pack(self._held)
            self._link.send(message, self._dest, *self._bundles.popleft())
            self._held = []


class Inbox:
    """The messages of a row of parts from one rank, in order.

    The next receives are always posted ahead.

    Parameters
    ----------
    link : Link
        The operation.
    source : int
        The rank that sends.
    groups : list of list of slice
        The parts of each message: as `bundles` has them for an `Outbox`, else one each.
    """

    def __init__(self, link: Link, source: int, groups: list[list[slice]]):
        self._link = link
        self._source = source
        self._groups = deque(groups)
        self._posted: deque[tuple[Pending, int]] = deque()
        self._arrived: deque[Bytes] = deque()
        self._post()

    @classmethod
    def of_parts(cls, link: Link, source: int, parts: list[slice]) -> Inbox:
        """Return an inbox of one message for each part."""
        return cls(link, source, [[part] for part in parts])

    @classmethod
    def of_bundles(cls, link: Link, source: int, parts: list[slice]) -> Inbox:
        """Return an inbox of what the `Outbox` of these parts sends."""
        return cls(link, source, bundles(link, parts))

    def _post(self) -> None:
        while self._groups and len(self._posted) < self._link.memory.ahead:
            group = self._groups.popleft()
            self._posted.append((self._link.receive(self._source, group), len(group)))

    def take(self) -> StepsTo[Bytes]:
        """Wait for the message of the next part and return it."""
        if not self._arrived:
            pending, count = self._posted.popleft()
            yield pending
            self._post()
            self._arrived.extend(self._link.split(pending.message(), count))
        return self._arrived.popleft()


def timed(steps: Steps) -> StepsTo[float]:
    """Take steps; the result is the seconds spent waiting."""
    waited = 0.0
    for wait in steps:
        start = time.perf_counter()
        yield wait
        waited += time.perf_counter() - start
    return waited
