"""What carries the messages of a call: chosen from what all ranks have agreed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from mpi4py import MPI

from zccl.algorithms.agreement import Agreed
from zccl.algorithms.primitives import StepsTo
from zccl.algorithms.progress import Blocking
from zccl.algorithms.protocols import Transport
from zccl.errors import TransportError
from zccl.transport.mpi import MpiTransport
from zccl.transport.waiting import Waiting

Made = TypeVar("Made")


class Carrier(NamedTuple):
    """A transport for messages, and where they lie.

    Attributes
    ----------
    name : str
        "mpi", or for device arrays one of `zccl.options.TRANSPORTS`.
    reason : str
        Why, for device arrays.
    messages : function of the MpiTransport, returns a Transport
        What takes zccl's messages; collective on its first use.
    direct : bool
        Whether they lie on the device.
    collectives : function that returns NcclCollectives, or None
        What takes the place of MPI's own collectives; collective on its first use.
    in_turn : bool
        Whether operations must use it one after the other, in the order in which they began.
    """

    name: str
    reason: str
    messages: Callable[[MpiTransport], Transport]
    direct: bool = False
    collectives: Callable[[], Any] | None = None
    in_turn: bool = False


def _by_mpi(transport: MpiTransport) -> Transport:
    return transport


def made(transport: MpiTransport, make: Callable[[], Made]) -> StepsTo[Made]:
    """Return what is made when it is first used, by all ranks together and waiting for them.

    In a blocking call other operations go on meanwhile.
    """
    if transport.is_lane or MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return make()
    found: list[Made] = []
    fault: list[Exception] = []

    def work() -> None:
        try:
            found.append(make())
        except Exception as error:
            fault.append(error)

    yield Blocking(work)
    if fault:
        raise fault[0]
    return found[0]


def messages_by(transport: MpiTransport, carrier: Carrier) -> StepsTo[Transport]:
    """Return what takes zccl's messages."""
    if not carrier.in_turn:
        return carrier.messages(transport)
    return (yield from made(transport, lambda: carrier.messages(transport)))


def chosen_carrier(
    transport: MpiTransport, wanted: str, known: Agreed, kept: Carrier | None = None
) -> StepsTo[Carrier]:
    """Return what carries the messages of a call, when it may be used; the same on all ranks.

    Parameters
    ----------
    transport : MpiTransport
        Of the communicator.
    wanted : str
        The option `transport`.
    known : Agreed
        Whether arrays are on GPUs and on hosts.
    kept : Carrier or None
        What was chosen before, for a call that is made again.

    Raises
    ------
    TransportError
        When what was asked for is not there, on all ranks.
    """
    if kept is not None:
        if kept.in_turn:
            yield transport.turn()
            # What is queued on a GPU before all ranks have started holds up whatever else is there.
            yield Waiting(transport.comm.Ibarrier())
        return kept
    if not known.device:
        return Carrier("mpi", "", _by_mpi)
    if wanted == "mpi-staged":
        return Carrier(wanted, "asked for", _by_mpi)
    if known.host:
        if wanted != "auto":
            raise TransportError(
                f"transport: {wanted!r} was asked for, but some ranks' arrays are on the host:"
                " 'mpi-staged' and 'auto' can do that"
            )
        return Carrier("mpi-staged", "some arrays are on the host", _by_mpi)
    if transport.size == 1 and wanted == "auto":
        return Carrier("mpi-staged", "a single rank sends nothing", _by_mpi)
    yield transport.turn()  # to look for ways, too: all ranks do that in one order
    ways = yield from transport.device_transports(known.moved)
    if wanted == "mpi-device":
        works, reason = yield from made(transport, ways.mpi_device)
        if works:
            return Carrier(wanted, reason, _by_mpi, direct=True)
    else:
        works, reason = yield from made(transport, ways.nccl)
        if works:
            return Carrier(
                "nccl", reason, lambda _: ways.messages(), True, ways.collectives, in_turn=True
            )
        if wanted == "auto":
            return Carrier("mpi-staged", f"no NCCL: {reason}", _by_mpi)
    raise TransportError(
        f"transport: {wanted!r} was asked for but cannot be used: {reason}; 'auto' takes what there"
        " is"
    )
