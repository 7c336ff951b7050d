"""How much memory a call takes, and that it keeps no more with every call."""

import gc
import tracemalloc

import numpy as np
import pytest
from mpi4py import MPI

import zccl
from zccl.plan import SEGMENT_NBYTES

pytestmark = [pytest.mark.mpi, pytest.mark.host]
COMM = MPI.COMM_WORLD
NBYTES = 16 << 20


def field(rough):
    rng = np.random.default_rng(COMM.rank)
    if rough:  # incompressible: every tile is raw
        return rng.integers(0, 2**32, NBYTES // 4, np.uint32).view(np.float32)
    return np.cumsum(rng.standard_normal(NBYTES // 4)).astype(np.float32)


@pytest.mark.skipif(COMM.size > 4, reason="the arrays of many ranks do not fit a small machine")
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling"])
@pytest.mark.parametrize("rough", [False, True], ids=["smooth", "incompressible"])
def test_one_call_takes_half_a_compressed_array_more_than_it_sends(algorithm, rough):
    """Promised: input + output + 1.5 times `compress_bound`, recursive doubling included."""
    values = field(rough)
    out = np.empty_like(values)
    zccl.allreduce(values, out, comm=COMM, error_bound=1e-2, algorithm=algorithm)  # compiles
    zccl.free_workspace()
    gc.collect()
    tracemalloc.start()
    zccl.allreduce(values, out, comm=COMM, error_bound=1e-2, algorithm=algorithm)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.5 * zccl.compress_bound(values.size, values.dtype)


@pytest.mark.skipif(COMM.size > 4, reason="the arrays of many ranks do not fit a small machine")
@pytest.mark.parametrize("name", ["bcast", "scatter", "gather"])
def test_trees_keep_what_they_forward_and_one_segment(name):
    """Promised: input + output + 1.1 times the compressed bytes forwarded + a segment's room."""
    own = field(False)
    at_root = COMM.rank == 0
    everything = np.stack([own] * COMM.size) if at_root else None
    out, outs = np.empty_like(own), np.empty_like(everything) if at_root else None
    how = {"error_bound": 1e-2, "algorithm": "binomial", "return_info": True}
    calls = {
        "bcast": lambda: zccl.bcast(own if at_root else out, **how),
        "scatter": lambda: zccl.scatter(everything, out, **how),
        "gather": lambda: zccl.gather(own, outs, **how),
    }
    calls[name]()
    zccl.free_workspace()
    gc.collect()
    COMM.Barrier()
    tracemalloc.start()
    _, info = calls[name]()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    segment = zccl.compress_bound(SEGMENT_NBYTES // 4, own.dtype)
    # Beside the segment: small messages that the pool has for the next call.
    assert peak <= 1.1 * info.wire_nbytes + 1.5 * segment


@pytest.mark.skipif(COMM.size > 4, reason="the arrays of many ranks do not fit a small machine")
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling"])
def test_workspace_is_flat_over_calls(algorithm):
    values = field(False)[: 1 << 20]
    out = np.empty_like(values)
    zccl.free_workspace()
    tracemalloc.start()
    for _ in range(24):
        zccl.allreduce(values, out, comm=COMM, error_bound=1e-2, algorithm=algorithm)
        COMM.Barrier()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    # How many buffers are in use at once depends on who is late; what one call may take bounds it.
    assert kept <= 1.5 * zccl.compress_bound(values.size, values.dtype)
    assert zccl.free_workspace() > 0
