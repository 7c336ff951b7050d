"""Which GPU each rank works on."""

from __future__ import annotations

import functools
import os
import uuid
import warnings
from typing import NamedTuple

import cupy
from cupy.cuda import nccl


class Place(NamedTuple):
    """Where a rank works."""

    host: str
    gpu: str
    process: int
    has_nccl: bool


def current_place() -> Place:
    """Return this rank's place, on CuPy's current device."""
    return _place(int(cupy.cuda.runtime.getDevice()))


@functools.cache
def _place(device: int) -> Place:
    """Return the place of a GPU, which takes milliseconds to ask for."""
    properties = cupy.cuda.runtime.getDeviceProperties(device)
    gpu = f"GPU-{uuid.UUID(bytes=bytes(properties['uuid']))}"  # as nvidia-smi writes it
    return Place(os.uname().nodename, gpu, os.getpid(), bool(nccl.available))


_warned: set[tuple[str, str]] = set()


def warn_of_sharing(places: list[Place], rank: int) -> None:
    """Warn once of each GPU that several ranks work on, on the lowest of them.

    Parameters
    ----------
    places : list of Place
        Of all ranks.
    rank : int
        This one.
    """
    mine = places[rank]
    sharing = [k for k, place in enumerate(places) if place[:2] == mine[:2]]
    if len(sharing) == 1 or mine[:2] in _warned:
        return
    _warned.add(mine[:2])  # on all of them, so that no other communicator has another lowest one
    if rank == sharing[0]:
        warnings.warn(
            f"ranks {sharing} share one GPU ({mine.gpu} of {mine.host}); zccl.bind_gpu(comm) gives"
            " each rank of a node its own, as far as there are any",
            RuntimeWarning, stacklevel=3,
        )  # fmt: skip
