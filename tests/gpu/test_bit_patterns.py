"""All 2^32 float32 values there and back at several bounds: none outside its bound."""

import math

import numpy as np
import pytest

from zccl import errorbound

pytestmark = pytest.mark.gpu

CHUNK = 1 << 26


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bound", [1e-30, 1e-10, 1e-3, 1.0, 1e10])
def test_every_float32(device, bound):
    """Numbers keep the bound; NaN, with its payload, and infinities come back bit for bit."""
    gpu = device(np.float32)
    cupy, rows = gpu.cupy, gpu.rows
    step = errorbound.grid_step(bound, np.dtype(np.float32))
    table, words = gpu.room(CHUNK)
    out = cupy.empty(CHUNK, np.float32)
    stream = cupy.cuda.get_current_stream().ptr
    for first in range(0, 1 << 32, CHUNK):
        bits = cupy.arange(first, first + CHUNK, dtype=np.uint32)
        values = bits.view(np.float32)
        work = cupy.zeros(gpu.module.work_nbytes(CHUNK), np.uint8)
        rows.compress(
            values.data.ptr, CHUNK, step, bound, True, 1, 0, math.nan, table.data.ptr,
            words.data.ptr, work.data.ptr, gpu.result.data.ptr,
        )(stream)  # fmt: skip
        nwords, checksum, status, _ = gpu.result[:4].get().tolist()
        assert status == 0
        rows.decompress(
            table.data.ptr, words.data.ptr, nwords, step, 1.0, False, out.data.ptr, CHUNK,
            work.data.ptr, gpu.result.data.ptr,
        )(stream)  # fmt: skip
        _, found, status, _ = gpu.result[:4].get().tolist()
        assert (status, found) == (0, checksum)
        same = out.view(np.uint32) == bits
        error = cupy.abs(out.astype(np.float64) - values.astype(np.float64))
        assert bool((same | (error <= bound)).all()), f"from bit pattern {first:#x}"
