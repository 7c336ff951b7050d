"""Damaged and forged streams and messages, and everything of zccl that reads such bytes.

Damage is random, and checksums find it. A forger writes checksums anew (`seal`), so that what
stands behind them is reached. Fields and checksums are those of docs/format.md, written down here a
second time. Needs NumPy and zccl only.
"""

import math
import struct
import zlib
from typing import NamedTuple

import numpy as np
from unit.bounds import same_bits

import zccl
from zccl.codecs.places import Row
from zccl.codecs.quantised import HEAD_NBYTES, QuantisedCodec
from zccl.codecs.tiles import Grid

TILE, BLOCKS = 1024, 64
RAW, ZERO, ESCAPES, SMALL, LONG, SAME = 1, 2, 4, 8, 16, 32
EXACT, CONSTANT, CODED = 0, 1, 2
K32, K64 = 0x9E3779B1, 0x9E3779B97F4A7C15
MULTIPLIERS = ((np.arange(1, 4097, dtype=np.uint64) * K32) % 2**32) | 1

FIXED = struct.Struct("<4sHBBBBBBIQddQQII")
FIELDS = (
    "magic version form dtype ndim predictor coding spare contributors count error_bound step"
    " nbytes checksum crc spare2"
).split()
FIELD_NBYTES = {"version": 2, "contributors": 4, "crc": 4, "spare2": 4}  # of integers above 1
FIELD_NBYTES |= {"count": 8, "nbytes": 8, "checksum": 8}
VALUE_WORDS = {1: 1, 2: 1, 3: 2, 4: 1, 5: 2}  # dtypes that may be coded
WORDS = [0, 1, 2, 15, 16, 31, 63, 64, 1023, 1024, 1025, 4095, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
NUMBERS = [*WORDS, 2**40 - 1, 2**53, 2**61, 2**63 - 1, 2**63, 2**64 - 1]


class Parts(NamedTuple):
    """A stream taken apart: fields of the header by name, shape, body."""

    fields: dict
    shape: list
    body: np.ndarray

    @property
    def values(self):
        """Values in the row of the array."""
        return math.prod(self.shape) * (2 if self.fields["dtype"] in (4, 5) else 1)


def take_apart(stream):
    """Return the parts of an undamaged stream."""
    data = stream.tobytes()
    fields = dict(zip(FIELDS, FIXED.unpack(data[: FIXED.size]), strict=True))
    end = FIXED.size + 8 * fields["ndim"]
    return Parts(
        fields, list(struct.unpack(f"<{fields['ndim']}Q", data[64:end])), stream[end:].copy()
    )


def split_entry(entry):
    """Return first word, number of words and kind of an entry of the table."""
    return entry % 2**40, (entry >> 40) % 2**12, entry >> 52


def tile_checksum(words, kind, tile):
    """What the record of a tile adds to the checksum."""
    total = int((words * MULTIPLIERS[: words.size]).sum()) + kind * K32 + words.size
    return total * (tile * K64 % 2**64 | 1)


def body_checksum(table, words):
    """Checksum of table and records; entries that lead out of the records count as empty."""
    total = 0
    for tile, entry in enumerate(table.tolist()):
        first, nwords, kind = split_entry(entry)
        total += tile_checksum(words[first : first + nwords].astype(np.uint64), kind, tile)
    return total % 2**64


def plain_checksum(words, kind):
    """Checksum of the body of an exact or constant stream."""
    words = words.astype(np.uint64)
    tiles = range(-(-words.size // TILE))
    return sum(tile_checksum(words[t * TILE : (t + 1) * TILE], kind, t) for t in tiles) % 2**64


def seal(parts, **forged):
    """Join parts to a stream: sizes and checksums as they should be, except what is `forged`."""
    fields, shape, body = parts
    count = math.prod(shape) % 2**64
    fields = fields | {
        "ndim": len(shape) % 256,
        "count": count,
        "nbytes": 64 + 8 * len(shape) + body.size,
    }
    tiles = -(-parts.values // TILE)
    if fields["form"] == CODED and 8 * tiles <= body.size:
        end = 8 * tiles
        words = body[end : end + (body.size - end) // 4 * 4].view(np.uint32)
        fields["checksum"] = body_checksum(body[:end].view(np.uint64), words)
    elif fields["form"] != CODED:
        kind = RAW | SAME if fields["form"] == CONSTANT else RAW
        fields["checksum"] = plain_checksum(body[: body.size // 4 * 4].view(np.uint32), kind)
    fields |= forged
    fields["crc"] = 0
    start = FIXED.pack(*fields.values())
    ends = struct.pack(f"<{len(shape)}Q", *shape)
    fields["crc"] = forged.get("crc", zlib.crc32(start + ends))
    return np.frombuffer(FIXED.pack(*fields.values()) + ends + body.tobytes(), np.uint8)


# ---------------------------------------------------------------- damage


def damage(rng, stream, others):
    """Return a stream with other bits or bytes, another end, or parts of other streams."""
    stream = stream.copy()
    where = min(stream.size, 200) if rng.random() < 0.4 else stream.size  # more often at the start
    for _ in range(rng.integers(1, 4)):
        what = rng.integers(6)
        at = int(rng.integers(where))
        length = int(rng.integers(1, 40))
        if what == 0:
            stream[min(at, stream.size - 1)] ^= 1 << rng.integers(8)
        elif what == 1:
            stream[at : at + length] = rng.integers(256, size=stream[at : at + length].size)
        elif what == 2:
            stream[at : at + length] = rng.choice([0, 255])
        elif what == 3:
            stream = stream[: max(at, 1)]
        elif what == 4:
            stream = np.append(stream, rng.integers(256, size=length).astype(np.uint8))
        else:
            other = others[rng.integers(len(others))]
            start = int(rng.integers(other.size))
            pieces = [stream[:at], other[start : start + 10 * length]]
            pieces += [stream[at + 10 * length :]] if rng.random() < 0.7 else []
            stream = np.concatenate(pieces)
        where = min(where, stream.size)
    return stream


# ---------------------------------------------------------------- forged headers


def forge_header(rng, stream):
    """Return a stream with other fields or another shape, and the right checksums."""
    parts = take_apart(stream)
    shape = parts.shape
    forged = {}
    numbers = [*NUMBERS, *(parts.fields["count"] + k for k in (-1024, -1, 1, 1024))]
    for _ in range(rng.integers(1, 4)):
        name = str(rng.choice([*FIELDS, "shape", "shape", "axes"]))
        number = int(rng.choice(np.array([n % 2**64 for n in numbers], np.uint64)))
        if name == "shape" and shape:
            shape[rng.integers(len(shape))] = number
        elif name in ("shape", "axes"):
            shapes = [[], [number], [1, *shape], [0, number], [2**32, 2**32], [1] * 64, [1] * 65]
            shape = shapes[rng.integers(len(shapes))]
        elif name in ("error_bound", "step"):
            floats = [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, 5e-324, 1e-45, 1e300, 1.7e308]
            forged[name] = float(rng.choice(floats))
        elif name == "magic":
            forged[name] = rng.bytes(4)
        else:
            number = int(rng.integers(20)) if rng.random() < 0.7 else number
            forged[name] = number % 256 ** FIELD_NBYTES.get(name, 1)
    consistent = parts.fields | {k: v for k, v in forged.items() if k in ("form", "dtype")}
    return seal(Parts(consistent, shape, parts.body), **forged)


# ---------------------------------------------------------------- forged bodies


def forge_words(rng, table, words):
    """Change entries of the table and words of records in place, each to something that hurts."""
    for _ in range(rng.integers(1, 4)):
        tile = rng.integers(table.size)
        first, nwords, kind = split_entry(int(table[tile]))
        what = rng.integers(6)
        if what == 0:
            places = [0, 1, first + 1, words.size - nwords, words.size, 2**40 - 1]
            first = int(rng.choice(places)) % 2**40
        elif what == 1:
            nwords = int(rng.choice([0, 1, nwords - 1, nwords + 1, words.size, 4095])) % 2**12
        elif what == 2:
            kind ^= 1 << int(rng.integers(12 if rng.random() < 0.2 else 6))
        elif what == 3:
            first, nwords, kind = split_entry(int(rng.choice(table)))
        elif words.size:
            near = rng.integers(14) if what == 4 else rng.integers(max(nwords, 1))
            value = rng.choice(WORDS) if rng.random() < 0.6 else rng.integers(2**32)
            words[min(first + near, words.size - 1)] = value
        table[tile] = first | nwords << 40 | kind << 52


def any_word(rng, size):
    """Random 32-bit words, extremes among them."""
    words = rng.integers(2**32, size=size, dtype=np.uint32)
    return np.where(
        rng.random(size) < 0.1, rng.choice([0, 2**31 - 1, 2**31, 2**32 - 1], size), words
    )


def forge_record(rng, m, value_words):
    """Return kind and words of a record that no encoder wrote, of mostly consistent lengths."""
    if rng.random() < 0.15:
        same = rng.random() < 0.5
        return RAW | (SAME if same else 0), any_word(rng, value_words if same else m * value_words)
    kind = int(rng.choice([0, SMALL])) if value_words == 1 else 0
    base = [any_word(rng, 1)]
    if rng.random() < 0.3:
        kind |= LONG
        high = rng.choice([0, 0xFFFFFFFF, 0x001FFFFF, 0x7FFFFFFF, 0x80000000])
        base.append(np.array([high]))
    if rng.random() < 0.3:
        kind |= ZERO
        pieces = base
    else:
        widest = rng.choice([1, 8, 31])
        widths = (
            rng.integers(widest + 1, size=BLOCKS) if rng.random() < 0.7 else np.full(BLOCKS, widest)
        )
        packed = sum(int(w) << (5 * k) for k, w in enumerate(widths)).to_bytes(40, "little")
        pieces = [
            *base,
            np.frombuffer(packed, np.uint32),
            any_word(rng, (int(widths.sum()) + 1) // 2),
        ]
    if rng.random() < 0.5:
        kind |= ESCAPES
        room = (4094 - sum(piece.size for piece in pieces)) // (2 + 2 * value_words)
        count = int(rng.choice([1, 2, 5, 100, 250, room]))
        entries = any_word(rng, (min(count, room), 2 + 2 * value_words)).astype(np.uint32)
        if rng.random() < 0.9:
            places = rng.integers(m, size=len(entries))
            lengths = np.minimum(rng.integers(1, 1025, size=len(entries)), m - places)
            entries[:, 0] = places | (lengths - 1) << 10
        if rng.random() < 0.9:
            entries[:, 1] = np.sort(entries[:, 1] % rng.choice([1, 3, 2**32]))
        pieces += [np.array([len(entries)]), entries.reshape(-1)]
    words = np.concatenate(pieces).astype(np.uint32)
    if rng.random() < 0.2:
        words = (
            words[:-1] if rng.random() < 0.5 and words.size > 1 else np.append(words, words[-1:])
        )
    if rng.random() < 0.05:
        kind ^= 1 << int(rng.integers(12))
    return kind, words[:4095]


def forge_body(rng, n, value_words):
    """Return table and words of records for n values."""
    table, words, end = [], [], 0
    for start in range(0, n, TILE):
        if table and rng.random() < 0.1:
            table.append(table[-1])  # two tiles, one record
            continue
        kind, record = forge_record(rng, min(TILE, n - start), value_words)
        table.append(end | record.size << 40 | kind << 52)
        words.append(record)
        end += record.size
    return np.array(table, np.uint64), np.concatenate(words)


# ---------------------------------------------------------------- what reads


def assert_allowed(table, n, value_words):
    """Check that no coded record is longer than docs/format.md section 4 allows."""
    for tile, entry in enumerate(table.tolist()):
        m = min(TILE, n - TILE * tile)
        allowed = TILE * value_words if m == TILE else max(m * value_words + 32, 256)
        _, nwords, kind = split_entry(entry)
        assert kind & RAW or nwords <= allowed, "a coded record is too long"


def attempt(refusals, function, *args):
    """Call a function; None when it refuses its arguments as it may."""
    try:
        return function(*args)
    except refusals:
        return None


# What `reduce_streams` documents: damage, streams that do not fit together, too large a sum.
REDUCE_REFUSALS = (ValueError, OverflowError)


def read_stream(stream, partner, allocate=np.empty, wanted=None):
    """Let every function read a stream; `wanted` is what it held before it was damaged.

    Raises whatever is neither a refusal nor right.
    """
    info = attempt(zccl.StreamError, zccl.inspect, stream)
    array = attempt(zccl.StreamError, zccl.decompress, stream)
    if array is not None:
        assert info is not None and (info.shape, info.dtype) == (array.shape, array.dtype)
        assert wanted is None or same_bits(array, wanted), "other values"
        out = allocate(array.shape, array.dtype)
        assert same_bits(zccl.decompress(stream, out), array)
    has_order = stream.size < 8 or stream[7] not in (4, 5)  # not complex
    for op in (zccl.SUM, zccl.MAX, zccl.MIN) if has_order else (zccl.SUM,):
        for a, b in ((stream, stream), (stream, partner), (partner, stream)):
            total = attempt(REDUCE_REFUSALS, zccl.reduce_streams, a, b, op)
            if total is not None:
                assert array is not None, "refused by decompress, not by reduce_streams"
                zccl.decompress(total)
                parts = take_apart(total)
                if parts.fields["form"] == CODED:
                    table = parts.body[: 8 * -(-parts.values // TILE)].view(np.uint64)
                    assert_allowed(table, parts.values, VALUE_WORDS[parts.fields["dtype"]])


class Wire:
    """The messages of one rank, with one of its own to add to others."""

    def __init__(self, n, dtype, op, allocate=np.empty):
        source = np.cumsum(np.random.default_rng(n).standard_normal(n)).astype(dtype)
        source[:: max(n // 3, 1)] = np.nan
        self.part = slice(0, n)
        self.target = allocate(n, source.dtype)
        self.codec = QuantisedCodec(
            source, Row(self.target), Grid(0.01, 0.005, movement=False, ranks=4), op
        )
        self.own = self.codec.encode(self.part)

    def read(self, message, damaged):
        """Decode a message and add it to one's own; `damaged` is False for one that was forged."""
        self.codec.decode(self.own, self.part)
        wanted = self.target.copy()
        decoded = attempt(zccl.StreamError, self.decode, message)
        assert decoded is None or not damaged or same_bits(decoded, wanted), "other values"
        hops = [
            lambda: self.codec.combine(message, message, self.part),
            lambda: self.codec.combine(self.own, message, self.part),
            lambda: self.codec.add_own(message, self.part),
        ]
        for hop in hops:
            total = attempt((zccl.StreamError, OverflowError), hop)
            if total is not None:
                assert total.size <= self.codec.max_nbytes(self.part)
                assert decoded is not None, "refused by decode, not by combine"
                self.decode(total)
                n = self.target.size
                table = total[HEAD_NBYTES:][: 8 * -(-n // TILE)].view(np.uint64)
                assert_allowed(table, n, self.target.itemsize // 4)

    def decode(self, message):
        self.codec.decode(message, self.part)
        return self.target.copy()


def seal_message(table, words):
    """Join table and records to a message with the right checksum."""
    head = np.array([body_checksum(table, words), 0], np.uint64)  # coding: fixed
    return np.concatenate([head.view(np.uint8), table.view(np.uint8), words.view(np.uint8)])
