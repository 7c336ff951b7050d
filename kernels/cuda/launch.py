"""How kernels get onto a GPU: compiled once per machine, launched in a few microseconds.

The machine code of a kernel depends on the sources, the compute capability and the compilers; it is
kept in a folder whose name carries a hash of them, and a file lock lets one process compile while
the others wait. A launch hands over one block of packed parameters that was made before.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cuda.bindings import driver
from numba import types

from zccl.config import cache_dir
from zccl.kernels.cuda._compat import EARLY_STARTS, LANES, compile_ptx, compiler_version

_FORMATS = {types.int64: "q", types.float64: "d", types.int32: "i4x"}


class Kernel(NamedTuple):
    """A kernel before it is compiled: `function` takes addresses and numbers."""

    name: str
    function: Callable
    signature: tuple
    warps: int
    max_registers: int = 0


def _check(status, *results):
    """Return the results of a driver call, or raise RuntimeError with the driver's words."""
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise RuntimeError(f"CUDA driver: {text.decode() if text else status}")
    return results[0] if len(results) == 1 else results


def current_device() -> int:
    """Return the device of the current context; the first one's main context where there is none.

    Raises
    ------
    RuntimeError
        When there is no GPU or no driver.
    """
    _check(*driver.cuInit(0))
    context = _check(*driver.cuCtxGetCurrent())
    if not int(context):
        device = _check(*driver.cuDeviceGet(0))
        _check(*driver.cuCtxSetCurrent(_check(*driver.cuDevicePrimaryCtxRetain(device))))
    return int(_check(*driver.cuCtxGetDevice()))


@functools.cache
def _attribute(device: int, attribute: driver.CUdevice_attribute) -> int:
    return int(_check(*driver.cuDeviceGetAttribute(attribute, device)))


def compute_capability(device: int) -> tuple[int, int]:
    """Return the compute capability of a device, as (9, 0)."""
    names = driver.CUdevice_attribute
    return (
        _attribute(device, names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        _attribute(device, names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )


def multiprocessors(device: int) -> int:
    """Return the number of multiprocessors of a device."""
    return _attribute(device, driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)


# ---------------------------------------------------------------- compiling


@functools.cache
def _folder() -> Path:
    digest = hashlib.sha256(compiler_version().encode())
    digest.update(str(_check(*driver.cuDriverGetVersion())).encode())  # its assembler is used
    here = Path(__file__).parent
    for path in [*sorted(here.glob("*.py")), here.parent.parent / "zccl" / "formats.py"]:
        if path.exists():
            digest.update(path.read_bytes())
    folder = cache_dir() / f"cuda-{digest.hexdigest()[:16]}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _assemble(ptx: str) -> bytes:
    """Turn PTX into machine code for the current device, by the driver."""
    state = _check(*driver.cuLinkCreate(0, [], []))
    try:
        data = ptx.encode() + b"\0"
        kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
        _check(*driver.cuLinkAddData(state, kind, data, len(data), b"", 0, [], []))
        address, nbytes = _check(*driver.cuLinkComplete(state))
        return ctypes.string_at(int(address), nbytes)
    finally:
        driver.cuLinkDestroy(state)


def _machine_code(kernel: Kernel, cc: tuple[int, int]) -> tuple[bytes, str]:
    """Return the machine code of a kernel and the name of its entry, from the cache if it can."""
    path = _folder() / f"{kernel.name}-sm_{cc[0]}{cc[1]}"
    with open(_folder() / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # a file system without locks: several processes may compile the same
            pass
        if path.exists():
            entry, code = path.read_bytes().split(b"\n", 1)
            return code, entry.decode()
        ptx, entry_name = compile_ptx(
            kernel.function, kernel.signature, cc, kernel.warps, kernel.max_registers
        )
        code = _assemble(ptx)
        # Renamed when complete: others never see half a file.
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(entry_name.encode() + b"\n" + code)
        os.replace(file.name, path)
        return code, entry_name


class Loaded(NamedTuple):
    """A kernel on a device.

    Attributes
    ----------
    handle : int
        The driver's.
    warps : int
        Of a thread block.
    format : str
        Of its arguments, 8 bytes each, and as many addresses.
    starts_early : bool
        Whether the device lets it start while the kernel before it ends.
    module : CUmodule
        Kept alive.
    """

    handle: int
    warps: int
    format: str
    starts_early: bool
    module: driver.CUmodule


@functools.cache
def load(kernel: Kernel, device: int) -> Loaded:
    """Load a kernel onto the current device, which is `device`; compiled where that is needed."""
    cc = compute_capability(device)
    code, entry = _machine_code(kernel, cc)
    module = _check(*driver.cuModuleLoadData(code))
    handle = _check(*driver.cuModuleGetFunction(module, entry.encode()))
    formats = [_FORMATS[t] for t in kernel.signature]
    text = "<" + "".join(formats) + "Q" * len(formats)
    return Loaded(int(handle), kernel.warps, text, cc >= EARLY_STARTS, module)


# ---------------------------------------------------------------- launching

_START_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("x", "y", "z", "threads", "y_threads", "z_threads")),
        ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint),
    ]  # fmt: skip


_EARLY = _Attribute(_START_EARLY, 0, (1,))


@functools.cache
def _driver_launch() -> Callable:
    """Return the driver's own launch, by ctypes: CuPy has no launch with attributes."""
    function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    function.argtypes = [ctypes.c_void_p] * 4
    function.restype = ctypes.c_int
    return function


class Launch:
    """One launch with its parameters packed: 8 bytes each, and a table of where they are.

    Where the GPU can, its blocks get onto the device while the kernel before it on the stream
    ends: all kernels here wait for that by themselves.

    Parameters
    ----------
    kernel : Loaded
        What to run.
    blocks : tuple of two int
        Thread blocks along x and y.
    arguments : int or float
        As the signature says; addresses are int.
    """

    def __init__(self, kernel: Loaded, blocks: tuple[int, int], *arguments: float):
        count = len(arguments)
        self._parameters = ctypes.create_string_buffer(16 * count)
        start = ctypes.addressof(self._parameters)
        struct.pack_into(
            kernel.format, self._parameters, 0, *arguments, *range(start, start + 8 * count, 8)
        )
        self._table = start + 8 * count
        self._kernel = kernel
        self._blocks = blocks
        self._configs: dict[int, tuple[_Config, int]] = {}
        self._call = _driver_launch()

    def _config(self, stream: int) -> tuple[_Config, int]:
        """Return the configuration for a stream: one for each, as threads may launch on several."""
        if len(self._configs) >= 64:  # streams come and go
            self._configs = {}
        early = self._kernel.starts_early
        config = _Config(
            *self._blocks, 1, LANES * self._kernel.warps, 1, 1, 0, stream,
            ctypes.addressof(_EARLY) if early else 0, int(early),
        )  # fmt: skip
        self._configs[stream] = config, ctypes.addressof(config)
        return self._configs[stream]

    def __call__(self, stream: int = 0) -> None:
        """Launch on a stream of the current context."""
        _, address = self._configs.get(stream) or self._config(stream)
        status = self._call(address, self._kernel.handle, self._table, None)
        if status:
            _check(driver.CUresult(status))


class Sequence:
    """Launches that follow each other on one stream."""

    def __init__(self, *launches: Launch):
        self.launches = launches

    def __call__(self, stream: int = 0) -> None:
        """Launch all of them."""
        for launch in self.launches:
            launch(stream)
