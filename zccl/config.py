"""Every environment variable that zccl looks at, read in one place.

`ZCCL_<FIELD>` overrides the field of `zccl.Options` of that name and `ZCCL_ALGORITHM` the argument
`algorithm`; both are read once, by the first call. `ZCCL_CACHE_DIR` says where compiled kernels are
kept and `ZCCL_LOG` sets the level of the logger `zccl`.
"""

from __future__ import annotations

import functools
import logging
import os
import tempfile
from pathlib import Path


def environment(field: str) -> str | None:
    """Return the value of `ZCCL_<FIELD>`, or None when it is unset or empty."""
    return os.environ.get(f"ZCCL_{field.upper()}") or None


# The fields whose variables change what a call does.
_OVERRIDES = (
    "algorithm", "error_budget", "fill_value", "reproducible", "replace_root", "segment_nbytes",
    "predictor", "coding", "transport", "progress", "link_gbits",
)  # fmt: skip


@functools.cache
def overrides() -> dict[str, str]:
    """Return the variables that change what a call does, by field.

    They are read once, by the first call that needs them: five looks into the environment take
    longer than a small message.
    """
    found = {field: environment(field) for field in _OVERRIDES}
    return {field: text for field, text in found.items() if text is not None}


@functools.lru_cache(64)
def cpu_threads(processes: int = 1) -> int:
    """Return how many threads one of so many processes of this machine should use.

    `OMP_NUM_THREADS` where it is set, as batch systems do; else the cores that this process may run
    on, shared evenly: launchers that do not pin leave all cores to each process.
    """
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    cores = len(os.sched_getaffinity(0))
    return int(text) if text.isdigit() and int(text) else max(1, cores // processes)


def launched_ranks() -> tuple[str, int]:
    """Return the launcher's variable with the number of ranks that it started, and that number.

    ("", 1) where no launcher says.
    """
    for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        text = os.environ.get(name, "")
        if text.isdigit():
            return name, int(text)
    return "", 1


def cache_dir() -> Path:
    """Return a private, writable folder for compiled kernels.

    `ZCCL_CACHE_DIR`, else `$XDG_CACHE_HOME/zccl`, else `~/.cache/zccl`; where that cannot be
    written (read-only homes), a folder of this user in the system's temporary directory. Cached
    machine code is run, so a folder that somebody else owns is refused.
    """
    chosen = environment("cache_dir")
    if chosen:
        return _private(Path(chosen))
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    try:
        return _private(Path(home) / "zccl")
    except OSError:
        return _private(Path(tempfile.gettempdir()) / f"zccl-{os.getuid()}")


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"cache folder {folder} belongs to another user; set ZCCL_CACHE_DIR")
    tempfile.TemporaryFile(dir=folder).close()  # raises OSError where it cannot be written
    return folder


def configure_logging() -> None:
    """Attach a handler to the logger `zccl` when `ZCCL_LOG` names a level; silent otherwise."""
    logger = logging.getLogger("zccl")
    logger.addHandler(logging.NullHandler())
    level = environment("log")
    if level:
        number = logging.getLevelName(level.upper())
        if not isinstance(number, int):
            raise ValueError(
                f"ZCCL_LOG={level!r} is not a level: use debug, info, warning or error"
            )
        logger.setLevel(number)
        logger.addHandler(logging.StreamHandler())
