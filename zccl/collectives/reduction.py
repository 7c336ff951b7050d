"""The arguments of a reduction, checked on this rank, as rows of values or elements."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from zccl import errorbound
from zccl.algorithms.agreement import NO_RANGE, Facts, Terms
from zccl.arrays import (
    check_stream,
    contiguous_row,
    fill_number,
    from_values,
    given_array,
    given_result,
    is_on_device,
    is_plain,
    new_array,
    overlap,
    same_memory,
    to_values,
    value_dtype,
    values_target,
)
from zccl.codecs.ranges import finite_range
from zccl.codecs.sample import chosen_axes, rough, sample_ratio
from zccl.codecs.tiles import Tiles
from zccl.collectives.arguments import check_counts, check_root
from zccl.config import cpu_threads, overrides
from zccl.device import copy_to_device, copy_to_host, pinned_like
from zccl.ops import Op
from zccl.options import Options, effective_options
from zccl.plan import Plan, check_algorithm, even_split, settled_plan
from zccl.tiling import Tiling
from zccl.transport.mpi import MpiTransport
from zccl.typing import Array

_OPS = [(MPI.SUM, Op.SUM), (MPI.MAX, Op.MAX), (MPI.MIN, Op.MIN)]
_MPI_OPS = {Op.SUM: MPI.SUM, Op.AVG: MPI.SUM, Op.MAX: MPI.MAX, Op.MIN: MPI.MIN}
_INTEGER_OPS = (MPI.LAND, MPI.BAND, MPI.LOR, MPI.BOR, MPI.LXOR, MPI.BXOR)
_PAIR_OPS = (MPI.MAXLOC, MPI.MINLOC)
_REFUSED_OPS = (MPI.REPLACE, MPI.NO_OP, MPI.OP_NULL)


class Settings(NamedTuple):
    """The arguments of a reduction beside its buffers, as given."""

    collective: str
    op: MPI.Op | Op
    error_bound: float | None
    mode: str
    algorithm: str
    stream: object
    options: Options | None
    root: int | None = None  # None where all ranks get a result
    counts: Any = None  # of `reduce_scatter`


@dataclass(frozen=True, eq=False)
class Signature:
    """What is known of a reduction without its buffers; it must be equal on all ranks.

    Attributes
    ----------
    collective : str
        Its name.
    op : Op or MPI.Op
        An `Op` where zccl knows the operation itself.
    mpi_op : MPI.Op
        What MPI has for it.
    error_bound : float or None
        As given.
    algorithm : str
        As given, or as `ZCCL_ALGORITHM` overrides it.
    options : Options
        With the environment's overrides.
    root : int
        The rank that gets the result, where one does.
    shares : list of int or None
        Elements that each rank gets of the result; None where they get all.
    nbytes : int
        Of the array.
    dtype : dtype
        Of the row that the array is worked on as: values, else elements.
    componentwise : bool
        Whether that is a row of values.
    codable : bool
        Whether values may be quantised: a positive bound and a floating dtype.
    fill : float
        The named fill value; NaN for none.
    terms : Terms
        All of it in words.
    given_op : Op or MPI.Op
        The operation as it was given.
    """

    collective: str
    op: Op | MPI.Op
    mpi_op: MPI.Op
    error_bound: float | None
    mode: str
    algorithm: str
    options: Options
    root: int
    shares: list[int] | None
    nbytes: int
    dtype: np.dtype
    componentwise: bool
    codable: bool
    fill: float
    terms: Terms
    given_op: Op | MPI.Op

    def rank_step(self, size: int, low: float, high: float) -> float:
        """Return the grid step for values of this range; 0 where nothing is quantised."""
        assert isinstance(self.op, Op) and self.error_bound is not None
        bound = errorbound.absolute_bound(self.error_bound, self.mode, low, high)
        rank_bound = errorbound.rank_bound(bound, self.op, size, self.options.error_budget)
        return errorbound.grid_step(rank_bound, self.dtype)

    @functools.lru_cache(1024)  # noqa: B019  # there are few, and they are kept anyway
    def settled(self, size: int, fast: bool) -> Plan | None:
        """Return the plan where it does not depend on the values."""
        # MPI alone keeps the order that an operation which is not commutative needs.
        ordered = not isinstance(self.op, Op) and not self.op.Is_commutative()
        return settled_plan(
            self.algorithm, self.nbytes, size, codable=self.codable,
            exact=self.error_bound == 0 and not ordered, one_node=fast,
            reproducible=self.options.reproducible,
        )  # fmt: skip


# Checks cost more than a small message, and programs repeat their calls.
_known: dict[Any, Signature] = {}
MAX_KNOWN = 1024


def forget() -> None:
    """Forget what was checked, since the environment has changed."""
    _known.clear()


def signature(settings: Settings, array: Array, size: int) -> Signature:
    """Check the arguments of a reduction of `array` over `size` ranks; raises what is wrong."""
    collective, op, bound, mode, algorithm, stream, options, root, counts = settings
    if counts is not None or stream is not None:
        return _check(settings, array, size)
    key = (
        collective, id(op), bound, type(bound), mode, algorithm, options, root, type(root),
        array.dtype, array.shape, size,
    )  # fmt: skip
    try:
        found = _known.get(key)
    except TypeError:  # something unhashable, which the checks will name
        return _check(settings, array, size)
    # A freed operation is still the same object, but another one in value.
    if found is None or found.given_op is not op or op == MPI.OP_NULL:
        found = _check(settings, array, size)
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[key] = found
    return found


def _check(settings: Settings, array: Array, size: int) -> Signature:
    check_stream(settings.stream, is_on_device(array))
    options = effective_options(settings.options)
    algorithm = check_algorithm(
        settings.collective, settings.algorithm, overrides().get("algorithm")
    )
    bound = errorbound.check_error_bound(settings.error_bound)
    errorbound.check_mode(settings.mode)
    known = _check_op(settings.op, array.dtype, bound)
    arguments = {
        "collective": settings.collective,
        "dtype": str(array.dtype),
        "shape": str(array.shape),
        "op": _op_name(known),
        "error_bound": repr(bound),
        "mode": settings.mode,
        "algorithm": algorithm,
        "options": repr(options),
    }
    shares = None
    if settings.collective == "reduce_scatter":
        shares = even_split(array.size, size)
        if settings.counts is not None:
            shares = check_counts(settings.counts, "recvcounts", size, array.size)
        arguments["recvcounts"] = str(shares)
    root = 0
    if settings.root is not None:
        root = check_root(settings.root, size)
        arguments["root"] = str(root)
    values = value_dtype(array.dtype)
    componentwise = values is not None and (isinstance(known, Op) or array.dtype == np.float16)
    return Signature(
        settings.collective, known, _MPI_OPS[known] if isinstance(known, Op) else known,
        bound, settings.mode, algorithm, options, root, shares, array.nbytes,
        values if values is not None and componentwise else array.dtype, componentwise,
        values is not None and bool(bound), fill_number(options.fill_value, array.dtype),
        Terms.of(arguments), settings.op,
    )  # fmt: skip


class Reduction:
    """A reduction with its buffers, on this rank.

    Parameters
    ----------
    signature : Signature
        The arguments.
    send : ndarray
        What this rank puts in.
    result : ndarray or None
        The place for the result; None where this rank gets none.
    transport : MpiTransport
        Of the communicator.

    Attributes
    ----------
    source : 1-D ndarray
        `send` as a row of values or elements.
    target : 1-D ndarray or None
        A row for the result; `source` itself where the call is in place.
    in_place : bool
        Whether source and target are one.
    sent, filled : 1-D ndarray, Tiles or None
        Source and target, where they are coded in tiles along several axes: those.
    on_device : bool
        Whether they are on a GPU.
    """

    def __init__(
        self, signature: Signature, send: Array, result: Array | None, transport: MpiTransport
    ):
        self.signature = signature
        self.on_device = is_on_device(send)
        self._transport = transport
        self._result = result
        self._shape = send.shape
        self._element = send.dtype
        self.target: Array | None = None
        if signature.componentwise:
            self.source = to_values(send)
            if result is not None:
                self.target = values_target(result)
        else:
            self.source = contiguous_row(send)
            if result is not None:
                row = result if self.on_device else np.asarray(result)
                plain = is_plain(row)
                self.target = (
                    row.reshape(-1) if plain else new_array(row.size, self.source.dtype, like=send)
                )
        self.in_place = False
        if self.target is not None and overlap(self.source, self.target):
            self.in_place = same_memory(self.source, self.target)
            if not self.in_place:
                self.source = self.source.copy()
        self.sent, self.filled = self.source, self.target

    @property
    def settled(self) -> bool:
        """Whether the native collective is known to be best, whatever the values are."""
        fast = self._transport.is_fast(self.on_device)
        return self.signature.settled(self._transport.size, fast) is not None

    @property
    def counts_range(self) -> bool:
        """Whether the bound counts in the range of the values."""
        s = self.signature
        return s.codable and s.mode == "rel" and not self.settled

    def facts(self) -> Facts:
        """Return what this rank knows that all must."""
        s, transport = self.signature, self._transport
        settled = self.settled
        cores = cpu_threads(transport.local_size)
        ends = finite_range(self.source, s.fill, cores) if self.counts_range else NO_RANGE
        return Facts(
            ends, -math.inf, self.on_device, math.inf if settled else self._ratio(ends), settled,
            cores, transport.has_moved(self.on_device), self._axes(ends),
        )  # fmt: skip

    def _ratio(self, ends: tuple[float, float]) -> float:
        """Return the compression ratio to expect, where an algorithm is chosen by it."""
        s = self.signature
        if s.algorithm != "auto" or not s.codable or not self.source.size:
            return math.inf
        return rough(sample_ratio(self.source, s.rank_step(self._transport.size, *ends), s.fill))

    def _axes(self, ends: tuple[float, float]) -> int:
        """Return along how many axes tiles should be cut; rank 0 has a say."""
        s, size = self.signature, self._transport.size
        whole = s.collective in ("allreduce", "reduce")
        if self._transport.rank or not whole or not s.codable or self.settled:
            return 0
        step = s.rank_step(size, *ends)
        return chosen_axes(s.options.predictor, self.source, self._shape, step, s.fill, size)

    def cut(self, axes: int) -> None:
        """Cut source and target into tiles along so many axes, as `sent` and `filled`."""
        tiling = Tiling.of_array(self._element, self._shape, axes)
        self.sent = Tiles.of(self.source, tiling)
        self.filled = None if self.target is None else Tiles.of(self.target, tiling)

    @property
    def result(self) -> Array | None:
        """The array to be filled."""
        return self._result

    def on_host(self) -> HostTwin:
        """Return this reduction with its rows in the host's memory, for MPI's own collectives."""
        return HostTwin(self)

    def deliver(self) -> Array | None:
        """Put the target into the user's result and return that."""
        if self._result is None or self.target is None:
            return None
        if self.signature.componentwise:
            from_values(self.target, self._result)
        elif not overlap(self.target, self._result):
            result = self._result if self.on_device else np.asarray(self._result)
            result[...] = self.target.reshape(result.shape)
        return self._result


class HostTwin:
    """The rows of a reduction of device arrays, in pinned memory.

    Attributes
    ----------
    signature, source, target, in_place
        As of a `Reduction`.
    """

    def __init__(self, call: Reduction):
        self.signature = call.signature
        self.in_place = False
        self._call = call
        self.source = pinned_like(call.source)
        copy_to_host(call.source, self.source)
        self.target = None if call.target is None else pinned_like(call.target)

    def deliver(self) -> None:
        """Copy the result to the device, and wait for it."""
        if self._call.target is not None and self.target is not None:
            copy_to_device(self.target, self._call.target)


def given_input(sendbuf: Any, recvbuf: Any) -> Array:
    """Return the input, native byte order: `recvbuf` where `sendbuf` is MPI.IN_PLACE."""
    if sendbuf is not MPI.IN_PLACE:
        return given_array(sendbuf, "sendbuf")
    if recvbuf is None:
        raise ValueError(
            "recvbuf: got None, wanted the array to work on, since sendbuf is MPI.IN_PLACE"
        )
    return given_array(recvbuf, "recvbuf")


def result_like(send: Array, recvbuf: Any) -> Array:
    """Return the array for a result of the input's shape and dtype."""
    return given_result(recvbuf, "recvbuf", send.shape, send.dtype, is_on_device(send))


def _check_op(op: MPI.Op | Op, dtype: np.dtype, error_bound: float | None) -> Op | MPI.Op:
    """Return the operation as an `Op` where there is one."""
    if not isinstance(op, MPI.Op | Op):
        raise TypeError(
            f"op: got {type(op).__name__}, wanted an mpi4py.MPI.Op or zccl.SUM, AVG, MAX, MIN"
        )
    if op in _PAIR_OPS or op in _REFUSED_OPS:
        raise TypeError(
            "op: MAXLOC, MINLOC, REPLACE, NO_OP and OP_NULL do not work on arrays of numbers"
        )
    known = next((own for theirs, own in _OPS if op == theirs), op)
    if known in (Op.MAX, Op.MIN) and dtype.kind == "c":
        raise TypeError(
            f"op: {_op_name(known)} got dtype {dtype}, but complex numbers have no order"
        )
    if known is Op.AVG and dtype.kind not in "fc":
        raise TypeError(
            f"op: AVG got dtype {dtype}, wanted a floating dtype; convert the array first"
        )
    if known in _INTEGER_OPS and dtype.kind not in "iub":
        raise TypeError(
            f"op: a logical or bitwise operation got dtype {dtype}, wanted integers or bool"
        )
    if dtype.kind == "b" and known not in _INTEGER_OPS:
        raise TypeError(
            "op: got dtype bool, which has logical operations only; use MPI.LOR or MPI.LAND"
        )
    if not isinstance(known, Op):
        if error_bound:
            raise NotImplementedError(
                "op: an error bound works with SUM, AVG, MAX and MIN only; use"
                " error_bound=None for an exact result"
            )
        if dtype == np.float16 and not known.is_predefined:
            raise TypeError(
                "op: a user-defined operation got dtype float16, which MPI does not have"
            )
    return known


def _op_name(op: Op | MPI.Op) -> str:
    if isinstance(op, Op):
        return op.name
    names = ("PROD", "LAND", "BAND", "LOR", "BOR", "LXOR", "BXOR")
    return next((name for name in names if op == getattr(MPI, name)), "user-defined")
