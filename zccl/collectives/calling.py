"""How a collective is called: blocking, started, or set up to be started again and again.

Each has one body, in two halves: what all ranks must agree on first, and what is done then.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Protocol

from mpi4py import MPI

from zccl.algorithms import progress
from zccl.algorithms.primitives import Steps, StepsTo
from zccl.collectives.running import Outcome, communicator
from zccl.errors import TransportError
from zccl.options import Options, effective_options
from zccl.request import PersistentRequest, Request
from zccl.streams import OwnStream, callers_stream
from zccl.transport.mpi import MpiTransport
from zccl.transport.waiting import Until

Arguments = ParamSpec("Arguments")


class Collective(Protocol):
    """A collective and its arguments, as given."""

    def agree(self, transport: MpiTransport) -> Steps:
        """Do the first half: check the arguments, agree on them, make room for the result."""
        ...

    def run(self, transport: MpiTransport, start: float) -> StepsTo[Outcome]:
        """Do the second half; `start` is the clock time when the call began."""
        ...

    def keep(self, transport: MpiTransport) -> Steps:
        """Get ready to do the second half again and again."""
        ...

    def renew(self, transport: MpiTransport) -> Steps:
        """Look at the arrays again, which may have other values now."""
        ...


class Asked(NamedTuple):
    """What a caller asks for, not checked yet.

    Attributes
    ----------
    comm : MPI.Intracomm or None
        As given.
    buffers : tuple
        All arrays, as given.
    stream, options, return_info
        As given.
    collective : Collective
        What is to be done.
    """

    comm: MPI.Intracomm | None
    buffers: tuple[Any, ...]
    stream: Any
    options: Options | None
    return_info: bool
    collective: Collective


def collective(ask: Callable[Arguments, Asked]) -> Callable[Arguments, Any]:
    """Make a blocking collective of a function that returns what is asked for."""

    @functools.wraps(ask)
    def call(*args: Arguments.args, **keywords: Arguments.kwargs) -> Any:
        return run(ask(*args, **keywords))

    call.ask = ask  # type: ignore[attr-defined]
    return call


def run(asked: Asked) -> Any:
    """Do what is asked for, and return its result."""
    transport = communicator(asked.comm)
    with callers_stream(asked.buffers, asked.stream):
        return progress.finish(_both(asked.collective, transport)).given(asked.return_info)


def start(asked: Asked) -> Request:
    """Start what is asked for."""
    begin = _starter(communicator(asked.comm), asked, _both)
    return Request(begin, asked.return_info)


def set_up(asked: Asked) -> PersistentRequest:
    """Agree on what is asked for, to be started later."""
    transport = communicator(asked.comm)
    begin = _starter(transport, asked, _second)
    with callers_stream(asked.buffers, asked.stream):
        progress.finish(asked.collective.agree(transport))
        progress.finish(asked.collective.keep(transport))
    return PersistentRequest(begin, asked.return_info)


def _both(what: Collective, transport: MpiTransport) -> StepsTo[Outcome]:
    begin = time.perf_counter()
    yield from what.agree(transport)
    return (yield from what.run(transport, begin))


def _second(what: Collective, transport: MpiTransport) -> StepsTo[Outcome]:
    begin = time.perf_counter()
    yield from what.renew(transport)
    return (yield from what.run(transport, begin))


def _starter(
    transport: MpiTransport,
    asked: Asked,
    steps: Callable[[Collective, MpiTransport], StepsTo[Outcome]],
) -> Callable[[], tuple[progress.Operation[Outcome], Callable[[], None]]]:
    """Return what starts an operation, and gives it with what orders the caller's stream after."""
    by_thread = _by_thread(asked.options)

    def begin() -> tuple[progress.Operation[Outcome], Callable[[], None]]:
        own = OwnStream(asked.buffers, asked.stream, transport.lanes.streams)
        operation: progress.Operation[Outcome]
        lane = transport.lanes.take(lambda: progress.end(operation))

        def in_lane() -> StepsTo[Outcome]:
            try:
                # Where nobody would take the next step soon, this one is taken by the call itself.
                if by_thread or own.is_used or not lane.ready.done():
                    yield lane.ready
                outcome = yield from steps(asked.collective, lane.transport)
                yield Until(own.end())  # a GPU may still use the arrays
                return outcome
            finally:
                lane.release()

        operation = progress.Operation(in_lane(), own.scope, by_thread)
        progress.start(operation)
        return operation, own.join

    return begin


def _by_thread(options: Options | None) -> bool:
    """Whether a thread takes steps, too; raises TransportError where MPI allows none."""
    try:
        wanted = effective_options(options).progress
    except (TypeError, ValueError):  # of which all ranks learn by the checks
        return False
    if wanted == "call":
        return False
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise TransportError(
            "progress: 'thread' needs an MPI with MPI_THREAD_MULTIPLE, which this one was not"
            " started with; set Options(progress='call') or ZCCL_PROGRESS=call"
        )
    return True


def started(blocking: Callable[Arguments, Any]) -> Callable[Arguments, Request]:
    """Return the form of a collective that starts it: with an `i` in front."""
    name = blocking.__name__
    return _form(
        blocking, start, f"i{name}",
        f"""Start `{name}` and return at once.

    Parameters are those of `{name}`. All ranks start operations in the same order; they go on
    while the program does something else, and end in any order. Arrays of an operation must not be
    touched, not even read where they are filled, until it has ended.

    Returns
    -------
    Request
        Its `wait` returns what `{name}` would; errors are raised there, on all ranks.

    Raises
    ------
    TypeError
        When `comm` is no intracommunicator.
    TransportError
        When it cannot be used; with `Options(progress="thread")`, where MPI allows no threads.

    Examples
    --------
    >>> request = zccl.i{name}(x, error_bound=1e-3)  # doctest: +SKIP
    >>> y = request.wait()  # doctest: +SKIP
    """,
    )  # fmt: skip


def persistent(blocking: Callable[Arguments, Any]) -> Callable[Arguments, PersistentRequest]:
    """Return the form of a collective that sets it up: with `_init` behind."""
    name = blocking.__name__
    return _form(
        blocking, set_up, f"{name}_init",
        f"""Set up `{name}` on these arrays, to be started again and again.

    Collective. Parameters are those of `{name}`; arguments are agreed on here, once, and each start
    works on the values that the arrays have then. With `mode="rel"` each start agrees on the range.

    Returns
    -------
    PersistentRequest
        Its `Start` starts the collective; `wait` returns what `{name}` would, always in the same
        array.

    Raises
    ------
    Exception
        What `{name}` raises for its arguments, on all ranks.

    Examples
    --------
    >>> request = zccl.{name}_init(x, error_bound=1e-3)  # doctest: +SKIP
    >>> for step in range(10):  # doctest: +SKIP
    ...     x[...] = step
    ...     request.Start()
    ...     y = request.wait()
    """,
    )  # fmt: skip


def _form(
    blocking: Callable[..., Any], do: Callable[[Asked], Request], name: str, text: str
) -> Any:
    """Return another form of a collective: its signature, a name and words of its own."""
    ask: Callable[..., Asked] = blocking.ask  # type: ignore[attr-defined]

    @functools.wraps(blocking)
    def call(*args: Any, **keywords: Any) -> Request:
        return do(ask(*args, **keywords))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = text
    return call
