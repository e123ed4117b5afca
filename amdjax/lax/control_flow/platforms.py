"""Functions that differ by the platform a program runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from amdjax.core.aval import ShapedArray
from amdjax.core.boundaries import api_boundary
from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive
from amdjax.core.trace import full_lower, is_concrete
from amdjax.lax.control_flow._common import check_callable
from amdjax.lax.control_flow.branches import choose

__all__ = ["platform_dependent", "platform_index_p"]

T = TypeVar("T")

Platforms = tuple[Any, ...]

platform_index_p = Primitive("platform_index")
platform_index_p.abstract_eval = lambda *, platforms: ShapedArray((), np.int32)


def _platform_index(*, platforms: Platforms) -> Any:
    for wanted in ("cpu", None):
        for i, names in enumerate(platforms):
            if names is wanted or (names is not None and wanted in names):
                return np.int32(i)
    raise NotImplementedError(
        "platform_dependent: translation rule of this program not found for platform cpu: there is "
        f"a function for {', '.join(n for p in platforms for n in p)}, and no default."
    )


platform_index_p.lowering = Decompose(_platform_index)


@api_boundary
def platform_dependent(
    *args: Any, default: Callable[..., T] | None = None, **per_platform: Callable[..., T]
) -> T:
    """Apply the function meant for the platform that the program runs on.

    Args:
      *args: pytrees of arrays.
      default: the function for platforms not mentioned.
      **per_platform: functions by platform: `cpu`, `rocm`, `cuda`, ….

    Returns:
      The result of the function of the platform.

    Raises:
      TypeError: a function is not callable.
      ValueError: no function is given, or one for the ambiguous platform `gpu`.
      NotImplementedError: there is neither a function for the platform nor a default.

        >>> float(lax.platform_dependent(2.0, cpu=lambda x: x + 1, default=lambda x: x))
        3.0
    """
    functions: dict[Any, list[str] | None] = {}
    check_callable("platform_dependent", **per_platform)
    for name, fun in per_platform.items():
        if name == "gpu":
            raise ValueError("platform_dependent: name `rocm` or `cuda` instead of `gpu`.")
        functions.setdefault(fun, []).append(name)  # type: ignore[union-attr]
    branches = list(functions)
    platforms: Platforms = tuple(tuple(names) for names in functions.values() if names)
    if default is not None:
        check_callable("platform_dependent", default=default)
        branches.append(default)
        platforms = (*platforms, None)
    if not branches:
        raise ValueError("platform_dependent: give a function for a platform, or a default.")
    index = platform_index_p.bind(platforms=platforms)
    if is_concrete(index) or len(branches) == 1:
        return branches[int(full_lower(index)) if is_concrete(index) else 0](*args)
    names = [str(p or "default") for p in platforms]
    return choose("platform_dependent", index, branches, args, names, branches_platforms=platforms)
