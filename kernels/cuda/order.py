"""Records into the order of their tiles: two kernels that move them to another place.

A group is 128 tiles.

    `sum_groups`   block: 4 groups, a thread a tile; the last block turns sums into places
    `gather`       block: a group, 16 warps; a warp moves a run of 8 tiles, at once where they lie
                   together, as those of one block of `compress` do
"""

from zccl.kernels.cuda._compat import ALL, LANES, cuda, device, i32, i64, types, u32
from zccl.kernels.cuda._intrinsics import (
    atomic_add,
    load_i64,
    load_i64_now,
    store_i64,
    sum_of_lanes,
    wait_for_previous,
)
from zccl.kernels.cuda.columns import load_column_or_zero, store_column
from zccl.kernels.cuda.placement import DONE_AT
from zccl.kernels.cuda.record import OFFSET_MASK, split_entry
from zccl.kernels.cuda.warp import running_sum, running_sum_64

GROUP = 128  # tiles
WARPS = 16
SUM_WARPS = 16
SUM_TILES = 512  # of a block of `sum_groups`

_i = types.int64
SUM_SIGNATURE = (_i, _i, _i, _i)
SIGNATURE = (_i, _i, _i, _i, _i, _i)


@device
def scan_sums(sums, parts, groups, thread, lane, warp):
    """Turn the sums of all groups into first words, by one block."""
    carried = i64(0)
    start = i64(0)
    while start < groups:
        i = start + i64(thread)
        own = i64(0)
        if i < groups:
            own = load_i64_now(parts + 8 * i)
        upto = running_sum_64(own, lane)
        cuda.syncthreads()
        if lane == i32(31):
            sums[u32(warp)] = upto
        cuda.syncthreads()
        before = carried
        for k in range(SUM_WARPS):
            if i32(k) < warp:
                before += sums[k]
            carried += sums[k]
        if i < groups:
            store_i64(parts + 8 * i, before + upto - own)
        start += i64(SUM_TILES)


def sum_groups(tiles, table, parts, work):
    """Find the first word of each group of tiles.

    Parameters
    ----------
    tiles, table : number of tiles and address of their table
    parts : address of an int64 for each group, written
    work : address of a work area
    """
    wait_for_previous()
    sums = cuda.shared.array(SUM_WARPS, i64)
    last = cuda.shared.array(1, i32)
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    warp = i32(thread >> i32(5))
    tile = i64(cuda.blockIdx.x) * i64(SUM_TILES) + i64(thread)
    groups = (tiles + i64(GROUP - 1)) // i64(GROUP)
    nwords = i32(0)
    if tile < tiles:
        nwords = split_entry(load_i64(table + 8 * tile))[1]
    total = sum_of_lanes(u32(nwords))
    if lane == i32(0):
        sums[u32(warp)] = i64(total)
    cuda.syncthreads()
    if thread < i32(4):
        group = i64(cuda.blockIdx.x) * i64(4) + i64(thread)
        if group < groups:
            k = 4 * thread
            store_i64(parts + 8 * group, sums[k] + sums[k + 1] + sums[k + 2] + sums[k + 3])
            cuda.threadfence()
    cuda.syncthreads()
    if thread == i32(0):
        cuda.threadfence()
        done = atomic_add(work + i64(DONE_AT), i64(1))
        last[0] = i32(done == i64(cuda.gridDim.x) - i64(1))
    cuda.syncthreads()
    if last[0] != i32(0):
        cuda.threadfence()
        scan_sums(sums, parts, groups, thread, lane, warp)
        if thread == i32(0):
            store_i64(work + i64(DONE_AT), i64(0))


@device
def copy_words(target, source, nwords, lane):
    """Copy words by a warp, eight a lane under way together."""
    left = i32(nwords - lane)
    source += 4 * i64(lane)
    target += 4 * i64(lane)
    while left > i32(0):
        a, b, c, d, e, f, g, h = load_column_or_zero(source, left)
        store_column(target, left, a, b, c, d, e, f, g, h)
        left = i32(left - i32(256))
        source += i64(1024)
        target += i64(1024)


def gather(tiles, table, words, parts, table_out, words_out):
    """Write table and records in the order of the tiles, without gaps.

    Parameters
    ----------
    tiles, table, words : number of tiles, addresses of their table and records
    parts : address of what `sum_groups` found
    table_out, words_out : addresses, written
    """
    wait_for_previous()
    shifts = cuda.shared.array(GROUP, i64)  # from the new place of a tile to its old one
    places = cuda.shared.array(GROUP, i32)  # new place in the group
    lengths = cuda.shared.array(GROUP, i32)
    sums = cuda.shared.array(4, i32)
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    warp = i32(thread >> i32(5))
    group = i64(cuda.blockIdx.x)
    start = load_i64(parts + 8 * group)
    tile = group * i64(GROUP) + i64(thread)
    nwords = i32(0)
    upto = i32(0)
    entry = i64(0)
    if warp < i32(4):
        if tile < tiles:
            entry = load_i64(table + 8 * tile)
            nwords = split_entry(entry)[1]
        upto = running_sum(nwords, lane)
        if lane == i32(31):
            sums[u32(warp)] = upto
    cuda.syncthreads()
    if warp < i32(4):
        place = i32(upto - nwords)
        for k in range(4):
            if i32(k) < warp:
                place = i32(place + sums[k])
        first = start + i64(place)
        if tile < tiles:
            store_i64(table_out + 8 * tile, (entry & ~i64(OFFSET_MASK)) | first)
        shifts[u32(thread)] = (entry & i64(OFFSET_MASK)) - first
        places[u32(thread)] = place
        lengths[u32(thread)] = nwords
    cuda.syncthreads()
    k = i32(warp << i32(3))
    shift = shifts[u32(k)]
    mine = shifts[u32(k + i32(lane & i32(7)))]
    my_length = lengths[u32(k + i32(lane & i32(7)))]
    if cuda.all_sync(ALL, mine == shift or my_length == i32(0)):
        stop = i32(places[u32(k + i32(7))] + lengths[u32(k + i32(7))])
        first = start + i64(places[u32(k)])
        length = i32(stop - places[u32(k)])
        copy_words(words_out + 4 * first, words + 4 * (first + shift), length, lane)
    else:
        for j in range(8):
            i = u32(k + i32(j))
            first = start + i64(places[i])
            source = words + 4 * (first + shifts[i])
            copy_words(words_out + 4 * first, source, lengths[i], lane)


assert WARPS * 8 == GROUP <= LANES * WARPS
