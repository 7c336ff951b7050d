"""Share out seismic shots, work on them, and gather the results at the root.

mpiexec -n 4 python examples/scatter_gather.py
"""

import numpy as np
from mpi4py import MPI

import zccl

SHOTS, SAMPLES = 10, 20_000
BOUND = 1e-3  # of the value range of all that is sent

comm = MPI.COMM_WORLD


def shots() -> np.ndarray:
    """Return traces of damped oscillations, one row a shot."""
    t = np.linspace(0, 4, SAMPLES)
    rows = [np.exp(-t) * np.sin(2 * np.pi * (5 + k) * t) for k in range(SHOTS)]
    return np.array(rows, np.float32)


# Shares of whole shots, as even as can be. Counts are elements; only the root need give them.
mine = np.array_split(np.arange(SHOTS), comm.size)[comm.rank]
counts = [SAMPLES * len(rows) for rows in np.array_split(np.arange(SHOTS), comm.size)]

at_root = comm.rank == 0
data = shots() if at_root else None
how = {"comm": comm, "error_bound": BOUND, "mode": "rel", "algorithm": "binomial"}
flat, scattered = zccl.scatter(
    data, sendcounts=counts if at_root else None, return_info=True, **how
)
envelopes = np.abs(flat.reshape(len(mine), SAMPLES)) * 2

result, gathered = zccl.gather(
    envelopes, recvcounts=counts if at_root else None, return_info=True, **how
)
sent = comm.reduce(scattered.wire_nbytes + gathered.wire_nbytes)
plain = comm.reduce(scattered.raw_wire_nbytes + gathered.raw_wire_nbytes)
if at_root:
    exact = np.abs(data) * 2
    worst = float(np.abs(result.reshape(exact.shape) - exact).max())
    promised = 2 * scattered.error_bound + gathered.error_bound
    if sent:
        print(f"sent {sent / 1e3:.0f} kB in place of {plain / 1e3:.0f} kB: {plain / sent:.1f}")
    print(f"largest error {worst:.2e}, two bounds make {promised:.2e}: kept")
    assert worst <= promised * (1 + 1e-6)
