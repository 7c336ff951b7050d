"""Allreduce: zccl, the MPI library, and a plain ring."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

import zccl
from zccl.bench import arguments
from zccl.bench.checks import check_reduction, promised_bound
from zccl.bench.collective import Case, call_keywords, run_collective
from zccl.bench.fields import load_field, rank_part
from zccl.bench.gpus import run_collective_on_gpus
from zccl.bench.plain_ring import ring_allreduce
from zccl.bench.registry import benchmark
from zccl.cli.ranks import together
from zccl.ops import Op
from zccl.typing import Array

MPI_OPS = {Op.SUM: MPI.SUM, Op.AVG: MPI.SUM, Op.MAX: MPI.MAX, Op.MIN: MPI.MIN}


def _arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_sizes(parser, begin="64K", end="16M")
    arguments.add_rounds(parser, iterations=20, warmup=5)
    arguments.add_operation(parser)
    arguments.add_call(parser, "allreduce")
    arguments.add_devices(parser)
    arguments.add_field(parser)
    arguments.add_peers(parser)
    arguments.add_check(parser)


def native_allreduce(
    comm: MPI.Intracomm, source: Array, result: Array, op: Op
) -> Callable[[], None]:
    """Return a call of the MPI library's own allreduce."""

    def call() -> None:
        comm.Allreduce(source, result, MPI_OPS[op])
        if op is Op.AVG:
            np.divide(result, comm.size, out=result)

    return call


@benchmark("allreduce", help="beside MPI_Allreduce and a plain ring", arguments=_arguments)
def allreduce(comm: MPI.Intracomm, args: argparse.Namespace) -> int:
    """Time zccl.allreduce beside MPI_Allreduce and a ring in plain mpi4py, taking turns."""
    if together(comm, arguments.on_gpus, args):
        return run_collective_on_gpus(comm, args, "allreduce")
    dtype, op = np.dtype(args.dtype), Op(args.op)
    together(comm, arguments.sizes, args, dtype.itemsize)
    field = together(comm, load_field, args.field)
    keywords = together(comm, call_keywords, args)
    one = np.ones(1, dtype)
    together(comm, partial(zccl.allreduce, one, op=op, comm=comm, **keywords))

    def prepare(size: int) -> Case:
        count = size // dtype.itemsize
        source = rank_part(field, count, dtype, comm.rank, comm.size)
        own, native, ring = (np.empty_like(source) for _ in range(3))
        budget = keywords["options"].error_budget
        bound = promised_bound(comm, source, args.error_bound or 0.0, args.mode, op, budget)
        return Case(
            size,
            count,
            partial(zccl.allreduce, source, own, op, comm, return_info=True, **keywords),
            {
                "native": native_allreduce(comm, source, native, op),
                "ring": ring_allreduce(comm, source, ring, op),
            },
            lambda result: check_reduction(comm, source, result, op, bound),
            bound,
            partial(own.fill, np.nan),
            {"redop": args.op},
        )

    return run_collective(
        comm, args, "allreduce", prepare, dtype.itemsize, ["redop"], ["native", "ring"]
    )
