"""Array programs, differentiated, vectorised and compiled, in pure Python on LLVM."""

__version__ = "0.1.0"
