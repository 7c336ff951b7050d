"""Single values of one type, in any memory: the exact kernels are made of these.

`value_words` picks the functions of float32 (1) or float64 (2).
"""

from collections import namedtuple

import numpy as np

from zccl.kernels.cuda._compat import device, i64, u32
from zccl.kernels.cuda._intrinsics import (
    bits_of_f32,
    bits_of_f64,
    f32_of_bits,
    f64_of_bits,
    load_u32_any,
    store_u32_any,
    to_f32,
    to_f64,
)

NAN_BITS_F64 = np.int64(0x7FF8000000000000)


@device
def load_bits_f32(address):
    """Bits of a float32."""
    return i64(load_u32_any(address))


@device
def store_bits_f32(address, bits):
    """Store the bits of a float32."""
    store_u32_any(address, u32(bits))


@device
def number_f32(bits):
    """Return the number that bits stand for, as float64."""
    return to_f64(f32_of_bits(u32(bits)))


@device
def rounded_f32(number):
    """Round a float64 to float32 and back."""
    return to_f64(to_f32(number))


@device
def rounded_bits_f32(number):
    """Bits of a float64 rounded to float32; NaN is the quiet one without payload."""
    if number != number:
        return i64(0x7FC00000)
    return i64(bits_of_f32(to_f32(number)))


@device
def load_bits_f64(address):
    """Bits of a float64, which is aligned to 4 bytes."""
    return i64((i64(load_u32_any(address + 4)) << i64(32)) | i64(load_u32_any(address)))


@device
def store_bits_f64(address, bits):
    """Store the bits of a float64, which is aligned to 4 bytes."""
    store_u32_any(address, u32(bits & i64(0xFFFFFFFF)))
    store_u32_any(address + 4, u32((bits >> i64(32)) & i64(0xFFFFFFFF)))


@device
def number_f64(bits):
    """Return the number that bits stand for."""
    return f64_of_bits(bits)


@device
def rounded_f64(number):
    """Return a float64 as it is."""
    return number


@device
def rounded_bits_f64(number):
    """Bits of a float64; NaN is the quiet one without payload."""
    if number != number:
        return NAN_BITS_F64
    return bits_of_f64(number)


Values = namedtuple("Values", "words load_bits store_bits number rounded rounded_bits")
VALUES = {
    1: Values(1, load_bits_f32, store_bits_f32, number_f32, rounded_f32, rounded_bits_f32),
    2: Values(2, load_bits_f64, store_bits_f64, number_f64, rounded_f64, rounded_bits_f64),
}
