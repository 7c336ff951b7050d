"""The numerical kernels: `spec` defines them slowly, `cpu` and later `cuda` do the same work fast."""
