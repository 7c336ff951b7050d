"""What the command line needs to know of the other ranks, with or without MPI."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from mpi4py import MPI

Result = TypeVar("Result")

WRONG = 2  # exit code of a wrong option, file or command
_FAULTS = (OSError, LookupError, TypeError, ValueError, NotImplementedError)


def world() -> MPI.Intracomm | str:
    """Return COMM_WORLD, of one rank without a launcher; a text says why there is no MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # not installed; no MPI library
        return " ".join(str(error).split())
    return MPI.COMM_WORLD


@contextlib.contextmanager
def only_rank_0_prints(comm: MPI.Intracomm | None) -> Iterator[None]:
    """Send what other ranks print to nowhere; their errors still show."""
    if comm is None or comm.rank == 0:
        yield
    else:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield


def fail(comm: MPI.Intracomm | None, text: str) -> NoReturn:
    """Print one line and exit with code 2, on all ranks."""
    if comm is None or comm.rank == 0:
        sys.stdout.flush()
        print(f"zccl: error: {' '.join(text.split())}", file=sys.stderr, flush=True)
    if comm is not None:
        comm.Barrier()  # a launcher may end the job at the first exit: only after the line is out
    sys.exit(WRONG)


def together(comm: MPI.Intracomm | None, function: Callable[..., Result], *args: object) -> Result:
    """Call a function on all ranks; what is wrong on any of them ends all with one line.

    The function must not communicate, except by collectives that fail on all ranks alike.
    """
    result, fault = None, None
    try:
        result = function(*args)
    except _FAULTS as error:
        fault = str(error) or type(error).__name__
    faults = [fault] if comm is None else comm.allgather(fault)
    for text in faults:
        if text is not None:
            fail(comm, text)
    return result  # type: ignore[return-value]  # without a fault there is one


def node_count(comm: MPI.Intracomm) -> int:
    """Return the number of nodes that the ranks run on; collective."""
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = node.rank == 0
    node.Free()
    return comm.allreduce(int(first))
