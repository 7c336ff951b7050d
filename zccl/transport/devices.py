"""Which ways there are between the GPUs of a communicator's ranks, found out once."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import subprocess
import sys
import time
import warnings
from typing import Any

import cupy

from zccl.transport.gpus import Place, warn_of_sharing
from zccl.transport.mpi import MpiTransport
from zccl.transport.ways import Way

PROBE_SECONDS = 60
LAST_SECONDS = 5  # for a process that was killed to be gone
NCCL_RANKS = 16  # more would open very many channels before the first message

# What a launcher tells its ranks: a process that has it takes itself for one of them.
_OF_LAUNCHERS = (
    "OMPI_COMM_", "OMPI_UNIVERSE", "OMPI_MCA_orte_", "OMPI_MCA_ess_", "PMIX_", "PMI_", "PRTE_",
    "HYDRA_", "MPI_LOCAL",
)  # fmt: skip


class DeviceTransports:
    """What can carry arrays between some GPUs; made and asked by all ranks together.

    Parameters
    ----------
    transport : MpiTransport
        Of the communicator, with a duplicate that is for this alone.
    places : list of Place
        Of all ranks; this one's GPU is CuPy's current one, and is so in all calls but `free`.
    """

    def __init__(self, transport: MpiTransport, places: list[Place]):
        self._transport = transport
        self._places = places
        self._device = int(cupy.cuda.runtime.getDevice())
        self._mpi_device: Way | None = None
        self._collectives: Any = None
        self._messages: Any = None
        # Where warnings are errors, one rank alone would leave the others waiting.
        with contextlib.suppress(Warning):
            warn_of_sharing(self._places, transport.rank)
            self._warn_of_binding()

    def _warn_of_binding(self) -> None:
        if len(os.sched_getaffinity(0)) == 1 and (os.cpu_count() or 1) > 1:
            warnings.warn(
                "this rank is bound to one core, which starves the threads of NCCL and UCX (20"
                " times slower); start with mpirun --bind-to none, or with several cores a rank",
                RuntimeWarning, stacklevel=2,
            )  # fmt: skip

    def nccl(self) -> Way:
        """Whether NCCL works between these GPUs."""
        key = tuple(self._places)  # all these processes know the answer, or none does
        if key not in _nccl_ways:
            _nccl_ways[key] = self._try_nccl()
        return _nccl_ways[key]

    def nccl_works(self) -> bool:
        """Whether that is known already."""
        way = _nccl_ways.get(tuple(self._places))
        return way is not None and way.works

    def mpi_device(self) -> Way:
        """Whether MPI takes pointers to a GPU's memory."""
        if self._mpi_device is None:
            answer = _try_mpi_device(self._device)
            self._mpi_device = self._verdict(answer, "MPI takes pointers to GPU memory")
        return self._mpi_device

    def collectives(self) -> Any:
        """Return NCCL's collectives of these ranks."""
        if self._collectives is None:
            from zccl.transport.nccl import NcclCollectives

            self._collectives = NcclCollectives(self._transport)
        return self._collectives

    def messages(self) -> Any:
        """Return the transport of messages by NCCL."""
        if self._messages is None:
            from zccl.transport.nccl import NcclTransport

            self._messages = NcclTransport(self._transport)
        return self._messages

    def free(self) -> None:
        """Give NCCL's communicators back; collective."""
        with cupy.cuda.Device(self._device):
            for made in (self._collectives, self._messages):
                if made is not None:
                    made.free()
        self._transport.comm.Free()

    def _try_nccl(self) -> Way:
        size, rank, comm = self._transport.size, self._transport.rank, self._transport.comm
        if not all(place.has_nccl for place in self._places):
            return Way(False, "CuPy has no NCCL on some rank")
        if len({place[:2] for place in self._places}) < size:
            return Way(False, "NCCL wants one GPU for each rank, but some share one")
        if size > NCCL_RANKS:
            return Way(False, f"more than {NCCL_RANKS} ranks")
        with _Child(["nccl", str(rank), str(size), str(self._device)]) as child:
            name = comm.bcast(child.line() if rank == 0 else None)
            if rank and name:
                child.tell(name)
            answer = name and child.line() or child.fault or "NCCL did not start on rank 0"
        return self._verdict(answer, "NCCL works between all GPUs, one for each rank")

    def _verdict(self, answer: str, praise: str) -> Way:
        answers = self._transport.comm.allgather(answer)
        for rank, text in enumerate(answers):
            if text != "works":
                return Way(False, f"tried in a process of its own: rank {rank}: {text}")
        return Way(True, praise)


_nccl_ways: dict[tuple[Place, ...], Way] = {}


@functools.cache
def _try_mpi_device(device: int) -> str:
    with _Child(["mpi-device", str(device)]) as child:
        return child.line() or child.fault


class _Child:
    """A process that tries something.

    Attributes
    ----------
    fault : str
        Why there is no further line; empty as long as there may be one.
    """

    def __init__(self, arguments: list[str]):
        strange = (*_OF_LAUNCHERS, "NCCL_DEBUG")  # which lets NCCL write among the answers
        clean = {k: v for k, v in os.environ.items() if not k.startswith(strange)}
        self.fault = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "zccl.transport.probe", *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                bufsize=0, env=clean,
            )  # fmt: skip
        except OSError as error:
            self.fault = f"cannot start a process: {error}"
        self._until = time.monotonic() + PROBE_SECONDS

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # held by the driver: it ends later
            self._process.wait(LAST_SECONDS)

    def tell(self, line: str) -> None:
        """Write a line to it."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")

    def line(self) -> str:
        """Return the next line that it prints; empty, with a fault, when there comes none."""
        while not self.fault and b"\n" not in self._unread:
            self._read()
        line, _, self._unread = self._unread.partition(b"\n")
        return "" if self.fault else line.decode(errors="replace").strip()

    def _read(self) -> None:
        """Read what there is as soon as there is something, be it half a line."""
        assert self._process is not None and self._process.stdout is not None
        out = self._process.stdout.fileno()
        ready, _, _ = select.select([out], [], [], max(self._until - time.monotonic(), 0))
        found = os.read(out, 4096) if ready else b""
        self._unread += found
        if not ready:
            self.fault = f"no answer in {PROBE_SECONDS} s"
        elif not found:
            self.fault = "it crashed"
