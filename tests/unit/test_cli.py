"""`python -m zccl` as a user starts it: info, help, and what is wrong with a command."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from unit import fake_cupy
from unit.test_image_stacking import launcher

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.mpi_skip  # starts runs of its own
needs_launcher = pytest.mark.skipif(launcher() is None, reason="needs mpiexec")


def python(*words, ranks=0, timeout=100, **variables):
    """Run Python, on some ranks under the launcher, on 0 without it."""
    prefix = [*launcher(), "-n", str(ranks)] if ranks else []
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ZCCL_") or "CACHE" in k}
    return subprocess.run(
        [*prefix, sys.executable, *map(str, words)],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "NUMBA_NUM_THREADS": "1", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def zccl(*words, **how):
    """Run `python -m zccl`."""
    return python("-m", "zccl", *words, **how)


def assert_wrong(ran, says):
    """Check for one clear line, exit code 2, and nothing else."""
    lines = [line for line in ran.stderr.splitlines() if line.startswith("zccl: error:")]
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert len(lines) == 1 and says in lines[0], ran.stderr
    assert "Traceback" not in ran.stderr


def value(output, name):
    """The rest of the line of `info` that starts with a name."""
    found = re.findall(rf"^  {re.escape(name)} +(.*)$", output, re.MULTILINE)
    assert len(found) == 1, output
    return found[0]


def test_warmup():
    """All kernels are in the cache afterwards, and it says what it did not do."""
    ran = zccl("warmup")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == [
        "CPU kernels, float32",
        "CPU kernels, float64",
    ]
    assert "CUDA kernels" in lines[2]


def test_info():
    import numpy

    ran = zccl("info", ZCCL_ERROR_BUDGET="per_rank", ZCCL_ALGORITHM="ring")
    assert ran.returncode == 0, ran.stderr
    assert value(ran.stdout, "numpy") == numpy.__version__
    assert value(ran.stdout, "Python").startswith("3.")
    assert value(ran.stdout, "ranks") == "1"
    assert value(ran.stdout, "thread level") in ("single", "funneled", "serialized", "multiple")
    assert value(ran.stdout, "error_budget") == "per_rank  (set by ZCCL_ERROR_BUDGET)"
    assert value(ran.stdout, "algorithm") == "ring  (set by ZCCL_ALGORITHM)"
    assert value(ran.stdout, "segment_nbytes") == "None"
    assert value(ran.stdout, "ZCCL_ERROR_BUDGET") == "per_rank"
    assert "(" in value(ran.stdout, "cache folder")


def test_info_shows_an_unreadable_variable():
    ran = zccl("info", ZCCL_SEGMENT_NBYTES="large")
    assert ran.returncode == 0, ran.stderr
    assert "ZCCL_SEGMENT_NBYTES" in value(ran.stdout, "error")


def test_info_without_mpi(tmp_path):
    """Where MPI cannot be imported, info says why and benchmarks end with one line."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py/__init__.py").write_text("")
    (tmp_path / "mpi4py/MPI.py").write_text("raise RuntimeError('cannot load MPI library')")
    path = f"{tmp_path}:{ROOT}"
    ran = zccl("info", PYTHONPATH=path)
    assert ran.returncode == 0, ran.stderr
    assert value(ran.stdout, "none") == "cannot load MPI library"
    assert_wrong(zccl("bench", "codec", PYTHONPATH=path), "cannot load MPI library")


@needs_launcher
def test_info_on_two_ranks():
    """Rank 0 alone prints."""
    ran = zccl("info", ranks=2)
    assert ran.returncode == 0, ran.stderr
    assert value(ran.stdout, "ranks") == "2"
    assert value(ran.stdout, "nodes").startswith("1 (")


@needs_launcher
def test_help_on_two_ranks():
    """It is printed once, and no error."""
    ran = zccl("bench", "--help", ranks=2)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("usage:") == 1
    assert all(name in ran.stdout for name in ("allreduce", "codec", "latency"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "COMMAND"),
        (["inform"], "inform"),
        (["info", "--colour"], "--colour"),
        (["bench"], "NAME"),
        (["bench", "nothing"], "nothing"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("ranks", [0, pytest.param(2, marks=needs_launcher)])
def test_wrong_words(words, says, ranks):
    assert_wrong(zccl(*words, ranks=ranks), says)


def test_info_is_light():
    """It must work, and fast, where kernels are what is broken."""
    code = (
        "import sys; from zccl.cli.main import main; main(['info'])\n"
        "assert not {'numba', 'zccl.bench', 'zccl.kernels'} & set(sys.modules)"
    )
    ran = python("-c", code)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("gpus", "says"), [(None, "no GPU: cudaErrorNoDevice"), ("missing", "GPUs need CuPy")]
)
@pytest.mark.parametrize("ranks", [0, pytest.param(2, marks=needs_launcher)])
def test_info_without_gpu(tmp_path, gpus, says, ranks):
    """One line says that there is none, and why."""
    path = f"{fake_cupy.write(tmp_path, gpus=gpus)}:{ROOT}"
    ran = zccl("info", ranks=ranks, PYTHONPATH=path)
    assert ran.returncode == 0, ran.stderr
    assert says in value(ran.stdout, "none")
    assert "auto takes" not in ran.stdout


def test_info_with_a_gpu(tmp_path):
    path = f"{fake_cupy.write(tmp_path, gpus=1)}:{ROOT}"
    ran = zccl("info", PYTHONPATH=path)
    assert ran.returncode == 0, ran.stderr
    assert value(ran.stdout, "rank 0").startswith("Fake GPU, GPU-01010101-0101-")
    assert value(ran.stdout, "nccl").startswith("does not work: CuPy has no NCCL")
    assert value(ran.stdout, "mpi-device").startswith("does not work: tried in a process of its")
    assert value(ran.stdout, "auto takes") == "mpi-staged: a single rank sends nothing"


@needs_launcher
def test_info_with_gpus_of_two_ranks(tmp_path):
    """Each rank's GPU, what carries arrays between them, and what is not as it should be."""
    path = f"{fake_cupy.write(tmp_path, gpus=2, uuids=[9, 9])}:{ROOT}"
    ran = zccl("info", ranks=2, PYTHONPATH=path)
    assert ran.returncode == 0, ran.stderr
    assert all("GPU-09090909" in value(ran.stdout, f"rank {rank}") for rank in (0, 1))
    assert value(ran.stdout, "rank 1").endswith(f"number 1 of {os.uname().nodename}")
    assert value(ran.stdout, "auto takes").startswith("mpi-staged: no NCCL: CuPy has no NCCL")
    assert "share one GPU" in ran.stdout and "RuntimeWarning" not in ran.stderr
