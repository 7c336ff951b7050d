"""The options that few callers need, in one frozen record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zccl.config import overrides
from zccl.errorbound import BUDGETS

PROGRESS = ("thread", "call")
PREDICTORS = ("auto", "1d", "2d", "3d")
CODINGS = ("fixed", "entropy")
TRANSPORTS = ("auto", "mpi-staged", "mpi-device", "nccl")
_WORDS = {
    "error_budget": BUDGETS,
    "predictor": PREDICTORS,
    "coding": CODINGS,
    "transport": TRANSPORTS,
    "progress": PROGRESS,
}


@dataclass(frozen=True)
class Options:
    """Settings of a call beyond its arguments; all ranks must give the same.

    Each field can be set from outside by the environment variable `ZCCL_<FIELD>`, which wins; it is
    read once, by the first call.

    Attributes
    ----------
    error_budget : str
        How a sum over N ranks shares the error bound. "guaranteed": each rank gets `error_bound /
        N`, so the result keeps `error_bound`. "per_rank": each rank gets the whole bound, so the
        result keeps `N * error_bound`; the messages are smaller by log2(N) bits a value.
    fill_value : float or None
        A finite value that stands for "no data". It does not count in the value range of
        `mode="rel"`, and it travels exactly.
    reproducible : bool
        Keep `algorithm="auto"` on the coded algorithms, whose bits do not depend on the number of
        hops or their order, also where the plain collective would be faster.
    replace_root : bool
        Whether `bcast` fills the root's array, too, with what the other ranks receive.
    segment_nbytes : int or None
        Uncompressed bytes of one message, 4 KiB to 512 MiB at most; None: 4 MiB, and 32 MiB where
        arrays are on GPUs. Segments let one be coded while another travels.
    predictor : str
        Along which axes neighbours predict each other: "1d", the values as a row; "2d", "3d", in
        tiles of 32 x 32 or 8 x 8 x 16 values along the last two or three axes, where the array has
        them and its edges leave tiles half full at worst, else "1d"; "auto", what suits a sample of
        the values best. Arrays that are cut into shares of ranks are rows.
    coding : str
        "fixed": differences in as many bits as the widest of 16 needs; fast. "entropy": an entropy
        coder on top, where that is shorter; denser and slower.
    transport : str
        What carries arrays on GPUs. "mpi-staged": MPI, from pinned memory of the host.
        "mpi-device": MPI from the GPU's memory, which a CUDA-aware MPI can do. "nccl": NCCL.
        "auto": NCCL where it works, else staged; tried once per communicator. Arrays of the host
        always travel by MPI.
    progress : str
        Who takes the steps of an operation that was started, beside calls of collectives, waits and
        tests. "thread": a thread, while it lasts, so that it goes on whatever the program does;
        MPI must allow threads. "call": nobody.
    link_gbits : float or None
        What `algorithm="auto"` should take for the speed of links between nodes, in Gbit/s of each
        rank and direction. None: a guess, 10 for arrays of the host and 100 for those of GPUs.

    Examples
    --------
    >>> from zccl import Options
    >>> Options(error_budget="per_rank").error_budget
    'per_rank'
    """

    error_budget: str = "guaranteed"
    fill_value: float | None = None
    reproducible: bool = False
    replace_root: bool = False
    segment_nbytes: int | None = None
    predictor: str = "1d"
    coding: str = "fixed"
    transport: str = "auto"
    progress: str = "thread"
    link_gbits: float | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                raise ValueError(
                    f"Options.{name}: got {getattr(self, name)!r}, wanted one of"
                    f" {', '.join(map(repr, words))}"
                )
        fill = self.fill_value
        if fill is not None and not (isinstance(fill, int | float) and math.isfinite(fill)):
            raise ValueError(
                f"Options.fill_value: got {fill!r}, wanted a finite number or None (NaN and"
                " infinities always travel exactly)"
            )
        if fill is not None:  # ranks compare options by their text: 0, 0.0 and -0.0 are one number
            object.__setattr__(self, "fill_value", float(fill) + 0.0)
        for name in ("reproducible", "replace_root"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"Options.{name}: got {getattr(self, name)!r}, wanted True or False"
                )
        link = self.link_gbits
        if link is not None and not (isinstance(link, int | float) and 0 < link < math.inf):
            raise ValueError(f"Options.link_gbits: got {link!r}, wanted a number above 0 or None")
        if link is not None:
            object.__setattr__(self, "link_gbits", float(link))
        segment = self.segment_nbytes
        if segment is not None and not (isinstance(segment, int) and 4096 <= segment <= 1 << 29):
            raise ValueError(
                f"Options.segment_nbytes: got {segment!r}, wanted None or an integer from 4096"
                f" to {1 << 29}"
            )


def _switch(text: str) -> bool:
    return {"1": True, "true": True, "0": False, "false": False}[text.lower()]


_PARSERS: dict[str, Callable[[str], Any]] = {
    "error_budget": str,
    "fill_value": float,
    "reproducible": _switch,
    "replace_root": _switch,
    "segment_nbytes": int,
    "predictor": str,
    "coding": str,
    "transport": str,
    "progress": str,
    "link_gbits": float,
}


def effective_options(options: Options | None) -> Options:
    """Return the options of a call with the `ZCCL_<FIELD>` variables laid over them.

    Raises
    ------
    TypeError
        When `options` is neither None nor an `Options`.
    ValueError
        When a variable cannot be read.
    """
    if options is None:
        options = Options()
    elif not isinstance(options, Options):
        raise TypeError(f"options: got {type(options).__name__}, wanted zccl.Options or None")
    changes = {}
    for field, parse in _PARSERS.items():
        text = overrides().get(field)
        if text is not None:
            try:
                changes[field] = parse(text)
            except (ValueError, KeyError):
                raise ValueError(f"ZCCL_{field.upper()}: cannot read {text!r}") from None
    return dataclasses.replace(options, **changes) if changes else options
