"""Promise 9, what Info tells, the choice of an algorithm, and the environment's overrides."""

import functools

import numpy as np
import pytest
from mpi.checks import (
    CODED_ALGORITHMS,
    COMM,
    RANK,
    SIZE,
    assert_bound,
    assert_same_everywhere,
    same_bits,
    wave,
)
from mpi4py import MPI

import zccl
from zccl.collectives import running
from zccl.machines import default_machine
from zccl.transport.mpi import transport_of

pytestmark = pytest.mark.mpi
by_algorithm = pytest.mark.parametrize("algorithm", CODED_ALGORITHMS)


def random_bits(n, dtype):
    """Every pattern of bits: numbers of all sizes, infinities, NaNs."""
    rng = np.random.default_rng(RANK)
    return rng.integers(0, 256, n * np.dtype(dtype).itemsize, np.uint8).view(dtype)


def white_noise(n, dtype):
    """Fills the whole range of codes of a small bound."""
    return np.random.default_rng(RANK).standard_normal(n).astype(dtype)


def scattered(n, dtype):
    """Escapes just below the density that makes a tile raw."""
    x = white_noise(n, dtype)
    x[::9] = random_bits(len(x[::9]), dtype)
    return x


# ---------------------------------------------------------------- promise 9: never much worse


@by_algorithm
@pytest.mark.parametrize("make", [random_bits, white_noise, scattered])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_incompressible_data(dtype, make, algorithm):
    """What does not compress costs at most 2 % and 4 KiB over plain messages, on every rank."""
    bound = 1e-6 if dtype == np.float32 else 1e-11
    for n in (1, 100, 1023, 1030, 12_345):
        _, info = zccl.allreduce(
            make(n, dtype), error_bound=bound, algorithm=algorithm, return_info=True
        )
        assert info.wire_nbytes <= 1.02 * info.raw_wire_nbytes + 4096


def test_plain_messages_have_no_overhead():
    """A bound of 0 sends the bytes of the array and nothing else; the ring sends 2 (N - 1) / N of
    them.
    """
    n = 1024 * 2 * SIZE
    _, info = zccl.allreduce(wave(n), error_bound=0, algorithm="ring", return_info=True)
    assert info.wire_nbytes == info.raw_wire_nbytes == 2 * (SIZE - 1) * 4 * n // SIZE


# ---------------------------------------------------------------- Info


@by_algorithm
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_info(dtype, algorithm):
    """What a call tells about itself makes sense, and the counted bytes are those of the
    schedule.
    """
    n = 1024 * SIZE
    x = wave(n, dtype)
    result, info = zccl.allreduce(x, error_bound=1e-2, algorithm=algorithm, return_info=True)
    assert isinstance(result, np.ndarray) and isinstance(info, zccl.Info)
    assert (info.collective, info.algorithm) == ("allreduce", algorithm)
    assert info.reason
    assert info.error_bound == 1e-2
    assert 0 < info.step <= 2 * 1e-2 / SIZE
    assert info.escapes == 0
    assert set(info.seconds) == {"agree", "code", "wire", "total"}
    assert all(seconds >= 0 for seconds in info.seconds.values())
    assert info.seconds["total"] >= info.seconds["agree"]
    values = x.view("f4") if x.dtype.kind == "c" else x.astype(np.result_type(dtype, "f4"))
    if algorithm == "ring":
        assert info.raw_wire_nbytes == 2 * (SIZE - 1) * values.nbytes // SIZE
    if SIZE == 1:
        assert info.wire_nbytes == info.raw_wire_nbytes == 0 and info.ratio == 1
    else:
        assert 0 < info.wire_nbytes < info.raw_wire_nbytes
        assert info.ratio == info.raw_wire_nbytes / info.wire_nbytes > 1.5
    assert info.nbytes in (x.nbytes, values.nbytes)


@by_algorithm
def test_escapes_are_counted_where_they_are(algorithm):
    """Each rank counts its own values that travel as they are."""
    x = wave(5000)
    x[10 : 10 + 40 * RANK : 40] = np.nan
    _, info = zccl.allreduce(x, error_bound=1e-3, algorithm=algorithm, return_info=True)
    assert info.escapes == RANK


def test_messages_shrink_with_the_bound():
    """A looser bound sends fewer bytes, a constant array hardly any."""
    x = wave(20_000)
    sizes = []
    for a, bound in ((x, 1e-5), (x, 1e-3), (x, 1e-1), (np.ones_like(x), 1e-3)):
        _, info = zccl.allreduce(a, error_bound=bound, algorithm="ring", return_info=True)
        sizes.append(COMM.allreduce(info.wire_nbytes))
    if SIZE > 1:
        assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4
        assert sizes[3] < COMM.size * 2 * x.nbytes / 100


# ---------------------------------------------------------------- auto, and overrides


def test_auto_on_one_node_is_native():
    """Where all ranks share memory, plain MPI is faster: auto takes it, and says why; reproducible
    keeps to codes.
    """
    x = wave(60_000)
    call = functools.partial(zccl.allreduce, x, error_bound=1e-3, return_info=True)
    result, info = call()
    assert info.algorithm == "native" and info.reason and info.error_bound == 0
    expected = np.empty_like(x)
    COMM.Allreduce(x, expected)
    assert same_bits(result, expected)
    coded, info = call(options=zccl.Options(reproducible=True))
    assert info.algorithm in CODED_ALGORITHMS and info.error_bound == 1e-3
    assert_bound(coded, x, 1e-3)
    assert len(set(COMM.allgather(info.algorithm))) == 1


def between_nodes(monkeypatch, bandwidth):
    """Let zccl believe that each rank is on a node of its own, with links of so many bytes/s."""
    slow = default_machine("mpi", False).on_link(50e-6, bandwidth)
    monkeypatch.setattr(transport_of(COMM), "one_node", False)
    monkeypatch.setattr(running, "default_machine", lambda *_: slow)


def test_auto_between_nodes_weighs_the_ratio(monkeypatch):
    """What compresses well is coded, what does not, on any rank, is left to MPI."""
    if SIZE == 1:
        pytest.skip("needs two ranks")
    between_nodes(monkeypatch, 1e8)
    smooth, noise = wave(1_000_000), white_noise(1_000_000, np.float32)
    for call, x in (
        (zccl.allreduce, smooth), (zccl.allgather, smooth), (zccl.bcast, smooth),
        (zccl.reduce_scatter, smooth), (zccl.reduce, smooth),
    ):  # fmt: skip
        _, info = call(x, error_bound=1e-2, mode="rel", return_info=True)
        assert info.algorithm != "native", info.reason
        assert "expected, native" in info.reason
        assert len(set(COMM.allgather((info.algorithm, info.reason)))) == 1
    mixed = noise if RANK == SIZE - 1 else smooth
    for x in (noise, mixed):
        result, info = zccl.allreduce(x, error_bound=1e-9, return_info=True)
        assert info.algorithm == "native", info.reason
        assert_same_everywhere(result)


def test_auto_on_a_fast_link_is_native(monkeypatch):
    between_nodes(monkeypatch, 1e11)
    _, info = zccl.allreduce(wave(500_000), error_bound=1e-3, return_info=True)
    assert info.algorithm == "native"


def test_algorithm_from_the_environment(setenv):
    """ZCCL_ALGORITHM=native switches all compression off; other names choose an algorithm; empty
    does nothing.
    """
    x = wave(2000)
    call = functools.partial(zccl.allreduce, x, error_bound=1e-3, return_info=True)
    setenv("ZCCL_ALGORITHM", "native")
    result, info = call(algorithm="ring")
    expected = np.empty_like(x)
    COMM.Allreduce(x, expected)
    assert info.algorithm == "native" and same_bits(result, expected)
    setenv("ZCCL_ALGORITHM", "recursive_doubling")
    assert call(algorithm="ring")[1].algorithm == "recursive_doubling"
    setenv("ZCCL_ALGORITHM", "")
    assert call(algorithm="ring")[1].algorithm == "ring"


def test_options_from_the_environment(setenv):
    """ZCCL_<FIELD> wins over the option of that name."""
    x = wave(12_000)
    x[7] = 1e30
    call = functools.partial(
        zccl.allreduce, x, error_bound=1e-3, mode="rel", algorithm="ring", return_info=True
    )
    _, info = call(options=zccl.Options(fill_value=1e30))
    setenv("ZCCL_FILL_VALUE", "1e30")
    _, from_environment = call()
    assert from_environment.error_bound == info.error_bound < 1
    setenv("ZCCL_ERROR_BUDGET", "per_rank")
    assert call()[1].error_bound == SIZE * info.error_bound
    setenv("ZCCL_ERROR_BUDGET", "guaranteed")
    per_rank = zccl.Options(error_budget="per_rank")
    assert call(options=per_rank)[1].error_bound == info.error_bound
    setenv("ZCCL_REPRODUCIBLE", "true")
    assert call(algorithm="auto")[1].algorithm in CODED_ALGORITHMS
    setenv("ZCCL_SEGMENT_NBYTES", "4096")
    segmented = call()[1]
    if SIZE > 1:  # each message has a checksum of its own
        assert COMM.allreduce(segmented.wire_nbytes) > COMM.allreduce(info.wire_nbytes)


@pytest.mark.host
def test_log_names_the_plan(caplog):
    """At level info rank 0 logs one line for each new plan; the others none."""
    with caplog.at_level("INFO", "zccl"):
        for _ in range(3):
            zccl.allreduce(wave(101), error_bound=1e-3, algorithm="ring", op=MPI.MAX)
            zccl.bcast(wave(101), error_bound=0.125, algorithm="binomial")
    lines = [r.getMessage() for r in caplog.records if r.name == "zccl"]
    assert len(lines) == (2 if RANK == 0 else 0)
    if lines:
        assert "MAX float32 (101,)" in lines[0] and "ring" in lines[0]
        assert "bcast" in lines[1] and "binomial" in lines[1]


def test_default_communicator_and_operation():
    """Without comm and op: the sum over the world."""
    x = wave(1500)
    result = zccl.allreduce(x, error_bound=1e-3, algorithm="ring")
    assert_same_everywhere(result)
    assert_bound(result, x, 1e-3)
