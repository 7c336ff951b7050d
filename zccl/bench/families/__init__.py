"""One module a family of benchmarks; every module here is imported, and registers its own."""
