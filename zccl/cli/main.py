"""The commands and their options."""

from __future__ import annotations

import argparse
import sys
import traceback
from typing import NoReturn

from zccl.cli import info
from zccl.cli.ranks import fail, only_rank_0_prints, together, world


class _Parser(argparse.ArgumentParser):
    """Leaves it to the caller to report a wrong option, once for all ranks."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} ({self.prog} --help shows the options)")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m zccl", description="Error-bounded compressed MPI collectives.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    info_parser = commands.add_parser("info", help="versions, MPI, options, environment")
    info_parser.set_defaults(run=info.run)
    warmup_parser = commands.add_parser("warmup", help="compile all kernels, ahead of a job")
    if argv[:1] == ["warmup"]:  # imports the kernels
        from zccl.cli import warmup

        warmup_parser.set_defaults(run=warmup.run)
    bench_parser = commands.add_parser(
        "bench", help="benchmarks", description="Benchmarks; start collectives with mpiexec."
    )
    if argv[:1] == ["bench"]:  # they import NumPy, Numba and MPI
        from zccl.bench.registry import benchmarks

        names = bench_parser.add_subparsers(metavar="NAME", required=True)
        for name, entry in sorted(benchmarks().items()):
            sub = names.add_parser(
                name,
                help=entry.help,
                description=entry.description,
                formatter_class=argparse.ArgumentDefaultsHelpFormatter,
            )
            entry.arguments(sub)
            sub.set_defaults(run=entry.run)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 for a broken promise, 2 for a wrong option.

    Parameters
    ----------
    argv : list of str, optional
        The words behind `python -m zccl`.
    """
    words = sys.argv[1:] if argv is None else argv
    found = world()
    comm = None if isinstance(found, str) else found
    if comm is None and words[:1] == ["bench"]:
        fail(None, f"benchmarks need MPI: {found}")
    with only_rank_0_prints(comm):
        try:
            args = together(comm, _parse, words)
            return args.run(found, args)
        except Exception:
            if comm is None or comm.size == 1:
                raise
            traceback.print_exc()
            sys.stderr.flush()
            comm.Abort(1)  # the others may wait for this rank for ever
            raise
