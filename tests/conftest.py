"""What all tests share: runs under mpiexec, and the hypothesis profile.

Under mpiexec (`mpiexec -n N python -m pytest --with-mpi tests/mpi`) every rank runs the same tests
in the same order, and rank 0 alone writes the report. A test that fails on one rank leaves the
others waiting in some collective for ever; so the first failure, on whatever rank, prints its
traceback with the rank and aborts the whole run.
"""

import os
import sys

import pytest
from hypothesis import settings

settings.register_profile("zccl", derandomize=True, deadline=None)
settings.load_profile("zccl")


@pytest.fixture
def setenv(monkeypatch):
    """A function that sets a variable of the environment for zccl, which reads them only once."""
    from zccl.collectives import reduction
    from zccl.config import overrides

    def forget():
        overrides.cache_clear()
        reduction.forget()

    def set_variable(name, value):
        monkeypatch.setenv(name, value)
        forget()

    yield set_variable
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="session", autouse=True)
def collectives_on_device():
    """Runs the MPI tests on a GPU when `ZCCL_TEST_DEVICE` is set."""
    if os.environ.get("ZCCL_TEST_DEVICE"):
        from mpi.on_device import install

        install()


def pytest_collection_modifyitems(items):
    if os.environ.get("ZCCL_TEST_DEVICE"):
        for item in items:
            if item.get_closest_marker("host") or "read-only" in item.name:
                item.add_marker(pytest.mark.skip(reason="looks at the memory of the host"))


world = None  # MPI.COMM_WORLD in a run of several ranks


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    global world
    if not config.getoption("--with-mpi"):
        return
    from mpi4py import MPI

    if MPI.COMM_WORLD.size > 1:
        world = MPI.COMM_WORLD
        if world.rank > 0:
            # The terminal reporter, made right after this, writes where sys.stdout leads to now.
            sys.stdout = open(os.devnull, "w")


def abort(where, text):
    """End the run on all ranks."""
    # Not sys.stderr: pytest may be capturing it at this moment.
    print(f"\nrank {world.rank} of {world.size}: {where}\n{text}", file=sys.__stderr__, flush=True)
    world.Abort(1)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if world is not None and report.failed:
        abort(f"{report.nodeid} ({report.when})", report.longreprtext)


def pytest_collectreport(report):
    if world is not None and report.failed:
        abort(f"collecting {report.nodeid}", report.longreprtext)


def pytest_internalerror(excrepr):
    if world is not None:
        abort("error in pytest", str(excrepr))
