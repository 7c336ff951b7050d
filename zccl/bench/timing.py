"""Times of calls that take turns, and bandwidths."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

# Bytes that one rank's link must carry, as a share of the size: busbw of nccl-tests.
_BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "bcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
}


class Times(NamedTuple):
    """Seconds of one call over all rounds, in each round of the slowest rank."""

    median: float
    least: float
    most: float


def alternate(
    comm: MPI.Intracomm, calls: Mapping[str, Callable[[], object]], rounds: int, warmup: int
) -> dict[str, Times]:
    """Time some collective calls, one of each in every round, so that all see the same machine.

    Every other round goes backwards, so that none always finds the input in its cache.
    """
    seconds = np.empty((rounds, len(calls)))
    for i in range(-warmup, rounds):
        order = list(enumerate(calls.values()))
        for k, call in order if i % 2 else reversed(order):
            comm.Barrier()
            start = time.perf_counter()
            call()
            stop = time.perf_counter()
            if i >= 0:
                seconds[i, k] = stop - start
    comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
    columns = seconds.T
    return {
        name: Times(float(np.median(c)), float(c.min()), float(c.max()))
        for name, c in zip(calls, columns, strict=True)
    }


def bandwidths(collective: str, nbytes: int, seconds: float, ranks: int) -> tuple[float, float]:
    """Return algbw and busbw in GB/s of uncompressed bytes, as nccl-tests define them."""
    algorithm = nbytes / seconds / 1e9
    return algorithm, algorithm * _BUS_FACTORS[collective](ranks)
