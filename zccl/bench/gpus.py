"""`--device cuda`: a GPU for each rank, and the fields of benchmarks on it."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from mpi4py import MPI

import zccl
from zccl.bench.fields import component_row
from zccl.cli.ranks import fail
from zccl.device import DeviceArray
from zccl.typing import Array

SHIFT = 7919  # values by which the field of a rank is shifted against the one before
CHUNK = 1 << 24  # elements that scratch arrays have at most


def take_gpus(comm: MPI.Intracomm) -> None:
    """Give each rank a GPU; where there is none, all ranks end with one line."""
    try:
        zccl.bind_gpu(comm)
    except (zccl.ZcclError, RuntimeError) as error:  # the same on all ranks
        fail(comm, f"--device cuda: {error}")


def run_collective_on_gpus(comm: MPI.Intracomm, args: argparse.Namespace, name: str) -> int:
    """Measure a collective of CuPy arrays and return the exit code."""
    take_gpus(comm)
    from zccl.bench.device_collective import run

    return run(comm, args, name)


def run_codec_on_gpu(
    comm: MPI.Intracomm,
    args: argparse.Namespace,
    fields: dict[str, Array],
    dtypes: tuple[str, ...],
    what: dict[str, object],
) -> int:
    """Measure the codec's kernels on all fields and return the exit code."""
    take_gpus(comm)
    try:
        from zccl.bench.device_codec import run
    except ImportError as error:
        fail(comm, f"--device cuda: needs numba-cuda: pip install zccl-mpi[cuda13] ({error})")
    return run(comm, args, fields, dtypes, what)


def gpu_names(comm: MPI.Intracomm) -> str:
    """Name the GPUs of all ranks, for the head of a report; collective."""
    import cupy

    device = cupy.cuda.runtime.getDevice()
    name = cupy.cuda.runtime.getDeviceProperties(device).get("name", b"unknown").decode()
    names = comm.allgather(name)
    return ", ".join(f"{names.count(one)} x {one}" for one in sorted(set(names)))


class DeviceField:
    """A field on this rank's GPU, repeated without end; each rank's part begins elsewhere.

    Parameters
    ----------
    field : ndarray
        Real values.
    dtype : dtype
        Of the parts. Complex numbers take their imaginary parts from half a field further on.
    """

    def __init__(self, field: Array, dtype: np.dtype):
        import cupy

        self._cupy: Any = cupy
        self.row: DeviceArray = cupy.asarray(component_row(field, dtype))
        self.dtype = dtype

    def fill(self, out: DeviceArray, rank: int, start: int = 0) -> None:
        """Fill a row with a rank's elements from `start` on."""
        for first in range(0, out.size, CHUNK):
            count = min(CHUNK, out.size - first)
            out[first : first + count] = self.part(rank, count, start + first)

    def part(self, rank: int, count: int, start: int = 0) -> DeviceArray:
        """Return `count` of a rank's elements, from `start` on."""
        begin = (start - SHIFT * rank) % self.row.size
        index = self._cupy.arange(begin, begin + count, dtype=np.int64)
        return self.row[index % self.row.size]

    def filled(self, rank: int, count: int, start: int = 0) -> DeviceArray:
        """Do as `part` with less scratch memory."""
        out = self._cupy.empty(count, self.dtype)
        self.fill(out, rank, start)
        return out
