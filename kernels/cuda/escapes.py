"""Lists of escaped values in a record (docs/format.md sections 4 and 7).

An entry is [index | (length - 1) << 10, rank, stand-in, value]: a run of neighbours with one value
and one stand-in. A lane has masks of 32 bits for its 32 values.
"""

from zccl.kernels.cuda._compat import ALL, LANES, cuda, device, i32, i64, u32
from zccl.kernels.cuda._intrinsics import load_u32_any, min_i32, store_u32_any, sum_of_lanes
from zccl.kernels.cuda.warp import bit, bits_below, first_bit, running_sum


@device
def run_starts(escaped, same, lane):
    """Mask of the values that start an entry.

    `same` has the values whose bits are those of the value before.
    """
    before = u32(cuda.shfl_up_sync(ALL, i32(escaped), 1))
    carry = u32(before >> u32(31))
    if lane == i32(0):
        carry = u32(0)
    continued = u32(u32(u32(escaped << u32(1)) | carry) & same)
    return u32(escaped & ~continued)


@device
def next_boundary(escaped, starts, lane):
    """Index of the first value behind this lane's that does not continue an entry, 1024 for none.

    The least over the lanes behind.
    """
    mask = u32(starts | ~escaped)
    own = i32(1024)
    if mask != u32(0):
        own = i32(i32(lane << i32(5)) + first_bit(mask))
    least = cuda.shfl_down_sync(ALL, own, 1)
    if lane == i32(31):
        least = i32(1024)
    for k in range(5):
        other = cuda.shfl_down_sync(ALL, least, 1 << k)
        if lane + i32(1 << k) < i32(LANES):
            least = min_i32(least, other)
    return least


@device
def count_entries(starts):
    """Entries of a tile."""
    return i32(sum_of_lanes(u32(cuda.popc(starts))))


@device
def put_entry(address, index, length, rank, stand_in, bits, value_words):
    """Write one entry."""
    store_u32_any(address, u32(index | i32(i32(length - i32(1)) << i32(10))))
    store_u32_any(address + 4, u32(rank))
    store_u32_any(address + 8, u32(stand_in & i64(0xFFFFFFFF)))
    if value_words == 2:
        store_u32_any(address + 12, u32((stand_in >> i64(32)) & i64(0xFFFFFFFF)))
        store_u32_any(address + 16, u32(bits & i64(0xFFFFFFFF)))
        store_u32_any(address + 20, u32((bits >> i64(32)) & i64(0xFFFFFFFF)))
    else:
        store_u32_any(address + 12, u32(bits & i64(0xFFFFFFFF)))


@device
def put_entries(address, escaped, starts, entries, d, before, base, rank, values, form, lane):
    """Write the list of a tile's escapes, its length first.

    `before` is the distance from the base of the code in front of the lane's run, `values` the
    address of the tile's values and `form` their type.
    """
    if lane == i32(0):
        store_u32_any(address, u32(entries))
    boundary = next_boundary(escaped, starts, lane)
    ends = u32(starts | ~escaped)
    own = i32(cuda.popc(starts))
    i = i32(running_sum(own, lane) - own)
    distance = before
    size = i64(4 * (2 + 2 * form))
    for j in range(32):
        distance = i32(distance + d[j])
        if bit(starts, j):
            index = i32(i32(lane << i32(5)) + i32(j))
            following = u32(ends & ~bits_below(j + 1))
            stop = boundary
            if following != u32(0):
                stop = i32(i32(lane << i32(5)) + first_bit(following))
            at = values + 4 * form * i64(index)
            bits = i64(load_u32_any(at))
            if form == 2:
                bits |= i64(load_u32_any(at + 4)) << i64(32)
            put_entry(
                address + 4 + size * i64(i), index, i32(stop - index), rank,
                base + i64(distance), bits, form,
            )  # fmt: skip
            i = i32(i + i32(1))


@device
def entry_nwords(value_words):
    """Words of an entry."""
    return i32(i32(2) + i32(2) * value_words)


@device
def with_list(coded, entries, value_words):
    """Words of a record whose coded part has `coded` words."""
    if entries == i32(0):
        return coded
    return i32(i32(coded + i32(1)) + i32(entries * entry_nwords(value_words)))


@device
def count_of(address, nwords, value_words):
    """Entries of a list of `nwords` words with its length, 0 where that does not fit."""
    entries = i32(0)
    if nwords > i32(0):
        entries = i32(load_u32_any(address))
        if entries <= i32(0) or entries > nwords:
            entries = i32(0)
        elif with_list(i32(0), entries, value_words) != nwords:
            entries = i32(0)
    return entries


@device
def put_own_entries(address, escaped, starts, d, base, rank, values, value_words, lane):
    """Write the list of a lane's escaped values and those of other lanes; `d` are differences."""
    total = i32(0)
    for j in range(32):
        total = i32(total + d[j])
    before = i32(running_sum(total, lane) - total)
    put_entries(
        address, escaped, starts, count_entries(starts), d, before, i64(base), rank, values,
        value_words, lane,
    )  # fmt: skip


@device
def key_of(address):
    """Order of an entry: by rank, then by index."""
    return i64(i64(load_u32_any(address + 4)) << i64(10)) | i64(load_u32_any(address) & u32(1023))


@device
def is_sorted(address, entries, size, lane):
    """Whether keys ascend, equal ones allowed."""
    fine = True
    i = i32(lane + i32(1))
    while i < entries:
        at = address + size * i64(i)
        if key_of(at) < key_of(at - size):
            fine = False
        i = i32(i + i32(LANES))
    return cuda.all_sync(ALL, fine)


@device
def rank_in(address, entries, size, key, take_equal):
    """How many entries of a sorted list come before a key; with `take_equal`, equal ones too."""
    low = i32(0)
    high = entries
    while low < high:
        middle = i32(i32(low + high) >> i32(1))
        other = key_of(address + size * i64(middle))
        if other < key or (take_equal and other == key):
            low = i32(middle + i32(1))
        else:
            high = middle
    return low


@device
def copy_words(target, source, nwords):
    """Copy a few words, by one lane."""
    for k in range(nwords):
        store_u32_any(target + 4 * k, load_u32_any(source + 4 * k))


@device
def merge_one_by_one(at_a, count_a, at_b, count_b, size, target):
    """Merge two lists of any order as a CPU does, by one lane."""
    while count_a > i32(0) or count_b > i32(0):
        from_a = count_b == i32(0) or (count_a > i32(0) and key_of(at_a) <= key_of(at_b))
        if from_a:
            copy_words(target, at_a, size >> i64(2))
            at_a += size
            count_a = i32(count_a - i32(1))
        else:
            copy_words(target, at_b, size >> i64(2))
            at_b += size
            count_b = i32(count_b - i32(1))
        target += size


@device
def merge_entries(at_a, count_a, at_b, count_b, value_words, address, lane):
    """Merge two lists in the order of (rank, index) and write the result, its length first.

    Of equal entries those of the first list come first. In sorted lists every entry finds its own
    place; a forged list that is not sorted is merged by one lane.
    """
    size = i64(4) * i64(i32(2) + i32(2) * value_words)
    nwords = size >> i64(2)
    if lane == i32(0):
        store_u32_any(address, u32(i32(count_a + count_b)))
    target = address + 4
    sorted_a = is_sorted(at_a, count_a, size, lane)
    sorted_b = is_sorted(at_b, count_b, size, lane)
    if sorted_a and sorted_b:
        i = lane
        while i < count_a:
            source = at_a + size * i64(i)
            place = i32(i + rank_in(at_b, count_b, size, key_of(source), False))
            copy_words(target + size * i64(place), source, nwords)
            i = i32(i + i32(LANES))
        i = lane
        while i < count_b:
            source = at_b + size * i64(i)
            place = i32(i + rank_in(at_a, count_a, size, key_of(source), True))
            copy_words(target + size * i64(place), source, nwords)
            i = i32(i + i32(LANES))
    elif lane == i32(0):
        merge_one_by_one(at_a, count_a, at_b, count_b, size, target)
    cuda.syncwarp()
