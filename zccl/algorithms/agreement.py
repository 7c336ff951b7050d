"""The agreement that starts every collective: one small allreduce finds faults on any rank.

The record is some numbers, reduced by MAX: who has a fault, a hash of the arguments and its
negative (equal on all ranks if and only if the two results are each other's negative), and what
`Facts` has. Texts move on the failure path only.
"""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from zccl.algorithms.primitives import Steps, StepsTo
from zccl.errors import TransportError
from zccl.formats import VERSION
from zccl.transport.waiting import Waiting

_CLASSES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        TypeError,
        ValueError,
        NotImplementedError,
        MemoryError,
        OverflowError,
        TransportError,
    )
}


NO_RANGE = (math.inf, -math.inf)


class Terms(NamedTuple):
    """What must be equal on all ranks, by the name that the user knows, with its hash."""

    arguments: dict[str, str]
    key: float

    @classmethod
    def of(cls, arguments: dict[str, str]) -> Terms:
        """Hash arguments to 48 bits, which a float64 holds exactly."""
        text = f"{VERSION}{arguments}".encode()
        digest = hashlib.blake2b(text, digest_size=6).digest()
        return cls(arguments, float(int.from_bytes(digest, "little")))


NO_TERMS = Terms.of({})


class Facts(NamedTuple):
    """What one rank knows that all must.

    Attributes
    ----------
    value_range : (float, float)
        Smallest and largest value here; (inf, -inf) for none.
    number : float
        A number that some collectives need, -inf for none.
    on_device : bool or None
        Whether this rank's array is on a GPU; None where it has none.
    ratio : float
        Compression ratio to expect of the values here; inf where that was not looked at.
    settled : bool
        Whether this rank knows that the native collective is best, and has not looked at values.
    cores : int
        That code messages; rank 0's counts.
    moved : bool
        Whether the GPU is, or may be, another one than in the last call.
    axes : int
        Along how many axes tiles are to be cut; 0 where this rank has no say.
    """

    value_range: tuple[float, float] = NO_RANGE
    number: float = -math.inf
    on_device: bool | None = None
    ratio: float = math.inf
    settled: bool = False
    cores: int = 1
    moved: bool = False
    axes: int = 0


NO_FACTS = Facts()


class Agreed(NamedTuple):
    """What is known of all ranks.

    Attributes
    ----------
    low, high : float
        The value range; (inf, -inf) for none.
    fact : float
        The largest of a number that some collectives need; -inf for none.
    device, host : bool
        Whether some rank's array is on a GPU, and whether some rank's is not.
    ratio : float
        The least compression ratio that a rank expects; 1 where none has looked.
    settled : bool
        Whether some rank knows that the native collective is best.
    cores : int
        Of rank 0.
    moved : bool
        Whether some rank's GPU is, or may be, another one than in the last call.
    axes : int
        Along how many axes tiles are to be cut.
    """

    low: float
    high: float
    fact: float
    device: bool
    host: bool
    ratio: float
    settled: bool
    cores: int
    moved: bool
    axes: int

    @property
    def ends(self) -> tuple[float, float]:
        """The value range."""
        return self.low, self.high


NO_KNOWLEDGE = Agreed(*NO_RANGE, -math.inf, False, False, 1.0, False, 1, False, 1)


def agree(
    comm: MPI.Intracomm,
    terms: Terms = NO_TERMS,
    fault: Exception | None = None,
    facts: Facts = NO_FACTS,
) -> StepsTo[Agreed]:
    """Find out what is known of all ranks when all give the same arguments and none has a fault.

    Parameters
    ----------
    comm : MPI.Intracomm
        Private communicator.
    terms : Terms
        What must be equal on all ranks. Ignored with a fault.
    fault : Exception or None
        What is wrong on this rank.
    facts : Facts
        What this rank knows.

    Raises
    ------
    Exception
        On a fault: an exception of the class of the lowest faulty rank's, on all ranks.
    ValueError
        When the arguments differ.
    """
    (low, high), number, on_device, ratio, settled, cores, moved, axes = facts
    record = array(
        "d",
        (
            0.0 if fault is None else float(comm.size - comm.rank), terms.key, -terms.key,
            -low, high, number, on_device is True, on_device is False, -ratio, settled,
            cores if comm.rank == 0 else 0, moved, axes,
        ),
    )  # fmt: skip
    yield Waiting(comm.Iallreduce(MPI.IN_PLACE, record, MPI.MAX))
    if record[0]:
        yield from _raise_fault(comm, comm.size - int(record[0]), fault)
    if record[1] != -record[2]:
        yield from _raise_difference(comm, terms.arguments)
    least = -record[8]
    return Agreed(
        -record[3], record[4], record[5], record[6] > 0, record[7] > 0,
        least if math.isfinite(least) else 1.0, record[9] > 0, int(record[10]), record[11] > 0,
        max(int(record[12]), 1),
    )  # fmt: skip


def _raise_fault(comm: MPI.Intracomm, rank: int, fault: Exception | None) -> Steps:
    name, text = json.loads((yield from _broadcast(comm, [_class_name(fault), str(fault)], rank)))
    kind = next((k for k in _CLASSES.values() if fault is not None and type(fault) is k), None)
    if comm.rank == rank and fault is not None and kind is not None:
        raise fault
    raised = _CLASSES.get(name, RuntimeError)
    raise raised(
        f"rank {rank}: {text}" if name in _CLASSES else f"rank {rank}: {name}: {text}"
    ) from fault


def _class_name(fault: Exception | None) -> str:
    """Return the name of a fault's class; libraries have errors of memory of their own."""
    return "MemoryError" if isinstance(fault, MemoryError) else type(fault).__name__


def _raise_difference(comm: MPI.Intracomm, arguments: dict[str, str]) -> Steps:
    reference = json.loads((yield from _broadcast(comm, arguments, 0)))
    differs = arguments != reference
    candidate = np.array([comm.rank if differs else comm.size], np.int64)
    lowest = np.empty_like(candidate)
    yield Waiting(comm.Iallreduce(candidate, lowest, MPI.MIN))
    other = int(lowest[0])
    theirs = json.loads((yield from _broadcast(comm, arguments, other)))
    field = next(name for name in reference | theirs if reference.get(name) != theirs.get(name))
    raise ValueError(
        f"arguments differ between ranks: {field}: rank 0 has {reference.get(field)}, rank"
        f" {other} has {theirs.get(field)}; all ranks must give the same"
    )


def _broadcast(comm: MPI.Intracomm, content: object, root: int) -> StepsTo[bytes]:
    text = json.dumps(content).encode() if comm.rank == root else b""
    size = np.array([len(text)], np.int64)
    yield Waiting(comm.Ibcast(size, root))
    buffer = (
        np.frombuffer(text, np.uint8).copy()
        if comm.rank == root
        else np.empty(int(size[0]), np.uint8)
    )
    yield Waiting(comm.Ibcast(buffer, root))
    return buffer.tobytes()
