"""Bcast, scatter, gather, allgather, alltoall: the bound, the bits, and every form of a call."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi.checks import COMM, RANK, SIZE, assert_same_everywhere, same_bits, thinned, wave
from mpi.movement import ROOTED, WAYS, assert_all, bound_is_kept, call, joined, rows, uneven
from mpi4py import MPI

import zccl
from zccl.codecs.movement import MovementCodec

pytestmark = pytest.mark.mpi
every_way = pytest.mark.parametrize("name, algorithm", WAYS)
SMALL = zccl.Options(segment_nbytes=4096)
ROOTS = sorted({0, SIZE // 2, SIZE - 1})
DTYPES = ["f2", "f4", "f8", "c8", "c16"]


@every_way
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [1e-2, 1e-4])
def test_bound_for_every_root(name, algorithm, dtype, bound):
    counts = uneven(700)
    arrays = rows(counts, dtype)
    for root in range(SIZE) if name in ROOTED else [0]:
        result, exact = call(
            name, counts, arrays, root, error_bound=bound, algorithm=algorithm, options=SMALL
        )
        assert_all(bound_is_kept(result, exact, bound))


@every_way
@settings(max_examples=12 if SIZE <= 4 else 5)
@given(data=st.data())
def test_any_counts(name, algorithm, data):
    """Counts of 0, fewer values than ranks, all types, any root, bounds of both modes."""
    counts = data.draw(
        st.lists(st.sampled_from([0, 0, 1, 2, 15, 1023, 1024, 3000]), min_size=SIZE, max_size=SIZE)
    )
    dtype = data.draw(st.sampled_from([*DTYPES, "i4", "u8", "?"]))
    root = data.draw(st.integers(0, SIZE - 1))
    bound = data.draw(st.sampled_from([None, 0, 1e-6, 1e-3, 1.0]))
    segment = data.draw(st.sampled_from([4096, 8192, 4 << 20]))
    arrays = rows(counts, dtype)
    result, exact = call(
        name, counts, arrays, root, error_bound=bound, algorithm=algorithm,
        options=zccl.Options(segment_nbytes=segment),
    )  # fmt: skip
    assert_all(bound_is_kept(result, exact, bound or 0))
    if not bound and exact is not None:
        assert_all(True) if same_bits(result, exact) else assert_all(False)
    else:
        assert_all(True)


@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_bits_do_not_depend_on_algorithm_or_segments(dtype):
    counts = uneven(2500)
    arrays = rows(counts, dtype)
    for name in ("bcast", "allgather"):
        found = [
            call(name, counts, arrays, error_bound=1e-3, algorithm=way, options=options)[0]
            for n, way in WAYS
            if n == name
            for options in (SMALL, None)
        ]
        # The root of a bcast keeps what it has.
        assert_all(all(same_bits(result, found[0]) for result in found))
        if name == "allgather":
            assert_same_everywhere(found[0])


@pytest.mark.parametrize("algorithm", ["binomial", "scatter_allgather"])
def test_bcast_and_its_root(algorithm):
    """The root's array stays as it was; with replace_root it gets what the others get."""
    for root in ROOTS:
        x = wave(5000, rank=root)
        mine = x.copy() if root == RANK else None
        result = zccl.bcast(mine, root, error_bound=1e-2, algorithm=algorithm)
        assert_all(root != RANK or (result is mine and same_bits(mine, x)))
        mine = x.copy() if root == RANK else np.empty_like(x)
        replaced = zccl.bcast(
            mine, root, error_bound=1e-2, algorithm=algorithm,
            options=zccl.Options(replace_root=True),
        )  # fmt: skip
        assert_all(replaced is mine and bound_is_kept(mine, x, 1e-2))
        assert_same_everywhere(mine)
        assert_all(root == RANK or same_bits(result, mine))


def test_shapes_without_counts():
    """The first axis counts the ranks."""
    shape = (SIZE, 7, 30)
    x = wave(SIZE * 210, rank=0).reshape(shape)
    how = {"error_bound": 1e-3}
    share = zccl.scatter(x if RANK == 0 else None, algorithm="binomial", **how)
    assert_all(bound_is_kept(share, x[RANK], 1e-3))
    top = SIZE - 1
    gathered = zccl.gather(x[RANK], root=top, algorithm="binomial", **how)
    assert_all(bound_is_kept(gathered, x if top == RANK else None, 1e-3))
    assert_all(bound_is_kept(zccl.allgather(x[RANK], algorithm="ring", **how), x, 1e-3))
    exchanged = zccl.alltoall(x, algorithm="pairwise", **how)
    assert_all(bound_is_kept(exchanged, np.stack([x[RANK]] * SIZE), 1e-3))
    scalar = np.float32(3.25) if RANK == 0 else None
    assert_all(zccl.bcast(scalar, error_bound=1e-3, algorithm="binomial").shape == ())


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8])
def test_roots_of_numpy_types(kind):
    root = kind(SIZE - 1)
    for name, algorithm in WAYS:
        if name in ROOTED:
            counts = uneven(300)
            result, exact = call(
                name, counts, rows(counts), root, error_bound=1e-3, algorithm=algorithm
            )
            assert_all(bound_is_kept(result, exact, 1e-3))


def test_buffers_of_another_shape():
    """A receive buffer is a room for so many elements, as MPI's are."""
    x = wave(SIZE * 60, rank=0).reshape(SIZE, 60)
    flat = np.empty(x.size, x.dtype)
    assert zccl.allgather(x[0], flat, error_bound=1e-3, algorithm="ring") is flat
    assert_all(bound_is_kept(flat, np.tile(x[0], SIZE), 1e-3))
    place = np.empty((6, 10), x.dtype)
    got = zccl.scatter(x if RANK == 0 else None, place, error_bound=1e-3, algorithm="binomial")
    assert_all(got is place and bound_is_kept(place.reshape(-1), x[RANK], 1e-3))
    counts = (np.arange(SIZE) * 0 + 60).tolist()
    square = np.empty_like(x)
    zccl.gather(x[RANK], square, np.array(counts), error_bound=1e-3, algorithm="binomial")
    assert_all(RANK or bound_is_kept(square, x, 1e-3))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_other_objects_than_arrays():
    """What NumPy takes without a copy: buffers, matrices, memory maps."""
    x = wave(3000, rank=0)
    sent = memoryview(x) if RANK == 0 else None
    got = zccl.bcast(sent, error_bound=1e-3, algorithm="binomial")
    assert_all(bound_is_kept(np.asarray(got), x, 1e-3))
    matrix = np.asmatrix(np.stack([x] * SIZE))
    zccl.allgather(MPI.IN_PLACE, matrix, error_bound=1e-3, algorithm="ring")
    assert_all(bound_is_kept(np.asarray(matrix), np.stack([x] * SIZE), 1e-3))


def test_float16_up_to_its_largest_numbers():
    x = np.linspace(-1000, 65472, 5000).astype(np.float16)
    for bound in (20, 30, 64):
        result = zccl.allgather(x, error_bound=bound, algorithm="ring")
        assert_all(bound_is_kept(result, np.stack([x] * SIZE), bound))


@pytest.mark.parametrize("dtype", ["f2", "f4", "c8"])
def test_fill_value(dtype):
    """It does not count in the range, also where the dtype has only a number beside it."""
    x = np.linspace(0, 1, 4000).astype(dtype)
    x[::2] = -9999
    options = zccl.Options(fill_value=-9999.0)
    how = {"error_bound": 1e-2, "mode": "rel", "options": options, "return_info": True}
    result, info = zccl.allgather(x, algorithm="ring", **how)
    if dtype != "c8":  # its imaginary parts are zeros
        assert info.error_bound == pytest.approx(1e-2, rel=1e-2)
    assert_all((result[:, ::2].real == x[::2].real).all())
    total, info = zccl.allreduce(x, algorithm="ring", op=zccl.AVG, **how)
    assert_all((total[::2].real == x[::2].real).all() and info.error_bound < 0.02)


LAYOUTS = {
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "Fortran": np.asfortranarray,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "read-only": lambda x: np.broadcast_to(x, (1, *x.shape))[0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f4", "c8", "f2"])
@pytest.mark.parametrize("bound, own", [(1e-3, True), (0, True), (None, False)])
def test_layouts(layout, dtype, bound, own):
    """Any layout is read, any writeable one is filled."""
    x = wave(SIZE * 600, dtype, rank=1).reshape(SIZE, 20, 30)
    form = LAYOUTS[layout]
    given, root = form(x), SIZE - 1
    assert np.array_equal(given, x)

    def into(like):
        empty = form(np.empty_like(like))
        return np.empty_like(like) if layout == "read-only" else empty

    def how(algorithm):
        return {"error_bound": bound, "algorithm": algorithm if own else "native"}

    limit = bound or 0
    at_root = root == RANK
    checks = []
    place = into(x[RANK])
    got = zccl.scatter(given if at_root else None, place, None, root, **how("binomial"))
    checks.append((got is place, place, x[RANK]))
    place = into(x) if at_root else None
    got = zccl.gather(form(x[RANK]), place, None, root, **how("binomial"))
    if at_root:
        checks.append((got is place, place, x))
    place = into(x)
    checks.append((zccl.allgather(form(x[RANK]), place, **how("ring")) is place, place, x))
    place = into(x)
    got = zccl.alltoall(given, place, **how("pairwise"))
    checks.append((got is place, place, np.stack([x[RANK]] * SIZE)))
    place = given if at_root else into(x)
    checks.append((zccl.bcast(place, root, **how("binomial")) is place, place, x))
    for same, found, exact in checks:
        native = np.ascontiguousarray(found).astype(exact.dtype)
        assert same and bound_is_kept(native, exact, limit)
    assert_all(True)


@pytest.mark.host
def test_in_place():
    """MPI's in-place forms."""
    counts = uneven(900)
    start = sum(counts[:RANK])
    for dtype in ("f4", "c16"):
        arrays = rows(counts, dtype)
        x = joined(arrays, dtype)
        for algorithm in ("ring", "recursive_doubling", "native"):
            buf = np.zeros_like(x)
            buf[start : start + counts[RANK]] = arrays[RANK]
            how = {"error_bound": 1e-3, "algorithm": algorithm}
            got = zccl.allgather(MPI.IN_PLACE, buf, counts, **how)
            assert_all(got is buf and bound_is_kept(buf, x, 1e-3))
        for root in ROOTS:
            at_root = root == RANK
            for algorithm in ("binomial", "native"):
                how = {"error_bound": 1e-3, "algorithm": algorithm}
                buf = np.zeros_like(x)
                buf[start : start + counts[RANK]] = arrays[RANK]
                send = MPI.IN_PLACE if at_root else arrays[RANK]
                got = zccl.gather(send, buf if at_root else None, counts, root, **how)
                assert_all(bound_is_kept(got, x if at_root else None, 1e-3))
                send = x.copy() if at_root else None
                into = MPI.IN_PLACE if at_root else None
                got = zccl.scatter(send, into, counts, root, **how)
                assert_all(bound_is_kept(got, arrays[RANK], 1e-3))
                assert_all(not at_root or (got.base is not None and same_bits(send, x)))
        square = wave(SIZE * 400, dtype, RANK).reshape(SIZE, 400)
        exact = np.stack([wave(SIZE * 400, dtype, r).reshape(SIZE, 400)[RANK] for r in range(SIZE)])
        for algorithm in ("pairwise", "native"):
            buf = square.copy()
            zccl.alltoall(MPI.IN_PLACE, buf, error_bound=1e-3, algorithm=algorithm)
            assert_all(bound_is_kept(buf, exact, 1e-3))


def test_overlapping_buffers():
    """A send buffer that lies inside the receive buffer."""
    n = SIZE * 500
    x = wave(n + 200, rank=3)
    buf = x.copy()
    zccl.allgather(buf[100:600], buf[:n].reshape(SIZE, 500), error_bound=1e-3, algorithm="ring")
    assert_all(bound_is_kept(buf[:n].reshape(SIZE, 500), np.stack([x[100:600]] * SIZE), 1e-3))
    square = x[:n].reshape(SIZE, 500).copy()
    zccl.alltoall(square, square, error_bound=1e-3, algorithm="pairwise")
    mine = x[:n].reshape(SIZE, 500)[RANK]
    assert_all(bound_is_kept(square, np.stack([mine] * SIZE), 1e-3))


def specials(dtype, rank):
    x = wave(3000, dtype, rank)
    bits = x.view("u4" if x.dtype.itemsize == 4 else "u8")
    x[5:9] = [np.nan, np.inf, -np.inf, -0.0]
    x[20:22] = [1e36, np.finfo(x.dtype).tiny / 2]
    payload = 0x7FC12345 if x.dtype.itemsize == 4 else 0x7FF8123456789ABC
    bits[30] = payload + rank
    x[1024:2048] = np.nan
    return x


@every_way
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_specials_travel_exactly(name, algorithm, dtype):
    arrays = [specials(dtype, rank) for rank in range(SIZE)]
    result, exact = call(name, [3000] * SIZE, arrays, error_bound=1e-2, algorithm=algorithm)
    if result is not None and (name != "bcast" or RANK != 0):
        unsigned = f"u{result.dtype.itemsize}"
        special = ~(np.abs(exact) < 1e30)
        assert (result.view(unsigned)[special] == exact.view(unsigned)[special]).all()
        assert np.abs(result[~special] - exact[~special]).max() <= 1e-2
    assert_all(True)


@every_way
def test_values_on_an_offset(name, algorithm):
    """Decoded values keep the bound also where the dtype has hardly finer numbers."""
    arrays = [wave(4000, "f4", rank) + np.float32(30_000) for rank in range(SIZE)]
    for bound in (0.004, 0.01, 0.3):
        result, exact = call(name, [4000] * SIZE, arrays, error_bound=bound, algorithm=algorithm)
        assert_all(bound_is_kept(result, exact, bound))


@every_way
def test_range_of_the_values(name, algorithm):
    """A relative bound counts in the range of all that is sent: the root's in bcast and scatter."""
    arrays = [np.full(1500, 100.0 * rank) for rank in range(SIZE)]
    arrays[0][:2] = [0, 1]
    counts = [1500] * SIZE
    result, exact = call(
        name, counts, arrays, mode="rel", error_bound=1e-3, algorithm=algorithm, return_info=True
    )
    (result, info) = result
    wanted = 1e-3 * max(1.0, 100.0 * (SIZE - 1))
    assert_all(info.error_bound == pytest.approx(wanted))
    assert_all(bound_is_kept(result, exact, wanted))
    constant = [np.full(1500, 2.5)] * SIZE
    result, exact = call(name, counts, constant, mode="rel", error_bound=1e-3, algorithm=algorithm)
    assert_all(bound_is_kept(result, exact, 0))


@every_way
def test_compressed_once_decoded_once(name, algorithm, monkeypatch):
    """Every element is compressed once, where it comes from; who passes it on does not decode."""
    coded = {"encode": 0, "decode": 0}

    def counted(method):
        true = getattr(MovementCodec, method)

        def count(self, *args):
            part = args[-1]
            coded[method] += part.stop - part.start
            return true(self, *args)

        monkeypatch.setattr(MovementCodec, method, count)

    counted("encode")
    counted("decode")
    counts = uneven(3000)
    root = SIZE // 2
    call(name, counts, rows(counts), root, error_bound=1e-3, algorithm=algorithm, options=SMALL)
    total, own = sum(counts), counts[RANK]
    given = {"bcast": total if root == RANK else 0, "scatter": total if root == RANK else 0,
             "gather": own, "allgather": own, "alltoall": total}[name]  # fmt: skip
    taken = {"bcast": 0 if root == RANK else total, "scatter": own,
             "gather": total if root == RANK else 0, "allgather": total,
             "alltoall": SIZE * own}[name]  # fmt: skip
    assert_all(coded == {"encode": given, "decode": taken})


def test_communicators_side_by_side():
    """Disjoint communicators and duplicates, each with its own traffic."""
    half = COMM.Split(RANK % 2, -RANK)
    twin = half.Dup()
    try:
        for comm in (half, twin, half):
            for name, algorithm in WAYS:
                counts = [400 + 100 * r for r in range(comm.size)]
                arrays = rows(counts)
                result, exact = call(
                    name, counts, arrays, comm.size - 1, comm, error_bound=1e-3,
                    algorithm=algorithm,
                )  # fmt: skip
                assert_all(bound_is_kept(result, exact, 1e-3))
    finally:
        twin.Free()
        half.Free()


@pytest.mark.parametrize("name, algorithm", thinned(WAYS))
def test_fewer_bytes_and_what_info_tells(name, algorithm):
    counts = [20_000] * SIZE
    (_, info), _ = call(
        name, counts, rows(counts), error_bound=1e-2, algorithm=algorithm, return_info=True
    )
    assert info.collective == name and info.algorithm == algorithm
    assert info.error_bound == 1e-2 and 0 < info.step <= 2e-2
    sent = COMM.allreduce(info.wire_nbytes)
    plain = COMM.allreduce(info.raw_wire_nbytes)
    assert (SIZE == 1 and sent == 0) or name == "alltoall" or plain > 3 * sent > 0
    (_, info), _ = call(name, counts, rows(counts), algorithm="native", return_info=True)
    assert info.algorithm == "native" and info.error_bound == 0


@pytest.mark.parametrize("algorithm", ["native", "binomial"])
def test_replaced_root_of_any_layout(algorithm):
    """`replace_root` keeps the root's values where its array is not a plain row, natively, too."""
    x = np.arange(40, dtype="f4")
    how = {"algorithm": algorithm, "options": zccl.Options(replace_root=True)}
    for buf in (np.zeros(80, "f4")[::2], np.zeros(40, ">f4"), np.zeros(40, "f4")):
        if RANK == 0:
            buf[...] = x
        got = zccl.bcast(buf, error_bound=0.25, **how)
        assert_all(got is buf and (np.abs(buf - x) <= 0.25).all())
