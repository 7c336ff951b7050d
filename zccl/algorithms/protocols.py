"""What an algorithm knows of codecs and transports."""

from __future__ import annotations

from typing import Protocol

from zccl.typing import Bytes


class Memory(Protocol):
    """Where the messages of a codec lie."""

    ahead: int  # receives that are posted while the message in hand is worked on

    def take(self, nbytes: int) -> Bytes:
        """Return memory of so many bytes."""
        ...

    def fitted(self, message: Bytes) -> Bytes:
        """Return a message that will be kept for a while, in memory of its own size."""
        ...

    def numbers(self, row: Bytes) -> list[int]:
        """Read int64 numbers."""
        ...

    def put_numbers(self, row: Bytes, numbers: list[int]) -> None:
        """Write int64 numbers."""
        ...


class Codec(Protocol):
    """Parts of an array to messages and back; a part is a slice of its row of values."""

    memory: Memory

    itemsize: int  # bytes of a value
    escapes: int  # values that travelled as raw bits so far
    seconds: float  # time spent so far

    def max_nbytes(self, part: slice) -> int:
        """Return the most bytes that a message of this part can have."""
        ...

    def encode(self, part: slice) -> Bytes:
        """Return the message of this rank's own values."""
        ...

    def decode(self, message: Bytes, part: slice) -> None:
        """Put the values of a message into the result; damage may be raised by `finish` only."""
        ...

    def finish(self) -> None:
        """Wait for what is under way; raises what was found out late."""
        ...


class ReducingCodec(Codec, Protocol):
    """A codec whose messages can be reduced."""

    def combine(self, a: Bytes, b: Bytes, part: slice) -> Bytes:
        """Reduce two messages of the same part."""
        ...

    def add_own(self, message: Bytes, part: slice) -> Bytes:
        """Reduce a message and this rank's own values of the same part."""
        ...


class Wait(Protocol):
    """Something to wait for."""

    def done(self) -> bool:
        """Whether it has happened; makes progress."""
        ...

    def wait(self) -> None:
        """Block until then."""
        ...


class Pending(Wait, Protocol):
    """A message on its way: done when it has arrived, or left its buffer."""

    def message(self) -> Bytes:
        """Return what was received."""
        ...


class Transport(Protocol):
    """Moves bytes between ranks."""

    rank: int
    size: int

    def next_tag(self) -> int:
        """Return a tag for one operation."""
        ...

    def isend(self, message: Bytes, dest: int, tag: int) -> Pending:
        """Start to send."""
        ...

    def irecv(self, buffer: Bytes, source: int, tag: int) -> Pending:
        """Start to receive."""
        ...
