"""Fuzz everything that reads streams and messages, guided by coverage, with atheris (libFuzzer).

    pip install atheris '.[test]'
    python scripts/fuzz-decoder.py [--seconds 300] [--corpus FOLDER] [--libfuzzer=-OPTION=VALUE ...]
    python scripts/fuzz-decoder.py --input FOLDER/crash-...

Inputs are streams: as the fuzzer makes them, or, mostly, with checksums written anew, so that it
gets behind those. Compiled kernels give no coverage; `zccl.kernels.spec`, the slow definition of
the format, reads each input too and shows the fuzzer the way. What readers may do with a stream,
the streams to start from and the guarded memory are those of tests/unit/test_hostile_bytes.py. The
exit code is 0 when the time is up and nothing was found, 1 when something was (the input is saved
in FOLDER), 77 without atheris.
"""

import argparse
import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def arguments():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--seconds", type=int, default=300, help="time limit, 0 for none (default 300)")
    add("--corpus", type=Path, default=Path("fuzz_corpus"), help="inputs to keep (fuzz_corpus)")
    add("--input", type=Path, help="run this saved input once, and nothing else")
    add("--libfuzzer", action="append", default=[], metavar="-OPTION=VALUE", help="more options")
    return parser.parse_args()


def main():
    """Prepare the corpus and hand over to libFuzzer, which ends the process."""
    args = arguments()
    try:
        import atheris
    except ImportError:
        print("not run: needs atheris (pip install atheris)", file=sys.stderr)
        sys.exit(77)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    # Not the kernels: what Numba compiles must not be changed.
    kernels = [f"zccl.kernels.cpu.{path.stem}" for path in (ROOT / "kernels/cpu").glob("*.py")]
    with atheris.instrument_imports(include=["zccl"], exclude=kernels):
        import numpy as np
        from unit import forgery
        from unit import test_hostile_bytes as hostile

        import zccl
        from zccl.kernels import spec

    samples = hostile.samples()
    partner = samples[0]
    wires = {wire.target.dtype: wire for wire in hostile.wires() if wire.target.size == 2100}
    hostile.guard_library()

    def one_input(data):
        stream = np.frombuffer(data, np.uint8)
        hostile.read(stream, partner)
        parts = parts_of(stream)
        if parts is None or parts.fields["form"] != forgery.CODED:
            return
        value_words = forgery.VALUE_WORDS.get(parts.fields["dtype"])
        end = 8 * -(-parts.values // forgery.TILE)
        table, words = parts.body[:end], parts.body[end : end + (parts.body.size - end) // 4 * 4]
        if value_words is None or table.size < end:
            return
        body = spec.Body(table.view(np.uint64), words.view(np.uint32), parts.fields["checksum"])
        dtype = np.dtype(f"f{4 * value_words}")
        try:
            spec.decode(body, parts.values, dtype, parts.fields["step"])
        except (zccl.StreamError, OverflowError):
            pass
        if parts.values == wires[dtype].target.size:
            wires[dtype].read(hostile.in_guarded(forgery.seal_message(*body[:2])), damaged=False)

    def parts_of(stream):
        if stream.size < 64 or stream.size < 64 + 8 * int(stream[8]):
            return None
        parts = forgery.take_apart(stream)
        return parts if 0 < parts.values <= 1 << 16 else None

    def mutated(data, max_size, seed):
        stream = np.frombuffer(atheris.Mutate(data, len(data)), np.uint8)
        parts = parts_of(stream)
        if parts is None or seed % 4 == 0:
            return stream.tobytes()[:max_size]
        return forgery.seal(parts).tobytes()[:max_size]

    if args.input is not None:
        one_input(args.input.read_bytes())
        print(f"{args.input}: refused or read, as it should be")
        return
    args.corpus.mkdir(parents=True, exist_ok=True)
    for sample in samples:
        name = hashlib.sha1(sample.tobytes()).hexdigest()
        (args.corpus / name).write_bytes(sample.tobytes())
    options = [
        f"-max_total_time={args.seconds}", f"-artifact_prefix={args.corpus}/", "-timeout=20",
        "-rss_limit_mb=4096", "-error_exitcode=1", "-timeout_exitcode=1", *args.libfuzzer,
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], str(args.corpus), *options], one_input, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
