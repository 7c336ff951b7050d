"""`compress` and its relatives for arrays and streams on NVIDIA GPUs: the same bytes as on CPUs."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np

from zccl import errorbound
from zccl.arrays import fill_number, value_dtype
from zccl.codecs import container, device_packing
from zccl.codecs.device_tiles import DeviceTiles, plain_checksum
from zccl.codecs.ranges import largest_below
from zccl.codecs.sample import chosen_axes
from zccl.codecs.tiles import Body, Grid, Tiles, tile_count
from zccl.compression import coded_dtype, on_best_step, stream_tiling
from zccl.device import (
    DeviceArray,
    device_array,
    device_from_values,
    device_values,
    device_values_target,
)
from zccl.errors import StreamError
from zccl.formats import (
    CODED,
    CONSTANT,
    ENTROPY,
    EXACT,
    FIXED,
    MAX_CODE_BITS,
    MAX_HEADER_NBYTES,
    RAW,
    SAME,
    Header,
)
from zccl.ops import Op
from zccl.options import CODINGS, Options
from zccl.streams import on_stream


def compress(
    array: Any, bound: float | None, mode: str, options: Options, stream: Any
) -> DeviceArray:
    """Compress a device array; checked arguments, see `zccl.compress`."""
    array = device_array(array, "array")
    with on_stream(array, stream):
        header = Header(EXACT, array.dtype, array.shape)
        if bound and array.size and value_dtype(array.dtype) is not None:
            fill = fill_number(options.fill_value, array.dtype)
            values = device_values(array)
            tiles = DeviceTiles(values.dtype)
            low, high = tiles.finite_range(values, fill) if mode == "rel" else (0.0, 0.0)
            absolute = errorbound.absolute_bound(bound, mode, low, high)
            grid = Grid(errorbound.grid_step(absolute, values.dtype), absolute, fill=fill)
            header.axes = chosen_axes(options.predictor, values, array.shape, grid.step, fill)
            cut = Tiles.of(values, stream_tiling(header))
            coded = on_best_step(
                grid, array.dtype, cut.size, lambda g: tiles.encode(cut, g),
                lambda g: _largest_on(g, values),
            )  # fmt: skip
            may_be_constant = coded is None or coded[1].words.size <= _constant_nwords(cut.size)
            if may_be_constant and _is_constant(array):
                header.step = grid.step
            elif coded is not None:
                grid, body = coded
                parts = _packed(header, body, cut.size, values.dtype, options.coding)
                if sum(part.nbytes for part in parts) <= array.nbytes:
                    header.error_bound, header.step = grid.error_bound, grid.step
                    header.form, header.checksum = CODED, body.checksum
                    return _assemble(header, *parts)
                header.coding = FIXED
        header.axes = 1
        if _is_constant(array):
            header.form = CONSTANT
            return write_plain(header, array.reshape(-1)[:1])
        return write_plain(header, array)


def _packed(
    header: Header, body: Body, n: int, dtype: np.dtype, coding: str
) -> tuple[DeviceArray, ...]:
    """Return the parts of a body as they are stored, and set the coding."""
    packed = device_packing.pack(body, n, dtype) if coding == "entropy" else None
    if packed is None:
        return body.table, body.words
    header.coding = ENTROPY
    return (packed,)


def _coded_body(header: Header, body: DeviceArray, n: int) -> Body:
    """Return table and records of a coded stream's body."""
    if header.coding == FIXED:
        return container.coded_body(header, body, n)
    if len(body) % 4 or not header.step:
        raise StreamError("damaged stream: the body does not fit")
    found = device_packing.unpack(body.view(np.uint32), n, coded_dtype(header))
    return Body(found.table, found.words, header.checksum)


def _constant_nwords(n: int) -> int:
    """Return the most words that the records of a constant array of n values have.

    A tile of one code, or of one escaped value, takes at most four; in complex arrays one tile has
    both components.
    """
    return 4 * tile_count(n) + 32


def _largest_on(grid: Grid, values: DeviceArray) -> float:
    return largest_below(values, 2.0 ** MAX_CODE_BITS[values.dtype.str[1:]] * grid.step)


def _is_constant(array: DeviceArray) -> bool:
    """Whether all elements (at least one) have the same bits."""
    if not array.size:
        return False
    unit = min(array.itemsize, 8)
    bits = cupy.ascontiguousarray(array).reshape(-1).view(f"u{unit}")
    bits = bits.reshape(array.size, -1)
    return bool((bits == bits[0]).all())


def _assemble(header: Header, *parts: DeviceArray) -> DeviceArray:
    """Join a header and the parts of a body, each padded to 32-bit words."""
    header.nbytes = header.header_nbytes + sum(-(-part.nbytes // 4) * 4 for part in parts)
    stream = cupy.empty(header.nbytes, np.uint8)
    at = header.header_nbytes
    stream[:at] = cupy.asarray(np.frombuffer(header.pack(), np.uint8))
    for part in parts:
        stream[at : at + part.nbytes] = cupy.ascontiguousarray(part).reshape(-1).view(np.uint8)
        end = at + -(-part.nbytes // 4) * 4
        stream[at + part.nbytes : end] = 0
        at = end
    return stream


def write_plain(header: Header, elements: DeviceArray) -> DeviceArray:
    """Write plain elements as a stream."""
    padded = cupy.zeros(-(-elements.nbytes // 4) * 4, np.uint8)
    padded[: elements.nbytes] = cupy.ascontiguousarray(elements).reshape(-1).view(np.uint8)
    header.checksum = _plain_checksum(padded, header.form)
    return _assemble(header, padded)


def _plain_checksum(body: DeviceArray, form: int) -> int:
    return plain_checksum(body.view(np.uint32), RAW | SAME if form == CONSTANT else RAW)


def read(stream: Any) -> tuple[Header, DeviceArray]:
    """Split a stream on the device into its header, checked, and its body, aligned."""
    data = device_array(stream, "stream")
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
        raise TypeError("stream: wanted a contiguous row of uint8")
    head = data[:MAX_HEADER_NBYTES].get()
    header = Header.unpack(head.data, data.size)
    body = data[header.header_nbytes :]
    return header, body if body.data.ptr % 8 == 0 else body.copy()


def _plain_elements(header: Header, body: DeviceArray) -> DeviceArray:
    nbytes = (header.count if header.form == EXACT else 1) * header.dtype.itemsize
    if body.size != -(-nbytes // 4) * 4 or (header.form == CONSTANT and header.count < 1):
        raise StreamError("damaged stream: the body has the wrong length")
    if _plain_checksum(body, header.form) != header.checksum:
        raise StreamError("damaged stream: the checksum is wrong")
    elements = body[:nbytes]
    if elements.data.ptr % header.dtype.itemsize:  # the device wants whole elements aligned
        elements = elements.copy()
    return elements.view(header.dtype)


def _new_array(header: Header) -> DeviceArray:
    try:
        return cupy.empty(header.shape, header.dtype)
    except (MemoryError, ValueError, cupy.cuda.memory.OutOfMemoryError) as error:
        raise StreamError(
            f"the stream announces an array of shape {header.shape}, which cannot be allocated"
        ) from error


def _check_out(out: Any, header: Header) -> None:
    if not isinstance(out, cupy.ndarray):
        raise TypeError(f"out: got {type(out).__name__}, wanted a CuPy array, as the stream is")
    if out.dtype != header.dtype:
        raise TypeError(f"out: got dtype {out.dtype}, wanted {header.dtype}")
    if out.shape != header.shape:
        raise ValueError(f"out: got shape {out.shape}, wanted {header.shape}")


def decompress(data: Any, out: Any, stream: Any) -> DeviceArray:
    """Decompress a stream on the device, see `zccl.decompress`."""
    with on_stream(device_array(data, "stream"), stream):
        header, body = read(data)
        if out is not None:
            _check_out(out, header)
        target = _new_array(header) if out is None else out
        if header.form != CODED:
            elements = _plain_elements(header, body)
            target[...] = elements.reshape(header.shape) if header.form == EXACT else elements[0]
            return target
        values = device_values_target(target)
        tiles = DeviceTiles(coded_dtype(header))
        cut = Tiles.of(values, stream_tiling(header))
        coded = _coded_body(header, body, cut.size)
        tiles.decode(coded, header.step, cut, reduced=header.contributors > 1)
        device_from_values(values, target)
        return target


def combine(
    parts: list[tuple[Header, DeviceArray]], header: Header, op: Op, step: float
) -> DeviceArray:
    """Reduce the coded bodies of two streams on one grid; `header` is that of the result."""
    dtype = coded_dtype(header)
    n = stream_tiling(header).n
    tiles = DeviceTiles(dtype)
    bodies = []
    for head, body in parts:
        if head.form == CODED:
            bodies.append(_coded_body(head, body, n))
        else:
            element = cupy.full(head.shape, _plain_elements(head, body)[0], head.dtype)
            grid = Grid(step, 0.0, movement=False, fill=math.nan)
            cut = Tiles.of(device_values(element), stream_tiling(header))
            bodies.append(tiles.encode(cut, grid)[0])
    total = tiles.combine(bodies[0], bodies[1], op, n, step, header.axes)
    header.form, header.checksum = CODED, total.checksum
    coding = CODINGS[max(head.coding for head, _ in parts)]
    return _assemble(header, *_packed(header, total, n, dtype, coding))
