"""Ranks that a foreign launcher started alone are refused, not left to work each for itself."""

import os
import subprocess
import sys

import pytest

CALL = "import numpy as np, zccl; zccl.allreduce(np.ones(3))"
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def run(**variables):
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHERS}
    return subprocess.run(
        [sys.executable, "-c", CALL], env=environment | variables, capture_output=True, text=True
    )


def test_a_single_rank_is_fine():
    assert run().returncode == 0
    assert run(SLURM_STEP_NUM_TASKS="1").returncode == 0


@pytest.mark.parametrize("name", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"])
def test_singletons_are_refused(name):
    result = run(**{name: "4"})
    assert result.returncode == 1
    assert "every rank runs alone" in result.stderr and name in result.stderr
