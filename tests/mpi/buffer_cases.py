"""Random buffers for mpi4py's capitalised methods, and what the methods should do with them."""

import numpy as np
from mpi.checks import RANK, SIZE, same_bits
from mpi4py import MPI

TYPES = {"f4": MPI.FLOAT, "f8": MPI.DOUBLE, "i4": MPI.INT}
DTYPES = list(TYPES)
ROOTED = ("Reduce", "Bcast", "Scatter", "Scatterv", "Gather", "Gatherv")
BLOCKS = ("Allgather", "Scatter", "Gather", "Alltoall")
VECTORS = ("Allgatherv", "Scatterv", "Gatherv", "Alltoallv")
REDUCTIONS = ("Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block")
METHODS = (*REDUCTIONS, "Bcast", *BLOCKS, *VECTORS)
# Coded ones, since "auto" takes plain MPI where all ranks share a node.
CODED = {"Allreduce": "ring", "Reduce": "binomial", "Reduce_scatter": "ring",
         "Reduce_scatter_block": "ring", "Bcast": "binomial", "Allgather": "ring",
         "Allgatherv": "ring", "Scatter": "binomial", "Scatterv": "binomial", "Gather": "binomial",
         "Gatherv": "binomial", "Alltoall": "pairwise", "Alltoallv": "pairwise"}  # fmt: skip


def started(name):
    return f"I{name.lower()}"


def numbers(n, dtype, seed=0):
    """Whole numbers, whose sums are exact in any order, for every rank others."""
    rng = np.random.default_rng([n, RANK, seed])
    return rng.integers(-1000, 1000, n).astype(dtype)


class Case:
    """Random buffers for a method, alike on all ranks as far as they must be.

    `call(method)` fills fresh arrays and returns what the receiving one holds.
    """

    def __init__(self, name, dtype, seed, in_place=False):
        self.name, self.dtype, self.in_place = name, dtype, in_place
        self.rng = np.random.default_rng([METHODS.index(name), seed])
        self.root = int(self.rng.integers(SIZE))
        self.at_root = self.root == RANK
        self.count = int(self.rng.choice([0, 1, 17, 1500]))
        self.more = {"root": self.root} if name in ROOTED else {}
        # matrix[i, j]: elements from i to j.
        self.matrix = self.rng.choice([0, 0, 1, 40, 1100], (SIZE, SIZE))
        if in_place:
            self.matrix = np.maximum(self.matrix, self.matrix.T)
        self.send, self.recv = getattr(self, f"_{name.lower()}")()

    def call(self, method, **keywords):
        """Call a method; returns all that it may have written."""
        send = None if self.send is None else self._fresh(self.send)
        recv = None if self.recv is None else self._fresh(self.recv)
        buffers = [recv] if self.name == "Bcast" else [send, recv]
        request = method(*buffers, **self.more, **keywords)
        if request is not None:
            request.Wait()
        return [spec[0] if isinstance(spec, list) else spec for spec in buffers]

    @staticmethod
    def _fresh(spec):
        if isinstance(spec, list):
            return [spec[0].copy(), *spec[1:]]
        return spec.copy() if isinstance(spec, np.ndarray) else spec

    def _numbers(self, n, seed=0):
        return numbers(n, self.dtype, seed)

    def _typed(self, array, *counts):
        """Return one of the specifications that say the same."""
        forms = [[array, *counts, TYPES[self.dtype]], [array, *counts, np.dtype(self.dtype).char]]
        if not counts or not isinstance(counts[0], tuple):
            forms.append([array, *counts, TYPES[self.dtype]])
        else:
            forms.append([array, *counts[0], TYPES[self.dtype]])
            forms.append([array, *counts])
        if array.dtype.kind in "fi":
            forms.append([array.view(np.uint8), *counts, TYPES[self.dtype]])
        return forms[int(self.rng.integers(len(forms)))]

    def _simple(self, n, blocks=1):
        """Return a specification of so many elements, sometimes in a longer array."""
        if self.rng.random() < 0.5:
            return self._typed(self._numbers(n * blocks))
        return self._typed(self._numbers(n * blocks + 9), (n, 5))

    def _vector(self, counts):
        """Return a specification of pieces in any order, with gaps."""
        counts = [int(c) for c in counts]
        if self.rng.random() < 0.2:
            return self._typed(self._numbers(sum(counts)), counts)
        displs, end = [0] * SIZE, 3
        for k in self.rng.permutation(SIZE):
            displs[k] = end
            end += counts[k] + int(self.rng.choice([0, 7]))
        return self._typed(self._numbers(end + 3), (counts, displs))

    def _allreduce(self):
        send, recv = self._simple(self.count), self._simple(self.count)
        return (MPI.IN_PLACE if self.in_place else send), recv

    def _reduce(self):
        send, recv = self._simple(self.count), self._simple(self.count)
        in_place = self.in_place and self.at_root
        return (MPI.IN_PLACE if in_place else send), (recv if self.at_root else None)

    def _reduce_scatter(self):
        counts = [int(c) for c in self.matrix[0]]
        if self.in_place or self.rng.random() < 0.5:
            self.more = {"recvcounts": counts}
        send, whole = self._simple(sum(counts)), self._simple(sum(counts))
        share = self._typed(self._numbers(counts[RANK]))
        return (MPI.IN_PLACE, whole) if self.in_place else (send, share)

    def _reduce_scatter_block(self):
        send, whole = self._simple(self.count, SIZE), self._simple(self.count, SIZE)
        share = self._simple(self.count)
        return (MPI.IN_PLACE, whole) if self.in_place else (send, share)

    def _bcast(self):
        return None, self._simple(self.count)

    def _allgather(self):
        send, recv = self._simple(self.count), self._simple(self.count, SIZE)
        return (MPI.IN_PLACE if self.in_place else send), recv

    def _allgatherv(self):
        counts = self.matrix[0]
        send, recv = self._typed(self._numbers(counts[RANK])), self._vector(counts)
        return (MPI.IN_PLACE if self.in_place else send), recv

    def _scatter(self):
        send, recv = self._simple(self.count, SIZE), self._simple(self.count)
        in_place = self.in_place and self.at_root
        return (send if self.at_root else None), (MPI.IN_PLACE if in_place else recv)

    def _scatterv(self):
        counts = self.matrix[0]
        send, recv = self._vector(counts), self._typed(self._numbers(counts[RANK]))
        in_place = self.in_place and self.at_root
        return (send if self.at_root else None), (MPI.IN_PLACE if in_place else recv)

    def _gather(self):
        send, recv = self._simple(self.count), self._simple(self.count, SIZE)
        in_place = self.in_place and self.at_root
        return (MPI.IN_PLACE if in_place else send), (recv if self.at_root else None)

    def _gatherv(self):
        counts = self.matrix[0]
        send, recv = self._typed(self._numbers(counts[RANK])), self._vector(counts)
        in_place = self.in_place and self.at_root
        return (MPI.IN_PLACE if in_place else send), (recv if self.at_root else None)

    def _alltoall(self):
        send, recv = self._simple(self.count, SIZE), self._simple(self.count, SIZE)
        return (MPI.IN_PLACE if self.in_place else send), recv

    def _alltoallv(self):
        send, recv = self._vector(self.matrix[RANK]), self._vector(self.matrix[:, RANK])
        return (MPI.IN_PLACE if self.in_place else send), recv


def close(found, wanted, dtype, bound):
    """Whether all that a call may have written is what MPI writes there."""
    for a, b in zip(found, wanted, strict=True):
        if not isinstance(b, np.ndarray):
            continue
        a, b = a.view(dtype), b.view(dtype)
        if bound and a.dtype.kind == "f":
            rounding = np.spacing(np.abs(b)) * 0.51
            if not (np.abs(a.astype("f8") - b.astype("f8")) <= bound + rounding).all():
                return False
        elif not same_bits(a, b):
            return False
    return True
