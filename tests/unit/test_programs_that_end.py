"""Programs that end without waiting for what they have started."""

import pytest
from unit.test_cli import needs_launcher, python

pytestmark = pytest.mark.mpi_skip  # starts runs of its own

PROGRAM = """
import numpy as np
import zccl
from mpi4py import MPI

comm = MPI.COMM_WORLD
x = np.linspace(0, 1, 300_000)
request = zccl.iallreduce(
    x, error_bound=1e-3, algorithm="ring", options=zccl.Options(progress="{progress}")
)
if comm.rank:
    print("sum", round(float(request.wait()[-1])))
"""


@needs_launcher
@pytest.mark.parametrize("progress", ["thread", "call"])
def test_a_rank_that_ends_finishes_its_part(progress):
    ran = python("-c", PROGRAM.format(progress=progress), ranks=2, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["sum", "2"]
    assert "have not ended" not in ran.stderr
