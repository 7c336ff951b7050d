"""Host arrays over MPI, on a private duplicate of the user's communicator."""

from __future__ import annotations

import copy
from collections.abc import Generator
from typing import Any

import numpy as np
from mpi4py import MPI

from zccl.config import launched_ranks
from zccl.device import synchronize
from zccl.errors import TransportError
from zccl.transport.lanes import Lanes
from zccl.transport.waiting import Until, Waiting, wait_until
from zccl.transport.ways import WaysOfRanks
from zccl.typing import Bytes

_NOTHING = np.empty(0, np.uint8)


class Pending:
    """A message on its way."""

    __slots__ = ("_buffer", "_received", "_request", "_status")

    def __init__(self, request: MPI.Request, buffer: Bytes, received: bool):
        self._request: MPI.Request | None = request
        self._buffer = buffer  # kept alive until the message has left, or its receiver has it
        self._received = received
        self._status = MPI.Status()

    def done(self) -> bool:
        """Whether it has arrived, or left its buffer."""
        if self._request is not None and self._request.Test(self._status):
            self._finish()
        return self._request is None

    def wait(self) -> None:
        """Block until it has arrived, or left its buffer."""
        wait_until(self.done)

    def _finish(self) -> None:
        self._request = None
        if not self._received:
            self._buffer = _NOTHING

    def message(self) -> Bytes:
        """Return what was received."""
        return self._buffer[: self._status.Get_count(MPI.BYTE)]


class MpiTransport:
    """Point-to-point messages between host arrays.

    Attributes
    ----------
    comm : MPI.Intracomm
        Private duplicate of the user's communicator.
    rank, size : int
        Of this process and of the communicator.
    local_size : int
        Ranks that share memory with this one.
    one_node : bool
        Whether all ranks do.
    announced : set
        Plans that were logged for this communicator.
    lanes : Lanes
        Communicators for operations at once.
    """

    def __init__(self, comm: MPI.Intracomm):
        _refuse_singletons()
        self.comm = comm.Dup()
        self.rank = self.comm.rank
        self.size = self.comm.size
        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_size = node.size
        self.one_node = node.size == self.size
        node.Free()
        self.announced: set[object] = set()
        self.lanes = Lanes(self)
        self._began: int | None = None
        self._ways = WaysOfRanks()
        self._tag = 0
        limit = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)  # Open MPI has it on no other
        assert isinstance(limit, int)
        self._tag_limit = limit

    def next_tag(self) -> int:
        """Return the tag of the next operation; all ranks start operations in one order."""
        self._tag = (self._tag + 1) % self._tag_limit
        return self._tag

    @property
    def next_local_tag(self) -> int:
        """A tag that no operation in flight has, for messages before the first operation's."""
        return self._tag

    def beside(self, comm: MPI.Intracomm, began: int | None = None) -> MpiTransport:
        """Return a transport for the same ranks on another private communicator.

        `began` is the number of the operation that it is for.
        """
        other = copy.copy(self)
        other.comm = comm
        other._tag = (began or 0) % self._tag_limit
        other._began = began
        return other

    @property
    def is_lane(self) -> bool:
        """Whether it is for an operation that was started."""
        return self._began is not None

    def device_transports(self, moved: bool) -> Generator[Until | Waiting, None, Any]:
        """Take steps to what can carry arrays between the ranks' current GPUs; collective.

        It is a `DeviceTransports`, or a `NoDeviceTransports` where some rank has no GPU or no CuPy.
        `moved` says whether some rank's `has_moved` was true.
        """
        return self._ways.now(self, moved)

    def has_moved(self, on_device: bool | None) -> bool:
        """Whether this rank's GPU is, or may be, another one than in the last call."""
        if on_device is False:
            return False
        return self._ways.have_moved() or not self.lanes.none_but(self._began)

    def is_fast(self, on_device: bool | None) -> bool:
        """Whether bytes are known to travel faster than they are coded: inside one node."""
        return self.one_node and (self._ways.nccl_works() if on_device else on_device is False)

    def turn(self) -> Until:
        """Return something to wait for: that all operations which began earlier have ended."""
        return Until(lambda: self.lanes.none_before(self._began))

    def free(self, devices: bool) -> None:
        """Give back what was made for the communicator, at last its duplicate; collective."""
        self.lanes.free()
        if devices:
            self._ways.free()
        self.comm.Free()

    def isend(self, message: Bytes, dest: int, tag: int) -> Pending:
        """Start to send; the message must not change until it is done."""
        _let_device_finish(message)
        return Pending(self.comm.Isend([message, MPI.BYTE], dest, tag), message, False)

    def irecv(self, buffer: Bytes, source: int, tag: int) -> Pending:
        """Start to receive at most the size of `buffer`."""
        _let_device_finish(buffer)
        return Pending(self.comm.Irecv([buffer, MPI.BYTE], source, tag), buffer, True)


def _let_device_finish(buffer: object) -> None:
    """Wait for CuPy's current stream where a buffer is on a GPU: MPI knows of no streams.

    What is sent must be there, and what is received into may have had another use.
    """
    if not isinstance(buffer, np.ndarray):
        synchronize()


def _refuse_singletons() -> None:
    """Refuse to work where a launcher of another MPI started N programs of one rank each."""
    name, ranks = launched_ranks()
    if ranks > 1 and MPI.COMM_WORLD.size == 1:
        raise TransportError(
            f"every rank runs alone: the launcher started {ranks} ranks ({name}), but the world"
            " has one. Use the launcher that belongs to mpi4py's MPI (srun: --mpi=pmi2 for MPICH,"
            f" --mpi=pmix for Open MPI), or unset {name} for a single rank"
        )


def _forget(comm: MPI.Comm, keyval: int, transport: MpiTransport) -> None:
    if not MPI.Is_finalized():
        transport.free(devices=comm != MPI.COMM_WORLD)  # which ends with the process, as CUDA does


_KEYVAL = MPI.Comm.Create_keyval(delete_fn=_forget)


def transport_of(comm: MPI.Intracomm) -> MpiTransport:
    """Return the transport of a communicator; collective on its first use.

    It is kept as an attribute of the communicator and freed with it.

    Raises
    ------
    TypeError
        When `comm` is no intracommunicator.
    TransportError
        When it is null or was freed.
    """
    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm: got {type(comm).__name__}, wanted an mpi4py intracommunicator")
    if comm == MPI.COMM_NULL:
        raise TransportError(
            "comm: got COMM_NULL; this rank is not part of the communicator, or it was freed"
        )
    if comm.Is_inter():
        raise TypeError("comm: got an intercommunicator, wanted an intracommunicator")
    transport = comm.Get_attr(_KEYVAL)
    if not isinstance(transport, MpiTransport):
        transport = MpiTransport(comm)
        comm.Set_attr(_KEYVAL, transport)
    return transport


def free_transport_of(comm: MPI.Intracomm) -> None:
    """Give the transport of a communicator back, where it has one; collective."""
    if comm != MPI.COMM_NULL and comm.Get_attr(_KEYVAL) is not None:
        comm.Delete_attr(_KEYVAL)
