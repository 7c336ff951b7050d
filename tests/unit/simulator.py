"""Ranks in one process, for algorithms without MPI.

Ranks take their steps in random order, and messages arrive in random order: in order only from one
rank to another with one tag. What a seed chose can be run again.
"""

from __future__ import annotations

import enum
import random
import weakref
from collections import defaultdict, deque
from collections.abc import Callable

import numpy as np


class Semantics(enum.Enum):
    """When a send is done.

    EAGER: at once. RENDEZVOUS: some time after a posted receive has matched it. FIFO: as well, and
    a rank offers one message at a time, to whatever rank: the next when the first was granted. The
    transfers of a rank then run one after the other, as on the streams of `zccl.transport.nccl`.
    """

    EAGER = "eager"
    RENDEZVOUS = "rendezvous"
    FIFO = "fifo"


class Deadlock(AssertionError):
    """Nobody can take a step, but some ranks are not done."""


class Pending:
    """A message on its way, as one of its two ranks sees it."""

    def __init__(self, rank, peer, tag, buffer, sends):
        self.rank, self.peer, self.tag, self.sends = rank, peer, tag, sends
        self.buffer = buffer
        self.nbytes = buffer.nbytes if sends else None
        self.finished = False
        self.task = None  # the one whose steps have started it
        self.waits = False  # whether that waits for it now

    def done(self):
        return self.finished

    def wait(self):
        raise AssertionError("algorithms yield what they wait for")

    def message(self):
        assert self.finished and not self.sends, f"asked {self} too early"
        return self.buffer[: self.nbytes]

    def __str__(self):
        if self.sends:
            return f"its {self.nbytes} bytes to rank {self.peer} (tag {self.tag})"
        return f"a message from rank {self.peer} (tag {self.tag})"


class Transport:
    """The transport of one rank."""

    def __init__(self, simulator, rank):
        self.rank, self.size = rank, simulator.size
        self._simulator = simulator
        self._tag = 0

    def next_tag(self):
        self._tag += 1
        return self._tag

    def isend(self, message, dest, tag):
        return self._simulator.send(Pending(self.rank, dest, tag, message, True))

    def irecv(self, buffer, source, tag):
        return self._simulator.receive(Pending(self.rank, source, tag, buffer, False))


class _Letter:
    """What the network has of a message: a copy of its bytes, and no hold on the sender's."""

    def __init__(self, pending):
        self.source, self.dest, self.tag = pending.rank, pending.peer, pending.tag
        self.content = pending.buffer.tobytes()
        self.sent = weakref.ref(pending)
        self.received = None

    def __str__(self):
        n = len(self.content)
        return f"{n} bytes from rank {self.source} to rank {self.dest} (tag {self.tag})"


class _Channel:
    """What is between two ranks with one tag, in order."""

    def __init__(self):
        self.letters = deque()
        self.posted = deque()
        self.matching = False  # whether that is among the next steps
        self.open = 0  # receives that are not done


class Task:
    """The steps of one operation on one rank."""

    def __init__(self, rank, name, steps):
        self.rank, self.name, self.steps = rank, name, steps
        self.pending = None
        self.open = 0  # messages that have not left or arrived
        self.finished = False


class Simulator:
    """A network and a scheduler.

    Parameters
    ----------
    size : int
        Number of ranks.
    semantics : Semantics
        When a send is done.
    ahead : int
        Receives that may be open in one channel.
    seed : int
        Decides the order of everything.
    """

    def __init__(self, size, semantics, ahead, seed):
        self.size, self.semantics, self.ahead = size, semantics, ahead
        self.transports = [Transport(self, rank) for rank in range(size)]
        self.sent_nbytes = defaultdict(int)  # of a rank with a tag
        self.most_open = 0
        self._tasks = []
        self._current = None
        self._channels = defaultdict(_Channel)
        self._next = []  # (weight, what, its argument): what could happen now
        # For FIFO.
        self._queues = [deque() for _ in range(size)]  # letters not granted yet
        self._out = [deque() for _ in range(size)]  # granted letters, as the sender starts them
        self._in = [deque() for _ in range(size)]  # and the receiver
        # Fair at times; at times some ranks, or all of the network, are far slower than others.
        self._random = random.Random(seed)
        self._rivals = self._random.choice((1, 2, 12))
        self._haste = [self._random.random() for _ in range(size)]
        self._network_haste = self._random.choice((-1, 0, 0, 1))

    def start(self, rank, name, steps):
        """Add steps for a rank to take."""
        task = Task(rank, name, steps)
        self._tasks.append(task)
        self._ready(task)

    def run(self):
        """Do all that can be done, then see that all is done and nothing is left over."""
        while self._next:
            what, argument = self._choose()
            what(argument)
        late = [task for task in self._tasks if not task.finished]
        if late:
            raise Deadlock(f"{self.semantics}\n" + "\n".join(map(self._state, late)))
        for (source, dest, tag), channel in self._channels.items():
            where = f"from rank {source} to rank {dest} (tag {tag})"
            assert not channel.letters, f"{len(channel.letters)} messages left over {where}"
            assert not channel.posted, f"{len(channel.posted)} receives without message {where}"
            assert not channel.open
        assert not any(self._queues) and not any(self._out) and not any(self._in)

    def _choose(self):
        """Take one of the next steps: the hastiest of some that are drawn."""
        steps = self._next
        n = len(steps)
        draw = self._random.random
        at = int(draw() * n)
        for _ in range(self._rivals - 1):
            other = int(draw() * n)
            if steps[other][0] > steps[at][0]:
                at = other
        steps[at], steps[-1] = steps[-1], steps[at]
        _, what, argument = steps.pop()
        return what, argument

    def _later(self, what, argument, rank):
        self._next.append((self._haste[rank] + self._network_haste, what, argument))

    # Tasks.

    def _ready(self, task):
        self._next.append((self._haste[task.rank], self._step, task))

    def _step(self, task):
        self._current = task
        try:
            pending = task.pending = next(task.steps)
        except StopIteration:
            assert not task.open, f"rank {task.rank}, {task.name}: ended before its messages"
            task.finished = True
            task.pending = None
            return
        assert pending.task is task
        if pending.finished:
            self._ready(task)
        else:
            pending.waits = True

    def _finish(self, reference, what):
        pending = reference()
        assert pending is not None, f"the buffer of {what} was let go of while it was under way"
        assert not pending.finished
        pending.finished = True
        pending.task.open -= 1
        if pending.waits:
            self._ready(pending.task)
        return pending

    # Messages.

    def send(self, pending):
        assert 0 <= pending.peer < self.size and pending.peer != pending.rank
        pending.task = self._current
        letter = _Letter(pending)
        self.sent_nbytes[letter.source, letter.tag] += len(letter.content)
        if self.semantics is Semantics.FIFO:
            queue = self._queues[letter.source]
            queue.append(letter)
            pending.task.open += 1
            if len(queue) == 1:
                self._later(self._offer, letter, letter.source)
            return pending
        if self.semantics is Semantics.EAGER:
            pending.finished = True
        else:
            pending.task.open += 1
        self._put(letter)
        return pending

    def receive(self, pending):
        assert 0 <= pending.peer < self.size and pending.peer != pending.rank
        pending.task = self._current
        pending.task.open += 1
        key = pending.peer, pending.rank, pending.tag
        channel = self._channels[key]
        channel.open += 1
        assert channel.open <= self.ahead, f"{channel.open} receives posted ahead: {key}"
        self.most_open = max(self.most_open, channel.open)
        channel.posted.append(weakref.ref(pending))
        self._see(channel, pending.rank)
        return pending

    def _put(self, letter):
        channel = self._channels[letter.source, letter.dest, letter.tag]
        channel.letters.append(letter)
        self._see(channel, letter.dest)

    def _see(self, channel, dest):
        if channel.letters and channel.posted and not channel.matching:
            channel.matching = True
            self._later(self._match, channel, dest)

    def _match(self, channel):
        letter = channel.letters.popleft()
        letter.received = channel.posted.popleft()
        channel.matching = False
        self._see(channel, letter.dest)
        if self.semantics is not Semantics.FIFO:
            self._move(letter)
        elif not letter.content:
            self._later(self._arrive, letter, letter.dest)
        else:
            self._in[letter.dest].append(letter)
            self._later(self._grant, letter, letter.source)

    def _move(self, letter):
        self._later(self._arrive, letter, letter.dest)
        if self.semantics is not Semantics.EAGER:
            self._later(self._leave, letter, letter.source)

    def _arrive(self, letter):
        pending = self._finish(letter.received, letter)
        n = pending.nbytes = len(letter.content)
        assert n <= pending.buffer.nbytes, f"no room for {letter}: {pending.buffer.nbytes} bytes"
        pending.buffer[:n] = np.frombuffer(letter.content, np.uint8)
        self._channels[letter.source, letter.dest, letter.tag].open -= 1

    def _leave(self, letter):
        pending = self._finish(letter.sent, letter)
        assert pending.buffer.tobytes() == letter.content, f"{letter}: changed before they had left"

    # One message at a time.

    def _offer(self, letter):
        self._put(letter)
        if not letter.content:  # nobody has to grant it
            self._leave(letter)
            self._advance(letter.source)

    def _grant(self, letter):
        self._out[letter.source].append(letter)
        self._advance(letter.source)
        self._try_transfer(letter)

    def _advance(self, rank):
        queue = self._queues[rank]
        queue.popleft()
        if queue:
            self._later(self._offer, queue[0], rank)

    def _try_transfer(self, letter):
        outgoing, incoming = self._out[letter.source], self._in[letter.dest]
        if outgoing and outgoing[0] is letter and incoming and incoming[0] is letter:
            self._later(self._transfer, letter, letter.dest)

    def _transfer(self, letter):
        outgoing, incoming = self._out[letter.source], self._in[letter.dest]
        assert outgoing.popleft() is letter and incoming.popleft() is letter
        self._move(letter)
        following = {id(row[0]): row[0] for row in (outgoing, incoming) if row}
        for letter in following.values():
            self._try_transfer(letter)

    # What is wrong.

    def _state(self, task):
        pending = task.pending
        assert pending is not None
        text = f"rank {task.rank}, {task.name}: waits for {pending}"
        queue = self._queues[task.rank]
        if queue:
            text += f"; offers {queue[0]}, then {len(queue) - 1} more"
        posted = [
            f"{source} (tag {tag})"
            for (source, dest, tag), channel in self._channels.items()
            if dest == task.rank and channel.posted
        ]
        return text + (f"; has receives posted from {', '.join(posted)}" if posted else "")


def in_a_row(makers: list[Callable]):
    """Take the steps of several operations, each begun when the one before has ended."""
    for make in makers:
        yield from make()
