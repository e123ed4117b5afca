"""`apply`: a module called with what surrounds it, and returned with its new state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from amdjax.core.key_paths import keystr
from amdjax.core.pytree import tree_flatten_with_path, tree_map
from amdjax.nn._random import checked_key
from amdjax.nn._scope import Scope, is_training, training
from amdjax.nn.module import Module
from amdjax.nn.precision import Policy

__all__ = ["apply", "is_training"]

T = TypeVar("T")


def apply(
    model: T, *args: Any, key: Any = None, train: bool | None = None,
    method: str | Callable[..., Any] | None = None, policy: Policy | None = None, **kwargs: Any,
) -> tuple[Any, T]:  # fmt: skip
    """Call a network; returns its result and the network with its new state.

    It is a pure function. Within it the layers find what they need without their parents' help:
    whether they train, keys for what is random, and a place for what they record, such as running
    statistics. Keys follow from `key` and the order in which they are asked for.

    Layers inside of a function that is transformed by itself, such as the body of a `scan` or what
    `checkpoint` computes again, cannot record and draw from outside of it: there, `apply` is called
    inside the function, with a key of its own, and the layer that it returns is returned.

    Args:
      args: what the module is called with.
      key: key of all that is random; needed only where there is such.
      train: whether layers behave as in training; None means as in the `apply` around this one, and
        False outside of one.
      method: what to call in place of the module itself: the name of a method, or a function that
        takes the module first.
      policy: dtypes to compute in; None means those of the network and its arguments.
      kwargs: what the module is called with by name.

    Returns:
      `(y, model)`: the result, and the network, changed in its `state` fields only.

    Raises:
      TypeError: `model` cannot be called, or `policy` is none.
      ValueError: a layer needs a key and there is none; a layer that records is held twice.
      RuntimeError: a layer records or draws inside a function that is transformed by itself.

        >>> layer = nn.BatchNorm(2, momentum=0.5)
        >>> y, layer = nn.apply(layer, jnp.array([[1.0, 2.0], [3.0, 6.0]]), train=True)
        >>> layer.mean
        Array([1., 2.], dtype=float32)
    """
    if policy is not None and not isinstance(policy, Policy):
        raise TypeError(f"apply: policy must be an nn.Policy, got {policy!r}.")
    used = model if policy is None else policy.cast_to_compute(model)
    if policy is not None:
        args, kwargs = policy.cast_to_compute((args, kwargs))
    if key is not None:
        checked_key("apply", key)
    scope = Scope(key, functools.cache(lambda: places(used)))
    with scope, training(is_training(train)):
        y = _callee(used, method)(*args, **kwargs)
    if policy is not None:
        y = policy.cast_to_output(y)
    return y, _updated(model, used, scope.records)


def _callee(model: Any, method: str | Callable[..., Any] | None) -> Callable[..., Any]:
    if isinstance(method, str):
        return getattr(model, method)
    if method is not None:
        return functools.partial(method, model)
    if not callable(model):
        raise TypeError(f"apply: model must be callable unless method is given, got {model!r}.")
    return model


def _below(tree: Any) -> Callable[[Any], bool]:
    """Whether something is a module within `tree`, at which to stop."""
    return lambda x: isinstance(x, Module) and x is not tree


def places(tree: Any, prefix: str = "") -> dict[int, list[str]]:
    """The paths of each module in a tree, by its id."""
    found = {id(tree): [prefix]} if isinstance(tree, Module) else {}
    for path, node in tree_flatten_with_path(tree, is_leaf=_below(tree))[0]:
        if isinstance(node, Module):
            for module, paths in places(node, prefix + keystr(path)).items():
                found.setdefault(module, []).extend(paths)
    return found


def map_modules(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """A tree with each module replaced by `f` of it, inner ones first.

    Args:
      f: takes a module, in which inner ones have been replaced, and the modules of `rest` there.
      rest: trees of the same form.
    """
    inner = lambda x, *xs: map_modules(f, x, *xs) if isinstance(x, Module) else x
    changed = tree_map(inner, tree, *rest, is_leaf=_below(tree))
    return f(changed, *rest) if isinstance(tree, Module) else changed


def _updated(model: T, used: T, records: dict[int, dict[str, Any]]) -> T:
    """A network with what the modules of `used`, which has its form, recorded."""
    if not records:
        return model
    return map_modules(
        lambda module, used: module.replace(**records.get(id(used), {})), model, used
    )
