"""Hostile bytes, read in a child process with little memory.

Whatever the bytes, a reader raises `StreamError` or returns the values that were stored (of a
forgery with right checksums: some values). An escape from memory, a giant allocation, a hang, or
another exception fails the test and says which case it was.
"""

import ctypes
import math
import mmap
import os
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from unit import forgery
from unit.forgery import Wire

import zccl
from zccl import pool
from zccl.codecs.quantised import HEAD_NBYTES

TESTS = Path(__file__).resolve().parents[1]
SECONDS = 20  # for one case
LIMIT = 280  # seconds for one child, kernels to be compiled among them
ROOM = 4 << 30  # bytes of address space that a reader may take
LIBC = ctypes.CDLL(None, use_errno=True)
OPS = [zccl.SUM, zccl.AVG, zccl.MAX, zccl.MIN]


# ---------------------------------------------------------------- in the child


def guarded(nbytes):
    """Return bytes that end where a page begins that nobody may touch (up to 7 bytes before it)."""
    room = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, room + mmap.PAGESIZE), np.uint8)
    end = ctypes.c_void_p(memory.__array_interface__["data"][0] + room)
    if LIBC.mprotect(end, ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    start = (room - nbytes) // 8 * 8
    return memory[start : start + nbytes]


def guarded_empty(shape, dtype=float):
    """Stand in for `np.empty`, with a guard page behind the array."""
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    if not 0 < nbytes < 1 << 24:
        return np.empty(shape, dtype)
    return guarded(nbytes).view(dtype).reshape(shape)


def in_guarded(stream):
    """Return a copy with a guard page behind it."""
    copy = guarded(max(stream.size, 1))[: stream.size]
    copy[:] = stream
    return copy


class GuardedNumpy:
    """NumPy, as the library sees it here: all that it allocates for kernels to write is guarded."""

    empty = staticmethod(guarded_empty)

    def __getattr__(self, name):
        return getattr(np, name)


def guard_library():
    """Let the library have guarded memory; its kernels must be compiled already."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("zccl.") and ".kernels." not in module_name:
            if getattr(module, "np", None) is np:
                module.np = GuardedNumpy()
    pool.HOST.take = guarded


def samples():
    """Streams of every form and kind of tile."""
    rng = np.random.default_rng(8)
    walk = np.cumsum(rng.standard_normal(2500))
    special = walk.copy()
    special[::90] = np.nan
    special[7:60] = 1e30
    special[1100:2048] = -9999
    parts = (walk, special, np.where(rng.random(2500) < 0.4, special, walk * 1e20), walk + 1e9)
    f4 = [part.astype(np.float32) for part in parts]
    found = [zccl.compress(x, 0.01) for x in [*f4, *parts[:3]]]
    found += [zccl.compress(parts[3], 1e-4)]  # bases of 64 bits
    found += [zccl.compress(np.repeat(f4[0][:3], 1024), 0.01)]
    found += [zccl.compress(f4[0][:n], 0.01) for n in (1, 15, 17, 1024, 1025)]
    found += [zccl.reduce_streams(found[0], found[1]), zccl.reduce_streams(found[4], found[5])]
    found += [zccl.compress((f4[0] + 1j * f4[1][::-1]).reshape(50, 50), 0.01)]
    found += [zccl.compress((f4[0] / 9).astype(np.float16), 0.05)]
    found += [zccl.compress(np.full((30, 40), 2.5), 0.01), zccl.compress(np.int16(7), None)]
    found += [zccl.compress(f4[0][:1500], 0), zccl.compress(np.arange(777), None)]
    return [*found, zccl.compress(np.empty((0, 4)), 1e-3)]


def read(stream, partner, wanted=None):
    forgery.read_stream(in_guarded(stream), partner, guarded_empty, wanted)


class Damage:
    """Random damage to streams and messages."""

    def __init__(self):
        self.streams = samples()
        self.arrays = [zccl.decompress(stream) for stream in self.streams]
        self.wires = wires()

    def run(self, rng):
        which = rng.integers(len(self.streams))
        stream = forgery.damage(rng, self.streams[which], self.streams)
        if not any(np.array_equal(stream, other) for other in self.streams):
            read(stream, self.streams[which], self.arrays[which])
        wire = self.wires[rng.integers(len(self.wires))]
        message = forgery.damage(rng, wire.own, [other.own for other in self.wires])
        if not any(np.array_equal(message, other.own) for other in self.wires):
            wire.read(in_guarded(message), damaged=True)


class Headers:
    """Headers with right checksums, around bodies that do not fit them."""

    def __init__(self):
        self.streams = samples()

    def run(self, rng):
        stream = self.streams[rng.integers(len(self.streams))]
        read(forgery.forge_header(rng, stream), stream)


class Bodies:
    """Tables and records that no encoder writes, with right checksums."""

    def __init__(self):
        self.streams = [s for s in samples() if zccl.inspect(s).form == "coded"]

    def run(self, rng):
        stream = self.streams[rng.integers(len(self.streams))]
        parts = forgery.take_apart(stream)
        end = 8 * -(-parts.values // 1024)
        table, words = parts.body[:end].view(np.uint64), parts.body[end:].view(np.uint32)
        if rng.random() < 0.5:
            forgery.forge_words(rng, table, words)
        else:
            table, words = forgery.forge_body(
                rng, parts.values, forgery.VALUE_WORDS[parts.fields["dtype"]]
            )
        body = np.concatenate([table.view(np.uint8), words.view(np.uint8)])
        steps = (
            {"step": float(rng.choice([5e-324, 1e-30, 1e30, 1e308]))} if rng.random() < 0.1 else {}
        )
        read(forgery.seal(parts._replace(body=body), **steps), stream)


class Messages:
    """Tables and records that no encoder writes, on the wire."""

    def __init__(self):
        self.wires = wires()

    def run(self, rng):
        wire = self.wires[rng.integers(len(self.wires))]
        n, value_words = wire.target.size, wire.target.itemsize // 4
        if rng.random() < 0.5:
            message = wire.own.copy()
            end = HEAD_NBYTES + 8 * -(-n // 1024)
            table, words = message[HEAD_NBYTES:end].view(np.uint64), message[end:].view(np.uint32)
            forgery.forge_words(rng, table, words)
        else:
            table, words = forgery.forge_body(rng, n, value_words)
        wire.read(in_guarded(forgery.seal_message(table, words)), damaged=False)


def wires():
    """Both value types, all operations, and the sizes where a last tile is short or full."""
    return [
        Wire(n, dtype, op, guarded_empty)
        for dtype in (np.float32, np.float64)
        for op in OPS
        for n in (1, 700, 1024, 2100)
    ]


class Overrun:
    """Not hostile bytes, but the write that the guard page must catch."""

    def run(self, rng):
        ctypes.memset(guarded(64).ctypes.data, 0, 65)


class Giant:
    """Not hostile bytes, but the allocation that the limit must catch."""

    def run(self, rng):
        guarded_empty(2 * ROOM, np.uint8)[:] = 1


class Hang:
    """Not hostile bytes, but the loop that the alarm must end."""

    def run(self, rng):
        signal.alarm(1)
        while True:
            pass


KINDS = {kind.__name__: kind for kind in (Damage, Headers, Bodies, Messages, Overrun, Giant, Hang)}


def child(name, first, count, progress=None):
    """Run so many cases; the number of the case in hand is kept in the file `progress`."""
    kind = KINDS[name]()  # compiles, or loads, kernels
    guard_library()
    warnings.simplefilter("error")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    file = os.open(progress or os.devnull, os.O_WRONLY)
    for case in range(first, first + count):
        os.pwrite(file, b"%d" % case, 0)
        signal.alarm(SECONDS)  # ends the process, whatever it is doing
        kind.run(np.random.default_rng([case, 2026]))
    signal.alarm(0)


# ---------------------------------------------------------------- in the parent


def run_child(name, count, tmp_path):
    """Return None when all went well, else what happened."""
    progress = tmp_path / "case"
    progress.touch()
    code = (
        f"from unit.test_hostile_bytes import child; child({name!r}, 0, {count}, {str(progress)!r})"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        "PYTHONFAULTHANDLER": "1",
    }
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    if ran.returncode == 0:
        return None
    again = f"child({name!r}, {progress.read_text()}, 1)"
    return f"exit code {ran.returncode} in {again}\n{ran.stderr}"


@pytest.mark.parametrize(
    ("name", "count"), [("Damage", 3000), ("Headers", 3000), ("Bodies", 2000), ("Messages", 4000)]
)
@pytest.mark.timeout(LIMIT + 20)
def test_hostile_bytes(name, count, tmp_path):
    fault = run_child(name, count, tmp_path)
    assert fault is None, fault


@pytest.mark.parametrize(
    ("name", "exit_code", "says"),
    [
        ("Overrun", -signal.SIGSEGV, "Segmentation fault"),
        ("Giant", 1, "MemoryError"),
        ("Hang", -signal.SIGALRM, "child('Hang', 0, 1)"),
    ],
)
def test_the_net_holds(name, exit_code, says, tmp_path):
    """What must not happen is seen when it happens."""
    fault = run_child(name, 1, tmp_path)
    assert fault is not None and f"exit code {exit_code}" in fault and says in fault, fault
