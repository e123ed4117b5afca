"""The compiler: from traced programs to running kernels.

The folder is also the function users call: `amdjax.jit(f)` is `amdjax.jit.api.jit(f)`, while
`from amdjax.jit import …` and `import amdjax.jit.plan` find what lies in it.
"""

import inspect
import sys
from types import ModuleType
from typing import Any

from amdjax.core.boundaries import api_boundary
from amdjax.jit.api import JitFunction, clear_caches, jit

__all__ = ["JitFunction", "clear_caches", "jit"]


class _CallableModule(ModuleType):
    """A module that is called like the function of its name."""

    @api_boundary
    def __call__(self, *args: Any, **options: Any) -> Any:
        return jit(*args, **options)


_module = sys.modules[__name__]
_module.__class__ = _CallableModule
_module.__doc__ = jit.__doc__
_module.__signature__ = inspect.signature(jit)  # type: ignore[attr-defined]
