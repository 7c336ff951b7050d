"""Device arrays by NCCL: its collectives, and zccl's own messages.

MPI carries what hosts must tell each other first: sizes, and that a receiver is ready.

A message needs three steps. Its sender *requests*, with its size; the receiver, once it has a
buffer posted, starts its half of NCCL's transfer and *grants*; the sender starts the other half and
says so. Each half is on the rank's stream for that direction. A sender requests one message at a
time, the next when this one is granted, and a receiver grants the next when this one has started.
So grants have an order that is also the order on all streams, and no two transfers can wait for
each other.

A grant is given in a wait only, and no wait is over between it and the sender's word. So what is on
a GPU while its host goes on with other work has both its halves there, and ends without any host.
Else hosts could wait for each other for ever: memory that is given back to CUDA, and a kernel that
is loaded, may wait for all that is on the GPU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import accumulate, combinations
from typing import Any

import cupy
import numpy as np
from cupy.cuda import nccl
from mpi4py import MPI

from zccl.device import DeviceArray
from zccl.errors import TransportError
from zccl.ops import Op
from zccl.transport.mpi import MpiTransport
from zccl.transport.waiting import wait_until

_TYPES = {
    "int8": nccl.NCCL_INT8,
    "uint8": nccl.NCCL_UINT8,
    "int32": nccl.NCCL_INT32,
    "uint32": nccl.NCCL_UINT32,
    "int64": nccl.NCCL_INT64,
    "uint64": nccl.NCCL_UINT64,
    "float16": nccl.NCCL_FLOAT16,
    "float32": nccl.NCCL_FLOAT32,
    "float64": nccl.NCCL_FLOAT64,
}
_REFUSED, _GRANTED = 0, 1  # what a receiver answers

_OPS = {
    Op.SUM: nccl.NCCL_SUM,
    Op.AVG: nccl.NCCL_SUM,
    Op.MAX: nccl.NCCL_MAX,
    Op.MIN: nccl.NCCL_MIN,
}


def can_reduce(op: Any, dtype: np.dtype) -> bool:
    """Whether NCCL has this reduction."""
    return isinstance(op, Op) and dtype.name in _TYPES


def _connect(transport: MpiTransport, ranks: tuple[int, ...]) -> Any:
    """Return NCCL's communicator of some ranks; they all call this, the others do not."""
    first, *others = ranks
    tag = transport.next_local_tag
    name = None
    if transport.rank == first:
        name = nccl.get_unique_id()
        for rank in others:
            transport.comm.send(name, rank, tag)
    else:
        name = transport.comm.recv(None, first, tag)
    return nccl.NcclCommunicator(len(ranks), name, ranks.index(transport.rank))


class NcclCollectives:
    """NCCL's own collectives, on the current stream.

    Counts are of elements, arrays are rows.
    """

    def __init__(self, transport: MpiTransport):
        self.rank, self.size = transport.rank, transport.size
        self._comm = _connect(transport, tuple(range(transport.size)))

    def free(self) -> None:
        """Give the communicator back."""
        self._comm.destroy()

    def allreduce(self, send: Any, into: Any, op: Op) -> None:
        """Reduce rows."""
        if send.size:
            kind = _TYPES[send.dtype.name]
            self._comm.allReduce(
                send.data.ptr, into.data.ptr, send.size, kind, _OPS[op], _current()
            )

    def reduce(self, send: Any, into: Any, op: Op, root: int) -> None:
        """Reduce rows to a root; `into` matters there."""
        if send.size:
            kind = _TYPES[send.dtype.name]
            target = send if into is None else into
            self._comm.reduce(
                send.data.ptr, target.data.ptr, send.size, kind, _OPS[op], root, _current()
            )

    def reduce_scatter(self, send: Any, into: Any, counts: list[int], op: Op) -> None:
        """Reduce rows; each rank gets its share."""
        if len(set(counts)) == 1:
            if send.size:
                kind = _TYPES[send.dtype.name]
                self._comm.reduceScatter(
                    send.data.ptr, into.data.ptr, into.size, kind, _OPS[op], _current()
                )
            return
        start = 0
        for root, count in enumerate(counts):
            share = send[start : start + count]
            self.reduce(share, into if root == self.rank else None, op, root)
            start += count

    def bcast(self, buffer: Any, root: int) -> None:
        """Give all ranks the root's bytes."""
        if buffer.size:
            address = buffer.data.ptr
            self._comm.bcast(address, buffer.size, nccl.NCCL_UINT8, root, _current())

    def exchange(
        self, send: Any, given: list[int], into: Any, taken: list[int], same: bool = False
    ) -> None:
        """Send a run of bytes to each rank and receive one from each; one's own is copied.

        Parameters
        ----------
        send, into : row of uint8, or None where all counts are 0 or one's own stays where it is
            The runs, one behind the other.
        given, taken : list of int
            Bytes of each run; 0 sends nothing.
        same : bool
            Whether all ranks get the same run, all of `send`.
        """
        starts = [0] * self.size if same else _starts(given)
        places = _starts(taken)
        nccl.groupStart()
        for rank in range(self.size):
            if rank != self.rank and given[rank]:
                start = send.data.ptr + starts[rank]
                self._comm.send(start, given[rank], nccl.NCCL_UINT8, rank, _current())
            if rank != self.rank and taken[rank]:
                place = into.data.ptr + places[rank]
                self._comm.recv(place, taken[rank], nccl.NCCL_UINT8, rank, _current())
        nccl.groupEnd()
        own = taken[self.rank]
        if own and send is not None and into is not None:
            start, place = starts[self.rank], places[self.rank]
            into[place : place + own] = send[start : start + own]


def _starts(counts: list[int]) -> list[int]:
    return list(accumulate(counts, initial=0))[:-1]


def _current() -> int:
    return int(cupy.cuda.get_current_stream().ptr)


class Pending:
    """A message on its way."""

    def __init__(self, transport: NcclTransport, buffer: Any, received: bool):
        self.buffer = buffer
        self.nbytes = np.zeros(1, np.int64)
        self.answer = np.zeros(1, np.uint8)
        self.event: Any = None
        self.request: MPI.Request | None = None
        self.finished = False
        self._transport = transport
        self._received = received

    def done(self) -> bool:
        """Whether it has arrived, or left its buffer.

        Makes progress, but grants something only where a message is waited for, to be received: of
        one that was sent it may be asked in passing.
        """
        return self._is_over(self._received)

    def wait(self) -> None:
        """Block until it has arrived, or left its buffer."""
        wait_until(lambda: self._is_over(True))

    def _is_over(self, grants: bool) -> bool:
        may_go_on = self._transport.progress(grants)
        if self.event is not None and self.event.done:
            self.finished = True
        return self.finished and may_go_on

    def requested(self) -> bool:
        """Whether its sender has asked for it, or its receiver has answered."""
        return self.request is not None and bool(self.request.Test())

    def message(self) -> DeviceArray:
        """Return what was received; nothing where it was refused."""
        return self.buffer[: int(self.nbytes[0])]


class NcclTransport:
    """Point-to-point messages between arrays on GPUs; one GPU a rank.

    Every pair of ranks has a communicator of NCCL for each direction: operations of one
    communicator run one after the other.

    Parameters
    ----------
    transport : MpiTransport
        Carries requests; its ranks.
    """

    def __init__(self, transport: MpiTransport):
        self.rank, self.size = transport.rank, transport.size
        self._mpi = transport
        self._grants = transport.comm.Dup()
        self._starts = transport.comm.Dup()
        self._out = cupy.cuda.Stream(non_blocking=True)
        self._in = cupy.cuda.Stream(non_blocking=True)
        self._channels: dict[tuple[int, int], Any] = {}
        for a, b in combinations(range(self.size), 2):
            for way in ((a, b), (b, a)):
                if self.rank in way:
                    self._channels[way] = _connect(transport, way)
                    self._open(way)
        self._sends: deque[tuple[Pending, int, int]] = deque()
        self._receives: list[tuple[Pending, int, int]] = []
        self._told: list[tuple[MPI.Request, Any]] = []
        self._started: MPI.Request | None = None  # the word on the message granted last

    def _open(self, way: tuple[int, int]) -> None:
        """Pass a byte: a channel's first operation makes both hosts wait for each other."""
        byte = cupy.zeros(1, np.uint8)
        channel, sends = self._channels[way], self.rank == way[0]
        move, stream = (channel.send, self._out) if sends else (channel.recv, self._in)
        stream.wait_event(cupy.cuda.get_current_stream().record())
        move(byte.data.ptr, 1, nccl.NCCL_UINT8, int(sends), stream.ptr)
        stream.synchronize()

    def next_tag(self) -> int:
        """Return the tag of the next operation; all ranks start operations in one order."""
        return self._mpi.next_tag()

    def isend(self, message: DeviceArray, dest: int, tag: int) -> Pending:
        """Start to send; the message must not change until it is done."""
        pending = Pending(self, message, received=False)
        pending.nbytes[0] = message.size
        self._out.wait_event(cupy.cuda.get_current_stream().record())
        self._sends.append((pending, dest, tag))
        if len(self._sends) == 1:
            self._request(*self._sends[0])
        return pending

    def irecv(self, buffer: DeviceArray, source: int, tag: int) -> Pending:
        """Start to receive at most the size of `buffer`.

        With memory of the host, of a rank whose GPU is full, the message is refused: it counts as
        sent, and what is received is empty.
        """
        pending = Pending(self, buffer, received=True)
        pending.request = self._mpi.comm.Irecv(pending.nbytes, source, tag)
        self._receives.append((pending, source, tag))
        # The buffer may have had another use on the current stream, which is not over yet.
        self._in.wait_event(cupy.cuda.get_current_stream().record())
        return pending

    def progress(self, grants: bool) -> bool:
        """Do what can be done without waiting, to grant something only if told so.

        Returns whether the host may do other work.
        """
        while self._sends and self._send_first():
            self._sends.popleft()
        if self._started is not None and self._started.Test():
            self._started = None
        for waiting in list(self._receives):
            if grants and self._started is None and waiting[0].requested():
                self._receives.remove(waiting)
                self._answer(*waiting)
        self._told = [word for word in self._told if not word[0].Test()]
        return self._started is None

    def _send_first(self) -> bool:
        """Take the first message a step further; returns whether it needs no more."""
        pending, dest, tag = self._sends[0]
        if pending.request is None and not pending.finished:
            self._request(pending, dest, tag)
        if not pending.finished and not pending.requested():
            return False
        if pending.answer[0] == _REFUSED:
            pending.finished = True
        else:
            self._transfer(self._channels[self.rank, dest].send, self._out, pending, 1)
            self._tell(self._starts, pending.answer, dest, tag)
        return True

    def _request(self, pending: Pending, dest: int, tag: int) -> None:
        """Ask for a message to be taken; one without bytes is then over."""
        self._tell(self._mpi.comm, pending.nbytes, dest, tag)
        if pending.nbytes[0]:
            pending.request = self._grants.Irecv(pending.answer, dest, tag)
        else:
            pending.finished = True

    def _answer(self, pending: Pending, source: int, tag: int) -> None:
        """Answer a request that has come; one that is granted starts the transfer."""
        nbytes = int(pending.nbytes[0])
        if not 0 <= nbytes <= pending.buffer.size:
            raise TransportError(f"rank {source} wants to send more than the worst case")
        if not nbytes or isinstance(pending.buffer, np.ndarray):
            pending.finished = True
            pending.nbytes[0] = 0
        else:
            pending.answer[0] = _GRANTED
            self._transfer(self._channels[source, self.rank].recv, self._in, pending, 0)
            self._started = self._starts.Irecv(np.empty(1, np.uint8), source, tag)
        if nbytes:
            self._tell(self._grants, pending.answer, source, tag)

    def _tell(self, comm: MPI.Intracomm, word: Any, rank: int, tag: int) -> None:
        self._told.append((comm.Isend(word, rank, tag), word))

    def _transfer(
        self, start: Callable[..., None], stream: Any, pending: Pending, peer: int
    ) -> None:
        address = pending.buffer.data.ptr
        start(address, int(pending.nbytes[0]), nccl.NCCL_UINT8, peer, stream.ptr)
        pending.event = stream.record(cupy.cuda.Event(disable_timing=True))

    def free(self) -> None:
        """Give the communicators back."""
        for request, _ in self._told:
            request.Wait()
        for channel in self._channels.values():
            channel.destroy()
        self._grants.Free()
        self._starts.Free()
