"""The codec on one core, beside a copy of the same bytes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.bench import arguments, codec_peers, operations
from zccl.bench.checks import compare, wider
from zccl.bench.codec_peers import CodecPeer, stream_nbytes
from zccl.bench.collective import BROKEN, settings
from zccl.bench.fields import SYNTHETIC, load_folder, tile_field
from zccl.bench.operations import Operations, absolute_bound, cpu_seconds, with_escapes
from zccl.bench.registry import benchmark
from zccl.bench.report import Column, Report
from zccl.bench.twin import plain_loop_tiles
from zccl.cli.ranks import together
from zccl.codecs import tiles as usual_tiles
from zccl.typing import Array

_DTYPES = ("float32", "float64")
_TITLES = dict(
    zip(operations.NAMES, ("compress", "reduce", "decompr", "hop", "esc/tile"), strict=True)
)

Row = dict[str, Any]


def _bounds(text: str) -> list[float]:
    found = [arguments.error_bound(word) for word in text.split(",")]
    wanted = [bound for bound in found if bound]
    if len(wanted) < len(found):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted numbers > 0 with commas between")
    return wanted


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--fields", metavar="FOLDER", help="of .npy files; without it, fields made here")
    add("--size", type=arguments.nbytes, default="64M", help="bytes that each field is tiled to")
    add("--bounds", type=_bounds, default="1e-2,1e-3,1e-4", help="fractions of the value range")
    add("-d", "--dtype", choices=(*_DTYPES, "both"), default="both", help="of the values")
    add("--twin", action="store_true", help="hold the kernels against their plain-loop twin, too")
    add("--peers", action="store_true", help="measure zfp (zfpy) and SZ3 (pysz) where installed")
    arguments.add_rounds(parser, iterations=7, warmup=1)
    arguments.add_check(parser)


def _columns(twin: bool, peers: Iterable[str]) -> list[Column]:
    columns = [
        Column("field", "field", "", "s", 24),
        Column("type", "type", "", "s", 7),
        Column("bound", "bound", "/range", ".0e", 6),
        Column("ratio", "ratio", "", ".2f", 6),
        Column("sum_ratio", "ratio", "of sum", ".2f", 6),
        Column("escapes", "escaped", "", "d", 7),
        Column("error_of_bound", "error", "/bound", ".4f", 6),
        Column("violations", "#viol", "", "d"),
        Column("memcpy_gbps", "memcpy", "GB/s", ".2f", 6),
    ]
    for name in operations.NAMES:
        columns += [
            Column(f"{name}_gbps", _TITLES[name], "GB/s", ".2f", 6),
            Column(f"{name}_of_memcpy", "", "/cpy", ".2f", 4),
        ]
        columns += [Column(f"{name}_of_loops", "", "/loop", ".2f", 4)] if twin else []
    for peer in peers:
        columns += [
            Column(f"{peer}_ratio", peer, "ratio", ".2f", 6),
            Column(f"{peer}_compress_gbps", "compress", "GB/s", ".3f", 6),
            Column(f"{peer}_decompress_gbps", "decompr", "GB/s", ".3f", 6),
        ]
    return columns


_SUMMARY = [
    Column("type", "type", "", "s", 7),
    Column("operation", "medians of", "", "s", 14),
    Column("gbps", "speed", "GB/s", ".2f", 7),
    Column("of_memcpy", "of", "memcpy", ".3f", 7),
    Column("of_memcpy_min", "least", "", ".2f", 6),
    Column("of_memcpy_max", "most", "", ".2f", 6),
    Column("of_loops", "of", "loops", ".2f", 6),
    Column("bound", "bound", "/range", ".0e", 6),
    Column("ratio", "ratio", "geom. mean", ".3f", 7),
]


def _measure(
    args: argparse.Namespace,
    field: Array,
    bound: float,
    twin: ModuleType | None,
    peers: dict[str, CodecPeer],
) -> Row:
    """Return the row of one field, dtype and bound."""
    values = field.reshape(-1)
    absolute = absolute_bound(values, bound)
    inputs = values, np.roll(values, values.size // 2), with_escapes(values), absolute
    own = Operations(usual_tiles, *inputs)
    copied = np.empty_like(values)
    calls: dict[str, Callable[[], object]] = {"memcpy": partial(np.copyto, copied, values)}
    calls |= own.calls
    if twin is not None:
        loops = Operations(twin, *inputs)
        calls |= {f"{name} loops": call for name, call in loops.calls.items()}
    streams = {}
    for name, peer in peers.items():
        streams[name] = peer.compress(field, absolute)
        calls[f"{name}_compress"] = partial(peer.compress, field, absolute)
        calls[f"{name}_decompress"] = partial(peer.decompress, streams[name], field)
    seconds = cpu_seconds(calls, args.iterations, args.warmup)

    def gbps(name: str) -> float:
        return values.nbytes / float(np.median(seconds[name])) / 1e9

    row: Row = {"type": str(values.dtype), "bound": bound, "memcpy_gbps": gbps("memcpy")}
    row |= {"ratio": own.ratio, "sum_ratio": own.sum_ratio, "escapes": int(own.escapes)}
    for name in operations.NAMES:
        row[f"{name}_gbps"] = gbps(name)
        row[f"{name}_of_memcpy"] = float(np.median(seconds["memcpy"] / seconds[name]))
        if twin is not None:
            slower = seconds[f"{name} loops"] / seconds[name]
            row[f"{name}_of_loops"] = float(np.median(slower))
    for name, stream in streams.items():
        row[f"{name}_ratio"] = values.nbytes / stream_nbytes(stream)
        row |= {f"{key}_gbps": gbps(key) for key in (f"{name}_compress", f"{name}_decompress")}
    if args.check:
        found = compare(own.decoded, values.astype(wider(values.dtype)), absolute, rounding=False)
        row |= {"error_of_bound": found.error / absolute, "violations": found.violations}
    return row


def _summary(rows: list[Row]) -> list[Row]:
    """Return medians of the operations, and geometric means of the ratios, for each dtype."""
    found: list[Row] = []
    for dtype in sorted({row["type"] for row in rows}):
        own = [row for row in rows if row["type"] == dtype]
        for name in operations.NAMES:
            shares = [row[f"{name}_of_memcpy"] for row in own]
            line = {
                "type": dtype,
                "operation": name,
                "gbps": float(np.median([row[f"{name}_gbps"] for row in own])),
                "of_memcpy": float(np.median(shares)),
                "of_memcpy_min": min(shares),
                "of_memcpy_max": max(shares),
            }
            if f"{name}_of_loops" in own[0]:
                line["of_loops"] = float(np.median([row[f"{name}_of_loops"] for row in own]))
            found.append(line)
        peers = [name for name in codec_peers.NAMES if f"{name}_ratio" in own[0]]
        for key in [f"{peer}_{name}" for peer in peers for name in ("compress", "decompress")]:
            speed = float(np.median([row[f"{key}_gbps"] for row in own]))
            found.append({"type": dtype, "operation": key, "gbps": speed})
        for bound in sorted({row["bound"] for row in own}, reverse=True):
            for key in ["ratio", "sum_ratio", *(f"{peer}_ratio" for peer in peers)]:
                logs = [math.log(row[key]) for row in own if row["bound"] == bound]
                mean = math.exp(sum(logs) / len(logs))
                found.append({"type": dtype, "operation": key, "bound": bound, "ratio": mean})
    return found


@benchmark(
    "codec", help="speed of one core beside memcpy, and ratios", arguments=_arguments, serial=True
)
def codec(comm: MPI.Intracomm, args: argparse.Namespace) -> int:
    """Time the codec on one core in CPU time, taking turns with a copy of the same bytes."""
    made = {name: make() for name, make in SYNTHETIC.items()}
    fields = together(comm, load_folder, args.fields) if args.fields else made
    dtypes = _DTYPES if args.dtype == "both" else (args.dtype,)
    peers = codec_peers.installed_peers() if args.peers else {}
    twin = plain_loop_tiles() if args.twin else None
    missing = [name for name in codec_peers.NAMES if args.peers and name not in peers]
    what = {"fields": args.fields or "made here", "size": args.size}
    what |= {"left out": f"{', '.join(missing)}: not installed"} if missing else {}
    columns = _columns(args.twin, peers)
    report = Report("codec", settings(comm, args, **what), columns, args.format)
    rows: list[Row] = []
    for name, field in fields.items():
        for dtype in map(np.dtype, dtypes):
            tiled = tile_field(field, max(args.size // dtype.itemsize, 1), dtype)
            for bound in args.bounds:
                measured = together(comm, _measure, args, tiled, bound, twin, peers)
                rows.append({"field": name, **measured})
                report.add(rows[-1])
    report.finish(_summary(rows), _SUMMARY)
    return BROKEN if any(row.get("violations") for row in rows) else 0
