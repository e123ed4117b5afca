"""Tile programs on CPUs: `writer.emit_kernel` writes LLVM IR."""
