"""The benchmarks: what they print, that they judge right, and how they end on a fault."""

import argparse
import csv
import importlib.util
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from unit import fake_cupy
from unit.test_cli import ROOT, assert_wrong, launcher, needs_launcher, python, zccl

from zccl.bench import arguments
from zccl.bench.checks import compare
from zccl.bench.fields import SYNTHETIC, load_field, rank_part, tile_field
from zccl.bench.gpus import SHIFT, DeviceField
from zccl.bench.peers import Peer
from zccl.bench.report import Column, Report
from zccl.bench.timing import bandwidths
from zccl.ops import Op

pytestmark = pytest.mark.mpi_skip  # starts runs of its own
FIELD = ROOT / "tests/data/etopo20_f32.npy"
QUICK = ("-b", "8K", "-e", "32K", "-n", "3", "-w", "1", "--format", "json")


def document(ran):
    """What a run with --format json printed."""
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


@needs_launcher
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (2, ["--algorithm", "ring"]),
        (2, ["-d", "complex64", "--budget", "per_rank", "--algorithm", "recursive_doubling"]),
        (3, ["-d", "float64", "-o", "max", "--algorithm", "ring", "--field", FIELD]),
        (3, ["-o", "avg", "--mode", "abs", "--error-bound", "0.5", "--field", "noise"]),
        (2, ["--error-bound", "none"]),
    ],
    ids=["ring", "complex", "max", "avg", "exact"],
)
def test_allreduce(ranks, options):
    found = document(zccl("bench", "allreduce", *QUICK, *options, ranks=ranks))
    assert found["benchmark"] == "allreduce"
    assert found["settings"]["ranks"] == ranks
    assert "--format json" in found["settings"]["command"]
    assert [row["size"] for row in found["rows"]] == [8 << 10, 32 << 10]
    for row in found["rows"]:
        assert 0 < row["time_min_us"] <= row["time_median_us"] <= row["time_max_us"]
        assert row["algbw_gbps"] == pytest.approx(row["size"] / row["time_median_us"] / 1e3)
        assert row["busbw_gbps"] == pytest.approx(row["algbw_gbps"] * 2 * (ranks - 1) / ranks)
        for other in ("native", "ring"):
            speedup = row[f"{other}_median_us"] / row["time_median_us"]
            assert row[f"speedup_{other}"] == pytest.approx(speedup)
        if "none" in options:
            assert "violations" not in row and row["algorithm"] == "native"
            continue
        assert row["violations"] == 0
        # A bound that the range is split by is used up to nearly its end, or the column lies.
        assert 0.4 < row["error_of_bound"] <= 1.001 or row["algorithm"] == "native"
        if "--algorithm" in options:
            assert row["ratio"] > 1.5
            assert row["wire_nbytes"] < 2 * row["size"]


@needs_launcher
def test_allreduce_counts_violations():
    """A result that breaks its bound shows in #viol and in the exit code."""
    code = (
        "import sys, zccl, zccl.cli.main as m, zccl.collectives.allreduce as c\n"
        "true = c.allreduce\n"
        "def false(*args, **how):\n"
        "    found = true(*args, **how)\n"
        "    if how.get('return_info'): found[0][:7] += 1e3\n"
        "    return found\n"
        "zccl.allreduce = false\n"
        f"sys.exit(m.main(['bench', 'allreduce', *{QUICK!r}]))"
    )
    ran = python("-c", code, ranks=2)
    assert ran.returncode == 1, ran.stderr
    assert [row["violations"] for row in json.loads(ran.stdout)["rows"]] == [7, 7]


@needs_launcher
def test_table_and_csv():
    words = ["bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "2", "-w", "1"]
    table = zccl(*words, ranks=2)
    assert table.returncode == 0, table.stderr
    lines = table.stdout.splitlines()
    assert lines[0] == "# zccl bench allreduce"
    assert [line.split()[0] for line in lines if not line.startswith("#")] == ["65536"]
    assert any("#viol" in line and "busbw" in line for line in lines)
    rows = list(csv.DictReader(io.StringIO(zccl(*words, "--format", "csv", ranks=2).stdout)))
    assert len(rows) == 1
    assert rows[0]["size"] == "65536" and rows[0]["violations"] == "0"


@needs_launcher
def test_peers(tmp_path):
    """A peer's numbers get columns; one that fails leaves the own lines and ends with code 2."""
    program = tmp_path / "peer.py"
    program.write_text("print('# hello'); print(8192, 1e-3); print(8192, 3e-3); print(8192, 2e-3)")
    words = ["bench", "allreduce", *QUICK, "--peer", f"other={sys.executable} {program}"]
    first, second = document(zccl(*words, ranks=2))["rows"]
    assert first["other_us"] == pytest.approx(2000)
    assert first["speedup_other"] == pytest.approx(2000 / first["time_median_us"])
    assert "other_us" not in second
    ran = zccl(*words, "--peer", "broken=echo no >&2; exit 3", ranks=2)
    assert_wrong(ran, "peer broken: exit code 3: no")
    assert len(json.loads(ran.stdout)["rows"]) == 2


@needs_launcher
def test_peer_may_start_mpi(tmp_path):
    """A peer under a launcher of its own does not take itself for a part of the benchmark."""
    program = tmp_path / "peer.py"
    program.write_text(
        "from mpi4py import MPI\nif not MPI.COMM_WORLD.rank:\n print(8192, MPI.COMM_WORLD.size)"
    )
    command = " ".join([*launcher(), "-n", "3", sys.executable, str(program)])
    words = ["bench", "allreduce", *QUICK, "--peer", f"three={command}"]
    assert document(zccl(*words, ranks=2))["rows"][0]["three_us"] == 3e6


@needs_launcher
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-b", "3"], "-b 3"),
        (["-b", "64K"], "larger than -e"),
        (["-b", "1T"], "'1T'"),
        (["-f", "1"], "--factor"),
        (["-n", "0"], "--iterations"),
        (["-d", "int32"], "--dtype"),
        (["-o", "prod"], "--op"),
        (["-o", "max", "-d", "complex64"], "complex"),
        (["--error-bound", "-1"], "--error-bound"),
        (["--error-bound", "nan"], "--error-bound"),
        (["--mode", "relative"], "--mode"),
        (["--algorithm", "tree"], "--algorithm"),
        (["--budget", "none"], "--budget"),
        (["--field", "nowhere.npy"], "nowhere.npy"),
        (["--field", "setup.cfg"], "setup.cfg"),
        (["--peer", "nothing"], "NAME=COMMAND"),
        (["--colour"], "--colour"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_allreduce_faults(options, says):
    ran = zccl("bench", "allreduce", *QUICK, *options, ranks=2)
    assert_wrong(ran, says)
    assert ran.stdout == ""


@needs_launcher
def test_wrong_variable():
    ran = zccl("bench", "latency", ranks=2, ZCCL_SEGMENT_NBYTES="large")
    assert_wrong(ran, "ZCCL_SEGMENT_NBYTES")


@needs_launcher
def test_latency():
    found = document(zccl("bench", "latency", "-n", "20", "--format", "json", ranks=2))
    by_call = {row["call"]: row for row in found["rows"]}
    assert list(by_call) == ["zccl", "persistent", "plain", "plain+small"]
    assert all(("wire_us" in row) == ("plain" not in row["call"]) for row in found["rows"])
    assert by_call["plain"]["of_plain"] == 1 and by_call["plain+small"]["beyond_agreed_us"] == 0
    own, agreed = by_call["zccl"]["median_us"], by_call["plain+small"]["median_us"]
    assert by_call["zccl"]["beyond_agreed_us"] == pytest.approx(own - agreed)


@needs_launcher
def test_overlap():
    found = document(
        zccl("bench", "overlap", "-b", "1M", "-e", "1M", "-n", "2", "--format", "json", ranks=2)
    )
    assert [row["progress"] for row in found["rows"]] == ["thread", "call"]
    for row in found["rows"]:
        assert row["hidden_us"] == pytest.approx(row["alone_us"] + row["work_us"] - row["both_us"])
        assert row["work_us"] > 0


CODEC = ("bench", "codec", "--size", "64K", "-n", "3", "--format", "json")


@pytest.mark.timeout(300)  # compiles the kernels where they are not cached
def test_codec(tmp_path):
    for name in ("etopo20_f32", "space_weather_ne_f64"):
        (tmp_path / f"{name}.npy").symlink_to(ROOT / f"tests/data/{name}.npy")
    found = document(zccl(*CODEC, "--fields", tmp_path, "--bounds", "1e-2,1e-4", timeout=290))
    keys = [(row["field"], row["type"], row["bound"]) for row in found["rows"]]
    assert keys == [
        (name, dtype, bound)
        for name in ("etopo20_f32", "space_weather_ne_f64")
        for dtype in ("float32", "float64")
        for bound in (1e-2, 1e-4)
    ]
    for row in found["rows"]:
        assert row["violations"] == 0 and 0.5 < row["error_of_bound"] <= 1
        assert row["ratio"] > 2 and row["ratio"] > row["sum_ratio"] > 1
        for name in ("compress", "reduction", "decompress", "hop", "escapes"):
            assert row[f"{name}_gbps"] > 0 and row[f"{name}_of_memcpy"] > 0
    medians = {(line["type"], line["operation"]): line for line in found["summary"]}
    own = [row["hop_of_memcpy"] for row in found["rows"] if row["type"] == "float32"]
    assert medians["float32", "hop"]["of_memcpy"] == pytest.approx(np.median(own))
    coarse = [row["ratio"] for row in found["rows"][::4]]  # float32, 1e-2
    means = [line for line in found["summary"] if line["operation"] == "ratio"]
    assert means[0]["ratio"] == pytest.approx(np.exp(np.mean(np.log(coarse))))


@pytest.mark.timeout(300)  # compiles the plain-loop kernels where they are not cached
def test_codec_with_twin_and_peers(tmp_path):
    """The twin is the slower one; a compressor that is installed gets columns, others do not."""
    (tmp_path / "zfpy.py").write_text(
        "def compress_numpy(array, tolerance): return array.tobytes()\n"
        "def decompress_numpy(stream): return stream\n"
    )
    (tmp_path / "pysz.py").write_text("raise ImportError")
    words = ["-d", "float32", "--bounds", "1e-3", "--twin", "--peers"]
    path = f"{tmp_path}:{ROOT}"
    ran = zccl(*CODEC, *words, timeout=290, PYTHONPATH=path)
    found = document(ran)
    assert {row["field"] for row in found["rows"]} == set(SYNTHETIC)
    assert found["settings"]["left out"].startswith("sz3")
    for row in found["rows"]:
        assert row["zfp_ratio"] == 1 and row["zfp_compress_gbps"] > 0
        assert "sz3_ratio" not in row
    medians = {line["operation"]: line for line in found["summary"]}
    assert all(medians[name]["of_loops"] > 1 for name in ("compress", "decompress", "hop"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--fields", "nowhere"], "nowhere"),
        (["--size", "0"], "--size"),
        (["--bounds", "1e-3,0"], "--bounds"),
        (["--bounds", "small"], "--bounds"),
        (["-d", "complex64"], "--dtype"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_codec_faults(options, says):
    assert_wrong(zccl(*CODEC, *options), says)


def test_codec_refuses_a_constant_field(tmp_path):
    np.save(tmp_path / "flat.npy", np.ones(5000, np.float32))
    assert_wrong(zccl(*CODEC, "--fields", tmp_path), "constant")


@needs_launcher
@pytest.mark.parametrize(
    ("gpus", "says"),
    [("missing", "--device cuda: GPUs need CuPy"), (None, "--device cuda: no GPU: cudaError")],
    ids=["no CuPy", "no GPU"],
)
@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        (CODEC, 0),
        (("bench", "allreduce", *QUICK), 2),
        (("bench", "reduce_scatter", *QUICK), 2),
        (("bench", "scatter", *QUICK, "--transport", "nccl,auto", "--bounds", "1e-2,1e-3"), 2),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_gpu_is_missing(tmp_path, words, ranks, gpus, says):
    path = f"{fake_cupy.write(tmp_path, gpus=gpus)}:{ROOT}"
    ran = zccl(*words, "--device", "cuda", ranks=ranks, PYTHONPATH=path)
    assert_wrong(ran, says)
    assert ran.stdout == ""


@needs_launcher
@pytest.mark.parametrize("name", ["transport", "algorithm"])
def test_gpu_refuses_overrides(tmp_path, name):
    """What holds for every call would hold for plain MPI, too, and zccl be compared with itself."""
    path = f"{fake_cupy.write(tmp_path)}:{ROOT}"
    variable = {f"ZCCL_{name.upper()}": "auto"}
    words = ("bench", "bcast", *QUICK, "--device", "cuda")
    assert_wrong(zccl(*words, ranks=2, PYTHONPATH=path, **variable), f"say --{name} instead")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["allgather", "--transport", "nccl"], "--transport: is for arrays on GPUs"),
        (["reduce", "--bounds", "1e-3"], "--bounds: is for arrays on GPUs"),
        (["bcast", "--beside", "none"], "--beside: is for arrays on GPUs"),
        (["gather", "--device", "tpu"], "--device"),
        (["gather", "--device", "cuda", "--transport", "auto,ucx"], "'auto,ucx'"),
        (["gather", "--device", "cuda", "--bounds", "0"], "numbers > 0"),
        (["gather", "--device", "cuda", "--beside", "mpi"], "'mpi'"),
        (["codec", "--device", "cuda", "--twin"], "--twin: is for --device cpu"),
        (["codec", "--device", "cuda", "--peers"], "--peers: is for --device cpu"),
        (["overlap", "--device", "cuda"], "--device"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_device_faults(words, says):
    assert_wrong(zccl("bench", *words), says)


class TestChecksOnDevice:
    """The module that judges results on GPUs, with NumPy in CuPy's place."""

    @pytest.fixture
    def checks(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "cupy", np)
        path = ROOT / "zccl/bench/device_checks.py"
        spec = importlib.util.spec_from_file_location("checks_on_host", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module, "CHUNK", 1000)
        return module

    @pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
    def test_parts(self, checks, dtype):
        field = DeviceField(np.arange(10_000.0), np.dtype(dtype))
        part = field.filled(2, 3000, start=5)
        assert part[0].real == (5 - 2 * SHIFT) % 10_000 and part.dtype == dtype
        assert np.array_equal(part, np.resize(np.roll(field.row, 2 * SHIFT - 5), 3000))
        assert checks.finite_range(part)[1] == real(part).max()
        assert checks.finite_range(None) == (np.inf, -np.inf)

    @pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
    @pytest.mark.parametrize("op", [Op.SUM, Op.AVG, Op.MAX, Op.MIN, None])
    def test_pieces(self, checks, dtype, op):
        """Right results pass, and every element beyond the bound is counted."""
        field = DeviceField(load_field("noise"), np.dtype(dtype))
        ways = {Op.SUM: np.sum, Op.AVG: np.mean, Op.MAX: np.max, Op.MIN: np.min}
        pieces = [checks.Piece(range(3), 100, 2600), checks.Piece([1], 7, 1234)]
        if op is None:
            pieces[0] = checks.Piece([2], 100, 2600)
        parts = []
        for ranks, start, stop in pieces:
            rows = np.stack([real(field.filled(rank, stop - start, start)) for rank in ranks])
            wide = rows.astype(np.longdouble)
            parts.append((ways[op](wide, axis=0) if op else wide[0]).astype(rows.dtype))
        result = np.concatenate(parts).view(dtype)
        found = checks.check_pieces(field, result, pieces, op, 1e-3)
        assert found.violations == 0 and found.error < 1e-6
        values = real(result)
        values[:3] += 2e-3
        values[-1] = np.nan
        values[5] -= 0.5e-3
        found = checks.check_pieces(field, result, pieces, op, 1e-3)
        assert found.violations == 4 and found.error == pytest.approx(2e-3, rel=1e-3)
        with pytest.raises(AssertionError, match="were checked"):
            checks.check_pieces(field, result, pieces[1:], op, 1e-3)

    @pytest.mark.filterwarnings("ignore:invalid value")  # of which CuPy has none
    def test_bound_to_the_last_bit(self, checks):
        """As `compare` of the host."""
        half = float(np.spacing(np.float32(1))) / 2
        one, near, far = np.float32([1]), np.array([1 + half]), np.array([1 + 2 * half])
        assert checks.compare(one, near, 0.0, 0.0, Op.SUM).violations == 0
        assert checks.compare(one, near, 0.0, 0.0, None).violations == 1
        assert checks.compare(one, far, 0.0, 0.0, Op.SUM).violations == 1
        odd = np.array([np.nan, np.inf, -np.inf])
        assert checks.compare(odd.astype("f4"), odd, 0.0, 0.0, None) == (0.0, 0)


def real(array):
    """The numbers of an array, real and imaginary ones as they lie in memory."""
    return array.view(array.real.dtype)


class TestBenchGpu:
    """scripts/bench-gpu.sh, without a GPU."""

    def run(self, tmp_path, *words, gpus=0, **variables):
        listing = "exit 9" if not gpus else f"seq -f 'GPU %g' {gpus}"
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{listing}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", ROOT / "scripts/bench-gpu.sh", *words],
            env={**os.environ, "PATH": path, "PYTHON": sys.executable, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def test_without_gpus(self, tmp_path):
        for words, wanted in (((), 2), (("codec",), 1), (("--ranks", "4", "tcp"), 4)):
            ran = self.run(tmp_path, *words)
            assert (ran.returncode, ran.stderr) == (77, "")
            assert ran.stdout == f"not run: needs {wanted} NVIDIA GPUs, this machine has 0\n"

    def test_without_tc(self, tmp_path):
        ran = self.run(tmp_path, "10gbit", "25gbit", gpus=2, TC="false")
        assert (ran.returncode, ran.stderr) == (77, "")
        assert ran.stdout.count("not run: needs root and tc") == 2

    def test_lines(self, tmp_path):
        """What each part starts, and that a failed run makes it fail."""
        log = tmp_path / "log"
        launcher = tmp_path / "launcher"
        launcher.write_text(
            f'#!/bin/sh\necho "$OMPI_MCA_btl $NCCL_NET $*" >>{log}\n'
            "case $* in *bcast*) exit 3; esac\n"
        )
        launcher.chmod(0o755)
        words = ("10gbit", "tcp", "nvlink", "--nbytes", "8M")
        how = {"gpus": 2, "TC": "true", "MPIEXEC": str(launcher)}
        ran = self.run(tmp_path, *words, **how)
        assert ran.returncode == 1 and "# bcast: exit code 3" in ran.stdout, ran.stderr
        lines = log.read_text().splitlines()
        assert len(lines) == 8
        assert all(line.startswith("tcp,self Socket -n 2 ") for line in lines[:-1])
        assert "--transport auto --bounds 1e-3 --beside nccl -b 1M -e 8M" in lines[-1]
        assert "allreduce --algorithm ring --bounds 1e-2,1e-3,1e-4 -b 8M" in lines[0]
        assert self.run(tmp_path, "tcp", **how).returncode == 0

    def test_wrong_words(self, tmp_path):
        for words in (["fast"], ["--nbytes", "-1"], ["--ranks", "two"], ["--speed"]):
            ran = self.run(tmp_path, *words)
            assert ran.returncode == 1 and ran.stderr.startswith("error: ")
        ran = self.run(tmp_path, "--help")
        assert ran.returncode == 0 and ran.stdout.startswith("usage: bash scripts/bench-gpu.sh")


@needs_launcher
def test_codec_takes_one_process():
    assert_wrong(zccl(*CODEC, ranks=2), "single process")


@needs_launcher
@pytest.mark.parametrize("ranks", [1, 3])
def test_plain_ring_is_right(ranks):
    """What zccl is held against does the whole work."""
    code = (
        "import numpy as np; from mpi4py import MPI; from zccl.bench.plain_ring import *\n"
        "comm = MPI.COMM_WORLD; everyone = np.arange(comm.size)[:, None] + 1\n"
        "ways = {Op.SUM: np.sum, Op.AVG: np.mean, Op.MAX: np.max, Op.MIN: np.min}\n"
        "for op, way in ways.items():\n"
        "    for n in (1, 2, 10, 1001):\n"
        "        data = (everyone * np.arange(1, n + 1) % 7).astype('f4')\n"
        "        result = np.empty(n, 'f4')\n"
        "        ring_allreduce(comm, data[comm.rank], result, op)()\n"
        "        assert np.allclose(result, way(data, axis=0)), (op, n)\n"
    )
    ran = python("-c", code, ranks=ranks)
    assert ran.returncode == 0, ran.stderr


def test_sizes():
    assert [arguments.nbytes(text) for text in ("8", "64K", "4m", "1G")] == [
        8,
        1 << 16,
        1 << 22,
        1 << 30,
    ]
    for text in ("", "0", "-8", "1.5K", "4X", "K"):
        with pytest.raises(argparse.ArgumentTypeError):
            arguments.nbytes(text)
    given = argparse.Namespace(begin=1000, end=20_000, factor=3)
    assert arguments.sizes(given, 16) == [992, 2992, 8992]


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("allreduce", 1.5), ("allgather", 0.75), ("scatter", 0.75), ("bcast", 1), ("reduce", 1)],
)
def test_bandwidths(collective, factor):
    assert bandwidths(collective, 2_000_000_000, 4.0, 4) == (0.5, 0.5 * factor)


def test_compare():
    """Bound and rounding, to the last bit."""
    exact = np.array([1.0, 1.0, 1.0, np.nan, np.inf, 0.0])
    result = np.float32([1.0, 1.5, 1.25, np.nan, np.inf, np.nan])
    found = compare(result, exact, 0.25, rounding=False)
    assert found.error == 0.5 and found.violations == 2
    half = float(np.spacing(np.float32(1))) / 2
    near, far = np.array([1 + half]), np.array([1 + 2 * half])
    assert compare(np.float32([1]), near, 0.0, rounding=True).violations == 0
    assert compare(np.float32([1]), near, 0.0, rounding=False).violations == 1
    assert compare(np.float32([1]), far, 0.0, rounding=True).violations == 1


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_fields(name):
    field = load_field(name)
    assert field.dtype == np.float32 and np.isfinite(field).all() and np.ptp(field) > 0
    assert np.array_equal(field, load_field(name)), "runs must see the same data"


def test_parts_differ_between_ranks():
    field = np.arange(10.0).reshape(5, 2)
    parts = [rank_part(field, 12, np.dtype("f4"), rank, 2) for rank in range(2)]
    assert parts[0].tolist() == [*range(10), 0, 1]
    assert parts[1].tolist() == [*range(5, 10), *range(5), 5, 6]
    assert rank_part(field, 3, np.dtype("c8"), 0, 2).tolist() == [5j, 1 + 6j, 2 + 7j]
    assert tile_field(field, 25, np.dtype("f8")).shape == (12, 2)
    assert tile_field(np.ones((2, 50)), 25, np.dtype("f8")).shape == (25,)


def test_peer_lines():
    assert Peer("x", "echo '8 1e-6'; echo '# 9 9'; echo ' 16  2.5 '; echo '32 1-2'").seconds() == {
        8: 1e-6,
        16: 2.5,
    }
    with pytest.raises(ValueError, match="no line"):
        Peer("x", "echo 8 bytes").seconds()


def test_report_without_values(capsys):
    """What is missing is a dash in tables, and no NaN gets into JSON."""
    columns = [Column("a", "A", "us", ".1f", 5), Column("b", "B"), Column("c", "C", detail=True)]
    for form in ("table", "json"):
        report = Report("x", {}, columns, form)
        report.add({"a": float("nan"), "c": 3})
        report.finish()
    table, _, rest = capsys.readouterr().out.partition("{")
    assert table.splitlines()[-1].split() == ["-", "-"]
    assert json.loads("{" + rest)["rows"] == [{"a": None, "c": 3}]
