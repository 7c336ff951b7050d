"""What a communicator's plan says beforehand, and what a call then does."""

import numpy as np
import pytest
from mpi.checks import COMM, SIZE, wave
from mpi4py import MPI

import zccl
from zccl.plan import ALGORITHMS
from zccl.transport.mpi import transport_of

pytestmark = pytest.mark.mpi


@pytest.fixture
def comm():
    with zccl.Communicator(COMM, error_bound=1e-3, mode="rel") as found:
        yield found


@pytest.fixture
def apart(monkeypatch, comm):
    """Each rank seems to be on a node of its own."""
    monkeypatch.setattr(transport_of(COMM), "one_node", False)
    return comm


@pytest.mark.parametrize("collective", ALGORITHMS)
def test_a_plan_names_every_candidate(apart, collective):
    plan = apart.plan(collective, 1 << 22, np.float32, sample=wave(100_000))
    text = plan.explain()
    for name in (*ALGORITHMS[collective], "native"):
        assert name in text
    assert plan.algorithm in (*ALGORITHMS[collective], "native")
    assert "nan" not in text.lower() and "chosen" in text


@pytest.mark.host
@pytest.mark.parametrize("count", [1000, 100_000, 3_000_000])
def test_a_call_does_what_its_plan_says(apart, count):
    x = wave(count)
    low, high = COMM.allreduce(x.min(), MPI.MIN), COMM.allreduce(x.max(), MPI.MAX)
    x[0], x[-1] = low, high  # every rank sees the range of all
    plan = apart.plan("allreduce", count, "f4", sample=x)
    found = COMM.allgather((plan.ratio, plan.algorithm, plan.reason))
    _, info = apart.allreduce(x, return_info=True)
    assert (info.algorithm, info.reason) in [told[1:] for told in found]
    if info.algorithm != "native":
        assert info.error_bound == pytest.approx(plan.promised_bound)
        assert plan.estimate.sent_nbytes == pytest.approx(info.wire_nbytes, rel=0.5)


def test_the_speed_of_links_can_be_told(apart):
    """A sum that is not worth coding on a fast link is on a slow one; calls do as plans say."""
    x = wave(1_000_000)
    for gbits, coded in ((0.1, True), (1000, False)):
        options = zccl.Options(link_gbits=gbits)
        plan = apart.plan("allreduce", x.size, "f4", sample=x, options=options)
        _, info = apart.allreduce(x, options=options, return_info=True)
        if SIZE > 1:
            assert (plan.algorithm != "native") == (info.algorithm != "native") == coded


def test_what_is_asked_for_is_planned(comm):
    plan = comm.plan("allreduce", 1000, "f8", algorithm="ring", mode="abs")
    assert (plan.algorithm, plan.reason) == ("ring", "asked for")
    assert plan.promised_bound == 1e-3
    assert plan.rank_bound == pytest.approx(1e-3 / SIZE)
    exact = comm.plan("bcast", 1000, "i4", mode="abs")
    assert exact.algorithm == "native" and exact.promised_bound == 0
    looser = comm.plan("allreduce", 1000, "f8", algorithm="ring", mode="abs", ratio=20)
    assert looser.ratio == 20


@pytest.mark.parametrize(
    ("arguments", "keywords", "says"),
    [
        (("scan", 10, "f4"), {}, "collective"),
        (("bcast", 10, "f4"), {"op": zccl.SUM}, "op"),
        (("allreduce", -1, "f4"), {}, "count"),
        (("allreduce", 10, "S4"), {}, "dtype"),
        (("allreduce", 10, "f4"), {}, "sample"),
        (("allreduce", 10, "f4"), {"mode": "abs", "algorithm": "tree"}, "algorithm"),
        (("allreduce", 10, "f4"), {"mode": "abs", "error_bound": -1}, "error_bound"),
        (("allreduce", 10, "f4"), {"sample": [1.0]}, "sample"),
    ],
)
def test_bad_questions(comm, arguments, keywords, says):
    with pytest.raises((TypeError, ValueError), match=says):
        comm.plan(*arguments, **keywords)
