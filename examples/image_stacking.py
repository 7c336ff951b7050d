"""Stack partial seismic images with zccl.allreduce and hold the result against MPI.Allreduce.

    mpiexec -n 4 python examples/image_stacking.py [--input FILE.h5] [--error-bound 1e-3] ...
    mpiexec -n 2 python examples/image_stacking.py --device cuda ...

Reverse-time migration makes one partial image a shot; the image of the subsurface is their sum.
Rank r reads the partial images r, r + size, ... and adds them up; `zccl.allreduce` adds the ranks'
sums. Rank 0 prints what was gained and lost beside plain MPI and writes `stacked.h5` and
`image_stacking.png` into the output folder. With `--device cuda` the ranks' sums lie on GPUs, one
for each rank as far as there are any, and the stack has the same bits. Anything wrong with a file,
a dataset or an option ends the program on all ranks with one line and exit code 2.
"""

import argparse
import contextlib
import hashlib
import io
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
from mpi4py import MPI

import zccl

HERE = Path(__file__).resolve().parent
REPEATS = 7


class Parser(argparse.ArgumentParser):
    """Leaves it to the caller to report a wrong option."""

    def error(self, message):
        """Raise instead of printing on every rank."""
        raise ValueError(message)


def parse(rank):
    """Read the command line."""
    parser = Parser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--input", type=Path, default=HERE / "data/rtm_partial_images.h5", help="HDF5 file")
    add("--dataset", default="partial_images", help="float dataset of axes (image, x, depth)")
    add("--error-bound", type=float, default=1e-3, help="bound of the error of the stack")
    add("--mode", choices=["abs", "rel"], default="rel", help="rel: times the range of the data")
    algorithms = ["auto", "ring", "recursive_doubling", "native"]
    add("--algorithm", choices=algorithms, default="ring", help="auto: plain MPI if that pays more")
    add("--mute", type=int, default=45, help="depth samples to leave out at the top")
    add("--output", type=Path, default=Path("image_stacking_output"), help="folder for the results")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where the arrays lie")
    with contextlib.redirect_stdout(sys.stdout if rank == 0 else io.StringIO()):
        return parser.parse_args()


def together(comm, function, *args):
    """Call a function on all ranks; if it fails on any, print one line and exit everywhere."""
    result, fault = None, None
    try:
        result = function(*args)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        fault = " ".join(str(error).split())
    faults = [text for text in comm.allgather(fault) if text is not None]
    if not faults:
        return result
    if comm.rank == 0:
        print(f"image_stacking: error: {faults[0]}", file=sys.stderr, flush=True)
    comm.Barrier()  # a launcher may end the job at the first exit: only after the line is out
    sys.exit(2)


def read(args, comm):
    """Return the sum of the images r, r + size, ..., their number, and the grid spacing if told."""
    if not h5py.is_hdf5(args.input):
        raise ValueError(f"--input {args.input} is not there, or not an HDF5 file")
    with h5py.File(args.input) as file:
        data = file.get(args.dataset)
        if not isinstance(data, h5py.Dataset):
            raise ValueError(f"{args.input} has no dataset {args.dataset!r}, it has {list(file)}")
        dtype = data.dtype.newbyteorder("=")
        if data.ndim != 3 or dtype not in ("float32", "float64") or 0 in data.shape:
            got = f"dataset {args.dataset!r} is {data.dtype} {data.shape}"
            raise ValueError(f"{got}, want float32 or float64 (image, x, depth)")
        if not 0 <= args.mute < data.shape[2]:
            raise ValueError(f"--mute {args.mute} is not within the {data.shape[2]} depth samples")
        partial = np.zeros((data.shape[1], data.shape[2] - args.mute), dtype)
        shown = time.monotonic()
        for index in range(comm.rank, len(data), comm.size):
            partial += data[index, :, args.mute :]
            if comm.rank == 0 and time.monotonic() - shown > 5:
                shown = time.monotonic()
                print(f"reading: image {index + 1} of {len(data)}", flush=True)
        if not np.isfinite(partial).all():
            raise ValueError(f"dataset {args.dataset!r} holds NaN or infinite values")
        return partial, len(data), data.attrs.get("spacing_m")


def prepare_output(args, rank):
    """Fail on an output folder that cannot be written before any work is done."""
    if rank == 0:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "stacked.h5").touch()


class Host:
    """Arrays of NumPy, and plain MPI to compare with."""

    plain_name = "MPI.Allreduce"
    plain_words = "Plain MPI", "takes plain MPI"

    def __init__(self, comm):
        self.comm = comm

    def place(self, array):
        """Return an array where it is to be reduced."""
        return array

    def plain_sum(self, array, into):
        """Reduce without compression."""
        self.comm.Allreduce(array, into)

    def finish(self):
        """Wait for work that was started."""

    def back(self, array):
        """Return an array as NumPy's."""
        return array


class Gpu(Host):
    """Arrays of CuPy, and zccl's call without a bound, NCCL or staged MPI, to compare with."""

    plain_name = "no compression"
    plain_words = "No compression", "does without"

    def __init__(self, comm):
        super().__init__(comm)
        zccl.bind_gpu(comm)
        import cupy

        self.cupy = cupy

    def place(self, array):
        """Copy an array to this rank's GPU."""
        return self.cupy.asarray(array)

    def plain_sum(self, array, into):
        """Reduce without compression."""
        zccl.allreduce(array, into, comm=self.comm)

    def finish(self):
        """Wait for the current stream."""
        self.cupy.cuda.get_current_stream().synchronize()

    def back(self, array):
        """Copy an array to the host."""
        return array.get()


def timed(comm, function):
    """Return the result of some calls, and the best time that the slowest rank took for one."""
    seconds = []
    for _ in range(REPEATS):
        comm.Barrier()
        start = time.perf_counter()
        result = function()
        seconds.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
    return result, min(seconds)


def compare(args, comm, device, partial):
    """Stack with plain MPI and with zccl; what is returned is of all ranks where that matters."""
    exact = np.empty_like(partial)
    comm.Allreduce(partial, exact)
    reference = np.empty(partial.shape, np.float64)
    comm.Allreduce(partial.astype(np.float64), reference)
    how = dict(error_bound=args.error_bound, mode=args.mode, algorithm=args.algorithm)
    coding = []
    given, into = together(comm, lambda: (device.place(partial), device.place(exact.copy())))

    def plain():
        device.plain_sum(given, into)
        device.finish()

    def stack():
        result, info = zccl.allreduce(given, comm=comm, return_info=True, **how)
        device.finish()
        coding.append(info.seconds["code"])
        return result, info

    start = time.perf_counter()
    together(comm, stack)
    first_seconds = time.perf_counter() - start
    together(comm, plain)
    _, plain_seconds = timed(comm, plain)
    (result, info), zccl_seconds = timed(comm, stack)
    result = device.back(result)
    rounding = np.spacing(np.abs(result)) / 2  # to the dtype of the result
    seconds = (plain_seconds, first_seconds, zccl_seconds, min(coding))
    slowest = np.max(comm.allgather(seconds), axis=0).tolist()
    sent = comm.allgather((info.wire_nbytes, info.raw_wire_nbytes))
    wire, raw = (sum(column) for column in zip(*sent, strict=True))
    return SimpleNamespace(
        exact=exact,
        stack=result,
        error=result - reference,
        info=info,
        kept=bool(np.all(np.abs(result - reference) <= info.error_bound + rounding)),
        same=len(set(comm.allgather(hashlib.sha256(result.tobytes()).digest()))) == 1,
        seconds=dict(zip(("plain", "first", "zccl", "code"), slowest, strict=True)),
        # Of the busiest rank; no Allreduce sends less from every rank than a ring does.
        wire={"plain": 2 * (comm.size - 1) / comm.size * partial.nbytes, "zccl": max(sent)[0]},
        ratio=raw / wire if wire else 1.0,
    )


def report(args, comm, device, number, found):
    """Print the comparison."""
    info, seconds, wire = found.info, found.seconds, found.wire
    nx, nz = found.stack.shape
    print(f"{number} partial images of {nx} x {nz} {found.stack.dtype} on {comm.size} ranks")
    print(f"  from {args.input.name}:{args.dataset}, without the top {args.mute} depth samples")
    print(f"  first zccl call, kernels compiled or loaded: {seconds['first']:.2f} s")
    print(f"  algorithm {info.algorithm}: {info.reason}")
    if info.transport_reason:
        print(f"  carried by {info.transport}: {info.transport_reason}")
    print()

    def row(label, plain, compressed, remark=""):
        print(f"  {label:<31}{plain:>14}{compressed:>16}  {remark}".rstrip())

    row("", device.plain_name, "zccl.allreduce")
    row(
        f"time here, best of {REPEATS}",
        *(f"{seconds[which] * 1e3:.2f} ms" for which in ("plain", "zccl")),
    )
    ratio = f"ratio {found.ratio:.2f} over all ranks"
    row("sent by the busiest rank", *(f"{wire[w] / 1e3:.1f} kB" for w in ("plain", "zccl")), ratio)
    for gbit in (1, 10):
        plain = wire["plain"] * 8 / (gbit * 1e9)
        compressed = wire["zccl"] * 8 / (gbit * 1e9) + seconds["code"]
        faster = f"{plain / compressed:.2f} times as fast" if compressed else ""
        times = (f"{value * 1e3:.2f} ms" for value in (plain, compressed))
        row(f"estimate on {gbit:2} Gbit/s links", *times, faster)
    print("  (estimate: those bytes over the link, plus coding as measured here; no latency)\n")

    largest, rms = np.abs(found.error).max(), np.sqrt(np.mean(found.error**2))
    span = np.ptp(found.exact)
    if info.error_bound:
        kept = "kept" if found.kept else "NOT KEPT"
        print(f"  largest error       {largest:.6g}, promised {info.error_bound:.6g}: {kept}")
    else:
        print(f"  largest error       {largest:.6g}, of plain summation: nothing was quantised")
    with np.errstate(divide="ignore"):
        print(f"  PSNR, NRMSE         {20 * np.log10(span / rms):.1f} dB, {rms / span:.2e}")
    print(f"  same bytes on all   {'yes' if found.same else 'NO'}")
    if info.algorithm != "native" and seconds["plain"] < seconds["zccl"]:
        plain, auto = device.plain_words
        print(f"\n  {plain} was faster. Where all ranks share one machine, bytes cost little and")
        print(f"  --algorithm auto {auto}. Compression pays between machines.")


def draw(path, first, spacing, found):
    """Draw the exact stack, zccl's stack, and the difference on a scale of its own."""
    from matplotlib.figure import Figure

    step, unit = (spacing / 1e3, "km") if spacing else (1, "samples")
    nx, nz = found.stack.shape
    extent = (0, nx * step, (first + nz) * step, first * step)
    clip = float(np.percentile(np.abs(found.exact), 98)) or 1.0
    bound = found.info.error_bound
    scale = 1.1 * max(bound, float(np.abs(found.error).max())) or 1.0
    panels = (
        ("Exact stack (MPI.Allreduce)", found.exact, "gray", clip),
        (f"zccl, ratio {found.ratio:.1f}", found.stack, "gray", clip),
        ("Difference", found.error, "RdBu_r", scale),
    )
    figure = Figure(figsize=(14, 3.6), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, (title, image, colours, limit) in zip(axes, panels, strict=True):
        shown = axis.imshow(image.T, cmap=colours, vmin=-limit, vmax=limit, extent=extent)
        axis.set(title=title, xlabel=f"Distance ({unit})")
        bar = figure.colorbar(shown, ax=axis, orientation="horizontal", pad=0.03, aspect=40)
        bar.formatter.set_powerlimits((-3, 3))
        bar.set_label("Amplitude")
    axes[0].set_ylabel(f"Depth ({unit})")
    if bound:
        bar.set_label("Error; lines: the promised bound")
        bar.ax.vlines((-bound, bound), *bar.ax.get_ylim(), color="black", linewidth=2)
    figure.savefig(path, dpi=120)


def write(args, comm, number, spacing, found):
    """Write both stacks, what they were made from, and the picture."""
    with h5py.File(args.output / "stacked.h5", "w") as file:
        file["stack"], file["exact"] = found.stack, found.exact
        file["stack"].attrs["error_bound"] = found.info.error_bound
        file["stack"].attrs["algorithm"] = found.info.algorithm
        file.attrs.update(input=f"{args.input}:{args.dataset}", images=number, ranks=comm.size)
        file.attrs.update(axes="x, depth", first_depth_sample=args.mute, spacing_m=spacing or 0.0)
    draw(args.output / "image_stacking.png", args.mute, spacing, found)
    print(f"\n  wrote {args.output / 'stacked.h5'} and {args.output / 'image_stacking.png'}")


def main():
    """Read, stack, compare, write."""
    comm = MPI.COMM_WORLD
    args = together(comm, parse, comm.rank)
    together(comm, prepare_output, args, comm.rank)
    device = together(comm, {"cpu": Host, "cuda": Gpu}[args.device], comm)
    partial, number, spacing = together(comm, read, args, comm)
    found = compare(args, comm, device, partial)
    if comm.rank == 0:
        report(args, comm, device, number, found)
        write(args, comm, number, spacing, found)


if __name__ == "__main__":
    main()
