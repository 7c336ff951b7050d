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
    from zccl.collectives.allgather import allgather, allgather_init, iallgather
    from zccl.collectives.allreduce import allreduce, allreduce_init, iallreduce
    from zccl.collectives.alltoall import alltoall, alltoall_init, ialltoall
    from zccl.collectives.bcast import bcast, bcast_init, ibcast
    from zccl.collectives.gather import gather, gather_init, igather
    from zccl.collectives.reduce import ireduce, reduce, reduce_init
    from zccl.collectives.reduce_scatter import ireduce_scatter, reduce_scatter, reduce_scatter_init
    from zccl.collectives.scatter import iscatter, scatter, scatter_init
    from zccl.communicator import Communicator
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
    from zccl.request import PersistentRequest, Request, waitall

__version__ = "0.1.0.dev0"

_HOMES = {
    "AVG": "zccl.ops",
    "Communicator": "zccl.communicator",
    "Info": "zccl.info",
    "MAX": "zccl.ops",
    "MIN": "zccl.ops",
    "Options": "zccl.options",
    "PersistentRequest": "zccl.request",
    "Request": "zccl.request",
    "SUM": "zccl.ops",
    "StreamError": "zccl.errors",
    "StreamInfo": "zccl.compression",
    "TransportError": "zccl.errors",
    "ZcclError": "zccl.errors",
    "allreduce": "zccl.collectives.allreduce",
    "allreduce_init": "zccl.collectives.allreduce",
    "iallreduce": "zccl.collectives.allreduce",
    "allgather": "zccl.collectives.allgather",
    "allgather_init": "zccl.collectives.allgather",
    "iallgather": "zccl.collectives.allgather",
    "alltoall": "zccl.collectives.alltoall",
    "alltoall_init": "zccl.collectives.alltoall",
    "ialltoall": "zccl.collectives.alltoall",
    "bcast": "zccl.collectives.bcast",
    "bcast_init": "zccl.collectives.bcast",
    "ibcast": "zccl.collectives.bcast",
    "bind_gpu": "zccl.binding",
    "gather": "zccl.collectives.gather",
    "gather_init": "zccl.collectives.gather",
    "igather": "zccl.collectives.gather",
    "reduce": "zccl.collectives.reduce",
    "reduce_init": "zccl.collectives.reduce",
    "ireduce": "zccl.collectives.reduce",
    "reduce_scatter": "zccl.collectives.reduce_scatter",
    "reduce_scatter_init": "zccl.collectives.reduce_scatter",
    "ireduce_scatter": "zccl.collectives.reduce_scatter",
    "scatter": "zccl.collectives.scatter",
    "scatter_init": "zccl.collectives.scatter",
    "iscatter": "zccl.collectives.scatter",
    "compress": "zccl.compression",
    "compress_bound": "zccl.compression",
    "decompress": "zccl.compression",
    "free_workspace": "zccl.pool",
    "inspect": "zccl.compression",
    "reduce_streams": "zccl.compression",
    "waitall": "zccl.request",
}

__all__ = [
    "AVG",
    "Communicator",
    "Info",
    "MAX",
    "MIN",
    "Options",
    "PersistentRequest",
    "Request",
    "SUM",
    "StreamError",
    "StreamInfo",
    "TransportError",
    "ZcclError",
    "allreduce",
    "allreduce_init",
    "iallreduce",
    "allgather",
    "allgather_init",
    "iallgather",
    "alltoall",
    "alltoall_init",
    "ialltoall",
    "bcast",
    "bcast_init",
    "ibcast",
    "bind_gpu",
    "gather",
    "gather_init",
    "igather",
    "reduce",
    "reduce_init",
    "ireduce",
    "reduce_scatter",
    "reduce_scatter_init",
    "ireduce_scatter",
    "scatter",
    "scatter_init",
    "iscatter",
    "compress",
    "compress_bound",
    "decompress",
    "free_workspace",
    "inspect",
    "reduce_streams",
    "waitall",
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
