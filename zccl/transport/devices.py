"""Which ways there are between the GPUs of a communicator's ranks, found out once."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
import warnings
from typing import Any, NamedTuple

import cupy

from zccl.transport.mpi import MpiTransport

PROBE_SECONDS = 60
NCCL_RANKS = 16  # more would open very many channels before the first message

# What a launcher tells its ranks: a process that has it takes itself for one of them.
_OF_LAUNCHERS = (
    "OMPI_COMM_", "OMPI_UNIVERSE", "OMPI_MCA_orte_", "OMPI_MCA_ess_", "PMIX_", "PMI_", "PRTE_",
    "HYDRA_", "MPI_LOCAL",
)  # fmt: skip


class Way(NamedTuple):
    """Whether something works, and the reason."""

    works: bool
    reason: str


class _Place(NamedTuple):
    """Where a rank works."""

    host: str
    gpu: str
    device: int
    has_nccl: bool


class DeviceTransports:
    """What can carry device arrays of a communicator; made and asked by all ranks together.

    Parameters
    ----------
    transport : MpiTransport
        Of the communicator.
    """

    def __init__(self, transport: MpiTransport):
        self._transport = transport
        device = cupy.cuda.runtime.getDevice()
        uuid = bytes(cupy.cuda.runtime.getDeviceProperties(device)["uuid"]).hex()
        place = _Place(os.uname().nodename, uuid, device, bool(cupy.cuda.nccl.available))
        self._places = transport.comm.allgather(place)
        self._device = device
        self._collectives: Any = None
        self._messages: Any = None
        self._warn()

    def _warn(self) -> None:
        mine = self._places[self._transport.rank]
        sharing = [k for k, place in enumerate(self._places) if place[:2] == mine[:2]]
        if len(sharing) > 1 and self._transport.rank == sharing[0]:
            warnings.warn(
                f"ranks {sharing} share one GPU; zccl.bind_gpu(comm) gives each rank of a node its"
                " own, as far as there are any",
                RuntimeWarning, stacklevel=2,
            )  # fmt: skip
        if len(os.sched_getaffinity(0)) == 1 and (os.cpu_count() or 1) > 1:
            warnings.warn(
                "this rank is bound to one core, which starves the threads of NCCL and UCX (20"
                " times slower); start with mpirun --bind-to none, or with several cores a rank",
                RuntimeWarning, stacklevel=2,
            )  # fmt: skip

    def nccl(self) -> Way:
        """Whether NCCL works between these GPUs."""
        return self._known("nccl", self._try_nccl)

    def mpi_device(self) -> Way:
        """Whether MPI takes pointers to a GPU's memory."""
        return self._known("mpi-device", self._try_mpi_device)

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

    def _known(self, what: str, find_out: Any) -> Way:
        key = (what, *self._places)
        if key not in _found:
            _found[key] = find_out()
        return _found[key]

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
            answer = child.line() if name else "NCCL did not start on rank 0"
        return self._verdict(answer, "NCCL works between all GPUs, one for each rank")

    def _try_mpi_device(self) -> Way:
        with _Child(["mpi-device", str(self._device)]) as child:
            answer = child.line()
        return self._verdict(answer, "MPI takes pointers to GPU memory")

    def _verdict(self, answer: str, praise: str) -> Way:
        answers = self._transport.comm.allgather(answer)
        for rank, text in enumerate(answers):
            if text != "works":
                return Way(False, f"tried in a process of its own: rank {rank}: {text or 'it crashed'}")
        return Way(True, praise)


_found: dict[Any, Way] = {}


class _Child:
    """A process that tries something."""

    def __init__(self, arguments: list[str]):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(_OF_LAUNCHERS)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zccl.transport.probe", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=clean,
        )  # fmt: skip
        self._until = time.monotonic() + PROBE_SECONDS

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, line: str) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def line(self) -> str:
        """Return the next line that it prints; empty when it ends or takes too long."""
        out = self._process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], max(self._until - time.monotonic(), 0))
        return out.readline().strip() if ready else ""
