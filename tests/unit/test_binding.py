"""zccl.bind_gpu, with a stand-in for CuPy: which GPU a rank gets, warnings, errors on all ranks."""

import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from unit import fake_cupy
from unit.test_image_stacking import launcher

import zccl

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.mpi_skip  # starts runs of its own
needs_launcher = pytest.mark.skipif(launcher() is None, reason="needs mpiexec")


@pytest.fixture
def cupy(tmp_path, monkeypatch):
    """A function that puts a stand-in in CuPy's place."""

    def ours():
        return [n for n in sys.modules if n.split(".")[0] == "cupy" or n == "zccl.transport.gpus"]

    def put(**gpus):
        monkeypatch.syspath_prepend(fake_cupy.write(tmp_path, **gpus))
        return importlib.import_module("cupy")

    for name in ours():
        monkeypatch.delitem(sys.modules, name)
    yield put
    for name in ours():
        del sys.modules[name]  # before what was there comes back


def test_single_rank(cupy):
    module = cupy(gpus=3)
    module.cuda.Device(2).use()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert zccl.bind_gpu() == 0
    assert module.cuda.current == 0


@pytest.mark.parametrize(
    ("gpus", "says"), [(0, "no GPU: CUDA shows none"), (None, "no GPU: cudaErrorNoDevice")]
)
def test_without_gpu(cupy, gpus, says):
    cupy(gpus=gpus)
    with pytest.raises(zccl.TransportError, match=says):
        zccl.bind_gpu()


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(zccl.TransportError, match="GPUs need CuPy: pip install"):
        zccl.bind_gpu()


def test_wrong_communicator():
    with pytest.raises(TypeError, match="comm: got str"):
        zccl.bind_gpu("world")


RANKS = """
import json, sys, warnings
from pathlib import Path
from mpi4py import MPI
import zccl

comm, found = MPI.COMM_WORLD, []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for where in (comm, comm, comm.Split(0, -comm.rank)):
        try:
            found.append(zccl.bind_gpu(where))
        except zccl.TransportError as error:
            found.append(str(error))
text = [f"{w.category.__name__}: {w.message}" for w in caught]
Path(sys.argv[1], f"rank{comm.rank}").write_text(json.dumps([found, text]))
"""


def run(tmp_path, ranks, **gpus):
    """Bind on some ranks, three times: what each got, and its warnings."""
    fake_cupy.write(tmp_path, **gpus)
    path = f"{tmp_path}:{ROOT}"
    ran = subprocess.run(
        [*launcher(), "-n", str(ranks), sys.executable, "-c", RANKS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads((tmp_path / f"rank{rank}").read_text()) for rank in range(ranks)]


@needs_launcher
def test_more_ranks_than_gpus(tmp_path):
    """Round robin within the node; the lowest rank of each shared GPU warns, once."""
    ranks = run(tmp_path, 3, gpus=2)
    assert [found for found, _ in ranks] == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]
    counts = [len(text) for _, text in ranks]
    assert counts == [1, 0, 0]
    assert ranks[0][1][0].startswith("RuntimeWarning: ranks [0, 2] share one GPU (GPU-0101")


@needs_launcher
def test_sharing_is_told_by_uuid(tmp_path):
    """Two numbers of one GPU are one GPU; four of four are not shared."""
    ranks = run(tmp_path / "one", 2, gpus=2, uuids=[7, 7])
    assert [len(text) for _, text in ranks] == [1, 0]
    ranks = run(tmp_path / "four", 2, gpus=4)
    assert [text for _, text in ranks] == [[], []]


@needs_launcher
@pytest.mark.parametrize(("gpus", "says"), [(None, "no GPU"), ("missing", "GPUs need CuPy")])
def test_errors_on_all_ranks(tmp_path, gpus, says):
    for found, _ in run(tmp_path, 2, gpus=gpus):
        assert all(says in text for text in found)
