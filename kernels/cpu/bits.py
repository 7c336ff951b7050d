"""Strings of bits in arrays of 32-bit words, from the lowest bit of the first word on."""

import numpy as np

from zccl.kernels.cpu._compile import helper


@helper
def append_bits(words, at, value, count):
    """Write up to 63 bits from bit `at` on, into words that are zero behind it."""
    done = 0
    while done < count:
        word, bit = (at + done) >> 5, (at + done) & 31
        take = min(32 - bit, count - done)
        piece = (value >> np.uint64(done)) & ((np.uint64(1) << np.uint64(take)) - np.uint64(1))
        words[word] = (words[word] if bit else np.uint32(0)) | np.uint32(piece << np.uint64(bit))
        done += take
    return at + count


@helper
def read_bits(words, at, end, count):
    """Read up to 64 bits from bit `at` on, as long as they lie before word `end`."""
    value = np.uint64(0)
    done = 0
    while done < count and (at + done) >> 5 < end:
        word, bit = (at + done) >> 5, (at + done) & 31
        take = min(32 - bit, count - done)
        piece = (np.uint64(words[word]) >> np.uint64(bit)) & (
            (np.uint64(1) << np.uint64(take)) - np.uint64(1)
        )
        value |= piece << np.uint64(done)
        done += take
    return value
