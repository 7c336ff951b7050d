"""Processes that try what may crash: whatever they print, and however they end."""

import sys
import time

import pytest
from unit import fake_cupy

CASES = {
    "a line": ("print('works', flush=True)", "works", ""),
    "two lines at once": ("print('works'); print('more', flush=True)", "works", ""),
    "half a line": ("print('wor', end='', flush=True); time.sleep(60)", "", "no answer in 1 s"),
    "nothing": ("time.sleep(60)", "", "no answer in 1 s"),
    "half a line, then the end": ("print('wor', end='', flush=True)", "", "it crashed"),
    "a crash": ("os.abort()", "", "it crashed"),
}


@pytest.fixture
def devices(monkeypatch, tmp_path):
    """The module, on a machine with CuPy's stand-in."""
    for name in [name for name in sys.modules if name == "cupy" or name.startswith("cupy.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("zccl.transport.devices", "zccl.transport.gpus"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(fake_cupy.write(tmp_path))
    from zccl.transport import devices

    yield devices
    for name in ("zccl.transport.devices", "zccl.transport.gpus", "cupy", "cupy.cuda"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_a_process_says(devices, monkeypatch, tmp_path, case):
    program, line, fault = CASES[case]
    start = tmp_path / "python"
    start.write_text(f"#!{sys.executable}\nimport os, sys, time\n{program}\n")
    start.chmod(0o755)
    monkeypatch.setattr(devices, "PROBE_SECONDS", 1)
    monkeypatch.setattr(devices.sys, "executable", str(start))
    begin = time.monotonic()
    with devices._Child(["nccl"]) as child:
        assert (child.line(), child.fault) == (line, fault)
        if case == "two lines at once":
            assert child.line() == "more"
    assert time.monotonic() - begin < 10
