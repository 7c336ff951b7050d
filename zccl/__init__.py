"""MPI collectives of error-bounded compressed arrays.

Importing `zccl` starts neither MPI nor CUDA; `zccl.allreduce` imports `mpi4py.MPI`, which starts
MPI.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from zccl.config import configure_logging

if TYPE_CHECKING:
    from zccl.binding import bind_gpu
    from zccl.collectives.allgather import allgather
    from zccl.collectives.allreduce import allreduce
    from zccl.collectives.alltoall import alltoall
    from zccl.collectives.bcast import bcast
    from zccl.collectives.gather import gather
    from zccl.collectives.reduce import reduce
    from zccl.collectives.reduce_scatter import reduce_scatter
    from zccl.collectives.scatter import scatter
    from zccl.compression import (
        StreamInfo,
        compress,
        compress_bound,
        decompress,
        inspect,
        reduce_streams,
    )
    from zccl.errors import StreamError, TransportError, ZcclError
    from zccl.info import Info
    from zccl.ops import AVG, MAX, MIN, SUM
    from zccl.options import Options
    from zccl.pool import free_workspace

__version__ = "0.1.0.dev0"

_HOMES = {
    "AVG": "zccl.ops",
    "Info": "zccl.info",
    "MAX": "zccl.ops",
    "MIN": "zccl.ops",
    "Options": "zccl.options",
    "SUM": "zccl.ops",
    "StreamError": "zccl.errors",
    "StreamInfo": "zccl.compression",
    "TransportError": "zccl.errors",
    "ZcclError": "zccl.errors",
    "allreduce": "zccl.collectives.allreduce",
    "allgather": "zccl.collectives.allgather",
    "alltoall": "zccl.collectives.alltoall",
    "bcast": "zccl.collectives.bcast",
    "bind_gpu": "zccl.binding",
    "gather": "zccl.collectives.gather",
    "reduce": "zccl.collectives.reduce",
    "reduce_scatter": "zccl.collectives.reduce_scatter",
    "scatter": "zccl.collectives.scatter",
    "compress": "zccl.compression",
    "compress_bound": "zccl.compression",
    "decompress": "zccl.compression",
    "free_workspace": "zccl.pool",
    "inspect": "zccl.compression",
    "reduce_streams": "zccl.compression",
}

__all__ = [
    "AVG",
    "Info",
    "MAX",
    "MIN",
    "Options",
    "SUM",
    "StreamError",
    "StreamInfo",
    "TransportError",
    "ZcclError",
    "allreduce",
    "allgather",
    "alltoall",
    "bcast",
    "bind_gpu",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
    "compress",
    "compress_bound",
    "decompress",
    "free_workspace",
    "inspect",
    "reduce_streams",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'zccl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names too."""
    return sorted(set(globals()) | set(__all__))


configure_logging()
