"""All CUDA kernels compile without a GPU, move 16 bytes a thread, and contract nothing."""

import re
import shutil
import subprocess

import pytest

CAPABILITIES = [(7, 5), (8, 0), (9, 0), (10, 0)]


def kernels():
    """Return all kernels by name, or the reason why there are none."""
    try:
        from zccl.kernels.cuda.rows import KERNELS
    except ImportError as error:
        return f"numba-cuda cannot be imported: {error}"
    return KERNELS


@pytest.fixture(scope="module")
def ptx_of():
    """A function that compiles a kernel by name, once."""
    found = kernels()
    if isinstance(found, str):
        pytest.skip(found)
    from zccl.kernels.cuda._compat import compile_ptx, has_compiler

    if not has_compiler():
        pytest.skip("no NVVM library: install numba-cuda[cu12] or numba-cuda[cu13]")
    texts = {}

    def compile_once(name, cc=(9, 0)):
        if (name, cc) not in texts:
            k = found[name]
            texts[name, cc] = compile_ptx(k.function, k.signature, cc, k.warps, k.max_registers)[0]
        return texts[name, cc]

    return compile_once


def names():
    found = kernels()
    return [] if isinstance(found, str) else sorted(found)


def variants():
    """Return (capability, name): all kernels for sm_90, for others those for usual float32 tiles.

    Together that takes one to two minutes.
    """
    usual = [name for name in names() if not re.search("rest|f64|divided", name)]
    return [(cc, name) for cc in CAPABILITIES for name in (names() if cc == (9, 0) else usual)]


@pytest.mark.parametrize(("cc", "name"), variants())
def test_compiles(ptx_of, cc, name):
    text = ptx_of(name, cc)
    assert re.search(rf"^\.target sm_{cc[0]}{cc[1]}\b", text, re.M)
    # The newer compiler for sm_100 leaves some loops rolled, and what they index in local memory.
    assert cc >= (10, 0) or not re.search(r"\.local\b", text), "an array lies in local memory"
    assert cc >= (8, 0) or not re.search(r"redux\.sync|cp\.async", text), "an instruction it lacks"
    assert ("griddepcontrol.wait" in text) == (cc >= (9, 0)), "when the kernel may start"


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
