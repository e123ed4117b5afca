"""Functions of one array that differ in what they compute, a sentence and an example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from amdjax.core.array import Array
from amdjax.lax._public import named
from amdjax.numpy._util import ArrayLike, promote_args_inexact


class Unary(Protocol):
    def __call__(self, x: ArrayLike, /) -> Array: ...


class Special(Protocol):
    def __call__(self, x: ArrayLike) -> Array: ...


def float_function(
    name: str, fn: Callable[[Array], Array], text: str, argument: str, result: str
) -> Unary:
    """A function of an array that becomes one of floats, if it is of integers.

    Args:
      name: its name.
      fn: what it computes.
      text: what its docstring says before the example.
      argument: a Python number, of an example.
      result: what is printed for it, as NumPy prints a number.
    """

    def call(x: ArrayLike, /) -> Array:
        return fn(*promote_args_inexact(name, x))

    return named(call, name, text, f"jnp.{name}({argument})", _WEAK.format(result))


def special_function(
    name: str, fn: Callable[[Array], Array], text: str, argument: str, result: str
) -> Special:
    """As `float_function`, for `scipy.special`."""

    def call(x: ArrayLike) -> Array:
        return fn(*promote_args_inexact(name, x))

    return named(call, name, text, f"special.{name}({argument})", _WEAK.format(result))


_WEAK = "Array({}, dtype=float32, weak_type=True)"
