"""What a call would do and what it should cost, before it is made: for people to read."""

from __future__ import annotations

import math
from typing import NamedTuple

from zccl import errorbound
from zccl.costmodel import Estimate
from zccl.machines import Machine, part_nbytes
from zccl.ops import Op
from zccl.plan import REDUCTIONS, WORTH, Plan, candidates, choose, chunk_count, in_units


class Forecast(NamedTuple):
    """What a call would do.

    Attributes
    ----------
    collective, nbytes, size : str, float, int
        What was asked, as for `zccl.plan.choose`.
    plan : Plan
        Algorithm and reason.
    candidates : dict of str to Estimate
        What each algorithm should cost.
    ratio : float
        Expected of one rank's own values; 1 where nothing is coded.
    segments, segment_nbytes : int
        Messages that an array, or a share, is cut into, and the most uncompressed bytes of one; 0
        for the native collective.
    rank_bound, promised_bound : float
        Of each rank's values, and of the result; 0: exact.
    budget : str
        Which of `zccl.errorbound.BUDGETS` leads from one to the other.
    """

    collective: str
    nbytes: float
    size: int
    plan: Plan
    candidates: dict[str, Estimate]
    ratio: float
    segments: int
    segment_nbytes: int
    rank_bound: float
    promised_bound: float
    budget: str

    @property
    def algorithm(self) -> str:
        """What would run."""
        return self.plan.algorithm

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.plan.reason

    @property
    def estimate(self) -> Estimate:
        """What it should cost."""
        return self.candidates[self.algorithm]

    def explain(self) -> str:
        """Return all of it as text of some lines."""
        cost = self.estimate
        overlap = "" if self.algorithm == "native" else ", coding and wire partly at once"
        lines = [
            f"{self.collective}, {_size(self.nbytes)} a rank, {self.size} ranks: {self.algorithm}",
            f"  why       {self.reason}",
            f"  segments  {self._segments_text()}",
            f"  bound     {self._bound_text()}",
            f"  ratio     {self._ratio_text()}",
            f"  sent      at most {_size(cost.sent_nbytes)} by a rank",
            f"  time      {in_units(cost.seconds)}: latency {in_units(cost.latency_seconds)},"
            f" wire {in_units(cost.wire_seconds)}, coding {in_units(cost.code_seconds)}{overlap}",
            "",
            f"  {'algorithm':22}{'time':>9}{'sent':>11}{'messages':>10}",
        ]
        for name, other in self.candidates.items():
            lines.append(
                f"  {name:22}{in_units(other.seconds):>9}{_size(other.sent_nbytes):>11}"
                f"{other.messages:10}  {self._verdict(name)}"
            )
        return "\n".join(lines)

    def _segments_text(self) -> str:
        if not self.segments:
            return "as the native collective has them"
        return f"{self.segments} of at most {_size(self.segment_nbytes)}, uncompressed"

    def _bound_text(self) -> str:
        if not self.promised_bound:
            return "none: exact"
        return (
            f"{self.promised_bound:.6g} promised for the result, {self.rank_bound:.6g} for each"
            f" rank's values (budget {self.budget!r})"
        )

    def _ratio_text(self) -> str:
        return "nothing is coded" if self.ratio == 1 else f"{self.ratio:.3g} of a rank's own values"

    def _verdict(self, name: str) -> str:
        """Return why an algorithm is not taken."""
        if name == self.algorithm:
            return "chosen"
        mine, cost = self.estimate.seconds, self.candidates[name]
        if cost.seconds > mine:
            times = f"{cost.seconds / mine:.1f} times as long" if mine else "longer"
            return f"{times}, most of it {_most(cost)}"
        if self.reason == "asked for":
            return "not asked for"
        if name == "native":
            return "other bits than those of zccl's own"
        if self.algorithm != "native":
            return "no faster"
        return "gains too little" if cost.seconds > WORTH * mine else "not weighed"


def forecast(
    collective: str,
    nbytes: float,
    size: int,
    machine: Machine,
    ratio: float,
    *,
    wanted: str = "auto",
    codable: bool = True,
    exact: bool = False,
    reproducible: bool = False,
    itemsize: int = 4,
    op: Op | None = None,
    error_bound: float = 0.0,
    budget: str = "guaranteed",
) -> Forecast:
    """Return what a call would do: `zccl.plan.choose` and all that it weighed.

    Parameters
    ----------
    collective, nbytes, size, machine, ratio, wanted, codable, exact, reproducible, itemsize, op
        As for `zccl.plan.choose`.
    error_bound : float
        Absolute bound of the result.
    budget : str
        One of `zccl.errorbound.BUDGETS`.
    """
    if collective in REDUCTIONS and op is None:
        op = Op.SUM
    plan = choose(
        collective, wanted, nbytes, size, machine, ratio, codable=codable, exact=exact,
        reproducible=reproducible, itemsize=itemsize, op=op,
    )  # fmt: skip
    ratio = ratio if codable else 1.0
    costs = candidates(collective, nbytes, size, machine, ratio, itemsize=itemsize, op=op)
    coded = codable and plan.algorithm != "native"
    segments, segment_nbytes = _segments(collective, plan.algorithm, nbytes, size, machine)
    return Forecast(
        collective, nbytes, size, plan, costs, ratio if coded else 1.0, segments, segment_nbytes,
        errorbound.rank_bound(error_bound, op, size, budget) if coded else 0.0,
        errorbound.result_bound(error_bound, op, size, budget) if coded else 0.0, budget,
    )  # fmt: skip


def _segments(
    collective: str, algorithm: str, nbytes: float, size: int, machine: Machine
) -> tuple[int, int]:
    """Return how many messages an array or a share is cut into, and the bytes of the longest."""
    if algorithm == "native" or not nbytes:
        return 0, 0
    chunks = chunk_count(collective, algorithm, size)
    chunk = math.ceil(nbytes / chunks)
    part = min(part_nbytes(chunk, machine.segment_nbytes), chunk)
    return chunks * math.ceil(chunk / part), part


def _most(cost: Estimate) -> str:
    """Return what takes the largest part of a time."""
    parts = (cost.latency_seconds, cost.wire_seconds, cost.code_seconds)
    return ("latency", "wire", "coding")[parts.index(max(parts))]


def _size(nbytes: float) -> str:
    """Return bytes for people to read."""
    for name in ("bytes", "kB", "MB"):
        if nbytes < 999.5:
            return f"{nbytes:.3g} {name}"
        nbytes /= 1000
    return f"{nbytes:.3g} GB"
