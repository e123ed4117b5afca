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
from amdjax.core.docs import Family, Phrases, rendered
from amdjax.numpy._util import promote_args_inexact

# Any array-like for those who call; arrays of one inexact dtype in the function's body.
Number: TypeAlias = Any

Function = TypeVar("Function", bound=Callable[..., Any])

LOG_TWO_PI = math.log(2 * math.pi)

_PHRASES = Phrases(
    {
        "x": "where, of any shape.",
        "k": "where, whole numbers of any shape.",
        "q": "probabilities.",
        "loc": "by how much the distribution is moved.",
        "scale": "by how much it is stretched.",
    },
    {"Number": "TypeError: for what is neither an array nor a number."},
)


def distribution_function(**parameters: str) -> Callable[[Function], Function]:
    """Mark a function of a distribution: its arguments are promoted, broadcast and documented.

    Args:
      parameters: what the distribution's own parameters are.

    Returns:
      A decorator. The function it makes is one program when called eagerly, and its docstring
      lists the arguments.
    """
    returns = "Numbers of the arguments' common shape and inexact dtype."
    family = Family("", returns, **parameters)

    def decorate(fn: Function) -> Function:
        signature = inspect.signature(fn)
        name = f"{fn.__module__.rsplit('.', 1)[-1]}.{fn.__name__}"

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Array:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return fn(*promote_args_inexact(name, *bound.arguments.values()))

        if fn.__doc__:
            call.__doc__ = rendered(fn, fn.__code__, family, _PHRASES)
        return composite(call)  # type: ignore[return-value]

    return decorate


def inside(condition: Any, value: Any, otherwise: float) -> Array:
    """`value` on the support of a distribution, a number elsewhere."""
    return jnp.where(condition, value, otherwise)


def probability(q: Any, value: Any) -> Array:
    """A quantile, NaN where `q` is no probability."""
    return inside((q >= 0) & (q <= 1), value, math.nan)
