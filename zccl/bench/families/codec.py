"""The codec on one core, beside a copy of the same bytes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.bench import arguments, codec_peers, codec_summary, operations
from zccl.bench.checks import compare, wider
from zccl.bench.codec_peers import CodecPeer, stream_nbytes
from zccl.bench.collective import BROKEN, settings
from zccl.bench.fields import SYNTHETIC, load_folder, tile_field
from zccl.bench.gpus import run_codec_on_gpu
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

_DEFAULTS = {
    "cpu": {"size": 64 << 20, "iterations": 7, "warmup": 1},
    "cuda": {"size": 256 << 20, "iterations": 20, "warmup": 3},
}

Row = dict[str, Any]


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    arguments.add_device(parser)
    add("--fields", metavar="FOLDER", help="of .npy files; without it, fields made here")
    help_text = "bytes that each field is tiled to; 64M by default, 256M on a GPU"
    add("--size", type=arguments.nbytes, default=argparse.SUPPRESS, help=help_text)
    help_text = "fractions of the value range"
    add("--bounds", type=arguments.bounds, default="1e-2,1e-3,1e-4", help=help_text)
    add("-d", "--dtype", choices=(*_DTYPES, "both"), default="both", help="of the values")
    add("--twin", action="store_true", help="hold the kernels against their plain-loop twin, too")
    add("--peers", action="store_true", help="whole streams, too: denser settings, zfp and SZ3")
    arguments.add_rounds(parser, argparse.SUPPRESS, argparse.SUPPRESS)
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


def _settle(args: argparse.Namespace) -> None:
    """Set what was not given, by the device.

    Raises
    ------
    ValueError
        When something was given that the device does not have.
    """
    for name, default in _DEFAULTS[args.device].items():
        setattr(args, name, getattr(args, name, default))
    for name in ("twin", "peers"):
        if args.device != "cpu" and getattr(args, name):
            raise ValueError(f"--{name}: is for --device cpu")


@benchmark(
    "codec",
    help="speed beside memcpy, and ratios",
    arguments=_arguments,
    serial=True,
)
def codec(comm: MPI.Intracomm, args: argparse.Namespace) -> int:
    """Time the codec on one core, in CPU time beside a copy of the same bytes; or on a GPU."""
    together(comm, _settle, args)
    made = {name: make() for name, make in SYNTHETIC.items()}
    fields = together(comm, load_folder, args.fields) if args.fields else made
    dtypes = _DTYPES if args.dtype == "both" else (args.dtype,)
    peers = codec_peers.installed_peers() if args.peers else {}
    twin = plain_loop_tiles() if args.twin else None
    missing = [name for name in codec_peers.NAMES if args.peers and name not in peers]
    what: Row = {"fields": args.fields or "made here", "size": args.size}
    what |= {"left out": f"{', '.join(missing)}: not installed"} if missing else {}
    if args.device == "cuda":
        return run_codec_on_gpu(comm, args, fields, dtypes, what)
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
    summary = codec_summary.summary(rows, operations.NAMES, "memcpy")
    report.finish(summary, codec_summary.columns("memcpy"))
    return BROKEN if any(row.get("violations") for row in rows) else 0
