"""Constants of the stream format and the header of a stream; docs/format.md defines both."""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from zccl.errors import StreamError

VERSION = 0
MAGIC = b"ZCCL"

TILE = 1024  # values
BLOCK = 16  # values
BLOCKS = TILE // BLOCK
WIDTH_WORDS = BLOCKS * 5 // 32

# Tiles along the last two or three axes of an array: values along each of three.
TILE_SHAPES = {2: (1, 32, 32), 3: (8, 8, 16)}

# A short tile's coded record may have this many words more than its raw one, or this many in all.
SHORT_SLACK, SHORT_NWORDS = 32, 256

# Kinds of a tile.
RAW, ZERO, ESCAPES, SMALL, LONG, SAME = 1, 2, 4, 8, 16, 32

# Fields of a table entry.
OFFSET_BITS, NWORDS_BITS = 40, 12

# Forms of a stream.
EXACT, CONSTANT, CODED = 0, 1, 2
FIXED, ENTROPY = 0, 1  # codings of the records
FORM_NAMES = {EXACT: "exact", CONSTANT: "constant", CODED: "coded"}

MAX_CODE_BITS = {"f4": 24, "f8": 40}  # |q| <= 2^24, |q| < 2^40
MAX_SUM = 2**53  # |sum of codes| stays below it

_DTYPES = (
    "float16 float32 float64 complex64 complex128 bool "
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
).split()
DTYPE_CODES = {np.dtype(name): code for code, name in enumerate(_DTYPES, start=1)}
DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}

_FIXED = struct.Struct("<4sHBBBBBBIQddQQII")
_CRC_AT = 56
HEADER_NBYTES = _FIXED.size
MAX_NDIM = 64
MAX_HEADER_NBYTES = HEADER_NBYTES + 8 * MAX_NDIM


def max_distance(axes: int) -> int:
    """Return how far codes of all ranks together may be from their tile's base.

    Differences along more axes have more terms, and none may need more than 31 bits.
    """
    return int(2 ** (30 - axes) - 1)


MAX_DISTANCE = max_distance(1)

_VALUE_DTYPES = {
    np.dtype(name): np.dtype(values)
    for name, values in (("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("c8", "f4"), ("c16", "f8"))
}


def value_dtype(dtype: np.dtype) -> np.dtype | None:
    """Return the dtype that the values of an array of native byte order are coded in.

    None for integers, which never are.
    """
    return _VALUE_DTYPES.get(dtype)


@dataclass
class Header:
    """The header of a stream (docs/format.md section 6)."""

    form: int
    dtype: np.dtype
    shape: tuple[int, ...]
    error_bound: float = 0.0
    step: float = 0.0
    contributors: int = 1
    nbytes: int = 0
    checksum: int = 0
    axes: int = 1  # that tiles are cut along
    coding: int = FIXED

    @property
    def count(self) -> int:
        """Elements of the array."""
        return math.prod(self.shape)

    @property
    def header_nbytes(self) -> int:
        """Bytes of the header with the shape."""
        return HEADER_NBYTES + 8 * len(self.shape)

    def pack(self) -> bytes:
        """Return the header as bytes, its CRC included."""
        shape = struct.pack(f"<{len(self.shape)}Q", *self.shape)
        fixed = bytearray(
            _FIXED.pack(
                MAGIC, VERSION, self.form, DTYPE_CODES[self.dtype], len(self.shape),
                self.axes - 1, self.coding, 0,
                self.contributors, self.count, self.error_bound, self.step, self.nbytes,
                self.checksum, 0, 0,
            )
        )  # fmt: skip
        struct.pack_into("<I", fixed, _CRC_AT, zlib.crc32(bytes(fixed) + shape))
        return bytes(fixed) + shape

    @classmethod
    def unpack(cls, data: memoryview, total: int | None = None) -> Header:
        """Read and check the header at the start of `data`.

        Parameters
        ----------
        data : memoryview
            The whole stream, or its first `MAX_HEADER_NBYTES` bytes.
        total : int, optional
            Bytes of the whole stream, where `data` is not all of it.

        Raises
        ------
        StreamError
            When any field is impossible or the CRC is wrong.
        """
        total = len(data) if total is None else total
        if total < HEADER_NBYTES:
            raise StreamError(f"a zccl stream has at least {HEADER_NBYTES} bytes, got {total}")
        (magic, version, form, dtype_code, ndim, predictor, coding, spare, contributors, count,
         error_bound, step, nbytes, checksum, crc, spare2,
         ) = _FIXED.unpack(data[:HEADER_NBYTES])  # fmt: skip
        if magic != MAGIC:
            raise StreamError("not a zccl stream: it does not start with 'ZCCL'")
        if version != VERSION:
            raise StreamError(f"stream of format version {version}, this zccl reads {VERSION}")
        end = HEADER_NBYTES + 8 * ndim
        if ndim > MAX_NDIM or len(data) < end:
            raise StreamError(f"damaged stream: {ndim} axes in {total} bytes")
        fixed = bytearray(data[:end])
        struct.pack_into("<I", fixed, _CRC_AT, 0)
        if zlib.crc32(fixed) != crc:
            raise StreamError("damaged stream: the header's checksum is wrong")
        shape = struct.unpack(f"<{ndim}Q", data[HEADER_NBYTES:end])
        impossible = (
            form not in FORM_NAMES
            or dtype_code not in DTYPES
            or predictor > 2 or coding > ENTROPY or spare or spare2
            or ((predictor or coding) and form != CODED)
            or (predictor and predictor >= ndim)
            or not contributors
            or count != math.prod(shape)
            # NumPy wants this of every array, also of empty ones.
            or math.prod(filter(None, shape)) * DTYPES[dtype_code].itemsize >= 2**63
            or not 0 <= error_bound < math.inf
            or not 0 <= step < math.inf
        )  # fmt: skip
        if impossible:
            raise StreamError("damaged stream: a field of the header is impossible")
        if nbytes != total:
            raise StreamError(f"stream of {nbytes} bytes, got {total}: truncated or too long")
        return cls(
            form, DTYPES[dtype_code], shape, error_bound, step, contributors, nbytes, checksum,
            predictor + 1, coding,
        )  # fmt: skip
