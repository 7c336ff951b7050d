"""What to launch for the entropy coder, in the manner of `rows`."""

from __future__ import annotations

from zccl.kernels.cuda import entropy, entropy_decode
from zccl.kernels.cuda.launch import Kernel, Launch, Sequence, current_device, load, multiprocessors

KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("entropy_count", entropy.count_units, entropy.COUNT_SIGNATURE, entropy.WARPS),
        Kernel("entropy_encode", entropy.encode_units, entropy.ENCODE_SIGNATURE, entropy.WARPS),
        Kernel("entropy_write", entropy.write_units, entropy.WRITE_SIGNATURE, entropy.WARPS),
        Kernel(
            "entropy_decode", entropy_decode.decode_units, entropy_decode.SIGNATURE,
            entropy_decode.WARPS,
        ),
    )
}  # fmt: skip


class Packing:
    """The kernels of the entropy coder on the current device; see `rows.Rows`."""

    def __init__(self) -> None:
        device = current_device()
        self._multiprocessors = multiprocessors(device)
        self._loaded = {name: load(kernel, device) for name, kernel in KERNELS.items()}

    def _launch(self, name: str, units: int, at_once: int, *arguments: float) -> Sequence:
        """Return a launch of so many blocks as fill a multiprocessor, or suffice."""
        kernel = self._loaded[name]
        blocks = max(min(-(-units // kernel.warps), at_once * self._multiprocessors), 1)
        return Sequence(Launch(kernel, (blocks, 1), *arguments))

    def count(
        self, table: int, words: int, tiles: int, unit: int, lists: int, counts: int
    ) -> Sequence:
        """Count symbols; arguments are those of the kernel."""
        return self._launch(
            "entropy_count", -(-tiles // unit), 4, table, words, tiles, unit, lists, counts
        )

    def encode(
        self, table: int, words: int, tiles: int, unit: int, value_words: int, lists: int,
        pairs: int, pieces: int, states: int, sizes: int,
    ) -> Sequence:  # fmt: skip
        """Code all units; arguments are those of the kernel."""
        return self._launch(
            "entropy_encode", -(-tiles // unit), 8, table, words, tiles, unit, value_words, lists,
            pairs, pieces, states, sizes,
        )  # fmt: skip

    def write(
        self, table: int, words: int, tiles: int, unit: int, value_words: int, lists: int,
        pieces: int, states: int, offsets: int, out: int,
    ) -> Sequence:  # fmt: skip
        """Write all units; arguments are those of the kernel."""
        return self._launch(
            "entropy_write", -(-tiles // unit), 8, table, words, tiles, unit, value_words, lists,
            pieces, states, offsets, out,
        )  # fmt: skip

    def decode(
        self, body: int, offsets: int, nwords: int, n: int, unit: int, tables: int,
        value_words: int, kinds: int, own: int, widths: int, table: int, words: int, room: int,
        work: int,
    ) -> Sequence:  # fmt: skip
        """Decode all units; arguments are those of the kernel."""
        tiles = -(-n // 1024)
        return self._launch(
            "entropy_decode", -(-tiles // unit), 5, body, offsets, nwords, n, unit, tables,
            value_words, kinds, own, widths, table, words, room, work,
        )  # fmt: skip
