"""The stages of ahead-of-time compilation: what `jit(f).trace`, `.lower` and `.compile` return."""

from amdjax.jit.stages import (
    ArgInfo,
    Compiled,
    CompilerOptions,
    Lowered,
    MemoryStats,
    Traced,
    Wrapped,
)

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "MemoryStats", "Traced", "Wrapped"]
