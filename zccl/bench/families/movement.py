"""Collectives that move data: zccl and the MPI library. Sizes are those of the whole array."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import zccl
from zccl.bench import arguments
from zccl.bench.checks import check_movement, promised_bound
from zccl.bench.collective import Case, call_keywords, run_collective
from zccl.bench.fields import load_field, rank_part
from zccl.bench.gpus import run_collective_on_gpus
from zccl.bench.registry import benchmark
from zccl.cli.ranks import together
from zccl.typing import Array


class _Calls(NamedTuple):
    """A call of zccl without its keywords, MPI's own, what this rank sends, where results go."""

    own: Callable[..., Any]
    plain: Callable[[], object]
    source: Array | None
    native: Array | None
    result: Array | None


_Make = Callable[[MPI.Intracomm, int, Callable[[int], Array], int], _Calls]


def _bcast(comm: MPI.Intracomm, root: int, part: Callable[[int], Array], count: int) -> _Calls:
    source = part(root)
    native, buffer = source.copy(), source.copy()
    at_root = comm.rank == root
    if not at_root:
        native.fill(np.nan)
    plain = partial(comm.Bcast, native, root)
    own = partial(zccl.bcast, buffer, root, comm)
    return _Calls(own, plain, source if at_root else None, native, None if at_root else buffer)


def _scatter(comm: MPI.Intracomm, root: int, part: Callable[[int], Array], count: int) -> _Calls:
    everything = None
    if comm.rank == root:
        everything = np.stack([part(rank) for rank in range(comm.size)])
    result, native = np.empty_like(part(0)), np.empty_like(part(0))
    plain = partial(comm.Scatter, everything, native, root)
    own = partial(zccl.scatter, everything, result, None, root, comm)
    return _Calls(own, plain, everything, native, result)


def _gather(comm: MPI.Intracomm, root: int, part: Callable[[int], Array], count: int) -> _Calls:
    mine = part(comm.rank)
    result, native = None, None
    if comm.rank == root:
        result, native = (np.empty((comm.size, mine.size), mine.dtype) for _ in range(2))
    plain = partial(comm.Gather, mine, native, root)
    return _Calls(partial(zccl.gather, mine, result, None, root, comm), plain, mine, native, result)


def _allgather(comm: MPI.Intracomm, root: int, part: Callable[[int], Array], count: int) -> _Calls:
    mine = part(comm.rank)
    result, native = (np.empty((comm.size, mine.size), mine.dtype) for _ in range(2))
    plain = partial(comm.Allgather, mine, native)
    return _Calls(partial(zccl.allgather, mine, result, None, comm), plain, mine, native, result)


def _alltoall(comm: MPI.Intracomm, root: int, part: Callable[[int], Array], count: int) -> _Calls:
    mine = np.resize(part(comm.rank), (comm.size, count // comm.size))
    result, native = np.empty_like(mine), np.empty_like(mine)
    plain = partial(comm.Alltoall, mine, native)
    return _Calls(
        partial(zccl.alltoall, mine, result, None, None, comm), plain, mine, native, result
    )


def _register(name: str, make: _Make, rooted: bool, shares: bool) -> None:
    """Register one; `shares` says that each rank's part is a share of the size."""

    def add(parser: argparse.ArgumentParser) -> None:
        arguments.add_sizes(parser, begin="64K", end="16M")
        arguments.add_rounds(parser, iterations=20, warmup=5)
        if rooted:
            arguments.add_root(parser)
        arguments.add_call(parser, name)
        arguments.add_devices(parser)
        arguments.add_field(parser)
        arguments.add_peers(parser)
        arguments.add_check(parser)

    def measure(comm: MPI.Intracomm, args: argparse.Namespace) -> int:
        if together(comm, arguments.on_gpus, args):
            return run_collective_on_gpus(comm, args, name)
        dtype = np.dtype(args.dtype)
        root = args.root if rooted else 0
        unit = dtype.itemsize * (comm.size if shares else 1)
        together(comm, arguments.sizes, args, unit)
        field = together(comm, load_field, args.field)
        keywords = together(comm, call_keywords, args)

        def calls(count: int) -> _Calls:
            share = count // comm.size if shares else count

            def part(rank: int) -> Array:
                return rank_part(field, share, dtype, rank, comm.size)

            return make(comm, root, part, count)

        together(comm, partial(calls(comm.size).own, **keywords))

        def prepare(size: int) -> Case:
            count = size // dtype.itemsize
            made = calls(count)
            source = np.empty(0, dtype) if made.source is None else made.source
            bound = promised_bound(
                comm, source, args.error_bound or 0.0, args.mode, None, "guaranteed"
            )
            return Case(
                size,
                count,
                partial(made.own, return_info=True, **keywords),
                {"native": made.plain},
                lambda result: check_movement(comm, made.native, result, bound),
                bound,
                (lambda: None) if made.result is None else partial(made.result.fill, np.nan),
                {"root": str(root)} if rooted else {},
            )

        labels = ["root"] if rooted else []
        return run_collective(comm, args, name, prepare, unit, labels, ["native"])

    measure.__doc__ = f"Time zccl.{name} beside MPI_{name.capitalize()}, taking turns."
    benchmark(name, help=f"beside MPI_{name.capitalize()}", arguments=add)(measure)


_register("bcast", _bcast, rooted=True, shares=False)
_register("scatter", _scatter, rooted=True, shares=True)
_register("gather", _gather, rooted=True, shares=True)
_register("allgather", _allgather, rooted=False, shares=True)
_register("alltoall", _alltoall, rooted=False, shares=True)
