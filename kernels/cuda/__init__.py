"""Numba kernels for NVIDIA GPUs: they write the bytes of `kernels/cpu`."""
