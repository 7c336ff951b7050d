"""The end of every quick kernel: a block places the records of its warps and writes them."""

from zccl.formats import TILE
from zccl.kernels.cuda._compat import cuda, device, i32, i64
from zccl.kernels.cuda._intrinsics import store_i64
from zccl.kernels.cuda.checksum import tile_checksum, write_record
from zccl.kernels.cuda.placement import add_checksums, leave, place_of_block, place_of_warp
from zccl.kernels.cuda.record import put_quick, table_entry
from zccl.kernels.cuda.warp import sum_64


@device
def write_tiles(
    warps, tile_words, sizes, first_word, sums, tile, n, base, nwords, kind, d, first, second,
    before, halves, table, words, work,
):  # fmt: skip
    """Write a record a warp, coded and without escapes; leave the tile where `nwords` is 0.

    The atomic that reserves the words of all records is under way while they are packed.
    `tile_words`, `sizes`, `first_word` and `sums` are shared arrays: 1024 words a warp, and one
    number a warp or a block.
    """
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & i32(31))
    warp = i32(thread >> i32(5))
    at = i32(warp << i32(10))
    if lane == i32(0):
        sizes[warp] = nwords
        if nwords == i32(0) and i64(tile) * i64(TILE) < n:
            leave(work, tile)
    cuda.syncthreads()
    if thread == i32(0):
        place_of_block(sizes, warps, first_word, work)
    if nwords > i32(0):
        put_quick(tile_words, at, lane, base, d, first, second, before, halves)
    cuda.syncthreads()
    found = i64(0)
    if nwords > i32(0):
        record_at = place_of_warp(sizes, warps, first_word, warp)
        found = write_record(tile_words, at, nwords, words + i64(4) * record_at, lane)
        found = tile_checksum(sum_64(found), nwords, kind, tile)
        if lane == i32(0):
            store_i64(table + i64(8) * i64(tile), table_entry(record_at, nwords, kind))
    if lane == i32(0):
        sums[warp] = found
    cuda.syncthreads()
    if thread == i32(0):
        add_checksums(sums, warps, work)
