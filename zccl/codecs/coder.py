"""What turns rows of values into messages: kernels, and the memory that both lie in."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from zccl.codecs.host_coder import Coded, HostCoder
from zccl.codecs.tiles import Grid, Values
from zccl.formats import FIXED
from zccl.ops import Op
from zccl.typing import Array, Bytes


class Coder(Protocol):
    """Implemented by `HostCoder`, and by `DeviceCoder` for arrays on a GPU."""

    memory: Any  # where messages lie

    def read_head(self, message: Bytes, nbytes: int) -> bytes:
        """Return the first bytes of a message."""
        ...

    def write_head(self, message: Bytes, head: bytes) -> None:
        """Set the first bytes of a message."""
        ...

    def encode(self, values: Values, grid: Grid, head_nbytes: int) -> tuple[Coded, int]:
        """Return the message of values, its head unset, and how many values travel raw."""
        ...

    def combine(self, a: Coded, b: Coded, op: Op, n: int, step: float) -> Coded:
        """Reduce two messages of n values on one grid."""
        ...

    def add_values(self, values: Values, grid: Grid, b: Coded, op: Op) -> tuple[Coded, int]:
        """Reduce values and a message."""
        ...

    def decode(
        self, coded: Coded, step: float, out: Values, divisor: float = 1.0, reduced: bool = False
    ) -> None:
        """Put the values of a message into `out`; damage may be raised by `finish` only."""
        ...

    def store(self, elements: Array, head_nbytes: int = 0) -> Bytes:
        """Return the message of elements as they are, behind a head that is unset."""
        ...

    def message(self, elements: Array) -> Bytes:
        """Return the message of elements that nobody else uses."""
        ...

    def elements(self, message: Bytes, head_nbytes: int = 0) -> Array:
        """Return the elements of such a message, where arrays live."""
        ...

    def plain_checksum(self, message: Bytes, head_nbytes: int) -> int:
        """Return the checksum of the words behind the head."""
        ...

    def finish(self) -> None:
        """Wait until messages may be let go of; raises what was found out late."""
        ...


def make_coder(
    dtype: np.dtype,
    threads: int,
    device: bool,
    direct: bool,
    coding: int = FIXED,
    axes: int = 1,
) -> Coder:
    """Return a coder.

    Parameters
    ----------
    dtype : dtype
        Of the values, or of elements that are carried as they are.
    threads : int
        Cores to work on, for arrays of the host.
    device : bool
        Whether arrays are on CuPy's current device.
    direct : bool
        Whether messages are there, too.
    coding : int
        Of messages: `formats.FIXED` or `ENTROPY`.
    axes : int
        Along how many axes tiles are cut.
    """
    if not device:
        return HostCoder(dtype, threads, coding, axes)
    from zccl.codecs.device_coder import DeviceCoder

    return DeviceCoder(dtype, direct, coding, axes)
