"""The stages of vectors.py as plain loops: the same bytes, and what the vectors gain."""

import numpy as np

from zccl.formats import BLOCK
from zccl.kernels.cpu._compile import helper
from zccl.kernels.cpu.memory import (
    bit_length,
    float_bits,
    float_bits_32,
    load_32,
    load_64,
    store_32,
    store_64,
)


@helper
def _zigzag(d):
    return np.uint32((d << np.int32(1)) ^ (d >> np.int32(31)))


@helper
def difference_16(codes, differences):
    """Differences of 16 codes (int32; the one before is read too); returns their width."""
    folded = np.uint32(0)
    for j in range(BLOCK):
        d = np.int32(load_32(codes + 4 * j) - load_32(codes + 4 * j - 4))
        store_32(differences + 4 * j, d)
        folded |= _zigzag(d)
    return bit_length(folded)


@helper
def pack_16(differences, width, target):
    """Pack 16 differences into 2 width bytes, any width up to 31; zero bytes may follow them."""
    pending = np.uint64(0)
    bits = np.uint64(0)
    w = np.uint64(width)
    offset = np.int64(1) << (width - 1) if width else np.int64(0)
    for j in range(BLOCK):
        pending |= np.uint64(np.int64(load_32(differences + 4 * j)) + offset) << bits
        bits += w
        if bits >= np.uint64(32):
            store_32(target, np.int32(pending & np.uint64(0xFFFFFFFF)))
            target += 4
            pending >>= np.uint64(32)
            bits -= np.uint64(32)
    store_64(target, pending)


@helper
def _field(source, width, j):
    """Difference j of a block."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    offset = np.int64(1) << (width - 1) if width else np.int64(0)
    bit = j * width
    return np.int64((load_64(source + (bit >> 3)) >> np.uint64(bit & 7)) & mask) - offset


@helper
def unpack_16(source, width, differences):
    """Unpack a block of any width up to 31."""
    for j in range(BLOCK):
        store_32(differences + 4 * j, np.int32(_field(source, width, j)))


@helper
def add_16(a, b, differences):
    """Add two rows of 16 differences; returns the width of the sums, 32 when they overflow."""
    folded = np.uint32(0)
    for j in range(BLOCK):
        d = np.int32(load_32(a + 4 * j) + load_32(b + 4 * j))
        store_32(differences + 4 * j, d)
        folded |= _zigzag(d)
    return bit_length(folded)


@helper
def unpack_add_16(source_a, width_a, source_b, width_b, differences):
    """Unpack two blocks, store the sums of their differences; returns their width."""
    folded = np.uint32(0)
    for j in range(BLOCK):
        d = np.int32(_field(source_a, width_a, j) + _field(source_b, width_b, j))
        store_32(differences + 4 * j, d)
        folded |= _zigzag(d)
    return bit_length(folded)


@helper
def difference_add_16(codes, source, width, differences):
    """Add the differences of 16 codes to those of a block; returns the width of the sums."""
    folded = np.uint32(0)
    for j in range(BLOCK):
        own = np.int64(load_32(codes + 4 * j)) - np.int64(load_32(codes + 4 * j - 4))
        d = np.int32(own + _field(source, width, j))
        store_32(differences + 4 * j, d)
        folded |= _zigzag(d)
    return bit_length(folded)


@helper
def copy_16(source, target):
    """Copy 16 numbers of 32 bits."""
    for j in range(BLOCK):
        store_32(target + 4 * j, load_32(source + 4 * j))


@helper
def subtract_16(x, y, target):
    """Store 16 numbers minus 16 others."""
    for j in range(BLOCK):
        store_32(target + 4 * j, np.int32(load_32(x + 4 * j) - load_32(y + 4 * j)))


@helper
def sum_16(x, y, target):
    """Store 16 numbers plus 16 others."""
    for j in range(BLOCK):
        store_32(target + 4 * j, np.int32(load_32(x + 4 * j) + load_32(y + 4 * j)))


@helper
def integrate_16(differences, before, above, target):
    """Store the running sums of 16 differences after `before`, plus 16 numbers."""
    total = np.int32(before)
    for j in range(BLOCK):
        total = np.int32(total + load_32(differences + 4 * j))
        store_32(target + 4 * j, np.int32(total + load_32(above + 4 * j)))
    return total


@helper
def unpack_integrate_16(source, width, before, above, target):
    """Unpack a block, then `integrate_16`."""
    total = np.int32(before)
    for j in range(BLOCK):
        total = np.int32(total + _field(source, width, j))
        store_32(target + 4 * j, np.int32(total + load_32(above + 4 * j)))
    return total


@helper
def scan_small(differences, before, step, target):
    """Integrate 16 differences from the code before them, scale in float32; returns their sum."""
    code = np.int32(before)
    scale = np.float32(step)
    for j in range(BLOCK):
        code = np.int32(code + load_32(differences + 4 * j))
        store_32(target + 4 * j, float_bits_32(np.float32(code) * scale))
    return np.int64(code) - before


@helper
def scale_small(distances, before, step, target):
    """Scale 16 distances from a code in float32."""
    scale = np.float32(step)
    for j in range(BLOCK):
        code = np.int32(np.int32(before) + load_32(distances + 4 * j))
        store_32(target + 4 * j, float_bits_32(np.float32(code) * scale))


@helper
def scale_f4(distances, before, step, target):
    """Scale 16 distances from a code in float64 and round to float32."""
    for j in range(BLOCK):
        code = before + np.int64(load_32(distances + 4 * j))
        store_32(target + 4 * j, float_bits_32(np.float32(np.float64(code) * step)))


@helper
def scale_f8(distances, before, step, target):
    """Scale 16 distances from a code in float64."""
    for j in range(BLOCK):
        code = before + np.int64(load_32(distances + 4 * j))
        store_64(target + 8 * j, np.uint64(float_bits(np.float64(code) * step)))


@helper
def scan_f4(differences, before, step, target):
    """Integrate 16 differences, scale in float64 and round to float32; returns their sum."""
    code = before
    for j in range(BLOCK):
        code += np.int64(load_32(differences + 4 * j))
        store_32(target + 4 * j, float_bits_32(np.float32(np.float64(code) * step)))
    return code - before


@helper
def scan_f8(differences, before, step, target):
    """Integrate 16 differences and scale in float64; returns their sum."""
    code = before
    for j in range(BLOCK):
        code += np.int64(load_32(differences + 4 * j))
        store_64(target + 8 * j, np.uint64(float_bits(np.float64(code) * step)))
    return code - before


@helper
def unpack_scan_small(source, width, before, step, target):
    """Unpack a block, then `scan_small`."""
    code = before
    scale = np.float32(step)
    for j in range(BLOCK):
        code += _field(source, width, j)
        store_32(target + 4 * j, float_bits_32(np.float32(np.int32(code)) * scale))
    return code - before


@helper
def unpack_scan_f4(source, width, before, step, target):
    """Unpack a block, then `scan_f4`."""
    code = before
    for j in range(BLOCK):
        code += _field(source, width, j)
        store_32(target + 4 * j, float_bits_32(np.float32(np.float64(code) * step)))
    return code - before


@helper
def unpack_scan_f8(source, width, before, step, target):
    """Unpack a block, then `scan_f8`."""
    code = before
    for j in range(BLOCK):
        code += _field(source, width, j)
        store_64(target + 8 * j, np.uint64(float_bits(np.float64(code) * step)))
    return code - before
