"""One short pass over every kernel, for tools that slow kernels down."""

import numpy as np
import pytest
from unit import hostile

from zccl.kernels import spec
from zccl.ops import Op
from zccl.tiling import Tiling

pytestmark = pytest.mark.gpu
N = 5 * 1024 + 7  # the last tile is short


@pytest.fixture
def launched(monkeypatch):
    """Names of the kernels that were launched."""
    from zccl.kernels.cuda import rows

    names = set()
    launch = rows.Rows._launch

    def noted(self, name, *arguments):
        names.add(name)
        return launch(self, name, *arguments)

    monkeypatch.setattr(rows.Rows, "_launch", noted)
    return names


def everything(gpu, dtype):
    """Launch every kernel for a value type, on usual tiles and on such as are left over."""
    values = hostile.make("walk", "some specials", dtype, N, 3)
    step = hostile.step_for(1e-3, dtype)
    a, _ = gpu.compress(values, step, 1e-3, movement=False, ranks=2)
    b, _ = gpu.compress(values[::-1].copy(), step, 1e-3, movement=False, ranks=2, rank=1)
    assert gpu.verify(a, N) == (0, a.checksum)
    for divisor in (1.0, 3.0):
        _, status, checksum = gpu.decompress(a, N, step, divisor=divisor, reduced=True)
        assert (status, checksum) == (0, a.checksum)
    for op in (0, 1, 2):
        total, status = gpu.combine(a, b, op, N, step)
        assert status == 0
        again, status, _ = gpu.combine_with_values(values, b, op, step, ranks=2, rank=0)
        assert status == 0 and again.words.tobytes() == total.words.tobytes()
    assert gpu.value_range(values) == gpu.value_range(values, shift=1)
    move(gpu, dtype)


def move(gpu, dtype):
    """Gather an array into a row of tiles and scatter it again."""
    for axes in (2, 3):
        array = np.arange(2 * 9 * 40, dtype=dtype).reshape(2, 9, 40)
        tiling = Tiling.of(array.shape, axes)
        x, row = gpu.upload(array.reshape(-1)), gpu.upload(np.zeros(tiling.n, dtype))
        gpu.rows.gather(x.data.ptr, row.data.ptr, 0, tiling.n, tiling)()
        gpu.cupy.cuda.Device().synchronize()
        assert row.get().tobytes() == spec.to_row(array, axes).tobytes()
        x[:] = 0
        gpu.cupy.cuda.Device().synchronize()
        gpu.rows.scatter(x.data.ptr, row.data.ptr, 0, tiling.n, tiling)()
        gpu.cupy.cuda.Device().synchronize()
        assert x.get().tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_for_streams(device, launched, dtype):
    everything(device(dtype), np.dtype(dtype))
    suffix = "f32" if dtype == np.float32 else "f64"
    assert {name for name in device(dtype).module.KERNELS if name.endswith(suffix)} <= launched | {
        f"plain_{suffix}"
    }
    assert {"combine", "extremes", "sum_groups", "gather", "verify"} <= launched


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_kernels_for_plain_values(device, launched, dtype):
    cupy = device(dtype).cupy
    from zccl.codecs.device_plain import divide_floats, reduce_floats

    x, y = (cupy.asarray(hostile.make("walk", "some specials", dtype, N, k)) for k in (1, 2))
    for op in (Op.SUM, Op.MAX, Op.MIN):
        assert reduce_floats(op, x, y).size == N
    assert divide_floats(x, 3.0).size == N
    assert {name[:5] for name in launched} == {"plain"}
