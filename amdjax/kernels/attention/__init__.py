"""Attention with its logits in registers and caches: `problem.py` says what, `cpu*.py` how."""

from amdjax.kernels.attention import cpu as cpu
