"""How kernels are compiled: once per machine, cached on disk for all processes.

Numba's own cache looks only at the file that holds a kernel, so a change in a helper of another
file would leave old machine code in use, and N ranks that start together would compile N times.
Here the folder's name carries a hash of all kernel sources, and a file lock lets one process
compile while the others wait and then load.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from zccl.config import cache_dir, environment


def _source_hash() -> str:
    digest = hashlib.sha256(f"{numba.__version__} {environment('plain_loops')}".encode())
    here = Path(__file__).parent
    for path in [*sorted(here.glob("*.py")), here.parent.parent / "zccl" / "formats.py"]:
        if path.exists():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


_FOLDER = cache_dir() / f"cpu-{_source_hash()}"


class _Locator(_CacheLocator):
    """One folder for all kernels of this version of the sources."""

    def __init__(self, py_func):
        self._name = f"{py_func.__module__}.{py_func.__qualname__}"

    def get_cache_path(self):
        return str(_FOLDER)

    def get_source_stamp(self):
        return _FOLDER.name

    def get_disambiguator(self):
        return self._name

    @classmethod
    def from_function(cls, py_func, py_file):
        locator = cls(py_func)
        locator.ensure_cache_path()
        return locator


class _Impl(CompileResultCacheImpl):
    _locator_classes: list = [_Locator]


class _Lock:
    """A file lock held from a miss until the compiled kernel is saved."""

    def __init__(self):
        self._file = None

    def acquire(self):
        if self._file is None:
            try:
                self._file = open(_FOLDER / "lock", "w")  # noqa: SIM115
                fcntl.flock(self._file, fcntl.LOCK_EX)
            except OSError:  # a file system without locks: several processes may compile the same
                self.release()

    def release(self):
        if self._file is not None:
            self._file.close()
            self._file = None


_lock = _Lock()


class _Cache(FunctionCache):
    _impl_class = _Impl

    def load_overload(self, sig, target_context):
        found = super().load_overload(sig, target_context)
        if found is None:
            _lock.acquire()  # another process may be about to save this very kernel
            found = super().load_overload(sig, target_context)
            if found is not None:
                _lock.release()
        return found

    def save_overload(self, sig, data):
        try:
            super().save_overload(sig, data)
        finally:
            _lock.release()


def kernel(function):
    """Compile a function that Python code calls; its machine code is cached on disk."""
    dispatcher = numba.njit(nogil=True)(function)
    if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0":
        dispatcher._cache = _Cache(function)
    return dispatcher


_WITHOUT_WRAPPERS: dict = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
helper = numba.njit(**_WITHOUT_WRAPPERS)
"""Compile a function that only kernels call; it becomes part of them."""
