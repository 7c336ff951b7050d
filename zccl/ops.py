"""The reductions that zccl can do on compressed data."""

from __future__ import annotations

import enum


class Op(enum.Enum):
    """A reduction: `zccl.SUM`, `zccl.AVG` (the sum over N), `zccl.MAX` or `zccl.MIN`."""

    SUM = "sum"
    AVG = "avg"
    MAX = "max"
    MIN = "min"


SUM, AVG, MAX, MIN = Op.SUM, Op.AVG, Op.MAX, Op.MIN
