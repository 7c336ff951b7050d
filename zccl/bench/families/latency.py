"""Latency: what a call costs where there is nothing to compress."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

import zccl
from zccl.bench import arguments
from zccl.bench.collective import call_keywords, call_settings, settings
from zccl.bench.registry import benchmark
from zccl.bench.report import Column, Report
from zccl.bench.timing import alternate
from zccl.cli.ranks import together

_RECORD = 8  # float64 numbers, the size of the record by which ranks agree before each call

_COLUMNS = [
    Column("size", "size", "B", "d", 6),
    Column("type", "type", "", "s", 7),
    Column("call", "call", "", "s", 11),
    Column("median_us", "median", "us", ".2f", 9),
    Column("min_us", "min", "us", ".2f", 9),
    Column("max_us", "max", "us", ".2f", 9),
    Column("of_plain", "of", "plain", ".2f", 6),
    Column("beyond_agreed_us", "beyond", "plain+small us", "+.2f"),
]


def _arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_sizes(parser, begin="8", end="8")
    arguments.add_rounds(parser, iterations=1000, warmup=100)
    arguments.add_call(parser, "allreduce")


@benchmark("latency", help="a tiny allreduce with a bound beside plain ones", arguments=_arguments)
def latency(comm: MPI.Intracomm, args: argparse.Namespace) -> int:
    """Time a tiny zccl.allreduce beside MPI_Allreduce alone, and with one more small one.

    No call with a bound can be faster than the last: ranks must agree on its arguments.
    """
    dtype = np.dtype(args.dtype)
    sizes = together(comm, arguments.sizes, args, dtype.itemsize)
    keywords = together(comm, call_keywords, args)
    one = np.ones(1, dtype)
    together(comm, partial(zccl.allreduce, one, comm=comm, **keywords))
    what = call_settings(args) | {"algorithm": args.algorithm}
    report = Report("latency", settings(comm, args, **what), _COLUMNS, args.format)
    record, agreed = np.zeros(_RECORD), np.zeros(_RECORD)
    for size in sizes:
        source = np.linspace(0, 1 + comm.rank, size // dtype.itemsize).astype(dtype)
        result = np.empty_like(source)
        plain = partial(comm.Allreduce, source, result)

        def both(plain: Callable[[], object] = plain) -> None:
            plain()
            comm.Allreduce(record, agreed, MPI.MAX)

        calls: dict[str, Callable[[], object]] = {
            "zccl": partial(zccl.allreduce, source, result, comm=comm, **keywords),
            "plain": plain,
            "plain+small": both,
        }
        times = alternate(comm, calls, args.iterations, args.warmup)
        base, agreement = times["plain"].median, times["plain+small"].median
        for call, found in times.items():
            report.add(
                {
                    "size": size,
                    "type": args.dtype,
                    "call": call,
                    "median_us": found.median * 1e6,
                    "min_us": found.least * 1e6,
                    "max_us": found.most * 1e6,
                    "of_plain": found.median / base,
                    "beyond_agreed_us": (found.median - agreement) * 1e6,
                }
            )
    report.finish()
    return 0
