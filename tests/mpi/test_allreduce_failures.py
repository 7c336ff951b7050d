"""Promise 10 inside a collective: what fails while data moves is found, and nobody waits
for ever.
"""

import numpy as np
import pytest
from mpi.checks import (
    CODED_ALGORITHMS,
    COMM,
    RANK,
    SIZE,
    assert_bound,
    assert_raises_everywhere,
    raised,
    wave,
)

import zccl
from zccl.codecs.plain import PlainReduction
from zccl.codecs.quantised import QuantisedCodec
from zccl.transport.mpi import MpiTransport

pytestmark = pytest.mark.mpi
by_algorithm = pytest.mark.parametrize("algorithm", CODED_ALGORITHMS)
#: Algorithms and the methods of the codec that make their messages.
SENDING = [
    ("ring", "encode"),
    ("ring", "add_own"),
    ("recursive_doubling", "encode"),
    ("recursive_doubling", "combine"),
]
CULPRITS = sorted({0, SIZE // 2, SIZE - 1})
SMALL = zccl.Options(segment_nbytes=4096)
X = wave(1024 * SIZE + 5)  # something in each rank's chunk


def call(algorithm, bound=1e-3):
    return zccl.allreduce(X, error_bound=bound, algorithm=algorithm, options=SMALL)


def fails(_self, *_):
    raise MemoryError("out of memory, says the test")


def flipped(message, bit):
    """Return a copy of a message with one bit flipped; there is none in a message without bytes."""
    wrong = message.copy()
    if wrong.size:
        at = bit % (8 * wrong.size)
        wrong[at // 8] ^= 1 << at % 8
    return wrong


def assert_next_call_works(algorithm):
    assert_bound(call(algorithm), X, 1e-3)


def folded(rank):
    """Whether recursive doubling makes this rank hand its data to the next one, and combine
    nothing.
    """
    rest = SIZE - (1 << (SIZE.bit_length() - 1))
    return rank < 2 * rest and rank % 2 == 0


def culprits(method):
    """Return some ranks that use this method of the codec."""
    return [rank for rank in CULPRITS if not (method == "combine" and folded(rank))]


@pytest.mark.parametrize(
    "algorithm, method", [*SENDING, ("ring", "decode"), ("recursive_doubling", "decode")]
)
@pytest.mark.parametrize("codec", [QuantisedCodec, PlainReduction])
@pytest.mark.skipif(SIZE == 1, reason="a single rank moves no data")
def test_codec_that_fails(monkeypatch, codec, method, algorithm):
    """An exception on one rank while data moves is a TransportError on all; the communicator stays
    usable.
    """
    bound = 0 if codec is PlainReduction else 1e-3
    for culprit in culprits(method):
        with monkeypatch.context() as patch:
            if RANK == culprit:
                patch.setattr(codec, method, fails)
            texts = assert_raises_everywhere(zccl.TransportError, lambda: call(algorithm, bound))
        assert "out of memory, says the test" in texts[culprit]
    assert_next_call_works(algorithm)


@pytest.mark.parametrize("bit", [3, 70, 8 * 60 + 5, -1])
@pytest.mark.parametrize("algorithm, method", SENDING)
@pytest.mark.skipif(SIZE == 1, reason="a single rank sends no messages")
def test_flipped_bit_in_messages(monkeypatch, method, bit, algorithm):
    """A bit that flips in one rank's messages, in checksum, table or records, is found:
    TransportError on all.
    """
    for culprit in culprits(method):
        right = getattr(QuantisedCodec, method)
        with monkeypatch.context() as patch:
            if RANK == culprit:
                patch.setattr(QuantisedCodec, method, lambda *args: flipped(right(*args), bit))  # noqa: B023
            assert_raises_everywhere(zccl.TransportError, lambda: call(algorithm))
    assert_next_call_works(algorithm)


@by_algorithm
@pytest.mark.skipif(SIZE == 1, reason="a single rank sends no messages")
def test_flipped_bits_on_the_wire(monkeypatch, algorithm):
    """Messages damaged on their way are never other numbers: each rank gets the right result or a
    TransportError.
    """
    isend = MpiTransport.isend
    for culprit in CULPRITS:
        results = []
        with monkeypatch.context() as patch:
            if RANK == culprit:
                patch.setattr(
                    MpiTransport,
                    "isend",
                    lambda self, message, *to: isend(self, flipped(message, 801), *to),
                )
            kind, _ = raised(lambda: results.append(call(algorithm)))  # noqa: B023
        kinds = COMM.allgather(kind)
        assert set(kinds) <= {None, zccl.TransportError} and zccl.TransportError in kinds
        right = call(algorithm)
        assert all(result.tobytes() == right.tobytes() for result in results)
    assert_next_call_works(algorithm)


@by_algorithm
def test_failures_everywhere(monkeypatch, algorithm):
    """All ranks fail at once."""
    with monkeypatch.context() as patch:
        patch.setattr(QuantisedCodec, "encode", fails)
        assert_raises_everywhere(zccl.TransportError, lambda: call(algorithm))
    assert_next_call_works(algorithm)


@by_algorithm
def test_input_survives_a_failure(monkeypatch, algorithm):
    """The send buffer is not written, whatever fails."""
    before = X.copy()
    with monkeypatch.context() as patch:
        if RANK == SIZE - 1:
            patch.setattr(QuantisedCodec, "encode", fails)
        assert_raises_everywhere(zccl.TransportError, lambda: call(algorithm))
    assert np.array_equal(X, before)
