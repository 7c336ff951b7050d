"""A ring without compression, in plain mpi4py, which a win over the library's call must beat too.

MPI libraries choose among algorithms, at times badly on a slow link; against this ring, which moves
what zccl's ring moves, a gain is the gain of compression.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from zccl.ops import Op
from zccl.plan import even_split
from zccl.typing import Array

_UFUNCS: dict[Op, np.ufunc] = {
    Op.SUM: np.add,
    Op.AVG: np.add,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
}


def ring_allreduce(comm: MPI.Intracomm, source: Array, result: Array, op: Op) -> Callable[[], None]:
    """Return a call that reduces `source` into `result`, 1-D and of one dtype, over all ranks."""
    size, rank = comm.size, comm.rank
    left, right = (rank - 1) % size, (rank + 1) % size
    stops = np.cumsum(even_split(source.size, size)).tolist()
    chunks = [result[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]
    arrived = np.empty_like(chunks[0])
    reduce = _UFUNCS[op]

    def call() -> None:
        result[...] = source
        for k in range(size - 1):
            mine = chunks[(rank - 2 - k) % size]
            theirs = arrived[: mine.size]
            comm.Sendrecv(chunks[(rank - 1 - k) % size], right, 0, theirs, left, 0)
            reduce(mine, theirs, out=mine)
        if op is Op.AVG:
            np.divide(chunks[rank], size, out=chunks[rank])
        for k in range(size - 1):
            theirs = chunks[(rank - 1 - k) % size]
            comm.Sendrecv(chunks[(rank - k) % size], right, 0, theirs, left, 0)

    return call
