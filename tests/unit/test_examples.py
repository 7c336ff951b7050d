"""The short examples, run by a launcher as a user would; they check their results themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from unit.test_image_stacking import launcher

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ["broadcast", "scatter_gather", "sharded_sum", "transpose"]
LONGEST = 60  # lines


pytestmark = pytest.mark.mpi_skip  # starts runs of its own


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.skipif(launcher() is None, reason="needs mpiexec")
def test_example_keeps_its_promise(name, ranks):
    command = [*launcher(), "-n", str(ranks), sys.executable, f"examples/{name}.py"]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_short_and_say_how_to_start_them(name):
    text = (ROOT / f"examples/{name}.py").read_text()
    assert text.count("\n") <= LONGEST
    assert f"mpiexec -n 4 python examples/{name}.py" in text
