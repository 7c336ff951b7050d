"""The loop over sizes that all collectives share: take turns, check, write a line."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI

import zccl
from zccl.bench.arguments import sizes
from zccl.bench.checks import Check
from zccl.bench.peers import run_peers
from zccl.bench.report import Column, Report
from zccl.bench.timing import Times, alternate, bandwidths
from zccl.cli.ranks import fail, node_count
from zccl.info import Info
from zccl.options import Options, effective_options
from zccl.typing import Array

BROKEN = 1  # exit code when a result breaks its promise


@dataclass(frozen=True)
class Case:
    """A collective at one size.

    Attributes
    ----------
    size : int
        Uncompressed bytes, as nccl-tests count them for this collective.
    count : int
        Elements.
    zccl : function
        Makes the call with `return_info=True`.
    others : dict of str to function
        What stands beside it: "native" and, where there is one, "ring".
    check : function of the result
        Holds it against the exact one.
    bound : float
        What is promised for the result; 0 for an exact one.
    spoil : function
        Fills the result's buffer with NaN before the call that is checked.
    labels : dict of str to value
        Values of the columns that only this collective has, such as "redop" or "root".
    """

    size: int
    count: int
    zccl: Callable[[], tuple[Array | None, Info]]
    others: dict[str, Callable[[], object]]
    check: Callable[[Array | None], Check]
    bound: float
    spoil: Callable[[], None]
    labels: dict[str, Any] = field(default_factory=dict)


def settings(comm: MPI.Intracomm, args: argparse.Namespace, **more: object) -> dict[str, object]:
    """Return what the results depend on, for the head of a report."""
    name, numbers = MPI.get_vendor()
    found = {
        "command": shlex.join(["python", "-m", "zccl", *sys.argv[1:]]),
        "version": zccl.__version__,
        "mpi": f"{name} {'.'.join(map(str, numbers))}",
        "ranks": comm.size,
        "nodes": node_count(comm),
        "rounds": f"{args.iterations} after {args.warmup}",
    }
    return found | more


def call_settings(args: argparse.Namespace) -> dict[str, object]:
    """Return the settings of a zccl call."""
    found = {"error_bound": args.error_bound, "mode": args.mode}
    return found | ({"budget": call_options(args).error_budget} if "budget" in args else {})


def call_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of a zccl call."""
    return {
        "error_bound": args.error_bound,
        "mode": args.mode,
        "algorithm": args.algorithm,
        "options": call_options(args),
    }


def call_options(args: argparse.Namespace) -> Options:
    """Return the options of a call, the environment's overrides included."""
    return effective_options(Options(error_budget=getattr(args, "budget", "guaranteed")))


def time_columns(key: str, title: str, detail: bool) -> list[Column]:
    """Return the columns of a call: its median, and minimum and maximum, which may be details."""
    median = Column(f"{key}_median_us", title, "us", ".1f", 9)
    ends = (Column(f"{key}_{name}_us", name, "us", ".1f", 9, detail) for name in ("min", "max"))
    return [median, *ends]


def _columns(labels: list[str], others: list[str], peers: list[str]) -> list[Column]:
    columns = [Column("size", "size", "B", "d", 11), Column("count", "count", "", "d", 10)]
    columns += [Column("type", "type", "", "s", 7)]
    columns += [Column(label, label, "", "s", 5) for label in labels]
    columns += time_columns("time", "time", detail=False)
    columns += [
        Column("algbw_gbps", "algbw", "GB/s", ".3f", 7),
        Column("busbw_gbps", "busbw", "GB/s", ".3f", 7),
        Column("ratio", "ratio", "", ".2f", 6),
        Column("wire_nbytes", "wire", "B", "d", 10),
        Column("error_of_bound", "error", "/bound", ".4f", 6),
        Column("violations", "#viol", "", "d"),
        Column("algorithm", "algorithm", "", "s", 18),
    ]
    for name in others:
        columns += time_columns(name, name, detail=True)
        columns += [Column(f"speedup_{name}", "speedup", f"{name}/zccl", ".2f")]
    for name in peers:
        columns += [Column(f"{name}_us", name, "us", ".1f", 9)]
        columns += [Column(f"speedup_{name}", "speedup", f"{name}/zccl", ".2f")]
    return columns


def time_cells(key: str, times: Times) -> dict[str, Any]:
    """Return the values of `time_columns`."""
    return {
        f"{key}_median_us": times.median * 1e6,
        f"{key}_min_us": times.least * 1e6,
        f"{key}_max_us": times.most * 1e6,
    }


def _measure(
    comm: MPI.Intracomm, args: argparse.Namespace, name: str, case: Case
) -> dict[str, Any]:
    """Return the row of one size."""
    calls = {"zccl": case.zccl, **case.others}
    times = alternate(comm, calls, args.iterations, args.warmup)
    own = times.pop("zccl")
    case.spoil()
    result, info = case.zccl()
    wire = comm.allreduce(info.wire_nbytes, MPI.MAX)
    sent, plain = comm.allreduce(info.wire_nbytes), comm.allreduce(info.raw_wire_nbytes)
    algbw, busbw = bandwidths(name, case.size, own.median, comm.size)
    row = {"size": case.size, "count": case.count, "type": args.dtype, **case.labels}
    row |= time_cells("time", own)
    row |= {
        "algbw_gbps": algbw,
        "busbw_gbps": busbw,
        "ratio": plain / sent if sent else 1.0,
        "wire_nbytes": wire,
        "algorithm": info.algorithm,
    }
    for other, theirs in times.items():
        row |= time_cells(other, theirs)
        row[f"speedup_{other}"] = theirs.median / own.median
    if args.check and case.bound:
        found = case.check(result)
        row |= {"error_of_bound": found.error / case.bound, "violations": found.violations}
    return row


def run_collective(
    comm: MPI.Intracomm,
    args: argparse.Namespace,
    name: str,
    prepare: Callable[[int], Case],
    itemsize: int,
    labels: list[str],
    others: list[str],
) -> int:
    """Measure a collective at all sizes and return the exit code.

    Parameters
    ----------
    comm : MPI.Intracomm
        All ranks.
    args : argparse.Namespace
        The shared options of `zccl.bench.arguments`.
    name : str
        Of the collective.
    prepare : function of a size in bytes
        Makes buffers and calls; collective.
    itemsize : int
        Bytes of an element.
    labels : list of str
        Columns that only this collective has.
    others : list of str
        What `Case.others` has.
    """
    columns = _columns(labels, others, [peer.name for peer in args.peer])
    what = {"field": args.field, **call_settings(args)}

    def measure(size: int) -> Iterable[dict[str, Any]]:
        return [_measure(comm, args, name, prepare(size))]

    return run_sizes(comm, args, name, measure, columns, what, itemsize)


def run_sizes(
    comm: MPI.Intracomm,
    args: argparse.Namespace,
    name: str,
    measure: Callable[[int], Iterable[dict[str, Any]]],
    columns: list[Column],
    what: dict[str, Any],
    itemsize: int,
) -> int:
    """Write the rows of all sizes, beside the peers of `args`, and return the exit code.

    Parameters
    ----------
    comm, args, name, itemsize
        As for `run_collective`.
    measure : function of a size in bytes
        Returns its rows; collective.
    columns : list of Column
        Of the rows.
    what : dict of str to value
        What the head says beside `settings`.
    """
    rows: list[dict[str, Any]] = []
    report = None
    if not args.peer:
        report = Report(name, settings(comm, args, **what), columns, args.format)
    for size in sizes(args, itemsize):
        for row in measure(size):
            rows.append(row)
            if report is not None:
                report.add(row)
    fault = ""
    if report is None:  # peers get columns, so lines are written when all have run
        found, fault = run_peers(comm, args.peer)
        what |= {f"peer {peer.name}": peer.command for peer in args.peer}
        report = Report(name, settings(comm, args, **what), columns, args.format)
        for row in rows:
            for peer, times in found.items():
                if row["size"] in times:
                    row[f"{peer}_us"] = times[row["size"]] * 1e6
                    row[f"speedup_{peer}"] = row[f"{peer}_us"] / row["time_median_us"]
            report.add(row)
    report.finish()
    if fault:
        fail(comm, fault)
    return BROKEN if any(row.get("violations") for row in rows) else 0
