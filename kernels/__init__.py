"""The numerical kernels: `spec` defines them, `cpu` and later `cuda` do the same work fast."""
