"""Collectives as mpi4py's capitalised methods have them: on buffer specifications.

Each function here says how one of them is done by a collective of zccl: what that is called with,
and what it fills. Specifications are read on every rank after the call has begun, so that a fault
on one rank is raised on all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from mpi4py import MPI

from zccl.algorithms.agreement import Terms, agree
from zccl.algorithms.primitives import Steps, StepsTo
from zccl.buffers import Message, array_of, is_in_place, simple, vector
from zccl.collectives.allgather import allgather
from zccl.collectives.allreduce import allreduce
from zccl.collectives.alltoall import alltoall
from zccl.collectives.arguments import check_root
from zccl.collectives.bcast import bcast
from zccl.collectives.calling import Asked, Collective
from zccl.collectives.gather import gather
from zccl.collectives.reduce import reduce
from zccl.collectives.reduce_scatter import reduce_scatter
from zccl.collectives.running import Outcome
from zccl.collectives.scatter import scatter
from zccl.ops import Op
from zccl.transport.mpi import MpiTransport
from zccl.transport.waiting import Waiting
from zccl.typing import Array

Made = TypeVar("Made")

_COUNTS_UNKNOWN = Terms.of({"collective": "reduce_scatter", "recvcounts": "None"})


class Laid(NamedTuple):
    """How a call is done whose specifications were read.

    Attributes
    ----------
    collective : Collective
        One of zccl's, on rows of elements.
    into : Message or None
        What it fills; None for nothing.
    """

    collective: Collective
    into: Message | None


class BufferCollective:
    """One of mpi4py's capitalised methods.

    Parameters
    ----------
    function : str
        What zccl has for it.
    lay : function of a transport, the method's own arguments, and zccl's keywords
        Reads the specifications; what it raises is raised on all ranks.
    complete : function of a transport and the method's own arguments, optional
        Steps that return all own arguments by name, when other ranks know some of them.

    Attributes
    ----------
    parameters : list of inspect.Parameter
        The method's own.
    """

    def __init__(
        self,
        function: str,
        lay: Callable[..., Laid],
        complete: Callable[..., StepsTo[dict[str, Any]]] | None = None,
    ):
        self.function = function
        self.lay = lay
        self.complete = complete
        self.parameters = list(inspect.signature(lay).parameters.values())[1:-1]
        self._names = {parameter.name for parameter in self.parameters}

    def ask(
        self,
        comm: MPI.Intracomm,
        args: tuple[Any, ...],
        own: dict[str, Any],
        keywords: dict[str, Any],
    ) -> Asked:
        """Return what is asked for.

        Parameters
        ----------
        comm : MPI.Intracomm
            The communicator.
        args, own
            The method's own arguments, as given.
        keywords : dict
            Those of zccl's function.

        Raises
        ------
        TypeError
            When the method has no argument of some name.
        """
        for name in own:
            if name not in self._names:
                raise TypeError(f"got an unexpected keyword argument {name!r}")
        # What is no array does no harm.
        buffers = (*map(array_of, (*args[:2], *own.values())), None)
        return Asked(
            comm, buffers, keywords["stream"], keywords["options"], False,
            _Specified(self, args, own, keywords),
        )  # fmt: skip


class _Specified:
    """A call with specifications that are read when it begins."""

    def __init__(
        self,
        what: BufferCollective,
        args: tuple[Any, ...],
        own: dict[str, Any],
        keywords: dict[str, Any],
    ):
        self._what = what
        self._args = args
        self._own = own
        self._keywords = keywords

    def agree(self, transport: MpiTransport) -> Steps:
        what, args, own = self._what, self._args, self._own
        complete = what.complete
        if complete is not None:
            steps = yield from _read(transport, lambda: complete(transport, *args, **own))
            args, own = (), (yield from steps)
        collective, self._into = yield from _read(
            transport, lambda: what.lay(transport, *args, **own, **self._keywords)
        )
        self._collective = collective
        yield from collective.agree(transport)

    def run(self, transport: MpiTransport, start: float) -> StepsTo[Outcome]:
        outcome = yield from self._collective.run(transport, start)
        if self._into is None:
            return outcome._replace(result=None)
        self._into.deliver()
        return outcome._replace(result=self._into.array)

    def keep(self, transport: MpiTransport) -> Steps:
        yield from ()

    def renew(self, transport: MpiTransport) -> Steps:
        yield from self.agree(transport)


def _read(transport: MpiTransport, read: Callable[[], Made]) -> StepsTo[Made]:
    """Return what is read; a fault is told to ranks that read and then agree on something."""
    try:
        return read()
    except Exception as error:
        yield from agree(transport.comm, fault=error)
        raise


def _call(collective: Any, *args: Any, **keywords: Any) -> Collective:
    """Return one of zccl's collectives with arguments, not begun."""
    asked: Asked = collective.ask(*args, **keywords)
    return asked.collective


def _sent(spec: Any) -> Any:
    return MPI.IN_PLACE if is_in_place(spec) else simple(spec, "sendbuf").packed()


def _by_rank(row: Array, size: int) -> Array:
    return row.reshape(size, row.size // size)


def _is_root(here: MpiTransport, root: int) -> bool:
    return here.rank == check_root(root, here.size)


def _lay_allreduce(
    here: MpiTransport, sendbuf: Any, recvbuf: Any, op: MPI.Op | Op = MPI.SUM, **keywords: Any
) -> Laid:
    into = simple(recvbuf, "recvbuf")
    return Laid(_call(allreduce, _sent(sendbuf), into.room(), op, **keywords), into)


def _lay_reduce(
    here: MpiTransport,
    sendbuf: Any,
    recvbuf: Any,
    op: MPI.Op | Op = MPI.SUM,
    root: int = 0,
    **keywords: Any,
) -> Laid:
    into = simple(recvbuf, "recvbuf") if _is_root(here, root) else None
    room = None if into is None else into.room()
    return Laid(_call(reduce, _sent(sendbuf), room, op, root, **keywords), into)


def _lay_reduce_scatter(
    here: MpiTransport,
    sendbuf: Any,
    recvbuf: Any,
    recvcounts: Sequence[int] | None = None,
    op: MPI.Op | Op = MPI.SUM,
    **keywords: Any,
) -> Laid:
    if recvcounts is None:
        raise TypeError("recvcounts: got None, wanted counts, since sendbuf is MPI.IN_PLACE")
    into = simple(recvbuf, "recvbuf")
    collective = _call(
        reduce_scatter, _sent(sendbuf), into.room(), recvcounts, op, **keywords
    )  # fmt: skip
    return Laid(collective, into)


def _with_counts(
    here: MpiTransport,
    sendbuf: Any,
    recvbuf: Any,
    recvcounts: Sequence[int] | None = None,
    op: MPI.Op | Op = MPI.SUM,
) -> StepsTo[dict[str, Any]]:
    """Return the arguments of a reduce-scatter; without counts those of all receive buffers."""
    counts: Any = recvcounts
    if counts is None and not is_in_place(sendbuf):
        into = yield from _read(here, lambda: simple(recvbuf, "recvbuf"))
        yield from agree(here.comm, _COUNTS_UNKNOWN)
        counts = np.empty(here.size, np.int64)
        counts[here.rank] = into.counts[0]
        yield Waiting(here.comm.Iallgather(MPI.IN_PLACE, counts))
    return {"sendbuf": sendbuf, "recvbuf": recvbuf, "recvcounts": counts, "op": op}


def _lay_reduce_scatter_block(
    here: MpiTransport, sendbuf: Any, recvbuf: Any, op: MPI.Op | Op = MPI.SUM, **keywords: Any
) -> Laid:
    in_place = is_in_place(sendbuf)
    send = MPI.IN_PLACE if in_place else simple(sendbuf, "sendbuf", here.size).packed()
    into = simple(recvbuf, "recvbuf", here.size if in_place else 1)
    return Laid(_call(reduce_scatter, send, into.room(), None, op, **keywords), into)


def _lay_allgather(here: MpiTransport, sendbuf: Any, recvbuf: Any, **keywords: Any) -> Laid:
    into = simple(recvbuf, "recvbuf", here.size)
    room = _by_rank(into.room(), here.size)
    return Laid(_call(allgather, _sent(sendbuf), room, **keywords), into)


def _lay_allgatherv(here: MpiTransport, sendbuf: Any, recvbuf: Any, **keywords: Any) -> Laid:
    into = vector(recvbuf, "recvbuf", here.size)
    send = into.piece(here.rank) if is_in_place(sendbuf) else _sent(sendbuf)
    return Laid(_call(allgather, send, into.room(), into.counts, **keywords), into)


def _lay_bcast(here: MpiTransport, buf: Any, root: int = 0, **keywords: Any) -> Laid:
    message = simple(buf, "buf")
    row = message.packed() if _is_root(here, root) else message.room()
    return Laid(_call(bcast, row, root, **keywords), message)


def _lay_scatter(
    here: MpiTransport, sendbuf: Any, recvbuf: Any, root: int = 0, **keywords: Any
) -> Laid:
    rows = None
    if _is_root(here, root):
        rows = _by_rank(simple(sendbuf, "sendbuf", here.size).packed(), here.size)
    into, room = _share(recvbuf)
    return Laid(_call(scatter, rows, room, None, root, **keywords), into)


def _lay_scatterv(
    here: MpiTransport, sendbuf: Any, recvbuf: Any, root: int = 0, **keywords: Any
) -> Laid:
    row, counts = None, None
    if _is_root(here, root):
        given = vector(sendbuf, "sendbuf", here.size)
        row, counts = given.packed(), given.counts
    into, room = _share(recvbuf)
    return Laid(_call(scatter, row, room, counts, root, **keywords), into)


def _share(recvbuf: Any) -> tuple[Message | None, Any]:
    """Return what is filled with a rank's share, and the row for it."""
    if is_in_place(recvbuf):
        return None, MPI.IN_PLACE
    into = simple(recvbuf, "recvbuf")
    return into, into.room()


def _lay_gather(
    here: MpiTransport, sendbuf: Any, recvbuf: Any, root: int = 0, **keywords: Any
) -> Laid:
    into = simple(recvbuf, "recvbuf", here.size) if _is_root(here, root) else None
    room = None if into is None else _by_rank(into.room(), here.size)
    return Laid(_call(gather, _sent(sendbuf), room, None, root, **keywords), into)


def _lay_gatherv(
    here: MpiTransport, sendbuf: Any, recvbuf: Any, root: int = 0, **keywords: Any
) -> Laid:
    if not _is_root(here, root):
        return Laid(_call(gather, _sent(sendbuf), None, None, root, **keywords), None)
    into = vector(recvbuf, "recvbuf", here.size)
    send = into.piece(here.rank) if is_in_place(sendbuf) else _sent(sendbuf)
    return Laid(_call(gather, send, into.room(), into.counts, root, **keywords), into)


def _lay_alltoall(here: MpiTransport, sendbuf: Any, recvbuf: Any, **keywords: Any) -> Laid:
    into = simple(recvbuf, "recvbuf", here.size)
    given = into if is_in_place(sendbuf) else simple(sendbuf, "sendbuf", here.size)
    send, room = (_by_rank(row, here.size) for row in (given.packed(), into.room()))
    return Laid(_call(alltoall, send, room, **keywords), into)


def _lay_alltoallv(here: MpiTransport, sendbuf: Any, recvbuf: Any, **keywords: Any) -> Laid:
    into = vector(recvbuf, "recvbuf", here.size)
    given = into if is_in_place(sendbuf) else vector(sendbuf, "sendbuf", here.size)
    collective = _call(
        alltoall, given.packed(), into.room(), given.counts, into.counts, **keywords
    )  # fmt: skip
    return Laid(collective, into)


COLLECTIVES = {
    "Allreduce": BufferCollective("allreduce", _lay_allreduce),
    "Reduce": BufferCollective("reduce", _lay_reduce),
    "Reduce_scatter": BufferCollective("reduce_scatter", _lay_reduce_scatter, _with_counts),
    "Reduce_scatter_block": BufferCollective("reduce_scatter", _lay_reduce_scatter_block),
    "Allgather": BufferCollective("allgather", _lay_allgather),
    "Allgatherv": BufferCollective("allgather", _lay_allgatherv),
    "Bcast": BufferCollective("bcast", _lay_bcast),
    "Scatter": BufferCollective("scatter", _lay_scatter),
    "Scatterv": BufferCollective("scatter", _lay_scatterv),
    "Gather": BufferCollective("gather", _lay_gather),
    "Gatherv": BufferCollective("gather", _lay_gatherv),
    "Alltoall": BufferCollective("alltoall", _lay_alltoall),
    "Alltoallv": BufferCollective("alltoall", _lay_alltoallv),
}
