"""Benchmarks: `python -m zccl bench NAME`; docs/benchmarks/README.md says how to read them."""
