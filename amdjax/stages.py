"""The stages of ahead-of-time compilation: what `jit(f).trace`, `.lower` and `.compile` return."""

from amdjax.jit.stages import Compiled, Lowered, MemoryStats, Traced

__all__ = ["Compiled", "Lowered", "MemoryStats", "Traced"]
