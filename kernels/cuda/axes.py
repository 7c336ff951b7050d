"""Differences along all axes of a tile and back, by way of shared memory.

The rows of a tile of two axes are the runs of the lanes; a plane of one of three, 8 x 16 values, is
four runs of two rows.
"""

from zccl.kernels.cuda._compat import cuda, device, i32, i64, u32
from zccl.kernels.cuda._intrinsics import load_i64_any, store_i64_any


@device
def row_word(row, lane):
    """Word of a lane's value in row `row`: rows and runs meet all banks."""
    return i32(i32(33) * i32(row) + lane)


@device
def slot_of(slots, j):
    """Address of slot j."""
    return slots + 8 * i64(i32(j) + i32(i32(j) >> i32(5)))


@device
def difference_axes(words, at, before_run, d, e, lane, axes):
    """Turn differences along the row into those along all axes, in `e`.

    `before_run` is the distance from the base of the code in front of the lane's run; the shared
    array from `at` on is used.
    """
    cuda.syncwarp()
    distance = before_run
    for j in range(32):
        distance = i32(distance + d[j])
        words[u32(at + row_word(lane, i32(j)))] = u32(distance)
    cuda.syncwarp()
    if axes == i32(2):
        for j in range(32):
            own = i32(words[u32(at + row_word(lane, i32(j)))])
            if lane > i32(0):
                own = i32(own - i32(words[u32(at + row_word(i32(lane - i32(1)), i32(j)))]))
            e[j] = own
        for k in range(31):
            j = 31 - k
            e[j] = i32(e[j] - e[j - 1])
    else:
        for j in range(32):
            own = i32(words[u32(at + row_word(lane, i32(j)))])
            if lane >= i32(4):
                own = i32(own - i32(words[u32(at + row_word(i32(lane - i32(4)), i32(j)))]))
            e[j] = own
        cuda.syncwarp()
        for j in range(16):
            words[u32(at + row_word(lane, i32(j)))] = u32(e[16 + j])
        cuda.syncwarp()
        for j in range(16):
            e[16 + j] = i32(e[16 + j] - e[j])
            if i32(lane & i32(3)) > i32(0):
                e[j] = i32(e[j] - i32(words[u32(at + row_word(i32(lane - i32(1)), i32(j)))]))
        for k in range(15):
            j = 15 - k
            e[j] = i32(e[j] - e[j - 1])
            e[16 + j] = i32(e[16 + j] - e[15 + j])
    cuda.syncwarp()


@device
def add_slot(slots, to, source):
    """Add one slot to another."""
    place = slot_of(slots, to)
    store_i64_any(place, load_i64_any(place) + load_i64_any(slot_of(slots, source)))


@device
def put_axes_codes(slots, base, d, lane, axes):
    """Codes of a tile into their slots, from its differences along all axes."""
    code = i64(0)
    if lane == i32(0):
        code = base  # at the corner: the sums carry it everywhere
    for j in range(32):
        if axes == i32(3) and j == 16:
            code = i64(0)
        code += i64(d[j])
        store_i64_any(slot_of(slots, i32(i32(lane << i32(5)) + i32(j))), code)
    cuda.syncwarp()
    if axes == i32(2):
        k = i32(1)
        while k < i32(32):
            j = i32(i32(k << i32(5)) + lane)
            add_slot(slots, j, i32(j - i32(32)))
            k = i32(k + i32(1))
        cuda.syncwarp()
        return
    column = lane
    while column < i32(128):  # along y: columns are (z, x)
        start = i32(i32(i32(column >> i32(4)) << i32(7)) + i32(column & i32(15)))
        k = i32(1)
        while k < i32(8):
            j = i32(start + i32(k << i32(4)))
            add_slot(slots, j, i32(j - i32(16)))
            k = i32(k + i32(1))
        column = i32(column + i32(32))
    cuda.syncwarp()
    column = lane
    while column < i32(128):  # along z: columns are (y, x)
        k = i32(1)
        while k < i32(8):
            j = i32(column + i32(k << i32(7)))
            add_slot(slots, j, i32(j - i32(128)))
            k = i32(k + i32(1))
        column = i32(column + i32(32))
    cuda.syncwarp()
