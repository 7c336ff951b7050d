"""The package as a whole: what is installed, what an import starts, who may import whom."""

import ast
import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = {"zccl": ROOT / "zccl", "zccl.kernels": ROOT / "kernels"}

# Top to bottom: a file imports from its own room and from rooms below it. Codec and transport stand
# side by side and never import each other.
LADDER = [
    ["tools"],
    ["public"],
    ["algorithms"],
    ["selection"],
    ["codec", "transport"],
    ["device"],
    ["kernels"],
    ["base"],
]
FLOOR = {room: floor for floor, rooms in enumerate(LADDER) for room in rooms}
ROOMS = {
    "tools": "cli bench interop __main__",
    "public": "__init__ binding buffered buffers collectives communicator compression"
    " device_compression info options planning request",
    "algorithms": "algorithms",
    "selection": "plan forecast selector costmodel costformulas machines calibration errorbound",
    "codec": "codecs",
    "transport": "transport",
    "device": "arrays device streams pool",
    "kernels": "kernels",
    "base": "errors config formats tiling typing ops",
}
ROOM = {name: room for room, names in ROOMS.items() for name in names.split()}

# Libraries that some rooms must do without.
FORBIDDEN = {
    "selection": {"mpi4py", "cupy", "numba"},
    "codec": {"mpi4py"},
    "kernels": {"mpi4py", "cupy", "h5py"},
    "base": {"mpi4py", "cupy", "h5py", "numba"},
}


def modules():
    """Dotted name and path of every module of the package."""
    found = {}
    for prefix, folder in SOURCE.items():
        for path in folder.rglob("*.py"):
            inside = path.relative_to(folder)
            if prefix == "zccl" and inside.parts[0] == "kernels":
                continue  # the symlink to the folder of zccl.kernels
            parts = [prefix, *inside.with_suffix("").parts]
            if len(parts) > 2 or prefix == "zccl.kernels":
                parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join(parts)] = path
    return found


MODULES = modules()


def imports(name, path):
    """Dotted names of all that a module imports."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    if name == "zccl.__init__":
        package = ["zccl"]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def room(name):
    """Room of a dotted name below zccl; a name that is no module is an attribute of zccl itself."""
    part = name.split(".")[1] if "." in name else "__init__"
    return ROOM.get(part, "public")


def test_package_list():
    """setup.cfg lists the packages by hand: the list is what is on disk."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = config["options"]["packages"].split()
    on_disk = [
        ".".join([prefix, *path.parent.relative_to(folder).parts])
        for prefix, folder in SOURCE.items()
        for path in folder.rglob("__init__.py")
        if not (prefix == "zccl" and path.relative_to(folder).parts[0] == "kernels")
    ]
    assert sorted(listed) == sorted(on_disk)
    homes = {
        path.parent
        for folder in SOURCE.values()
        for path in folder.rglob("*.py")
        if "kernels" not in path.relative_to(ROOT).parts[1:]
    }
    assert all((home / "__init__.py").exists() for home in homes)


def test_kernels_is_a_link():
    """Editable installs and source-tree tools find zccl.kernels by the link."""
    assert (ROOT / "zccl" / "kernels").readlink() == Path("../kernels")


@pytest.mark.parametrize("name", MODULES)
def test_ladder(name):
    """A module imports only from its own room and from rooms below."""
    own = name.split(".")[1]
    assert own in ROOM, f"{name} belongs to no room: name it in ROOMS"
    for imported in imports(name, MODULES[name]):
        top = imported.split(".")[0]
        assert top not in FORBIDDEN.get(ROOM[own], ()), f"{name} imports {top}"
        if top == "zccl":
            there = room(imported)
            assert there == ROOM[own] or FLOOR[there] > FLOOR[ROOM[own]], (
                f"{name} ({ROOM[own]}) imports {imported} ({there})"
            )


def test_ladder_sees_all_rooms():
    """The ladder test would be empty talk if files were found in a few rooms only."""
    rooms = {ROOM.get(name.split(".")[1]) for name in MODULES}
    assert rooms >= {"public", "algorithms", "selection", "codec", "transport", "kernels", "base"}


@pytest.mark.parametrize("folder", ["zccl", "kernels", "tests", "examples", "scripts"])
def test_no_top_level_kernels(folder):
    """Another distribution owns the import name `kernels`."""
    paths = list((ROOT / folder).rglob("*.py"))
    assert paths
    for path in paths:
        for imported in imports("x", path):
            assert imported.split(".")[0] != "kernels", f"{path} imports {imported}"


def python(code):
    """Run code in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100
    )


def test_import_starts_nothing():
    """Importing zccl loads neither MPI nor CUDA, and no kernel."""
    code = (
        "import sys, zccl;"
        "print(*sorted({'mpi4py.MPI', 'cupy', 'numba', 'numba.cuda'} & set(sys.modules)))"
    )
    ran = python(code)
    assert (ran.returncode, ran.stdout.strip()) == (0, ""), ran.stdout + ran.stderr


def test_codec_without_mpi():
    """Compressing needs no MPI."""
    code = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "import numpy, zccl\n"
        "x = numpy.linspace(0, 1, 5000, dtype='f4')\n"
        "y = zccl.decompress(zccl.compress(x, 1e-3))\n"
        "assert abs(y.astype('f8') - x).max() <= 1e-3"
    )
    ran = python(code)
    assert ran.returncode == 0, ran.stderr


def test_public_names():
    """Every name that zccl offers can be had, and dir() shows it."""
    code = (
        "import zccl\n"
        "assert 5 <= len(zccl.__all__) <= 60\n"
        "assert set(zccl.__all__) <= set(dir(zccl))\n"
        "for name in zccl.__all__: getattr(zccl, name)"
    )
    ran = python(code)
    assert ran.returncode == 0, ran.stderr
