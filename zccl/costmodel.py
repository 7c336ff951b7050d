"""What a collective should cost: one formula for each algorithm, pure functions of agreed numbers.

The model is the usual one of MPI's collectives (Thakur, Rabenseifner, Gropp, "Optimization of
Collective Communication Operations in MPICH", IJHPCA 19, 2005): a message of n bytes takes latency
+ n / bandwidth, a rank sends and receives one at a time each. Coding is added to it. Ring against
recursive doubling is weighed as in gZCCL (arXiv 2308.05199, section 3.3): the ring codes 1 / N of
the array in each of many steps, recursive doubling all of it in each of log2 N.

What all ranks have paid before anything is decided (value range, sample, agreement) is in none of
the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from zccl.costformulas import WIDENING, Job, Schedule, schedule
from zccl.machines import Machine


class Estimate(NamedTuple):
    """What a call should cost.

    Attributes
    ----------
    seconds : float
        In all; less than the sum of the three below, since coding and wire overlap.
    sent_nbytes : float
        By the rank that sends most.
    messages : int
        Of the rank that has most.
    latency_seconds : float
        What no byte costs: the call, latencies, a message's own work.
    wire_seconds, code_seconds : float
        Of the slowest rank in each step, without overlap.
    """

    seconds: float
    sent_nbytes: float
    messages: int
    latency_seconds: float
    wire_seconds: float
    code_seconds: float


def predict(
    collective: str,
    algorithm: str,
    nbytes: float,
    size: int,
    machine: Machine,
    ratio: float,
    *,
    itemsize: int = 4,
    widening: float = WIDENING,
) -> Estimate:
    """Return what one of a collective's algorithms, or "native", should cost.

    In a step whose messages have s segments, coding and wire overlap: of the times that they take
    alone, the step takes `longest + (sum - longest) / s`, as a pipeline of s pieces does. s is not
    rounded, so that more bytes never take less time.

    Parameters
    ----------
    collective, algorithm : str
        As in `zccl.plan.ALGORITHMS`.
    nbytes : float
        Uncompressed bytes: of one rank's array where all arrays are alike, of a mean share in
        scatter, gather, allgather and alltoall.
    size : int
        Number of ranks.
    machine : Machine
        What each rank has.
    ratio : float
        Uncompressed bytes over coded bytes of one rank's own values.
    itemsize : int
        Bytes of a value.
    widening : float
        Bits by which a code grows for twice as many ranks in a sum: 1/2 for independent values, 1
        for equal ones, 0 for MAX and MIN.

    Raises
    ------
    ValueError
        When `ratio` is not a positive number.
    """
    if not 0 < ratio < math.inf:
        raise ValueError(f"ratio: got {ratio}, wanted a positive number")
    if algorithm == "native":
        return _native(collective, nbytes, size, machine)
    job = Job(nbytes, size, machine, ratio, itemsize, widening)
    return _total(schedule(collective, algorithm, job), machine)


def _total(done: Schedule, machine: Machine) -> Estimate:
    latency, wire, code = machine.call, 0.0, done.alone
    seconds = machine.call + done.alone
    messages = 0
    for phase in done.phases:
        each = phase.parts * phase.copies
        waiting = phase.hops * machine.latency + each * machine.message
        stages = (phase.wire / machine.bandwidth, *phase.work)
        longest = max(stages)
        overlapped = longest + (sum(stages) - longest) / phase.parts
        seconds += phase.steps * (waiting + overlapped)
        latency += phase.steps * waiting
        wire += phase.steps * stages[0]
        code += phase.steps * sum(phase.work)
        messages += phase.steps * math.ceil(each)
    return Estimate(seconds, done.sent_nbytes, messages, latency, wire, code)


def _native(collective: str, nbytes: float, size: int, machine: Machine) -> Estimate:
    """Return the best of the algorithms that MPI libraries and NCCL choose from."""
    if size == 1:
        return Estimate(0.0, 0.0, 0, 0.0, 0.0, 0.0)
    estimates = []
    for messages, wire_nbytes, sent_nbytes in _NATIVE[collective](nbytes, size):
        latency = messages * machine.native_latency
        wire = wire_nbytes / machine.native_bandwidth
        estimates.append(Estimate(latency + wire, sent_nbytes, messages, latency, wire, 0.0))
    return min(estimates)


# For n bytes and N ranks: messages one after another, bytes through the busiest port, bytes that
# one rank sends at most; each is in section 3 of Thakur et al.
_Plain = list[tuple[int, float, float]]


def _levels(size: int) -> int:
    return (size - 1).bit_length()


def _plain_allreduce(n: float, size: int) -> _Plain:
    levels, long = _levels(size), 2 * n * (size - 1) / size
    return [(levels, levels * n, levels * n), (2 * levels, long, long)]


def _plain_reduce_scatter(n: float, size: int) -> _Plain:
    long = n * (size - 1) / size
    return [(_levels(size), long, long)]


def _plain_reduce(n: float, size: int) -> _Plain:
    levels, long = _levels(size), 2 * n * (size - 1) / size
    return [(levels, levels * n, n), (2 * levels, long, long)]


def _plain_bcast(n: float, size: int) -> _Plain:
    levels, long = _levels(size), 2 * n * (size - 1) / size
    return [(levels, levels * n, levels * n), (levels + size - 1, long, long)]


def _plain_scatter(n: float, size: int) -> _Plain:
    return [(_levels(size), (size - 1) * n, (size - 1) * n)]


def _plain_gather(n: float, size: int) -> _Plain:
    return [(_levels(size), (size - 1) * n, n)]


def _plain_alltoall(n: float, size: int) -> _Plain:
    short = _levels(size) * size / 2 * n  # Bruck's
    return [(_levels(size), short, short), (size - 1, (size - 1) * n, (size - 1) * n)]


_NATIVE: dict[str, Callable[[float, int], _Plain]] = {
    "allreduce": _plain_allreduce,
    "reduce_scatter": _plain_reduce_scatter,
    "reduce": _plain_reduce,
    "bcast": _plain_bcast,
    "scatter": _plain_scatter,
    "gather": _plain_gather,
    "allgather": _plain_scatter,
    "alltoall": _plain_alltoall,
}
