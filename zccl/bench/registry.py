"""The benchmarks that there are; a family registers itself by a decorator."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from mpi4py import MPI

from zccl.cli.ranks import fail

Function = Callable[[MPI.Intracomm, argparse.Namespace], int]

_registry: dict[str, Benchmark] = {}


@dataclass(frozen=True)
class Benchmark:
    """A sub-command of `python -m zccl bench`.

    Attributes
    ----------
    function : function of (comm, args)
        Runs it on all ranks and returns the exit code.
    arguments : function of an ArgumentParser
        Adds its options.
    help : str
        One line.
    description : str
        What it does, for `--help`.
    serial : bool
        Whether it takes a single process.
    """

    function: Function
    arguments: Callable[[argparse.ArgumentParser], None]
    help: str
    description: str
    serial: bool

    def run(self, comm: MPI.Intracomm, args: argparse.Namespace) -> int:
        """Run it on all ranks."""
        if self.serial and comm.size > 1:
            fail(comm, f"this benchmark runs in a single process, got {comm.size} ranks")
        return self.function(comm, args)


def benchmark(
    name: str,
    *,
    help: str,
    arguments: Callable[[argparse.ArgumentParser], None],
    serial: bool = False,
) -> Callable[[Function], Function]:
    """Register the decorated function as the sub-command `name`."""

    def register(function: Function) -> Function:
        if name in _registry:
            raise ValueError(f"two benchmarks are called {name!r}")
        description = " ".join((function.__doc__ or help).split())
        _registry[name] = Benchmark(function, arguments, help, description, serial)
        return function

    return register


def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks by name, after importing every family."""
    from zccl.bench import families

    for module in pkgutil.iter_modules(families.__path__):
        importlib.import_module(f"{families.__name__}.{module.name}")
    return _registry
