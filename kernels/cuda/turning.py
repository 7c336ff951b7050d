"""Turning a tile between rows and runs through shared memory.

Memory is read and written in rows: 32 lanes, neighbouring values. A lane works on a run of 32
values. Four values are a unit of 16 bytes; unit f lies at place f ^ ((f >> 3) & 7), so that lanes
that take rows and lanes that take runs both meet all banks:

    row k      lane L has values 128 k + 4 L ...        (8 rows)
    run        lane L has values 32 L ... 32 L + 31     (8 units)
"""

from zccl.kernels.cuda._compat import device, i32
from zccl.kernels.cuda._intrinsics import load_4_shared, store_4_shared


@device
def unit_place(unit):
    """Where a unit lies, in units."""
    return i32(unit ^ i32(i32(unit >> i32(3)) & i32(7)))


@device
def row_place(row, lane):
    """Word of the unit of a lane in a row of 128 values."""
    return i32(unit_place(i32(i32(i32(32) * i32(row)) + lane)) << i32(2))


@device
def half_row_place(row, lane):
    """Word of the pair of a lane in a row of 64 values."""
    pair = i32(i32(i32(32) * i32(row)) + lane)
    unit = unit_place(i32(pair >> i32(1)))
    return i32(i32(unit << i32(2)) + i32(i32(pair & i32(1)) << i32(1)))


@device
def run_place(k, lane):
    """Word of unit k of a lane's run."""
    unit = i32(i32(lane << i32(3)) + i32(i32(k) ^ i32(lane & i32(7))))
    return i32(unit << i32(2))


@device
def value_place(j):
    """Word of value j."""
    return i32(i32(unit_place(i32(j >> i32(2))) << i32(2)) + i32(j & i32(3)))


@device
def take_run(words, at, lane, d):
    """Read a lane's run from a shared array."""
    for k in range(8):
        a, b, c, e = load_4_shared(words, i32(at + run_place(k, lane)))
        d[4 * k] = a
        d[4 * k + 1] = b
        d[4 * k + 2] = c
        d[4 * k + 3] = e


@device
def put_run(words, at, lane, d):
    """Write a lane's run into a shared array."""
    for k in range(8):
        place = i32(at + run_place(k, lane))
        store_4_shared(words, place, d[4 * k], d[4 * k + 1], d[4 * k + 2], d[4 * k + 3])
