"""`closure_convert` and `custom_gradient`: custom rules around functions that close over values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.jaxpr import eval_jaxpr
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.core.trace import Tracer
from amdjax.transforms.custom import custom_vjp
from amdjax.transforms.flat import FlatFunction, flatten_fun, fun_name, shaped
from amdjax.transforms.linear import has_tangent


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Any, list[Any]]:
    """A function without hidden dependence on values that are being differentiated.

    Args:
      fun: a function that may close over traced values.
      *example_args: arguments of the shapes and dtypes it will be called with.

    Returns:
      `(converted, consts)`: `converted(*args, *consts)` computes `fun(*args)`, where `consts` are
      the values `fun` closes over that can be differentiated.

        >>> def scaled(y):
        ...     f, consts = amdjax.closure_convert(lambda x: x * y, 1.0)
        ...     return f(2.0, *consts)
        >>> print(amdjax.grad(scaled)(3.0))
        2.0
    """
    leaves, flat = flatten_fun(fun, example_args, {})
    closed = trace_to_jaxpr(flat, [shaped(x) for x in leaves])
    moved = [isinstance(c, Tracer) and has_tangent(c) for c in closed.consts]
    hoisted = [c for c, m in zip(closed.consts, moved) if m]
    kept = [c for c, m in zip(closed.consts, moved) if not m]
    in_tree, out_tree, jaxpr = flat.in_tree, flat.out_tree, closed.jaxpr

    @api_boundary
    def converted(*args: Any) -> Any:
        count = len(args) - len(hoisted)
        args, given = args[:count], iter(args[count:])
        rest = iter(kept)
        consts = [next(given) if m else next(rest) for m in moved]
        leaves, tree = tree_flatten((args, {}))
        if tree != in_tree:
            raise TypeError(
                "The inputs to the closure produced by closure_convert must have the structure of "
                f"the example arguments of {fun_name(fun)}, {in_tree.children()[0]}, got "
                f"{tree.children()[0]}"
            )
        return tree_unflatten(out_tree, eval_jaxpr(jaxpr, consts, *leaves))

    return converted, hoisted


class _Rule:
    """A traced reverse rule; it is a static residual, its constants are dynamic ones."""

    def __init__(self, flat: FlatFunction, closed: Any):
        self.flat = flat
        self.jaxpr = closed.jaxpr

    def __call__(self, consts: list[Any], cotangent: Any) -> Any:
        return self.flat.unflatten(eval_jaxpr(self.jaxpr, consts, *tree_flatten(cotangent)[0]))


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns its result together with its own pull-back.

    Args:
      fun: returns `(result, vjp)`, where `vjp(cotangent)` returns the cotangent of the argument,
        or a tuple of them if there are several.

    Returns:
      A function that returns `result` and is differentiated by `vjp`.

        >>> @amdjax.custom_gradient
        ... def f(x):
        ...     return x**2, lambda g: (g * x,)
        >>> print(f(3.0), amdjax.grad(f)(3.0))
        9.0 3.0
    """
    if not callable(fun):
        raise TypeError(f"custom_gradient: fun must be callable, got {fun!r}")

    @functools.wraps(fun)
    @api_boundary
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        def value(*args: Any) -> Any:
            return fun(*args, **kwargs)[0]

        def fwd(*args: Any) -> Any:
            result, vjp = fun(*args, **kwargs)
            leaves = tree_flatten(result)[0]
            in_tree = tree_flatten(((result,), {}))[1]
            flat = FlatFunction(vjp, in_tree)
            closed = trace_to_jaxpr(flat, [get_aval(x).to_tangent() for x in leaves])
            return result, (_Rule(flat, closed), list(closed.consts))

        def bwd(residuals: Any, cotangent: Any) -> Any:
            rule, consts = residuals
            found = rule(consts, cotangent)
            return found if isinstance(found, tuple) else (found,)

        custom = custom_vjp(functools.wraps(fun)(value))
        custom.fun = value
        custom.defvjp(fwd, bwd)
        return custom(*args)

    return wrapped
