"""Device arrays and the CUDA kernels, called like kernels/spec.py. Skips where there is no GPU."""

import math

import numpy as np
import pytest

from zccl.kernels import spec

POISON = 0xDEADBEEF
GUARD = 1000  # words behind the room for records


def why_not():
    """Return why the tests of this folder cannot run, or None."""
    try:
        import cupy

        from zccl.kernels.cuda import rows  # noqa: F401
    except ImportError as error:
        return f"needs CuPy and numba-cuda: {error}"
    try:
        return None if cupy.cuda.runtime.getDeviceCount() else "needs an NVIDIA GPU: none found"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"needs an NVIDIA GPU: {error}"


def max_nwords(n, dtype):
    """Return the most words that n values take: as many as raw, more for a short tile."""
    raw = n * np.dtype(dtype).itemsize // 4
    last = n % 1024 * np.dtype(dtype).itemsize // 4
    return raw - last + max(last + 32, 256) if last else raw


class Device:
    """The kernels for one value type, on NumPy arrays that are copied there and back."""

    def __init__(self, dtype):
        import cupy

        from zccl.kernels.cuda import rows

        self.cupy, self.module = cupy, rows
        self.dtype = np.dtype(dtype)
        self.rows = rows.Rows(self.dtype)
        self.work = cupy.zeros(1 << 22, np.uint8)
        self.result = cupy.zeros(64, np.int64)

    def room(self, n):
        """Return a table and words with a guard behind them."""
        cupy = self.cupy
        words = cupy.full(max_nwords(n, self.dtype) + GUARD, POISON, np.uint32)
        return cupy.zeros(max(-(-n // 1024), 1), np.uint64), words

    def upload(self, array, shift=0):
        """Copy an array to the device, `shift` elements behind an aligned address."""
        room = self.cupy.zeros(array.size + shift + 4, array.dtype)
        room[shift : shift + array.size] = self.cupy.asarray(array)
        return room[shift : shift + array.size]

    def run(self, sequence):
        """Run a sequence; returns its result as Python integers."""
        self.result[:] = -1
        sequence(self.cupy.cuda.get_current_stream().ptr)
        nwords, checksum, status, raw = self.result[:4].get().tolist()
        assert not self.work[:512].any(), "the work area is not clean"
        return nwords, checksum % 2**64, status, raw

    def finish(self, n, table, words, nwords, checksum):
        """Return the records in order as a body, ordered on the device and once more here."""
        assert (words[-GUARD:] == POISON).all(), "written behind the end"
        table_out, words_out = self.room(n)
        parts = self.cupy.zeros(self.module.order_nbytes(n), np.uint8)
        self.rows.order(
            n, table.data.ptr, words.data.ptr, parts.data.ptr, self.work.data.ptr,
            table_out.data.ptr, words_out.data.ptr,
        )(self.cupy.cuda.get_current_stream().ptr)  # fmt: skip
        assert not self.work[:512].any(), "the work area is not clean"
        assert (words_out[nwords:] == POISON).all(), "written behind the end"
        tiles = -(-n // 1024)
        body = spec.Body(table_out[:tiles].get(), words_out[:nwords].get(), checksum)
        by_hand = self.in_order(table[:tiles].get(), words.get())
        assert by_hand[0].tolist() == body.table.tolist(), "order on the device: table"
        assert by_hand[1].tobytes() == body.words.tobytes(), "order on the device: words"
        return body

    def compress(self, values, step, bound, *, movement, ranks=1, rank=0, fill=None, shift=0):
        """Compress; returns (body, number of raw values)."""
        n = values.size
        x = self.upload(values, shift)
        table, words = self.room(n)
        fill = math.nan if fill is None else fill
        nwords, checksum, status, raw = self.run(self.rows.compress(
            x.data.ptr, n, step, bound, movement, ranks, rank, fill, table.data.ptr,
            words.data.ptr, self.work.data.ptr, self.result.data.ptr,
        ))  # fmt: skip
        assert status == 0
        return self.finish(n, table, words, nwords, checksum), raw

    def upload_body(self, body):
        """Copy table and words to the device."""
        table = self.upload(body.table if body.table.size else np.zeros(1, np.uint64))
        return table, self.upload(np.append(body.words, np.uint32(POISON)))

    def decompress(self, body, n, step, *, divisor=1.0, reduced=False, shift=0):
        """Decompress; returns (values, status, checksum)."""
        table, words = self.upload_body(body)
        out = self.upload(np.full(n + 8, 77, self.dtype), shift)
        _, checksum, status, _ = self.run(self.rows.decompress(
            table.data.ptr, words.data.ptr, body.words.size, step, float(divisor), reduced,
            out.data.ptr, n, self.work.data.ptr, self.result.data.ptr,
        ))  # fmt: skip
        assert (out[n:] == 77).all(), "written behind the end"
        return out[:n].get(), status, checksum

    def verify(self, body, n):
        """Check a body; returns (status, checksum)."""
        table, words = self.upload_body(body)
        _, checksum, status, _ = self.run(self.rows.verify(
            n, table.data.ptr, words.data.ptr, body.words.size, self.work.data.ptr,
            self.result.data.ptr,
        ))  # fmt: skip
        return status, checksum

    def combine(self, a, b, op, n, step, *, keep_small=True):
        """Reduce two bodies; returns (body or None, status)."""
        operands = []
        for body in (a, b):
            table, words = self.upload_body(body)
            operands.append((table, words, body.words.size))
        table, words = self.room(n)
        nwords, checksum, status, _ = self.run(self.rows.combine(
            op, n, step, keep_small,
            operands[0][0].data.ptr, operands[0][1].data.ptr, operands[0][2],
            operands[1][0].data.ptr, operands[1][1].data.ptr, operands[1][2],
            table.data.ptr, words.data.ptr, self.work.data.ptr, self.result.data.ptr,
        ))  # fmt: skip
        assert (words[-GUARD:] == POISON).all(), "written behind the end"
        body = None if status else self.finish(n, table, words, nwords, checksum)
        return body, status

    def combine_with_values(self, values, b, op, step, *, ranks, rank, fill=None):
        """Reduce values and a body; returns (body or None, status, number of raw values)."""
        n = values.size
        x = self.upload(values)
        table_b, words_b = self.upload_body(b)
        table, words = self.room(n)
        own = self.cupy.zeros(self.rows.own_nbytes(n), np.uint8)
        fill = math.nan if fill is None else fill
        nwords, checksum, status, raw = self.run(self.rows.combine_with_values(
            op, x.data.ptr, n, step, ranks, rank, fill, own.data.ptr,
            table_b.data.ptr, words_b.data.ptr, b.words.size,
            table.data.ptr, words.data.ptr, self.work.data.ptr, self.result.data.ptr,
        ))  # fmt: skip
        assert (words[-GUARD:] == POISON).all(), "written behind the end"
        body = None if status else self.finish(n, table, words, nwords, checksum)
        return body, status, raw

    def value_range(self, values, fill=math.nan, shift=0):
        """Smallest and largest finite value."""
        x = self.upload(values, shift)
        self.rows.value_range(
            x.data.ptr, values.size, fill, self.work.data.ptr, self.result.data.ptr
        )(self.cupy.cuda.get_current_stream().ptr)
        assert not self.work[:512].any(), "the work area is not clean"
        return tuple(self.result[:2].get().view(np.float64).tolist())

    @staticmethod
    def in_order(table, words):
        """Return table and words with the records in the order of the tiles."""
        pieces, entries, end = [], [], 0
        for entry in table.tolist():
            first, nwords = entry % 2**40, entry >> 40 & 0xFFF
            pieces.append(words[first : first + nwords])
            entries.append(entry - first + end)
            end += nwords
        return np.array(entries, np.uint64), np.concatenate([np.empty(0, np.uint32), *pieces])


_devices = {}


@pytest.fixture
def device():
    """A function that returns the `Device` of a value type."""
    reason = why_not()
    if reason:
        pytest.skip(reason)

    def device_of(dtype):
        key = np.dtype(dtype)
        if key not in _devices:
            _devices[key] = Device(key)
        return _devices[key]

    return device_of
