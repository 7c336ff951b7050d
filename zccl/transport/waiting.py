"""How to wait: at first eagerly, then so that others get the core."""

from __future__ import annotations

import time
from collections.abc import Callable

EAGER_SECONDS = 1e-3
NAP_SECONDS = 1e-4  # short beside the work on a segment, and what a socket's buffer bridges


def wait_until(done: Callable[[], bool]) -> None:
    """Wait until something is done; `done` makes progress.

    MPI's own waits never let go of their core, which starves the ranks that compute where there are
    more of them than cores.
    """
    if done():
        return
    eager = time.perf_counter() + EAGER_SECONDS
    while not done():
        if time.perf_counter() > eager:
            time.sleep(NAP_SECONDS)
