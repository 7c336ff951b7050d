"""Overlap: how much of an allreduce is hidden behind what the program computes meanwhile."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import zccl
from zccl.bench import arguments
from zccl.bench.collective import call_keywords, call_settings, settings
from zccl.bench.fields import load_field, rank_part
from zccl.bench.registry import benchmark
from zccl.bench.report import Column, Report
from zccl.bench.timing import alternate
from zccl.cli.ranks import together
from zccl.options import PROGRESS

SLICE_VALUES = 1 << 14  # a slice of work takes a fraction of a millisecond

_COLUMNS = [
    Column("size", "size", "B", "d", 11),
    Column("type", "type", "", "s", 7),
    Column("progress", "progress", "", "s", 8),
    Column("alone_us", "allreduce", "us", ".0f", 9),
    Column("work_us", "work", "us", ".0f", 9),
    Column("both_us", "both", "us", ".0f", 9),
    Column("wire_us", "of it wire", "us", ".0f", 9),
    Column("hidden_us", "hidden", "us", ".0f", 9),
    Column("hidden_of_wire", "hidden", "/wire", ".2f", 6),
]


def _arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_sizes(parser, begin="64M", end="64M")
    arguments.add_rounds(parser, iterations=5, warmup=1)
    arguments.add_call(parser, "allreduce")
    arguments.add_field(parser)


class Work:
    """What the program computes: so many slices, each of the same length."""

    def __init__(self, seconds: float):
        self._values = np.linspace(0, 1, SLICE_VALUES)
        self._slices = 1
        self.run()
        while (taken := self._timed()) < 5e-3:
            self._slices *= 2
        self._slices = max(1, round(self._slices * seconds / taken))

    def _timed(self) -> float:
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def run(self, between: Callable[[], object] | None = None) -> None:
        """Do it; `between` is called after each slice."""
        for _ in range(self._slices):
            np.sin(self._values)
            if between is not None:
                between()


@benchmark("overlap", help="an allreduce behind computation", arguments=_arguments)
def overlap(comm: MPI.Intracomm, args: argparse.Namespace) -> int:
    """Time zccl.allreduce, as much computation, and that between iallreduce and wait.

    In the mode "call" the program tests its request after each slice of work.
    """
    dtype = np.dtype(args.dtype)
    sizes = together(comm, arguments.sizes, args, dtype.itemsize)
    field = together(comm, load_field, args.field)
    keywords = together(comm, call_keywords, args)
    one = np.ones(1, dtype)
    together(comm, partial(zccl.allreduce, one, comm=comm, **keywords))
    what = call_settings(args) | {"algorithm": args.algorithm}
    report = Report("overlap", settings(comm, args, **what), _COLUMNS, args.format)
    for size in sizes:
        source = rank_part(field, size // dtype.itemsize, dtype, comm.rank, comm.size)
        for progress in PROGRESS:
            row = _measure(comm, args, source, _with_progress(keywords, progress))
            report.add({"size": size, "type": args.dtype, "progress": progress} | row)
    report.finish()
    return 0


def _with_progress(keywords: dict[str, Any], progress: str) -> dict[str, Any]:
    return keywords | {"options": dataclasses.replace(keywords["options"], progress=progress)}


def _measure(
    comm: MPI.Intracomm, args: argparse.Namespace, source: Any, keywords: dict[str, Any]
) -> dict[str, float]:
    result = np.empty_like(source)
    infos = []

    def alone() -> None:
        infos.append(
            zccl.allreduce(source, result, comm=comm, return_info=True, **keywords)[1]
        )  # fmt: skip

    tests = keywords["options"].progress == "call"

    def both() -> None:
        request = zccl.iallreduce(source, result, comm=comm, **keywords)
        work.run(request.test if tests else None)
        request.wait()

    first = alternate(comm, {"alone": alone}, 3, 1)["alone"].median
    work = Work(first)
    calls: dict[str, Callable[[], object]] = {"alone": alone, "work": work.run, "both": both}
    times = alternate(comm, calls, args.iterations, args.warmup)
    spent = {name: found.median for name, found in times.items()}
    hidden = spent["alone"] + spent["work"] - spent["both"]
    wire = float(np.median([info.seconds["wire"] for info in infos]))
    row = {f"{name}_us": seconds * 1e6 for name, seconds in spent.items()}
    return row | {
        "wire_us": wire * 1e6,
        "hidden_us": hidden * 1e6,
        "hidden_of_wire": hidden / wire if wire else float("nan"),
    }
