"""Checking a received stream: all lengths and the checksum, nothing decoded.

    warp    8 tiles; lane k looks at the table entry of tile k, then lane L of all of them reads
            words L, L + 32, ... of one record after the other, the next one under way

One sum over the lanes serves all 8 tiles. The first row of a record holds its widths, so ordinary
records need no other loads. Records with rare features are looked at afterwards.
"""

from zccl.formats import LONG, RAW, SMALL, TILE, WIDTH_WORDS, ZERO
from zccl.kernels.cuda._compat import ALL, cuda, device, i32, i64, types, u32, u64
from zccl.kernels.cuda._intrinsics import (
    funnel_wrap,
    load_i64,
    shift_right,
    sum_of_lanes,
    wait_for_previous,
)
from zccl.kernels.cuda.checksum import K32, K64, STRIDE_8, record_checksum, sum_column, weight
from zccl.kernels.cuda.columns import load_column_or_zero
from zccl.kernels.cuda.placement import DAMAGED, add_checksums, finish, set_status
from zccl.kernels.cuda.record import HEAD, open_record, split_entry
from zccl.kernels.cuda.warp import first_bit, sum_64, vote

WARPS = 8
TILES = 8  # of a warp

_i = types.int64
SIGNATURE = (_i, _i, _i, _i, types.int32, _i, _i)


@device
def tile_weight(tile):
    """Multiplier of a tile's sum."""
    return i64(i64(tile) * i64(K64)) | i64(1)


@device
def is_ordinary(first, nwords, kind, total_nwords, value_words):
    """Whether an entry can be that of a full tile whose widths alone say how long it is."""
    allowed = i32(ZERO)
    if value_words == i32(1):
        allowed = i32(ZERO | SMALL)
    inside = (first + i64(nwords) <= total_nwords) & ((kind & ~allowed) == i32(0))
    if (kind & i32(ZERO)) != i32(0):
        return inside & (nwords == i32(1))
    return inside & (nwords >= i32(HEAD)) & (nwords <= i32(TILE))


@device
def due_nwords(head, lane):
    """Words of an ordinary record, by the widths in its first row."""
    bit = i32(lane * i32(10))
    i = i32(i32(1) + i32(bit >> i32(5)))
    low = u32(cuda.shfl_sync(ALL, i32(head), i))
    high = u32(cuda.shfl_sync(ALL, i32(head), i32(i + i32(1))))
    field = funnel_wrap(low, high, bit)
    widths = u32(u32(field & u32(31)) + u32(shift_right(field, i32(5)) & u32(31)))
    halves = i32(sum_of_lanes(widths))
    return i32(i32(HEAD) + i32(i32(halves + i32(1)) >> i32(1)))


@device
def start_of(words, first, k, lane):
    """Address of a lane's first word of the record that starts at word `first` of lane k."""
    return words + i64(4) * (cuda.shfl_sync(ALL, first, k) + i64(lane))


@device
def check_strange(entry, tile, n, words, total_nwords, value_words, lane):
    """Return what any tile adds to the checksum, and whether its lengths are wrong."""
    m = i32(min(n - tile * i64(TILE), i64(TILE)))
    sound, address, nwords, kind, _, _, _, _, _ = open_record(
        entry, words, total_nwords, m, value_words, lane
    )
    found = i64(0)
    if sound:
        found = record_checksum(address, nwords, kind, tile, lane)
    return found, not sound


@device
def check_ordinary(first, nwords, start, words, lane):
    """Weighted sum of a lane's words of all ordinary records of a warp, and whether one is damaged.

    `first` and `nwords` are those of the record of tile `start` + lane, 0 words where there is
    none.
    """
    total = i64(0)
    damaged = False
    multiplier = weight(lane)
    factor = i64(start) * i64(K64)
    source = start_of(words, first, 0, lane)
    size = cuda.shfl_sync(ALL, nwords, 0)
    held = load_column_or_zero(source, i32(size - lane))
    for k in range(TILES):
        next_source = source
        next_size = i32(0)
        following = held
        if k + 1 < TILES:
            next_source = start_of(words, first, k + 1, lane)
            next_size = cuda.shfl_sync(ALL, nwords, k + 1)
            following = load_column_or_zero(next_source, i32(next_size - lane))
        found = sum_column(held, multiplier)
        due = due_nwords(held[0], lane)
        damaged = damaged or (due != size and size > i32(1))
        left = i32(size - i32(256))
        later = multiplier
        while left > i32(0):
            source += i64(1024)
            later = u32(later + u32(STRIDE_8))
            found += sum_column(load_column_or_zero(source, i32(left - lane)), later)
            left = i32(left - i32(256))
        total += found * (factor | i64(1))
        factor += i64(K64)
        source = next_source
        size = next_size
        held = following
    return total, damaged


def verify_tiles(n, table, words, total_nwords, value_words, work, result):
    """Check a stream of n values.

    Parameters
    ----------
    n, table, words, total_nwords : number of values, addresses of table and records, words that
        belong to the stream
    value_words : 1 for float32, 2 for float64
    work, result : as in `placement`
    """
    wait_for_previous()
    sums = cuda.shared.array(WARPS, i64)
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    warp = i32(thread >> i32(5))
    tiles = (n + i64(TILE - 1)) >> i64(10)
    start = (i64(cuda.blockIdx.x) * i64(WARPS) + i64(warp)) * i64(TILES)
    tile = start + i64(lane)
    entry = i64(0)
    has_tile = lane < i32(TILES) and tile < tiles
    if has_tile:
        entry = load_i64(table + i64(8) * tile)
    first, nwords, kind = split_entry(entry)
    ordinary = is_ordinary(first, nwords, kind, total_nwords, value_words)
    ordinary = ordinary and has_tile and (tile + i64(1)) * i64(TILE) <= n
    strange = vote(has_tile and not ordinary)
    total = i64(0)
    if ordinary:
        total = (i64(kind) * i64(u64(K32)) + i64(nwords)) * tile_weight(tile)
    else:
        nwords = i32(0)
        first = i64(0)
    found, damaged = check_ordinary(first, nwords, start, words, lane)
    total = sum_64(total + found)
    while strange != u32(0):
        k = first_bit(strange)
        strange = u32(strange & u32(strange - u32(1)))
        entry_k = cuda.shfl_sync(ALL, entry, k)
        found, wrong = check_strange(
            entry_k, start + i64(k), n, words, total_nwords, value_words, lane
        )
        total += found
        damaged = damaged or wrong
    if damaged:
        set_status(work, DAMAGED)
    if lane == i32(0):
        sums[u32(warp)] = total
    cuda.syncthreads()
    if thread == i32(0):
        add_checksums(sums, WARPS, work)
    finish(work, result, i64(cuda.gridDim.x))


assert HEAD == 1 + WIDTH_WORDS and not (SMALL | ZERO) & (RAW | LONG)
