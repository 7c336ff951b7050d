"""Operations that were started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

from zccl.algorithms import progress
from zccl.collectives.running import Outcome
from zccl.info import Info

_Begin = Callable[[], tuple[progress.Operation[Outcome], Callable[[], None]]]


class Request:
    """A collective on its way, from `zccl.iallreduce` and its like.

    Lower-case methods return results, upper-case ones return as mpi4py's do and leave the result in
    `recvbuf` and `result`. What went wrong, on any rank, is raised by the first of them, and by
    later ones too. A request that nobody keeps goes on all the same.
    """

    def __init__(self, begin: _Begin, return_info: bool):
        self._return_info = return_info
        self._operation: progress.Operation[Outcome] | None
        self._operation, self._join = begin()

    def wait(self) -> Any:
        """Wait until it has ended, and return what the blocking call would.

        Returns
        -------
        ndarray or None, or with `return_info=True` that and Info
            On GPUs it is ready for the stream on which the call was ordered.

        Raises
        ------
        Exception
            What the blocking call would raise, on all ranks.
        """
        if self._operation is None:
            return None
        outcome = progress.wait_for(self._operation)
        self._join()
        return outcome.given(self._return_info)

    def test(self) -> tuple[bool, Any]:
        """Return whether it has ended and what `wait` would return, (False, None) before that."""
        return (True, self.wait()) if self._has_ended() else (False, None)

    def Wait(self) -> Literal[True]:
        """Wait until it has ended and `recvbuf` is filled."""
        self.wait()
        return True

    def Test(self) -> bool:
        """Whether it has ended and `recvbuf` is filled."""
        return self.test()[0]

    def Cancel(self) -> NoReturn:
        """Refuse: other ranks count on this one's part.

        Raises
        ------
        NotImplementedError
            Always, as MPI has it for collectives.
        """
        raise NotImplementedError("Cancel: a collective cannot be cancelled; wait for it")

    @property
    def result(self) -> Any:
        """The result of an operation that has ended.

        Raises
        ------
        RuntimeError
            When it has not ended.
        """
        return self._outcome().result

    @property
    def info(self) -> Info:
        """How an operation went that has ended.

        Raises
        ------
        RuntimeError
            When it has not ended.
        """
        return self._outcome().info

    def _outcome(self) -> Outcome:
        if self._operation is None or not self._operation.ended:
            raise RuntimeError("result: the operation has not ended; call wait() before")
        return self._operation.result()

    def _has_ended(self) -> bool:
        progress.advance()
        return self._operation is None or self._operation.ended


class PersistentRequest(Request):
    """A collective that can be started again and again, from `zccl.allreduce_init` and its like.

    A wait or test while it is not started returns at once, as in MPI.
    """

    def __init__(self, begin: _Begin, return_info: bool):
        self._begin = begin
        self._return_info = return_info
        self._operation = None

    def Start(self) -> None:
        """Start the collective; all ranks start operations in the same order.

        Raises
        ------
        RuntimeError
            When it is still on its way.
        """
        if self._operation is not None and not self._operation.ended:
            raise RuntimeError("Start: the operation is still on its way; call wait() before")
        self._operation, self._join = self._begin()

    def Free(self) -> None:
        """Let go of the arrays, once it has ended."""
        try:
            self.wait()
        finally:
            self._begin = _freed
            self._operation = None


def _freed() -> NoReturn:
    raise RuntimeError("Start: the request was freed")


def waitall(requests: Sequence[Request]) -> list[Any]:
    """Wait for several operations.

    Parameters
    ----------
    requests : sequence of Request
        In any order.

    Returns
    -------
    list
        What `wait` returns for each of them.

    Raises
    ------
    Exception
        The first error, once all have ended.

    Examples
    --------
    >>> import numpy as np
    >>> import zccl
    >>> x = np.ones(1000)
    >>> requests = [zccl.iallreduce(x, error_bound=1e-3), zccl.ibcast(x)]
    >>> [y.shape for y in zccl.waitall(requests)]
    [(1000,), (1000,)]
    """
    fault: Exception | None = None
    results = []
    for request in requests:
        try:
            results.append(request.wait())
        except Exception as error:
            fault = fault or error
    if fault is not None:
        raise fault
    return results
