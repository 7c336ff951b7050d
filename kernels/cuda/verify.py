"""Checking a received stream: all lengths and the checksum, nothing decoded.

    warp    8 tiles, one after the other; lane L reads words L, L + 32, ... of each record

One sum over the lanes serves all 8 tiles. The first row of a record holds its widths, so ordinary
records need no other loads.
"""

from zccl.formats import LONG, RAW, SMALL, TILE, WIDTH_WORDS, ZERO
from zccl.kernels.cuda._compat import ALL, cuda, device, i32, i64, types, u32, u64
from zccl.kernels.cuda._intrinsics import (
    funnel_wrap,
    load_column,
    load_i64,
    shift_right,
    sum_of_lanes,
)
from zccl.kernels.cuda.checksum import K32, K64, STRIDE_8, sum_column, weight
from zccl.kernels.cuda.placement import DAMAGED, add_checksums, finish, set_status
from zccl.kernels.cuda.record import HEAD, open_record, split_entry
from zccl.kernels.cuda.warp import sum_64

WARPS = 8
TILES = 8  # of a warp

_i = types.int64
SIGNATURE = (_i, _i, _i, _i, types.int32, _i, _i)


@device
def sum_record(address, nwords, lane):
    """Weighted sum of a lane's words of a record, and its word of the first row."""
    multiplier = weight(lane)
    source = address + i64(4) * i64(lane)
    left = i32(nwords - lane)
    held = load_column(source, left)
    head = held[0]
    total = sum_column(held, multiplier)
    left = i32(left - i32(256))
    while left > i32(0):
        source += i64(1024)
        multiplier = u32(multiplier + u32(STRIDE_8))
        total += sum_column(load_column(source, left), multiplier)
        left = i32(left - i32(256))
    return total, head


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
def check_tile(entry, tile, n, words, total_nwords, value_words, lane):
    """Weighted sum of one tile's words for a lane, and whether its lengths are wrong."""
    found = i64(0)
    damaged = False
    first, nwords, kind = split_entry(entry)
    if first + i64(nwords) > total_nwords or nwords == i32(0):
        damaged = True
    else:
        found, head = sum_record(words + 4 * first, nwords, lane)
        if lane == i32(0):
            found += i64(kind) * i64(u64(K32)) + i64(nwords)
        found *= (tile * K64) | i64(1)
        m = i32(min(n - tile * i64(TILE), i64(TILE)))
        ordinary = (kind & ~i32(SMALL | ZERO)) == i32(0) and m == i32(TILE)
        if ordinary and nwords <= i32(TILE) and value_words == i32(1):
            due = i32(1)
            if (kind & i32(ZERO)) == i32(0):
                due = due_nwords(head, lane)
            damaged = due != nwords
        else:
            damaged = not open_record(entry, words, total_nwords, m, value_words, lane)[0]
    return found, damaged


def verify_tiles(n, table, words, total_nwords, value_words, work, result):
    """Check a stream of n values.

    Parameters
    ----------
    n, table, words, total_nwords : number of values, addresses of table and records, words that
        belong to the stream
    value_words : 1 for float32, 2 for float64
    work, result : as in `placement`
    """
    sums = cuda.shared.array(WARPS, i64)
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    warp = i32(thread >> i32(5))
    tiles = (n + i64(TILE - 1)) >> i64(10)
    start = (i64(cuda.blockIdx.x) * i64(WARPS) + i64(warp)) * i64(TILES)
    total = i64(0)
    damaged = False
    while start < tiles:
        own_entry = i64(0)
        if lane < i32(TILES) and start + i64(lane) < tiles:
            own_entry = load_i64(table + 8 * (start + i64(lane)))
        for k in range(TILES):
            entry = cuda.shfl_sync(ALL, own_entry, k)
            if start + i64(k) < tiles:
                found, wrong = check_tile(
                    entry, start + i64(k), n, words, total_nwords, value_words, lane
                )
                total += found
                damaged = damaged or wrong
        start += i64(cuda.gridDim.x) * i64(WARPS * TILES)
    if damaged:
        set_status(work, DAMAGED)
    total = sum_64(total)
    if lane == i32(0):
        sums[u32(warp)] = total
    cuda.syncthreads()
    if thread == i32(0):
        add_checksums(sums, WARPS, work)
    finish(work, result, i64(cuda.gridDim.x))


assert HEAD == 1 + WIDTH_WORDS and not (SMALL | ZERO) & (RAW | LONG)
