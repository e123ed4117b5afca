"""The compiler: from traced programs to running kernels.

`amdjax.jit` the function is `jit.api.jit`.
"""

from amdjax.jit.api import JitFunction, clear_caches, jit

__all__ = ["JitFunction", "clear_caches", "jit"]
