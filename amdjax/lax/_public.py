"""Public functions of elementwise primitives, which differ in a name, a sentence and an example.

The tables in `_docs` say the rest: what is taken, returned and raised.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from amdjax.core.array import Array
from amdjax.core.primitive import Primitive
from amdjax.lax.accuracy import AccuracyMode, Tolerance
from amdjax.typing import ArrayLike

Function = TypeVar("Function", bound=Callable[..., Any])


class Unary(Protocol):
    def __call__(self, x: ArrayLike) -> Array: ...


class AccurateUnary(Protocol):
    def __call__(self, x: ArrayLike, *, accuracy: Any = None) -> Array: ...


class Binary(Protocol):
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array: ...


def unary_function(primitive: Primitive, text: str, arguments: str, result: str) -> Unary:
    """The public function of a primitive of one array.

    Args:
      primitive: what it binds; the function has its name.
      text: what its docstring says before the example.
      arguments: those of an example.
      result: what is printed for it, as a Python number.
    """

    def call(x: ArrayLike) -> Array:
        return primitive.bind(x)

    return _named(call, primitive.name, text, arguments, result)


def accurate_function(
    primitive: Primitive, text: str, arguments: str, result: str
) -> AccurateUnary:
    """As `unary_function`; it takes `accuracy`, as in JAX."""

    def call(x: ArrayLike, *, accuracy: Any = None) -> Array:
        if accuracy is not None and not isinstance(accuracy, (AccuracyMode, Tolerance)):
            raise NotImplementedError(
                f"{primitive.name}: accuracy must be an AccuracyMode or a Tolerance, got "
                f"{accuracy!r}"
            )
        return primitive.bind(x)

    return _named(call, primitive.name, text, arguments, result)


def binary_function(
    primitive: Primitive, text: str, arguments: str, result: str, name: str = ""
) -> Binary:
    """As `unary_function`, of two arrays; `name` is for what is not called as its primitive."""

    def call(x: ArrayLike, y: ArrayLike) -> Array:
        return primitive.bind(x, y)

    return _named(call, name or primitive.name, text, arguments, result)


def _named(fn: Function, name: str, text: str, arguments: str, result: str) -> Function:
    kind = "float" if "." in result else type(ast.literal_eval(result)).__name__
    return named(fn, name, text, f"{kind}({name}({arguments}))", result, 3)


def named(
    fn: Function, name: str, text: str, example: str, result: str, depth: int = 2
) -> Function:
    """`fn` under another name, as if written where it is called for, `depth` calls further up."""
    fn.__name__ = fn.__qualname__ = name
    fn.__module__ = sys._getframe(depth).f_globals["__name__"]
    fn.__doc__ = f"{text}\n\n>>> {example}\n{result}"
    return fn
