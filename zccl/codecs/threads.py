"""Kernels on several cores: runs of tiles on a pool of threads, since kernels release the GIL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

MAX_THREADS = 64
MIN_TILES = 64  # of one thread: 256 KiB of float32, some 100 microseconds of work

_pool: ThreadPoolExecutor | None = None
_pool_threads = 0


def tile_runs(tiles: int, threads: int, least: int = MIN_TILES) -> list[slice]:
    """Cut so many tiles into runs, at most one a thread and none shorter than worth a thread."""
    count = max(1, min(threads, MAX_THREADS, tiles // least))
    bounds = [tiles * k // count for k in range(count + 1)]
    return [slice(start, stop) for start, stop in zip(bounds, bounds[1:], strict=False)]


def run_all(work: Callable[[slice], Result], runs: list[slice]) -> list[Result]:
    """Do the work of each run, the first one on the calling thread."""
    if len(runs) == 1:
        return [work(runs[0])]
    others = [_threads(len(runs) - 1).submit(work, run) for run in runs[1:]]
    return [work(runs[0]), *(other.result() for other in others)]


def _threads(count: int) -> ThreadPoolExecutor:
    global _pool, _pool_threads
    if _pool is None or _pool_threads < count:
        _pool = ThreadPoolExecutor(count, thread_name_prefix="zccl")
        _pool_threads = count
    return _pool
