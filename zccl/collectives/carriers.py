"""What carries the messages of a call: chosen from what all ranks have agreed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zccl.algorithms.agreement import Agreed
from zccl.algorithms.primitives import StepsTo
from zccl.algorithms.protocols import Transport
from zccl.errors import TransportError
from zccl.transport.mpi import MpiTransport


class Carrier(NamedTuple):
    """A transport for messages, and where they lie.

    Attributes
    ----------
    name : str
        "mpi", or for device arrays one of `zccl.options.TRANSPORTS`.
    reason : str
        Why, for device arrays.
    messages : function that returns a Transport
        What takes zccl's messages; collective on its first use.
    direct : bool
        Whether they lie on the device.
    collectives : function that returns NcclCollectives, or None
        What takes the place of MPI's own collectives; collective on its first use.
    """

    name: str
    reason: str
    messages: Callable[[], Transport]
    direct: bool = False
    collectives: Callable[[], Any] | None = None


def chosen_carrier(transport: MpiTransport, wanted: str, known: Agreed) -> StepsTo[Carrier]:
    """Return what carries the messages of a call, as `choose_carrier`, when that can be used.

    What finds and uses the ways between GPUs must run in one order on all ranks, so there
    operations take turns.
    """
    if known.device and not known.host and wanted != "mpi-staged":
        yield transport.turn()
    return choose_carrier(transport, wanted, known)


def choose_carrier(transport: MpiTransport, wanted: str, known: Agreed) -> Carrier:
    """Return what carries the messages of a call; the same on all ranks.

    Parameters
    ----------
    transport : MpiTransport
        Of the communicator.
    wanted : str
        The option `transport`.
    known : Agreed
        Whether arrays are on GPUs and on hosts.

    Raises
    ------
    TransportError
        When what was asked for is not there, on all ranks.
    """

    def by_mpi() -> Transport:
        return transport

    if not known.device:
        return Carrier("mpi", "", by_mpi)
    if wanted == "mpi-staged":
        return Carrier(wanted, "asked for", by_mpi)
    if known.host:
        if wanted != "auto":
            raise TransportError(
                f"transport: {wanted!r} was asked for, but some ranks' arrays are on the host:"
                " 'mpi-staged' and 'auto' can do that"
            )
        return Carrier("mpi-staged", "some arrays are on the host", by_mpi)
    if transport.size == 1 and wanted == "auto":
        return Carrier("mpi-staged", "a single rank sends nothing", by_mpi)
    ways = transport.device_transports(known.moved)
    if wanted == "mpi-device":
        works, reason = ways.mpi_device()
        if works:
            return Carrier(wanted, reason, by_mpi, direct=True)
    else:
        works, reason = ways.nccl()
        if works:
            return Carrier("nccl", reason, ways.messages, True, ways.collectives)
        if wanted == "auto":
            return Carrier("mpi-staged", f"no NCCL: {reason}", by_mpi)
    raise TransportError(
        f"transport: {wanted!r} was asked for but cannot be used: {reason}; 'auto' takes what there"
        " is"
    )
