"""Whole compressors with an error bound: zccl's denser settings; zfp and SZ3 where installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import zccl
from zccl.typing import Array


class CodecPeer(NamedTuple):
    """A compressor: array and absolute bound to bytes; bytes and a like array to an array."""

    compress: Callable[[Array, float], Any]
    decompress: Callable[[Any, Array], Array]


def _zfp(zfpy: Any) -> CodecPeer:
    def compress(array: Array, bound: float) -> bytes:
        # zfp takes at most four axes.
        few = array if array.ndim <= 4 else array.reshape(-1, *array.shape[-3:])
        return zfpy.compress_numpy(few, tolerance=bound)

    return CodecPeer(compress, lambda stream, like: zfpy.decompress_numpy(stream))


def _sz3(pysz: Any) -> CodecPeer:
    def compress(array: Array, bound: float) -> Array:
        config = pysz.szConfig(array.shape)
        config.errorBoundMode = pysz.szErrorBoundMode.ABS
        config.absErrorBound = bound
        return pysz.sz.compress(array, config)[0]

    def decompress(stream: Array, like: Array) -> Array:
        return pysz.sz.decompress(stream, like.dtype, like.shape)[0]

    return CodecPeer(compress, decompress)


def _zccl(predictor: str, coding: str) -> CodecPeer:
    options = zccl.Options(predictor=predictor, coding=coding)
    return CodecPeer(
        lambda array, bound: zccl.compress(array, bound, options=options),
        lambda stream, like: zccl.decompress(stream),
    )


_OWN = {"tiles": ("auto", "fixed"), "packed": ("1d", "entropy"), "dense": ("auto", "entropy")}
_PEERS = {"zfp": ("zfpy", _zfp), "sz3": ("pysz", _sz3)}
NAMES = tuple(_PEERS)


def installed_peers() -> dict[str, CodecPeer]:
    """Return zccl's own denser settings, and the compressors that can be imported."""
    found = {name: _zccl(*setting) for name, setting in _OWN.items()}
    for name, (module, make) in _PEERS.items():
        try:
            found[name] = make(importlib.import_module(module))
        except ImportError:
            continue
    return found


def stream_nbytes(stream: Any) -> int:
    """Bytes of a compressed array."""
    return np.asarray(memoryview(stream)).nbytes
