"""What the functions of all distributions do with their arguments, and what is said of these."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
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


def distribution_function(
    real: bool = False, /, **parameters: str
) -> Callable[[Function], Function]:
    """Mark a function of a distribution: its arguments are promoted, broadcast and documented.

    Args:
      real: whether complex arguments are refused, as where numbers are compared.
      parameters: what the distribution's own parameters are.

    Returns:
      A decorator. The function it makes is one program when called eagerly, and its docstring
      lists the arguments.
    """
    returns = "Numbers of the arguments' common shape and inexact dtype."
    family = Family("", returns, **parameters)

    def decorate(fn: Function) -> Function:
        # A function made of another has its parameters.
        code = inspect.unwrap(fn).__code__
        signature = inspect.signature(fn)
        name = f"{fn.__module__.rsplit('.', 1)[-1]}.{fn.__name__}"

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Array:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            promoted = promote_args_inexact(name, *bound.arguments.values())
            if real and dtypes.issubdtype(promoted[0].dtype, np.complexfloating):
                raise TypeError(f"{name} takes real numbers, got dtype {promoted[0].dtype}.")
            return fn(*promoted)

        if fn.__doc__:
            call.__doc__ = rendered(fn, code, family, _PHRASES)
        return composite(call)  # type: ignore[return-value]

    return decorate


_SENTENCES = {
    "pmf": "The probability.",
    "pdf": "The density.",
    "cdf": "The distribution function.",
    "logcdf": "The logarithm of the distribution function.",
    "sf": "One less the distribution function, accurate in the upper tail.",
    "logsf": "The logarithm of `sf`.",
}


def derived(
    decorate: Callable[[Function], Function], name: str, of: Function, arguments: str, result: str
) -> Function:
    """The exponential or the logarithm of a distribution's function.

    Args:
      decorate: what `distribution_function` gave for the distribution.
      name: that of the function.
      of: the function whose exponential it is; whose logarithm, if its name begins so.
      arguments: those of the example.
      result: what it gives, as NumPy prints it; a weak float32.
    """
    outer = jnp.log if name.startswith("log") else jnp.exp

    @functools.wraps(of)
    def fn(*args: Any) -> Array:
        return outer(of(*args))

    distribution = fn.__module__.rsplit(".", 1)[-1]
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"""{_SENTENCES[name]}

    >>> amdjax.scipy.stats.{distribution}.{name}({arguments})
    Array({result}, dtype=float32, weak_type=True)
    """
    return decorate(fn)  # type: ignore[arg-type]


def inside(condition: Any, value: Any, otherwise: float) -> Array:
    """`value` on the support of a distribution, a number elsewhere."""
    return jnp.where(condition, value, otherwise)


def probability(q: Any, value: Any) -> Array:
    """A quantile, NaN where `q` is no probability."""
    return inside((q >= 0) & (q <= 1), value, math.nan)
