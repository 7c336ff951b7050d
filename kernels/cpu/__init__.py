"""Numba kernels for one CPU core; they release the GIL."""
