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
Decorator: TypeAlias = Callable[[Function], Function]

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


_SENTENCES = {
    "pmf": "The probability.",
    "logpmf": "The logarithm of the probability.",
    "pdf": "The density.",
    "logpdf": "The logarithm of the density.",
    "cdf": "The distribution function.",
    "logcdf": "The logarithm of the distribution function.",
    "sf": "One less the distribution function, accurate in the upper tail.",
    "logsf": "The logarithm of `sf`.",
    "ppf": "The inverse of the distribution function.",
    "isf": "The inverse of `sf`.",
}
_WEAK = "Array({}, dtype=float32, weak_type=True)"


def distribution_function(
    real: bool = False, /, **parameters: str
) -> Callable[[str, str], Decorator]:
    """What marks the functions of a distribution.

    Args:
      real: whether complex arguments are refused, as where numbers are compared.
      parameters: what the distribution's own parameters are.

    Returns:
      A function of an example's arguments and its result, either as NumPy prints a weak float32 or
      whole, that makes a decorator. What this makes promotes and broadcasts its arguments, is one
      program when called eagerly, and has a docstring: a sentence, by its name unless it has its
      own, the arguments, and the example.
    """
    returns = "Numbers of the arguments' common shape and inexact dtype."
    family = Family("", returns, **parameters)

    def example(arguments: str, result: str) -> Decorator:
        return lambda fn: _function(fn, real, family, arguments, result)

    return example


def _function(
    fn: Callable[..., Any], real: bool, family: Family, arguments: str, result: str
) -> Any:
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

    sentence = fn.__doc__ or _SENTENCES[fn.__name__]
    result = result if result.startswith("Array(") else _WEAK.format(result)
    fn.__doc__ = f"{sentence}\n\n>>> amdjax.scipy.stats.{name}({arguments})\n{result}"
    call.__doc__ = rendered(fn, code, family, _PHRASES)
    return composite(call)


def derived(decorate: Decorator, name: str, of: Function) -> Function:
    """The exponential or the logarithm of a distribution's function.

    Args:
      decorate: what makes it a function of the distribution.
      name: that of the function.
      of: the function whose exponential it is; whose logarithm, if its name begins so.
    """
    outer = jnp.log if name.startswith("log") else jnp.exp

    @functools.wraps(of)
    def fn(*args: Any) -> Array:
        return outer(of(*args))

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = None
    return decorate(fn)


def inside(condition: Any, value: Any, otherwise: float) -> Array:
    """`value` on the support of a distribution, a number elsewhere."""
    return jnp.where(condition, value, otherwise)


def probability(q: Any, value: Any) -> Array:
    """A quantile, NaN where `q` is no probability."""
    return inside((q >= 0) & (q <= 1), value, math.nan)
