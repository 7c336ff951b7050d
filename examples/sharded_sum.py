"""Sum up over ranks by shares, work on one's own share, and give the result to all.

Optimisers and filters do this: `reduce_scatter`, a step on each share, `allgather`.

    mpiexec -n 4 python examples/sharded_sum.py
"""

import numpy as np
from mpi4py import MPI

import zccl

COUNT = 300_001
BOUND = 1e-3  # absolute

comm = MPI.COMM_WORLD
x = np.arange(COUNT) / COUNT
part = (np.sin(20 * x + comm.rank) * np.exp(-3 * x)).astype(np.float32)

how = {"comm": comm, "error_bound": BOUND, "algorithm": "ring", "return_info": True}
share, summed = zccl.reduce_scatter(part, **how)
share *= np.float32(0.5)
# Shares differ by one element at most: allgather takes the counts.
counts = comm.allgather(share.size)
result, gathered = zccl.allgather(share, recvcounts=counts, **how)

exact = 0.5 * sum(np.sin(20 * x + rank) * np.exp(-3 * x) for rank in range(comm.size))
worst = comm.reduce(float(np.abs(result - exact).max()), MPI.MAX)
total = zccl.reduce(part, comm=comm)  # exact: no bound is given
sent = comm.reduce(summed.wire_nbytes + gathered.wire_nbytes)
plain = comm.reduce(summed.raw_wire_nbytes + gathered.raw_wire_nbytes)
same = len(set(comm.allgather(result.tobytes()))) == 1
if comm.rank == 0:
    if sent:
        print(f"sent {sent / 1e3:.0f} kB in place of {plain / 1e3:.0f} kB: {plain / sent:.1f}")
    print(f"same bytes on all {comm.size} ranks: {same}")
    print(f"largest error {worst:.2e}, promised {0.5 * BOUND + BOUND:.2e}: kept")
    rounding = 1e-6
    assert same and worst <= 1.5 * BOUND + rounding
    assert np.abs(0.5 * total - exact).max() <= 1e-5
