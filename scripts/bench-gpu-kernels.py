"""Measure the CUDA kernels on one GPU: TB/s of values by CUDA events, beside the copy rate.

    PYTHONPATH=. python scripts/bench-gpu-kernels.py [--log2-values 28] [--quick] [--json FILE]

Smooth is a real field repeated, at range bound 1e-3; sine two sines, likewise; rough a random walk
at 1e-4, noise uniform values at 1e-3, offset a walk on an offset of 1000 ranges at 1e-4, escapes a
smooth field in which one value of 5000 is NaN. Rates count the values of one operand. All checks
and checksums are on. `compress_fill` has a fill value that no value equals, `compress_fine` a
hundredth of the bound.
Small sizes take 8 buffers in turn, so that they do not live in the cache.
"""

import argparse
import json
import math
import time
from pathlib import Path

import cupy
import numpy as np

from zccl import errorbound
from zccl.kernels.cuda.rows import Rows, order_nbytes, work_nbytes

FIELD = Path(__file__).parent.parent / "tests" / "data" / "rtm_partial_images_f32.npy"
RELATIVE = {
    "smooth": 1e-3, "rough": 1e-4, "noise": 1e-3, "offset": 1e-4, "escapes": 1e-3, "sine": 1e-3,
}  # fmt: skip


def make(kind, n, seed, dtype):
    """Return n values of a kind on the device."""
    rng = cupy.random.default_rng(seed)
    if kind == "noise":
        return (rng.random(n, dtype=cupy.float32) * 2 - 1).astype(dtype)
    if kind in ("smooth", "escapes"):
        field = cupy.asarray(np.load(FIELD).ravel())
        values = cupy.tile(cupy.roll(field, 1000 * seed), -(-n // field.size))[:n].astype(dtype)
        if kind == "escapes":
            values[rng.integers(0, n, n // 5000)] = math.nan
        return values
    if kind == "sine":
        i = cupy.arange(n, dtype=cupy.float64)
        noise = 1e-4 * rng.standard_normal(n, dtype=cupy.float32)
        return (cupy.sin(i * 1e-3 + seed) + 0.3 * cupy.sin(i * 0.0171) + noise).astype(dtype)
    steps = rng.standard_normal(-(-n // 4096) * 4096, dtype=cupy.float32).reshape(-1, 4096)
    values = cupy.cumsum(steps, axis=1).ravel()[:n]
    if kind == "offset":
        values = values + 1000 * (values.max() - values.min())
    return values.astype(dtype)


class Stream:
    """Table, records, work area and result of one compressed array."""

    def __init__(self, n, dtype):
        self.table = cupy.zeros(-(-n // 1024), np.uint64)
        self.words = cupy.zeros(n * np.dtype(dtype).itemsize // 4 + 1024, np.uint32)
        self.work = cupy.zeros(work_nbytes(n), np.uint8)
        self.result = cupy.zeros(4, np.int64)
        self.nwords = 0

    def read(self):
        """Read the number of words, and check that all went well."""
        nwords, _, status, self.raw = self.result.get().tolist()
        assert status == 0, status
        self.nwords = nwords

    @property
    def nbytes(self):
        """Bytes of table and records."""
        return self.table.nbytes + 4 * self.nwords

    @property
    def pointers(self):
        """Addresses of table and words."""
        return self.table.data.ptr, self.words.data.ptr

    @property
    def areas(self):
        """Addresses of work area and result."""
        return self.work.data.ptr, self.result.data.ptr


def seconds(calls, repeats=20):
    """Return the mean device time of calls that are made in turn."""
    stream = cupy.cuda.get_current_stream()
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    for k in range(3):
        calls[k % len(calls)](stream.ptr)
    start.record()
    for k in range(repeats):
        calls[k % len(calls)](stream.ptr)
    stop.record()
    stop.synchronize()
    return cupy.cuda.get_elapsed_time(start, stop) / repeats * 1e-3


def grid_of(kind, values, dtype):
    """Return bound, step and whether the bound is promised for decoded values."""
    spread = float(cupy.nanmax(values)) - float(cupy.nanmin(values))
    bound = RELATIVE[kind] * spread
    if kind == "offset":
        return bound, errorbound.aligned_step(float(cupy.nanmax(abs(values))), bound, dtype)
    return bound, errorbound.grid_step(bound, dtype)


def bench(kind, n, buffers, dtype):
    """Return the rates of all kernels for one kind of data, in TB/s."""
    dtype = np.dtype(dtype)
    rows = Rows(dtype)
    xs = [make(kind, n, 2 * k, dtype) for k in range(buffers)]
    ys = [make(kind, n, 2 * k + 1, dtype) for k in range(buffers)]
    bound, step = grid_of(kind, xs[0], dtype)
    a, b, c = ([Stream(n, dtype) for _ in range(buffers)] for _ in range(3))
    out = [cupy.empty(n, dtype) for _ in range(buffers)]
    parts = cupy.zeros(order_nbytes(n), np.uint8)
    own = cupy.zeros(rows.own_nbytes(n), np.uint8)
    rate = lambda calls: n * dtype.itemsize / seconds(calls) / 1e12  # noqa: E731

    def compress(values, s, rank, movement):
        return rows.compress(
            values.data.ptr, n, step, bound, movement, 1 if movement else 2, rank, math.nan,
            *s.pointers, *s.areas,
        )  # fmt: skip

    row = {}
    promised = [compress(x, s, 0, True) for x, s in zip(xs, a, strict=True)]
    row["compress"] = rate(promised)
    a[0].read()
    row["ratio"] = n * dtype.itemsize / a[0].nbytes
    row["raw"] = a[0].raw / n
    order = [
        rows.order(n, *s.pointers, parts.data.ptr, s.work.data.ptr, *t.pointers)
        for s, t in zip(a, c, strict=True)
    ]

    def canonical(first, second):
        def call(stream):
            first(stream)
            second(stream)

        return call

    row["canonical"] = rate([canonical(p, o) for p, o in zip(promised, order, strict=True)])
    own_calls = [compress(x, s, 0, False) for x, s in zip(xs, a, strict=True)]
    row["compress_sum"] = rate(own_calls)
    for y, s in zip(ys, b, strict=True):
        compress(y, s, 1, False)(0)
    cupy.cuda.runtime.deviceSynchronize()
    for s in [*a, *b]:
        s.read()
    row["decompress"] = rate([
        rows.decompress(*s.pointers, s.nwords, step, 1.0, True, y.data.ptr, n, *t.areas)
        for s, y, t in zip(a, out, c, strict=True)
    ])  # fmt: skip
    row["decompress_avg"] = rate([
        rows.decompress(*s.pointers, s.nwords, step, 2.0, True, y.data.ptr, n, *t.areas)
        for s, y, t in zip(a, out, c, strict=True)
    ])  # fmt: skip
    row["hop"] = rate([
        rows.combine(
            0, n, step, True, *s.pointers, s.nwords, *t.pointers, t.nwords, *u.pointers, *u.areas
        )
        for s, t, u in zip(a, b, c, strict=True)
    ])  # fmt: skip
    c[0].read()
    row["ratio_of_sum"] = n * dtype.itemsize / c[0].nbytes
    row["hop_values"] = rate([
        rows.combine_with_values(
            0, x.data.ptr, n, step, 2, 0, math.nan, own.data.ptr, *t.pointers, t.nwords,
            *u.pointers, *u.areas,
        )
        for x, t, u in zip(xs, b, c, strict=True)
    ])  # fmt: skip
    row["verify"] = rate(
        [rows.verify(n, *s.pointers, s.nwords, *u.areas) for s, u in zip(a, c, strict=True)]
    )
    row["range"] = rate(
        [rows.value_range(x.data.ptr, n, math.nan, *u.areas) for x, u in zip(xs, c, strict=True)]
    )
    if kind in ("smooth", "noise"):
        row["max"] = rate([
            rows.combine(
                1, n, step, True, *s.pointers, s.nwords, *t.pointers, t.nwords, *u.pointers,
                *u.areas,
            )
            for s, t, u in zip(a, b, c, strict=True)
        ])  # fmt: skip
        row["max_values"] = rate([
            rows.combine_with_values(
                1, x.data.ptr, n, step, 2, 0, math.nan, own.data.ptr, *t.pointers, t.nwords,
                *u.pointers, *u.areas,
            )
            for x, t, u in zip(xs, b, c, strict=True)
        ])  # fmt: skip
        row["compress_fill"] = rate([
            rows.compress(
                x.data.ptr, n, step, bound, True, 1, 0, -9999.0, *s.pointers, *s.areas
            )
            for x, s in zip(xs, a, strict=True)
        ])  # fmt: skip
        fine = 1e-2 * bound
        small = errorbound.grid_step(fine, dtype)
        row["compress_fine"] = rate([
            rows.compress(
                x.data.ptr, n, small, fine, True, 1, 0, math.nan, *s.pointers, *s.areas
            )
            for x, s in zip(xs, a, strict=True)
        ])  # fmt: skip
    return row


def copy_rate(n):
    """Return the rate of a device copy, bytes read and written, in TB/s."""
    source, target = cupy.ones(n, np.float32), cupy.empty(n, np.float32)

    def copy(stream):
        cupy.copyto(target, source)

    return 8 * n / seconds([copy]) / 1e12


def host_costs():
    """Return microseconds of host time: a launch, and 1 MiB compressed with its size on the host.

    The result lies in pinned memory that the device writes.
    """
    rows = Rows(np.float32)
    n = 1 << 18
    x = make("smooth", n, 0, np.float32)
    bound, step = grid_of("smooth", x, np.dtype(np.float32))
    s = Stream(n, np.float32)
    pinned = cupy.cuda.alloc_pinned_memory(64)
    seen = np.frombuffer(pinned, np.int64, 4)
    call = rows.compress(
        x.data.ptr, n, step, bound, True, 1, 0, math.nan, *s.pointers, s.work.data.ptr, pinned.ptr
    )
    stream = cupy.cuda.Stream(non_blocking=True)
    best = math.inf
    launch = call.launches[-1]  # the first alone would place records without end
    for _ in range(20):
        stream.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            launch(stream.ptr)
        best = min(best, (time.perf_counter() - start) / 200)
    stream.synchronize()
    s.work[:] = 0
    whole = {}
    for way in ("synchronised", "polled"):
        times = []
        for _ in range(300):
            stream.synchronize()
            start = time.perf_counter()
            seen[0] = -1
            call(stream.ptr)
            if way == "polled":
                while seen[0] < 0:
                    pass
            else:
                stream.synchronize()
            assert seen[0] > 0
            times.append(time.perf_counter() - start)
        whole[f"1 MiB {way}"] = 1e6 * float(np.median(times))
    return {"launch": 1e6 * best} | whole


def main():
    """Print one line per kind, size and dtype."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log2-values", type=int, default=28)
    parser.add_argument("--quick", action="store_true", help="fewer kinds of data")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    n = 1 << options.log2_values
    results = {"copy": copy_rate(n)}
    print(f"copy {results['copy']:.2f} TB/s (read and write)", flush=True)
    results |= host_costs()
    print(
        "host us: " + ", ".join(f"{k} {v:.1f}" for k, v in results.items() if k != "copy"),
        flush=True,
    )
    kinds = ["smooth", "noise"] if options.quick else list(RELATIVE)
    cases = [(kind, n, 1, np.float32) for kind in kinds]
    cases += [(kind, n >> 4, 8, np.float32) for kind in kinds[:3]]
    cases += [(kind, n >> 1, 1, np.float64) for kind in kinds[:3]]
    for kind, count, buffers, dtype in cases:
        row = bench(kind, count, buffers, dtype)
        name = f"{kind} {np.dtype(dtype).name} {count * np.dtype(dtype).itemsize >> 20} MiB"
        results[name] = row
        text = " | ".join(f"{k} {v:.4g}" for k, v in row.items())
        print(f"{name}: {text}", flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
