"""How to wait: at first eagerly, then so that others get the core."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

SPINS = 50  # some 20 microseconds: a small message between idle cores
EAGER_SECONDS = 1e-3
NAP_SECONDS = 1e-4  # short beside the work on a segment, and what a socket's buffer bridges


def wait_until(done: Callable[[], bool]) -> None:
    """Wait until something is done; `done` makes progress.

    MPI's own waits never let go of their core, which starves the ranks that compute where there are
    more of them than cores.
    """
    for _ in range(SPINS):
        if done():
            return
    eager = time.perf_counter() + EAGER_SECONDS
    while not done():
        if time.perf_counter() < eager:
            os.sched_yield()
        else:
            time.sleep(NAP_SECONDS)


class Until:
    """Something that will have happened some time.

    Parameters
    ----------
    done : function
        Whether it has.
    """

    __slots__ = ("done",)

    def __init__(self, done: Callable[[], bool]):
        self.done = done

    def wait(self) -> None:
        """Block until then."""
        wait_until(self.done)


class Waiting(Until):
    """A collective operation of MPI that was started.

    Parameters
    ----------
    request : MPI.Request
        The operation.
    """

    __slots__ = ()

    def __init__(self, request: Any):
        super().__init__(request.Test)
