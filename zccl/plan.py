"""Which algorithm runs, and in which pieces: pure functions of what all ranks have agreed on."""

from __future__ import annotations

import functools
from typing import NamedTuple

from zccl.formats import TILE

ALGORITHMS = ("auto", "ring", "recursive_doubling", "native")

# Below this many bytes latency decides, and no published system gains from compression (NCCLZ,
# arXiv 2605.12396).
SMALL_NBYTES = 64 << 10
# gZCCL's rule (arXiv 2308.05199): below this many bytes a rank, many small ring steps lose to log2
# N large ones.
RING_NBYTES = 1 << 20

# Parts of a chunk that are worth having, for coding one while another travels, and the bytes below
# which a part costs more messages than it gains.
PARTS = 8
SHORT_PART_NBYTES = 256 << 10


class Plan(NamedTuple):
    """What a call will do.

    Attributes
    ----------
    algorithm : str
        "ring", "recursive_doubling" or "native".
    reason : str
        Why, in words.
    """

    algorithm: str
    reason: str


def check_algorithm(algorithm: str) -> str:
    """Return the algorithm, or raise ValueError when it has no such name."""
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"algorithm: got {algorithm!r}, wanted one of {', '.join(map(repr, ALGORITHMS))}"
        )
    return algorithm


@functools.lru_cache(1024)
def plan_allreduce(
    algorithm: str,
    nbytes: int,
    size: int,
    *,
    coded: bool,
    exact: bool,
    one_node: bool,
    reproducible: bool,
) -> Plan:
    """Choose the algorithm of an allreduce.

    Parameters
    ----------
    algorithm : str
        What was asked for; "auto" leaves the choice open.
    nbytes : int
        Uncompressed bytes of one rank's array.
    size : int
        Number of ranks.
    coded : bool
        Whether there is a positive bound and a dtype that can be coded.
    exact : bool
        Whether a bound of 0 asks for zccl's own transport.
    one_node : bool
        Whether all ranks share memory.
    reproducible : bool
        Whether the bits must be those of the coded algorithms.
    """
    if algorithm != "auto":
        return Plan(algorithm, "asked for")
    if not coded and not exact:
        return Plan("native", "no error bound: exact pass-through")
    if coded and not reproducible:
        if size == 1:
            return Plan("native", "a single rank sends nothing")
        if one_node:
            return Plan("native", "all ranks share one node's memory, which is faster than coding")
        if nbytes <= SMALL_NBYTES:
            return Plan("native", f"{nbytes} bytes are too few to gain by compression")
    if nbytes <= RING_NBYTES * size:
        return Plan("recursive_doubling", f"at most {RING_NBYTES} bytes for each of {size} ranks")
    return Plan("ring", f"more than {RING_NBYTES} bytes for each of {size} ranks")


def even_split(total: int, parts: int) -> list[int]:
    """Split `total` things evenly.

    The first parts are one longer where it does not come out even.
    """
    share, rest = divmod(total, parts)
    return [share + (k < rest) for k in range(parts)]


def chunk_parts(count: int, itemsize: int, size: int, segment_nbytes: int) -> list[list[slice]]:
    """Cut a row of values into a chunk for each rank, and each chunk into parts of one message.

    Chunks are runs of whole tiles, even to a tile. A part is at most `segment_nbytes` of
    uncompressed values, less for chunks that would make few parts otherwise. None is empty, so
    ranks beyond the number of tiles get a chunk without parts.
    """
    few = max(count * itemsize // size // PARTS, SHORT_PART_NBYTES)
    step = max(min(segment_nbytes, few) // (TILE * itemsize), 1) * TILE
    chunks = []
    start = 0
    for tiles in even_split(-(-count // TILE), size):
        stop = min(start + tiles * TILE, count)
        chunks.append([slice(at, min(at + step, stop)) for at in range(start, stop, step)])
        start = stop
    return chunks
