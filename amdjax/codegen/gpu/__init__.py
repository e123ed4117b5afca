"""Tile programs on GPUs: `writer.kernel_ir` writes LLVM IR, `kernel` machine code from it."""
