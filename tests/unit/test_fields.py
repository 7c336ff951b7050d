"""Real fields: bound, density and no storms of escapes; the crops of tests/data, or whole fields
from $ZCCL_FIELDS.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from unit.bounds import assert_within

import zccl

CROPS = Path(__file__).parent.parent / "data"
FOLDER = Path(os.environ.get("ZCCL_FIELDS") or CROPS)
NAMES = sorted(path.stem for path in CROPS.glob("*.npy"))
BOUNDS = [1e-2, 1e-3, 1e-4]


def value_range(field):
    return float(field.max()) - float(field.min())


def bit_length(v):
    """Bits of non-negative integers below 2^53."""
    return np.frexp(v.astype("f8"))[1]


def cuszp_nbytes(values, error_bound):
    """Return the size that cuSZp v3 needs in the better of its two modes with differences.

    Blocks of 32 codes, differences inside the block; for each a width byte and, when the width is
    not 0, a map of signs (4 bytes) and 4 bytes a bit. The second mode keeps the first difference
    apart, in 1 to 4 bytes, where that makes the block smaller.
    """
    codes = np.floor(values.ravel().astype("f8") / (2 * error_bound) + 0.5).astype("i8")
    blocks = np.pad(codes, (0, -codes.size % 32), "edge").reshape(-1, 32)
    differences = np.abs(np.diff(blocks, axis=1, prepend=0))
    width = bit_length(differences.max(1))
    plain = np.where(width > 0, 4 + 4 * width, 0)
    rest = bit_length(differences[:, 1:].max(1))
    apart = 4 + 4 * rest + np.maximum(1, (bit_length(differences[:, 0]) + 7) // 8)
    outlier = np.where(width > 0, np.minimum(plain, apart), 0)
    return len(blocks) + min(plain.sum(), outlier.sum())


def check(field, error_bound):
    """Compress with an absolute bound; check the bound and that the size is at most cuSZp's."""
    stream = zccl.compress(field, error_bound)
    assert_within(zccl.decompress(stream), field, error_bound)
    assert stream.nbytes <= cuszp_nbytes(field, error_bound)
    info = zccl.inspect(stream)
    assert info.form == "coded"
    assert info.escapes <= field.size / 1024
    return info


@pytest.fixture(scope="module", params=NAMES)
def field(request):
    return np.load(FOLDER / f"{request.param}.npy")


def test_all_nine_fields_are_there():
    assert len(NAMES) == 9


@pytest.mark.parametrize("bound", BOUNDS)
def test_field(field, bound):
    """The bound is kept and the stream is at least as small as cuSZp's."""
    info = check(field, bound * value_range(field))
    assert info.tiles["raw"] == info.tiles["same"] == 0
    relative = zccl.inspect(zccl.compress(field, bound, "rel"))
    assert relative.nbytes == info.nbytes


@pytest.mark.parametrize("bound", BOUNDS)
def test_field_on_an_offset(field, bound):
    """The same with 100 times the range added, as temperatures in kelvin have it."""
    moved = field + field.dtype.type(100 * value_range(field))
    error_bound = bound * value_range(moved)
    assert error_bound > 4 * float(np.spacing(np.abs(moved).max())), "the premise"
    check(moved, error_bound)
