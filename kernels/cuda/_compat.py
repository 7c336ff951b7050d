"""The only file that imports `numba.cuda`: its successor keeps the language of kernels, not more.

Kernels here take nothing but addresses (int64) and numbers, so that the code of one serves arrays
of any library and a launch packs no array structures.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from unittest import mock

import numba
import numba_cuda
from numba import (
    cuda,
    float32,
    float64,
    int32,
    int64,
    types,
    uint8,
    uint16,
    uint32,
    uint64,
)
from numba.cuda import dispatcher
from numba.cuda.core import targetconfig
from numba.cuda.cudadrv import nvvm
from numba.cuda.extending import intrinsic

from zccl.formats import TILE

f32, f64, i32, i64 = float32, float64, int32, int64
u8, u16, u32, u64 = uint8, uint16, uint32, uint64

__all__ = [
    "ALL", "ASYNC_COPIES", "EARLY_STARTS", "FAST_SUMS", "LANES", "TILE", "compile_ptx",
    "compiler_version", "compute_capability", "cuda", "device", "f32", "f64", "has_compiler",
    "i32", "i64", "intrinsic", "types", "u8", "u16", "u32", "u64",
]  # fmt: skip

LANES = 32  # threads of a warp
ALL = 0xFFFFFFFF  # all of them, where an instruction asks which take part


_device_functions: list = []


def device(function):
    """Compile a function that only kernels call; it becomes part of them."""
    compiled = cuda.jit(device=True, forceinline=True)(function)
    _device_functions.append(compiled)
    return compiled


# Compute capabilities from which on the sources of kernels differ:
FAST_SUMS = (8, 0)  # one instruction sums over a warp
ASYNC_COPIES = (8, 0)  # memory is copied to shared memory past the registers
EARLY_STARTS = (9, 0)  # a kernel can start while the one before it ends
_compiled_for = None


def _compile_for(cc):
    """Return a context in which device functions are compiled for `cc` and no GPU is looked for."""
    global _compiled_for
    sources = cc >= FAST_SUMS, cc >= EARLY_STARTS
    if sources != _compiled_for:
        for function in _device_functions:
            function.overloads.clear()
        _compiled_for = sources
    found = SimpleNamespace(compute_capability=cc)
    return mock.patch.object(dispatcher, "get_current_device", lambda: found)


def compiler_version():
    """Return the versions that compiled code depends on."""
    return f"{numba.__version__} {numba_cuda.__version__}"


def has_compiler():
    """Return whether the library that makes PTX of kernels is there."""
    try:
        nvvm.NVVM()
    except Exception:  # whatever a missing or broken library raises
        return False
    return True


def compute_capability():
    """Return the compute capability that is being compiled for; for code generators."""
    return targetconfig.ConfigStack().top().compute_capability


def compile_ptx(function, signature, cc, warps, max_registers):
    """Compile a kernel to PTX, which needs no GPU.

    Parameters
    ----------
    function : Python function of addresses and numbers
    signature : tuple of Numba types
    cc : compute capability, as (9, 0)
    warps : warps of a thread block
    max_registers : most registers of a thread; 0 leaves the choice to the assembler

    Returns
    -------
    (text, name of the entry)
    """
    with _compile_for(cc):
        ptx, _ = cuda.compile(function, types.void(*signature), cc=cc, device=False, abi="numba")
    name = re.search(r"\.entry\s+(\w+)\(", ptx).group(1)
    bounds = f".maxntid {LANES * warps}, 1, 1\n"
    if max_registers:
        bounds += f".maxnreg {max_registers}\n"
    # Directives stand between the parameters of an entry and its body.
    at = ptx.index("\n{", ptx.index(name + "(")) + 1
    return ptx[:at] + bounds + ptx[at:], name
