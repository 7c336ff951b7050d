"""All CUDA kernels compile without a GPU, move 16 bytes a thread, and contract nothing."""

import multiprocessing
import os
import re
import shutil
import subprocess
from concurrent.futures import ProcessPoolExecutor

import pytest

CAPABILITIES = [(7, 5), (8, 0), (9, 0), (10, 0)]


def kernels():
    """Return all kernels by name, or the reason why there are none."""
    try:
        from zccl.kernels.cuda import packing, rows
    except ImportError as error:
        return f"numba-cuda cannot be imported: {error}"
    return rows.KERNELS | packing.KERNELS


def compiled(name, cc):
    """Return the PTX of a kernel; in a process of its own."""
    from zccl.kernels.cuda._compat import compile_ptx

    k = kernels()[name]
    return compile_ptx(k.function, k.signature, cc, k.warps, k.max_registers)[0]


@pytest.fixture(scope="module")
def ptx_of(request):
    """A function that returns the PTX of a kernel; the tests' kernels are compiled on all cores."""
    found = kernels()
    if isinstance(found, str):
        pytest.skip(found)
    from zccl.kernels.cuda._compat import has_compiler

    if not has_compiler():
        pytest.skip("no NVVM library: install numba-cuda[cu12] or numba-cuda[cu13]")
    wanted = {}
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if item.module is request.module and "name" in parameters:
            wanted[parameters["name"], parameters.get("cc", (9, 0))] = None
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=fresh) as pool:
        texts = {key: pool.submit(compiled, *key) for key in wanted}
        yield lambda name, cc=(9, 0): texts[name, cc].result()


def names():
    found = kernels()
    return [] if isinstance(found, str) else sorted(found)


def variants():
    """Return (capability, name) of all kernels."""
    return [(cc, name) for cc in CAPABILITIES for name in names()]


@pytest.mark.parametrize(("cc", "name"), variants())
def test_compiles(ptx_of, cc, name):
    text = ptx_of(name, cc)
    assert re.search(rf"^\.target sm_{cc[0]}{cc[1]}\b", text, re.M)
    # The newer compiler for sm_100 leaves some loops rolled, and what they index in local memory.
    assert cc >= (10, 0) or not re.search(r"\.local\b", text), "an array lies in local memory"
    assert cc >= (8, 0) or not re.search(r"redux\.sync|cp\.async", text), "an instruction it lacks"
    assert ("griddepcontrol.wait" in text) == (cc >= (9, 0)), "when the kernel may start"


@pytest.mark.parametrize("name", names())
def test_waits_before_it_looks_at_memory(ptx_of, name):
    """A kernel that starts early waits first: what the one before it writes is then all there.

    Also for `ld.global.nc`, whose memory must not change while a kernel uses it. That no kernel
    ends before the one in front of it needs the wait on every path: it comes before any branch.
    """
    text = ptx_of(name)
    body = text[text.index("\n{", text.index(".entry")) :]
    before = body[: body.index("griddepcontrol.wait")]
    access = r"^\s*(?:@\S+\s+)?(?:ld\.(?!param)|st\.|atom\.|red\.|cp\.async|bra|ret|\$L)"
    assert not re.findall(access + ".*", before, re.M)
    assert re.search(access, body[len(before) :], re.M)


@pytest.mark.parametrize("name", names())
def test_nothing_is_contracted(ptx_of, name):
    """Codes and values are those of a CPU only if each operation rounds by itself.

    Divisions are made of fused steps on purpose.
    """
    fused = re.findall(r"\bfma\.\w+|\bmad\.rn\.f\d+", ptx_of(name))
    assert not fused or name.startswith("decompress_divided")


WIDE = {
    "compress_f32": {
        "ld.global.nc.L1::no_allocate.v4.f32": 8,
        "st.shared.v4": 8,
        "ld.shared.v4": 8,
    },
    "combine_values_f32": {"ld.global.nc.L1::no_allocate.v4.f32": 8, "st.shared.v4": 8},
    "decompress_f32": {"st.global.cs.v4.f32": 1, "st.shared.v4": 8},
    "compress_f64": {"ld.global.nc.L1::no_allocate.v2.f64": 16, "st.shared.v2": 16},
    "decompress_f64": {"st.global.cs.v2.f64": 1},
    "value_range_f32": {"ld.global.nc.L1::no_allocate.v4.f32": 1},
}


@pytest.mark.parametrize("name", sorted(WIDE))
def test_moves_16_bytes_a_thread(ptx_of, name):
    """All rows of a tile are under way together: the loop over them is unrolled."""
    for instruction, least in WIDE[name].items():
        assert ptx_of(name).count(instruction) >= least, instruction


@pytest.mark.parametrize("name", ["combine", "combine_values_f32", "decompress_f32", "verify"])
def test_no_spills(ptx_of, name, tmp_path):
    ptxas = shutil.which("ptxas")
    if not ptxas:
        pytest.skip("no ptxas on the path")
    # An older assembler refuses the version number, not the instructions.
    text = re.sub(r"^\.version .*", ".version 8.0", ptx_of(name), flags=re.M)
    source = tmp_path / "kernel.ptx"
    source.write_text(text)
    result = subprocess.run(
        [ptxas, "-arch=sm_90", "-v", source, "-o", tmp_path / "kernel.cubin"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "0 bytes spill stores" in result.stderr
