"""What a coded stream is made of, without decoding it."""

import numpy as np

from zccl.formats import BLOCKS, RAW, TILE
from zccl.kernels.cpu._compile import kernel
from zccl.kernels.cpu.escapes import entry_nwords, entry_run
from zccl.kernels.cpu.record import open_record


@kernel
def survey_tiles(table, words, nwords, n, value_words, kinds):
    """Count tiles by kind into `kinds` (int64[64]).

    Returns the number of escaped values, -1 for a damaged stream.
    """
    widths = np.empty(BLOCKS, np.uint8)
    escapes = 0
    for tile in range(table.size):
        m = min(TILE, n - TILE * tile)
        first, _, kind, _, _, entries, at = open_record(
            table[tile], words, nwords, m, value_words, widths
        )
        if first < 0:
            return -1
        kinds[kind] += 1
        if kind & RAW:
            continue
        for _ in range(entries):
            start, stop = entry_run(words, at, m)
            if stop == 0:
                return -1
            escapes += stop - start
            at += entry_nwords(value_words)
    return escapes
