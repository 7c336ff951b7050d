"""Broadcast a velocity model to all ranks, with each value within 1 m/s of the original.

mpiexec -n 4 python examples/broadcast.py
"""

import numpy as np
from mpi4py import MPI

import zccl

BOUND = 1.0  # m/s

comm = MPI.COMM_WORLD


def velocity_model() -> np.ndarray:
    """Return folded layers, faster with depth, in m/s."""
    z, y, x = np.ogrid[0:1:128j, 0:1:128j, 0:1:128j]
    depth = z + 0.05 * np.sin(5 * x) * np.cos(3 * y)
    return (1500 + 250 * np.floor(10 * depth) + 400 * depth**2).astype(np.float32)


# Only the root has an array; the others learn its shape and dtype from the call.
model = velocity_model() if comm.rank == 0 else None
received, info = zccl.bcast(
    model, comm=comm, error_bound=BOUND, algorithm="scatter_allgather", return_info=True
)

worst = comm.reduce(float(np.abs(received - velocity_model()).max()), MPI.MAX)
sent, plain = comm.reduce(info.wire_nbytes), comm.reduce(info.raw_wire_nbytes)
if comm.rank == 0:
    print(f"{received.nbytes / 1e6:.1f} MB to {comm.size} ranks by {info.algorithm}")
    if sent:
        print(
            f"sent {sent / 1e6:.2f} MB in place of {plain / 1e6:.2f} MB: ratio {plain / sent:.1f}"
        )
    print(f"largest error {worst:.3f} m/s, promised {info.error_bound}: kept")
    assert worst <= BOUND
