"""Options that several benchmarks share: the letters of nccl-tests, and zccl's own."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from zccl.bench.peers import Peer
from zccl.bench.report import FORMATS
from zccl.errorbound import BUDGETS, MODES, check_error_bound
from zccl.ops import Op
from zccl.options import TRANSPORTS
from zccl.plan import ALGORITHMS, REDUCTIONS

DEVICES = ("cpu", "cuda")
BESIDE = ("nccl", "staged")
DTYPES = ("float32", "float64", "complex64", "complex128")

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


def nbytes(text: str) -> int:
    """Read a size: 8, 64K, 4M, 1G."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a size such as 8, 64K, 4M or 1G")
    return int(match[1]) << _UNITS[match[2]]


def whole(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers of at least `least`."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            message = f"got {text!r}, wanted a whole number of at least {least}"
            raise argparse.ArgumentTypeError(message)
        return int(text)

    return read


def error_bound(text: str) -> float | None:
    """Read a bound: a number that is not negative, or none."""
    try:
        return None if text.lower() == "none" else check_error_bound(float(text))
    except ValueError:
        message = f"got {text!r}, wanted a finite number >= 0 or none"
        raise argparse.ArgumentTypeError(message) from None


def bounds(text: str) -> list[float]:
    """Read bounds above 0 with commas between."""
    found = [error_bound(word) for word in text.split(",")]
    wanted = [bound for bound in found if bound]
    if len(wanted) < len(found):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted numbers > 0 with commas between")
    return wanted


def some_of(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a reader of some of these names with commas between."""

    def read(text: str) -> list[str]:
        found = text.split(",")
        if not set(found) <= set(names):
            message = f"got {text!r}, wanted some of {', '.join(names)} with commas between"
            raise argparse.ArgumentTypeError(message)
        return found

    return read


def add_sizes(parser: argparse.ArgumentParser, begin: str, end: str) -> None:
    """Add the range of sizes."""
    add = parser.add_argument
    add("-b", "--begin", type=nbytes, default=begin, metavar="SIZE", help="smallest size in bytes")
    add("-e", "--end", type=nbytes, default=end, metavar="SIZE", help="largest size in bytes")
    add("-f", "--factor", type=whole(2), default=4, help="each size is so many times the last one")
    add("-d", "--dtype", choices=DTYPES, default="float32", help="dtype of the array")


def add_rounds(parser: argparse.ArgumentParser, iterations: int | str, warmup: int | str) -> None:
    """Add the numbers of rounds and the output format; argparse.SUPPRESS leaves a number unset."""
    add = parser.add_argument
    add("-n", "--iterations", type=whole(1), default=iterations, help="timed rounds of a line")
    add("-w", "--warmup", type=whole(0), default=warmup, help="rounds before them")
    add("--format", choices=FORMATS, default="table", help="how the results are written")


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the switch of the check of results."""
    parser.add_argument(
        "-c", "--check", type=int, choices=(0, 1), default=1, help="hold results against exact ones"
    )


def add_call(parser: argparse.ArgumentParser, collective: str) -> None:
    """Add the arguments of a zccl call."""
    add = parser.add_argument
    names = ("auto", *ALGORITHMS[collective], "native")
    add("--error-bound", type=error_bound, default=1e-3, help="bound of the result, or none")
    add("--mode", choices=MODES, default="rel", help="rel: the bound times the value range")
    add("--algorithm", choices=names, default="auto", help="the algorithm of zccl")
    if collective in REDUCTIONS:
        help_text = "how ranks share the bound of sums"
        add("--budget", choices=BUDGETS, default="guaranteed", help=help_text)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the memory that arrays are in."""
    parser.add_argument(
        "--device", choices=DEVICES, default="cpu", help="cuda: CuPy arrays, a GPU for each rank"
    )


def add_devices(parser: argparse.ArgumentParser) -> None:
    """Add the memory that arrays are in, and what only arrays on GPUs have."""
    add_device(parser)
    add = parser.add_argument
    several = "with --device cuda: several with commas between"
    reader, names = some_of(TRANSPORTS), ", ".join(TRANSPORTS)
    help_text = f"{several}, of {names}"
    add("--transport", type=reader, default=argparse.SUPPRESS, help=help_text)
    help_text = f"{several}, in place of --error-bound"
    add("--bounds", type=bounds, default=argparse.SUPPRESS, help=help_text)
    help_text = f"{several}: nccl and staged (plain MPI), or none; both by default"
    reader = some_of((*BESIDE, "none"))
    add("--beside", type=reader, default=argparse.SUPPRESS, help=help_text)


def on_gpus(args: argparse.Namespace) -> bool:
    """Whether arrays are on GPUs; what only those have is then set.

    Raises
    ------
    ValueError
        When one of those options was given without `--device cuda`.
    """
    defaults = {"transport": ["auto"], "bounds": None, "beside": list(BESIDE)}
    for name, default in defaults.items():
        if args.device == "cpu" and hasattr(args, name):
            raise ValueError(f"--{name}: is for arrays on GPUs: add --device cuda")
        setattr(args, name, getattr(args, name, default))
    return bool(args.device == "cuda")


def add_field(parser: argparse.ArgumentParser) -> None:
    """Add the choice of the data."""
    parser.add_argument(
        "--field",
        default="wave",
        help="wave, layers or noise, made here; or a .npy file, tiled or cut to the size",
    )


def add_root(parser: argparse.ArgumentParser) -> None:
    """Add the root."""
    parser.add_argument("--root", type=whole(0), default=0, help="the rank that has it all")


def add_operation(parser: argparse.ArgumentParser) -> None:
    """Add the reduction."""
    names = [op.value for op in Op]
    parser.add_argument("-o", "--op", choices=names, default="sum", help="the reduction")


def add_peers(parser: argparse.ArgumentParser) -> None:
    """Add programs to compare with."""
    parser.add_argument(
        "--peer",
        type=Peer.parse,
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a shell command that prints lines 'size_in_bytes seconds'; rank 0 runs it at the end",
    )


def sizes(args: argparse.Namespace, itemsize: int) -> list[int]:
    """Return the sizes in bytes, rounded down to whole elements.

    Raises
    ------
    ValueError
        When the range is empty or a size holds no element.
    """
    if args.begin > args.end:
        raise ValueError(f"-b {args.begin} is larger than -e {args.end}")
    if args.begin < itemsize:
        raise ValueError(f"-b {args.begin} is less than one element of {itemsize} bytes")
    found = []
    size = args.begin
    while size <= args.end:
        found.append(size // itemsize * itemsize)
        size *= args.factor
    return found
