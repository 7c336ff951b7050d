"""The checksum of docs/format.md section 5."""

import numpy as np

from zccl.formats import NWORDS_BITS, OFFSET_BITS, TILE
from zccl.kernels.cpu._compile import helper, kernel

K32 = np.uint32(0x9E3779B1)
K64 = np.uint64(0x9E3779B97F4A7C15)


@helper
def tile_checksum(words, first, nwords, kind, tile):
    """Return what the record of one tile adds to the checksum."""
    total = np.uint64(kind) * np.uint64(K32) + np.uint64(nwords)
    record = words[first : first + nwords]
    for i in range(record.size):
        multiplier = np.uint32(np.uint32(i + 1) * K32) | np.uint32(1)
        total += np.uint64(record[i]) * np.uint64(multiplier)
    return total * ((np.uint64(tile) * K64) | np.uint64(1))


@kernel
def words_checksum(words, kind):
    """Checksum of plain words, taken as tiles of 1024 words of one kind."""
    total = np.uint64(0)
    for first in range(0, words.size, TILE):
        total += tile_checksum(words, first, min(TILE, words.size - first), kind, first // TILE)
    return total


@kernel
def records_checksum(table, words):
    """Checksum of all records of a body whose lengths are right."""
    total = np.uint64(0)
    for tile in range(table.size):
        entry = table[tile]
        first = np.int64(entry & np.uint64(2**OFFSET_BITS - 1))
        nwords = np.int64((entry >> np.uint64(OFFSET_BITS)) & np.uint64(2**NWORDS_BITS - 1))
        kind = np.int64(entry >> np.uint64(OFFSET_BITS + NWORDS_BITS))
        total += tile_checksum(words, first, nwords, kind, tile)
    return total
