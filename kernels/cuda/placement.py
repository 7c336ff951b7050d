"""Where records go, and the few numbers that the blocks of a launch share.

A *work area* in device memory, all zero between calls:

    byte 0    words placed so far         byte 32    status, the worst so far
    byte 8    length of the list          byte 40    values that travel as raw bits
    byte 16   blocks that have finished   byte 256   checksum
    byte 512  the list: numbers of the tiles that the quick kernel left, 32 bits each

The checksum has a line of memory to itself: atomics on one line wait for each other.

The kernel for the tiles of the list always follows; its last block hands the numbers over and
clears them.
"""

from zccl.kernels.cuda._compat import ALL, LANES, cuda, device, i32, i64, u32
from zccl.kernels.cuda._intrinsics import (
    add_to,
    atomic_add,
    load_i64_now,
    load_u32,
    max_to,
    store_i64,
    store_i64_for_host,
    store_u32,
    wait_for_previous,
)

COUNT_AT, DONE_AT, STATUS_AT, RAW_AT, CHECKSUM_AT, LIST_AT = 8, 16, 32, 40, 256, 512
# The worst of a call wins: where a stream is damaged, its sums mean nothing.
GOOD, OVERFLOW, DAMAGED = 0, 1, 2


@device
def leave(work, tile):
    """Put a tile on the list; one lane of its warp calls this."""
    i = atomic_add(work + i64(COUNT_AT), i64(1))
    store_u32(work + i64(LIST_AT) + i64(4) * i, u32(tile))


@device
def listed_tile(work, everything, i):
    """Tile i of the list, or of all tiles."""
    if everything:
        return i32(i)
    return i32(load_u32(work + i64(LIST_AT) + i64(4) * i64(i)))


@device
def place(work, nwords):
    """Reserve words for records; returns the first. One thread calls this."""
    return atomic_add(work, nwords)


@device
def place_of_block(sizes, warps, first, work):
    """Reserve the words of all warps of a block with one atomic; thread 0 calls this.

    `sizes` and `first` are shared arrays, of an int32 a warp and of one int64. Sizes become places:
    words from the first one of the block to that of each warp.
    """
    total = i32(0)
    for k in range(warps):
        own = sizes[k]
        sizes[k] = total
        total = i32(total + own)
    first[0] = place(work, i64(total))


@device
def place_of_warp(sizes, first, warp):
    """First word of a warp's record."""
    return first[0] + i64(sizes[u32(warp)])


@device
def add_checksums(sums, warps, work):
    """Add what each warp of a block found, in a shared array; thread 0 calls this."""
    total = i64(0)
    for k in range(warps):
        total += sums[k]
    add_to(work + i64(CHECKSUM_AT), total)


@device
def set_status(work, status):
    """Record that something is wrong."""
    max_to(work + i64(STATUS_AT), i64(status))


@device
def tiles_to_take(work, result, everything, tiles):
    """Wait for the quick kernel; return how many tiles it left, or all where `everything` says so.

    Where there are none, the first block hands the result over at once.
    """
    wait_for_previous()
    count = tiles
    if not everything:
        count = load_i64_now(work + i64(COUNT_AT))
    lane = i32(cuda.threadIdx.x)
    if count == i64(0) and i32(cuda.blockIdx.x) == i32(0) and lane < i32(LANES):
        hand_over(work, result, lane)
    return count


@device
def busy_blocks(count, warps):
    """Return how many blocks of a launch have work, when each warp takes one of `count` pieces.

    The others leave at once: an empty list costs no more than one block.
    """
    blocks = (count + i64(warps - 1)) // i64(warps)
    return max(min(blocks, i64(cuda.gridDim.x)), i64(1))


@device
def hand_over(work, result, lane):
    """Write the result and clear the work area, by one warp: a number a lane.

    The words of all records come last, so that a host that watches them sees all or nothing.
    """
    at = i64(0)
    if lane == i32(1):
        at = i64(CHECKSUM_AT)
    elif lane == i32(2):
        at = i64(STATUS_AT)
    elif lane == i32(3):
        at = i64(RAW_AT)
    number = load_i64_now(work + at)
    cuda.syncwarp()
    if lane > i32(0) and lane < i32(4):
        store_i64_for_host(result + i64(8) * i64(lane), number)
    if lane < i32(6):
        store_i64(work + i64(8) * i64(lane), i64(0))
    if lane == i32(6):
        store_i64(work + i64(CHECKSUM_AT), i64(0))
    cuda.threadfence_system()
    cuda.syncwarp()
    if lane == i32(0):
        store_i64_for_host(result, number)


@device
def finish(work, result, blocks):
    """Count a finished block of `blocks`; the last writes the result and clears the work area.

    All threads of a block call this. The result, which may lie in memory of the host, has four
    words: words of all records, checksum, status, raw values.
    """
    cuda.threadfence()
    cuda.syncthreads()
    lane = i32(cuda.threadIdx.x)
    if lane < i32(LANES):
        done = i64(0)
        if blocks > i64(1):
            if lane == i32(0):
                done = atomic_add(work + i64(DONE_AT), i64(1))
            done = cuda.shfl_sync(ALL, done, 0)
        if done == blocks - i64(1):
            cuda.threadfence()
            hand_over(work, result, lane)
