"""The codec on plain-loop kernels, beside the usual one in the same process."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

_VARIABLE = "ZCCL_PLAIN_LOOPS"


def _belongs(name: str) -> bool:
    kernels = "zccl.kernels.cpu"
    return name in (kernels, "zccl.codecs.tiles") or name.startswith(f"{kernels}.")


def plain_loop_tiles() -> ModuleType:
    """Import `zccl.codecs.tiles` and all kernels once more, on plain loops.

    Both kinds stay usable: every module keeps what it was imported with. The kernels have a compile
    cache of their own.
    """
    import zccl.codecs.tiles
    import zccl.kernels.cpu

    usual = {name: module for name, module in sys.modules.items() if _belongs(name)}
    packages = (zccl.codecs, "tiles"), (zccl.kernels, "cpu")
    attributes = [(package, name, getattr(package, name)) for package, name in packages]
    setting = os.environ.get(_VARIABLE)
    for name in usual:
        del sys.modules[name]
    os.environ[_VARIABLE] = "1"
    try:
        return importlib.import_module("zccl.codecs.tiles")
    finally:
        if setting is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = setting
        for name in [name for name in sys.modules if _belongs(name)]:
            del sys.modules[name]
        sys.modules.update(usual)
        for package, name, module in attributes:
            setattr(package, name, module)
