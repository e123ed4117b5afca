"""Checks that a program makes itself: `check`, `debug_check`, `check_error`."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_leaves, tree_unflatten
from amdjax.experimental.checkify.error import (
    Error,
    FailedCheckError,
    first_of_batch,
    init_error,
    is_array,
)

# Its operands are the leaves of an `Error`, whose structure is the parameter `err_tree`.
check_p = Primitive("check", multiple_results=True)


@check_p.def_abstract_eval
def _type(*avals: Any, **_: Any) -> list[Any]:
    return []


@check_p.def_effects
def _effects(*avals: Any, err_tree: Any, **_: Any) -> Any:
    return frozenset(tree_unflatten(err_tree, avals).effects)


@check_p.def_impl
def _impl(*leaves: Any, err_tree: Any, debug: bool) -> list[Any]:
    if not debug:
        tree_unflatten(err_tree, leaves).throw()
    return []


def _lower(*leaves: Any, debug: bool, **_: Any) -> list[Any]:
    if debug:
        return []
    raise ValueError(
        "Cannot abstractly evaluate a checkify.check which was not functionalized. This probably"
        " means that you tried to stage (jit/scan/pmap/...) a `check` without functionalizing it"
        " through `checkify.checkify`."
    )


check_p.lowering = Decompose(_lower)


@check_p.def_jvp
def _jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    return check_p.bind(*primals, **params), []


@check_p.def_batch
def _batch(axis: Any, leaves: Any, dims: Any, *, err_tree: Any, debug: bool) -> Any:
    moved = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(leaves, dims, strict=True)]
    bind(first_of_batch(tree_unflatten(err_tree, moved)), debug)
    return [], []


def bind(error: Error, debug: bool) -> None:
    """Record a check whose outcome is known as an error."""
    leaves, tree = tree_flatten(error)
    check_p.bind(*leaves, err_tree=tree, debug=debug)


def _check(what: str, pred: Any, msg: str, args: Any, kwargs: Any, debug: bool) -> None:
    is_flag = np.shape(pred) == () and np.dtype(jnp.result_type(pred)) == np.bool_
    if not is_flag:
        raise TypeError(f"{what} takes a scalar pred as argument, got {pred}")
    for leaf in tree_leaves((args, kwargs)):
        if not is_array(leaf):
            raise TypeError(
                f"Formatting arguments to {what} need to be PyTrees of arrays, but got"
                f" {leaf!r} of type {type(leaf)}."
            )
    leaves, tree = tree_flatten((args, kwargs))

    def message(*arrays: Any) -> str:
        values, names = tree_unflatten(tree, arrays)
        return f"{msg.format(*values, **names)} (`check` failed)"

    bind(init_error.added(jnp.logical_not(pred), FailedCheckError, message, leaves), debug)


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Check that a condition holds.

    In a compiled program the check must be made a value by `checkify`; called on arrays it raises.

    Args:
      pred: one boolean.
      msg: what to say if it is false, with places for the arguments as in `str.format`.
      fmt_args: pytrees of arrays for these places.
      debug: make the check only under `checkify`.
      fmt_kwargs: the same, by name.

    Raises:
      JaxRuntimeError: it is false.
      TypeError: `pred` is no single boolean, or an argument is no array.
      ValueError: a program with a check is compiled without `checkify`.

        >>> from amdjax.experimental import checkify
        >>> checkify.check(jnp.array(1.0) > 0, "must be positive")
    """
    _check("checkify.check", pred, msg, fmt_args, fmt_kwargs, debug)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Check that a condition holds, but under `checkify` alone.

    Args:
      pred: one boolean.
      msg: what to say if it is false; see `check`.
      fmt_args: pytrees of arrays for the message.
      fmt_kwargs: the same, by name.

    Raises:
      TypeError: `pred` is no single boolean, or an argument is no array.

        >>> from amdjax.experimental import checkify
        >>> checkify.debug_check(jnp.array(1.0) < 0, "must be negative")
    """
    _check("checkify.debug_check", pred, msg, fmt_args, fmt_kwargs, True)


def check_error(error: Error) -> None:
    """Raise an error that `checkify` returned; in a program, make it a check again.

    Args:
      error: the error; of a batch the first failure counts.

    Raises:
      JaxRuntimeError: there is one.
      ValueError: the argument is no `Error`.

        >>> from amdjax.experimental import checkify
        >>> error, y = checkify.checkify(jnp.sin)(1.0)
        >>> checkify.check_error(error)
    """
    if not isinstance(error, Error):
        raise ValueError(f"check_error takes an Error as argument, got type {type(error)} instead.")
    if any(np.shape(p) for p in error._pred.values()):
        error = first_of_batch(error)
    if error._pred:
        bind(error, False)
