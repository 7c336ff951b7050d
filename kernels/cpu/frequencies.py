"""How often symbols occur, as the entropy coder sees it (docs/format.md section 8)."""

import numpy as np

from zccl.kernels.cpu._compile import helper, kernel
from zccl.kernels.cpu.bits import append_bits

CONTEXTS, SYMBOLS = 66, 256
M_BITS = 12
M = 1 << M_BITS
MAX_NWORDS = (CONTEXTS * (1 + 8 + SYMBOLS * (2 * M_BITS + 1)) + 31) // 32  # of a frequency string


@helper
def correct_sum(f, total):
    """Make frequencies sum up to M: the largest gives or gets, the first of equal ones."""
    while total != M:
        largest = 0
        for s in range(SYMBOLS):
            if f[s] > f[largest]:
                largest = s
        change = 1 if total < M else -1
        f[largest] += change
        total += change


@kernel
def normalise(counts, frequencies):
    """Turn the counts of each context into frequencies.

    Parameters
    ----------
    counts : int64 array of one row of 256 a context
    frequencies : int64 array of the same shape, written: rows of zeros or of the sum 4096
    """
    for c in range(CONTEXTS):
        total = counts[c].sum()
        frequencies[c] = 0
        if total == 0:
            continue
        found = 0
        for s in range(SYMBOLS):
            if counts[c, s]:
                frequencies[c, s] = max(1, (counts[c, s] * M + total // 2) // total)
                found += frequencies[c, s]
        correct_sum(frequencies[c], found)


@helper
def bit_count(value):
    """Bits of a positive number."""
    bits = 0
    while value >> bits:
        bits += 1
    return bits


@kernel
def write_frequencies(frequencies, words):
    """Write the frequencies as a string of bits.

    Parameters
    ----------
    frequencies : as `normalise` made them
    words : uint32 array, `MAX_NWORDS` long, written

    Returns
    -------
    Words of the string.
    """
    at = 0
    for c in range(CONTEXTS):
        at = append_bits(words, at, np.uint64(frequencies[c].any()), 1)
    for c in range(CONTEXTS):
        if not frequencies[c].any():
            continue
        top = SYMBOLS - 1
        while frequencies[c, top] == 0:
            top -= 1
        at = append_bits(words, at, np.uint64(top), 8)
        for s in range(top + 1):
            value = frequencies[c, s] + 1
            g = bit_count(value) - 1
            low = value - (np.int64(1) << g)
            at = append_bits(words, at, np.uint64((low << (g + 1)) | (1 << g)), 2 * g + 1)
    return (at + 31) // 32


@helper
def get_bits(words, at, count):
    """Read bits from bit `at` on; ones behind the end, which no sound string has."""
    value = np.int64(0)
    for k in range(count):
        word = (at + k) >> 5
        bit = np.int64(1)
        if word < words.size:
            bit = np.int64((words[word] >> np.uint32((at + k) & 31)) & np.uint32(1))
        value |= bit << k
    return value


@helper
def read_context(words, at, symbols, f):
    """Read one context's frequencies; returns the bit behind them, -1 when they are unsound."""
    top = get_bits(words, at, 8)
    at += 8
    if top >= symbols:
        return -1
    total = 0
    for s in range(top + 1):
        g = 0
        while g <= M_BITS and get_bits(words, at, 1) == 0:
            g += 1
            at += 1
        if g > M_BITS:
            return -1
        f[s] = (np.int64(1) << g) + get_bits(words, at + 1, g) - 1
        at += 1 + g
        total += f[s]
    return at if total == M and f[top] else -1


@helper
def alphabet(context):
    """Symbols that a context can have."""
    if context == 0:
        return 64
    if context == 1:
        return 65
    if context < 35:
        return 32
    return 1 << min(context - 34, 8)


@kernel
def read_frequencies(words, frequencies):
    """Read and check a frequency string, all of `words`.

    Returns
    -------
    Whether it is sound.
    """
    frequencies[:] = 0
    at = np.int64(CONTEXTS)
    for c in range(CONTEXTS):
        if get_bits(words, c, 1):
            at = read_context(words, at, alphabet(c), frequencies[c])
            if at < 0:
                return False
    if (at + 31) // 32 != words.size:
        return False
    return get_bits(words, at, 32 * words.size - at) == 0


@kernel
def fill_encoder(frequencies, pairs):
    """Pack each symbol's frequency and the sum of those before it: f | F << 13."""
    for c in range(CONTEXTS):
        before = 0
        for s in range(SYMBOLS):
            pairs[c, s] = np.uint32(frequencies[c, s] | (before << 13))
            before += frequencies[c, s]


@kernel
def fill_sums(frequencies, starts, sums, coarse):
    """Make the tables that GPUs decode with (kernels/cuda/entropy.py).

    Parameters
    ----------
    frequencies : as `read_frequencies` made them
    starts : where the symbols of each context start among all
    sums : uint16 array, written: of each context the sums of the frequencies before each symbol and
        behind the last one; 65535 first where a context occurs nowhere
    coarse : uint8 array of 128 a context, written: the symbol of every 32nd slot
    """
    for c in range(CONTEXTS):
        at = starts[c] + c
        size = alphabet(c)
        total = 0
        for s in range(size):
            sums[at + s] = total
            total += frequencies[c, s]
        sums[at + size] = M
        if total == 0:
            sums[at] = 0xFFFF
        s = 0
        for k in range(128):
            while s < size - 1 and sums[at + s + 1] <= 32 * k:
                s += 1
            coarse[128 * c + k] = s if total else 0


@kernel
def fill_decoder(frequencies, slots):
    """Pack for each slot: symbol | (f - 1) << 8 | (slot - F) << 20; contexts without any: zeros."""
    for c in range(CONTEXTS):
        at = 0
        for s in range(SYMBOLS):
            f = frequencies[c, s]
            for k in range(f):
                slots[c, at + k] = np.uint32(s) | np.uint32((f - 1) << 8) | np.uint32(k << 20)
            at += f
