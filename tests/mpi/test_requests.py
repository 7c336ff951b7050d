"""Operations that are started: their results, their order, and programs that need progress."""

import threading
import time

import numpy as np
import pytest
from mpi.checks import COMM, RANK, SIZE, assert_same_everywhere, same_bits, thinned, wave
from mpi4py import MPI

import zccl

pytestmark = pytest.mark.mpi
PROGRESS = ["thread", "call"]


def options(progress="thread", **more):
    return zccl.Options(progress=progress, **more)


def cases(n=3000):
    """Each collective with arguments, and an error bound or none: name, arguments, keywords."""
    x = np.rint(wave(n) * 100)  # sums are exact: MPI may add in another order when it is started
    rows = wave(n * SIZE).reshape(SIZE, n)
    at_root = rows if RANK == SIZE - 1 else None
    root = {"root": SIZE - 1}
    for bound in ({"error_bound": 1e-3}, {"error_bound": 1e-2, "mode": "rel"}, {}):
        yield "allreduce", (x,), bound
        yield "reduce", (x,), bound | root
        yield "reduce_scatter", (x,), bound
        yield "allgather", (x,), bound
        yield "bcast", (x if RANK == SIZE - 1 else None,), bound | root
        yield "scatter", (at_root,), bound | root
        yield "gather", (x,), bound | root
        yield "alltoall", (rows,), bound


CASES = [(name, "rel" if "mode" in k else "abs" if k.get("error_bound") else "exact")
         for name, _, k in cases()]  # fmt: skip

by_case = pytest.mark.parametrize(
    "index", [pytest.param(k, id="-".join(CASES[k])) for k in thinned(range(len(CASES)))]
)


def case(index):
    return list(cases())[index]


def reproducible(keywords, progress="thread"):
    """Keep coded algorithms where all ranks share a node, too."""
    return keywords | {"options": options(progress, reproducible=True)}


def equal(a, b):
    return (a is None and b is None) or same_bits(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("progress", PROGRESS)
@by_case
def test_a_started_call_gives_what_the_blocking_one_gives(index, progress):
    name, args, keywords = case(index)
    keywords = reproducible(keywords, progress)
    wanted = getattr(zccl, name)(*args, **keywords)
    request = getattr(zccl, f"i{name}")(*args, **keywords)
    assert isinstance(request, zccl.Request)
    found = request.wait()
    assert equal(found, wanted)
    assert request.result is found
    assert request.info.collective == name
    assert request.wait() is found


@by_case
def test_a_persistent_request_gives_what_blocking_calls_give(index):
    name, args, keywords = case(index)
    keywords = reproducible(keywords)
    request = getattr(zccl, f"{name}_init")(*args, **keywords)
    places = set()
    for k in range(3):
        for array in args:
            if array is not None:
                array += np.float32(k)
        wanted = getattr(zccl, name)(*args, **keywords)
        if name == "bcast" and RANK == SIZE - 1:
            wanted = args[0]
        request.Start()
        found = request.wait()
        assert equal(found, wanted)
        places.add(None if found is None else found.__array_interface__["data"][0])
    assert len(places) == 1  # always the same array
    request.Free()
    with pytest.raises(RuntimeError, match="freed"):
        request.Start()


def test_persistent_requests_see_new_values_of_arrays_that_must_be_converted():
    x = np.zeros((40, 50), ">f4")[:, ::2]
    out = np.zeros((40, 25), ">f4")
    request = zccl.allreduce_init(x, out, error_bound=1e-4, algorithm="ring")
    gathered = zccl.allgather_init(x, error_bound=1e-4, algorithm="ring")
    for k in range(3):
        x[...] = k + RANK
        request.Start()
        gathered.Start()
        assert request.wait() is out
        assert np.allclose(out, SIZE * k + SIZE * (SIZE - 1) / 2, atol=1e-4)
        assert np.allclose(gathered.wait()[:, 0, 0], k + np.arange(SIZE), atol=1e-4)


def test_persistent_in_place():
    x = np.full(3000, 1.0)
    request = zccl.allreduce_init(MPI.IN_PLACE, x, error_bound=1e-6, algorithm="ring")
    for k in range(1, 4):
        request.Start()
        request.Wait()
        assert np.allclose(x, float(SIZE**k), atol=1e-3)


def test_persistent_needs_the_end_of_one_start_before_the_next():
    x = wave(1000)
    request = zccl.allreduce_init(x, options=options("call"), error_bound=1e-3, algorithm="ring")
    assert request.wait() is None and request.test() == (True, None)
    request.Start()
    if not request._operation.ended:
        with pytest.raises(RuntimeError, match="still on its way"):
            request.Start()
    request.wait()


def test_upper_case_methods_return_as_mpi4py_does():
    x = wave(5000)
    out = np.empty_like(x)
    request = zccl.iallreduce(x, out, error_bound=1e-3, algorithm="ring")
    assert request.Wait() is True
    assert request.Test() is True
    assert request.test()[1] is out
    assert request.result is out
    with pytest.raises(NotImplementedError, match="cannot be cancelled"):
        request.Cancel()


def test_a_result_is_not_there_before_the_end():
    if SIZE == 1:
        pytest.skip("needs two ranks")
    request = None
    if RANK == 0:
        request = zccl.ibcast(
            wave(1000), options=options("call"), error_bound=1e-3, algorithm="binomial"
        )
        # Others have not even begun.
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = request.result
        assert request.test() == (False, None)
    COMM.Barrier()
    if RANK:
        request = zccl.ibcast(None, options=options("call"), error_bound=1e-3, algorithm="binomial")
    request.wait()


def test_return_info():
    x = wave(3000)
    result, info = zccl.iallreduce(x, error_bound=1e-3, algorithm="ring", return_info=True).wait()
    assert result.shape == x.shape and info.algorithm == "ring"


@pytest.mark.parametrize("progress", PROGRESS)
def test_many_at_once_end_in_any_order(progress):
    rng = np.random.default_rng([7, RANK])
    wanted, requests = [], []
    for k in range(25):
        name, args, keywords = case(k % len(CASES))
        args = tuple(None if a is None else a + np.float32(k) for a in args)
        keywords = reproducible(keywords, progress)
        wanted.append(getattr(zccl, name)(*args, **keywords))
        requests.append(getattr(zccl, f"i{name}")(*args, **keywords))
    for k in rng.permutation(25):  # another order on each rank
        assert equal(requests[k].wait(), wanted[k])


def test_waitall():
    xs = [wave(2000) + k for k in range(12)]
    requests = [zccl.iallreduce(x, error_bound=1e-3, algorithm="ring") for x in xs]
    for x, result in zip(xs, zccl.waitall(requests), strict=True):
        assert same_bits(result, zccl.allreduce(x, error_bound=1e-3, algorithm="ring"))
    assert zccl.waitall([]) == []


@pytest.mark.parametrize("progress", PROGRESS)
def test_faults_are_raised_by_the_wait_on_all_ranks(progress):
    bad = RANK == SIZE // 2
    x = wave(1000, np.int8) if bad else wave(1000)
    first = zccl.iallreduce(x, error_bound=1e-3, options=options(progress))
    second = zccl.iallreduce(wave(1000), error_bound=-1.0, options=options(progress))
    third = zccl.iallreduce(
        wave(1000), error_bound=1e-3, algorithm="ring", options=options(progress)
    )
    if SIZE > 1:
        with pytest.raises(ValueError, match="dtype"):
            first.wait()
        with pytest.raises(ValueError, match="dtype"):
            first.test()
    else:
        first.wait()
    with pytest.raises(ValueError, match="error_bound"):
        second.Wait()
    with pytest.raises(ValueError, match="error_bound"):
        zccl.waitall([second, third])
    assert_same_everywhere(third.result)


def test_a_bad_communicator_is_refused_at_once():
    with pytest.raises(TypeError, match="comm"):
        zccl.iallreduce(wave(10), comm="world")
    with pytest.raises(zccl.TransportError, match="COMM_NULL"):
        zccl.allreduce_init(wave(10), comm=MPI.COMM_NULL)


def test_a_program_that_hangs_without_progress():
    """One rank waits for the barrier before its request, the others after it."""
    x = wave(200_000)
    request = zccl.iallreduce(x, error_bound=1e-3, algorithm="ring")
    if RANK == 0:
        COMM.Barrier()
        found = request.wait()
    else:
        found = request.wait()
        COMM.Barrier()
    assert same_bits(found, zccl.allreduce(x, error_bound=1e-3, algorithm="ring"))


def test_a_blocking_call_lets_started_ones_go_on():
    """One rank calls another collective first, native or coded, the others wait first."""
    x = wave(200_000)
    for algorithm in ("ring", "native"):
        request = zccl.iallreduce(x, error_bound=1e-3, algorithm="ring", options=options("call"))
        if RANK == 0:
            total = zccl.allreduce(x, error_bound=1e-3, algorithm=algorithm)
            found = request.wait()
        else:
            found = request.wait()
            total = zccl.allreduce(x, error_bound=1e-3, algorithm=algorithm)
        assert np.allclose(found, total, atol=2e-3)


@pytest.mark.host
def test_requests_that_nobody_keeps_go_on():
    x = wave(100_000)
    out = np.zeros_like(x)
    zccl.iallreduce(x, out, error_bound=1e-3, algorithm="ring")
    until = time.monotonic() + 30
    wanted = zccl.allreduce(x, error_bound=1e-3, algorithm="ring")
    while not np.array_equal(out, wanted) and time.monotonic() < until:
        time.sleep(0.01)
    assert same_bits(out, wanted)


def test_buffers_in_flight_are_kept_alive():
    requests = [
        zccl.iallreduce(np.full(50_000, k, "f4"), error_bound=1e-3, algorithm="ring")
        for k in range(10)
    ]
    junk = [np.full(50_000, -1.0, "f4") for _ in range(10)]  # takes memory that was given back
    for k, found in enumerate(zccl.waitall(requests)):
        assert np.allclose(found, k * SIZE, atol=1e-3)
    assert junk[0][0] == -1


def test_freeing_a_communicator_ends_its_operations():
    comm = COMM.Dup()
    x = wave(50_000)
    request = zccl.iallreduce(x, comm=comm, error_bound=1e-3, algorithm="ring")
    comm.Free()
    assert same_bits(request.wait(), zccl.allreduce(x, error_bound=1e-3, algorithm="ring"))


def test_the_thread_sleeps_while_nothing_is_live():
    zccl.iallreduce(wave(1000), error_bound=1e-3, algorithm="ring").wait()
    assert [t.name for t in threading.enumerate()].count("zccl progress") == 1
    before = time.thread_time_ns(), time.process_time_ns()
    time.sleep(0.2)
    assert time.process_time_ns() - before[1] < 50e6


def test_operations_on_several_communicators():
    comms = [COMM.Dup(), COMM.Split(RANK % 2, RANK), COMM]
    xs = [wave(20_000) + np.float32(k) for k in range(9)]
    keywords = {"error_bound": 1e-3, "algorithm": "recursive_doubling"}
    requests = [
        zccl.iallreduce(x, comm=comms[k % 3], **keywords) for k, x in enumerate(xs)
    ]  # fmt: skip
    found = {k: requests[k].wait() for k in np.random.default_rng(RANK).permutation(9)}
    for k, x in enumerate(xs):
        assert same_bits(found[k], zccl.allreduce(x, comm=comms[k % 3], **keywords))
    for comm in comms[:2]:
        comm.Free()


def test_orders_may_differ_between_communicators():
    """One rank waits for the later one first, the others have not even started it."""
    a, b = COMM.Dup(), COMM.Dup()
    x = wave(20_000)
    for comm in (a, b):  # the first use waits for all ranks
        zccl.allreduce(x, comm=comm, error_bound=1e-3, algorithm="ring")

    def begin(comm):
        return zccl.iallreduce(x, comm=comm, error_bound=1e-3, algorithm="ring")

    if RANK == 0:
        first, second = begin(a), begin(b)
        found = [second.wait(), first.wait()]
    else:
        found = [begin(b).wait(), begin(a).wait()]
    assert same_bits(*found)
    a.Free()
    b.Free()


def test_the_program_may_duplicate_communicators_meanwhile():
    x = wave(20_000)
    zccl.allreduce(x, error_bound=1e-3, algorithm="ring")
    if RANK == 0:
        request = zccl.iallreduce(x, error_bound=1e-3, algorithm="ring")
        other = COMM.Dup()
    else:
        other = COMM.Dup()
        request = zccl.iallreduce(x, error_bound=1e-3, algorithm="ring")
    request.wait()
    other.Free()


@pytest.mark.parametrize("form", ["iallreduce", "allreduce_init"])
def test_bad_options_on_one_rank_are_raised_on_all(form):
    bad = "bad" if RANK == SIZE - 1 else options()
    with pytest.raises(TypeError, match="options"):
        getattr(zccl, form)(wave(100), error_bound=1e-3, options=bad).wait()
    x = np.ones(1000)
    assert (zccl.iallreduce(x).wait() == SIZE).all()


def test_a_request_that_failed_can_be_freed():
    x = np.array([-1.5e308, 1.5e308])
    request = zccl.allreduce_init(x * 0, error_bound=1e-3, mode="rel", algorithm="ring")
    request.Free()
    y = np.zeros(100)
    request = zccl.allreduce_init(y, error_bound=1e-3, mode="rel", algorithm="ring")
    y[:2] = x
    request.Start()
    with pytest.raises(ValueError, match="range"):
        request.wait()
    with pytest.raises(ValueError, match="range"):
        request.Free()
    with pytest.raises(RuntimeError, match="freed"):
        request.Start()


def test_nothing_starts_on_a_freed_communicator():
    comm = COMM.Dup()
    request = zccl.allreduce_init(wave(100), comm=comm, error_bound=1e-3, algorithm="ring")
    comm.Free()
    with pytest.raises(zccl.TransportError, match="freed"):
        request.Start()


@pytest.mark.host
@pytest.mark.parametrize("dtype", [">f4", "c8"])
def test_scatter_in_place_gives_the_same_array_each_time(dtype):
    rows = wave(SIZE * 100).astype(dtype).reshape(SIZE, 100) if RANK == 0 else None
    recvbuf = MPI.IN_PLACE if RANK == 0 else None
    request = zccl.scatter_init(rows, recvbuf, error_bound=1e-3, algorithm="binomial")
    request.Start()
    first = request.wait()
    if RANK == 0:
        rows *= 2
    request.Start()
    second = request.wait()
    assert np.shares_memory(first, second)
    assert np.allclose(first, 2 * (rows[0] / 2 if RANK == 0 else first / 2), atol=1e-2)
