"""The communicator with defaults: mpi4py's methods and specifications, beside mpi4py's own."""

import array
import inspect
import itertools
from pathlib import Path

import numpy as np
import pytest
from mpi.buffer_cases import CODED, DTYPES, METHODS, Case, close, started
from mpi.checks import (
    COMM,
    RANK,
    SIZE,
    assert_raises_everywhere,
    assert_usable,
    same_bits,
    thinned,
)
from mpi.movement import assert_all
from mpi4py import MPI

import zccl

BOUND = 1e-2


@pytest.fixture
def comm():
    with zccl.Communicator(COMM, error_bound=BOUND) as found:
        yield found


@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in_place"])
@pytest.mark.parametrize(("name", "dtype"), thinned(itertools.product(METHODS, DTYPES)))
def test_methods_give_what_mpi4py_gives(comm, name, dtype, in_place):
    for seed in range(4):
        case = Case(name, dtype, seed, in_place and name != "Bcast")
        wanted = case.call(getattr(COMM, name))
        for bound, algorithm in ((BOUND, CODED[name]), (0, CODED[name]), (None, "auto")):
            keywords = {"error_bound": bound, "algorithm": algorithm}
            for form in (name, started(name)):
                found = case.call(getattr(comm, form), **keywords)
                assert_all(close(found, wanted, dtype, bound))


@pytest.mark.parametrize("name", thinned(METHODS))
def test_the_communicators_bound_is_used(comm, name):
    if SIZE == 1:
        pytest.skip("needs two ranks")
    case = Case(name, "f8", 5)
    with zccl.Communicator(COMM) as plain:
        exact = case.call(getattr(plain, name), error_bound=0, algorithm=CODED[name])
        lossy = case.call(getattr(plain, name), error_bound=BOUND, algorithm=CODED[name])
    own = case.call(getattr(comm, name), algorithm=CODED[name])
    assert_all(all(same_bits(a, b) for a, b in zip(own, lossy, strict=True)
                   if isinstance(a, np.ndarray)))  # fmt: skip
    assert_all(close(own, exact, "f8", BOUND))


@pytest.mark.parametrize("name", thinned(METHODS))
def test_a_persistent_request_sees_new_values(comm, name):
    if name == "Bcast":
        first, send = [np.zeros(1200)], None
        request = comm.Bcast_init(first[0], algorithm="binomial")
        for k in range(3):
            first[0][...] = k if RANK == 0 else -1
            request.Start()
            request.Wait()
            assert_all(np.abs(first[0] - k).max() <= BOUND)
        return
    case = Case(name, "f8", 11)
    send, recv = case.send, case.recv
    request = getattr(comm, f"{name}_init")(send, recv, **case.more, algorithm=CODED[name])
    for k in range(3):
        if send is not None:
            send[0].view("f8")[...] += k
        wanted = case.call(getattr(COMM, name))
        request.Start()
        request.Wait()
        assert_all(close([send and send[0], recv and recv[0]], wanted, "f8", BOUND))
    request.Free()


@pytest.mark.parametrize("progress", ["thread", "call"])
def test_started_calls_end_together(comm, progress):
    options = zccl.Options(progress=progress)
    cases = [Case(METHODS[k % len(METHODS)], "f4", k) for k in range(26)]
    wanted = [case.call(getattr(COMM, case.name)) for case in cases]
    fresh, requests = [], []
    for case in cases:
        send, recv = (None if s is None else case._fresh(s) for s in (case.send, case.recv))
        buffers = [recv] if case.name == "Bcast" else [send, recv]
        fresh.append([spec[0] if isinstance(spec, list) else spec for spec in buffers])
        start = getattr(comm, started(case.name))
        more = {**case.more, "algorithm": CODED[case.name], "options": options}
        requests.append(start(*buffers, **more))
    results = zccl.waitall(requests)
    for arrays, result, exact in zip(fresh, results, wanted, strict=True):
        assert_all(close(arrays, exact, "f4", BOUND))
        if result is not None:
            assert result is arrays[-1]


def test_blocking_methods_return_none_and_started_ones_a_request(comm):
    x, y = np.ones(10), np.empty(10)
    assert comm.Allreduce(x, y) is None
    request = comm.Iallreduce(x, y)
    assert isinstance(request, zccl.Request)
    assert request.wait() is y and request.result is y


def test_what_mpi4py_takes(comm):
    """Buffers without NumPy, columns in the order of memory, None for in place."""
    x, y = array.array("d", [1.0, 2.0]), bytearray(16)
    comm.Allreduce(x, [y, "d"], error_bound=0)
    assert np.frombuffer(y).tolist() == [SIZE, 2 * SIZE]
    comm.Allreduce([memoryview(bytes(8)), MPI.INT], np.empty(2, "i4"))
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    out = np.empty((2, 3), order="F")
    comm.Allreduce(columns, out, error_bound=0)
    assert (out == SIZE * columns).all()
    comm.Allreduce(None, out, error_bound=0)
    assert (out == SIZE**2 * columns).all()
    comm.Allgatherv(np.full(2, RANK, "f4"), (z := np.zeros(3 * SIZE, "f4"), 2, 3, "f"))
    assert (np.abs(z.reshape(SIZE, 3) - np.arange(SIZE)[:, None]) <= BOUND)[:, :2].all()
    assert not z.reshape(SIZE, 3)[:, 2].any()


def faults():
    """Calls with what one rank gives in the wrong way: kind, method, good and bad buffers."""
    x, y = np.ones(4), np.empty(4)
    rows = np.ones(4 * SIZE)
    counts = [4] * SIZE
    apart = [4 * k for k in range(SIZE)]
    derived = MPI.DOUBLE.Create_vector(2, 1, 2)
    frozen = np.empty(4)
    frozen.flags.writeable = False
    good = (x, y)
    yield TypeError, "Allreduce", good, (x, [y, MPI.FLOAT])
    yield TypeError, "Allreduce", good, ([x, derived], y)
    yield TypeError, "Allreduce", good, ([x, 4, "nonsense"], y)
    yield TypeError, "Allreduce", good, ("text", y)
    yield TypeError, "Allreduce", good, (x, MPI.IN_PLACE)
    yield TypeError, "Allreduce", good, (x, np.empty(4, "f4"))
    yield ValueError, "Allreduce", good, (x, np.empty(5))
    yield ValueError, "Allreduce", good, (x, frozen)
    yield ValueError, "Allreduce", good, ([x, 5], y)
    yield ValueError, "Allreduce", good, (np.ones(8)[::2], y)
    yield ValueError, "Allreduce", good, ([x, 1, 2, MPI.DOUBLE, 5], y)
    yield ValueError, "Reduce_scatter", (rows, y), (rows, np.empty(5))
    yield TypeError, "Reduce_scatter", (rows, y), (rows, "text")
    yield TypeError, "Reduce_scatter", (rows, y), (MPI.IN_PLACE, rows)
    yield TypeError, "Reduce_scatter", (rows, y), (rows,)
    yield TypeError, "Allgather", (x, rows), (x, rows, 0, 0)
    yield ValueError, "Reduce_scatter_block", (rows, y), ([rows, 5], y)
    yield ValueError, "Allgather", (x, rows), (x, np.empty(4 * SIZE + 1 + (SIZE == 1)))
    yield ValueError, "Allgatherv", (x, [rows, counts]), (x, [rows, counts + [1]])
    yield ValueError, "Alltoallv", ([rows, counts], [rows.copy(), counts]), (
        [rows, counts], [rows.copy(), (counts, [k + 1 for k in apart])])  # fmt: skip
    yield ValueError, "Bcast", (x,), ([x, -1],)
    if SIZE > 1:
        yield ValueError, "Allgatherv", (x, [rows, counts]), (x, [rows, (counts, [0] * SIZE)])
        yield ValueError, "Alltoallv", ([rows, counts], [rows.copy(), counts]), (
            [rows, counts], [rows.copy(), (counts, [0] * SIZE)])  # fmt: skip


@pytest.mark.parametrize("form", [str, started, "{}_init".format])
def test_faults_of_one_rank_are_raised_on_all(comm, form):
    for kind, name, good, bad in faults():
        for faulty in {0, SIZE - 1}:
            buffers = bad if faulty == RANK else good

            def call(name=name, buffers=buffers):
                request = getattr(comm, form(name))(*buffers)
                if request is not None:
                    request.Wait()

            assert_raises_everywhere(kind, call)
    assert_usable()


def test_faults_at_the_root_are_raised_on_all(comm):
    last = SIZE - 1
    x = np.ones(4)
    assert_raises_everywhere(
        ValueError, lambda: comm.Scatterv([np.ones(4), [4] * (SIZE + 1)], np.empty(4), last)
    )
    assert_raises_everywhere(TypeError, lambda: comm.Gatherv(x, None, last))
    assert_raises_everywhere(ValueError, lambda: comm.Gather(x, np.empty(4 * SIZE), SIZE))
    assert_raises_everywhere(ValueError, lambda: comm.Bcast(np.empty(4 if RANK else 5), 0)
                             if SIZE > 1 else comm.Bcast([np.empty(4), 5]))  # fmt: skip
    assert_usable()


def test_ranks_that_differ_in_counts_are_told_so(comm):
    if SIZE == 1:
        pytest.skip("needs two ranks")
    x, y = np.ones(4 * SIZE), np.empty(4)
    given = None if RANK else [4] * SIZE
    texts = assert_raises_everywhere(ValueError, lambda: comm.Reduce_scatter(x, y, given))
    assert "differ" in texts[0]
    assert_usable()


def test_lower_case_methods_are_the_functions():
    x = np.linspace(0, 1, 2000) + RANK
    options = zccl.Options(reproducible=True)
    rows = np.tile(x, (SIZE, 1))
    with zccl.Communicator(error_bound=BOUND, mode="rel", options=options) as comm:
        keywords = {"comm": COMM, "error_bound": BOUND, "mode": "rel", "options": options}
        for name in ("allreduce", "reduce", "reduce_scatter", "allgather", "bcast", "scatter",
                     "gather", "alltoall"):  # fmt: skip
            given = rows if name in ("scatter", "alltoall", "reduce_scatter") else x
            wanted = getattr(zccl, name)(given, **keywords)
            found = [getattr(comm, name)(given), getattr(comm, f"i{name}")(given).wait()]
            request = getattr(comm, f"{name}_init")(given)
            request.Start()
            found.append(request.wait())
            assert_all(all(f is wanted or same_bits(f, wanted) for f in found))
            exact = getattr(comm, name)(given, error_bound=None, options=None)
            plain = getattr(zccl, name)(given, comm=COMM)
            assert_all(exact is plain or same_bits(exact, plain))


def test_defaults_and_what_overrides_them():
    x = np.linspace(0, 1, 5000)
    with zccl.Communicator(error_bound=BOUND) as comm:
        keywords = {"algorithm": "ring", "return_info": True}
        assert comm.allreduce(x, **keywords)[1].error_bound == BOUND
        assert comm.allreduce(x, error_bound=0.5, **keywords)[1].error_bound == 0.5
        assert comm.allreduce(x, error_bound=None, **keywords)[1].error_bound == 0
        relative = comm.allreduce(x, mode="rel", **keywords)[1].error_bound
        assert relative == pytest.approx(BOUND)
        loose = comm.allreduce(x, options=zccl.Options(error_budget="per_rank"), **keywords)[1]
        assert loose.error_bound == pytest.approx(SIZE * BOUND)
        comm.error_bound = 0.25
        assert comm.allreduce(x, **keywords)[1].error_bound == 0.25
        with pytest.raises(TypeError, match="comm"):
            comm.allreduce(x, comm=COMM)
        with pytest.raises(TypeError):
            comm.Allreduce(x, x, nothing=1)


def test_what_it_tells_about_itself():
    with zccl.Communicator(COMM, error_bound=1e-3) as comm:
        assert (comm.comm, comm.rank, comm.size) == (COMM, RANK, SIZE)
        assert (comm.error_bound, comm.mode, comm.options) == (1e-3, "abs", None)
        assert f"rank {RANK} of {SIZE}" in repr(comm) and "0.001" in repr(comm)
        for name in METHODS:
            own = inspect.signature(getattr(comm, name)).parameters
            theirs = list(inspect.signature(getattr(COMM, name)).parameters)
            assert list(own) == [*theirs, "error_bound", "mode", "algorithm", "stream", "options"]
            assert getattr(comm, name).__doc__
        own = inspect.signature(comm.ireduce).parameters
        assert "comm" not in own and "communicator" in repr(own["mode"].default)
    assert "freed" in repr(comm)


def test_after_free_its_methods_refuse_and_the_users_communicator_works():
    users = COMM.Dup()
    x = np.ones(1000)
    with zccl.Communicator(users, error_bound=BOUND) as comm:
        request = comm.iallreduce(x, algorithm="ring")
    assert request.test()[0]
    assert np.abs(request.wait() - SIZE).max() <= BOUND
    comm.Free()
    for call in (comm.allreduce, comm.iallreduce, comm.allreduce_init):
        with pytest.raises(zccl.TransportError, match="was freed"):
            call(x)
    for call in (comm.Allreduce, comm.Iallreduce, comm.Allreduce_init):
        with pytest.raises(zccl.TransportError, match="was freed"):
            call(x, x)
    with pytest.raises(zccl.TransportError, match="was freed"), comm:
        pass
    assert users.allreduce(1) == SIZE
    assert_usable(users)
    with zccl.Communicator(users) as again:
        again.Allreduce(x, np.empty(1000))
        users.Free()


def test_an_error_leaves_the_context_without_a_collective_call():
    """One rank alone may leave it so."""
    users = COMM.Dup()
    comm = zccl.Communicator(users)
    if RANK == 0:
        with pytest.raises(KeyError), comm:
            raise KeyError
    comm.Free()
    users.Free()


def test_bad_communicators_are_refused():
    with pytest.raises(TypeError, match="comm"):
        zccl.Communicator("world")
    with pytest.raises(zccl.TransportError, match="COMM_NULL"):
        zccl.Communicator(MPI.COMM_NULL)


def test_the_example_of_the_documentation():
    text = (Path(__file__).parents[2] / "docs/communicator.md").read_text()
    names: dict = {}
    exec(text.partition("```python\n")[2].partition("```")[0], names)
    field = names["field"].reshape(SIZE, 60_000)
    wanted = np.zeros_like(field)
    for rank, row in enumerate(wanted):
        row[: 50_000 + rank] = np.sin(np.linspace(0, 7, 50_000 + rank))
    assert_all(np.abs(field - wanted).max() <= 1e-3)
    assert_all(np.allclose(names["total"], sum(names["counts"])))
