"""Memory pool and threads of the codec."""

import gc

import numpy as np
import pytest

import zccl
from zccl import pool
from zccl.codecs import threads, tiles


def test_memory_comes_back_when_its_last_view_is_gone():
    zccl.free_workspace()
    buffer = pool.HOST.take(5000)
    view = buffer[104:200].view(np.uint64)
    address = buffer.ctypes.data
    del buffer
    gc.collect()
    assert pool.HOST.take(5000).ctypes.data != address, "still in use through a view"
    del view
    gc.collect()
    assert pool.HOST.take(5000).ctypes.data == address


def test_free_workspace_returns_what_is_kept():
    zccl.free_workspace()
    del_me = pool.HOST.take(100_000)
    assert zccl.free_workspace() == 0
    del del_me
    gc.collect()
    assert zccl.free_workspace() >= 100_000
    assert zccl.free_workspace() == 0


@pytest.mark.parametrize("nbytes", [0, 1, 1023, 1024, 1025, 4_194_304, 4_202_497])
def test_sizes_are_met_with_at_most_an_eighth_to_spare(nbytes):
    buffer = pool.HOST.take(nbytes)
    assert buffer.nbytes == nbytes
    assert buffer.base is not None
    buffer[:] = 7
    zccl.free_workspace()
    del buffer
    gc.collect()
    assert nbytes <= zccl.free_workspace() <= nbytes * 9 / 8 + pool.SMALLEST


@pytest.mark.parametrize("tile_count", [0, 1, 127, 128, 129, 1000])
@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_runs_cover_all_tiles_once(tile_count, count):
    runs = threads.tile_runs(tile_count, count)
    assert [t for run in runs for t in range(run.start, run.stop)] == list(range(tile_count))
    assert len(runs) <= count


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rough", [False, True])
def test_bytes_do_not_depend_on_the_number_of_threads(dtype, rough):
    rng = np.random.default_rng(3)
    n = 1024 * 300 + 17
    values = np.cumsum(rng.normal(size=n)).astype(dtype)
    if rough:  # every tile raw: no thread has a byte of room to spare
        values = rng.integers(0, 2**32, n * np.dtype(dtype).itemsize // 4, np.uint32).view(dtype)
    grid = tiles.Grid(2.0**-7, 2.0**-8, movement=False, ranks=2)

    def encode(count):
        table = np.empty(tiles.tile_count(n), np.uint64)
        words = np.empty(tiles.room_nwords(n, values.dtype), np.uint32)
        return tiles.encode(values, grid, table, words, count)

    alone, escaped = encode(1)
    for count in (2, 3, 4):
        body, also_escaped = encode(count)
        assert (body.checksum, also_escaped) == (alone.checksum, escaped)
        assert body.table.tobytes() == alone.table.tobytes()
        assert body.words.tobytes() == alone.words.tobytes()
        out = np.empty_like(values)
        expected = np.empty_like(values)
        tiles.decode(body, grid.step, out, threads=count)
        tiles.decode(alone, grid.step, expected)
        assert out.tobytes() == expected.tobytes()
        sums = []
        for k in (1, count):
            table = np.empty(tiles.tile_count(n), np.uint64)
            words = np.empty(tiles.room_nwords(n, values.dtype), np.uint32)
            total = tiles.combine(
                body, alone, zccl.SUM, n, values.dtype, grid.step, table, words, True, k
            )
            sums.append((total.table.tobytes(), total.words.tobytes(), total.checksum))
        assert sums[0] == sums[1]


def test_damage_in_any_thread_is_found():
    values = np.linspace(0, 1, 1024 * 300)
    table = np.empty(300, np.uint64)
    words = np.empty(tiles.room_nwords(values.size, values.dtype), np.uint32)
    body, _ = tiles.encode(values, tiles.Grid(1e-4, 5e-5), table, words, 3)
    for word in (0, body.words.size // 2, body.words.size - 1):
        body.words[word] ^= np.uint32(1)
        with pytest.raises(zccl.StreamError):
            tiles.decode(body, 1e-4, np.empty_like(values), threads=3)
        body.words[word] ^= np.uint32(1)
    tiles.decode(body, 1e-4, np.empty_like(values), threads=3)
