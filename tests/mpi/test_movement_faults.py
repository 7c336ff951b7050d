"""Promise 6 and failures while data moves, for the collectives that move data."""

import numpy as np
import pytest
from mpi.checks import COMM, RANK, SIZE, assert_raises_everywhere, assert_usable, wave
from mpi.movement import WAYS, assert_all, bound_is_kept, call, rows
from mpi4py import MPI

import zccl
from zccl.codecs.movement import MovementCodec
from zccl.codecs.plain import PlainCodec
from zccl.collectives.shares import Shares
from zccl.transport.mpi import MpiTransport

pytestmark = pytest.mark.mpi
every_way = pytest.mark.parametrize("name, algorithm", WAYS)
CULPRITS = sorted({0, SIZE - 1})
SMALL = zccl.Options(segment_nbytes=4096)
X = wave(SIZE * 50, rank=0).reshape(SIZE, 50)


def only(culprit, wrong, right):
    return wrong if culprit == RANK else right


def share():
    return zccl.scatter(X if RANK == 0 else None, error_bound=1e-3)


#: What is wrong on one rank: the class that all raise, and the call with the culprit's rank.
FAULTS = {
    "no array": (TypeError, lambda c: zccl.allgather(only(c, "text", X[0]))),
    "dtype that cannot be carried": (
        TypeError, lambda c: zccl.gather(only(c, np.array(["a"]), X[0]))),
    "dtypes that differ": (ValueError, lambda c: zccl.allgather(only(c, X[0].astype("f8"), X[0]))),
    "shapes that differ": (ValueError, lambda c: zccl.gather(only(c, X[0, :7], X[0]))),
    "shapes that differ in alltoall": (
        ValueError, lambda c: zccl.alltoall(only(c, X[:, :7], X))),
    "first axis": (ValueError, lambda c: zccl.alltoall(only(c, X[0, : SIZE + 1], X))),
    "root": (ValueError, lambda c: zccl.bcast(X, only(c, SIZE, 0))),
    "root that is no rank": (TypeError, lambda c: zccl.bcast(X, only(c, "first", 0))),
    "counts": (ValueError, lambda c: zccl.allgather(
        X[0], None, only(c, [50] * (SIZE + 1), [50] * SIZE))),
    "negative count": (
        ValueError, lambda c: zccl.allgather(X[0], None, only(c, [-1] * SIZE, [50] * SIZE))),
    "counts of another kind": (
        TypeError, lambda c: zccl.allgather(X[0], None, only(c, "many", [50] * SIZE))),
    "own count": (ValueError, lambda c: zccl.gather(only(c, X[0, :9], X[0]), None, [50] * SIZE)),
    "counts that do not match": (
        ValueError, lambda c: zccl.alltoall(X, None, [50] * SIZE, only(c, [49] * SIZE, None))),
    "counts of one side": (
        ValueError, lambda c: zccl.alltoall(X, None, None, only(c, [50] * SIZE, None))),
    "receive buffer's dtype": (
        TypeError, lambda c: zccl.allgather(X[0], only(c, X.astype("f8"), np.empty_like(X)))),
    "receive buffer's shape": (
        ValueError, lambda c: zccl.scatter(X, only(c, np.empty(3, "f4"), np.empty(50, "f4")))),
    "bound": (ValueError, lambda c: zccl.bcast(X, error_bound=only(c, -1, 1e-3))),
    "mode": (ValueError, lambda c: zccl.bcast(X.copy(), mode=only(c, "relative", "abs"))),
    "algorithm": (
        ValueError, lambda c: zccl.bcast(X.copy(), algorithm=only(c, "ring", "binomial"))),
    "bounds that differ": (
        ValueError, lambda c: zccl.allgather(X[0], error_bound=only(c, 1e-2, 1e-3))),
    "stream": (ValueError, lambda c: zccl.bcast(X.copy(), stream=only(c, 7, None))),
    "in place off the root": (
        ValueError, lambda c: zccl.gather(MPI.IN_PLACE, X.copy(), root=(c + 1) % SIZE)),
    "in place without a buffer": (ValueError, lambda c: zccl.allgather(
        only(c, MPI.IN_PLACE, X[0]))),
}  # fmt: skip
ALONE = {"dtypes that differ", "shapes that differ", "shapes that differ in alltoall",
         "bounds that differ", "in place off the root"}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("culprit", CULPRITS)
def test_faults_are_raised_on_all_ranks(fault, culprit):
    if SIZE == 1 and fault in ALONE:
        pytest.skip("a single rank differs from nobody")
    kind, wrong = FAULTS[fault]
    assert_raises_everywhere(kind, lambda: wrong(culprit))
    assert_usable()
    assert_all(bound_is_kept(share(), X[RANK], 1e-3))


@pytest.mark.skipif(SIZE == 1, reason="a single rank calls what it calls")
@pytest.mark.parametrize("odd", CULPRITS)
def test_collectives_that_differ(odd):
    """Another collective on one rank is a difference like any other."""
    calls = {
        "allreduce": lambda: zccl.allreduce(X),
        "allgather": lambda: zccl.allgather(X),
        "bcast": lambda: zccl.bcast(X.copy()),
        "alltoall": lambda: zccl.alltoall(X),
        "gather": lambda: zccl.gather(X),
    }
    for usual in calls:
        for other in calls:
            if usual != other:
                assert_raises_everywhere(ValueError, calls[other if odd == RANK else usual])
    assert_usable()


@every_way
def test_memory_that_runs_out_before_data_moves(monkeypatch, name, algorithm):
    """What depends on the other ranks is allocated under an agreement of its own."""
    counts = [2000 + 37 * rank for rank in range(SIZE)]
    arrays = rows(counts, "c8")
    how = {"error_bound": 1e-3, "algorithm": algorithm}
    culprit = 0 if name == "gather" else SIZE - 1
    if name == "bcast" and SIZE == 1:
        pytest.skip("a single rank receives nothing")

    def fails(_self):
        raise MemoryError("out of memory, says the test")

    for bound, method in ((1e-3, "values_target"), (None, "elements_target")):
        with monkeypatch.context() as patch:
            if culprit == RANK:
                patch.setattr(Shares, method, fails)
            how = {"error_bound": bound, "algorithm": algorithm if bound else "native"}
            assert_raises_everywhere(MemoryError, lambda how=how: call(name, counts, arrays, **how))
    result, exact = call(name, counts, arrays, error_bound=1e-3, algorithm=algorithm)
    assert_all(bound_is_kept(result, exact, 1e-3))


def test_counts_that_are_no_sequence():
    """An iterator is read once only."""
    for counts in (iter([50] * SIZE), dict.fromkeys(range(SIZE), 50).values()):
        assert_raises_everywhere(TypeError, lambda counts=counts: zccl.scatter(X, None, counts))
    if SIZE > 1:
        other = [50] * SIZE if RANK == 0 else [51, 49, *[50] * (SIZE - 2)]
        assert_raises_everywhere(ValueError, lambda: zccl.scatter(X, None, other))
        assert_raises_everywhere(ValueError, lambda: zccl.gather(X[0], None, other))
    assert_usable()


#: What only the root can know.
ROOT_FAULTS = {
    "first axis": (ValueError, lambda: zccl.scatter(X[0, : SIZE + 1] if RANK == 0 else None)),
    "sum of counts": (
        ValueError,
        lambda: zccl.scatter(X if RANK == 0 else None, None, [51] * SIZE),
    ),
    "no array to scatter": (TypeError, lambda: zccl.scatter(None)),
    "no array to broadcast": (TypeError, lambda: zccl.bcast(None)),
}


@pytest.mark.parametrize("fault", ROOT_FAULTS)
def test_faults_of_the_root(fault):
    kind, wrong = ROOT_FAULTS[fault]
    assert_raises_everywhere(kind, wrong)
    assert_usable()


@pytest.mark.skipif(SIZE == 1, reason="a single rank has the right buffer")
def test_buffer_that_does_not_fit_what_the_root_sends():
    buffers = {"shape": (ValueError, X[:, :7].copy()), "dtype": (TypeError, X.astype("f8"))}
    for kind, wrong in buffers.values():
        mine = wrong if RANK == SIZE - 1 else X.copy()
        assert_raises_everywhere(kind, lambda mine=mine: zccl.bcast(mine))
    assert_usable()


@every_way
@pytest.mark.parametrize("method", ["encode", "decode"])
@pytest.mark.parametrize("codec", [MovementCodec, PlainCodec])
@pytest.mark.skipif(SIZE == 1, reason="a single rank moves no data")
def test_codec_that_fails(monkeypatch, name, algorithm, method, codec):
    """An exception on one rank while data moves is a TransportError on all ranks."""
    counts = [2000 + 37 * rank for rank in range(SIZE)]
    arrays = rows(counts)
    how = {"error_bound": 0 if codec is PlainCodec else 1e-3, "algorithm": algorithm}
    culprit = 0 if method == "encode" or name == "gather" else SIZE - 1

    def fails(_self, *_):
        raise MemoryError("out of memory, says the test")

    with monkeypatch.context() as patch:
        if culprit == RANK:
            patch.setattr(codec, method, fails)
        texts = assert_raises_everywhere(
            zccl.TransportError, lambda: call(name, counts, arrays, options=SMALL, **how)
        )
    assert any("out of memory" in text for text in texts)
    result, exact = call(name, counts, arrays, options=SMALL, **how)
    assert_all(bound_is_kept(result, exact, how["error_bound"]))


@every_way
@pytest.mark.skipif(SIZE == 1, reason="a single rank moves no data")
def test_damage_on_the_way(monkeypatch, name, algorithm):
    """A flipped bit of any message is found by whoever decodes it, and raised on all ranks."""
    counts = [3000] * SIZE
    arrays = rows(counts)
    true = MpiTransport.isend
    for bit in (3, 70, 128 + 40, 1000, 9999):
        sent = [0]

        def isend(self, message, dest, tag, bit=bit, sent=sent):
            sent[0] += 1
            if sent[0] == 1 and message.size:
                message = message.copy()
                message[bit // 8 % message.size] ^= 1 << bit % 8
            return true(self, message, dest, tag)

        with monkeypatch.context() as patch:
            if RANK == 0 or (name == "gather" and RANK == SIZE - 1):
                patch.setattr(MpiTransport, "isend", isend)
            assert_raises_everywhere(
                zccl.TransportError,
                lambda: call(name, counts, arrays, error_bound=1e-3, algorithm=algorithm),
            )
    result, exact = call(name, counts, arrays, error_bound=1e-3, algorithm=algorithm)
    assert_all(bound_is_kept(result, exact, 1e-3))


@pytest.mark.skipif(SIZE < 2, reason="needs two ranks")
def test_intercommunicators_are_refused():
    half = COMM.Split(RANK % 2)
    inter = half.Create_intercomm(0, COMM, 1 - RANK % 2)
    try:
        for call_it in (zccl.bcast, zccl.alltoall, zccl.allgather, zccl.gather, zccl.scatter):
            with pytest.raises(TypeError, match="intercommunicator"):
                call_it(X, comm=inter)
    finally:
        inter.Free()
        half.Free()
