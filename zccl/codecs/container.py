"""Whole streams: header and body in one array of bytes (docs/format.md section 6)."""

from __future__ import annotations

import numpy as np

from zccl.codecs import packing
from zccl.codecs.tiles import Body, tile_count
from zccl.errors import StreamError
from zccl.formats import (
    CODED,
    CONSTANT,
    ENTROPY,
    EXACT,
    MAX_HEADER_NBYTES,
    RAW,
    SAME,
    Header,
    value_dtype,
)
from zccl.kernels.cpu.checksum import words_checksum
from zccl.typing import Array, Bytes


def _padded_nbytes(nbytes: int) -> int:
    return -(-nbytes // 4) * 4


def max_stream_nbytes(nbytes: int) -> int:
    """Return the most bytes that the stream of an array of `nbytes` bytes can have."""
    return MAX_HEADER_NBYTES + _padded_nbytes(nbytes)


def _assemble(header: Header, *parts: Array) -> Bytes:
    header.nbytes = header.header_nbytes + sum(_padded_nbytes(part.nbytes) for part in parts)
    stream = np.zeros(header.nbytes, np.uint8)
    at = header.header_nbytes
    stream[:at] = np.frombuffer(header.pack(), np.uint8)
    for part in parts:
        stream[at : at + part.nbytes] = part.reshape(-1).view(np.uint8)
        at += _padded_nbytes(part.nbytes)
    return stream


def write_coded(header: Header, body: Body, packed: Array | None = None) -> Bytes:
    """Join a header and a coded body, or what the entropy coder has made of it."""
    header.form, header.checksum = CODED, body.checksum
    if packed is None:
        return _assemble(header, body.table, body.words)
    header.coding = ENTROPY
    return _assemble(header, packed)


def write_plain(header: Header, elements: Array) -> Bytes:
    """Join a header and plain elements: the whole array (EXACT) or its only value (CONSTANT)."""
    padded = np.zeros(_padded_nbytes(elements.nbytes), np.uint8)
    padded[: elements.nbytes] = np.ascontiguousarray(elements).reshape(-1).view(np.uint8)
    header.checksum = _plain_checksum(padded, header.form)
    return _assemble(header, padded)


def _plain_checksum(body: Bytes, form: int) -> int:
    return int(words_checksum(body.view(np.uint32), RAW | SAME if form == CONSTANT else RAW))


def read(stream: Bytes) -> tuple[Header, Bytes]:
    """Split a stream into its header, checked, and the bytes of its body.

    Raises
    ------
    StreamError
        When the header is impossible or the length is wrong.
    """
    header = Header.unpack(stream.data)
    return header, stream[header.header_nbytes :]


def coded_body(header: Header, body: Bytes, values: int, threads: int = 1) -> Body:
    """Split the body of a coded stream of so many values into table and records.

    Raises
    ------
    StreamError
        When a length is wrong.
    """
    tiles = tile_count(values)
    if header.coding == ENTROPY:
        dtype = value_dtype(header.dtype)
        if len(body) % 4 or not header.step or dtype is None:
            raise StreamError("damaged stream: the body does not fit")
        found = packing.unpack(body.view(np.uint32), values, dtype, threads)
        return Body(found.table, found.words, header.checksum)
    if len(body) < 8 * tiles or (len(body) - 8 * tiles) % 4 or not header.step:
        raise StreamError("damaged stream: the table does not fit")
    table = body[: 8 * tiles].view(np.uint64)
    return Body(table, body[8 * tiles :].view(np.uint32), header.checksum)


def plain_elements(header: Header, body: Bytes) -> Array:
    """Return the elements of a stream of form EXACT or CONSTANT (then one)."""
    count = header.count if header.form == EXACT else 1
    nbytes = count * header.dtype.itemsize
    if len(body) != _padded_nbytes(nbytes) or (header.form == CONSTANT and header.count < 1):
        raise StreamError("damaged stream: the body has the wrong length")
    if _plain_checksum(body, header.form) != header.checksum:
        raise StreamError("damaged stream: the checksum is wrong")
    return body[:nbytes].view(header.dtype)
