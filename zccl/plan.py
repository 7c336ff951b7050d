"""Which algorithm runs, and in which pieces: pure functions of what all ranks have agreed on."""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

from zccl.costmodel import WIDENING, Estimate, predict
from zccl.formats import TILE
from zccl.machines import DEVICE_SEGMENT_NBYTES, SEGMENT_NBYTES, Machine, part_nbytes
from zccl.ops import Op

ALGORITHMS = {
    "allreduce": ("ring", "recursive_doubling"),
    "reduce_scatter": ("ring",),
    "reduce": ("binomial", "reduce_scatter_gather"),
    "bcast": ("binomial", "scatter_allgather"),
    "scatter": ("binomial",),
    "gather": ("binomial",),
    "allgather": ("ring", "recursive_doubling"),
    "alltoall": ("pairwise",),
}
"""zccl's own algorithms of each collective; "auto" and "native" are everywhere."""

REDUCTIONS = ("allreduce", "reduce_scatter", "reduce")

# Below this many bytes latency decides, and no published system gains from compression (NCCLZ,
# arXiv 2605.12396).
SMALL_NBYTES = 64 << 10

# A coded algorithm must take no more than this part of the native one's time: estimates are no
# better than that.
WORTH = 0.9


class Plan(NamedTuple):
    """What a call will do.

    Attributes
    ----------
    algorithm : str
        One of `ALGORITHMS`, or "native".
    reason : str
        Why, in words.
    """

    algorithm: str
    reason: str


def check_algorithm(collective: str, algorithm: str, override: str | None) -> str:
    """Return the algorithm, or raise ValueError when the collective has none of that name.

    An override from outside holds for all collectives that have an algorithm of its name.
    """
    wanted = ("auto", *ALGORITHMS[collective], "native")
    if override is not None:
        if override in wanted:
            return override
        if not any(override in names for names in ALGORITHMS.values()):
            raise ValueError(f"ZCCL_ALGORITHM: there is no algorithm {override!r}")
    if algorithm not in wanted:
        raise ValueError(
            f"algorithm: got {algorithm!r}, wanted one of {', '.join(map(repr, wanted))}"
        )
    return algorithm


def settled_plan(
    algorithm: str,
    nbytes: float,
    size: int,
    *,
    codable: bool,
    exact: bool,
    one_node: bool,
    reproducible: bool,
) -> Plan | None:
    """Return the plan where it is the native collective whatever the values are; else None.

    Parameters
    ----------
    algorithm : str
        What was asked for; "auto" leaves the choice open.
    nbytes : float
        Uncompressed bytes: of one rank's array where all arrays are alike, of a mean share in
        scatter, gather, allgather and alltoall; infinity while they are not known.
    size : int
        Number of ranks.
    codable : bool
        Whether there is a positive bound and a dtype that can be coded.
    exact : bool
        Whether a bound of 0 asks for zccl's own transport.
    one_node : bool
        Whether all ranks share memory.
    reproducible : bool
        Whether the bits must be those of the coded algorithms.
    """
    if algorithm == "native":
        return Plan(algorithm, "asked for")
    if algorithm != "auto":
        return None
    if not codable and not exact:
        return Plan("native", "nothing to quantise: exact pass-through")
    if codable and not reproducible:
        if size == 1:
            return Plan("native", "a single rank sends nothing")
        if nbytes <= SMALL_NBYTES:
            return Plan("native", f"{nbytes} bytes are too few to gain by compression")
        if one_node:
            return Plan("native", "all ranks share one node's memory, which is faster than coding")
    return None


@functools.lru_cache(1024)  # programs repeat their calls, and this takes 0.1 ms
def choose(
    collective: str,
    wanted: str,
    nbytes: float,
    size: int,
    machine: Machine,
    ratio: float,
    *,
    codable: bool,
    exact: bool,
    reproducible: bool,
    itemsize: int = 4,
    op: Op | None = None,
) -> Plan:
    """Return what a call will do: for "auto" the algorithm that should take the least time.

    Of algorithms that should take equally long, the first in `ALGORITHMS` is taken; a coded one
    must save a tenth of the native one's time. All ranks must give the same numbers.

    Parameters
    ----------
    collective : str
        One of `ALGORITHMS`.
    wanted : str
        What was asked for, as `check_algorithm` returns it.
    nbytes, size : float, int
        As for `settled_plan`.
    machine : Machine
        What each rank has; with what a node's shared memory does for messages.
    ratio : float
        Uncompressed over coded bytes of one rank's own values; ignored where nothing is codable.
    codable, exact, reproducible : bool
        As for `settled_plan`.
    itemsize : int
        Bytes of a value.
    op : Op or None
        What a reduction does, SUM by default.
    """
    settled = settled_plan(
        wanted, nbytes, size, codable=codable, exact=exact, one_node=False,
        reproducible=reproducible,
    )  # fmt: skip
    if settled is not None:
        return settled
    if wanted != "auto":
        return Plan(wanted, "asked for")
    costs = candidates(
        collective, nbytes, size, machine, ratio if codable else 1.0, itemsize=itemsize, op=op
    )
    return _cheapest(costs, or_native=codable and not reproducible)


def candidates(
    collective: str,
    nbytes: float,
    size: int,
    machine: Machine,
    ratio: float,
    *,
    itemsize: int = 4,
    op: Op | None = None,
) -> dict[str, Estimate]:
    """Return what each algorithm of a collective should cost; parameters as for `choose`."""
    widening = 0.0 if op in (Op.MAX, Op.MIN) else WIDENING
    return {
        name: predict(
            collective, name, nbytes, size, machine, ratio, itemsize=itemsize, widening=widening
        )
        for name in (*ALGORITHMS[collective], "native")
    }


def _cheapest(costs: dict[str, Estimate], or_native: bool) -> Plan:
    native = costs["native"].seconds
    own = min((name for name in costs if name != "native"), key=lambda name: costs[name].seconds)
    seconds = costs[own].seconds
    if not or_native:
        return Plan(own, f"{in_units(seconds)} expected, the least of zccl's own")
    if seconds <= WORTH * native:
        return Plan(own, f"{in_units(seconds)} expected, native {in_units(native)}")
    return Plan("native", f"{in_units(native)} expected, {own} {in_units(seconds)}")


def in_units(seconds: float) -> str:
    """Return a time of two digits for people to read."""
    unit, name = next(
        ((unit, name) for unit, name in ((1.0, "s"), (1e-3, "ms")) if seconds >= 0.995 * unit),
        (1e-6, "us"),
    )
    number = float(f"{seconds / unit:.2g}")
    return f"{number:.1f} {name}" if number < 10 else f"{number:.0f} {name}"


def even_split(total: int, parts: int) -> list[int]:
    """Split `total` things evenly.

    The first parts are one longer where it does not come out even.
    """
    share, rest = divmod(total, parts)
    return [share + (k < rest) for k in range(parts)]


def segment_size(wanted: int | None, device: bool) -> int:
    """Return the most uncompressed bytes of a message, `device` where any array is on a GPU."""
    return wanted or (DEVICE_SEGMENT_NBYTES if device else SEGMENT_NBYTES)


# Where each rank has a chunk of the array, and where the array travels whole. There it is cut once:
# with twice as many parts, what is on its way takes little memory.
_CHUNKED = {
    ("allreduce", "ring"),
    ("reduce_scatter", "ring"),
    ("reduce", "reduce_scatter_gather"),
    ("bcast", "scatter_allgather"),
}
_WHOLE = {("allreduce", "recursive_doubling"), ("reduce", "binomial"), ("bcast", "binomial")}


def chunk_count(collective: str, algorithm: str, size: int) -> int:
    """Return how many chunks an algorithm wants of an array, or of a share."""
    if (collective, algorithm) in _CHUNKED:
        return size
    return min(size, 2) if (collective, algorithm) in _WHOLE else 1


def chunk_parts(count: int, itemsize: int, size: int, segment_nbytes: int) -> list[list[slice]]:
    """Cut a row of values into a chunk for each rank, and each chunk into parts of one message.

    Chunks are runs of whole tiles, even to a tile. A part is at most `segment_nbytes` of
    uncompressed values, less for chunks that would make few parts otherwise. None is empty, so
    ranks beyond the number of tiles get a chunk without parts.
    """
    step = _part_count(count // size, itemsize, segment_nbytes)
    chunks = []
    start = 0
    for tiles in even_split(-(-count // TILE), size):
        stop = min(start + tiles * TILE, count)
        chunks.append(_cut(slice(start, stop), step))
        start = stop
    return chunks


def share_runs(counts: list[int], components: int) -> list[list[slice]]:
    """Return the runs of each rank's share of a row of values.

    Parameters
    ----------
    counts : list of int
        Elements of each share; together they are the array.
    components : int
        Values of an element: the row has the first ones of all elements, then the second ones.
    """
    total = sum(counts)
    starts = list(itertools.accumulate(counts, initial=0))
    return [
        [slice(k * total + start, k * total + start + n) for k in range(components) if n]
        for start, n in zip(starts, counts, strict=False)
    ]


def covering_parts(
    runs: list[list[slice]], count: int, itemsize: int, segment_nbytes: int
) -> list[list[slice]]:
    """Cut the whole tiles that cover each rank's runs of a row of `count` values into parts.

    A tile on the border of two ranks' runs is in parts of both.
    """
    step = _part_count(count // len(runs), itemsize, segment_nbytes)
    return [
        [
            part
            for run in mine
            for part in _cut(
                slice(run.start // TILE * TILE, min(-(-run.stop // TILE) * TILE, count)), step
            )
        ]
        for mine in runs
    ]


def row_parts(counts: list[int], itemsize: int, segment_nbytes: int) -> list[list[slice]]:
    """Cut rows of so many values, one behind the other, into parts; each row has its own tiles."""
    starts = list(itertools.accumulate(counts, initial=0))
    return [
        _cut(slice(start, start + n), _part_count(n, itemsize, segment_nbytes))
        for start, n in zip(starts, counts, strict=False)
    ]


def _part_count(count: int, itemsize: int, segment_nbytes: int) -> int:
    """Return the values of a part of a row of `count`: whole tiles."""
    nbytes = part_nbytes(count * itemsize, segment_nbytes)
    return max(nbytes // (TILE * itemsize), 1) * TILE


def _cut(run: slice, step: int) -> list[slice]:
    return [slice(at, min(at + step, run.stop)) for at in range(run.start, run.stop, step)]
