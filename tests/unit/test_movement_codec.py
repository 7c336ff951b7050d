"""What data movement is made of, without MPI: trees, bundles, places, messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zccl.algorithms.primitives import pack, unpack
from zccl.algorithms.schedules import binomial_tree, recursive_doubling
from zccl.codecs.movement import MovementCodec
from zccl.codecs.places import Nowhere, Row, Runs
from zccl.codecs.plain import PlainCodec
from zccl.codecs.tiles import Grid
from zccl.collectives.grids import movement_grid
from zccl.errors import StreamError
from zccl.formats import TILE
from zccl.plan import covering_parts, even_split, row_parts, share_runs
from zccl.pool import HOST

SIZES = range(1, 18)


@pytest.mark.parametrize("size", SIZES)
def test_trees_reach_every_rank_once(size):
    for root in {0, size // 2, size - 1}:
        trees = [binomial_tree(rank, size, root) for rank in range(size)]
        assert [rank for rank in range(size) if trees[rank].parent is None] == [root]
        for rank, tree in enumerate(trees):
            below = [r for branch in tree.branches for r in branch.ranks]
            assert len(set(below)) == len(below) and rank not in below
            for branch in tree.branches:
                assert trees[branch.child].parent == rank
                inner = [r for b in trees[branch.child].branches for r in b.ranks]
                assert branch.ranks == [*inner, branch.child]
        reached = [r for branch in trees[root].branches for r in branch.ranks]
        assert sorted([root, *reached]) == list(range(size))


@pytest.mark.parametrize("size", SIZES)
def test_doubling_gathers_from_everyone(size):
    """With the data of its groups every rank ends with that of all."""
    schedules = [recursive_doubling(rank, size) for rank in range(size)]
    for rank, schedule in enumerate(schedules):
        if schedule.folds_to is not None:
            assert schedules[schedule.folds_to].folds_from == rank
            continue
        held = {rank} | ({schedule.folds_from} if schedule.folds_from is not None else set())
        for ranks in schedule.groups:
            assert not held & set(ranks)
            held |= set(ranks)
        assert held == set(range(size))


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=9))
def test_bundles(contents):
    messages = [np.frombuffer(content, np.uint8).copy() for content in contents]
    bundle = pack(messages, HOST)
    found = unpack(bundle, len(messages), HOST)
    assert [message.tobytes() for message in found] == contents
    if len(messages) > 1:
        assert all(message.ctypes.data % 8 == 0 for message in found)
        for wrong in (bundle[:-1], bundle[:5], bundle[:0]):
            with pytest.raises(StreamError):
                unpack(wrong, len(messages), HOST)
        forged = bundle.copy()
        forged[:8].view(np.int64)[0] = -8
        with pytest.raises(StreamError):
            unpack(forged, len(messages), HOST)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=6), st.sampled_from([1, 2]))
def test_parts_cover_shares(counts, components):
    n = sum(counts) * components
    runs = share_runs(counts, components)
    inside = [i for mine in runs for run in mine for i in range(run.start, run.stop)]
    assert sorted(inside) == list(range(n))
    row = np.arange(n)
    for mine, parts in zip(runs, covering_parts(runs, n, 4, 4096), strict=True):
        target = np.full(sum(run.stop - run.start for run in mine), -1)
        place = Runs(target, mine)
        for part in parts:
            assert part.start % TILE == 0 and (part.stop % TILE == 0 or part.stop == n)
            place(part)[...] = row[part]
        place.finish()
        assert target.tolist() == [i for run in mine for i in range(run.start, run.stop)]


def test_rows_have_their_own_tiles():
    parts = row_parts([1500, 0, 700], 4, 4096)
    assert parts == [[slice(0, 1024), slice(1024, 1500)], [], [slice(1500, 2200)]]
    assert even_split(7, 3) == [3, 2, 2]


def test_nowhere_takes_nothing():
    with pytest.raises(AssertionError):
        Nowhere()(slice(0, 1))


def codec(values, bound, out=None):
    ends = (float(values.min()), float(values.max()))
    grid = movement_grid(values, bound, ends, np.nan, half=False)
    return MovementCodec(Row(values), Row(out if out is not None else values), values.dtype, grid)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 300.0, -7e4])
def test_bound_on_an_offset_with_few_escapes(dtype, offset):
    """The grid is aligned to the numbers of the dtype where they are coarse."""
    rng = np.random.default_rng(1)
    values = (np.cumsum(rng.standard_normal(20_000)) / 50 + offset).astype(dtype)
    for bound in (1e-2, 0.3):
        out = np.empty_like(values)
        c = codec(values, bound, out)
        for part in (slice(0, 8192), slice(8192, 20_000)):
            c.decode(c.encode(part), part)
        assert np.abs(out.astype(np.longdouble) - values).max() <= bound
        assert c.escapes <= 20


def test_plain_messages_have_one_length():
    values = np.arange(10.0)
    plain = PlainCodec(Row(values), Row(values), values.dtype)
    message = plain.encode(slice(0, 10))
    for wrong in (message[:8], message[:0], np.tile(message, 2)):
        with pytest.raises(StreamError):
            plain.decode(wrong, slice(0, 10))


def test_values_without_a_grid_travel_as_they_are():
    """A float16 array whose numbers are coarser than the bound."""
    values = np.float32([0, 1, 30_000, 3])
    grid = movement_grid(values, 1e-3, (0.0, 30_000.0), np.nan, half=True)
    assert grid.step == 0
    out = np.empty_like(values)
    c = MovementCodec(Row(values), Row(out), values.dtype, grid)
    c.decode(c.encode(slice(0, 4)), slice(0, 4))
    assert out.tobytes() == values.tobytes()


@pytest.mark.parametrize("bound", [1e-2, 1e-30])
def test_damaged_messages_are_refused(bound):
    """Any flipped bit and any shorter message raises StreamError, without a grid, too."""
    rng = np.random.default_rng(2)
    values = np.cumsum(rng.standard_normal(3000)).astype(np.float32)
    part = slice(0, 3000)
    c = codec(values, bound)
    if bound < 1e-20:
        c = MovementCodec(Row(values), Row(values), values.dtype, Grid(0.0, bound))
    message = c.encode(part).copy()
    for bit in {*range(256), *rng.integers(0, 8 * message.size, 800).tolist()}:
        wrong = message.copy()
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StreamError):
            c.decode(wrong, part)
    for wrong in (message[:0], message[:8], message[:-4], message[:-1]):
        with pytest.raises(StreamError):
            c.decode(wrong.copy(), part)
