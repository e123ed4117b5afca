"""Reverse mode in two compiled parts: the forward pass, and the pull-back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.jit.api import jit
from amdjax.transforms.differentiate import (
    as_asked,
    check_argnums,
    check_callable,
    differentiated,
    vjp,
)

__all__ = ["fwd_and_bwd"]


def fwd_and_bwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    jitted: bool = True,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The forward and the backward pass of a function as two functions, each compiled once.

    Args:
      fun: a function of pytrees of arrays.
      argnums: which positional arguments to differentiate by; an int or a sequence.
      has_aux: whether `fun` returns a pair of which only the first is differentiated.
      jitted: whether both are compiled. A compiled `bwd` of a `fwd` that is not would be compiled
        again in each call.

    Returns:
      `fwd(*args)`, which returns `(result, residuals)` or `(result, residuals, aux)`, and
      `bwd(residuals, cotangent)`, which returns the cotangent of the argument, or a tuple of them
      if `argnums` is a sequence.

    Raises:
      TypeError: `fun` is not callable or `argnums` are no integers.

        >>> fwd, bwd = amdjax.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
        >>> y, residuals = fwd(2.0, 3.0)
        >>> print(y, *bwd(residuals, 1.0))
        6.0 3.0 2.0
    """
    check_callable(fun)
    check_argnums(argnums)

    def fwd(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = differentiated(fun, argnums, args, kwargs)
        return vjp(partial, *chosen, has_aux=has_aux)

    def bwd(residuals: Any, cotangent: Any) -> Any:
        return as_asked(argnums, residuals(cotangent))

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)


_public_surface(globals())
