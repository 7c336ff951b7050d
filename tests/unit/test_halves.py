"""float16 to float32 and back as on a GPU: the bits of NumPy, NaN included."""

import numpy as np

from zccl.device import halves_of_singles, singles_of_halves


def test_every_half():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wanted = halves.astype(np.float32)
    quiet = wanted.copy()
    quiet[np.isnan(halves)] = np.nan

    class Gpu(np.ndarray):
        """Whose own conversion makes one quiet NaN of all."""

        def astype(self, dtype):
            found = np.asarray(self).astype(dtype)
            if found.dtype.kind == "f":
                found[np.isnan(self)] = np.nan
            return found

    singles = singles_of_halves(halves.view(Gpu), np)
    assert singles.tobytes() == wanted.tobytes() != quiet.tobytes()
    assert halves_of_singles(wanted.view(Gpu), np).tobytes() == halves.tobytes()


def test_singles_around_the_steps_of_halves():
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 1 << 20, np.uint32)
    bits[::2] = bits[::2] & np.uint32(0x807FFFFF) | np.uint32(0x7F800000)
    bits[:4000] = 0x7F800000 + np.arange(4000)  # their payloads do not fit
    with np.errstate(all="ignore"):
        singles = bits.view(np.float32)
        wanted = singles.astype(np.float16)
        found = halves_of_singles(singles, np)
    assert found.dtype == np.float16 and found.tobytes() == wanted.tobytes()
