"""Stages on 16 values at a time, in LLVM vector instructions.

Numba vectorises none of these loops well. The intrinsics below emit LLVM's own vector operations
(`<16 x i32>` and so on), which it lowers to whatever the machine has; nothing here is specific to
one processor. `loops.py` holds the same stages as plain loops, which must write the same bytes.

Addresses are int64. Loads and stores need no alignment, but they may touch up to `OVERRUN` bytes
behind a block.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from zccl.kernels.cpu.memory import load, store

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()

OVERRUN = 16  # bytes
MAX_NARROW = 15  # largest width that the vector forms of pack and unpack take


# LLVM building blocks


def _constant(kind, values):
    return ir.Constant(ir.VectorType(kind, len(values)), list(values))


def splat(b, value, lanes):
    """Emit a vector of equal lanes."""
    vector = ir.VectorType(value.type, lanes)
    one = b.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(I32, 0))
    return b.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def _shuffle(b, x, y, lanes):
    return b.shuffle_vector(x, y, _constant(I32, lanes))


def _load(b, address, kind, lanes=None):
    return load(b, address, kind if lanes is None else ir.VectorType(kind, lanes))


def _reduce_or(b, v):
    """OR of all lanes, by halving."""
    lanes = v.type.count
    while lanes > 1:
        lanes //= 2
        v = b.or_(_shuffle(b, v, v, range(lanes)), _shuffle(b, v, v, range(lanes, 2 * lanes)))
    return b.extract_element(v, ir.Constant(I32, 0))


def _width(b, d):
    """Width of 16 differences: the bit length of the OR of their zigzag forms."""
    ones = _constant(I32, [1] * 16)
    zigzag = b.xor(b.shl(d, ones), b.ashr(d, _constant(I32, [31] * 16)))
    zeros = b.ctlz(_reduce_or(b, zigzag), ir.Constant(I1, 0))
    return b.zext(b.sub(ir.Constant(I32, 32), zeros), I64)


def _offset(b, w):
    """2^(w-1) as i32, 0 for w = 0."""
    return b.trunc(b.lshr(b.shl(ir.Constant(I64, 1), w), ir.Constant(I64, 1)), I32)


def _unpack(b, source, w):
    """16 differences of a block of width 0..15 as two <8 x i32>.

    Four broadcast loads, one for each quad of fields; a quad starts at byte floor(k w / 2), for odd
    k w half a byte later.
    """
    shifts = b.zext(
        b.mul(_constant(I32, [0, 1, 2, 3]), splat(b, b.trunc(w, I32), 4)), ir.VectorType(I64, 4)
    )
    half_byte = b.shl(b.and_(w, ir.Constant(I64, 1)), ir.Constant(I64, 2))
    odd_shifts = b.add(shifts, splat(b, half_byte, 4))
    mask = splat(b, b.sub(b.shl(ir.Constant(I64, 1), w), ir.Constant(I64, 1)), 4)
    quads = []
    for k in range(4):
        at = b.lshr(b.mul(w, ir.Constant(I64, k)), ir.Constant(I64, 1))
        fields = splat(b, _load(b, b.add(source, at), I64), 4)
        quads.append(b.and_(b.lshr(fields, odd_shifts if k & 1 else shifts), mask))
    offset = splat(b, _offset(b, w), 8)
    halves = []
    for k in (0, 2):
        low = b.bitcast(quads[k], ir.VectorType(I32, 8))
        high = b.bitcast(quads[k + 1], ir.VectorType(I32, 8))
        halves.append(b.sub(_shuffle(b, low, high, range(0, 16, 2)), offset))
    return halves


def _scan_8(b, v):
    """Inclusive prefix sums of 8 lanes."""
    zero = _constant(I32, [0] * 8)
    v = b.add(v, _shuffle(b, v, zero, [8, 0, 1, 2, 8, 4, 5, 6]))
    v = b.add(v, _shuffle(b, v, zero, [8, 8, 0, 1, 8, 8, 4, 5]))
    return b.add(v, _shuffle(b, v, zero, [8, 8, 8, 8, 3, 3, 3, 3]))


def _scan_scale(b, halves, kind, before, step, target):
    """Store the codes after `before`, times the step; return the sum of the 16 differences."""
    low, high = _scan_8(b, halves[0]), _scan_8(b, halves[1])
    high = b.add(high, _shuffle(b, low, low, [7] * 8))
    _scale(b, (low, high), kind, before, step, target)
    return b.sext(b.extract_element(high, ir.Constant(I32, 7)), I64)


def _scale(b, halves, kind, before, step, target):
    """Store 16 codes, counted from `before`, times the step.

    kind: "small" (float32 arithmetic, exact for codes up to 2^24), "f4", "f8" (float64 arithmetic).
    """
    if kind == "small":
        start, scale = splat(b, b.trunc(before, I32), 8), splat(b, b.fptrunc(step, F32), 8)
    else:
        start, scale = splat(b, b.sitofp(before, F64), 8), splat(b, step, 8)
    for k, v in enumerate(halves):
        if kind == "small":
            y = b.fmul(b.sitofp(b.add(v, start), ir.VectorType(F32, 8)), scale)
        else:
            y = b.fmul(b.fadd(b.sitofp(v, ir.VectorType(F64, 8)), start), scale)
            if kind == "f4":
                y = b.fptrunc(y, ir.VectorType(F32, 8))
        store(b, y, b.add(target, ir.Constant(I64, k * (64 if kind == "f8" else 32))))


def _load_halves(b, address):
    return [_load(b, address, I32, 8), _load(b, b.add(address, ir.Constant(I64, 32)), I32, 8)]


def _integrate(b, halves, before, above, target):
    """Store running sums after `before`, plus what is above; return the last running sum."""
    low, high = _scan_8(b, halves[0]), _scan_8(b, halves[1])
    high = b.add(high, _shuffle(b, low, low, [7] * 8))
    start = splat(b, before, 8)
    sums = [b.add(low, start), b.add(high, start)]
    for k, (v, more) in enumerate(zip(sums, _load_halves(b, above), strict=True)):
        store(b, b.add(v, more), b.add(target, ir.Constant(I64, 32 * k)))
    return b.extract_element(sums[1], ir.Constant(I32, 7))


# The stages

_int, _float, _none = types.int64, types.float64, types.void


@intrinsic
def difference_16(typing_context, codes, differences):
    """Differences of 16 codes (int32; the one before them is read too); returns their width."""

    def codegen(context, b, sig, a):
        before = _load(b, b.sub(a[0], ir.Constant(I64, 4)), I32, 16)
        d = b.sub(_load(b, a[0], I32, 16), before)
        store(b, d, a[1])
        return _width(b, d)

    return _int(_int, _int), codegen


@intrinsic
def pack_16(typing_context, differences, width, target):
    """Pack 16 differences into 2 width bytes, width at most 15; zero bytes may follow them."""

    def codegen(context, b, sig, a):
        d, w, to = _load(b, a[0], I32, 16), a[1], a[2]
        fields = b.bitcast(b.add(d, splat(b, _offset(b, w), 16)), ir.VectorType(I64, 8))
        upper = b.shl(b.lshr(fields, _constant(I64, [32] * 8)), splat(b, w, 8))
        pairs = b.or_(b.and_(fields, _constant(I64, [0xFFFFFFFF] * 8)), upper)
        upper = b.shl(
            _shuffle(b, pairs, pairs, [1, 3, 5, 7]), splat(b, b.shl(w, ir.Constant(I64, 1)), 4)
        )
        quads = b.or_(_shuffle(b, pairs, pairs, [0, 2, 4, 6]), upper)
        w4 = b.shl(w, ir.Constant(I64, 2))
        rest = b.sub(ir.Constant(I64, 60), w4)  # shift by 64 - 4 w in two steps: it is 64 for w = 0
        for k in range(2):
            first = b.extract_element(quads, ir.Constant(I32, 2 * k))
            second = b.extract_element(quads, ir.Constant(I32, 2 * k + 1))
            at = to if k == 0 else b.add(to, w)
            store(b, b.or_(first, b.shl(second, w4)), at)
            over = b.lshr(b.lshr(second, rest), ir.Constant(I64, 4))
            store(b, over, b.add(at, ir.Constant(I64, 8)))
        return context.get_dummy_value()

    return _none(_int, _int, _int), codegen


@intrinsic
def unpack_16(typing_context, source, width, differences):
    """Unpack a block of width at most 15."""

    def codegen(context, b, sig, a):
        low, high = _unpack(b, a[0], a[1])
        store(b, low, a[2])
        store(b, high, b.add(a[2], ir.Constant(I64, 32)))
        return context.get_dummy_value()

    return _none(_int, _int, _int), codegen


@intrinsic
def unpack_add_16(typing_context, source_a, width_a, source_b, width_b, differences):
    """Unpack two blocks of widths at most 15, store their sums; returns the width of these."""

    def codegen(context, b, sig, a):
        x, y = _unpack(b, a[0], a[1]), _unpack(b, a[2], a[3])
        d = _shuffle(b, b.add(x[0], y[0]), b.add(x[1], y[1]), range(16))
        store(b, d, a[4])
        return _width(b, d)

    return _int(_int, _int, _int, _int, _int), codegen


@intrinsic
def difference_add_16(typing_context, codes, source, width, differences):
    """Add the differences of 16 codes to a block of width at most 15; returns the width."""

    def codegen(context, b, sig, a):
        before = _load(b, b.sub(a[0], ir.Constant(I64, 4)), I32, 16)
        own = b.sub(_load(b, a[0], I32, 16), before)
        low, high = _unpack(b, a[1], a[2])
        d = b.add(own, _shuffle(b, low, high, range(16)))
        store(b, d, a[3])
        return _width(b, d)

    return _int(_int, _int, _int, _int), codegen


@intrinsic
def copy_16(typing_context, source, target):
    """Copy 16 numbers of 32 bits."""

    def codegen(context, b, sig, a):
        store(b, _load(b, a[0], I32, 16), a[1])
        return context.get_dummy_value()

    return _none(_int, _int), codegen


@intrinsic
def subtract_16(typing_context, x, y, target):
    """Store 16 numbers minus 16 others."""

    def codegen(context, b, sig, a):
        store(b, b.sub(_load(b, a[0], I32, 16), _load(b, a[1], I32, 16)), a[2])
        return context.get_dummy_value()

    return _none(_int, _int, _int), codegen


@intrinsic
def sum_16(typing_context, x, y, target):
    """Store 16 numbers plus 16 others."""

    def codegen(context, b, sig, a):
        store(b, b.add(_load(b, a[0], I32, 16), _load(b, a[1], I32, 16)), a[2])
        return context.get_dummy_value()

    return _none(_int, _int, _int), codegen


@intrinsic
def integrate_16(typing_context, differences, before, above, target):
    """Store the running sums of 16 differences after `before`, plus 16 numbers.

    Returns the last running sum.
    """

    def codegen(context, b, sig, a):
        return _integrate(b, _load_halves(b, a[0]), a[1], a[2], a[3])

    return types.int32(_int, types.int32, _int, _int), codegen


@intrinsic
def unpack_integrate_16(typing_context, source, width, before, above, target):
    """Unpack a block of width at most 15, then `integrate_16`."""

    def codegen(context, b, sig, a):
        return _integrate(b, _unpack(b, a[0], a[1]), a[2], a[3], a[4])

    return types.int32(_int, _int, types.int32, _int, _int), codegen


def _decoders(kind):
    @intrinsic
    def scan(typing_context, differences, before, step, target):
        def codegen(context, b, sig, a):
            return _scan_scale(b, _load_halves(b, a[0]), kind, a[1], a[2], a[3])

        return _int(_int, _int, _float, _int), codegen

    @intrinsic
    def unpack_scan(typing_context, source, width, before, step, target):
        def codegen(context, b, sig, a):
            return _scan_scale(b, _unpack(b, a[0], a[1]), kind, a[2], a[3], a[4])

        return _int(_int, _int, _int, _float, _int), codegen

    @intrinsic
    def scale(typing_context, distances, before, step, target):
        def codegen(context, b, sig, a):
            _scale(b, _load_halves(b, a[0]), kind, a[1], a[2], a[3])
            return context.get_dummy_value()

        return _none(_int, _int, _float, _int), codegen

    return scan, unpack_scan, scale


# Integrate 16 differences from the code before them and scale; the second form unpacks them first
# (width at most 15). Both return the sum of the differences. The third scales 16 distances from the
# code before them.
scan_small, unpack_scan_small, scale_small = _decoders("small")
scan_f4, unpack_scan_f4, scale_f4 = _decoders("f4")
scan_f8, unpack_scan_f8, scale_f8 = _decoders("f8")
