"""amdjax, JAX and PyTorch on the same work in the same run: ``python -m benchmarks``."""
