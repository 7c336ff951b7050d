"""Blocks of 16 differences: their widths and their packed bits (docs/format.md section 3).

A block of width w takes w half-words of 16 bits, so all positions here count half-words.
"""

import numpy as np

from zccl.formats import BLOCK, BLOCKS
from zccl.kernels.cpu._compile import helper


@helper
def block_width(differences, first):
    """Bits that hold 16 differences in two's complement.

    0 when all are 0. Above 31: they fit no block.
    """
    folded = np.int64(0)
    anything = np.int64(0)
    for j in range(first, first + BLOCK):
        d = np.int64(differences[j])
        folded |= d ^ (d >> 63)
        anything |= d
    if anything == 0:
        return 0
    width = 1
    while folded:
        folded >>= 1
        width += 1
    return width


@helper
def pack_block(differences, first, width, halves, at):
    """Write 16 differences as fields of `width` bits, offset by 2^(width-1)."""
    offset = np.int64(1) << (width - 1)
    pending = np.uint64(0)
    bits = 0
    for j in range(first, first + BLOCK):
        pending |= np.uint64(np.int64(differences[j]) + offset) << np.uint64(bits)
        bits += width
        while bits >= 16:
            halves[at] = np.uint16(pending & np.uint64(0xFFFF))
            at += 1
            pending >>= np.uint64(16)
            bits -= 16


@helper
def unpack_block(halves, at, width, differences, first):
    """Read 16 fields of `width` bits; the inverse of `pack_block`, zeros for width 0."""
    if width == 0:
        for j in range(first, first + BLOCK):
            differences[j] = 0
        return
    offset = np.int64(1) << (width - 1)
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    pending = np.uint64(0)
    bits = 0
    for j in range(first, first + BLOCK):
        while bits < width:
            pending |= np.uint64(halves[at]) << np.uint64(bits)
            at += 1
            bits += 16
        differences[j] = np.int64(pending & mask) - offset
        pending >>= np.uint64(width)
        bits -= width


@helper
def pack_widths(widths, halves, at):
    """Write 64 widths of 5 bits."""
    pending = np.uint64(0)
    bits = 0
    for k in range(BLOCKS):
        pending |= np.uint64(widths[k]) << np.uint64(bits)
        bits += 5
        while bits >= 16:
            halves[at] = np.uint16(pending & np.uint64(0xFFFF))
            at += 1
            pending >>= np.uint64(16)
            bits -= 16


@helper
def unpack_widths(halves, at, widths):
    """Read 64 widths of 5 bits; returns their sum."""
    pending = np.uint64(0)
    bits = 0
    total = 0
    for k in range(BLOCKS):
        if bits < 5:
            pending |= np.uint64(halves[at]) << np.uint64(bits)
            at += 1
            bits += 16
        widths[k] = pending & np.uint64(31)
        total += widths[k]
        pending >>= np.uint64(5)
        bits -= 5
    return total
