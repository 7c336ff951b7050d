"""The arguments of a reduction, checked on this rank, as rows of values or elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl import errorbound
from zccl.arrays import (
    check_writeable,
    from_values,
    host_array,
    is_plain,
    same_memory,
    to_values,
    value_dtype,
    values_target,
)
from zccl.config import environment, overrides
from zccl.ops import Op
from zccl.options import Options, effective_options
from zccl.plan import check_algorithm
from zccl.typing import Array

_OPS = [(MPI.SUM, Op.SUM), (MPI.MAX, Op.MAX), (MPI.MIN, Op.MIN)]
_INTEGER_OPS = (MPI.LAND, MPI.BAND, MPI.LOR, MPI.BOR, MPI.LXOR, MPI.BXOR)
_PAIR_OPS = (MPI.MAXLOC, MPI.MINLOC)
_REFUSED_OPS = (MPI.REPLACE, MPI.NO_OP, MPI.OP_NULL)


@dataclass(frozen=True)
class Signature:
    """What is known of a reduction without its buffers; it must be equal on all ranks.

    Attributes
    ----------
    op : Op or MPI.Op
        An `Op` where zccl knows the operation itself.
    error_bound : float or None
        As given.
    algorithm : str
        As given, or as `ZCCL_ALGORITHM` overrides it.
    options : Options
        With the environment's overrides.
    codable : bool
        Whether values may be quantised: a positive bound and a floating dtype.
    componentwise : bool
        Whether the array is worked on as a row of values, else as one of elements.
    arguments : dict of str to str
        All of it in words.
    """

    op: Op | MPI.Op
    error_bound: float | None
    mode: str
    algorithm: str
    options: Options
    codable: bool
    componentwise: bool
    arguments: dict[str, str]
    given_op: Op | MPI.Op

    @property
    def fill(self) -> float:
        """The named fill value; NaN for none."""
        return math.nan if self.options.fill_value is None else self.options.fill_value

    @property
    def wants_range(self) -> bool:
        """Whether the bound counts in the value range."""
        return self.codable and self.mode == "rel"


# Checks cost more than a small message, and programs repeat their calls.
_known: dict[Any, Signature] = {}
MAX_KNOWN = 1024


def signature(
    collective: str,
    array: Array,
    op: MPI.Op | Op,
    error_bound: float | None,
    mode: str,
    algorithm: str,
    options: Options | None,
) -> Signature:
    """Check the arguments of a reduction of `array`; raises what is wrong with them."""
    key = (
        collective, array.dtype, array.shape, id(op), error_bound, type(error_bound), mode,
        algorithm, options, overrides(),
    )  # fmt: skip
    try:
        found = _known.get(key)
    except TypeError:  # something unhashable, which the checks will name
        found = None
    # A freed operation is still the same object, but another one in value.
    if found is None or found.given_op is not op or op == MPI.OP_NULL:
        found = _check(collective, array, op, error_bound, mode, algorithm, options)
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[key] = found
    return found


def _check(
    collective: str,
    array: Array,
    op: MPI.Op | Op,
    error_bound: float | None,
    mode: str,
    algorithm: str,
    options: Options | None,
) -> Signature:
    options = effective_options(options)
    algorithm = check_algorithm(environment("algorithm") or algorithm)
    bound = errorbound.check_error_bound(error_bound)
    errorbound.check_mode(mode)
    known = _check_op(op, array.dtype, bound)
    floating = value_dtype(array.dtype) is not None
    arguments = {
        "collective": collective,
        "dtype": str(array.dtype),
        "shape": str(array.shape),
        "op": _op_name(known),
        "error_bound": repr(bound),
        "mode": mode,
        "algorithm": algorithm,
        "options": repr(options),
    }
    componentwise = floating and (isinstance(known, Op) or array.dtype == np.float16)
    return Signature(
        known,
        bound,
        mode,
        algorithm,
        options,
        floating and bool(bound),
        componentwise,
        arguments,
        op,
    )


class Reduction:
    """A reduction with its buffers; creating one raises what is wrong with them on this rank.

    Attributes
    ----------
    signature : Signature
        The arguments.
    source, target : 1-D ndarray
        What this rank puts in, and the place for the result; one and the same where the call is in
        place.
    """

    def __init__(
        self,
        collective: str,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op | Op,
        error_bound: float | None,
        mode: str,
        algorithm: str,
        options: Options | None,
    ):
        send, self._result = _buffers(sendbuf, recvbuf)
        self.signature = signature(collective, send, op, error_bound, mode, algorithm, options)
        if self.signature.componentwise:
            self.source = to_values(send)
            self.target = values_target(self._result)
        else:
            self.source = np.ascontiguousarray(send).reshape(-1)
            result = np.asarray(self._result)
            self.target = result.reshape(-1) if is_plain(result) else np.empty_like(self.source)
        self.in_place = same_memory(self.source, self.target)
        if not self.in_place and np.may_share_memory(self.source, self.target):
            self.source = self.source.copy()

    def deliver(self) -> Array:
        """Put the target into the user's result and return that."""
        if self.signature.componentwise:
            from_values(self.target, self._result)
        elif not np.may_share_memory(self.target, self._result):
            np.asarray(self._result)[...] = self.target.reshape(self._result.shape)
        return self._result


def _buffers(sendbuf: Any, recvbuf: Any) -> tuple[Array, Array]:
    """Return the input, native byte order, and the array for the result."""
    if sendbuf is MPI.IN_PLACE:
        if recvbuf is None:
            raise ValueError(
                "recvbuf: got None, wanted the array to work on, since sendbuf is MPI.IN_PLACE"
            )
        sendbuf = recvbuf
    send = host_array(sendbuf, "sendbuf")
    if recvbuf is None:
        return send, np.empty(send.shape, send.dtype)
    check_writeable(recvbuf, "recvbuf", send.shape, send.dtype)
    return send, recvbuf


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
