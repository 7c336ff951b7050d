"""Bodies on a GPU through the entropy coder and back, by CUDA kernels on the current stream."""

from __future__ import annotations

import functools

import cupy
import numpy as np

from zccl.codecs.packing import HEAD_NWORDS, Head, head_words, read_frequencies, unit_log2
from zccl.codecs.tiles import SLACK, Body, tile_count
from zccl.device import DeviceArray
from zccl.errors import StreamError
from zccl.kernels.cpu import frequencies as tables
from zccl.kernels.cuda.entropy import PIECES, STARTS, SYMBOLS, UNIT_HEAD
from zccl.kernels.cuda.entropy_decode import COARSE, SUMS
from zccl.kernels.cuda.packing import Packing
from zccl.typing import Array

_FIRST_LOOK = 2048  # words of a body that are looked at together: head and, mostly, frequencies
# Where the symbols of a context are in its row of 256, among those of all contexts.
_PLACES = np.concatenate(
    [np.arange(stop - start) + 256 * c for c, (start, stop) in
     enumerate(zip(STARTS, [*STARTS[1:], SYMBOLS], strict=True))]
)  # fmt: skip


@functools.lru_cache(64)
def _kernels_of(device: int) -> Packing:
    return Packing()


def _kernels() -> Packing:
    return _kernels_of(cupy.cuda.runtime.getDevice())


def pack(body: Body, n: int, dtype: np.dtype) -> DeviceArray | None:
    """Return a body as the entropy coder writes it: what `packing.pack` does, for a sound body."""
    tiles, nwords = tile_count(n), int(body.words.size)
    if not tiles:
        return None
    kernels, stream = _kernels(), int(cupy.cuda.get_current_stream().ptr)
    k = unit_log2(tiles, nwords)
    units = -(-tiles >> k)
    source = body.table.data.ptr, body.words.data.ptr, tiles, 1 << k
    lists = cupy.empty(2 * tiles, np.int64)
    counts = cupy.zeros(SYMBOLS, np.int64)
    kernels.count(*source, lists.data.ptr, counts.data.ptr)(stream)
    text, pairs = _tables(counts.get())
    base = HEAD_NWORDS + text.size + 2 * (units + 1)
    limit = 2 * tiles + nwords
    if base >= limit:
        return None
    pairs = cupy.asarray(pairs)
    pieces = cupy.empty(tiles * PIECES, np.uint16)
    states = cupy.empty(units * UNIT_HEAD, np.uint32)
    offsets = cupy.zeros(units + 1, np.int64)
    value_words = dtype.itemsize // 4
    kernels.encode(
        *source, value_words, lists.data.ptr, pairs.data.ptr, pieces.data.ptr, states.data.ptr,
        offsets[1:].data.ptr,
    )(stream)  # fmt: skip
    offsets = cupy.cumsum(offsets)
    total = int(offsets[-1])
    if base + total >= limit:
        return None
    packed = cupy.zeros(base + total, np.uint32)
    packed[: base - 2 * (units + 1)] = cupy.asarray(
        np.concatenate([head_words(k, text.size, nwords), text])
    )
    packed[base - 2 * (units + 1) : base] = offsets.view(np.uint32)
    kernels.write(
        *source, value_words, lists.data.ptr, pieces.data.ptr, states.data.ptr, offsets.data.ptr,
        packed[base:].data.ptr,
    )(stream)  # fmt: skip
    return packed


def _tables(counts: Array) -> tuple[Array, Array]:
    """Return the text of the frequencies, and the packed ones of all symbols."""
    rows = np.zeros((tables.CONTEXTS, tables.SYMBOLS), np.int64)
    rows.reshape(-1)[_PLACES] = counts
    frequencies = np.empty_like(rows)
    tables.normalise(rows, frequencies)
    text = np.empty(tables.MAX_NWORDS, np.uint32)
    text = text[: tables.write_frequencies(frequencies, text)]
    pairs = np.empty(rows.shape, np.uint32)
    tables.fill_encoder(frequencies, pairs)
    return text, pairs.reshape(-1)[_PLACES]


def unpack(words: DeviceArray, n: int, dtype: np.dtype) -> Body:
    """Return the body of n values that `pack` made words of, its records in any order.

    Its checksum is 0: whoever has the right one compares it with that of the records.

    Raises
    ------
    StreamError
        When the words are damaged.
    """
    kernels, stream = _kernels(), int(cupy.cuda.get_current_stream().ptr)
    look = words[:_FIRST_LOOK].get()
    head = Head.read(look, words.size, n, dtype)
    end = HEAD_NWORDS + head.text_nwords
    text = look[HEAD_NWORDS:end] if end <= look.size else words[HEAD_NWORDS:end].get()
    sums = np.empty(SUMS, np.uint16)
    coarse = np.empty(COARSE, np.uint8)
    tables.fill_sums(read_frequencies(text), np.array(STARTS), sums, coarse)
    lookup = cupy.asarray(np.concatenate([sums.view(np.uint8), coarse]))
    tiles = tile_count(n)
    offsets = words[end : head.base].copy()
    kinds = cupy.empty(tiles, np.uint8)
    own = cupy.empty(tiles, np.int64)
    widths = cupy.empty(64 * tiles, np.uint8)
    table = cupy.empty(tiles, np.uint64)
    records = cupy.empty(head.nwords + SLACK, np.uint32)
    work = cupy.zeros(2, np.int64)
    kernels.decode(
        words[head.base :].data.ptr, offsets.data.ptr, words.size - head.base, n, head.unit,
        lookup.data.ptr, dtype.itemsize // 4, kinds.data.ptr, own.data.ptr, widths.data.ptr,
        table.data.ptr, records.data.ptr, head.nwords, work.data.ptr,
    )(stream)  # fmt: skip
    placed, status = work.get().tolist()
    if status or placed != head.nwords:
        raise StreamError("damaged stream: a unit of an entropy-coded body is impossible")
    return Body(table, records[: head.nwords], 0)
