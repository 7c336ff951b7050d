"""Promises 8 and 12: counts, layouts, in place, overlap, and types."""

import functools

import numpy as np
import pytest
from mpi.checks import (
    CODED_ALGORITHMS,
    COMM,
    RANK,
    SIZE,
    assert_bound,
    assert_raises_everywhere,
    assert_same_everywhere,
    assert_usable,
    everyone,
    same_bits,
    thinned,
    wave,
)
from mpi4py import MPI

import zccl

pytestmark = pytest.mark.mpi
by_algorithm = pytest.mark.parametrize("algorithm", [*CODED_ALGORITHMS, "native"])
by_bound = pytest.mark.parametrize("bound", [1e-3, 0], ids=["coded", "plain"])
call = functools.partial(zccl.allreduce, error_bound=1e-3)


# ---------------------------------------------------------------- promise 8: counts and layouts


@by_algorithm
@by_bound
def test_counts(bound, algorithm):
    """No elements, one, fewer than ranks, around a tile, and odd numbers of them."""
    for n in (0, 1, 2, SIZE, SIZE + 1, 1023, 1024, 1025, 4096, 7777):
        x = wave(n)
        result = zccl.allreduce(x, error_bound=bound, algorithm=algorithm)
        assert_bound(result, x, bound + 2e-6 * SIZE)


@by_algorithm
def test_shapes(algorithm):
    """The result has the shape of the input: scalars, empty arrays, many axes."""
    for shape in ((), (1, 1, 1), (0, 4), (3, 0), (2, 3, 5, 7)):
        x = wave(int(np.prod(shape))).reshape(shape)
        result = call(x, algorithm=algorithm)
        assert isinstance(result, np.ndarray) and result.shape == shape
        assert_bound(result, x, 1e-3 + 1e-5)
    result = call(np.float32(RANK), algorithm=algorithm)
    assert result.shape == () and abs(result - SIZE * (SIZE - 1) / 2) <= 1e-3


def unaligned(a):
    buffer = np.zeros(a.nbytes + 1, np.uint8)[1:]
    b = buffer.view(a.dtype).reshape(a.shape)
    b[...] = a
    return b


def record_field(a):
    records = np.zeros(a.shape, [("x", a.dtype), ("y", "u1")])
    records["x"] = a
    return records["x"]


#: Name -> function that lays out a 2-D array in another way.
LAYOUTS = {
    "C": np.copy,
    "Fortran": np.asfortranarray,
    "every second": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    "negative strides": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "big-endian Fortran": lambda a: np.asfortranarray(a.astype(a.dtype.newbyteorder(">"))),
    "unaligned": unaligned,
    "field of a record": record_field,
    "matrix": lambda a: a.copy().view(np.matrix),
}


@pytest.mark.parametrize(
    "dtype, bound, layout",
    thinned(
        (dtype, bound, layout)
        for layout in LAYOUTS
        for dtype, bound in [("f4", 1e-3), ("f8", 0), ("c8", 1e-3), ("f2", 0.01), ("i4", 1e-3)]
    ),
)
def test_layouts(dtype, bound, layout):
    """Any layout of sendbuf and recvbuf gives the result of plain arrays; sendbuf is not
    written.
    """
    plain = wave(24 * 50, dtype).reshape(24, 50)
    expected = zccl.allreduce(plain, error_bound=bound, algorithm="ring")
    x = LAYOUTS[layout](plain)
    before = x.tobytes()
    out = LAYOUTS[layout](np.zeros_like(plain))
    results = [
        zccl.allreduce(x, error_bound=bound, algorithm="ring"),
        zccl.allreduce(x, out, error_bound=bound, algorithm="ring"),
    ]
    assert results[1] is out
    assert x.tobytes() == before
    in_place = LAYOUTS[layout](plain)
    results.append(zccl.allreduce(MPI.IN_PLACE, in_place, error_bound=bound, algorithm="ring"))
    assert results[2] is in_place
    for result in results:
        assert same_bits(np.asarray(result).astype(plain.dtype, "C"), expected)


@by_algorithm
def test_native_layouts(algorithm):
    """The same through every algorithm."""
    plain = np.round(wave(24 * 50)).reshape(24, 50)
    expected = np.empty_like(plain)
    COMM.Allreduce(plain, expected)
    for lay_out in LAYOUTS.values():
        out = lay_out(np.zeros_like(plain))
        zccl.allreduce(lay_out(plain), out, error_bound=0, algorithm=algorithm)
        assert (np.asarray(out) == expected).all()


@by_algorithm
def test_read_only_sources(algorithm, tmp_path):
    """Arrays that cannot be written may be sent: flags, broadcasts, memory-mapped files."""
    x = wave(1200)
    expected = call(x, algorithm=algorithm)
    frozen = x.copy()
    frozen.flags.writeable = False
    x.tofile(tmp_path / "x")
    for source in (frozen, np.memmap(tmp_path / "x", np.float32, "r")):
        assert same_bits(call(source, algorithm=algorithm), expected)
    wide = np.broadcast_to(x, (2, 1200))
    assert_bound(call(wide, algorithm=algorithm), wide, 1e-3 + 1e-5)


def test_memory_around_a_result_is_left_alone():
    """A result in part of an array leaves the rest as it was."""
    memory = np.full((1300, 4), 7, np.float32)
    x = wave(1300)
    for algorithm in (*CODED_ALGORITHMS, "native"):
        call(x, memory[:, 2], algorithm=algorithm)
        assert_bound(memory[:, 2].copy(), x, 1e-3 + 1e-5)
        assert (memory[:, [0, 1, 3]] == 7).all()


@by_algorithm
@by_bound
def test_in_place(bound, algorithm):
    """MPI.IN_PLACE, or one array as both buffers."""
    x = wave(2100)
    expected = zccl.allreduce(x, error_bound=bound, algorithm=algorithm)
    for send in (True, False):
        both = x.copy()
        result = zccl.allreduce(
            both if send else MPI.IN_PLACE, both, error_bound=bound, algorithm=algorithm
        )
        assert result is both
        assert same_bits(result, expected)


@by_algorithm
@by_bound
def test_partial_overlap(bound, algorithm):
    """Buffers that overlap in part: the result is right; an array and its transposed one too."""
    for shift in (1, 5, 1024):
        for forward in (True, False):
            memory = np.zeros(3000 + shift, np.float32)
            send, receive = memory[:3000], memory[shift:]
            if forward:
                send, receive = receive, send
            send[:] = x = wave(3000)
            zccl.allreduce(send, receive, error_bound=bound, algorithm=algorithm)
            assert_bound(receive.copy(), x, bound + 1e-5)
    square = wave(50 * 50).reshape(50, 50)
    x = square.copy()
    zccl.allreduce(square, square.T, error_bound=bound, algorithm=algorithm)
    assert_bound(square.T.copy(), x, bound + 1e-5)


# ---------------------------------------------------------------- promise 12: types


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FUNCTIONS = [
    (MPI.SUM, np.add), (MPI.PROD, np.multiply), (MPI.MAX, np.maximum), (MPI.MIN, np.minimum),
    (MPI.BAND, np.bitwise_and), (MPI.BOR, np.bitwise_or), (MPI.BXOR, np.bitwise_xor),
]  # fmt: skip


@pytest.mark.parametrize(
    "dtype, algorithm",
    thinned(
        (dtype, algorithm)
        for dtype in INTEGERS
        for algorithm in ("ring", "recursive_doubling", "native")
    ),
)
def test_integers_are_exact(dtype, algorithm):
    """Integers of all sizes, wrapping round as they do; SUM, MAX and MIN with a bound too."""
    x = np.random.default_rng(RANK).integers(0, 256, 600 * np.dtype(dtype).itemsize, np.uint8)
    x = x.view(dtype)
    arrays = everyone(x)
    for op, function in FUNCTIONS:
        expected = functools.reduce(function, arrays)
        if algorithm == "native":  # Open MPI may saturate small integers where they overflow
            COMM.Allreduce(x, expected, op)
        bound = 10.0 if op in (MPI.SUM, MPI.MAX, MPI.MIN) else None
        result, info = zccl.allreduce(
            x, op=op, error_bound=bound, algorithm=algorithm, return_info=True
        )
        assert same_bits(result, expected)
        assert info.error_bound == info.step == 0


@by_algorithm
def test_booleans(algorithm):
    """Logical and bitwise operations on bool."""
    x = np.random.default_rng(RANK).random(1500) < 0.6
    arrays = everyone(x)
    for op, function in [
        (MPI.LOR, np.logical_or), (MPI.LAND, np.logical_and), (MPI.LXOR, np.logical_xor),
    ]:  # fmt: skip
        result = zccl.allreduce(x, op=op, algorithm=algorithm)
        assert same_bits(result, functools.reduce(function, arrays))


@by_algorithm
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.complex128])
def test_products_are_exact(dtype, algorithm):
    """PROD without a bound; with one NotImplementedError on all ranks."""
    x = np.array([1, 2, -1, 0.5, RANK + 1], dtype).repeat(300)
    result = zccl.allreduce(x, op=MPI.PROD, algorithm=algorithm)
    assert same_bits(result, functools.reduce(np.multiply, everyone(x)).astype(dtype))
    assert_raises_everywhere(
        NotImplementedError,
        lambda: zccl.allreduce(x, op=MPI.PROD, error_bound=1e-3, algorithm=algorithm),
    )
    assert_usable()


@by_algorithm
def test_user_operations_are_exact(algorithm):
    """A user's operation without a bound; with one NotImplementedError on all ranks."""

    def larger_size(a, b, datatype):
        x, y = np.frombuffer(a, "f8"), np.frombuffer(b, "f8")
        y[:] = np.where(np.abs(x) > np.abs(y), x, y)

    op = MPI.Op.Create(larger_size, commute=True)
    x = wave(1500, np.float64)
    arrays = np.array(everyone(x))
    expected = arrays[np.abs(arrays).argmax(0), np.arange(1500)]
    assert same_bits(zccl.allreduce(x, op=op, algorithm=algorithm), expected)
    assert_raises_everywhere(
        NotImplementedError, lambda: zccl.allreduce(x, op=op, error_bound=1, algorithm=algorithm)
    )
    op.Free()


@pytest.mark.parametrize("bound", [None, 0, 1e-3])
def test_what_no_operation_has(bound):
    """MAX and MIN of complex numbers, and dtypes that are no numbers, are a TypeError on
    all ranks.
    """
    z = wave(30, np.complex64)
    for op in (MPI.MAX, MPI.MIN, zccl.MAX, zccl.MIN):
        assert_raises_everywhere(TypeError, lambda: zccl.allreduce(z, op=op, error_bound=bound))  # noqa: B023
    for x in (np.zeros(3, "M8[s]"), np.zeros(3, "U2"), np.zeros(3, "f4,f4"), np.zeros(3, "g")):
        assert_raises_everywhere(TypeError, lambda: zccl.allreduce(x, error_bound=bound))  # noqa: B023
    assert_usable()


@pytest.mark.parametrize("op", [zccl.SUM, zccl.AVG])
@pytest.mark.parametrize("dtype", [np.float16, np.complex64])
def test_specials_of_other_dtypes(dtype, op):
    """NaN and infinities in half precision and in one component of complex numbers."""
    x = wave(1300, dtype)
    x[3], x[4 + RANK] = np.nan, np.inf
    for algorithm in CODED_ALGORITHMS:
        result = zccl.allreduce(x, op=op, error_bound=0.05, algorithm=algorithm)
        assert_same_everywhere(result)
        assert np.isnan(result.real[3])
        assert (result.real[4 : 4 + SIZE] == np.inf).all()
        assert_bound(result[50:], x[50:], 0.05, op)
        assert not np.isnan(result.imag[:3]).any()


def test_half_precision_sums_may_leave_its_range():
    """A sum beyond the largest float16 is infinite, as it is in float16 itself, without a
    warning.
    """
    x = np.full(1100, 60000, np.float16)
    x[::2] = 1
    for algorithm in (*CODED_ALGORITHMS, "native"):
        result = zccl.allreduce(x, error_bound=0.01, algorithm=algorithm)
        assert (result[1::2] == (60000 if SIZE == 1 else np.inf)).all()
        assert np.abs(result[::2].astype("f8") - SIZE).max() <= 0.02
