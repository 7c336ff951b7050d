"""Compressed arrays outside a collective: compress, decompress, inspect and reduce streams."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from zccl import errorbound
from zccl.arrays import (
    check_stream,
    check_writeable,
    fill_number,
    from_values,
    host_array,
    to_values,
    value_dtype,
    values_target,
    writeable,
)
from zccl.codecs import container, packing, tiles
from zccl.codecs.plain import reduce_plain
from zccl.codecs.sample import chosen_axes
from zccl.codecs.tiles import Body, Grid, Tiles, Values
from zccl.config import cpu_threads
from zccl.device import device_array, is_device_array
from zccl.errors import StreamError
from zccl.formats import CODED, CONSTANT, EXACT, FORM_NAMES, MAX_CODE_BITS, RAW, SAME, ZERO, Header
from zccl.kernels.cpu.survey import survey_tiles
from zccl.kernels.cpu.value_range import largest_below, value_range
from zccl.ops import SUM, Op
from zccl.options import CODINGS, PREDICTORS, Options, effective_options
from zccl.tiling import Tiling
from zccl.typing import Array, Bytes

# More escapes than this share of the values are worth a second try with an aligned step.
ALIGN_ABOVE = 1 / 1024


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


AnyBody = TypeVar("AnyBody", bound=_Sized)


@dataclass(frozen=True)
class StreamInfo:
    """What a stream holds, as `zccl.inspect` tells.

    Attributes
    ----------
    form : str
        "coded", "constant" (one value for all) or "exact" (plain bytes).
    dtype, shape :
        Of the array.
    error_bound : float
        Absolute bound of the decoded values against the exact result; 0 for exact.
    step : float
        Grid step; 0 when there is no grid.
    contributors : int
        How many arrays were reduced into this one.
    tiles : dict of str to int
        Number of tiles that are "coded", "zero" (coded, one code for all), "raw" and "same" (one
        raw value).
    predictor : str
        "1d", "2d" or "3d": along which axes tiles are cut.
    coding : str
        "fixed" or "entropy".
    escapes : int
        Values that travel as they are inside coded tiles, counted once a contributor.
    nbytes : int
        Bytes of the stream.
    ratio : float
        Bytes of the array over bytes of the stream.
    """

    form: str
    dtype: np.dtype
    shape: tuple[int, ...]
    error_bound: float
    step: float
    contributors: int
    tiles: dict[str, int]
    predictor: str
    coding: str
    escapes: int
    nbytes: int
    ratio: float


def compress_bound(n: int, dtype: Any) -> int:
    """Return the most bytes that a stream of `n` elements of `dtype` can have.

    Parameters
    ----------
    n : int
        Number of elements.
    dtype : dtype-like
        Their dtype.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> from zccl import compress_bound
    >>> compress_bound(1000, "float32")
    4576
    """
    return container.max_stream_nbytes(int(n) * np.dtype(dtype).itemsize)


def compress(
    array: Any,
    error_bound: float | None,
    mode: str = "abs",
    *,
    stream: Any = None,
    options: Options | None = None,
) -> Bytes:
    """Compress an array so that each decoded element is within `error_bound` of its source.

    Parameters
    ----------
    array : ndarray, or device array
        Any shape, layout and byte order; float16, float32, float64, complex64, complex128, or an
        integer or bool dtype, which is stored exactly. On a GPU: a CuPy or Numba array, or anything
        with `__cuda_array_interface__` or DLPack.
    error_bound : float or None
        Largest absolute difference of an element (of each component of a complex one), in the unit
        of the array (`mode="abs"`) or as a fraction of its value range (`mode="rel"`). None and 0
        store it exactly.
    mode : {"abs", "rel"}
        What the bound counts in. The value range is the largest minus the smallest finite value, of
        both components together for complex arrays; a range of 0 stores the array exactly.
    stream : int, or a stream of CuPy, Numba or PyTorch, optional
        For arrays on a GPU: where the work is ordered; CuPy's current stream by default.
    options : Options, optional
        `fill_value`, `predictor` and `coding` are used.

    Returns
    -------
    ndarray of uint8, 1-D, a CuPy array for an array on a GPU
        A self-describing stream, at most `compress_bound(array.size, array.dtype)` bytes. NaN
        (payload included), infinities and whatever else the grid cannot hold come back bit for bit.

    Raises
    ------
    TypeError
        For something that is not an array, a masked array, or a dtype that zccl does not carry.
    ValueError
        For a negative, NaN or infinite bound, an unknown mode, or a value range that overflows.

    Examples
    --------
    >>> import numpy as np, zccl
    >>> x = np.linspace(0, 1, 100_000, dtype=np.float32)
    >>> stream = zccl.compress(x, 1e-3)
    >>> bool(np.abs(zccl.decompress(stream) - x).max() <= 1e-3), stream.nbytes < x.nbytes / 20
    (True, True)
    """
    bound = errorbound.check_error_bound(error_bound)
    errorbound.check_mode(mode)
    options = effective_options(options)
    if is_device_array(array):
        from zccl import device_compression

        return device_compression.compress(array, bound, mode, options, stream)
    check_stream(stream, device=False)
    array = host_array(array, "array")
    header = Header(EXACT, array.dtype, array.shape)
    if bound and array.size and value_dtype(array.dtype) is not None:
        values = to_values(array)
        grid = _grid(values, bound, mode, fill_number(options.fill_value, array.dtype))
        header.axes = chosen_axes(options.predictor, values, array.shape, grid.step, grid.fill)
        cut = Tiles.of(values, Tiling.of_array(array.dtype, array.shape, header.axes))
        if _is_constant(array):
            header.step = grid.step
        elif (coded := _compress_values(cut, grid, array.dtype)) is not None:
            grid, body = coded
            packed = _packed(body, cut.size, values.dtype, options.coding)
            if body.nbytes <= array.nbytes or packed is not None and packed.nbytes <= array.nbytes:
                header.error_bound, header.step = grid.error_bound, grid.step
                return container.write_coded(header, body, packed)
    header.axes = 1
    if _is_constant(array):
        header.form = CONSTANT
        return container.write_plain(header, array.reshape(-1)[:1])
    return container.write_plain(header, array)


def _packed(body: Body, n: int, dtype: np.dtype, coding: str) -> Array | None:
    """Return what the entropy coder makes of a body; None where that is not asked for or longer."""
    return packing.pack(body, n, dtype, cpu_threads()) if coding == "entropy" else None


def _grid(values: Array, bound: float, mode: str, fill: float) -> Grid:
    low, high = value_range(values, fill) if mode == "rel" else (0.0, 0.0)
    absolute = errorbound.absolute_bound(bound, mode, low, high)
    return Grid(errorbound.grid_step(absolute, values.dtype), absolute, fill=fill)


def _is_constant(array: Array) -> bool:
    """Whether all elements (at least one) have the same bits."""
    if not array.size:
        return False
    flat = array.reshape(-1)
    first = flat[:1].tobytes()
    if (
        flat[-1:].tobytes() != first
        or flat[array.size // 2 : array.size // 2 + 1].tobytes() != first
    ):
        return False
    elements = np.ascontiguousarray(flat).view(f"V{array.itemsize}")
    return bool(np.all(elements == elements[0]))


def on_best_step(
    grid: Grid,
    dtype: np.dtype,
    count: int,
    encode: Callable[[Grid], tuple[AnyBody, int]],
    largest_on: Callable[[Grid], float],
) -> tuple[Grid, AnyBody] | None:
    """Compress with an ordinary step and, where too many values escape, with an aligned one.

    Parameters
    ----------
    grid : Grid
        Of the ordinary step.
    dtype : dtype
        Of the array.
    count : int
        Number of values.
    encode : function of a grid
        Compresses them; returns the body and how many values escaped.
    largest_on : function of a grid
        Returns the largest absolute value that it can hold.

    Returns
    -------
    (Grid, body) or None
        The grid used and the body; None when there is no grid so fine.
    """
    if grid.step and dtype == np.float16:
        grid = replace(grid, step=errorbound.half_step(largest_on(grid), grid.error_bound))
    if not grid.step:
        return None
    body, escaped = encode(grid)
    if escaped > count * ALIGN_ABOVE and dtype != np.float16:
        values = value_dtype(dtype)
        assert values is not None
        step = errorbound.aligned_step(largest_on(grid), grid.error_bound, values)
        if step:
            aligned = replace(grid, step=step)
            second, _ = encode(aligned)
            if second.nbytes < body.nbytes:
                return aligned, second
    return grid, body


def _compress_values(values: Values, grid: Grid, dtype: np.dtype) -> tuple[Grid, Body] | None:
    return on_best_step(
        grid, dtype, values.size, lambda g: _encode(values, g), lambda g: _largest_on(g, values)
    )


def _largest_on(grid: Grid, values: Values) -> float:
    values = values.values if isinstance(values, Tiles) else values
    return largest_below(values, 2.0 ** MAX_CODE_BITS[values.dtype.str[1:]] * grid.step)


def _encode(values: Values, grid: Grid) -> tuple[Body, int]:
    table = np.empty(tiles.tile_count(values.size), np.uint64)
    words = np.empty(tiles.room_nwords(values.size, values.dtype), np.uint32)
    return tiles.encode(values, grid, table, words, cpu_threads())


def decompress(data: Any, out: Any = None, *, stream: Any = None) -> Array:
    """Decompress a stream.

    Parameters
    ----------
    data : ndarray of uint8, bytes or another contiguous buffer, or such a device array
        A whole stream of `compress` or `reduce_streams`.
    out : ndarray, optional
        Filled and returned; shape and dtype must be those of the stream, any layout and byte order.
        For a stream on a GPU a CuPy array.
    stream : int, or a stream of CuPy, Numba or PyTorch, optional
        For data on a GPU: the CUDA stream where the work is ordered.

    Returns
    -------
    ndarray, a CuPy array for data on a GPU
        The array, in C order and native byte order, or `out`.

    Raises
    ------
    StreamError
        When the stream is damaged, truncated or not a zccl stream; `out` then holds anything.
    TypeError, ValueError
        When `out` does not fit.

    Examples
    --------
    >>> import numpy as np, zccl
    >>> zccl.decompress(zccl.compress(np.float32([1, 2, 3]), 0.01)).shape
    (3,)
    """
    if is_device_array(data):
        from zccl import device_compression

        return device_compression.decompress(data, out, stream)
    check_stream(stream, device=False)
    header, body = container.read(_stream_bytes(data))
    if out is not None:
        check_writeable(out, "out", header.shape, header.dtype)
    if header.form == CODED:
        coded_dtype(header)  # refuses what is never coded
        tiling = stream_tiling(header)
        coded = container.coded_body(header, body, tiling.n, cpu_threads())
        target = _new_array(header) if out is None else out
        values = values_target(target)
        tiles.decode(
            coded,
            header.step,
            Tiles.of(values, tiling),
            reduced=header.contributors > 1,
            threads=cpu_threads(),
        )
        from_values(values, target)
    else:
        elements = container.plain_elements(header, body)
        target = _new_array(header) if out is None else out
        target[...] = elements.reshape(header.shape) if header.form == EXACT else elements[0]
    return target


def _new_array(header: Header) -> Array:
    """Allocate the array of a stream; a few forged bytes can announce one that is too large."""
    try:
        return np.empty(header.shape, header.dtype)
    except (MemoryError, ValueError) as error:
        raise StreamError(
            f"the stream announces an array of shape {header.shape}, which cannot be allocated"
        ) from error


def coded_dtype(header: Header) -> np.dtype:
    """Return the dtype of the values of a coded stream.

    Raises
    ------
    StreamError
        When an array of its dtype is never coded.
    """
    dtype = value_dtype(header.dtype)
    if dtype is None:
        raise StreamError(f"damaged stream: dtype {header.dtype} is never coded")
    return dtype


def stream_tiling(header: Header) -> Tiling:
    """Return how the array of a coded stream is cut into tiles."""
    return Tiling.of_array(header.dtype, header.shape, header.axes)


def _stream_bytes(stream: Any) -> Bytes:
    """Return a stream as uint8 at an address that allows 64-bit loads."""
    try:
        data = np.frombuffer(stream, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise TypeError(
            f"stream: wanted a contiguous buffer of bytes, got {type(stream).__name__}"
        ) from error
    return writeable(data) if data.ctypes.data % 8 == 0 else data.copy()


def inspect(stream: Bytes) -> StreamInfo:
    """Tell what a stream holds without decoding its values.

    Parameters
    ----------
    stream : ndarray of uint8, bytes or another contiguous buffer, or such a device array
        A whole stream; one on a GPU is copied to the host.

    Returns
    -------
    StreamInfo

    Raises
    ------
    StreamError
        When the header or a length is damaged. (The checksum of the body is only tested by
        `decompress`.)

    Examples
    --------
    >>> import numpy as np, zccl
    >>> zccl.inspect(zccl.compress(np.zeros(5000), 0.1)).form
    'constant'
    """
    if is_device_array(stream):
        stream = device_array(stream, "stream").get()
    header, body = container.read(_stream_bytes(stream))
    kinds = np.zeros(64, np.int64)
    escapes = 0
    if header.form == CODED:
        dtype = coded_dtype(header)
        n = stream_tiling(header).n
        coded = container.coded_body(header, body, n, cpu_threads())
        escapes = survey_tiles(
            coded.table, coded.words, coded.words.size, n, dtype.itemsize // 4, kinds
        )
        if escapes < 0:
            raise StreamError("damaged stream: a length is wrong")
    counts = {"coded": 0, "zero": 0, "raw": 0, "same": 0}
    for kind, number in enumerate(kinds.tolist()):
        name = (
            "same" if kind & SAME else "raw" if kind & RAW else "zero" if kind & ZERO else "coded"
        )
        counts[name] += number
    return StreamInfo(
        FORM_NAMES[header.form], header.dtype, header.shape, header.error_bound, header.step,
        header.contributors, counts, PREDICTORS[header.axes], CODINGS[header.coding], int(escapes),
        header.nbytes,
        header.count * header.dtype.itemsize / header.nbytes,
    )  # fmt: skip


def reduce_streams(a: Any, b: Any, op: Op = SUM, *, stream: Any = None) -> Bytes:
    """Reduce two streams into one without decoding what is coded on the same grid.

    Parameters
    ----------
    a, b : ndarray of uint8, bytes or another contiguous buffer, or two such device arrays
        Streams of arrays of the same dtype and shape. Coded streams must have the same step: the
        same bound, and neither with an aligned one (`zccl.inspect` shows the steps); and they must
        have the same predictor.
    op : zccl.SUM, zccl.MAX or zccl.MIN
        The reduction.
    stream : int, or a stream of CuPy, Numba or PyTorch, optional
        For data on a GPU: the CUDA stream where the work is ordered.

    Returns
    -------
    ndarray of uint8, 1-D, a CuPy array for data on a GPU
        A stream. Its error bound is the sum of the two bounds for SUM and the larger one otherwise,
        up to one rounding to the dtype; for elements that were not coded (`zccl.inspect`: raw
        tiles, exact streams) ordinary floating-point arithmetic applies.

    Raises
    ------
    StreamError
        When a stream is damaged.
    ValueError
        When the streams do not fit together.
    OverflowError
        When the codes of a sum outgrow the format.

    Examples
    --------
    >>> import numpy as np, zccl
    >>> x, y = np.float32([1, 2, 3, 4]), np.float32([5, 6, 7, 9])
    >>> total = zccl.reduce_streams(zccl.compress(x, 0.01), zccl.compress(y, 0.01))
    >>> bool(np.allclose(zccl.decompress(total), x + y, atol=0.02))
    True
    """
    if op not in (Op.SUM, Op.MAX, Op.MIN):
        raise ValueError(f"op: got {op!r}, wanted zccl.SUM, zccl.MAX or zccl.MIN")
    if is_device_array(a) and is_device_array(b):
        from zccl import device_compression

        with device_compression.on_stream(device_array(a, "a"), stream):
            parts = [device_compression.read(data) for data in (a, b)]
            step = _common_step(parts, op)
            if step:
                header = _reduced_header(parts, op, step)
                return device_compression.combine(parts, header, op, step)
            x, y = (device_compression.decompress(data, None, stream) for data in (a, b))
            exact = _reduced_header(parts, op, 0.0)
            return device_compression.write_plain(exact, reduce_plain(op, x, y))
    if is_device_array(a) or is_device_array(b):
        raise TypeError("streams: got one on a GPU and one on the host; copy one of them")
    check_stream(stream, device=False)
    parts = [container.read(_stream_bytes(data)) for data in (a, b)]
    step = _common_step(parts, op)
    return _reduce_coded(parts, op, step) if step else _reduce_plain(a, b, parts, op)


def _common_step(parts: list[tuple[Header, Any]], op: Op) -> float:
    """Return the step of the one grid that both streams are on, or can be put on; 0 for none.

    Raises
    ------
    ValueError
        When the streams do not fit together.
    """
    (head_a, _), (head_b, _) = parts
    if head_a.dtype != head_b.dtype or head_a.shape != head_b.shape:
        raise ValueError(
            f"streams differ: {head_a.dtype} {head_a.shape} against {head_b.dtype} {head_b.shape}"
        )
    if head_a.dtype.kind == "c" and op is not Op.SUM:
        raise TypeError("op: complex numbers have no order, so only zccl.SUM works on them")
    steps = {head.step for head, _ in parts if head.form == CODED}
    predictors = {head.axes for head, _ in parts if head.form == CODED}
    if len(predictors) > 1:
        raise ValueError(
            f"streams have different predictors ({PREDICTORS[head_a.axes]!r} and"
            f" {PREDICTORS[head_b.axes]!r}): compress both with one"
        )
    if len(steps) > 1:
        raise ValueError(
            f"streams have different steps ({head_a.step} and {head_b.step}):"
            " compress both with one bound"
        )
    return steps.pop() if _codable(parts, steps) else 0.0


def _codable(parts: list[tuple[Header, Any]], steps: set[float]) -> bool:
    """Whether both streams are, or can be put, on the one grid that is there."""
    return bool(steps) and all(
        h.form == CODED or (h.form == CONSTANT and h.step in steps) for h, _ in parts
    )


def _reduced_header(parts: list[tuple[Header, Any]], op: Op, step: float) -> Header:
    # A constant is put on the grid here: off by half a step, with the margin that rounding needs.
    bounds = [h.error_bound if h.form != CONSTANT else step * 0.501 for h, _ in parts]
    contributors = sum(h.contributors for h, _ in parts)
    if contributors >= 2**32:
        raise OverflowError(f"{contributors} arrays in one sum: the format counts to 2^32 - 1")
    head = parts[0][0]
    return Header(
        EXACT, head.dtype, head.shape, axes=max(h.axes for h, _ in parts) if step else 1,
        error_bound=min(sum(bounds) if op is Op.SUM else max(bounds), sys.float_info.max),
        step=step,
        contributors=contributors,
    )  # fmt: skip


def _reduce_coded(parts: list[tuple[Header, Bytes]], op: Op, step: float) -> Bytes:
    header = _reduced_header(parts, op, step)
    dtype = coded_dtype(header)
    tiling = stream_tiling(header)
    n = tiling.n
    bodies = []
    for head, body in parts:
        if head.form == CODED:
            bodies.append(container.coded_body(head, body, n, cpu_threads()))
        else:
            element = np.full(head.shape, container.plain_elements(head, body)[0])
            cut = Tiles.of(to_values(element), tiling)
            bodies.append(_encode(cut, Grid(step, 0.0, movement=False))[0])
    table = np.empty(tiles.tile_count(n), np.uint64)
    words = np.empty(tiles.room_nwords(n, dtype), np.uint32)
    x, y = bodies
    total = tiles.combine(x, y, op, n, dtype, step, table, words, False, cpu_threads(), header.axes)
    coding = CODINGS[max(head.coding for head, _ in parts)]
    return container.write_coded(header, total, _packed(total, n, dtype, coding))


def _reduce_plain(a: Bytes, b: Bytes, parts: list[tuple[Header, Bytes]], op: Op) -> Bytes:
    x, y = decompress(a), decompress(b)
    return container.write_plain(_reduced_header(parts, op, 0.0), reduce_plain(op, x, y))
