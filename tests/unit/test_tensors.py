"""Tensors on a GPU as PyTorch shows them, without PyTorch."""

import sys
from types import SimpleNamespace

import pytest

from zccl.device import device_array, is_device_array
from zccl.streams import stream_pointer


class Learning:
    """A tensor on a GPU that wants gradients."""

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get it on Variable that requires grad: use var.detach()")


class OfHost:
    """A tensor of the host."""

    @property
    def __cuda_array_interface__(self):
        raise AttributeError("not on a GPU")

    def __dlpack_device__(self):
        return 1, 0


def test_one_that_wants_gradients_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    assert is_device_array(Learning())
    with pytest.raises(TypeError, match=r"sendbuf: .* use var.detach\(\)"):
        device_array(Learning(), "sendbuf")


def test_one_of_the_host_is_not_on_a_gpu():
    assert not is_device_array(OfHost())


def test_streams():
    assert stream_pointer(SimpleNamespace(cuda_stream=0x7F00)) == 0x7F00
