"""A communicator with defaults, and with mpi4py's methods."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from mpi4py import MPI

import zccl
from zccl.buffered import COLLECTIVES
from zccl.collectives.calling import Asked, run, set_up, start
from zccl.errors import TransportError
from zccl.forecast import Forecast
from zccl.ops import Op
from zccl.options import Options
from zccl.planning import plan_call
from zccl.transport.mpi import free_transport_of, transport_of


class _Default(enum.Enum):
    """Stands for what the communicator has, in calls."""

    DEFAULT = "the communicator's"

    def __repr__(self) -> str:
        return f"<{self.value}>"


_DEFAULTS = dict.fromkeys(("error_bound", "mode", "options"), _Default.DEFAULT)
_KEYWORDS: dict[str, Any] = {
    "error_bound": _Default.DEFAULT,
    "mode": _Default.DEFAULT,
    "algorithm": "auto",
    "stream": None,
    "options": _Default.DEFAULT,
}


class _Forms(NamedTuple):
    """The methods of a collective: blocking, started, and set up to be started again."""

    blocking: Any
    started: Any
    persistent: Any


def _method(name: str, parameters: list[inspect.Parameter], text: str, call: Any) -> Any:
    """Give a method its name, its signature behind `self`, and its words."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__name__, call.__qualname__ = name, f"Communicator.{name}"
    call.__signature__ = inspect.Signature([own, *parameters])
    call.__doc__ = inspect.cleandoc(text)
    return call


def _of_zccl(name: str) -> _Forms:
    """Return the methods for a collective of zccl."""
    return _Forms(*(_function_as_method(form) for form in (name, f"i{name}", f"{name}_init")))


def _function_as_method(name: str) -> Any:
    function = getattr(zccl, name)

    def call(self: Communicator, *args: Any, **keywords: Any) -> Any:
        return function(*args, comm=self._usable(name), **self._filled(keywords))

    parameters = [
        parameter.replace(default=_DEFAULTS.get(parameter.name, parameter.default))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "comm"
    ]
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    return _method(
        name, parameters,
        f"""{summary}

        This is `zccl.{name}`, where all is said about it, on this communicator: `error_bound`,
        `mode` and `options` are its own where they are not given.
        """,
        call,
    )  # fmt: skip


def _of_mpi4py(name: str) -> _Forms:
    """Return the methods for a collective on buffer specifications."""
    return _Forms(
        _on_buffers(name, name, _run, f"Do as mpi4py's `{name}`, with less to send.", "None"),
        _on_buffers(
            name, f"I{name.lower()}", start, f"Start `{name}` and return at once.", "Request"
        ),
        _on_buffers(
            name, f"{name}_init", set_up, f"Set up `{name}` to be started again and again.",
            "PersistentRequest",
        ),
    )  # fmt: skip


def _run(asked: Asked) -> None:
    run(asked)


def _on_buffers(name: str, form: str, do: Callable[[Asked], Any], summary: str, given: str) -> Any:
    what = COLLECTIVES[name]

    def call(self: Communicator, *args: Any, **keywords: Any) -> Any:
        own = {name: value for name, value in keywords.items() if name not in _KEYWORDS}
        more = self._filled({name: keywords.get(name, _KEYWORDS[name]) for name in _KEYWORDS})
        return do(what.ask(self._usable(form), args, own, more))

    keywords = [
        inspect.Parameter(keyword, inspect.Parameter.KEYWORD_ONLY, default=default)
        for keyword, default in _KEYWORDS.items()
    ]
    return _method(
        form, [*what.parameters, *keywords],
        f"""{summary}

        Buffers are given as to mpi4py: an array of the host or a GPU, or a list or tuple of it with
        count or counts, displacements and a datatype. `zccl.{what.function}` tells about the
        keywords; `error_bound`, `mode` and `options` are the communicator's where they are not
        given.

        Returns
        -------
        {given}

        Raises
        ------
        TypeError
            Something that is no specification, or a datatype that is not the array's.
        ValueError
            A specification that does not fit its array, or the other ranks'.
        Exception
            What `zccl.{what.function}` raises.
        """,
        call,
    )  # fmt: skip


class Communicator:
    """A communicator of mpi4py's, with error bound, mode and options for all calls.

    Collective. Methods in lower case are the functions of zccl. Those with a capital letter, `I`
    and `_init` are mpi4py's, and take mpi4py's buffer specifications. All take `error_bound=`,
    `mode=`, `algorithm=`, `stream=` and `options=` for one call.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        `MPI.COMM_WORLD` by default. zccl talks on a private duplicate of it, which is made here
        unless there is one.
    error_bound : float, optional
        See `zccl.allreduce`; checked by the calls, as all that follow.
    mode : {"abs", "rel"}
        Whether the bound is a number in the unit of the arrays, or a fraction of their range.
    options : Options, optional
        Everything else; see `zccl.Options`.

    Attributes
    ----------
    comm : MPI.Intracomm
        The communicator itself.
    rank, size : int
        Of this process in it, and of it.
    error_bound, mode, options
        As given; they may be changed between calls, on all ranks.

    Raises
    ------
    TypeError
        When `comm` is no intracommunicator.
    TransportError
        When it cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> import zccl
    >>> with zccl.Communicator(error_bound=1e-3) as comm:
    ...     x = np.linspace(0, 1, 10_000)
    ...     y = np.empty_like(x)
    ...     comm.Allreduce(x, y)
    ...     bool(np.abs(y - comm.size * x).max() <= 1.001e-3)
    True
    """

    def __init__(
        self,
        comm: MPI.Intracomm | None = None,
        *,
        error_bound: float | None = None,
        mode: str = "abs",
        options: Options | None = None,
    ):
        self.comm = MPI.COMM_WORLD if comm is None else comm
        transport = transport_of(self.comm)
        self.rank, self.size = transport.rank, transport.size
        self.error_bound = error_bound
        self.mode = mode
        self.options = options
        self._freed = False

    allreduce, iallreduce, allreduce_init = _of_zccl("allreduce")
    reduce, ireduce, reduce_init = _of_zccl("reduce")
    reduce_scatter, ireduce_scatter, reduce_scatter_init = _of_zccl("reduce_scatter")
    allgather, iallgather, allgather_init = _of_zccl("allgather")
    bcast, ibcast, bcast_init = _of_zccl("bcast")
    scatter, iscatter, scatter_init = _of_zccl("scatter")
    gather, igather, gather_init = _of_zccl("gather")
    alltoall, ialltoall, alltoall_init = _of_zccl("alltoall")

    Allreduce, Iallreduce, Allreduce_init = _of_mpi4py("Allreduce")
    Reduce, Ireduce, Reduce_init = _of_mpi4py("Reduce")
    Reduce_scatter, Ireduce_scatter, Reduce_scatter_init = _of_mpi4py("Reduce_scatter")
    Reduce_scatter_block, Ireduce_scatter_block, Reduce_scatter_block_init = _of_mpi4py(
        "Reduce_scatter_block"
    )
    Allgather, Iallgather, Allgather_init = _of_mpi4py("Allgather")
    Allgatherv, Iallgatherv, Allgatherv_init = _of_mpi4py("Allgatherv")
    Bcast, Ibcast, Bcast_init = _of_mpi4py("Bcast")
    Scatter, Iscatter, Scatter_init = _of_mpi4py("Scatter")
    Scatterv, Iscatterv, Scatterv_init = _of_mpi4py("Scatterv")
    Gather, Igather, Gather_init = _of_mpi4py("Gather")
    Gatherv, Igatherv, Gatherv_init = _of_mpi4py("Gatherv")
    Alltoall, Ialltoall, Alltoall_init = _of_mpi4py("Alltoall")
    Alltoallv, Ialltoallv, Alltoallv_init = _of_mpi4py("Alltoallv")

    def plan(
        self,
        collective: str,
        count: int,
        dtype: Any,
        *,
        op: Op | None = None,
        error_bound: Any = _Default.DEFAULT,
        mode: Any = _Default.DEFAULT,
        algorithm: str = "auto",
        options: Any = _Default.DEFAULT,
        sample: Any = None,
        ratio: float | None = None,
        on_gpus: bool | None = None,
    ) -> Forecast:
        """Tell what a call would do, without making it and without asking other ranks.

        Parameters
        ----------
        collective : str
            Its name, as "allreduce".
        count : int
            Elements of one rank's array; of a mean share in scatter, gather, allgather, alltoall.
        dtype : dtype
            Of the array.
        op : zccl.SUM, zccl.AVG, zccl.MAX or zccl.MIN, optional
            Of a reduction; SUM by default.
        error_bound, mode, algorithm, options
            As for the call; the communicator's where they are not given.
        sample : array, optional
            Values like those of a rank, from which ratio and range are taken; needed for
            `mode="rel"`. A call takes the least ratio of all ranks, and the range of all.
        ratio : float, optional
            Uncompressed over compressed bytes, in place of what the sample has; 4 without either.
        on_gpus : bool, optional
            Whether the arrays are on GPUs; by default where the sample is.

        Returns
        -------
        Forecast
            Algorithm, reason, bounds, segments and the expected cost of every candidate;
            `explain()` puts them into words. Rates are conservative guesses, not measured.

        Raises
        ------
        TypeError, ValueError
            An argument that no call would take, or no sample where its range is needed.
        TransportError
            After `Free`.

        Examples
        --------
        >>> import zccl
        >>> comm = zccl.Communicator(error_bound=1e-3)
        >>> plan = comm.plan("allreduce", 1_000_000, "f4", algorithm="ring")
        >>> print(plan.explain())  # doctest: +ELLIPSIS
        allreduce, 4 MB a rank, ...
        """
        given = {"error_bound": error_bound, "mode": mode, "options": options}
        return plan_call(
            self._usable("plan"), collective, count, dtype, op=op, algorithm=algorithm,
            sample=sample, ratio=ratio, on_gpus=on_gpus, **self._filled(given),
        )  # fmt: skip

    def Free(self) -> None:
        """Give back what zccl holds for the communicator, once all operations have ended.

        Collective. The communicator itself stays as it is. Methods raise TransportError afterwards;
        other users of zccl on the same communicator make what they need anew.
        """
        if self._freed:
            return
        self._freed = True
        free_transport_of(self.comm)

    def __enter__(self) -> Communicator:
        """Return the communicator."""
        self._usable("with")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Give back what zccl holds, but not on an error: other ranks may be elsewhere."""
        if kind is None:
            self.Free()

    def __repr__(self) -> str:
        """Return where it is, and its defaults."""
        state = "freed" if self._freed else f"rank {self.rank} of {self.size}"
        return (
            f"<zccl.Communicator {state}, error_bound={self.error_bound!r}, mode={self.mode!r},"
            f" options={self.options!r}>"
        )

    def _usable(self, name: str) -> MPI.Intracomm:
        if self._freed:
            raise TransportError(f"{name}: the zccl.Communicator was freed")
        return self.comm

    def _filled(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """Return keywords with the communicator's own where there is none."""
        own = {"error_bound": self.error_bound, "mode": self.mode, "options": self.options}
        return own | {k: v for k, v in keywords.items() if v is not _Default.DEFAULT}
