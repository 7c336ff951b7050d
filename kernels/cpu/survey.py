"""What a coded stream is made of, without decoding it."""

import numpy as np

from zccl.formats import BLOCKS, TILE
from zccl.kernels.cpu._compile import kernel
from zccl.kernels.cpu.escapes import entry_run
from zccl.kernels.cpu.record import MAX_RECORD_NWORDS, entry_nwords, open_record
from zccl.kernels.cpu.stages import OVERRUN


@kernel
def survey_tiles(table, words, nwords, n, value_words, kinds):
    """Count tiles by kind into `kinds` (int64[64]).

    Returns the number of escaped values, -1 for a damaged stream.
    """
    widths = np.empty(BLOCKS, np.uint8)
    spare = np.empty(MAX_RECORD_NWORDS + OVERRUN, np.uint32)
    escapes = 0
    for tile in range(table.size):
        m = min(TILE, n - TILE * tile)
        record = open_record(table[tile], words, nwords, m, value_words, widths, spare)
        if record.nwords < 0:
            return -1
        kinds[record.kind] += 1
        at = record.escapes
        for _ in range(record.entries):
            start, stop = entry_run(at)
            escapes += stop - start
            at += 4 * entry_nwords(value_words)
    return escapes
