"""The slow, obvious definition of docs/format.md section 8: entropy-coded bodies.

As in spec.py nothing here is fast. Strings of bits are Python numbers, lowest bit first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

import numpy as np

from zccl.formats import BLOCK, BLOCKS, ESCAPES, LONG, RAW, TILE, WIDTH_WORDS, ZERO
from zccl.kernels.spec import Body, _require, _signed, checksum
from zccl.typing import Array

LANES = 32
M = 4096
LOW = 2**16
CONTEXTS = 66
KIND, CLASS, WIDTH, FIELD = 0, 1, 2, 34
FIRST = 32  # stands for the width before the first one of a lane


class Record(NamedTuple):
    """A record of a tile, taken apart."""

    kind: int
    base: int
    widths: list[int]  # empty where there are none
    fields: list[list[int]]  # of each block
    copied: list[int]  # words of a raw record, or of a list of escapes


def encode(body: Body, n: int, dtype: np.dtype | type) -> Array | None:
    """Return the words of an entropy-coded body; None where that is not shorter."""
    value_words = np.dtype(dtype).itemsize // 4
    entries = [(e % 2**40, (e >> 40) % 2**12, e >> 52) for e in body.table.tolist()]
    records = [
        _take_apart(kind, body.words[at : at + nwords].tolist(), value_words)
        for at, nwords, kind in entries
    ]
    k = _unit_log2(len(records), len(body.words))
    units = [records[at : at + 2**k] for at in range(0, len(records), 2**k)]
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for unit in units:
        for step in _steps(unit):
            for _, context, symbol in step:
                counts[context][symbol] += 1
    tables = {context: _normalised(counts[context]) for context in sorted(counts)}
    text = _words(*_write_tables(tables))
    coded = [_encode_unit(unit, tables) for unit in units]
    offsets = [sum(map(len, coded[:u])) for u in range(len(coded) + 1)]
    words = [k, len(text), *_split(len(body.words), 2), *text]
    for offset in offsets:
        words += _split(offset, 2)
    words += [word for unit in coded for word in unit]
    if len(words) >= 2 * len(records) + len(body.words):
        return None
    return np.array(words, np.uint32)


def decode(words: Array, n: int, dtype: np.dtype | type) -> Body:
    """Return the body, for sound words only: the kernels check what may be wrong."""
    value_words = np.dtype(dtype).itemsize // 4
    left = words.tolist()
    k, text_nwords = left[:2]
    tables = _read_tables(_joined(left[4 : 4 + text_nwords]))
    tiles = ceil(n / TILE)
    base = 4 + text_nwords + 2 * (ceil(tiles / 2**k) + 1)
    bounds = np.array(left[4 + text_nwords : base], np.uint32).view(np.uint64).tolist()
    records: list[tuple[int, list[int]]] = []
    for u, (start, stop) in enumerate(zip(bounds, bounds[1:], strict=False)):
        first = u * 2**k
        sizes = [min(TILE, n - TILE * t) for t in range(first, min(first + 2**k, tiles))]
        records += _decode_unit(left[base + start : base + stop], sizes, value_words, tables)
    table: list[int] = []
    stream: list[int] = []
    for kind, record in records:
        table.append(len(stream) | len(record) << 40 | kind << 52)
        stream += record
    return Body(np.array(table, np.uint64), np.array(stream, np.uint32), checksum(records))


# ---------------------------------------------------------------- model


def _unit_log2(tiles: int, nwords: int) -> int:
    return next((k for k in range(8) if 2**k * nwords * 4 >= 8192 * tiles), 8)


def _take_apart(kind: int, words: list[int], value_words: int) -> Record:
    if kind & RAW:
        return Record(kind, 0, [], [], words)
    head = 2 if kind & LONG else 1
    base = _signed(_joined(words[:head]), 32 * head)
    left = words[head:]
    widths: list[int] = []
    fields = []
    if not kind & ZERO:
        number = _joined(left[:WIDTH_WORDS])
        widths = [(number >> (5 * k)) % 32 for k in range(BLOCKS)]
        blocks = _joined(left[WIDTH_WORDS:])
        for width in widths:
            fields.append([(blocks >> (j * width)) % 2**width for j in range(BLOCK)])
            blocks >>= BLOCK * width
        left = left[WIDTH_WORDS + ceil(sum(widths) / 2) :]
    return Record(kind, base, widths, fields, left)


def _zigzags(unit: list[Record]) -> list[int]:
    """Return the differences of the bases of coded tiles, without signs."""
    bases = [0, *(r.base for r in unit if not r.kind & RAW)]
    changes = [b - a for a, b in zip(bases, bases[1:], strict=False)]
    return [2 * c if c >= 0 else -2 * c - 1 for c in changes]


def _steps(unit: list[Record]) -> Iterator[list[tuple[int, int, int]]]:
    """Yield the steps of a unit: (lane, context, symbol) of all that go at once."""
    for symbols, context in (
        ([r.kind for r in unit], KIND),
        ([z.bit_length() for z in _zigzags(unit)], CLASS),
    ):
        for at in range(0, len(symbols), LANES):
            part = symbols[at : at + LANES]
            yield [(lane, context, symbol) for lane, symbol in enumerate(part)]
    widths = [width for r in unit for width in r.widths]
    run = len(widths) // LANES
    for i in range(run):
        yield [
            (lane, WIDTH + (widths[lane * run + i - 1] if i else FIRST), widths[lane * run + i])
            for lane in range(LANES)
        ]
    for r in unit:
        blocks = [(w, f) for w, f in zip(r.widths, r.fields, strict=True) if w]
        for at in range(0, len(blocks), 2):
            yield [
                (BLOCK * half + j, FIELD + width, field >> max(width - 8, 0))
                for half, (width, fields) in enumerate(blocks[at : at + 2])
                for j, field in enumerate(fields)
            ]


def _low_bits(unit: list[Record]) -> list[tuple[int, int]]:
    """Return the raw bits of all differences: (number, how many bits)."""
    return [
        (field % 2 ** (width - 8), width - 8)
        for r in unit
        for width, fields in zip(r.widths, r.fields, strict=True)
        if width > 8
        for field in fields
    ]


# ---------------------------------------------------------------- frequencies


def _normalised(counts: dict[int, int]) -> dict[int, int]:
    total = sum(counts.values())
    f = {s: max(1, (counts[s] * M + total // 2) // total) for s in sorted(counts)}
    while sum(f.values()) != M:
        largest = max(f, key=lambda s: (f[s], -s))
        f[largest] += 1 if sum(f.values()) < M else -1
    return f


def _write_tables(tables: dict[int, dict[int, int]]) -> tuple[int, int]:
    """Return the string of bits and its length."""
    number = sum(1 << context for context in tables)
    at = CONTEXTS
    for f in tables.values():
        top = max(f)
        number |= top << at
        at += 8
        for s in range(top + 1):
            value = f.get(s, 0) + 1
            g = value.bit_length() - 1
            number |= (1 << g | (value - (1 << g)) << (g + 1)) << at
            at += 2 * g + 1
    return number, at


def _read_tables(number: int) -> dict[int, dict[int, int]]:
    contexts = [context for context in range(CONTEXTS) if number >> context & 1]
    number >>= CONTEXTS
    tables = {}
    for context in contexts:
        top = number % 256
        number >>= 8
        f = {}
        for s in range(top + 1):
            g = (number & -number).bit_length() - 1
            value = 2**g + (number >> (g + 1)) % 2**g
            number >>= 2 * g + 1
            if value > 1:
                f[s] = value - 1
        tables[context] = f
    return tables


# ---------------------------------------------------------------- units


def _encode_unit(unit: list[Record], tables: dict[int, dict[int, int]]) -> list[int]:
    states = [LOW] * LANES
    pieces: list[int] = []
    for step in reversed(list(_steps(unit))):
        for lane, context, symbol in step:
            f = tables[context][symbol]
            before = sum(v for s, v in tables[context].items() if s < symbol)
            x = states[lane]
            if x >= f * 2**20:
                pieces.append(x % 2**16)
                x >>= 16
            states[lane] = x // f * M + x % f + before
    bases = [(z % 2 ** (z.bit_length() - 1), z.bit_length() - 1) for z in _zigzags(unit) if z > 1]
    return [
        len(pieces),
        *states,
        *_string([(piece, 16) for piece in pieces]),
        *_string(bases),
        *_string(_low_bits(unit)),
        *(word for r in unit for word in r.copied),
    ]


class _Decoder:
    """The states and pieces of a unit."""

    def __init__(self, words: list[int], tables: dict[int, dict[int, int]]):
        count = words[0]
        self._states = words[1 : 1 + LANES]
        self.end = 1 + LANES + ceil(count / 2)
        number = _joined(words[1 + LANES : self.end])
        self._pieces = [(number >> (16 * i)) % 2**16 for i in range(count)]
        self._tables = tables

    def step(self, wanted: list[tuple[int, int]]) -> list[int]:
        """Decode a symbol of each (lane, context)."""
        found = []
        hungry = []
        for lane, context in wanted:
            x = self._states[lane]
            before = 0
            for symbol, f in self._tables[context].items():  # noqa: B007
                if before <= x % M < before + f:
                    break
                before += f
            x = f * (x // M) + x % M - before
            if x < LOW:
                hungry.append(lane)
            self._states[lane] = x
            found.append(symbol)
        for lane in reversed(hungry):
            self._states[lane] = self._states[lane] << 16 | self._pieces.pop()
        return found

    def finish(self) -> None:
        """Check that all is used up."""
        _require(not self._pieces and self._states == [LOW] * LANES, "what is left of a unit")


def _decode_unit(
    words: list[int], sizes: list[int], value_words: int, tables: dict[int, dict[int, int]]
) -> list[tuple[int, list[int]]]:
    d = _Decoder(words, tables)
    kinds: list[int] = []
    for at in range(0, len(sizes), LANES):
        kinds += d.step([(lane, KIND) for lane in range(min(LANES, len(sizes) - at))])
    coded = sum(not kind & RAW for kind in kinds)
    classes: list[int] = []
    for at in range(0, coded, LANES):
        classes += d.step([(lane, CLASS) for lane in range(min(LANES, coded - at))])
    rows = sum(not kind & (RAW | ZERO) for kind in kinds)
    run = 2 * rows
    widths = [[FIRST] for _ in range(LANES)]
    for _ in range(run):
        step = d.step([(lane, WIDTH + widths[lane][-1]) for lane in range(LANES)])
        for lane, width in enumerate(step):
            widths[lane].append(width)
    flat = [width for lane in widths for width in lane[1:]]
    tiles = [flat[BLOCKS * r : BLOCKS * (r + 1)] for r in range(rows)]
    fields = [_decode_blocks(d, row) for row in tiles]
    d.finish()

    left = words[d.end :]
    bases = _read_string(left, [max(c - 1, 0) for c in classes])
    left = left[ceil(sum(max(c - 1, 0) for c in classes) / 32) :]
    lows = [w - 8 for row in tiles for w in row if w > 8 for _ in range(BLOCK)]
    low_bits = iter(_read_string(left, lows))
    left = left[ceil(sum(lows) / 32) :]
    base = 0
    found = []
    numbers = iter(zip(classes, bases, strict=True))
    numbered_rows = iter(zip(tiles, fields, strict=True))
    for kind, m in zip(kinds, sizes, strict=True):
        record: list[int] = []
        copied = 0
        if kind & RAW:
            copied = value_words if kind not in (RAW,) else m * value_words
        else:
            bits, low = next(numbers)
            z = (1 << (bits - 1) | low) if bits else 0
            base += z >> 1 if z % 2 == 0 else -(z >> 1) - 1
            record = _split(base, 2 if kind & LONG else 1)
            if not kind & ZERO:
                row, blocks = next(numbered_rows)
                whole = [
                    (f << (w - 8) | next(low_bits) if w > 8 else f, w)
                    for w, block in zip(row, blocks, strict=True)
                    for f in block
                ]
                record += _string([(w, 5) for w in row]) + _string(whole)
            if kind & ESCAPES:
                copied = 1 + left[0] * (2 + 2 * value_words)
        found.append((kind, record + left[:copied]))
        left = left[copied:]
    return found


def _decode_blocks(d: _Decoder, widths: list[int]) -> list[list[int]]:
    """Return the coded bits of a tile's fields, block by block."""
    fields: list[list[int]] = [[] for _ in widths]
    wide = [block for block, width in enumerate(widths) if width]
    for at in range(0, len(wide), 2):
        both = wide[at : at + 2]
        symbols = d.step(
            [
                (BLOCK * half + j, FIELD + widths[block])
                for half, block in enumerate(both)
                for j in range(BLOCK)
            ]
        )
        for half, block in enumerate(both):
            fields[block] = symbols[BLOCK * half : BLOCK * (half + 1)]
    return fields


# ---------------------------------------------------------------- strings of bits


def _joined(words: list[int]) -> int:
    return sum(word << (32 * i) for i, word in enumerate(words))


def _split(number: int, count: int) -> list[int]:
    return [(number >> (32 * i)) % 2**32 for i in range(count)]


def _words(number: int, bits: int) -> list[int]:
    return _split(number, ceil(bits / 32))


def _string(parts: list[tuple[int, int]]) -> list[int]:
    """Return the words of numbers of so many bits, one behind the other."""
    number = at = 0
    for value, bits in parts:
        number |= value << at
        at += bits
    return _words(number, at)


def _read_string(words: list[int], bits: list[int]) -> list[int]:
    number = _joined(words[: ceil(sum(bits) / 32)])
    values = []
    for count in bits:
        values.append(number % 2**count)
        number >>= count
    return values
