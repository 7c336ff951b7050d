"""`python -m zccl.transport.probe WHAT ...`: try in a process of its own whether a way works.

A library that cannot do it may crash, which must not end the job.

    nccl RANK SIZE DEVICE     NCCL between the GPUs of all ranks. Rank 0 prints the name of the
                              communicator, the others read it; then each prints "works".
    mpi-device DEVICE         MPI on a GPU's memory, from a rank to itself; prints "works".
"""

from __future__ import annotations

import ast
import sys


def nccl(rank: int, size: int, device: int) -> None:
    """Reduce a number over all ranks, and pass one round."""
    import cupy
    from cupy.cuda import nccl as library

    cupy.cuda.Device(device).use()
    if rank == 0:
        name = library.get_unique_id()
        print(repr(name), flush=True)  # bytes, or a tuple of numbers before CuPy 14
    else:
        name = ast.literal_eval(sys.stdin.readline())
    comm = library.NcclCommunicator(size, name, rank)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        mine = cupy.full(1000, rank + 1, "i4")
        total, left = cupy.zeros_like(mine), cupy.zeros_like(mine)
        kind = library.NCCL_INT32
        comm.allReduce(mine.data.ptr, total.data.ptr, mine.size, kind, library.NCCL_SUM, stream.ptr)
        library.groupStart()
        comm.send(mine.data.ptr, mine.size, kind, (rank + 1) % size, stream.ptr)
        comm.recv(left.data.ptr, left.size, kind, (rank - 1) % size, stream.ptr)
        library.groupEnd()
        right = (total == size * (size + 1) // 2).all() and (left == (rank - 1) % size + 1).all()
    print("works" if bool(right) else "wrong numbers", flush=True)


def mpi_device(device: int) -> None:
    """Exchange a few sizes with oneself."""
    import cupy
    from mpi4py import MPI

    cupy.cuda.Device(device).use()
    for n in (100, 1 << 20):
        send = cupy.arange(n, dtype="u1")
        into = cupy.zeros_like(send)
        cupy.cuda.get_current_stream().synchronize()
        MPI.COMM_SELF.Sendrecv([send, MPI.BYTE], 0, 0, [into, MPI.BYTE], 0, 0)
        if not bool((send == into).all()):
            print("wrong numbers", flush=True)
            return
    print("works", flush=True)


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    try:
        if what == "nccl":
            nccl(*map(int, numbers))
        else:
            mpi_device(int(numbers[0]))
    except Exception as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0], flush=True)
