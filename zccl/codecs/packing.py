"""Bodies through the entropy coder and back, by the CPU kernels (docs/format.md section 8)."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from zccl.codecs.threads import MIN_TILES, run_all, tile_runs
from zccl.codecs.tiles import SLACK, Body, room_nwords, tile_count
from zccl.errors import StreamError
from zccl.kernels.cpu import frequencies as tables
from zccl.kernels.cpu.checksum import records_checksum
from zccl.kernels.cpu.rans import MAX_UNIT, count_symbols, decode_units, encode_units
from zccl.typing import Array

_HEAD = struct.Struct("<IIQ")  # log2 of a unit, words of the frequencies, words of all records
HEAD_NWORDS = _HEAD.size // 4
UNIT_NBYTES = 8192  # of records in a unit, or more


class Head(NamedTuple):
    """The head of an entropy-coded body.

    Attributes
    ----------
    unit : int
        Tiles of a unit.
    nwords : int
        Words of all records.
    text_nwords : int
        Words of the frequencies.
    base : int
        Where the first unit starts.
    """

    unit: int
    nwords: int
    text_nwords: int
    base: int

    @classmethod
    def read(cls, words: Array, size: int, n: int, dtype: np.dtype) -> Head:
        """Read the head of a body of `size` words, of which the first are given, for n values.

        Raises
        ------
        StreamError
            When it is impossible.
        """
        tiles = tile_count(n)
        if not tiles or words.size < HEAD_NWORDS:
            raise StreamError("damaged stream: an entropy-coded body ends too early")
        k, text_nwords, nwords = _HEAD.unpack(words[:HEAD_NWORDS].tobytes())
        fits = 0 < nwords <= room_nwords(n, dtype) and k == unit_log2(tiles, nwords)
        units = -(-tiles >> k) if fits else 0
        base = HEAD_NWORDS + text_nwords + 2 * (units + 1)
        if not fits or text_nwords > tables.MAX_NWORDS or base > size:
            raise StreamError("damaged stream: the head of an entropy-coded body is impossible")
        return cls(1 << k, nwords, text_nwords, base)


def head_words(k: int, text_nwords: int, nwords: int) -> Array:
    """Return the words of a head."""
    return np.frombuffer(_HEAD.pack(k, text_nwords, nwords), np.uint32)


def unit_log2(tiles: int, nwords: int) -> int:
    """Return log2 of the tiles of a unit, for so many records of so many words in all."""
    k = 0
    while (1 << k) < MAX_UNIT and (nwords * 4 << k) < UNIT_NBYTES * tiles:
        k += 1
    return k


def pack(body: Body, n: int, dtype: np.dtype, threads: int = 1) -> Array | None:
    """Return a body as the entropy coder writes it, in 32-bit words.

    Parameters
    ----------
    body : Body
        Of n values of this dtype, float32 or float64; records in any order.
    threads : int
        Cores to work on.

    Returns
    -------
    ndarray of uint32, or None
        None where it would not be shorter.

    Raises
    ------
    StreamError
        When the body is damaged.
    """
    tiles, nwords, value_words = tile_count(n), body.words.size, dtype.itemsize // 4
    if not tiles:
        return None
    k = unit_log2(tiles, nwords)
    units = -(-tiles >> k)
    words = np.empty(nwords + SLACK, np.uint32)
    words[:nwords] = body.words
    source = body.table, words, nwords
    place = 1 << k, n, value_words
    runs = tile_runs(units, threads, _least_units(1 << k))
    counts = _counts(source, runs, place)
    frequencies = np.empty_like(counts)
    tables.normalise(counts, frequencies)
    text = np.empty(tables.MAX_NWORDS, np.uint32)
    text = text[: tables.write_frequencies(frequencies, text)]
    pairs = np.empty(counts.shape, np.uint32)
    tables.fill_encoder(frequencies, pairs)
    base = HEAD_NWORDS + text.size + 2 * (units + 1)
    limit = 2 * tiles + nwords  # the body as it is
    if base >= limit:
        return None
    sizes = np.empty(units, np.int64)
    rooms = [np.empty(limit - base + 2 * MAX_UNIT, np.uint32) for _ in runs]

    def work(run: slice) -> int:
        room = rooms[runs.index(run)]
        return int(encode_units(*source, run.start, run.stop, *place, pairs, room, sizes))

    used = run_all(work, runs)
    if min(used) < 0 or base + sum(used) >= limit:
        return None
    packed = np.empty(base + sum(used), np.uint32)
    packed[:HEAD_NWORDS] = head_words(k, text.size, nwords)
    packed[HEAD_NWORDS : HEAD_NWORDS + text.size] = text
    offsets = np.zeros(units + 1, np.uint64)
    np.cumsum(sizes, out=offsets[1:].view(np.int64))
    packed[base - 2 * (units + 1) : base] = offsets.view(np.uint32)
    at = base
    for room, count in zip(rooms, used, strict=True):
        packed[at : at + count] = room[:count]
        at += count
    return packed


def _least_units(unit: int) -> int:
    """Return how many units are worth a thread."""
    return max(MIN_TILES // unit, 1)


def _counts(source: tuple, runs: list[slice], place: tuple) -> Array:
    counts = np.zeros((len(runs), tables.CONTEXTS, tables.SYMBOLS), np.int64)

    def work(run: slice) -> bool:
        mine = counts[runs.index(run)]
        return bool(count_symbols(*source, run.start, run.stop, *place, mine))

    if not all(run_all(work, runs)):
        raise StreamError("damaged stream: a length is wrong")
    return counts.sum(axis=0)


def read_frequencies(text: Array) -> Array:
    """Return the frequencies of all symbols, a row for each context.

    Raises
    ------
    StreamError
        When the text of them is damaged.
    """
    frequencies = np.empty((tables.CONTEXTS, tables.SYMBOLS), np.int64)
    if not tables.read_frequencies(text, frequencies):
        raise StreamError("damaged stream: a table of frequencies is impossible")
    return frequencies


def unpack(words: Array, n: int, dtype: np.dtype, threads: int = 1) -> Body:
    """Return the body of n values that `pack` made words of; its checksum is what was found.

    Raises
    ------
    StreamError
        When they are damaged.
    """
    head = Head.read(words, words.size, n, dtype)
    end = HEAD_NWORDS + head.text_nwords
    slots = np.zeros((tables.CONTEXTS, tables.M), np.uint32)
    tables.fill_decoder(read_frequencies(words[HEAD_NWORDS:end]), slots)
    offsets = words[end : head.base].copy().view(np.uint64)
    if offsets[0] or int(offsets[-1]) != words.size - head.base:
        raise StreamError("damaged stream: the units of an entropy-coded body do not fit")
    table = np.empty(tile_count(n), np.uint64)
    runs = tile_runs(offsets.size - 1, threads, _least_units(head.unit))
    try:
        rooms = [np.empty(head.nwords + SLACK, np.uint32) for _ in runs]
    except MemoryError as error:  # a few forged bytes can announce as much
        raise StreamError(f"damaged stream: it announces {head.nwords} words") from error

    def work(run: slice) -> int:
        room = rooms[runs.index(run)][: head.nwords]
        return int(decode_units(
            words, offsets, head.base, run.start, run.stop, head.unit, n,
            dtype.itemsize // 4, slots, table, room,
        ))  # fmt: skip

    used = run_all(work, runs)
    if min(used) < 0 or sum(used) != head.nwords:
        raise StreamError("damaged stream: a unit of an entropy-coded body is impossible")
    records = rooms[0]
    at = used[0]
    for run, room, count in zip(runs[1:], rooms[1:], used[1:], strict=True):
        records[at : at + count] = room[:count]
        table[run.start * head.unit : run.stop * head.unit] += np.uint64(at)
        at += count
    return Body(table, records[: head.nwords], records_checksum(table, records))
