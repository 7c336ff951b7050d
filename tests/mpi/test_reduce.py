"""Reduce and reduce_scatter: the bits of allreduce, in every form of a call."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi.checks import (
    COMM,
    OPS,
    RANK,
    SIZE,
    assert_bound,
    assert_raises_everywhere,
    assert_usable,
    everyone,
    same_bits,
    wave,
)
from mpi.movement import assert_all, part_of, uneven
from mpi4py import MPI

import zccl
from zccl.codecs.quantised import QuantisedCodec
from zccl.plan import even_split

pytestmark = pytest.mark.mpi
SMALL = zccl.Options(segment_nbytes=4096)
TREES = ["binomial", "reduce_scatter_gather"]
DTYPES = ["f2", "f4", "f8", "c8", "c16"]


def total(x, **how):
    return zccl.allreduce(x, algorithm="ring", **how)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_reduce_has_the_bits_of_allreduce(op, dtype):
    if np.dtype(dtype).kind == "c" and op in (zccl.MAX, zccl.MIN):
        return
    x = wave(7001, dtype)
    x[RANK] = np.nan
    whole = total(x, op=op, error_bound=1e-2)
    for algorithm in TREES:
        for root in range(SIZE):
            result = zccl.reduce(
                x, op=op, root=root, error_bound=1e-2, algorithm=algorithm, options=SMALL
            )
            assert_all(same_bits(result, whole) if root == RANK else result is None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_reduce_scatter_has_the_bits_of_allreduce(op, dtype):
    if np.dtype(dtype).kind == "c" and op in (zccl.MAX, zccl.MIN):
        return
    x = wave(9001, dtype).reshape(1, 9001)
    x[0, RANK] = np.nan
    whole = total(x, op=op, error_bound=1e-2).reshape(-1)
    share = zccl.reduce_scatter(x, op=op, error_bound=1e-2, algorithm="ring")
    assert_all(same_bits(share, part_of(whole, even_split(9001, SIZE), RANK)))


@settings(max_examples=15 if SIZE <= 4 else 6)
@given(data=st.data())
def test_any_counts(data):
    counts = data.draw(
        st.lists(st.sampled_from([0, 0, 1, 2, 15, 1023, 1024, 3000]), min_size=SIZE, max_size=SIZE)
    )
    dtype = data.draw(st.sampled_from([*DTYPES, "i4", "u8"]))
    bound = data.draw(st.sampled_from([0, 1e-4, 1.0]))
    root = data.draw(st.integers(0, SIZE - 1))
    segment = data.draw(st.sampled_from([4096, 4 << 20]))
    how = {"error_bound": bound, "options": zccl.Options(segment_nbytes=segment)}
    x = wave(sum(counts), dtype)
    whole = total(x, **how)
    if not bound or np.dtype(dtype).kind not in "fc":
        # Plain sums depend on the order; integers do not.
        whole = whole if np.dtype(dtype).kind not in "fc" else None
    share = zccl.reduce_scatter(x, None, counts, algorithm="ring", **how)
    assert_all(share.shape == (counts[RANK],))
    if whole is not None:
        assert_all(same_bits(share, part_of(whole, counts, RANK)))
    result = zccl.reduce(x, root=root, algorithm="binomial", **how)
    if whole is not None:
        assert_all(same_bits(result, whole) if root == RANK else result is None)


@pytest.mark.host
def test_buffers_and_in_place():
    counts = uneven(1500)
    x = wave(sum(counts))
    whole = total(x, error_bound=1e-3)
    mine = part_of(whole, counts, RANK)
    out = np.empty((2, counts[RANK]), np.float32)[1]
    for algorithm in ("ring", "native"):
        how = {"error_bound": 1e-3, "algorithm": algorithm}
        got = zccl.reduce_scatter(x, out, counts, **how)
        assert_all(got is out and (algorithm == "native" or same_bits(out, mine)))
        buf = x.copy()
        got = zccl.reduce_scatter(MPI.IN_PLACE, buf, counts, **how)
        assert_all(np.may_share_memory(got, buf) or not got.size)
        assert_all(same_bits(got, out) and same_bits(buf[: counts[RANK]], out))
    for algorithm in (*TREES, "native"):
        how = {"error_bound": 1e-3, "algorithm": algorithm}
        for root in range(SIZE):
            buf = x.copy()
            send = MPI.IN_PLACE if root == RANK else x
            got = zccl.reduce(send, buf, root=root, **how)
            assert_all(got is buf if root == RANK else got is None and same_bits(buf, x))
            if algorithm != "native":
                assert_all(root != RANK or same_bits(buf, whole))


def test_layouts():
    x = wave(SIZE * 900).reshape(SIZE * 30, 30)
    whole = total(x, error_bound=1e-3)
    for given_array in (np.asfortranarray(x), x.astype(">f4"), np.repeat(x, 2, 1)[:, ::2]):
        out = np.empty_like(given_array)
        result = zccl.reduce(given_array, out, error_bound=1e-3, algorithm="binomial")
        assert_all(RANK or (result is out and np.array_equal(out, whole)))
        share = zccl.reduce_scatter(given_array, error_bound=1e-3, algorithm="ring")
        assert_all(same_bits(share, whole.reshape(-1)[RANK * 900 : (RANK + 1) * 900]))


def test_native_and_exact():
    """Without a bound the MPI library's own; with 0 zccl's algorithms on plain values."""
    x = (wave(4000) * 50).astype(np.int32)
    exact = sum(everyone(x))
    for bound, algorithm in ((None, "auto"), (0, "binomial"), (0, "reduce_scatter_gather")):
        result = zccl.reduce(x, error_bound=bound, algorithm=algorithm)
        assert_all(RANK or np.array_equal(result, exact))
    for bound, algorithm in ((None, "auto"), (0, "ring")):
        share = zccl.reduce_scatter(x, error_bound=bound, algorithm=algorithm)
        assert_all(np.array_equal(share, part_of(exact, even_split(4000, SIZE), RANK)))
    z = wave(1000, "c8")
    share = zccl.reduce_scatter(z, op=zccl.AVG)
    mean = np.mean(everyone(z), axis=0, dtype="c16")
    assert_all(np.allclose(share, part_of(mean, even_split(1000, SIZE), RANK), atol=1e-5))


def test_bound():
    x = wave(5000)
    result = zccl.reduce(x, error_bound=1e-3, algorithm="binomial")
    assert_bound(COMM.bcast(result), x, 1e-3)


def test_one_hop_for_each_element_and_rank(monkeypatch):
    """In a ring each rank quantises every element once, and adds on N - 1 chunks."""
    counts = {"encode": 0, "add_own": 0, "combine": 0}

    def counted(method):
        true = getattr(QuantisedCodec, method)

        def count(self, *args):
            counts[method] += args[-1].stop - args[-1].start
            return true(self, *args)

        monkeypatch.setattr(QuantisedCodec, method, count)

    for method in counts:
        counted(method)
    n = 4096 * SIZE
    zccl.reduce_scatter(wave(n), error_bound=1e-3, algorithm="ring")
    assert_all(counts == {"encode": n // SIZE, "add_own": n - n // SIZE, "combine": 0})


@pytest.mark.parametrize("culprit", sorted({0, SIZE - 1}))
def test_faults(culprit):
    x = wave(SIZE * 10)

    def only(wrong, right):
        return wrong if culprit == RANK else right

    faults = [
        (ValueError, lambda: zccl.reduce(x, root=only(-1, 0))),
        (TypeError, lambda: zccl.reduce(x, root=only(1.5, 0))),
        (ValueError, lambda: zccl.reduce_scatter(x, None, only([1] * (SIZE + 1), [10] * SIZE))),
        (ValueError, lambda: zccl.reduce_scatter(x, None, only([9] * SIZE, [10] * SIZE))),
        (TypeError, lambda: zccl.reduce_scatter(x, only(np.empty(10), np.empty(10, "f4")))),
        (ValueError, lambda: zccl.reduce_scatter(x, only(np.empty(9, "f4"), None))),
        (ValueError, lambda: zccl.reduce_scatter(x, algorithm=only("binomial", "ring"))),
        (NotImplementedError, lambda: zccl.reduce(x, op=MPI.PROD, error_bound=1e-3)),
    ]
    if SIZE > 1:
        faults += [
            (ValueError, lambda: zccl.reduce(x, root=only(1, 0))),
            (ValueError, lambda: zccl.reduce(MPI.IN_PLACE, x, root=0)),
            (ValueError, lambda: zccl.reduce(only(x[:3], x))),
        ]
    for kind, call in faults:
        assert_raises_everywhere(kind, call)
    assert_usable()


@pytest.mark.parametrize("algorithm", TREES)
@pytest.mark.skipif(SIZE == 1, reason="a single rank moves no data")
def test_codec_that_fails(monkeypatch, algorithm):
    x = wave(2048 * SIZE)
    how = {"error_bound": 1e-3, "algorithm": algorithm}

    def fails(_self, *_):
        raise MemoryError("out of memory, says the test")

    for method, culprit in (("encode", SIZE - 1), ("add_own", 0), ("decode", 0)):
        with monkeypatch.context() as patch:
            if culprit == RANK:
                patch.setattr(QuantisedCodec, method, fails)
            assert_raises_everywhere(zccl.TransportError, lambda: zccl.reduce(x, **how))
        result = zccl.reduce(x, **how)
        assert_bound(COMM.bcast(result), x, 1e-3)
