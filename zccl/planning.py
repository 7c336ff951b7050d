"""What a call would do, told without making it."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from zccl import errorbound
from zccl.arrays import fill_number, given_array, is_on_device, to_values, value_dtype
from zccl.codecs.ranges import finite_range
from zccl.codecs.sample import rough, sample_ratio
from zccl.config import cpu_threads, overrides
from zccl.forecast import Forecast, forecast
from zccl.formats import DTYPE_CODES
from zccl.machines import default_machine
from zccl.ops import Op
from zccl.options import Options, effective_options
from zccl.plan import ALGORITHMS, REDUCTIONS, check_algorithm, segment_size
from zccl.transport.mpi import transport_of

USUAL_RATIO = 4.0  # where nothing is known of the values


def plan_call(
    comm: MPI.Intracomm,
    collective: str,
    count: int,
    dtype: Any,
    *,
    op: Op | None,
    error_bound: float | None,
    mode: str,
    algorithm: str,
    options: Options | None,
    sample: Any,
    ratio: float | None,
    on_gpus: bool | None,
) -> Forecast:
    """Return what a call would do; arguments are those of `Communicator.plan`."""
    if collective not in ALGORITHMS:
        raise ValueError(
            f"collective: got {collective!r}, wanted one of {', '.join(map(repr, ALGORITHMS))}"
        )
    if op is not None and collective not in REDUCTIONS:
        raise ValueError(f"op: got {op!r}, but {collective} reduces nothing")
    if count < 0:
        raise ValueError(f"count: got {count}, wanted a number of elements")
    kind = np.dtype(dtype)
    if kind not in DTYPE_CODES:
        raise TypeError(f"dtype: got {kind}, wanted one of {', '.join(map(str, DTYPE_CODES))}")
    wanted = check_algorithm(collective, algorithm, overrides().get("algorithm"))
    settings = effective_options(options)
    bound = errorbound.check_error_bound(error_bound)
    errorbound.check_mode(mode)
    transport = transport_of(comm)
    device = on_gpus if on_gpus is not None else sample is not None and is_on_device(sample)
    carrier = _carrier(settings.transport) if device else "mpi"
    cores = cpu_threads(transport.local_size)
    segment = segment_size(settings.segment_nbytes, device)
    machine = default_machine(carrier, transport.one_node, cores, segment, settings.link_gbits)
    values = value_dtype(kind)
    codable = bool(bound) and values is not None
    absolute, expected = 0.0, 1.0
    if codable and bound:
        reduces = op or Op.SUM if collective in REDUCTIONS else None
        absolute, sampled = _bound_and_ratio(
            bound, mode, sample, reduces, transport.size, settings
        )  # fmt: skip
        expected = sampled if ratio is None else ratio
    return forecast(
        collective, count * kind.itemsize, transport.size, machine,
        expected, wanted=wanted, codable=codable,
        exact=bound == 0, reproducible=settings.reproducible,
        itemsize=(values or kind).itemsize, op=op, error_bound=absolute,
        budget=settings.error_budget,
    )  # fmt: skip


def _carrier(transport: str) -> str:
    return "nccl" if transport == "auto" else transport


def _bound_and_ratio(
    bound: float, mode: str, sample: Any, op: Op | None, size: int, options: Options
) -> tuple[float, float]:
    """Return the absolute bound, and the ratio to expect of values like those of the sample."""
    if sample is None:
        if mode == "rel":
            raise ValueError("sample: got None, wanted an array, since mode='rel' needs its range")
        return bound, USUAL_RATIO
    array = given_array(sample, "sample")
    if value_dtype(array.dtype) is None:
        raise TypeError(f"sample: got dtype {array.dtype}, wanted a floating dtype")
    values = to_values(array)
    fill = fill_number(options.fill_value, array.dtype)
    absolute = errorbound.absolute_bound(bound, mode, *finite_range(values, fill))
    step = errorbound.grid_step(
        errorbound.rank_bound(absolute, op, size, options.error_budget), values.dtype
    )
    return absolute, rough(sample_ratio(values, step, fill))
