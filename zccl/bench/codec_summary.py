"""What follows from all rows of a benchmark of the codec."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from zccl.bench import codec_peers
from zccl.bench.report import Column

Row = dict[str, Any]


def columns(yardstick: str) -> list[Column]:
    """Return the columns of `summary`; speeds are held against "memcpy" or "limit"."""
    return [
        Column("type", "type", "", "s", 7),
        Column("operation", "medians of", "", "s", 14),
        Column("gbps", "speed", "GB/s", ".2f", 7),
        Column(f"of_{yardstick}", "of", yardstick, ".3f", 7),
        Column(f"of_{yardstick}_min", "least", "", ".2f", 6),
        Column(f"of_{yardstick}_max", "most", "", ".2f", 6),
        Column("of_loops", "of", "loops", ".2f", 6),
        Column("bound", "bound", "/range", ".0e", 6),
        Column("ratio", "ratio", "geom. mean", ".3f", 7),
    ]


def summary(rows: list[Row], names: Sequence[str], yardstick: str) -> list[Row]:
    """Return medians of the operations, and geometric means of the ratios, for each dtype."""
    found: list[Row] = []
    for dtype in sorted({row["type"] for row in rows}):
        own = [row for row in rows if row["type"] == dtype]
        for name in names:
            shares = [row[f"{name}_of_{yardstick}"] for row in own]
            line = {
                "type": dtype,
                "operation": name,
                "gbps": float(np.median([row[f"{name}_gbps"] for row in own])),
                f"of_{yardstick}": float(np.median(shares)),
                f"of_{yardstick}_min": min(shares),
                f"of_{yardstick}_max": max(shares),
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
