"""Plain values on a GPU: reduced and divided to the bits that NumPy gives."""

from __future__ import annotations

import cupy

from zccl.codecs.device_tiles import rows_of
from zccl.device import DeviceArray
from zccl.kernels.cuda.rows import Rows
from zccl.ops import Op

_OPS = {
    Op.SUM: Rows.PLAIN_SUM,
    Op.AVG: Rows.PLAIN_SUM,
    Op.MAX: Rows.PLAIN_MAX,
    Op.MIN: Rows.PLAIN_MIN,
}


def reduce_floats(op: Op, a: DeviceArray, b: DeviceArray) -> DeviceArray:
    """Reduce two arrays of float32 or float64 element by element, as `reduce_plain` says."""
    a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
    out = cupy.empty(a.shape, a.dtype)
    _run(_OPS[op], a, b, 1.0, out)
    return out


def divide_floats(a: DeviceArray, divisor: float) -> DeviceArray:
    """Divide an array of float32 or float64; NaN results have no payload."""
    a = cupy.ascontiguousarray(a)
    out = cupy.empty(a.shape, a.dtype)
    _run(Rows.PLAIN_QUOTIENT, a, a, divisor, out)
    return out


def _run(op: int, a: DeviceArray, b: DeviceArray, divisor: float, out: DeviceArray) -> None:
    if not a.size:
        return
    stream = int(cupy.cuda.get_current_stream().ptr)
    kernels = rows_of(cupy.cuda.runtime.getDevice(), a.dtype)
    kernels.plain(op, a.data.ptr, b.data.ptr, a.size, divisor, out.data.ptr)(stream)
