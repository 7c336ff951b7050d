"""Tiles along two or three axes: to and from a tile's own order, differences along its axes.

A tiling is (axes, Z, Y, X), the lengths of the array's last three axes; (1, 1, 1, n) for a row.
"""

import numpy as np

from zccl.formats import BLOCK, BLOCKS, SMALL, TILE, TILE_SHAPES
from zccl.kernels.cpu._compile import helper
from zccl.kernels.cpu.memory import address
from zccl.kernels.cpu.stages import (
    copy_16,
    scale_f4,
    scale_f8,
    scale_small,
    subtract_16,
    sum_16,
    unpack_integrate,
)

_Y2, _X2 = TILE_SHAPES[2][1:]
_Z3, _Y3, _X3 = TILE_SHAPES[3]
_PLANE = _Y3 * _X3

# An area for the differences of a tile: its rows, each with a zero before it, which
# `difference_16` then needs no special case for; differences along one axis; 16 zeros; the base 16
# times.
_E = TILE + TILE // _X3
_ZEROS = _E + TILE
_BASE = _ZEROS + BLOCK
ROWS = _BASE + BLOCK


@helper
def corner(tiling, tile):
    """First index of a tile on each of four axes: (b, z, y, x), and its lengths (z, y, x)."""
    axes, z, y, x = tiling
    tz, ty, tx = (_Z3, _Y3, _X3) if axes == 3 else (1, _Y2, _X2)
    nx = (x + tx - 1) // tx
    ny = (y + ty - 1) // ty
    nz = (z + tz - 1) // tz
    rest = tile // nx
    plane = rest // ny
    return plane // nz, tz * (plane % nz), ty * (rest % ny), tx * (tile % nx), tz, ty, tx


@helper
def gather_tile(values, tiling, tile, out):
    """Copy the values of a tile, what is beyond the edges of the array included."""
    _, z, y, x = tiling
    b, z0, y0, x0, tz, ty, tx = corner(tiling, tile)
    width = min(tx, x - x0)
    size = values.itemsize
    target = address(out)
    for k in range(z0, z0 + tz):
        plane = b * z + min(k, z - 1)
        for i in range(y0, y0 + ty):
            start = (plane * y + min(i, y - 1)) * x + x0
            if width == tx:
                source = address(values) + size * start
                for piece in range(0, size * tx, 4 * BLOCK):
                    copy_16(source + piece, target + piece)
            else:
                j = (target - address(out)) // size
                for h in range(tx):
                    out[j + h] = values[start + min(h, width - 1)]
            target += size * tx


@helper
def scatter_tile(tile_values, tiling, tile, out):
    """Copy the values of a tile to their places, but for those beyond the edges of the array."""
    _, z, y, x = tiling
    b, z0, y0, x0, tz, ty, tx = corner(tiling, tile)
    width = min(tx, x - x0)
    size = out.itemsize
    for k in range(z0, min(z0 + tz, z)):
        for i in range(y0, min(y0 + ty, y)):
            start = ((b * z + k) * y + i) * x + x0
            j = ((k - z0) * ty + i - y0) * tx
            if width == tx:
                source = address(tile_values) + size * j
                target = address(out) + size * start
                for piece in range(0, size * tx, 4 * BLOCK):
                    copy_16(source + piece, target + piece)
            else:
                for h in range(width):
                    out[start + h] = tile_values[j + h]


@helper
def row_length(axes):
    """Values of a tile that are neighbours on its last axis."""
    return _X2 if axes == 2 else _X3


@helper
def block_of_chain(axes, low, rows, k):
    """Address of what `difference_16` makes the differences of block k of."""
    if axes == 1:
        return address(low) + 4 + 4 * BLOCK * k
    length = row_length(axes)
    row = BLOCK * k // length
    return address(rows) + 4 * (row * (length + 1) + 1 + BLOCK * k % length)


@helper
def make_rows():
    """Memory for `difference_rows`."""
    return np.zeros(ROWS, np.int32)


@helper
def difference_rows(axes, low, rows):
    """Take the differences along all axes but the last, into `rows`.

    `low` are the low halves of the chain behind that of the base; differences are theirs.
    """
    if axes == 1:
        return
    rows[_BASE:] = low[0]
    length = row_length(axes)
    stride = 4 * (length if axes == 2 else _PLANE)
    codes = address(low) + 4
    to = address(rows)
    e = to + 4 * _E
    for block in range(BLOCKS):
        at = 4 * BLOCK * block
        before = codes + at - stride if at >= stride else to + 4 * _BASE
        if axes == 2:
            subtract_16(codes + at, before, block_of_chain(2, low, rows, block))
        else:
            subtract_16(codes + at, before, e + at)
            above = e + at - 4 * _X3 if block % _Y3 else to + 4 * _ZEROS
            subtract_16(e + at, above, block_of_chain(3, low, rows, block))


@helper
def scale_block(distances, base, small, itemsize, step, target):
    """Scale 16 codes, given as distances from the base; in float32 those of a SMALL tile."""
    if itemsize == 8:
        scale_f8(distances, base, step, target)
    elif small:
        scale_small(distances, base, step, target)
    else:
        scale_f4(distances, base, step, target)


@helper
def read_values(axes, record, widths, zeros, distances, step, y, place):
    """Unpack the blocks of a record, sum up along all axes in 32 bits, and scale.

    `zeros` are 16 of them, `distances` scratch. `place` is where the values go in `y`: the first
    one, and how far rows and planes of the tile are apart.
    """
    length = row_length(axes)
    rows = TILE // length if axes == 2 else _Y3  # of a plane
    small = (record.kind & SMALL) != 0
    size = y.itemsize
    source = record.blocks
    at = address(distances)
    for row in range(TILE // length):
        before = np.int32(0)
        above = at - 4 * length if row % rows else address(zeros)
        target = address(y) + size * (place[0] + place[1] * row)
        for k in range(row * length // BLOCK, (row + 1) * length // BLOCK):
            width = np.int64(widths[k])
            before = unpack_integrate(source, width, before, above, at)
            if axes == 2:
                scale_block(at, record.base, small, size, step, target)
                target += size * BLOCK
            source += 2 * width
            at += 4 * BLOCK
            above += 4 * BLOCK if row % rows else 0
    if axes == 3:
        at = address(distances)
        for block in range(BLOCKS):
            if block >= _PLANE // BLOCK:
                sum_16(at, at - 4 * _PLANE, at)
            start = place[0] + place[2] * (block // _Y3) + place[1] * (block % _Y3)
            scale_block(at, record.base, small, size, step, address(y) + size * start)
            at += 4 * BLOCK


@helper
def place_inside(tiling, tile):
    """Place of a tile in the array, as `read_values` takes it; first -1 where it sticks out."""
    _, z, y, x = tiling
    b, z0, y0, x0, tz, ty, tx = corner(tiling, tile)
    first = ((b * z + z0) * y + y0) * x + x0
    if z0 + tz > z or y0 + ty > y or x0 + tx > x:
        first = -1
    return first, x, x * y


@helper
def place_alone(tiling):
    """Place of a tile in an array of its own."""
    length = row_length(tiling[0])
    return np.int64(0), length, np.int64(_PLANE)


@helper
def sum_along_axes(axes, codes):
    """Turn differences into distances from the base, in place."""
    length = TILE if axes == 1 else row_length(axes)
    for start in range(0, TILE, length):
        row = codes[start : start + length]
        total = row[0]
        for j in range(1, length):
            total += row[j]
            row[j] = total
    if axes == 1:
        return
    for row in range(1, TILE // length):
        if axes == 2 or row % _Y3:
            before = codes[(row - 1) * length : row * length]
            own = codes[row * length : (row + 1) * length]
            for j in range(length):
                own[j] += before[j]
    if axes == 3:
        for j in range(_PLANE, TILE):
            codes[j] += codes[j - _PLANE]


@helper
def distances_fit(widths):
    """Whether no distance from the base can leave 31 bits, for all that the widths say."""
    total = np.int64(0)
    for k in range(widths.size):
        total += (np.int64(1) << np.int64(widths[k])) >> 1
    return total * BLOCK < 2**31
