"""The end of every quick kernel: a block places the records of its warps and writes them.

The atomic that reserves the words of all records is under way while they are packed.
"""

from zccl.formats import TILE
from zccl.kernels.cuda._compat import cuda, device, i32, i64, u32
from zccl.kernels.cuda._intrinsics import store_i64
from zccl.kernels.cuda.checksum import tile_checksum, write_record
from zccl.kernels.cuda.placement import add_checksums, leave, place_of_block, place_of_warp
from zccl.kernels.cuda.record import table_entry
from zccl.kernels.cuda.warp import sum_64


@device
def reserve(warps, sizes, first_word, nwords, tile, n, work):
    """Reserve words for the records of a block; leave the tile where `nwords` is 0.

    `sizes` and `first_word` are shared arrays: one number a warp or a block.
    """
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    if lane == i32(0):
        sizes[u32(i32(thread >> i32(5)))] = nwords
        if nwords == i32(0) and i64(tile) * i64(TILE) < n:
            leave(work, tile)
    cuda.syncthreads()
    if thread == i32(0):
        place_of_block(sizes, warps, first_word, work)


@device
def write_tiles(
    warps, tile_words, sizes, first_word, sums, tile, nwords, kind, table, words, work
):  # fmt: skip
    """Write a packed record a warp, 1024 words of `tile_words` each, and its table entry.

    `sums` is a shared array of one number a warp.
    """
    cuda.syncthreads()
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    warp = i32(thread >> i32(5))
    found = i64(0)
    if nwords > i32(0):
        record_at = place_of_warp(sizes, first_word, warp)
        address = words + i64(4) * record_at
        found = write_record(tile_words, i32(warp << i32(10)), nwords, address, lane)
        found = tile_checksum(sum_64(found), nwords, kind, tile)
        if lane == i32(0):
            store_i64(table + i64(8) * i64(tile), table_entry(record_at, nwords, kind))
    if lane == i32(0):
        sums[u32(warp)] = found
    cuda.syncthreads()
    if thread == i32(0):
        add_checksums(sums, warps, work)
