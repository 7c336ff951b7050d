"""Loads, stores and bit patterns. Addresses are int64 and need no alignment."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from zccl.kernels.cpu._compile import helper

_I1, _I32, _I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)


def load(b, address, kind):
    """Emit an unaligned load of an LLVM type."""
    value = b.load(b.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def store(b, value, address):
    """Emit an unaligned store."""
    b.store(value, b.inttoptr(address, value.type.as_pointer())).align = 1


@intrinsic
def load_32(typing_context, address):
    """32 bits as int32."""
    return types.int32(types.int64), lambda context, b, sig, a: load(b, a[0], _I32)


@intrinsic
def load_64(typing_context, address):
    """64 bits as uint64."""
    return types.uint64(types.int64), lambda context, b, sig, a: load(b, a[0], _I64)


@intrinsic
def store_32(typing_context, address, value):
    """Store an int32."""

    def codegen(context, b, sig, a):
        store(b, a[1], a[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), codegen


@intrinsic
def store_64(typing_context, address, value):
    """Store a uint64."""

    def codegen(context, b, sig, a):
        store(b, a[1], a[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), codegen


@intrinsic
def float_bits(typing_context, value):
    """Bits of a float64 as int64."""
    return types.int64(types.float64), lambda context, b, sig, a: b.bitcast(a[0], _I64)


@intrinsic
def float_bits_32(typing_context, value):
    """Bits of a float32 as int32."""
    return types.int32(types.float32), lambda context, b, sig, a: b.bitcast(a[0], _I32)


@intrinsic
def bit_length(typing_context, value):
    """Return the number of bits of a uint32."""

    def codegen(context, b, sig, a):
        zeros = b.ctlz(a[0], ir.Constant(_I1, 0))
        return b.zext(b.sub(ir.Constant(_I32, 32), zeros), _I64)

    return types.int64(types.uint32), codegen


@helper
def address(array):
    """Address of the first element of an array."""
    return np.int64(array.ctypes.data)
