"""The codec on a GPU: kernels alone, beside what the GPU's memory could do."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.bench import codec_summary
from zccl.bench.collective import BROKEN, settings
from zccl.bench.device_checks import compare
from zccl.bench.device_operations import NAMES, DeviceOperations, DeviceRow, seconds
from zccl.bench.fields import tile_field
from zccl.bench.gpus import gpu_names
from zccl.bench.operations import absolute_bound
from zccl.bench.report import Column, Report
from zccl.cli.ranks import together
from zccl.typing import Array

Row = dict[str, Any]

_TITLES = dict(
    zip(
        NAMES,
        ("compress", "reduce", "decompr", "hop", "hop+val", "verify", "esc/tile"),
        strict=True,
    )
)


def _columns() -> list[Column]:
    columns = [
        Column("field", "field", "", "s", 24),
        Column("type", "type", "", "s", 7),
        Column("bound", "bound", "/range", ".0e", 6),
        Column("ratio", "ratio", "", ".2f", 6),
        Column("sum_ratio", "ratio", "of sum", ".2f", 6),
        Column("escapes", "escaped", "", "d", 8),
        Column("error_of_bound", "error", "/bound", ".4f", 6),
        Column("violations", "#viol", "", "d"),
        Column("copy_gbps", "copy r+w", "GB/s", ".0f", 6),
    ]
    for name in NAMES:
        columns += [
            Column(f"{name}_gbps", _TITLES[name], "GB/s", ".0f", 6),
            Column(f"{name}_of_limit", "", "/lim", ".2f", 4),
        ]
    return columns


def _measure(args: argparse.Namespace, row: DeviceRow, values: Array, bound: float) -> Row:
    """Return the row of one field, dtype and bound."""
    absolute = absolute_bound(values, bound)
    own = DeviceOperations(row, absolute)
    copy = row.copy_gbps(args.iterations, args.warmup)
    found: Row = {"type": str(values.dtype), "bound": bound, "copy_gbps": copy}
    found |= {"ratio": own.ratio, "sum_ratio": own.sum_ratio, "escapes": own.escapes}
    for name, (call, nbytes) in own.calls.items():
        taken = seconds(call, args.iterations, args.warmup)
        found[f"{name}_gbps"] = values.nbytes / taken / 1e9
        found[f"{name}_of_limit"] = nbytes / taken / 1e9 / copy
    if args.check:
        exact = row.values.astype(np.float64)
        check = compare(own.decoded, exact, 0.0, absolute, None)
        found |= {"error_of_bound": check.error / absolute, "violations": check.violations}
    return found


def run(
    comm: MPI.Intracomm,
    args: argparse.Namespace,
    fields: dict[str, Array],
    dtypes: tuple[str, ...],
    what: dict[str, object],
) -> int:
    """Time the kernels on all fields and return the exit code."""
    import cupy

    what = {"device": gpu_names(comm)} | what
    report = Report("codec", settings(comm, args, **what), _columns(), args.format)
    rows: list[Row] = []
    for name, field in fields.items():
        for dtype in map(np.dtype, dtypes):
            count = max(args.size // dtype.itemsize, 1)
            values = tile_field(field, count, dtype).reshape(-1)
            row = DeviceRow(values)
            for bound in args.bounds:
                rows.append({"field": name, **together(comm, _measure, args, row, values, bound)})
                report.add(rows[-1])
            del row
            cupy.get_default_memory_pool().free_all_blocks()
    report.finish(codec_summary.summary(rows, NAMES, "limit"), codec_summary.columns("limit"))
    return BROKEN if any(row.get("violations") for row in rows) else 0
