"""Lists of escaped values in a record (docs/format.md sections 4 and 7).

An entry is [index | (length - 1) << 10, rank, stand-in, value]: a run of neighbours with one value
and one stand-in.
"""

import numpy as np

from zccl.kernels.cpu._compile import helper
from zccl.kernels.cpu.memory import load_32, store_32
from zccl.kernels.cpu.record import entry_nwords, get_code, put_code


@helper
def run_length(places, escaped, bits, value_words, k):
    """Length of the run of neighbours with the same bits that starts with escape k.

    `places` are the places of the escaped values, ascending, `bits` the words of all values.
    """
    start = places[k]
    length = 1
    while k + length < escaped and places[k + length] == start + length:
        for i in range(value_words):
            if bits[value_words * (start + length) + i] != bits[value_words * start + i]:
                return length
        length += 1
    return length


@helper
def count_entries(places, escaped, bits, value_words):
    """Return the number of entries that the escapes of a tile take."""
    entries = 0
    k = 0
    while k < escaped:
        k += run_length(places, escaped, bits, value_words, k)
        entries += 1
    return entries


@helper
def put_entries(places, escaped, bits, value_words, base, low, rank, entries, at):
    """Write the list of a tile's escapes, its length first.

    `low` are the low halves of the chain behind that of the base: codes are never far from it.
    Returns the words of the list.
    """
    store_32(at, np.int32(entries))
    start = at
    at += 4
    k = 0
    while k < escaped:
        j = places[k]
        length = run_length(places, escaped, bits, value_words, k)
        store_32(at, np.int32(j | ((length - 1) << 10)))
        store_32(at + 4, np.int32(rank))
        stand_in = base + np.int64(np.int32(low[j + 1] - low[0]))
        put_code(at + 8, stand_in, value_words)
        for i in range(value_words):
            store_32(at + 8 + 4 * (value_words + i), np.int32(bits[value_words * j + i]))
        at += 4 * entry_nwords(value_words)
        k += length
    return (at - start) // 4


@helper
def _key(at):
    """Order of an entry: by rank, then by index."""
    return (np.int64(np.uint32(load_32(at + 4))) << 10) | (np.int64(load_32(at)) & 1023)


@helper
def merge_entries(at_a, count_a, at_b, count_b, value_words, at):
    """Merge two lists in the order of (rank, index) and write the result, its length first.

    Returns its words.
    """
    size = entry_nwords(value_words)
    store_32(at, np.int32(count_a + count_b))
    start = at
    at += 4
    while count_a or count_b:
        from_a = count_b == 0 or (count_a > 0 and _key(at_a) <= _key(at_b))
        source = at_a if from_a else at_b
        for i in range(size):
            store_32(at + 4 * i, load_32(source + 4 * i))
        if from_a:
            at_a += 4 * size
            count_a -= 1
        else:
            at_b += 4 * size
            count_b -= 1
        at += 4 * size
    return (at - start) // 4


@helper
def entry_run(at):
    """Run (start, stop) of an entry."""
    word = np.int64(np.uint32(load_32(at)))
    start = word & 1023
    return start, start + 1 + (word >> 10)


@helper
def entry_value(at, value_words, one):
    """Value of an entry as float64; `one` is an array of a single value, used to read the bits."""
    bits = one.view(np.uint32)
    for i in range(value_words):
        bits[i] = np.uint32(load_32(at + 8 + 4 * (value_words + i)))
    return np.float64(one[0])


@helper
def apply_entries(at, entries, value_words, one, codes, step, sums):
    """Sum up the elements of a tile that escaped somewhere, as float64 values in `sums`.

    `codes` are the codes of the tile; stand-ins are taken out of them. Other elements of `sums` are
    left alone.
    """
    size = 4 * entry_nwords(value_words)
    for e in range(entries):
        start, stop = entry_run(at + e * size)
        stand_in = get_code(at + e * size + 8, value_words)
        for j in range(start, stop):
            codes[j] -= stand_in
    for e in range(entries):
        start, stop = entry_run(at + e * size)
        for j in range(start, stop):
            # Nothing is added to values that stand alone, so that -0.0 stays what it is.
            sums[j] = np.float64(codes[j]) * step if codes[j] else -0.0
    for e in range(entries):
        start, stop = entry_run(at + e * size)
        value = entry_value(at + e * size, value_words, one)
        for j in range(start, stop):
            sums[j] += value
