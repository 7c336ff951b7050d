"""Latency: what a call costs where there is nothing to compress."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import zccl
from zccl.bench import arguments
from zccl.bench.collective import call_keywords, call_settings, settings
from zccl.bench.gpus import gpu_names, take_gpus
from zccl.bench.registry import benchmark
from zccl.bench.report import Column, Report
from zccl.bench.timing import alternate
from zccl.cli.ranks import together
from zccl.device import array_on_device
from zccl.device import synchronize as device_synchronize

_RECORD = 12  # float64 numbers, the size of the record by which ranks agree before each call

_COLUMNS = [
    Column("size", "size", "B", "d", 6),
    Column("type", "type", "", "s", 7),
    Column("call", "call", "", "s", 11),
    Column("median_us", "median", "us", ".2f", 9),
    Column("min_us", "min", "us", ".2f", 9),
    Column("max_us", "max", "us", ".2f", 9),
    Column("of_plain", "of", "plain", ".2f", 6),
    Column("beyond_agreed_us", "beyond", "plain+small us", "+.2f"),
    Column("wire_us", "wire", "us", ".2f", 9),
]


def _arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_sizes(parser, begin="8", end="8")
    arguments.add_rounds(parser, iterations=1000, warmup=100)
    arguments.add_call(parser, "allreduce")
    arguments.add_device(parser)


@benchmark("latency", help="a tiny allreduce with a bound beside plain ones", arguments=_arguments)
def latency(comm: MPI.Intracomm, args: argparse.Namespace) -> int:
    """Time a tiny zccl.allreduce beside MPI_Allreduce alone, and with one more small one.

    No call with a bound can be faster than the last: ranks must agree on its arguments. A
    persistent request has agreed before; "wire" is the time that a call waits for messages. With
    --device cuda zccl's arrays are on GPUs, those of plain calls on the host.
    """
    dtype = np.dtype(args.dtype)
    sizes = together(comm, arguments.sizes, args, dtype.itemsize)
    keywords = together(comm, call_keywords, args)
    on_gpus = together(comm, arguments.on_gpus, args)
    if on_gpus:
        take_gpus(comm)
    one = np.ones(1, dtype)
    together(comm, partial(zccl.allreduce, one, comm=comm, **keywords))
    what = call_settings(args) | {"algorithm": args.algorithm}
    if on_gpus:
        what["device"] = gpu_names(comm)
    report = Report("latency", settings(comm, args, **what), _COLUMNS, args.format)
    for size in sizes:
        calls, waited = _calls(comm, size // dtype.itemsize, dtype, keywords, on_gpus)
        times = alternate(comm, calls, args.iterations, args.warmup)
        base, agreement = times["plain"].median, times["plain+small"].median
        for call, found in times.items():
            row = {
                "size": size,
                "type": args.dtype,
                "call": call,
                "median_us": found.median * 1e6,
                "min_us": found.least * 1e6,
                "max_us": found.most * 1e6,
                "of_plain": found.median / base,
                "beyond_agreed_us": (found.median - agreement) * 1e6,
            }
            if call in waited:
                row["wire_us"] = float(np.median(waited[call][-args.iterations :])) * 1e6
            report.add(row)
    report.finish()
    return 0


def _calls(
    comm: MPI.Intracomm, count: int, dtype: np.dtype, keywords: dict[str, Any], on_gpus: bool
) -> tuple[dict[str, Callable[[], object]], dict[str, list[float]]]:
    """Return the calls to be timed, and where those of zccl note how long they have waited."""
    source = np.linspace(0, 1 + comm.rank, count).astype(dtype)
    result = np.empty_like(source)
    record, agreed = np.zeros(_RECORD), np.zeros(_RECORD)
    given: Any = source
    synchronize: Callable[[], object] = int
    if on_gpus:
        given, synchronize = array_on_device(source), device_synchronize
    taken = given.copy()
    waited: dict[str, list[float]] = {"zccl": [], "persistent": []}
    call = partial(
        zccl.allreduce, given, taken, comm=comm, return_info=True, **keywords
    )  # fmt: skip
    request = zccl.allreduce_init(given, taken, comm=comm, **keywords)

    def blocking() -> None:
        waited["zccl"].append(call()[1].seconds["wire"])
        synchronize()

    def persistent() -> None:
        request.Start()
        request.wait()
        waited["persistent"].append(request.info.seconds["wire"])
        synchronize()

    plain = partial(comm.Allreduce, source, result)

    def both() -> None:
        plain()
        comm.Allreduce(record, agreed, MPI.MAX)

    calls: dict[str, Callable[[], object]] = {
        "zccl": blocking, "persistent": persistent, "plain": plain, "plain+small": both,
    }  # fmt: skip
    return calls, waited
