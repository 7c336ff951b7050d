"""Who takes the steps of operations, and when.

A blocking call takes its own. An operation that was started is *live* until it has ended: every
call of a collective and every wait or test takes steps of all live ones, and so does a thread,
where a live operation wants that or a call blocks inside MPI. It has nothing to do while a call
waits, and sleeps where nothing is live.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from zccl.algorithms.primitives import StepsTo
from zccl.algorithms.protocols import Wait
from zccl.transport.waiting import NAP_SECONDS, wait_until

Result = TypeVar("Result")

LOOK_SECONDS = 1e-3  # between two looks of the thread for something to do
LINGER_SECONDS = 0.1  # that it goes on looking
STOP_SECONDS = 10  # a step takes less, unless other ranks are gone


class Operation(Generic[Result]):
    """Steps that are on their way.

    Parameters
    ----------
    steps : generator
        What to do.
    scope : function that returns a context manager
        Surroundings for every step: a GPU and a stream.
    by_thread : bool
        Whether the thread takes steps, too.

    Attributes
    ----------
    ended : bool
        Whether there is a result or an error.
    error : BaseException or None
        What the steps have raised.
    """

    def __init__(
        self,
        steps: StepsTo[Result],
        scope: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
        by_thread: bool = False,
    ):
        self.by_thread = by_thread
        self.ended = False
        self.error: BaseException | None = None
        self._steps: StepsTo[Result] | None = steps
        self._scope = scope
        self._wait: Wait | None = None
        self._result: Result | None = None
        self._stepping = False  # not to be begun by what interrupts it

    def step(self) -> bool:
        """Take the next step if nothing is in its way; returns whether it was taken."""
        if self._steps is None or self._stepping:
            return False
        self._stepping = True
        try:
            with self._scope():
                if self._wait is not None and not self._wait.done():
                    return False
                self._wait = next(self._steps)
        except StopIteration as end:
            self._end(end.value, None)
        except BaseException as error:
            self._end(None, error)
            if not isinstance(error, Exception):  # as KeyboardInterrupt
                raise
        finally:
            self._stepping = False
        return True

    def _end(self, result: Result | None, error: BaseException | None) -> None:
        self._result, self.error = result, error
        if error is not None and not isinstance(error, Exception):
            _broken.append((self._steps, self._wait))  # messages may still come into its buffers
        self._steps = self._wait = None  # lets go of the buffers
        self.ended = True

    def result(self) -> Result:
        """Return the result of an operation that has ended, or raise its error."""
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]


_live: list[Operation[Any]] = []
_broken: list[object] = []  # what was interrupted
_lock = threading.RLock()  # whoever takes steps has it
_wake = threading.Condition(_lock)
_waiting = 0  # calls that take all steps themselves
_blocked = 0  # calls that cannot take any
_asleep = False
_thread: threading.Thread | None = None
_stopped = False


def start(operation: Operation[Any]) -> None:
    """Take the first step of an operation, which makes it live."""
    with _lock:
        operation.step()
        if not operation.ended:
            _live.append(operation)
            if operation.by_thread:
                _rouse()


def advance() -> bool:
    """Take a step of each live operation that can take one; returns whether any did."""
    if not _live:
        return False
    with _lock:
        moved = [operation.step() for operation in list(_live)]
        _live[:] = [operation for operation in _live if not operation.ended]
    return any(moved)


def wait_for(operation: Operation[Result]) -> Result:
    """Take steps of all live operations until one has ended; return its result."""
    if not operation.ended:
        _wait_among_others(lambda: operation.ended)
    return operation.result()


def _wait_among_others(done: Callable[[], bool]) -> None:
    """Take steps of all live operations until something is done."""
    global _waiting

    def over() -> bool:
        with _lock:
            while not done():
                if not advance():
                    return False
            return True

    with _lock:
        _waiting += 1
    try:
        wait_until(over)
    finally:
        with _lock:
            _waiting -= 1


def end(operation: Operation[Any]) -> None:
    """Take steps until an operation has ended; its error is kept for those who ask for it."""
    with contextlib.suppress(Exception):
        wait_for(operation)


def finish(steps: StepsTo[Result]) -> Result:
    """Drive steps to their end, blocking; return their result."""
    while True:
        try:
            with _lock:
                wait = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        if not _live:
            wait.wait()
        elif isinstance(wait, Blocking):
            _block_beside_thread(wait)
        else:
            _wait_among_others(wait.done)


class Blocking:
    """A call that blocks; only `finish` can wait for one.

    Parameters
    ----------
    function, arguments
        What to call. Nothing of zccl goes on meanwhile but what the thread does.
    """

    __slots__ = ("_arguments", "_function")

    def __init__(self, function: Callable[..., object], *arguments: Any):
        self._function = function
        self._arguments = arguments

    def done(self) -> bool:
        """Nobody may ask."""
        raise AssertionError("a call that blocks cannot be waited for in steps")

    def wait(self) -> None:
        """Call it."""
        self._function(*self._arguments)


def _block_beside_thread(wait: Blocking) -> None:
    """Call what blocks, while the thread takes the steps of all live operations."""
    global _blocked
    with _lock:
        _blocked += 1
        _rouse()
    try:
        wait.wait()
    finally:
        with _lock:
            _blocked -= 1


def _rouse() -> None:
    """See that the thread is there and not asleep."""
    global _thread
    if _thread is None:
        _thread = threading.Thread(target=_take_steps, name="zccl progress", daemon=True)
        _thread.start()
    elif _asleep:
        _wake.notify()


def _wanted() -> bool:
    """Whether the thread should take steps now."""
    if _waiting or not _live:
        return False
    return _blocked > 0 or any(operation.by_thread for operation in _live)


def _take_steps() -> None:
    """Be the thread. To wake it costs more than a short operation, so it lingers between some."""
    busy = time.monotonic()
    while not _stopped:
        if _wanted():
            busy = time.monotonic()
            if not advance():
                time.sleep(NAP_SECONDS)
        elif time.monotonic() < busy + LINGER_SECONDS:
            time.sleep(LOOK_SECONDS)
        else:
            _sleep()
            busy = time.monotonic()


def _sleep() -> None:
    global _asleep
    with _wake:
        while not _live and not _stopped:
            _asleep = True
            _wake.wait()
        _asleep = False


@atexit.register
def _stop() -> None:
    """Finish what is live and end the thread, which the interpreter's end would kill inside MPI."""
    global _stopped
    until = time.monotonic() + STOP_SECONDS
    while _live and _lock.acquire(timeout=max(until - time.monotonic(), 0)):
        advance()
        _lock.release()
        time.sleep(NAP_SECONDS)
    if _live:
        print(
            f"zccl: {len(_live)} operations were started and have not ended in {STOP_SECONDS} s"
            " after the program's end",
            file=sys.stderr,
        )
    _stopped = True
    if _lock.acquire(timeout=STOP_SECONDS):
        _wake.notify()
        _lock.release()
        if _thread is not None:
            _thread.join(STOP_SECONDS)
