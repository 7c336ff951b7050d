"""Transpose a matrix that is spread over the ranks by rows, as distributed FFTs do.

mpiexec -n 4 python examples/transpose.py
"""

import numpy as np
from mpi4py import MPI

import zccl

BOUND = 1e-4  # absolute, of each component

comm = MPI.COMM_WORLD
size, rank = comm.size, comm.rank
n = 128 * size  # of a matrix n x n; every rank has 128 rows


def rows(first: int, stop: int) -> np.ndarray:
    """Return some rows of the matrix: a smooth complex field."""
    y, x = np.mgrid[first:stop, 0:n] / n
    return (np.exp(-8 * (x - y) ** 2) * np.exp(12j * x)).astype(np.complex64)


mine = rows(128 * rank, 128 * (rank + 1))
# Block k of my rows, transposed, belongs to rank k.
blocks = np.stack([block.T for block in np.split(mine, size, axis=1)])
received, info = zccl.alltoall(
    blocks, comm=comm, error_bound=BOUND, algorithm="pairwise", return_info=True
)
transposed = np.concatenate(list(received), axis=1)

exact = np.concatenate(
    [rows(128 * k, 128 * (k + 1))[:, 128 * rank : 128 * (rank + 1)].T for k in range(size)], axis=1
)
error = max(float(np.abs(f(transposed) - f(exact)).max()) for f in (np.real, np.imag))
worst = comm.reduce(error, MPI.MAX)
sent, plain = comm.reduce(info.wire_nbytes), comm.reduce(info.raw_wire_nbytes)
if rank == 0:
    print(f"{n} x {n} complex64 on {size} ranks")
    if sent:
        print(f"sent {sent / 1e3:.0f} kB in place of {plain / 1e3:.0f} kB: {plain / sent:.1f}")
    print(f"largest error {worst:.2e}, promised {info.error_bound:.0e}: kept")
    assert worst <= BOUND
