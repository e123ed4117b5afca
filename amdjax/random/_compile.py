"""Samplers as compiled programs: traced once for each kind of arguments, called through `jit`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from amdjax.core.aval import get_aval
from amdjax.core.config import config
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.core.source_info import unknown, written_at
from amdjax.core.trace import trace_to_jaxpr
from amdjax.transforms import bind_jit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(fun: F) -> F:
    """Run `fun` as one program.

    Args:
      fun: takes pytrees of arrays by position, and by keyword what is known when tracing: hashable.

    Returns:
      A function that computes the same.
    """
    programs: dict[Any, Any] = {}

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
        return tree_unflatten(out_tree, bind_jit(closed, leaves, name=fun.__name__))

    return cast(F, call)


def _trace(fun: Callable[..., Any], tree: Any, avals: Any, static: dict[str, Any]) -> Any:
    out_tree = None

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_tree
        outs, out_tree = tree_flatten(fun(*tree_unflatten(tree, leaves), **static))
        return outs

    with written_at(unknown):  # the program is for all callers; an equation's line is its call's
        return trace_to_jaxpr(flat, avals), out_tree
