"""The slow, obvious definition of docs/format.md, sections 2 to 5 and 7.

Nothing here is fast: the codes of a tile are a Python list, a record is a list of words. The
compiled kernels must produce the same bytes, and the tests hold them to it. A *tile* is either a
NumPy array (a raw tile: its values) or a `Coded`.
"""

from __future__ import annotations

from math import copysign, isnan, nan, prod
from typing import NamedTuple

import numpy as np

from zccl.errors import StreamError
from zccl.formats import (
    BLOCK,
    BLOCKS,
    ESCAPES,
    LONG,
    MAX_SUM,
    NWORDS_BITS,
    OFFSET_BITS,
    RAW,
    SAME,
    SHORT_NWORDS,
    SHORT_SLACK,
    SMALL,
    TILE,
    TILE_SHAPES,
    WIDTH_WORDS,
    ZERO,
    max_distance,
)
from zccl.typing import Array

K32 = 0x9E3779B1
K64 = 0x9E3779B97F4A7C15


class Body(NamedTuple):
    """Table and records of a row of values; the records lie in tile order, without gaps."""

    table: Array  # uint64, one entry a tile
    words: Array  # uint32
    checksum: int


class Escape(NamedTuple):
    """Neighbouring values with the same bits; the order of the fields is the order in a list."""

    rank: int
    first: int
    length: int
    stand_in: int
    bits: int


class Coded(NamedTuple):
    """A coded tile: always 1024 differences, also when the tile is short."""

    base: int
    differences: list[int]
    escapes: list[Escape]
    small: bool
    axes: int

    @property
    def chain(self) -> list[int]:
        """The 1024 codes."""
        codes = self.differences
        for length, stride in _rows(self.axes):
            codes = _sums_along(codes, length, stride)
        return [self.base + code for code in codes]


Tile = Coded | Array


# ---------------------------------------------------------------- the three things one can do


def encode(
    values: Array,
    step: float,
    error_bound: float,
    *,
    movement: bool,
    ranks: int = 1,
    rank: int = 0,
    fill: float | None = None,
    axes: int = 1,
) -> tuple[Body, int]:
    """Code a row of float32 or float64 `values`; return the body and how many values escaped.

    With more than one of `axes` they are those of `to_row`.

    With `movement` the decoded values keep `error_bound`; without, only the code range is tested.
    `ranks` arrays may be added up later, of which this is number `rank`. `fill` names a value that
    always escapes. All values of a raw tile count as escaped.
    """
    tiles: list[Tile] = []
    escaped = 0
    for start in range(0, values.size, TILE):
        part = values[start : start + TILE]
        codes = _codes(part, float(step), error_bound, movement, fill)
        tile = _choose_form(_chain(codes, part, rank, ranks, axes), part)
        tiles.append(tile)
        escaped += sum(e.length for e in tile.escapes) if isinstance(tile, Coded) else part.size
    return _assemble(tiles, values.dtype), escaped


def decode(
    body: Body,
    n: int,
    dtype: np.dtype | type,
    step: float,
    *,
    divisor: float = 1,
    reduced: bool = False,
    axes: int = 1,
) -> Array:
    """Return the `n` values of a body, divided by `divisor` before their one rounding.

    A NaN comes back with its payload, or canonical when the body is `reduced`.

    Raises
    ------
    StreamError
        When the checksum or any length is wrong.
    """
    dtype = np.dtype(dtype)
    result = np.empty(n, dtype)
    for t, tile in enumerate(_take_apart(body, n, dtype, axes)):
        part = result[t * TILE : (t + 1) * TILE]
        with np.errstate(all="ignore"):
            quotients = _numbers(tile, part.size, float(step), dtype) / divisor
        part[:] = _round(quotients, dtype)
        if not reduced and divisor == 1:
            for j, bits in _lone_bits(tile, part.size).items():
                part.view(_bits_type(dtype))[j] = bits
    if reduced:
        result[np.isnan(result)] = nan
    return result


def combine(
    a: Body,
    b: Body,
    op: str,
    n: int,
    dtype: np.dtype | type,
    step: float,
    *,
    keep_small: bool = True,
    axes: int = 1,
) -> Body:
    """Return the body of the ``"sum"``, ``"max"`` or ``"min"`` of two rows on one grid.

    `keep_small` says that no more arrays are added up than the operands' encoder was told of.

    Raises
    ------
    StreamError
        When a checksum or any length is wrong.
    OverflowError
        When a base of a sum reaches 2^53 in size or a difference needs more than 31 bits.
    """
    dtype = np.dtype(dtype)
    tiles: list[Tile] = []
    for t, (x, y) in enumerate(
        zip(_take_apart(a, n, dtype, axes), _take_apart(b, n, dtype, axes), strict=True)
    ):
        m = min(TILE, n - t * TILE)
        if op == "sum":
            tiles.append(_sum(x, y, keep_small, m, float(step), dtype))
        else:
            tiles.append(_extreme(x, y, op, m, float(step), dtype))
    return _assemble(tiles, dtype)


# ---------------------------------------------------------------- section 2: grid


def _codes(
    values: Array, step: float, error_bound: float, movement: bool, fill: float | None
) -> list[int | None]:
    """Return the code of each value, None where a test that needs no base fails."""
    with np.errstate(all="ignore"):
        x = values.astype(np.float64)
        q = np.rint(x * (np.float64(1) / step))
        decoded = _round(q * step, values.dtype).astype(np.float64)
        good = np.abs(q) <= (2**24 if values.dtype == np.float32 else 2**40 - 1)
        good &= np.isfinite(decoded)
        if movement:
            good &= np.abs(x - decoded) <= error_bound
        if fill is not None:
            good &= values != values.dtype.type(fill)
    return [int(code) if is_good else None for code, is_good in zip(q, good, strict=True)]


# ---------------------------------------------------------------- section 3: codes of a tile


def to_row(array: Array, axes: int) -> Array:
    """Return the values of an array in the order of tiles, what is beyond its edges included."""
    return array.reshape(-1) if axes == 1 else array.reshape(-1)[_places(array.shape, axes)]


def from_row(row: Array, shape: tuple[int, ...], axes: int) -> Array:
    """Return the array whose `to_row` this is."""
    array = np.empty(prod(shape), row.dtype)
    array[np.arange(row.size) if axes == 1 else _places(shape, axes)] = row
    return array.reshape(shape)


def _places(shape: tuple[int, ...], axes: int) -> Array:
    """Return for each value of the row its place in the array."""
    tile_shape = TILE_SHAPES[axes][-axes:]
    places = np.arange(prod(shape)).reshape(prod(shape[:-axes]), *shape[-axes:])
    tiles = []
    for b, *corner in np.ndindex(
        len(places),
        *(-(-length // tile) for length, tile in zip(shape[-axes:], tile_shape, strict=True)),
    ):
        indices = [
            np.minimum(k * tile + np.arange(tile), length - 1)
            for k, tile, length in zip(corner, tile_shape, shape[-axes:], strict=True)
        ]
        tiles.append(places[b][np.ix_(*indices)].reshape(-1))
    return np.concatenate([np.empty(0, np.int64), *tiles])


def _chain(codes: list[int | None], values: Array, rank: int, ranks: int, axes: int) -> Coded:
    """Return the coded tile of `codes`, in which `values` stand where there is no code."""
    limit = max_distance(axes) // ranks
    base = next((q for q in codes if q is not None), 0)
    bits = values.view(_bits_type(values.dtype)).tolist()
    chain: list[int] = []
    escapes: list[Escape] = []
    last = base
    for j, q in enumerate(codes):
        if q is not None and abs(q - base) <= limit:
            last = q
        else:
            _append_escape(escapes, Escape(rank, j, 1, last, bits[j]))
        chain.append(last)
    chain += [last] * (TILE - len(chain))
    differences = [c - base for c in chain]
    for length, stride in _rows(axes):
        differences = _differences_along(differences, length, stride)
    small = values.dtype == np.float32 and max(map(abs, chain)) <= 2**24 // ranks
    return Coded(base, differences, escapes, small, axes)


def _rows(axes: int) -> list[tuple[int, int]]:
    """Return the length of each axis of a tile, and how far apart neighbours on it are."""
    if axes == 1:
        return [(TILE, 1)]
    shape = TILE_SHAPES[axes]
    return [(length, prod(shape[k + 1 :])) for k, length in enumerate(shape)]


def _differences_along(codes: list[int], length: int, stride: int) -> list[int]:
    """Return the differences along one axis of a tile; before its first element is 0."""
    return [
        code - (codes[j - stride] if j // stride % length else 0) for j, code in enumerate(codes)
    ]


def _sums_along(differences: list[int], length: int, stride: int) -> list[int]:
    codes: list[int] = []
    for j, d in enumerate(differences):
        codes.append(d + (codes[j - stride] if j // stride % length else 0))
    return codes


def _append_escape(escapes: list[Escape], new: Escape) -> None:
    """Append one escaped value, to the last entry where it continues that."""
    if escapes:
        last = escapes[-1]
        follows = last.first + last.length == new.first
        if follows and (last.stand_in, last.bits) == (new.stand_in, new.bits):
            escapes[-1] = last._replace(length=last.length + 1)
            return
    escapes.append(new)


def _width(block: list[int]) -> int:
    """Return the smallest number of bits that holds all differences in two's complement."""
    if not any(block):
        return 0
    return 1 + max((d ^ (d >> 64)).bit_length() for d in block)


def _pack(fields: list[int], width: int) -> int:
    """Return the number whose lowest bits are field 0, the next ones field 1, and so on."""
    return sum(field << (j * width) for j, field in enumerate(fields))


def _unpack(number: int, count: int, width: int) -> list[int]:
    return [(number >> (j * width)) & (2**width - 1) for j in range(count)]


# ---------------------------------------------------------------- section 4: record of a tile


def _write(tile: Tile, dtype: np.dtype) -> tuple[int, list[int]]:
    """Return the kind and the words of a tile's record."""
    if not isinstance(tile, Coded):
        if _all_same(tile):
            return RAW | SAME, tile[:1].view(np.uint32).tolist()
        return RAW, tile.view(np.uint32).tolist()
    kind = SMALL if tile.small else 0
    value_words = dtype.itemsize // 4
    is_long = not -(2**31) <= tile.base < 2**31
    kind |= LONG if is_long else 0
    words = _words_of(tile.base, 2 if is_long else 1)
    if any(tile.differences):
        blocks = [tile.differences[k : k + BLOCK] for k in range(0, TILE, BLOCK)]
        widths = [_width(block) for block in blocks]
        words += _words_of(_pack(widths, 5), WIDTH_WORDS)
        stream = b"".join(
            _pack([d + (2**w >> 1) for d in block], w).to_bytes(2 * w, "little")
            for block, w in zip(blocks, widths, strict=True)
        )
        words += _words_of(int.from_bytes(stream, "little"), -(-len(stream) // 4))
    else:
        kind |= ZERO
    if tile.escapes:
        kind |= ESCAPES
        words.append(len(tile.escapes))
        for e in tile.escapes:
            words += [e.first | (e.length - 1) << 10, e.rank]
            words += _words_of(e.stand_in, value_words) + _words_of(e.bits, value_words)
    return kind, words


def _read(kind: int, words: list[int], m: int, dtype: np.dtype, axes: int) -> Tile:
    """Return the tile of `m` values whose record this is; every length is checked."""
    value_words = dtype.itemsize // 4
    if kind & RAW:
        _require(kind in (RAW, RAW | SAME), f"kind {kind}")
        stored = 1 if kind & SAME else m
        _require(len(words) == stored * value_words, "length of a raw record")
        values = np.array(words, np.uint32).view(dtype)
        return np.repeat(values, m) if kind & SAME else values
    allowed = ZERO | ESCAPES | LONG | (SMALL if dtype == np.float32 else 0)
    _require(kind & ~allowed == 0, f"kind {kind}")
    _require(len(words) <= _allowance(m, dtype), "a coded record beyond its allowance")
    left = list(words)

    def take(count: int) -> int:
        """Take `count` words off the front, as one unsigned number."""
        _require(count <= len(left), "a record ends too early")
        number = _pack(left[:count], 32)
        del left[:count]
        return number

    base_words = 2 if kind & LONG else 1
    base = _signed(take(base_words), 32 * base_words)
    _require(abs(base) < MAX_SUM, "a base beyond 53 bits")
    differences = [0] * TILE
    if not kind & ZERO:
        widths = _unpack(take(WIDTH_WORDS), BLOCKS, 5)
        number = take(-(-sum(widths) * 2 // 4))
        differences = []
        for w in widths:
            differences += [field - (2**w >> 1) for field in _unpack(number, BLOCK, w)]
            number >>= BLOCK * w
    escapes: list[Escape] = []
    count = take(1) if kind & ESCAPES else 0
    _require(bool(count) == bool(kind & ESCAPES), "an empty list of escapes")
    for _ in range(count):
        place, rank = take(1), take(1)
        stand_in = _signed(take(value_words), 8 * dtype.itemsize)
        first, length = place % TILE, (place >> 10) + 1
        _require(first + length <= m, "an escape behind the end of its tile")
        _require(not escapes or escapes[-1].rank <= rank, "ranks out of order")
        escapes.append(Escape(rank, first, length, stand_in, take(value_words)))
    _require(not left, "a record is too long")
    return Coded(base, differences, escapes, bool(kind & SMALL), axes)


def _choose_form(coded: Coded, values: Array) -> Tile:
    """Return `coded`, or the `values` themselves where that is the form for them."""
    if coded.escapes and _all_same(values):
        return values
    too_long = len(_write(coded, values.dtype)[1]) > _allowance(values.size, values.dtype)
    return values if too_long else coded


def _allowance(m: int, dtype: np.dtype) -> int:
    """Return the most words that a coded record of `m` values may have."""
    raw = m * dtype.itemsize // 4
    return raw if m == TILE else max(raw + SHORT_SLACK, SHORT_NWORDS)


def _all_same(values: Array) -> bool:
    bits: Array = values.view(_bits_type(values.dtype))
    return bool((bits == bits[0]).all())


# ---------------------------------------------------------------- section 5: table and checksum


def checksum(records: list[tuple[int, list[int]]]) -> int:
    """Return the checksum of the records (kind, words) of all tiles."""
    total = 0
    for t, (kind, words) in enumerate(records):
        s = sum(word * ((i + 1) * K32 % 2**32 | 1) for i, word in enumerate(words))
        s += kind * K32 + len(words)
        total += s * (t * K64 % 2**64 | 1)
    return total % 2**64


def _assemble(tiles: list[Tile], dtype: np.dtype) -> Body:
    records = [_write(tile, dtype) for tile in tiles]
    table: list[int] = []
    stream: list[int] = []
    for kind, words in records:
        entry = len(stream) | len(words) << OFFSET_BITS | kind << (OFFSET_BITS + NWORDS_BITS)
        table.append(entry)
        stream += words
    return Body(np.array(table, np.uint64), np.array(stream, np.uint32), checksum(records))


def _take_apart(body: Body, n: int, dtype: np.dtype, axes: int) -> list[Tile]:
    """Return the tiles of a body after checking all of it."""
    stream: list[int] = body.words.tolist()
    _require(len(body.table) == -(-n // TILE), "length of the table")
    records: list[tuple[int, list[int]]] = []
    end = 0
    for entry in body.table.tolist():
        offset = entry % 2**OFFSET_BITS
        nwords = (entry >> OFFSET_BITS) % 2**NWORDS_BITS
        _require(offset == end, "a gap between records")
        end += nwords
        _require(end <= len(stream), "a record behind the end")
        records.append((entry >> (OFFSET_BITS + NWORDS_BITS), stream[offset:end]))
    _require(end == len(stream), "words behind the last record")
    _require(checksum(records) == body.checksum, "checksum")
    sizes = [min(TILE, n - t * TILE) for t in range(len(records))]
    return [_read(*record, m, dtype, axes) for record, m in zip(records, sizes, strict=True)]


# ---------------------------------------------------------------- section 7: sums of streams


def _sum(a: Tile, b: Tile, keep_small: bool, m: int, step: float, dtype: np.dtype) -> Tile:
    if isinstance(a, Coded) and isinstance(b, Coded):
        base = a.base + b.base
        differences = [x + y for x, y in zip(a.differences, b.differences, strict=True)]
        if abs(base) >= MAX_SUM or _width(differences) > 31:
            raise OverflowError("a sum of codes does not fit")
        # sorted() is stable: of two entries with one rank and index, that of `a` comes first.
        escapes = sorted(a.escapes + b.escapes, key=lambda e: (e.rank, e.first))
        result = Coded(base, differences, escapes, keep_small and a.small and b.small, a.axes)
        if len(_write(result, dtype)[1]) <= _allowance(m, dtype):
            return result
    with np.errstate(all="ignore"):
        values = _round(_numbers(a, m, step, dtype) + _numbers(b, m, step, dtype), dtype)
    values[np.isnan(values)] = nan
    return values


def _extreme(a: Tile, b: Tile, op: str, m: int, step: float, dtype: np.dtype) -> Tile:
    """Return the tile of the winners of MAX or MIN."""
    pairs = zip(_contenders(a, m, step, dtype), _contenders(b, m, step, dtype), strict=True)
    winners = [_winner(x, y, op) for x, y in pairs]
    values = _round(np.array([number for number, _ in winners]), dtype)
    values[np.isnan(values)] = nan
    if not (isinstance(a, Coded) and isinstance(b, Coded)):
        return values
    return _choose_form(_chain([code for _, code in winners], values, 0, 1, a.axes), values)


def _contenders(tile: Tile, m: int, step: float, dtype: np.dtype) -> list[tuple[float, int | None]]:
    """Return the number that each value stands for, and its code where it is one."""
    numbers = _numbers(tile, m, step, dtype)
    if not isinstance(tile, Coded):
        return [(x, None) for x in numbers.tolist()]
    chain, escaped = tile.chain, _covering(tile)
    # What escaped is kept as a value, so it is rounded to one before it is compared.
    kept = _round(numbers, dtype)
    return [
        (float(kept[j]), None) if j in escaped else (float(numbers[j]), chain[j]) for j in range(m)
    ]


def _winner(
    a: tuple[float, int | None], b: tuple[float, int | None], op: str
) -> tuple[float, int | None]:
    (x, p), (y, q) = a, b
    if isnan(x) or isnan(y):
        return nan, None
    if p is not None and q is not None:
        a_wins = p > q if op == "max" else p < q
    else:
        order_x, order_y = (x, copysign(1, x)), (y, copysign(1, y))  # -0 < +0
        a_wins = order_x > order_y if op == "max" else order_x < order_y
        a_wins |= order_x == order_y and p is not None  # a tie keeps the code
    return a if a_wins else b


# ---------------------------------------------------------------- values of a tile


def _numbers(tile: Tile, m: int, step: float, dtype: np.dtype) -> Array:
    """Return what the `m` values of a tile stand for, in float64, before the last rounding."""
    if not isinstance(tile, Coded):
        with np.errstate(all="ignore"):
            return tile.astype(np.float64)
    escaped = _covering(tile)
    numbers: list[float] = []
    for j, code in enumerate(tile.chain[:m]):
        mine = escaped.get(j, [])
        code -= sum(e.stand_in for e in mine)
        # Where no code is left the values stand alone; adding them to -0 keeps the sign of a zero.
        number = float(code) * step if code or not mine else -0.0
        for e in mine:
            number += _value(e.bits, dtype)
        numbers.append(number)
    return np.array(numbers, np.float64)


def _covering(tile: Coded) -> dict[int, list[Escape]]:
    """Return for each escaped value the entries that it belongs to, in their order."""
    covering: dict[int, list[Escape]] = {}
    for e in tile.escapes:
        for j in range(e.first, e.first + e.length):
            covering.setdefault(j, []).append(e)
    return covering


def _lone_bits(tile: Tile, m: int) -> dict[int, int]:
    """Return the bits of the values that nothing was added to: they come back as they were."""
    if not isinstance(tile, Coded):
        return dict(enumerate(tile.view(_bits_type(tile.dtype)).tolist()))
    chain = tile.chain
    return {
        j: entries[0].bits
        for j, entries in _covering(tile).items()
        if len(entries) == 1 and entries[0].stand_in == chain[j]
    }


# ---------------------------------------------------------------- numbers and bits


def _bits_type(dtype: np.dtype) -> type:
    return np.uint32 if dtype == np.float32 else np.uint64


def _value(bits: int, dtype: np.dtype) -> float:
    with np.errstate(all="ignore"):
        return float(np.array(bits, _bits_type(dtype)).view(dtype))


def _round(numbers: Array, dtype: np.dtype) -> Array:
    with np.errstate(all="ignore"):
        return numbers.astype(dtype)


def _words_of(number: int, count: int) -> list[int]:
    """Return the `count` 32-bit words of a number, in two's complement where it is negative."""
    return _unpack(number, count, 32)


def _signed(number: int, bits: int) -> int:
    return number - 2**bits if number >> (bits - 1) else number


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise StreamError(f"damaged stream: {what}")
