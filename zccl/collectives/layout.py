"""Dtype, shape and counts of the root's array, for the ranks that do not know them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from zccl.algorithms.primitives import StepsTo
from zccl.formats import DTYPE_CODES
from zccl.transport.waiting import Waiting

MAX_DIMS = 64  # NumPy's own limit

_DTYPES = list(DTYPE_CODES)


class Layout(NamedTuple):
    """What all ranks must know of the root's array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    on_device: bool


def shared_layout(comm: MPI.Intracomm, layout: Layout | None, root: int) -> StepsTo[Layout]:
    """Return the root's layout on all ranks."""
    numbers = np.zeros(3 + MAX_DIMS, np.int64)
    if comm.rank == root:
        assert layout is not None
        numbers[:3] = _DTYPES.index(layout.dtype), layout.on_device, len(layout.shape)
        numbers[3 : 3 + len(layout.shape)] = layout.shape
    yield Waiting(comm.Ibcast(numbers, root))
    code, on_device, dims, *shape = numbers.tolist()
    return Layout(_DTYPES[code], tuple(shape[:dims]), bool(on_device))


def shared_counts(comm: MPI.Intracomm, counts: list[int] | None, root: int) -> StepsTo[list[int]]:
    """Return the root's counts on all ranks."""
    known = np.zeros(comm.size, np.int64)
    if comm.rank == root:
        assert counts is not None
        known[:] = counts
    yield Waiting(comm.Ibcast(known, root))
    return [int(count) for count in known]
