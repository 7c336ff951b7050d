"""The checksum of docs/format.md section 5, and copies of records that sum it on their way."""

import numpy as np

from zccl.kernels.cuda._compat import cuda, device, i32, i64, u32, u64
from zccl.kernels.cuda._intrinsics import load_u32_any, shared_address, store_u32
from zccl.kernels.cuda.columns import fetch_column, load_column_or_zero, store_column_shared
from zccl.kernels.cuda.warp import sum_64

K32 = np.uint32(0x9E3779B1)
STRIDE = np.uint32(0x9E3779B1 * 32 & 0xFFFFFFFF)  # from the weight of a lane's word to the next
STRIDE_8 = np.uint32(0x9E3779B1 * 256 & 0xFFFFFFFF)
K64 = np.int64(0x9E3779B97F4A7C15 - 2**64)


@device
def weight(i):
    """Multiplier of word i.

    Strides are even, so adding them keeps the lowest bit set.
    """
    return u32(u32(u32(u32(i) + u32(1)) * u32(K32)) | u32(1))


@device
def weighted(word, multiplier):
    """Product of a word and its multiplier."""
    return i64(u64(word) * u64(multiplier))


@device
def tile_checksum(of_words, nwords, kind, tile):
    """Return what one tile adds; `of_words` is the sum over the words of its record."""
    total = of_words + i64(kind) * i64(u64(K32)) + i64(nwords)
    return total * ((i64(tile) * K64) | i64(1))


@device
def sum_column(held, multiplier):
    """Weighted sum of eight words of a lane's column; `multiplier` is the weight of the first."""
    total = i64(0)
    for k in range(8):
        total += weighted(held[k], u32(multiplier + u32(k * u32(STRIDE))))
    return total


@device
def write_record(words, at, nwords, address, lane):
    """Copy a record from a shared array to memory; returns the lane's part of its sum."""
    target = address + i64(lane) * i64(4)
    total = i64(0)
    multiplier = weight(lane)
    i = lane
    while i < nwords:
        word = words[u32(at + i)]
        store_u32(target, word)
        total += weighted(word, multiplier)
        multiplier = u32(multiplier + u32(STRIDE))
        target += i64(128)
        i = i32(i + i32(32))
    return total


@device
def stage_record(words, at, nwords, address, lane):
    """Copy a record from memory to a shared array; returns the lane's part of its sum."""
    source = address + i64(lane) * i64(4)
    target = shared_address(words, i32(at + lane))
    left = i32(nwords - lane)
    total = i64(0)
    multiplier = weight(lane)
    held = load_column_or_zero(source, left)
    cuda.syncwarp()  # else the assembler pairs each load with its store: one under way at a time
    while True:
        a, b, c, d, e, f, g, h = held
        store_column_shared(target, left, a, b, c, d, e, f, g, h)
        total += sum_column(held, multiplier)
        left = i32(left - i32(256))
        if left <= i32(0):
            break
        multiplier = u32(multiplier + u32(STRIDE_8))
        source += i64(1024)
        target = i32(target + i32(1024))
        held = load_column_or_zero(source, left)
    return total


@device
def fetch_record(words, at, nwords, address, lane):
    """Start copying a record from memory to a shared array."""
    source = address + i64(lane) * i64(4)
    target = shared_address(words, i32(at + lane))
    left = i32(nwords - lane)
    while left > i32(0):
        fetch_column(target, source, left)
        left = i32(left - i32(256))
        source += i64(1024)
        target = i32(target + i32(1024))


@device
def hold_words(held, i, nwords, address):
    """Load words i, i + 32, ... i + 224 of an array in memory; zero behind its end."""
    for k in range(8):
        held[k] = u32(0)
        if i32(i + i32(32 * k)) < nwords:
            held[k] = load_u32_any(address + i64(4) * i64(i) + i64(128 * k))


@device
def stage_any(words, at, nwords, address, lane):
    """Copy words, also such as the warp has written, from memory to a shared array."""
    held = cuda.local.array(8, u32)
    i = lane
    while i < nwords:
        hold_words(held, i, nwords, address)
        for k in range(8):
            if i32(i + i32(32 * k)) < nwords:
                words[u32(at + i32(i + i32(32 * k)))] = held[k]
        i = i32(i + i32(256))


@device
def record_checksum(address, nwords, kind, tile, lane):
    """Return what the record of a tile adds to the checksum: the same on all lanes."""
    held = cuda.local.array(8, u32)
    total = i64(0)
    i = lane
    multiplier = weight(lane)
    while i < nwords:
        hold_words(held, i, nwords, address)
        for k in range(8):
            total += weighted(held[k], u32(multiplier + u32(k * u32(STRIDE))))
        multiplier = u32(multiplier + u32(STRIDE_8))
        i = i32(i + i32(256))
    return tile_checksum(sum_64(total), nwords, kind, tile)
