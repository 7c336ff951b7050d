"""Blocks of 16 differences to bits and back: a lane packs and unpacks its two blocks.

A block ends on a half-word, so a lane starts at one. The whole warp chooses how: fields of up to 8
bits go four at a time, of up to 16 bits in pairs, wider ones alone.
"""

from zccl.kernels.cuda._compat import ALL, cuda, device, i32, u32
from zccl.kernels.cuda._intrinsics import (
    add_here,
    funnel_clamp,
    funnel_wrap,
    load_2_words_shared,
    max_i32,
    shared_address,
    shift_left,
    shift_right,
    store_half_shared,
)


@device
def append(words, at, pending, filled, bits, count):
    """Append the low `count` bits, up to 32, behind the `filled` ones at the top of `pending`."""
    following = funnel_clamp(pending, bits, count)
    word = funnel_clamp(pending, bits, i32(i32(32) - filled))
    filled = i32(filled + count)
    if filled >= i32(32):
        words[u32(at)] = word
        at = i32(at + i32(1))
        following = shift_left(bits, i32(i32(32) - count))
    return at, following, i32(filled & i32(31))


@device
def append_fours(words, at, pending, filled, d, first, width):
    """Append 16 differences of at most 8 bits, from difference `first` on."""
    scale = i32(shift_left(u32(1), width))
    square = i32(scale * scale)
    # The offsets of all four fields, added at once.
    offset = i32(i32(i32(scale >> i32(1)) * i32(i32(1) + scale)) * i32(i32(1) + square))
    count = i32(width << i32(2))
    for k in range(4):
        j = first + 4 * k
        low = i32(i32(d[j + 1] * scale) + d[j])
        high = i32(i32(d[j + 3] * scale) + d[j + 2])
        bits = u32(i32(i32(high * square) + i32(low + offset)))
        at, pending, filled = append(words, at, pending, filled, bits, count)
    return at, pending, filled


@device
def append_pairs(words, at, pending, filled, d, first, width):
    """Append 16 differences of at most 16 bits."""
    scale = i32(shift_left(u32(1), width))
    offset = i32(i32(scale >> i32(1)) * i32(i32(1) + scale))
    count = i32(width << i32(1))
    for k in range(8):
        j = first + 2 * k
        bits = u32(i32(i32(d[j + 1] * scale) + i32(d[j] + offset)))
        at, pending, filled = append(words, at, pending, filled, bits, count)
    return at, pending, filled


@device
def append_singles(words, at, pending, filled, d, first, width):
    """Append 16 differences of at most 31 bits."""
    scale = shift_left(u32(1), width)
    offset = i32(shift_right(scale, i32(1)))
    mask = u32(scale - u32(1))
    for k in range(16):
        bits = u32(u32(i32(d[first + k] + offset)) & mask)
        at, pending, filled = append(words, at, pending, filled, bits, width)
    return at, pending, filled


@device
def pack_blocks(words, half, d, first, second, is_last):
    """Write a lane's two blocks into a shared array, from half-word `half` on.

    A lane that starts in the middle of a word writes zeros into its lower half, which the lane
    before fills afterwards. `is_last`: nothing follows, so the last word is written whole.
    """
    widest = max_i32(first, second)
    over_8 = cuda.any_sync(ALL, widest > i32(8))
    over_16 = cuda.any_sync(ALL, widest > i32(16))
    at = i32(half >> i32(1))
    filled = i32(i32(half & i32(1)) << i32(4))
    pending = u32(0)
    if not over_8:
        at, pending, filled = append_fours(words, at, pending, filled, d, 0, first)
        at, pending, filled = append_fours(words, at, pending, filled, d, 16, second)
    elif not over_16:
        at, pending, filled = append_pairs(words, at, pending, filled, d, 0, first)
        at, pending, filled = append_pairs(words, at, pending, filled, d, 16, second)
    else:
        at, pending, filled = append_singles(words, at, pending, filled, d, 0, first)
        at, pending, filled = append_singles(words, at, pending, filled, d, 16, second)
    has_tail = filled > i32(0) and widest > i32(0)
    tail = shift_right(pending, i32(16))
    if has_tail and is_last:
        words[u32(at)] = tail
    cuda.syncwarp()
    if has_tail and not is_last:
        store_half_shared(words, i32(at << i32(1)), tail)


@device
def put(d, j, difference, add):
    """Set a difference, or add to it; `add` is a constant."""
    if add:
        d[j] = add_here(d[j], difference)
    else:
        d[j] = difference


@device
def bits_of(width):
    """Mask of the bits of a field."""
    return u32(shift_left(u32(1), width) - u32(1))


@device
def offset_of(width):
    """Return what fields of a width have been written plus."""
    return i32(shift_right(shift_left(u32(1), width), i32(1)))


@device
def read_fours(start, place, d, first, width, bias, add):
    """Read 16 fields of at most 8 bits from bit `place` on; returns the place behind them.

    `start` is the address of the shared array. A field is what is left when the bits above it are
    taken away by a product: the units for products have time, those for masks have not.
    """
    mask = bits_of(width)
    minus_scale = i32(shift_left(u32(0xFFFFFFFF), width))
    count = i32(width << i32(2))
    for k in range(4):
        word = i32(i32(shift_right(u32(place), i32(5))) << i32(2))
        low, high = load_2_words_shared(i32(start + word))
        bits = funnel_wrap(low, high, place)
        above_1 = shift_right(bits, width)
        above_2 = shift_right(above_1, width)
        above_3 = shift_right(above_2, width)
        j = first + 4 * k
        put(d, j, i32(i32(i32(bits) - bias) + i32(i32(above_1) * minus_scale)), add)
        put(d, j + 1, i32(i32(i32(above_1) - bias) + i32(i32(above_2) * minus_scale)), add)
        put(d, j + 2, i32(i32(i32(above_2) - bias) + i32(i32(above_3) * minus_scale)), add)
        put(d, j + 3, i32(i32(above_3 & mask) - bias), add)
        place = i32(place + count)
    return place


@device
def skip(words, at, low, high, place, count):
    """Move a reader of two words ahead by at most 32 bits."""
    place = i32(place + count)
    if place >= i32(32):
        low = high
        at = i32(at + i32(1))
        high = words[u32(at)]
        place = i32(place - i32(32))
    return at, low, high, place


@device
def read_pairs(words, at, low, high, place, d, first, width, bias, add):
    """Read 16 fields of at most 16 bits."""
    mask = bits_of(width)
    count = i32(width << i32(1))
    for k in range(8):
        bits = funnel_clamp(low, high, place)
        at, low, high, place = skip(words, at, low, high, place, count)
        j = first + 2 * k
        put(d, j, i32(i32(bits & mask) - bias), add)
        put(d, j + 1, i32(i32(shift_right(bits, width) & mask) - bias), add)
    return at, low, high, place


@device
def read_singles(words, at, low, high, place, d, first, width, bias, add):
    """Read 16 fields of at most 31 bits."""
    mask = bits_of(width)
    for k in range(16):
        bits = funnel_clamp(low, high, place)
        at, low, high, place = skip(words, at, low, high, place, width)
        put(d, first + k, i32(i32(bits & mask) - bias), add)
    return at, low, high, place


@device
def unpack_blocks(words, half, d, first, second, first_bias, second_bias, add):
    """Read a lane's two blocks from half-word `half` of a shared array on.

    A bias is taken from each field of a block: its offset, where the differences themselves are
    wanted. Two words behind the blocks may be read. `add`, a constant: add to what is in `d`.
    """
    widest = max_i32(first, second)
    over_8 = cuda.any_sync(ALL, widest > i32(8))
    over_16 = cuda.any_sync(ALL, widest > i32(16))
    if not over_8:
        start = shared_address(words, i32(0))
        place = read_fours(start, i32(half << i32(4)), d, 0, first, first_bias, add)
        read_fours(start, place, d, 16, second, second_bias, add)
    else:
        at = i32(half >> i32(1))
        place = i32(i32(half & i32(1)) << i32(4))
        low = words[u32(at)]
        at = i32(at + i32(1))
        high = words[u32(at)]
        if not over_16:
            at, low, high, place = read_pairs(
                words, at, low, high, place, d, 0, first, first_bias, add
            )
            read_pairs(words, at, low, high, place, d, 16, second, second_bias, add)
        else:
            at, low, high, place = read_singles(
                words, at, low, high, place, d, 0, first, first_bias, add
            )
            read_singles(words, at, low, high, place, d, 16, second, second_bias, add)
