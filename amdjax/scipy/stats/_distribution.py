"""What the functions of all distributions do with their arguments, and what is said of these."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import promote_args_inexact

# Any array-like for those who call; arrays of one inexact dtype in the function's body.
Number: TypeAlias = Any

Function = TypeVar("Function", bound=Callable[..., Any])

LOG_TWO_PI = math.log(2 * math.pi)

_ARGUMENTS = {
    "x": "where, of any shape.",
    "k": "where, whole numbers of any shape.",
    "q": "probabilities.",
    "loc": "by how much the distribution is moved.",
    "scale": "by how much it is stretched.",
}


def distribution_function(**parameters: str) -> Callable[[Function], Function]:
    """Mark a function of a distribution: its arguments are promoted, broadcast and documented.

    Args:
      parameters: what the distribution's own parameters are.

    Returns:
      A decorator. The function it makes is one program when called eagerly, and its docstring
      lists the arguments.
    """
    known = {**_ARGUMENTS, **parameters}

    def decorate(fn: Function) -> Function:
        signature = inspect.signature(fn)
        name = f"{fn.__module__.rsplit('.', 1)[-1]}.{fn.__name__}"

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Array:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return fn(*promote_args_inexact(name, *bound.arguments.values()))

        described = "\n".join(f"      {p}: {known[p]}" for p in signature.parameters)
        call.__doc__ = (
            f"{(fn.__doc__ or '').rstrip()}\n\n    Args:\n{described}\n\n    Returns:\n"
            "      Numbers of the arguments' common shape and inexact dtype.\n    "
        )
        return composite(call)  # type: ignore[return-value]

    return decorate


def inside(condition: Any, value: Any, otherwise: float) -> Array:
    """`value` on the support of a distribution, a number elsewhere."""
    return jnp.where(condition, value, otherwise)


def probability(q: Any, value: Any) -> Array:
    """A quantile, NaN where `q` is no probability."""
    return inside((q >= 0) & (q <= 1), value, math.nan)
