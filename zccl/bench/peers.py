"""Programs installed elsewhere whose times stand beside zccl's: `--peer NAME=COMMAND`."""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import time
from dataclasses import dataclass

from mpi4py import MPI

_LINE = re.compile(r"\s*(\d+)\s+([0-9.eE+-]+)\s*")

# What launchers tell the processes that they start. A peer with a launcher of its own must not see
# it, or it takes itself for a part of this run. Settings of a user's stay.
_LAUNCHER = re.compile(r"(?!OMPI_ALLOW|\w+_MCA_)(PMI|PMIX|HYDI|PRTE|OMPI|MPI_LOCAL)")


@dataclass(frozen=True)
class Peer:
    """A program that prints lines `size_in_bytes seconds`; other lines do not matter."""

    name: str
    command: str

    @classmethod
    def parse(cls, text: str) -> Peer:
        """Read NAME=COMMAND."""
        name, equals, command = text.partition("=")
        if not equals or not re.fullmatch(r"\w[\w.-]*", name) or not command.strip():
            raise argparse.ArgumentTypeError(f"got {text!r}, wanted NAME=COMMAND")
        return cls(name, command)

    def seconds(self) -> dict[int, float]:
        """Run the command and return the time of each size, the median of equal sizes.

        Raises
        ------
        ValueError
            When it fails or prints no such line.
        """
        own = {k: v for k, v in os.environ.items() if not _LAUNCHER.match(k)}
        ran = subprocess.run(
            self.command,
            shell=True,
            env=own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
            raise ValueError(f"peer {self.name}: exit code {ran.returncode}: {last}")
        return self._read(ran.stdout)

    def _read(self, output: str) -> dict[int, float]:
        found: dict[int, list[float]] = {}
        for match in filter(None, map(_LINE.fullmatch, output.splitlines())):
            try:
                seconds = float(match[2])
            except ValueError:  # something like 1-2
                continue
            found.setdefault(int(match[1]), []).append(seconds)
        if not found:
            raise ValueError(f"peer {self.name}: printed no line 'size_in_bytes seconds'")
        return {size: statistics.median(times) for size, times in found.items()}


def run_peers(comm: MPI.Intracomm, peers: list[Peer]) -> tuple[dict[str, dict[int, float]], str]:
    """Run the peers on rank 0, one after the other, while the other ranks sleep.

    Returns
    -------
    dict
        Seconds by name and size, on rank 0; failed peers are missing.
    str
        What failed, on all ranks; empty when nothing did.
    """
    found = {}
    faults = []
    for peer in peers if comm.rank == 0 else []:
        try:
            found[peer.name] = peer.seconds()
        except (OSError, ValueError) as error:
            faults.append(str(error))
    rank_0_is_done = comm.Ibarrier()
    while not rank_0_is_done.Test():  # a blocking call would keep a core busy beside the peers
        time.sleep(0.01)
    return found, comm.bcast("; ".join(faults))
