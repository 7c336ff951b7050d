"""Lists of escaped values in a record (docs/format.md sections 4 and 7).

An entry is [index | (length - 1) << 10, rank, stand-in, value]: a run of neighbours with one value
and one stand-in.
"""

import numpy as np

from zccl.kernels.cpu._compile import helper
from zccl.kernels.cpu.record import entry_nwords, get_code, put_code


@helper
def run_length(good, bits, value_words, start):
    """Length of the run of equal escaped values that starts at `start`.

    `bits` are the words of the values.
    """
    m = good.size
    stop = start + 1
    while stop < m and not good[stop]:
        for i in range(value_words):
            if bits[value_words * stop + i] != bits[value_words * start + i]:
                return stop - start
        stop += 1
    return stop - start


@helper
def count_entries(good, bits, value_words):
    """Return the number of entries that the escapes of a tile take."""
    entries = 0
    j = 0
    while j < good.size:
        if good[j]:
            j += 1
        else:
            j += run_length(good, bits, value_words, j)
            entries += 1
    return entries


@helper
def put_entries(good, bits, value_words, codes, rank, entries, words, at):
    """Write the list of a tile's escapes, its length first.

    `codes` is the chain. Returns its words.
    """
    words[at] = np.uint32(entries)
    start = at
    at += 1
    j = 0
    while j < good.size:
        if good[j]:
            j += 1
            continue
        length = run_length(good, bits, value_words, j)
        words[at] = np.uint32(j | ((length - 1) << 10))
        words[at + 1] = np.uint32(rank)
        put_code(words, at + 2, codes[j], value_words)
        for i in range(value_words):
            words[at + 2 + value_words + i] = bits[value_words * j + i]
        at += entry_nwords(value_words)
        j += length
    return at - start


@helper
def merge_entries(words_a, at_a, count_a, words_b, at_b, count_b, value_words, words, at):
    """Merge two lists in the order of (rank, index) and write the result, its length first.

    Returns its words.
    """
    size = entry_nwords(value_words)
    words[at] = np.uint32(count_a + count_b)
    start = at
    at += 1
    a = 0
    b = 0
    while a < count_a or b < count_b:
        from_a = b == count_b
        if a < count_a and b < count_b:
            key_a = (np.int64(words_a[at_a + 1]) << 10) | (np.int64(words_a[at_a]) & 1023)
            key_b = (np.int64(words_b[at_b + 1]) << 10) | (np.int64(words_b[at_b]) & 1023)
            from_a = key_a <= key_b
        if from_a:
            for i in range(size):
                words[at + i] = words_a[at_a + i]
            at_a += size
            a += 1
        else:
            for i in range(size):
                words[at + i] = words_b[at_b + i]
            at_b += size
            b += 1
        at += size
    return at - start


@helper
def entry_run(words, at, m):
    """Run (start, stop) of an entry; (0, 0) when it does not lie in the tile."""
    start = np.int64(words[at] & np.uint32(1023))
    stop = start + 1 + np.int64(words[at] >> np.uint32(10))
    if stop > m:
        return np.int64(0), np.int64(0)
    return start, stop


@helper
def entry_value(words, at, value_words, one):
    """Value of an entry as float64; `one` is an array of a single value, used to read the bits."""
    bits = one.view(np.uint32)
    for i in range(value_words):
        bits[i] = words[at + 2 + value_words + i]
    return np.float64(one[0])


@helper
def apply_entries(words, at, entries, m, value_words, one, codes, step, sums):
    """Add a list of escapes to the sums of a tile.

    `codes` are the codes of the tile (changed: stand-ins are taken out), `sums` its values as
    float64, already set for elements without escapes. Returns False when the list is damaged (a
    place outside the tile, ranks out of order).
    """
    size = entry_nwords(value_words)
    last_rank = np.int64(-1)
    for e in range(entries):
        start, stop = entry_run(words, at + e * size, m)
        rank = np.int64(words[at + e * size + 1])
        if stop == 0 or rank < last_rank:
            return False
        last_rank = rank
        stand_in = get_code(words, at + e * size + 2, value_words)
        for j in range(start, stop):
            codes[j] -= stand_in
    for e in range(entries):
        start, stop = entry_run(words, at + e * size, m)
        for j in range(start, stop):
            sums[j] = np.float64(codes[j]) * step
    for e in range(entries):
        start, stop = entry_run(words, at + e * size, m)
        value = entry_value(words, at + e * size, value_words, one)
        for j in range(start, stop):
            sums[j] += value
    return True
