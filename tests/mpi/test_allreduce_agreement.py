"""Promise 6: faults and differences on any rank are the same error on all, before data moves."""

import functools

import numpy as np
import pytest
from mpi.checks import (
    COMM,
    RANK,
    SIZE,
    assert_bound,
    assert_raises_everywhere,
    assert_usable,
    raised,
    same_bits,
    thinned,
    wave,
)
from mpi4py import MPI

import zccl

pytestmark = pytest.mark.mpi
N = 300


class Broken:
    """Claims to be an array and fails when looked at."""

    @property
    def __array_interface__(self):
        raise RuntimeError("no array today")


def read_only():
    array = np.empty(N, np.float32)
    array.flags.writeable = False
    return array


def user_op():
    def add(a, b, _):
        np.frombuffer(b, "f4")[:] += np.frombuffer(a, "f4")

    return MPI.Op.Create(add, commute=True)


#: Name -> (class, arguments that are wrong), to be laid over good ones.
FAULTS = {
    "sendbuf is a list": (TypeError, lambda: {"sendbuf": [1.0] * N}),
    "sendbuf is None": (TypeError, lambda: {"sendbuf": None}),
    "sendbuf is masked": (TypeError, lambda: {"sendbuf": np.ma.zeros(N, np.float32)}),
    "sendbuf of objects": (TypeError, lambda: {"sendbuf": np.array([None] * N)}),
    "sendbuf of long doubles": (TypeError, lambda: {"sendbuf": np.zeros(N, np.longdouble)}),
    "sendbuf of strings": (TypeError, lambda: {"sendbuf": np.array(["a"] * N)}),
    "sendbuf fails": (RuntimeError, lambda: {"sendbuf": Broken()}),
    "in place without recvbuf": (ValueError, lambda: {"sendbuf": MPI.IN_PLACE, "recvbuf": None}),
    "recvbuf is a list": (TypeError, lambda: {"recvbuf": [0.0] * N}),
    "recvbuf is masked": (TypeError, lambda: {"recvbuf": np.ma.zeros(N, np.float32)}),
    "recvbuf of another dtype": (TypeError, lambda: {"recvbuf": np.zeros(N)}),
    "recvbuf of another size": (ValueError, lambda: {"recvbuf": np.zeros(N + 1, np.float32)}),
    "recvbuf of another shape": (ValueError, lambda: {"recvbuf": np.zeros((N, 1), np.float32)}),
    "recvbuf is read-only": (ValueError, lambda: {"recvbuf": read_only()}),
    "op is a word": (TypeError, lambda: {"op": "sum"}),
    "op is None": (TypeError, lambda: {"op": None}),
    "op is null": (TypeError, lambda: {"op": MPI.OP_NULL}),
    "op needs pairs": (TypeError, lambda: {"op": MPI.MAXLOC}),
    "op is bitwise": (TypeError, lambda: {"op": MPI.BAND, "error_bound": None}),
    "PROD with a bound": (NotImplementedError, lambda: {"op": MPI.PROD}),
    "user-defined op with a bound": (NotImplementedError, lambda: {"op": user_op()}),
    "MAX of complex numbers": (
        TypeError,
        lambda: {"sendbuf": np.zeros(N, "c8"), "recvbuf": None, "op": MPI.MAX},
    ),
    "AVG of integers": (
        TypeError,
        lambda: {"sendbuf": np.zeros(N, int), "recvbuf": None, "op": zccl.AVG},
    ),
    "SUM of booleans": (TypeError, lambda: {"sendbuf": np.zeros(N, bool), "recvbuf": None}),
    "bound is negative": (ValueError, lambda: {"error_bound": -1e-3}),
    "bound is NaN": (ValueError, lambda: {"error_bound": np.nan}),
    "bound is infinite": (ValueError, lambda: {"error_bound": np.inf}),
    "bound is a word": (TypeError, lambda: {"error_bound": "1e-3"}),
    "bound is a truth": (TypeError, lambda: {"error_bound": True}),
    "mode": (ValueError, lambda: {"mode": "relative"}),
    "algorithm": (ValueError, lambda: {"algorithm": "rings"}),
    "algorithm is None": (ValueError, lambda: {"algorithm": None}),
    "stream": (ValueError, lambda: {"stream": 1}),
    "options": (TypeError, lambda: {"options": {"error_budget": "per_rank"}}),
}


def good():
    return {
        "sendbuf": wave(N), "recvbuf": np.full(N, 7, np.float32), "op": MPI.SUM,
        "error_bound": 1e-3, "algorithm": "ring",
    }  # fmt: skip


def call(arguments):
    return zccl.allreduce(
        arguments["sendbuf"], **{k: v for k, v in arguments.items() if k != "sendbuf"}
    )


@pytest.mark.parametrize("name", thinned(FAULTS))
def test_fault_on_one_rank(name):
    """A wrong argument on a single rank, each in turn: its class on all ranks, buffers untouched,
    the next call works.
    """
    kind, change = FAULTS[name]
    arguments = good()
    before = arguments["sendbuf"].copy()
    wrong = arguments | change()
    texts = []
    # With many ranks the first, the last and one other, so that over all faults each rank had its
    # turns.
    turns = range(SIZE) if SIZE <= 4 else sorted({0, SIZE - 1, list(FAULTS).index(name) % SIZE})
    for culprit in turns:
        mine = wrong if RANK == culprit else arguments
        texts.append(assert_raises_everywhere(kind, lambda: call(mine)))  # noqa: B023
    assert same_bits(arguments["sendbuf"], before)
    assert (arguments["recvbuf"] == 7).all()
    for culprit, seen in zip(turns, texts, strict=True):
        own = seen.pop(culprit)
        assert own and all(f"rank {culprit}" in text and own in text for text in seen)
    assert call(arguments) is arguments["recvbuf"]
    assert_bound(arguments["recvbuf"], before, 1e-3)


def test_different_faults_on_several_ranks():
    """The lowest faulty rank's fault is raised on all, also on ranks with faults of their own."""
    kinds = [NotImplementedError, TypeError, ValueError]
    changes = [{"op": MPI.PROD}, {"options": 3}, {"mode": "most"}]
    for first in range(SIZE):
        arguments = good() | (changes[RANK % 3] if first <= RANK else {})
        assert_raises_everywhere(kinds[first % 3], lambda: call(arguments))  # noqa: B023
    assert_usable()


DIFFERENCES = {
    "count": ("shape", lambda: {"sendbuf": wave(N + 1), "recvbuf": None}),
    "shape": ("shape", lambda: {"sendbuf": wave(N).reshape(3, -1), "recvbuf": None}),
    "axes of one": ("shape", lambda: {"sendbuf": wave(N).reshape(-1, 1), "recvbuf": None}),
    "empty": ("shape", lambda: {"sendbuf": wave(0), "recvbuf": None}),
    "dtype": ("dtype", lambda: {"sendbuf": wave(N, np.float64), "recvbuf": None}),
    "integers": ("dtype", lambda: {"sendbuf": wave(N, np.int32), "recvbuf": None}),
    "op": ("op", lambda: {"op": MPI.MAX}),
    "AVG": ("op", lambda: {"op": zccl.AVG}),
    "bound": ("error_bound", lambda: {"error_bound": 1.0001e-3}),
    "no bound": ("error_bound", lambda: {"error_bound": None}),
    "bound of 0": ("error_bound", lambda: {"error_bound": 0}),
    "mode": ("mode", lambda: {"mode": "rel"}),
    "algorithm": ("algorithm", lambda: {"algorithm": "recursive_doubling"}),
    "native": ("algorithm", lambda: {"algorithm": "native"}),
    "budget": ("options", lambda: {"options": zccl.Options(error_budget="per_rank")}),
    "fill value": ("options", lambda: {"options": zccl.Options(fill_value=0)}),
    "segments": ("options", lambda: {"options": zccl.Options(segment_nbytes=1 << 20)}),
}


@pytest.mark.parametrize("name", thinned(DIFFERENCES))
@pytest.mark.skipif(SIZE == 1, reason="a single rank cannot differ")
def test_arguments_that_differ(name):
    """Whichever rank gives another argument, all get a ValueError that names it."""
    field, change = DIFFERENCES[name]
    for culprit in sorted({0, SIZE // 2, SIZE - 1}):
        arguments = good() | (change() if RANK == culprit else {})
        before = arguments["sendbuf"].copy()
        texts = assert_raises_everywhere(ValueError, lambda: call(arguments))  # noqa: B023
        assert len(set(texts)) == 1 and field in texts[0]
        assert same_bits(arguments["sendbuf"], before)
        assert arguments["recvbuf"] is None or (arguments["recvbuf"] == 7).all()
    assert_usable()


@pytest.mark.parametrize(
    "variable, value",
    [
        ("ZCCL_ALGORITHM", "native"), ("ZCCL_ERROR_BUDGET", "per_rank"), ("ZCCL_REPRODUCIBLE", "1"),
        ("ZCCL_SEGMENT_NBYTES", "4096"), ("ZCCL_FILL_VALUE", "0"),
    ],
)  # fmt: skip
@pytest.mark.skipif(SIZE == 1, reason="a single rank cannot differ")
def test_environments_that_differ(setenv, variable, value):
    """A variable that is set on one rank only is a difference too."""
    setenv(variable, value if RANK == SIZE - 1 else "")
    assert_raises_everywhere(ValueError, lambda: call(good()))


@pytest.mark.parametrize("variable", ["ZCCL_ALGORITHM", "ZCCL_ERROR_BUDGET", "ZCCL_SEGMENT_NBYTES"])
def test_environment_that_cannot_be_read(setenv, variable):
    """A variable with a wrong value on one rank is a ValueError on all."""
    for culprit in (0, SIZE - 1):
        setenv(variable, "plenty" if RANK == culprit else "")
        assert_raises_everywhere(ValueError, lambda: call(good()))
    setenv(variable, "")
    assert_usable()


def test_what_may_differ():
    """Layout, byte order, being in place and a wish for information are each rank's own
    business.
    """
    x = wave(N)
    expected = zccl.allreduce(x, error_bound=1e-3, algorithm="ring")
    same = functools.partial(zccl.allreduce, error_bound=1e-3, algorithm="ring")
    forms = [
        lambda: same(x.astype(">f4")),
        lambda: same(np.repeat(x, 2)[::2], np.empty(N, np.float32)),
        lambda: same(MPI.IN_PLACE, x.copy()),
        lambda: same(x, np.empty(N, ">f4")).astype("f4"),
        lambda: same(x, return_info=True)[0],
    ]
    assert same_bits(forms[RANK % 5](), expected)


def test_what_is_equal_may_be_written_in_other_ways():
    """Equal numbers of other types are no difference, whatever a rank was called with before."""
    x = np.arange(N, dtype=np.float64)
    call_with = functools.partial(zccl.allreduce, x, mode="rel", algorithm="ring")
    for first, second in ((0.0, 0), (-9999, -9999.0), (0.0, -0.0)):
        if RANK == 0:
            mine = zccl.Options(fill_value=first)
            call_with(comm=MPI.COMM_SELF, error_bound=1e-3, options=mine)
        call_with(error_bound=1e-3, options=zccl.Options(fill_value=second))
        call_with(error_bound=1e-3, options=zccl.Options(fill_value=[first, second][RANK % 2]))
    for bounds in ((1, 1.0), (np.float32(0.5), 0.5), (0, 0.0), (0.0, -0.0)):
        call_with(error_bound=bounds[RANK % 2])


def test_operation_that_was_freed():
    """An operation that one rank has freed since its last use is a TypeError on all."""
    x = wave(N)
    for culprit in sorted({0, SIZE - 1}):
        op = user_op()
        zccl.allreduce(x, op=op)
        if RANK == culprit:
            op.Free()
        assert_raises_everywhere(TypeError, lambda: zccl.allreduce(x, op=op))  # noqa: B023
        if RANK != culprit:
            op.Free()
    assert_usable()


def test_operations_that_need_the_native_collective():
    """A user's operation that does not commute works natively, and is refused on all ranks by other
    algorithms.
    """

    def second(a, b, _):
        """Keeps the operand of the higher rank, which is already in b."""

    op = MPI.Op.Create(second, commute=False)
    x = np.full(5, float(RANK))
    assert (zccl.allreduce(x, op=op, algorithm="native") == SIZE - 1).all()
    assert_raises_everywhere(
        NotImplementedError, lambda: zccl.allreduce(x, op=op, algorithm="ring")
    )
    op.Free()
    assert_usable()


# ---------------------------------------------------------------- communicators that cannot be used


def test_unusable_communicators_are_local_errors():
    """Freed, null and no communicators at all raise at once on the rank that gives them, nobody
    else waits.
    """
    x = wave(N)
    freed = COMM.Dup()
    zccl.allreduce(x, comm=freed, error_bound=1e-3)
    freed.Free()
    if RANK == SIZE - 1:  # alone
        for comm, kind in [
            (freed, zccl.TransportError),
            (MPI.COMM_NULL, zccl.TransportError),
            ("world", TypeError),
        ]:
            assert raised(lambda: zccl.allreduce(x, comm=comm))[0] is kind  # noqa: B023
    assert_usable()


@pytest.mark.skipif(SIZE == 1, reason="an intercommunicator needs two ranks")
def test_intercommunicator_is_a_local_error():
    """Intercommunicators are refused without communication."""
    half = COMM.Split(RANK % 2)
    inter = half.Create_intercomm(0, COMM, 1 - RANK % 2)
    if RANK == 0:
        assert raised(lambda: zccl.allreduce(wave(N), comm=inter))[0] is TypeError
    inter.Free()
    half.Free()
    assert_usable()
