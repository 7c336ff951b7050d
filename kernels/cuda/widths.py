"""The widths of a tile's 64 blocks, 5 bits each; a lane has those of its two blocks."""

from zccl.kernels.cuda._compat import ALL, cuda, device, i32, u32
from zccl.kernels.cuda._intrinsics import (
    funnel_wrap,
    load_u32_any,
    max_i32,
    min_i32,
    shift_left,
    shift_right,
)


@device
def width_of(d, start):
    """Width of the block of 16 differences from `start` on: the largest and smallest decide."""
    high = d[start]
    low = d[start]
    for j in range(start + 1, start + 16):
        high = max_i32(high, d[j])
        low = min_i32(low, d[j])
    folded = i32(i32(high ^ i32(high >> i32(31))) | i32(low ^ i32(low >> i32(31))))
    width = i32(i32(33) - i32(cuda.clz(folded)))
    if i32(high | low) == i32(0):
        width = i32(0)
    return width


@device
def widths_of(d):
    """Widths of the two blocks of a lane's 32 differences; 32 for what does not fit in 31 bits."""
    return width_of(d, 0), width_of(d, 16)


@device
def put_widths(words, at, lane, first, second):
    """Write the ten words of widths into a shared array.

    Word j starts `shift` bits into the field of 10 bits of lane `source` and takes those of three
    more lanes.
    """
    field = i32(first | i32(second << i32(5)))
    source = i32(i32(lane * i32(205)) >> i32(6))  # 3.2 lanes a word
    shift = i32(i32(lane << i32(5)) - i32(source * i32(10)))
    a = u32(cuda.shfl_sync(ALL, field, source))
    b = u32(cuda.shfl_sync(ALL, field, i32(source + i32(1))))
    c = u32(cuda.shfl_sync(ALL, field, i32(source + i32(2))))
    d = u32(cuda.shfl_sync(ALL, field, i32(source + i32(3))))
    word = u32(
        shift_right(a, shift)
        | shift_left(b, i32(i32(10) - shift))
        | shift_left(c, i32(i32(20) - shift))
        | shift_left(d, i32(i32(30) - shift))
    )
    if lane < i32(10):
        words[u32(at + lane)] = word


@device
def get_widths(words, at, lane):
    """Read a lane's two widths from a shared array."""
    place = i32(lane * i32(10))
    i = u32(at + i32(place >> i32(5)))
    field = funnel_wrap(words[i], words[u32(i + u32(1))], place)
    return i32(field & u32(31)), i32(shift_right(field, i32(5)) & u32(31))


@device
def load_widths(address, lane):
    """Read a lane's two widths from memory; no word behind the ten is touched."""
    place = i32(lane * i32(10))
    i = i32(place >> i32(5))
    following = i32(i + i32(1))
    if following > i32(9):
        following = i32(9)
    low = load_u32_any(address + 4 * i)
    high = load_u32_any(address + 4 * following)
    field = funnel_wrap(low, high, place)
    return i32(field & u32(31)), i32(shift_right(field, i32(5)) & u32(31))
