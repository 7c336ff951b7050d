"""Escaped values of a tile that is decoded otherwise: short lists, patched into the output.

The codes of the tile, as distances from its base, still lie in shared memory (see `turning`).
"""

from zccl.formats import TILE
from zccl.kernels.cuda._compat import LANES, cuda, device, f64, i32, i64
from zccl.kernels.cuda._intrinsics import div_f64, i64_to_f64, mul_f64
from zccl.kernels.cuda.escapes import count_of
from zccl.kernels.cuda.numbers import run_of
from zccl.kernels.cuda.record import list_is_sound, load_code
from zccl.kernels.cuda.turning import value_place
from zccl.kernels.cuda.values import VALUES
from zccl.kernels.cuda.warp import vote

SHORT = LANES  # entries: a lane looks at one


@device
def overlap(list_at, entries, size, lane):
    """Whether two runs of a short list have a value in common, as those of two ranks may."""
    start = i32(TILE)
    stop = i32(0)
    if lane < entries:
        start, stop = run_of(list_at + size * i64(lane))
    common = False
    for e in range(entries):
        other_start = cuda.shfl_sync(0xFFFFFFFF, start, e)
        other_stop = cuda.shfl_sync(0xFFFFFFFF, stop, e)
        if i32(e) < lane and start < other_stop and other_start < stop:
            common = True
    return vote(common) != 0


def _make(value_words):
    form = VALUES[value_words]
    load_bits, store_bits = form.load_bits, form.store_bits
    number, rounded_bits = form.number, form.rounded_bits
    value_nbytes = 4 * value_words
    value_at = 4 * (2 + value_words)
    entry_nbytes = 4 * (2 + 2 * value_words)

    @device
    def patch(out, address, nwords, words, at, base, step, divisor, reduced, lane):
        """Put escaped values into the output; returns whether that was possible.

        Parameters
        ----------
        out : address of the tile's values, stored by this warp
        address, nwords : address of the list, its length included, and its words
        words, at, base : shared array, place of the distances in it, and the base
        step, divisor, reduced : as for the CPU kernel
        """
        cuda.syncwarp()
        entries = count_of(address, nwords, i32(value_words))
        list_at = address + 4
        possible = entries > i32(0) and entries <= i32(SHORT)
        if possible:
            possible = list_is_sound(list_at, entries, i32(TILE), i32(value_words), lane)
        if possible and reduced:
            possible = not overlap(list_at, entries, i64(entry_nbytes), lane)
        if not possible:
            entries = i32(0)
        for e in range(entries):
            entry = list_at + i64(entry_nbytes) * i64(e)
            start, stop = run_of(entry)
            bits = load_bits(entry + value_at)
            stand_in = load_code(entry + 8, i32(value_words))
            j = i32(start + lane)
            while j < stop:
                final = bits
                if reduced:
                    distance = i32(words[i32(at + value_place(j))])
                    code = i64(base) + i64(distance) - stand_in
                    value = f64(-0.0)
                    if code != i64(0):
                        value = mul_f64(i64_to_f64(code), step)
                    value = value + number(bits)
                    if divisor != f64(1):
                        value = div_f64(value, divisor)
                    final = rounded_bits(value)
                store_bits(out + i64(value_nbytes) * i64(j), final)
                j = i32(j + i32(LANES))
            cuda.syncwarp()
        return possible

    return patch


PATCH = {1: _make(1), 2: _make(2)}
