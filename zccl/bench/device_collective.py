"""Collectives of CuPy arrays: zccl over some transports at some bounds, NCCL, and plain MPI."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import cupy
import numpy as np
from mpi4py import MPI

import zccl
from zccl.algorithms.progress import finish
from zccl.bench import arguments
from zccl.bench.checks import bound_of_range, worst
from zccl.bench.collective import run_sizes, time_cells, time_columns
from zccl.bench.device_calls import MAKERS, OF_SHARES, Calls, Setup, spoil
from zccl.bench.device_checks import check_pieces, finite_range
from zccl.bench.fields import load_field
from zccl.bench.gpus import DeviceField, gpu_names
from zccl.bench.report import Column
from zccl.bench.timing import Times, alternate, bandwidths
from zccl.cli.ranks import fail, together
from zccl.config import overrides
from zccl.ops import Op
from zccl.options import Options, effective_options
from zccl.plan import REDUCTIONS
from zccl.transport.mpi import transport_of

Row = dict[str, Any]


class Variant(NamedTuple):
    """A way of calling zccl: the bound, and the transport that is asked for."""

    bound: float | None
    transport: str

    def keywords(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the keyword arguments of the call."""
        budget = getattr(args, "budget", "guaranteed")
        options = effective_options(Options(error_budget=budget, transport=self.transport))
        return {
            "error_bound": self.bound,
            "mode": args.mode,
            "algorithm": args.algorithm,
            "options": options,
        }


def run(comm: MPI.Intracomm, args: argparse.Namespace, name: str) -> int:
    """Measure a collective at all sizes and return the exit code."""
    together(comm, _refuse_overrides)
    dtype = np.dtype(args.dtype)
    op = Op(args.op) if name in REDUCTIONS else None
    root = getattr(args, "root", 0)
    unit = dtype.itemsize * (comm.size if name in OF_SHARES else 1)
    together(comm, arguments.sizes, args, unit)
    field = DeviceField(together(comm, load_field, args.field), dtype)
    tiny = MAKERS[name](Setup(comm, field, comm.size, op or Op.SUM, root))
    variants, not_run = _usable_variants(comm, args, tiny)
    peers, missing = _peers(comm, args.beside)
    bounds, transports = (list(dict.fromkeys(column)) for column in zip(*variants, strict=True))
    what = {"device": gpu_names(comm), "field": args.field}
    what |= {"error_bound": ", ".join(map(str, bounds)), "mode": args.mode}
    budget = variants[0].keywords(args)["options"].error_budget
    what |= {"budget": budget} if op is not None else {}
    what |= {"transport": ", ".join(transports)} | not_run | missing
    labels = (["redop"] if op is not None else []) + (["root"] if "root" in args else [])

    def measure(size: int) -> Iterator[Row]:
        calls = MAKERS[name](Setup(comm, field, size // dtype.itemsize, op or Op.SUM, root))
        times = _time(comm, args, calls, variants, peers)
        shared: Row = {"size": size, "count": size // dtype.itemsize, "type": args.dtype}
        shared |= {"redop": args.op} if "redop" in labels else {}
        shared |= {"root": str(root)} if "root" in labels else {}
        for variant in variants:
            own = times[str(variant)]
            algbw, busbw = bandwidths(name, size, own.median, comm.size)
            row = shared | time_cells("time", own) | {"algbw_gbps": algbw, "busbw_gbps": busbw}
            row |= _checked_call(comm, args, field, calls, variant, op)
            for peer in peers:
                row |= _peer_cells(peer, times[peer], own, row["ratio"])
            yield row
        del calls
        zccl.free_workspace()
        cupy.get_default_memory_pool().free_all_blocks()

    columns = _columns(labels, list(peers), [peer.name for peer in args.peer])
    return run_sizes(comm, args, name, measure, columns, what, unit)


def _refuse_overrides() -> None:
    for name in ("algorithm", "transport"):
        if name in overrides():
            raise ValueError(
                f"ZCCL_{name.upper()} is set, which would change what zccl is held against, too:"
                f" say --{name} instead"
            )


def _usable_variants(
    comm: MPI.Intracomm, args: argparse.Namespace, tiny: Calls
) -> tuple[list[Variant], Row]:
    """Return what works here, and for the head of the report why other transports do not."""
    found, not_run = [], {}
    for bound, transport in product(args.bounds or [args.error_bound], args.transport):
        variant = Variant(bound, transport)
        if transport not in not_run:
            try:
                keywords = together(comm, variant.keywords, args)
                together(comm, partial(tiny.own, **keywords))
                found.append(variant)
            except zccl.TransportError as error:  # on all ranks
                not_run[transport] = " ".join(str(error).split())
    if not found:
        fail(comm, "; ".join(not_run.values()))
    return found, {f"by {name}": f"not run: {reason}" for name, reason in not_run.items()}


def _peers(
    comm: MPI.Intracomm, wanted: list[str]
) -> tuple[dict[str, Callable[[Calls], Callable[[], object]]], Row]:
    """Return what stands beside zccl: functions of calls that return a call; and what does not."""
    found: dict[str, Callable[[Calls], Callable[[], object]]] = {}
    missing = {}
    if "nccl" in wanted:
        works, reason = finish(transport_of(comm).device_transports(moved=True)).nccl()
        if works:
            from zccl.bench.nccl_peer import NcclPeer

            peer = NcclPeer(comm)
            found["nccl"] = lambda calls: partial(calls.nccl, peer)
        else:
            missing["beside nccl"] = f"not run: {reason}"
    if "staged" in wanted:
        options = Options(transport="mpi-staged")
        found["staged"] = lambda calls: partial(calls.plain, algorithm="native", options=options)
    return found, missing


def _time(
    comm: MPI.Intracomm,
    args: argparse.Namespace,
    calls: Calls,
    variants: list[Variant],
    peers: dict[str, Callable[[Calls], Callable[[], object]]],
) -> dict[str, Times]:
    """Time everything in turn; a call ends when its stream has got there."""
    turns: dict[str, Callable[[], object]] = {
        str(variant): partial(calls.own, **variant.keywords(args)) for variant in variants
    }
    turns |= {name: make(calls) for name, make in peers.items()}
    stream = cupy.cuda.get_current_stream()

    def complete(call: Callable[[], object]) -> None:
        call()
        stream.synchronize()

    stream.synchronize()
    whole = {name: partial(complete, call) for name, call in turns.items()}
    return alternate(comm, whole, args.iterations, args.warmup)


def _checked_call(
    comm: MPI.Intracomm,
    args: argparse.Namespace,
    field: DeviceField,
    calls: Calls,
    variant: Variant,
    op: Op | None,
) -> Row:
    """Make a call once more, and tell what it did and whether it kept its bound."""
    spoil(calls)
    _, info = calls.own(return_info=True, **variant.keywords(args))
    wire = comm.allreduce(info.wire_nbytes, MPI.MAX)
    sent, plain = comm.allreduce(info.wire_nbytes), comm.allreduce(info.raw_wire_nbytes)
    row: Row = {
        "bound": variant.bound,
        "transport": info.transport,
        "algorithm": info.algorithm,
        "ratio": plain / sent if sent else 1.0,
        "wire_nbytes": wire,
    }
    if args.check and variant.bound:
        budget = variant.keywords(args)["options"].error_budget
        ends = finite_range(calls.source)
        bound = bound_of_range(comm, ends, variant.bound, args.mode, op, budget)
        if bound:
            found = worst(comm, check_pieces(field, calls.result, calls.pieces, op, bound))
            row |= {"error_of_bound": found.error / bound, "violations": found.violations}
    return row


def _peer_cells(name: str, theirs: Times, own: Times, ratio: float) -> Row:
    speedup = theirs.median / own.median
    return time_cells(name, theirs) | {
        f"speedup_{name}": speedup,
        f"speedup_{name}_of_ratio": speedup / ratio,
    }


def _columns(labels: list[str], others: list[str], peers: list[str]) -> list[Column]:
    columns = [
        Column("size", "size", "B", "d", 11),
        Column("count", "count", "", "d", 10, detail=True),
        Column("type", "type", "", "s", 7),
        *(Column(label, label, "", "s", 5) for label in labels),
        Column("bound", "bound", "", ".0e", 6),
        Column("transport", "transport", "", "s", 10),
        Column("algorithm", "algorithm", "", "s", 18),
        *time_columns("time", "time", detail=False),
        Column("algbw_gbps", "algbw", "GB/s", ".3f", 7),
        Column("busbw_gbps", "busbw", "GB/s", ".3f", 7),
        Column("ratio", "ratio", "", ".2f", 6),
        Column("wire_nbytes", "wire", "B", "d", 10),
        Column("error_of_bound", "error", "/bound", ".4f", 6),
        Column("violations", "#viol", "", "d"),
    ]
    for name in others:
        columns += time_columns(name, name, detail=True)
        columns += [
            Column(f"speedup_{name}", "speedup", f"{name}/zccl", ".2f"),
            Column(f"speedup_{name}_of_ratio", "speedup", "/ratio", ".3f", 6),
        ]
    for name in peers:
        columns += [Column(f"{name}_us", name, "us", ".1f", 9)]
        columns += [Column(f"speedup_{name}", "speedup", f"{name}/zccl", ".2f")]
    return columns
