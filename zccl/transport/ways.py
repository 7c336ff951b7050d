"""What is said of ways to carry device arrays, on machines without CuPy, too."""

from __future__ import annotations

from typing import NamedTuple


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

    def mpi_device(self) -> Way:
        """Not usable."""
        return self._way

    def free(self) -> None:
        """Nothing was made."""
