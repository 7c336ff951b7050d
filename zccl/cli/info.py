"""`python -m zccl info`: what a bug report or a look at a new machine needs."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import os
import platform
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

import zccl
from zccl.cli.ranks import node_count
from zccl.config import cache_dir, environment
from zccl.options import effective_options

if TYPE_CHECKING:
    from mpi4py import MPI

_LIBRARIES = ("numpy", "numba", "llvmlite", "mpi4py", "h5py")
_CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")  # one import name, several distributions

_SHOWN = 32  # ranks

Lines = Iterable[tuple[str, object]]


def run(found: MPI.Intracomm | str, args: argparse.Namespace) -> int:
    """Print versions, MPI, options and environment; collective when there are several ranks."""
    sections: dict[str, Lines] = {
        "versions": _versions(),
        "MPI": [("none", found)] if isinstance(found, str) else _mpi(found),
        "GPUs": [("not looked for", "no MPI")] if isinstance(found, str) else _gpus(found),
        "options": _options(),
        "environment": _variables(),
        "kernels": [("cache folder", _cache_folder())],
    }
    for title, lines in sections.items():
        print(title)
        for name, value in lines:
            print(f"  {name:<20}{value}")
    return 0


def _version(*distributions: str) -> str:
    """Version of the first distribution that is installed; nothing is imported."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return "not installed"


def _versions() -> Lines:
    yield "zccl", zccl.__version__
    yield "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for name in _LIBRARIES:
        yield name, _version(name)
    yield "cupy", _version(*_CUPY)


def _mpi(comm: MPI.Intracomm) -> Lines:
    from mpi4py import MPI

    name, numbers = MPI.get_vendor()
    levels = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
    by_value = {getattr(MPI, f"THREAD_{level}"): level.lower() for level in levels}
    hosts = sorted(set(comm.allgather(MPI.Get_processor_name())))
    shown = ", ".join(hosts[:8]) + (", ..." if len(hosts) > 8 else "")
    return [
        ("vendor", f"{name} {'.'.join(map(str, numbers))}"),
        ("library", " ".join(MPI.Get_library_version().splitlines()[0].strip(" ,\0").split())),
        ("standard", ".".join(map(str, MPI.Get_version()))),
        ("thread level", by_value[MPI.Query_thread()]),
        ("ranks", comm.size),
        ("nodes", f"{node_count(comm)} ({shown})"),
        ("cores of rank 0", len(os.sched_getaffinity(0))),
    ]


def _gpus(comm: MPI.Intracomm) -> Lines:
    """Name the GPU that `bind_gpu` gives each rank, and what can carry arrays on them."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            zccl.bind_gpu(comm)
            lines = _device_transports(comm)
    except (zccl.ZcclError, RuntimeError) as error:  # the same on all ranks
        return [("none", " ".join(str(error).split()))]
    notes = [f"rank {comm.rank}: {warning.message}" for warning in caught]
    for note in sorted({note for some in comm.allgather(notes) for note in some}):
        lines.append(("warning", note))
    return lines


def _device_transports(comm: MPI.Intracomm) -> list[tuple[str, object]]:
    import cupy

    from zccl.algorithms.agreement import NO_KNOWLEDGE
    from zccl.algorithms.progress import finish
    from zccl.collectives.carriers import chosen_carrier
    from zccl.transport.gpus import current_place
    from zccl.transport.mpi import transport_of

    place = current_place()
    device = cupy.cuda.runtime.getDevice()
    name = cupy.cuda.runtime.getDeviceProperties(device)["name"].decode()
    gpus = comm.allgather(f"{name}, {place.gpu}, number {device} of {place.host}")
    lines: list[tuple[str, object]] = [
        (f"rank {rank}", text) for rank, text in enumerate(gpus[:_SHOWN])
    ]
    if len(gpus) > _SHOWN:
        lines.append(("...", f"{len(gpus) - _SHOWN} more ranks"))
    transport = transport_of(comm)
    ways = finish(transport.device_transports(moved=True))
    lines.append(("mpi-staged", "works: MPI, from pinned memory of the host"))
    for way, (works, reason) in (("mpi-device", ways.mpi_device()), ("nccl", ways.nccl())):
        lines.append((way, f"{'works' if works else 'does not work'}: {reason}"))
    known = NO_KNOWLEDGE._replace(device=True, moved=True)
    carrier = finish(chosen_carrier(transport, "auto", known))
    lines.append(("auto takes", f"{carrier.name}: {carrier.reason}"))
    return lines


def _options() -> Lines:
    """Name what each option is now, and what set it."""
    try:
        options = effective_options(None)
    except ValueError as error:
        yield "error", f"{error}; every call will fail"
    else:
        for field in dataclasses.fields(options):
            yield field.name, _value(field.name, getattr(options, field.name))
    yield "algorithm", _value("algorithm", environment("algorithm") or "auto")


def _value(field: str, value: object) -> str:
    override = environment(field)
    return f"{value}" if override is None else f"{value}  (set by ZCCL_{field.upper()})"


def _variables() -> Lines:
    names = sorted(name for name in os.environ if name.startswith("ZCCL_"))
    return [(name, os.environ[name]) for name in names] or [("ZCCL_*", "none is set")]


def _cache_folder() -> str:
    try:
        folder = cache_dir()
    except OSError as error:
        return f"cannot be used: {error}"
    nbytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{folder} ({nbytes / 1e6:.1f} MB)"
