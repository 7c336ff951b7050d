"""Reduce and reduce-scatter: zccl and the MPI library."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import zccl
from zccl.bench import arguments
from zccl.bench.checks import check_reduction, promised_bound
from zccl.bench.collective import Case, call_keywords, run_collective
from zccl.bench.families.allreduce import MPI_OPS
from zccl.bench.fields import load_field, rank_part
from zccl.bench.gpus import run_collective_on_gpus
from zccl.bench.registry import benchmark
from zccl.cli.ranks import together
from zccl.ops import Op
from zccl.plan import even_split
from zccl.typing import Array

_Calls = tuple[Callable[..., Any], Callable[[], object], Array]
"""A call of zccl without its keywords, MPI's own, and where zccl's result goes."""


def _arguments(collective: str) -> Callable[[argparse.ArgumentParser], None]:
    def add(parser: argparse.ArgumentParser) -> None:
        arguments.add_sizes(parser, begin="64K", end="16M")
        arguments.add_rounds(parser, iterations=20, warmup=5)
        arguments.add_operation(parser)
        if collective == "reduce":
            arguments.add_root(parser)
        arguments.add_call(parser, collective)
        arguments.add_devices(parser)
        arguments.add_field(parser)
        arguments.add_peers(parser)
        arguments.add_check(parser)

    return add


@benchmark("reduce", help="beside MPI_Reduce", arguments=_arguments("reduce"))
def reduce(comm: MPI.Intracomm, args: argparse.Namespace) -> int:
    """Time zccl.reduce beside MPI_Reduce, taking turns."""
    op = Op(args.op)

    def calls(source: Array) -> _Calls:
        result, native = np.empty_like(source), np.empty_like(source)

        def plain() -> None:
            comm.Reduce(source, native, MPI_OPS[op], args.root)
            if op is Op.AVG and comm.rank == args.root:
                np.divide(native, comm.size, out=native)

        own = partial(zccl.reduce, source, result, op, args.root, comm)
        return own, plain, result

    return _run(comm, args, "reduce", calls, lambda count: 0, ["redop", "root"])


@benchmark(
    "reduce_scatter", help="beside MPI_Reduce_scatter", arguments=_arguments("reduce_scatter")
)
def reduce_scatter(comm: MPI.Intracomm, args: argparse.Namespace) -> int:
    """Time zccl.reduce_scatter beside MPI_Reduce_scatter, taking turns; sizes are whole arrays'."""
    op = Op(args.op)

    def calls(source: Array) -> _Calls:
        counts = even_split(source.size, comm.size)
        result, native = (np.empty(counts[comm.rank], source.dtype) for _ in range(2))

        def plain() -> None:
            comm.Reduce_scatter(source, native, counts, MPI_OPS[op])
            if op is Op.AVG:
                np.divide(native, comm.size, out=native)

        return partial(zccl.reduce_scatter, source, result, None, op, comm), plain, result

    def first(count: int) -> int:
        return sum(even_split(count, comm.size)[: comm.rank])

    return _run(comm, args, "reduce_scatter", calls, first, ["redop"])


def _run(
    comm: MPI.Intracomm,
    args: argparse.Namespace,
    name: str,
    calls: Callable[[Array], _Calls],
    first: Callable[[int], int],
    labels: list[str],
) -> int:
    """Measure one; `first` is the element of a result of so many where this rank's begins."""
    if together(comm, arguments.on_gpus, args):
        return run_collective_on_gpus(comm, args, name)
    dtype, op = np.dtype(args.dtype), Op(args.op)
    together(comm, arguments.sizes, args, dtype.itemsize)
    field = together(comm, load_field, args.field)
    keywords = together(comm, call_keywords, args)
    together(comm, partial(calls(np.ones(comm.size, dtype))[0], **keywords))

    def prepare(size: int) -> Case:
        source = rank_part(field, size // dtype.itemsize, dtype, comm.rank, comm.size)
        own, plain, result = calls(source)
        budget = keywords["options"].error_budget
        bound = promised_bound(comm, source, args.error_bound or 0.0, args.mode, op, budget)
        start = first(source.size)
        return Case(
            size,
            source.size,
            partial(own, return_info=True, **keywords),
            {"native": plain},
            lambda found: check_reduction(comm, source, found, op, bound, start),
            bound,
            partial(result.fill, np.nan),
            {"redop": args.op} | ({"root": str(args.root)} if "root" in labels else {}),
        )

    return run_collective(comm, args, name, prepare, dtype.itemsize, labels, ["native"])
