"""Reading of buffer specifications: what pieces they name, and what is refused."""

import array

import numpy as np
import pytest

mpi4py = pytest.importorskip("mpi4py")
from mpi4py import MPI  # noqa: E402

from zccl.buffers import Message, array_of, simple, vector  # noqa: E402

X = np.arange(12.0)
F = np.arange(12, dtype=np.float32)


def pieces(message):
    return list(zip(message.counts, message.displs, strict=True))


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (X, [(12, 0)]),
        ([X, MPI.DOUBLE], [(12, 0)]),
        ((X, "d"), [(12, 0)]),
        ([X, 5], [(5, 0)]),
        ([X, np.int64(5)], [(5, 0)]),
        ([X, None], [(12, 0)]),
        ([X, 5, MPI.DOUBLE], [(5, 0)]),
        ([X, (5, 2)], [(5, 2)]),
        ([X, [5, 2], "d"], [(5, 2)]),
        ([X, 5, 2, MPI.DOUBLE], [(5, 2)]),
        ([X, None, 2, MPI.DOUBLE], [(10, 2)]),
        ([X, (None, 2)], [(10, 2)]),
        ([X, 0], [(0, 0)]),
        ([None, MPI.DOUBLE], [(0, 0)]),
        ([None, 0, MPI.DOUBLE], [(0, 0)]),
        ([F, "f4"], [(12, 0)]),
        (array.array("i", [1, 2]), [(2, 0)]),
        (np.float64(3), [(1, 0)]),
        (X.reshape(3, 4).T, [(12, 0)]),
    ],
)
def test_one_count(spec, wanted):
    assert pieces(simple(spec, "sendbuf")) == wanted


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (X, [(4, 0), (4, 4), (4, 8)]),
        ([X, 2], [(2, 0), (2, 2), (2, 4)]),
        ([X, (2, 1), "d"], [(2, 1), (2, 3), (2, 5)]),
    ],
)
def test_one_count_of_several_blocks(spec, wanted):
    assert pieces(simple(spec, "recvbuf", 3)) == wanted


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (X, [(4, 0), (4, 4), (4, 8)]),
        (np.ones(5), [(2, 0), (2, 2), (1, 4)]),
        ([X, [1, 0, 3]], [(1, 0), (0, 1), (3, 1)]),
        ([X, np.array([1, 0, 3]), MPI.DOUBLE], [(1, 0), (0, 1), (3, 1)]),
        ([X, ([1, 0, 3], [9, 100, 2])], [(1, 9), (0, 100), (3, 2)]),
        ([X, ([1, 0, 3], None)], [(1, 0), (0, 1), (3, 1)]),
        ([X, (1, 0, 3), None, "d"], [(1, 0), (0, 1), (3, 1)]),
        ([X, [1, 0, 3], [9, 1, 2], "d"], [(1, 9), (0, 1), (3, 2)]),
        ([X, 2], [(2, 0), (2, 2), (2, 4)]),
        ([X, (2, 5), "d"], [(2, 0), (2, 5), (2, 10)]),
        ([None, [0, 0, 0], "d"], [(0, 0), (0, 0), (0, 0)]),
    ],
)
def test_a_count_for_each_block(spec, wanted):
    assert pieces(vector(spec, "recvbuf", 3)) == wanted


@pytest.mark.parametrize(
    ("kind", "words", "spec"),
    [
        (TypeError, "got str, wanted an array", "text"),
        (TypeError, "got NoneType", None),
        (TypeError, "got NoneType", [None, 3]),
        (TypeError, "got InPlaceType", MPI.IN_PLACE),
        (TypeError, "masked", np.ma.ones(3)),
        (TypeError, "got an array of float64 with a datatype of float32", [X, MPI.FLOAT]),
        (TypeError, "got an array of float64 with a datatype of uint8", [X, MPI.BYTE]),
        (TypeError, "got datatype 'nothing'", [X, "nothing"]),
        (TypeError, "got datatype .*a derived one", [X, MPI.DOUBLE.Create_contiguous(2)]),
        (TypeError, "got datatype MPI_FLOAT_INT", [X, MPI.FLOAT_INT]),
        (TypeError, "got int for a datatype", [X, 3, 4]),
        (TypeError, "count: got 'a', wanted an integer", [X, "a", "d"]),
        (TypeError, "displacement: got 0.5", [X, (1, 0.5)]),
        (ValueError, "count: got -1", [X, -1]),
        (ValueError, "displacement: got -1", [X, (1, -1)]),
        (ValueError, "displacement 13, but the buffer has 12", [X, (None, 13)]),
        (ValueError, "got 13 elements behind 0 others, but the buffer has 12", [X, 13]),
        (ValueError, "got 5 elements behind 8 others", [X, (5, 8)]),
        (ValueError, "got 1 items, wanted 2 to 4", [X]),
        (ValueError, "got 5 items, wanted 2 to 4", [X, 1, 1, "d", 1]),
        (ValueError, "wanted a pair", [X, [1, 2, 3]]),
        (ValueError, "not contiguous", X[::2]),
        (ValueError, "got 7 bytes, wanted a multiple of 4", [bytearray(7), "f"]),
    ],
)
def test_what_is_refused(kind, words, spec):
    with pytest.raises(kind, match=f"^sendbuf.*{words}"):
        simple(spec, "sendbuf")


@pytest.mark.parametrize(
    ("kind", "words", "spec"),
    [
        (ValueError, "counts: got 2, wanted one for each of 3", [X, [1, 2]]),
        (ValueError, "displacements: got 4, wanted one", [X, [1, 2, 3], [0] * 4, "d"]),
        (ValueError, "counts: got -1", [X, [1, 2, -1]]),
        (ValueError, "got 9 elements behind 4 others", [X, [1, 3, 9]]),
        (ValueError, "wanted a pair", [X, (1, 2, 3)]),
        (TypeError, "counts: got 0.5", [X, 0.5]),
        (TypeError, "counts: got 0.5", [X, [0.5, 1, 1]]),
    ],
)
def test_what_is_refused_for_each_block(kind, words, spec):
    with pytest.raises(kind, match=f"^recvbuf.*{words}"):
        vector(spec, "recvbuf", 3)


def test_blocks_share_an_array_evenly():
    with pytest.raises(ValueError, match="got 12 elements, wanted a multiple of 5"):
        simple(X, "recvbuf", 5)


def test_pieces_one_behind_the_other_are_a_view():
    x = X.copy()
    for spec in (x, [x, [2, 0, 3]], [x, ([2, 0, 3], [4, 0, 6])]):
        message = vector(spec, "recvbuf", 3)
        assert np.shares_memory(message.packed(), x)
        assert np.shares_memory(message.room(), x)
    assert vector([x, ([2, 0, 3], [4, 0, 6])], "recvbuf", 3).packed().tolist() == [4, 5, 6, 7, 8]
    assert vector([x, [0, 0, 0]], "recvbuf", 3).room().size == 0


def test_pieces_apart_are_packed_and_delivered():
    x = X.copy()
    message = vector([x, ([2, 0, 3], [6, 0, 1])], "recvbuf", 3)
    assert message.packed().tolist() == [6, 7, 1, 2, 3]
    room = message.room()
    room[...] = [-1, -2, -3, -4, -5]
    message.deliver()
    assert x.tolist() == [0, -3, -4, -5, 4, 5, -1, -2, 8, 9, 10, 11]


def test_pieces_to_be_sent_may_overlap_those_to_be_filled_may_not():
    message = vector([X, ([2, 2, 2], [0, 1, 1])], "buf", 3)
    assert message.packed().tolist() == [0, 1, 1, 2, 1, 2]
    with pytest.raises(ValueError, match="buf: got displacements .*that do not overlap"):
        message.room()


def test_read_only_arrays_are_sent_but_not_filled():
    message = simple(bytes(8), "buf")
    assert message.packed().size == 8
    with pytest.raises(ValueError, match="buf: got a read-only array"):
        message.room()


def test_bytes_are_seen_as_the_datatype():
    data = bytearray(np.arange(3, dtype=np.float32).tobytes())
    message = simple([data, 2, 1, MPI.FLOAT], "buf")
    assert message.packed().dtype == np.float32 and message.packed().tolist() == [1, 2]
    message.room()[...] = 7
    assert np.frombuffer(data, np.float32).tolist() == [0, 7, 7]


def test_columns_are_taken_in_the_order_of_memory():
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert simple(x, "buf").packed().tolist() == [0, 3, 1, 4, 2, 5]


def test_the_array_of_a_specification():
    assert array_of([X, 3]) is X and array_of(X) is X
    assert array_of(MPI.IN_PLACE) is None and array_of(None) is None and array_of([]) is None


def test_a_message_has_no_more_than_its_buffer():
    with pytest.raises(ValueError, match="buf: got 2 elements behind 11 others"):
        Message(X, "buf", X, [2], [11])
