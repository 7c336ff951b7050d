"""Dtype and shape of the root's array as numbers, for the ranks that do not know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zccl.formats import DTYPE_CODES

MAX_DIMS = 64  # NumPy's own limit
FACTS = 3 + MAX_DIMS

_DTYPES = list(DTYPE_CODES)


class Layout(NamedTuple):
    """What all ranks must know of the root's array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    counted: bool = False  # whether the root gave counts

    def facts(self) -> list[float]:
        """Return it as `FACTS` numbers."""
        numbers = [_DTYPES.index(self.dtype), int(self.counted), len(self.shape), *self.shape]
        return [float(number) for number in numbers] + [0.0] * (FACTS - len(numbers))

    @classmethod
    def of(cls, facts: Sequence[float]) -> Layout:
        """Return what such numbers say."""
        code, counted, dims, *shape = map(int, facts)
        return cls(_DTYPES[code], tuple(shape[:dims]), bool(counted))
