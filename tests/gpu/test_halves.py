"""float16 on a GPU: converted to the bits that NumPy gives."""

import numpy as np
import pytest

pytestmark = pytest.mark.gpu


def test_every_half_has_the_bits_of_the_cpu(device):
    """Also NaN, of which the GPU's own conversion makes one."""
    cupy = device("f4").cupy
    from zccl.device import device_from_values, device_values

    halves = np.arange(1 << 16, dtype=np.uint16).view("f2")
    singles = device_values(cupy.asarray(halves))
    assert singles.get().tobytes() == halves.astype("f4").tobytes()
    out = cupy.empty(halves.size, "f2")
    device_from_values(singles, out)
    assert out.get().tobytes() == halves.tobytes()
    bits = np.arange(0x7F7FF000, 0x7F7FF000 + (1 << 20), dtype=np.uint32)
    values = np.concatenate([bits, bits | 1 << 31, np.arange(0x3300_0000, 0x3880_0000, 4097)])
    values = values.astype(np.uint32).view(np.float32)
    out = cupy.empty(values.size, "f2")
    device_from_values(cupy.asarray(values), out)
    with np.errstate(all="ignore"):
        assert out.get().tobytes() == values.astype("f2").tobytes()
