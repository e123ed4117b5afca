"""Tile programs to LLVM IR, and LLVM IR to machine code."""
