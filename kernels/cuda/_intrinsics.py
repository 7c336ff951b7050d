"""Single instructions that Numba has no name for; the only file with `@intrinsic`.

Addresses are int64, of global memory unless a name says otherwise. Instructions with an effect keep
their order; others may move, so they read only what a kernel does not write.
"""

from llvmlite import ir

from zccl.kernels.cuda._compat import (
    EARLY_STARTS,
    FAST_SUMS,
    compute_capability,
    intrinsic,
    types,
)

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_KINDS = {
    "i": (types.int32, _I32, "r"),
    "u": (types.uint32, _I32, "r"),
    "l": (types.int64, _I64, "l"),
    "f": (types.float32, ir.FloatType(), "f"),
    "d": (types.float64, ir.DoubleType(), "d"),
}


def _with_arguments(count, body):
    """Return a function of `count` named arguments; `@intrinsic` takes no others."""
    return {
        0: lambda context: body(),
        1: lambda context, a: body(),
        2: lambda context, a, b: body(),
        3: lambda context, a, b, c: body(),
        5: lambda context, a, b, c, d, e: body(),
        10: lambda context, a, b, c, d, e, f, g, h, i, j: body(),
    }[count]


def ptx(text, results, arguments, effect=False):
    """Return an intrinsic that is this text of PTX, of these kinds.

    `results` and `arguments` have one letter a value, as in `_KINDS`. A text may be a function of
    the compute capability.
    """
    numba_results = [_KINDS[r][0] for r in results]
    llvm_results = [_KINDS[r][1] for r in results]
    llvm_arguments = [_KINDS[a][1] for a in arguments]
    constraints = ["=" + _KINDS[r][2] for r in results] + [_KINDS[a][2] for a in arguments]
    if effect:
        constraints.append("~{memory}")

    def codegen(context, builder, signature, values):
        if not results:
            kind = ir.VoidType()
        elif len(results) == 1:
            kind = llvm_results[0]
        else:
            kind = ir.LiteralStructType(llvm_results)
        code = text(compute_capability()) if callable(text) else text
        function = ir.FunctionType(kind, llvm_arguments)
        assembly = ir.InlineAsm(function, code, ",".join(constraints), side_effect=effect)
        result = builder.call(assembly, values)
        if len(results) > 1:
            parts = [builder.extract_value(result, k) for k in range(len(results))]
            return context.make_tuple(builder, signature.return_type, parts)
        return result if results else context.get_dummy_value()

    if not results:
        kind = types.none
    elif len(results) == 1:
        kind = numba_results[0]
    elif len(set(results)) == 1:
        kind = types.UniTuple(numba_results[0], len(results))
    else:
        kind = types.Tuple(numba_results)
    signature = kind(*(_KINDS[a][0] for a in arguments))
    return intrinsic(_with_arguments(len(arguments), lambda: (signature, codegen)))


# Loads of what a kernel only reads. 128 bits a thread is what memory moves fastest.
load_4_f32 = ptx("ld.global.nc.L1::no_allocate.v4.f32 {$0,$1,$2,$3}, [$4];", "ffff", "l")
load_2_f64 = ptx("ld.global.nc.L1::no_allocate.v2.f64 {$0,$1}, [$2];", "dd", "l")
load_f32 = ptx("ld.global.nc.f32 $0, [$1];", "f", "l")
load_f64 = ptx("ld.global.nc.f64 $0, [$1];", "d", "l")
load_u32 = ptx("ld.global.nc.u32 $0, [$1];", "u", "l")
load_i64 = ptx("ld.global.nc.u64 $0, [$1];", "l", "l")
# The same with its place kept, where several loads must be under way together.
load_u32_in_place = ptx("ld.global.nc.u32 $0, [$1];", "u", "l", True)
load_i64_in_place = ptx("ld.global.nc.u64 $0, [$1];", "l", "l", True)


load_2_words_shared = ptx("ld.shared.u32 $0, [$2]; ld.shared.u32 $1, [$2+4];", "uu", "i", True)

# Loads of what the warp may have written. "any" is any kind of memory.
load_u32_any = ptx("ld.u32 $0, [$1];", "u", "l", True)
load_i64_any = ptx("ld.u64 $0, [$1];", "l", "l", True)
# A load of what other blocks write.
load_i64_now = ptx("ld.volatile.global.u64 $0, [$1];", "l", "l", True)
load_u8_any = ptx(
    "{.reg .u16 h; ld.u8 h, [$1]; cvt.u32.u16 $0, h;}", "u", "l", True
)  # fmt: skip

load_u16_any = ptx(
    "{.reg .u16 h; ld.u16 h, [$1]; cvt.u32.u16 $0, h;}", "u", "l", True
)  # fmt: skip

store_4_f32 = ptx("st.global.cs.v4.f32 [$0], {$1,$2,$3,$4};", "", "lffff", True)
store_2_f64 = ptx("st.global.cs.v2.f64 [$0], {$1,$2};", "", "ldd", True)
store_u32 = ptx("st.global.u32 [$0], $1;", "", "lu", True)
store_i64 = ptx("st.global.u64 [$0], $1;", "", "ll", True)
store_u32_any = ptx("st.u32 [$0], $1;", "", "lu", True)
store_i64_any = ptx("st.u64 [$0], $1;", "", "ll", True)
store_u8_any = ptx("{.reg .u16 h; cvt.u16.u32 h, $1; st.u8 [$0], h;}", "", "lu", True)
store_u16 = ptx("{.reg .u16 h; cvt.u16.u32 h, $1; st.global.u16 [$0], h;}", "", "lu", True)
store_i64_for_host = ptx("st.relaxed.sys.global.u64 [$0], $1;", "", "ll", True)

atomic_add = ptx("atom.global.add.u64 $0, [$1], $2;", "l", "ll", True)
add_to = ptx("red.global.add.u64 [$0], $1;", "", "ll", True)
or_to = ptx("red.global.or.b32 [$0], $1;", "", "lu", True)
max_to = ptx("red.global.max.u64 [$0], $1;", "", "ll", True)

# A sum that stays where it is: LLVM moves additions that end all branches behind them, and then
# keeps both operands of all of them.
add_here = ptx("add.s32 $0, $1, $2;", "i", "ii")

hidden = ptx("mov.b32 $0, $1;", "i", "i")  # a number that no compiler knows

# Shifts of 32 bits take numbers of any size; Numba would make them 64 bits wide.
shift_right = ptx("shr.u32 $0, $1, $2;", "u", "ui")
shift_left = ptx("shl.b32 $0, $1, $2;", "u", "ui")
# The low word of (second, first) >> third: third modulo 32, or at most 32.
funnel_wrap = ptx("shf.r.wrap.b32 $0, $1, $2, $3;", "u", "uui")
funnel_clamp = ptx("shf.r.clamp.b32 $0, $1, $2, $3;", "u", "uui")
max_i32 = ptx("max.s32 $0, $1, $2;", "i", "ii")
min_i32 = ptx("min.s32 $0, $1, $2;", "i", "ii")
max_u32 = ptx("max.u32 $0, $1, $2;", "u", "uu")

div_u32 = ptx("div.u32 $0, $1, $2;", "u", "uu")

# q + r * reciprocal and a - q * b, rounded once: the steps of a division.
fma_f64 = ptx("fma.rn.f64 $0, $1, $2, $3;", "d", "ddd")

# Arithmetic that must not be contracted: rounded as on a CPU.
mul_f64 = ptx("mul.rn.f64 $0, $1, $2;", "d", "dd")
add_f64 = ptx("add.rn.f64 $0, $1, $2;", "d", "dd")
sub_f64 = ptx("sub.rn.f64 $0, $1, $2;", "d", "dd")
div_f64 = ptx("div.rn.f64 $0, $1, $2;", "d", "dd")
mul_f32 = ptx("mul.rn.f32 $0, $1, $2;", "f", "ff")
to_f32 = ptx("cvt.rn.f32.f64 $0, $1;", "f", "d")
to_f64 = ptx("cvt.f64.f32 $0, $1;", "d", "f")
i32_to_f32 = ptx("cvt.rn.f32.s32 $0, $1;", "f", "i")
i64_to_f64 = ptx("cvt.rn.f64.s64 $0, $1;", "d", "l")
max_abs_f32 = ptx("{.reg .f32 t; abs.f32 t, $2; max.NaN.f32 $0, $1, t;}", "f", "ff")  # keeps a NaN

bits_of_f32 = ptx("mov.b32 $0, $1;", "u", "f")
f32_of_bits = ptx("mov.b32 $0, $1;", "f", "u")
bits_of_f64 = ptx("mov.b64 $0, $1;", "l", "d")
f64_of_bits = ptx("mov.b64 $0, $1;", "d", "l")
high_word = ptx("{.reg .b32 t; mov.b64 {t, $0}, $1;}", "u", "d")

# 1.5 * 2^52: adding it rounds to an integer, ties to even, which the low word then is.
_ROUND = "0d4338000000000000"
code_of_f32 = ptx(
    "{.reg .f64 a; .reg .b32 h; cvt.f64.f32 a, $1; mul.rn.f64 a, a, $2;"
    f" add.rn.f64 a, a, {_ROUND}; mov.b64 {{$0, h}}, a;}}", "i", "fd",
)  # fmt: skip
code_of_f64 = ptx(
    "{.reg .f64 a; .reg .b32 h; mul.rn.f64 a, $1, $2;"
    f" add.rn.f64 a, a, {_ROUND}; mov.b64 {{$0, h}}, a;}}", "i", "dd",
)  # fmt: skip
low_word = ptx("{.reg .b32 h; mov.b64 {$0, h}, $1;}", "i", "d")
# An integer plus a float64 that makes up for 2^52 + 2^31, which the bits of the first stand for.
shifted_code = ptx(
    "{.reg .f64 a; .reg .b32 x; xor.b32 x, $1, 0x80000000; mov.b64 a, {x, 0x43300000};"
    " add.rn.f64 $0, a, $2;}", "d", "id",
)  # fmt: skip


def _reduce_add(cc):
    """One instruction from compute capability 8.0 on, else five exchanges."""
    if cc >= FAST_SUMS:
        return "redux.sync.add.u32 $0, $1, 0xffffffff;"
    step = "shfl.sync.bfly.b32 t, s, {}, 31, 0xffffffff; add.u32 s, s, t;"
    steps = " ".join(step.format(1 << k) for k in range(5))
    return "{.reg .b32 s, t; mov.b32 s, $1; " + steps + " mov.b32 $0, s;}"


sum_of_lanes = ptx(_reduce_add, "u", "u", True)


def _from(cc, text):
    """Return the text of an instruction from a compute capability on, and nothing before it."""
    return lambda found: text if found >= cc else ""


# The first thing that every kernel does. One that is launched to start early has its blocks on the
# device while the kernel before it ends, and waits here until all that did is done and seen; only
# then the next one may start early, so that none ever runs beside the last but one.
wait_for_previous = ptx(
    _from(EARLY_STARTS, "griddepcontrol.wait; griddepcontrol.launch_dependents;"), "", "", True
)


@intrinsic
def store_4_shared(context, array, i, a, b, c, d):
    """Store four int32 in 16 bytes of a shared uint32 array, from element i, a multiple of 4."""

    def codegen(context, builder, signature, values):
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        vector = ir.VectorType(_I32, 4)
        value = ir.Constant(vector, ir.Undefined)
        for k in range(4):
            value = builder.insert_element(value, values[2 + k], ir.Constant(_I32, k))
        place = builder.gep(data, [values[1]])
        pointer = builder.bitcast(place, vector.as_pointer(data.type.addrspace))
        builder.store(value, pointer).align = 16
        return context.get_dummy_value()

    i4 = types.int32
    return types.none(array, i4, i4, i4, i4, i4), codegen


@intrinsic
def store_2_shared(context, array, i, a, b):
    """Store two int32 in 8 bytes of a shared uint32 array, from element i, a multiple of 2."""

    def codegen(context, builder, signature, values):
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        vector = ir.VectorType(_I32, 2)
        value = ir.Constant(vector, ir.Undefined)
        for k in range(2):
            value = builder.insert_element(value, values[2 + k], ir.Constant(_I32, k))
        place = builder.gep(data, [values[1]])
        pointer = builder.bitcast(place, vector.as_pointer(data.type.addrspace))
        builder.store(value, pointer).align = 8
        return context.get_dummy_value()

    i4 = types.int32
    return types.none(array, i4, i4, i4), codegen


def _load_shared(count):
    def typing(context, array, i):
        def codegen(context, builder, signature, values):
            data = context.make_array(signature.args[0])(context, builder, values[0]).data
            vector = ir.VectorType(_I32, count)
            place = builder.gep(data, [values[1]])
            pointer = builder.bitcast(place, vector.as_pointer(data.type.addrspace))
            loaded = builder.load(pointer)
            loaded.align = 4 * count
            parts = [builder.extract_element(loaded, ir.Constant(_I32, k)) for k in range(count)]
            return context.make_tuple(builder, signature.return_type, parts)

        return types.UniTuple(types.int32, count)(array, types.int32), codegen

    return intrinsic(typing)


load_4_shared = _load_shared(4)
load_2_shared = _load_shared(2)


@intrinsic
def store_half_shared(context, array, i, value):
    """Store the low half of a uint32 as half-word i of a shared uint32 array."""

    def codegen(context, builder, signature, values):
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        halves = builder.bitcast(data, _I16.as_pointer(data.type.addrspace))
        place = builder.gep(halves, [values[1]])
        builder.store(builder.trunc(values[2], _I16), place).align = 2
        return context.get_dummy_value()

    return types.none(array, types.int32, types.uint32), codegen


@intrinsic
def shared_address(context, array, i):
    """Address of element i of a shared uint32 array, for the instructions of shared memory."""

    def codegen(context, builder, signature, values):
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        place = builder.gep(data, [values[1]])
        pointer = builder.addrspacecast(place, ir.PointerType(_I32, 3))
        return builder.ptrtoint(pointer, _I32)

    return types.int32(array, types.int32), codegen


@intrinsic
def address_of(context, array):
    """Address of the first element of a shared array, for the loads and stores of any memory."""

    def codegen(context, builder, signature, values):
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        if data.type.addrspace:
            data = builder.addrspacecast(data, data.type.pointee.as_pointer())
        return builder.ptrtoint(data, _I64)

    return types.int64(array), codegen
