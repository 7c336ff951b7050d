"""The example examples/image_stacking.py, run by a launcher as a user would."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from unit import fake_cupy

ROOT = Path(__file__).resolve().parents[2]
FIELD = ROOT / "tests/data/rtm_partial_images_f32.npy"


def launcher():
    """Words that start MPI programs: MPIEXEC, or the one of this environment or of the PATH."""
    if os.environ.get("MPIEXEC"):
        return shlex.split(os.environ["MPIEXEC"])
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    return [found] if found else None


pytestmark = [
    pytest.mark.mpi_skip,  # starts runs of its own
    pytest.mark.skipif(launcher() is None, reason="needs mpiexec"),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A small file of partial images, and other things that are not."""
    path = tmp_path_factory.mktemp("images") / "small.h5"
    field = np.load(FIELD)
    with h5py.File(path, "w") as file:
        file["partial_images"] = field
        file["partial_images"].attrs["spacing_m"] = 10.0
        file["flat"] = field[0]
        file["integers"] = np.zeros((2, 3, 4), np.int32)
    return path


def run(images, output, *options, ranks=2, path=ROOT):
    """Run the example on a few ranks."""
    command = [*launcher(), "-n", str(ranks), sys.executable, ROOT / "examples/image_stacking.py"]
    command += ["--input", images, "--output", output, "--mute", "0", *options]
    return subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(path), "NUMBA_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--algorithm", "recursive_doubling", "--error-bound", "50", "--mode", "abs"],
        ["--algorithm", "native"],
    ],
    ids=["ring", "doubling", "native"],
)
def test_stacks(images, tmp_path, options):
    ran = run(images, tmp_path / "out", *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    verdict = "nothing was quantised" if "native" in options else ": kept"
    assert verdict in ran.stdout
    assert "same bytes on all   yes" in ran.stdout
    exact = np.load(FIELD).sum(axis=0, dtype=np.float64)
    rounding = 4 * np.spacing(np.float32(np.abs(exact).max()))  # of a few float32 additions
    with h5py.File(tmp_path / "out/stacked.h5") as file:
        bound = file["stack"].attrs["error_bound"]
        assert np.abs(file["stack"][...] - exact).max() <= bound + rounding
        assert np.abs(file["exact"][...] - exact).max() <= rounding
    if "abs" in options:
        assert bound == 50.0
    picture = (tmp_path / "out/image_stacking.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


def test_more_ranks_than_images(images, tmp_path):
    ran = run(images, tmp_path / "out", ranks=4)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "on 4 ranks" in ran.stdout and ": kept" in ran.stdout


@pytest.mark.parametrize(
    ("gpus", "says"), [(None, "no GPU: cudaErrorNoDevice"), ("missing", "GPUs need CuPy")]
)
def test_without_gpu(images, tmp_path, gpus, says):
    path = f"{fake_cupy.write(tmp_path, gpus=gpus)}:{ROOT}"
    ran = run(images, tmp_path / "out", "--device", "cuda", path=path)
    assert_one_line(ran, says)


def assert_one_line(ran, says):
    """Check for one clear line and exit code 2."""
    lines = [line for line in ran.stderr.splitlines() if line.startswith("image_stacking: error:")]
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert len(lines) == 1 and says in lines[0], ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--input", "nowhere.h5"], "nowhere.h5"),
        (["--input", str(FIELD)], "rtm_partial_images_f32.npy"),
        (["--dataset", "missing"], "no dataset 'missing'"),
        (["--dataset", "flat"], "want float32 or float64 (image, x, depth)"),
        (["--dataset", "integers"], "want float32 or float64 (image, x, depth)"),
        (["--mute", "160"], "--mute 160"),
        (["--error-bound", "-1"], "error_bound"),
        (["--error-bound", "nan"], "error_bound"),
        (["--error-bound", "small"], "--error-bound"),
        (["--mode", "relative"], "--mode"),
        (["--algorithm", "tree"], "--algorithm"),
        (["--device", "tpu"], "--device"),
        (["--colour", "red"], "--colour"),
        (["--output", "/dev/null/folder"], "/dev/null"),
    ],
    ids=lambda value: "-".join(value).replace("/", "_") if isinstance(value, list) else "",
)
def test_faults(images, tmp_path, options, says):
    assert_one_line(run(images, tmp_path / "out", *options), says)


needs_gpu = pytest.mark.skipif(
    shutil.which("nvidia-smi") is None or importlib.util.find_spec("cupy") is None,
    reason="needs a GPU and CuPy",
)


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling"])
def test_same_bits_on_gpus(images, tmp_path, algorithm):
    """Device arrays give what host arrays give, and a line tells what carried them."""
    files = []
    for device in ("cpu", "cuda"):
        ran = run(images, tmp_path / device, "--device", device, "--algorithm", algorithm)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ("carried by" in ran.stdout) == (device == "cuda")
        with h5py.File(tmp_path / device / "stacked.h5") as file:
            files.append([file[name][...].tobytes() for name in ("stack", "exact")])
    assert files[0] == files[1]
