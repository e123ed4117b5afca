"""Samplers as compiled programs: traced once for each kind of arguments, called through `jit`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.aval import get_aval
from amdjax.core.config import config
from amdjax.core.jaxpr import ClosedJaxpr, Literal
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.core.source_info import unknown, written_at
from amdjax.transforms import bind_jit

_PARTS = {np.dtype(dtypes.bfloat16): (8, 7), np.dtype(np.float16): (5, 10)}
"""Bits of exponent and mantissa of the floats that compiled chains do not round at each step."""

F = TypeVar("F", bound=Callable[..., Any])


def compiled(fun: F) -> F:
    """Run `fun` as one program.

    Args:
      fun: takes pytrees of arrays by position, and by keyword what is known when tracing: hashable.
        The program of `normal_in` is called `_normal`.

    Returns:
      A function that computes the same.
    """
    programs: dict[Any, Any] = {}
    name = "_" + fun.__name__.strip("_").removesuffix("_in")

    @functools.wraps(fun)
    def call(*args: Any, **static: Any) -> Any:
        if config.disable_jit:
            return fun(*args, **static)
        leaves, tree = tree_flatten(args)
        avals = tuple(map(get_aval, leaves))
        key = (tree, avals, tuple(static.items()), config.trace_key())
        found = programs.get(key)
        if found is None:
            found = programs[key] = _trace(fun, tree, avals, static)
        closed, out_tree = found
        return tree_unflatten(out_tree, bind_jit(closed, leaves, name=name))

    return cast(F, call)


def _trace(fun: Callable[..., Any], tree: Any, avals: Any, static: dict[str, Any]) -> Any:
    out_tree = None

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_tree
        outs, out_tree = tree_flatten(fun(*tree_unflatten(tree, leaves), **static))
        return outs

    with written_at(unknown):  # the program is for all callers; an equation's line is its call's
        closed = trace_to_jaxpr(flat, avals)
        if any(v.aval.dtype in _PARTS for eqn in closed.jaxpr.eqns for v in eqn.outvars):
            closed = trace_to_jaxpr(lambda *leaves: _rounded(closed, leaves), avals)
    return closed, out_tree


def _rounded(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """The results, each step in 16-bit floats rounded, as those of JAX's samplers are.

    A compiled chain is otherwise rounded once, at its end.
    """
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts))
    env.update(zip(closed.jaxpr.invars, args))
    read = lambda x: x.val if isinstance(x, Literal) else env[x]
    for eqn in closed.jaxpr.eqns:
        params = {k: _rounded_program(v) for k, v in eqn.params.items()}
        out = eqn.primitive.bind(*map(read, eqn.invars), **params)
        outs = out if eqn.primitive.multiple_results else [out]
        for v, value in zip(eqn.outvars, outs):
            env[v] = _round(value) if v.aval.dtype in _PARTS else value
    return [read(v) for v in closed.jaxpr.outvars]


def _rounded_program(value: Any) -> Any:
    """A parameter; if it is the program of a loop or a branch, with each step of that rounded."""
    if type(value) is tuple:  # of branches; dimension numbers are tuples with names
        return tuple(map(_rounded_program, value))
    if not isinstance(value, ClosedJaxpr):
        return value
    return trace_to_jaxpr(lambda *args: _rounded(value, args), value.in_avals)


def rounded(fun: F) -> F:
    """`fun` of arrays, within a program, with each step in 16-bit floats rounded."""

    @functools.wraps(fun)
    def call(*args: Any, **static: Any) -> Any:
        if not any(get_aval(x).dtype in _PARTS for x in args):
            return fun(*args, **static)
        closed = trace_to_jaxpr(lambda *xs: [fun(*xs, **static)], tuple(map(get_aval, args)))
        return _rounded(closed, args)[0]

    return cast(F, call)


def in_sums(x: Any) -> Any:
    """Terms of a sum: where a sum is in float32, XLA rounds none of its bfloat16 terms."""
    return lax.convert_element_type(x, np.float32) if x.dtype == dtypes.bfloat16 else x


def _round(x: Any) -> Any:
    """A float rounded to its own dtype; `reduce_precision` alone would flush subnormal numbers."""
    tiny = np.asarray(dtypes.finfo(x.dtype).tiny, x.dtype)
    return lax.select(
        lax.lt(lax.abs(x), lax.full_like(x, tiny)), x, lax.reduce_precision(x, *_PARTS[x.dtype])
    )
