"""Networks taken apart: parameters and state, some leaves and the others, one place of a tree."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.pytree import (
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_unflatten,
)
from amdjax.nn.module import Module, in_state
from amdjax.numpy._util import dtype_of, is_arraylike

__all__ = ["combine", "count_parameters", "partition", "tree_at"]

T = TypeVar("T")
_MISSING: Any = object()


def partition(tree: T, filter: Any = None) -> tuple[T, T]:
    """Some leaves of a network and all others, in two trees of its form.

    Each has None where the other has a leaf. Without `filter` the first holds the trained
    parameters: the floating-point and complex arrays outside of `state` fields. To freeze some of
    them, part these once more and differentiate in what is left.

    Args:
      filter: what the first tree holds: a function of a leaf, or of its key path and a leaf; a tree
        of bools that `tree`, or the beginning of it, has the form of; a dtype or a kind of them,
        such as `jnp.floating`; a class, of modules for all leaves in such modules.

    Returns:
      `(chosen, rest)`; `combine` joins them.

    Raises:
      TypeError: `filter` is none of these.

        >>> layer = nn.BatchNorm(3)
        >>> parameters, rest = nn.partition(layer)
        >>> parameters
        BatchNorm(scale=float32[3], bias=float32[3], mean=None, variance=None)
        >>> nn.combine(parameters, rest)
        BatchNorm(scale=float32[3], bias=float32[3], mean=float32[3], variance=float32[3])
        >>> nn.partition(parameters, lambda path, x: path[-1].name == "bias")[0]
        BatchNorm(scale=None, bias=float32[3], mean=None, variance=None)
    """
    leaves, structure = tree_flatten(tree)
    chosen = list(_chosen(tree, filter))
    return (
        tree_unflatten(structure, [x if yes else None for x, yes in zip(leaves, chosen)]),
        tree_unflatten(structure, [None if yes else x for x, yes in zip(leaves, chosen)]),
    )


def _chosen(tree: Any, filter: Any) -> Iterator[bool]:
    """Whether `filter` wants each leaf of a tree."""
    leaves = tree_leaves(tree)
    if filter is None:
        return (_is_inexact(x) and not state for x, state in zip(leaves, in_state(tree)))
    if isinstance(filter, type) and issubclass(filter, Module):
        return _inside(tree, filter)
    kind = _dtype_of_filter(filter)
    if kind is not None:
        return (is_arraylike(x) and dtypes.issubdtype(dtype_of(x), kind) for x in leaves)
    if isinstance(filter, type):
        return (isinstance(x, filter) for x in leaves)
    if callable(filter) and not isinstance(filter, Module):
        if _takes_path(filter):
            return (bool(filter(path, x)) for path, x in tree_flatten_with_path(tree)[0])
        return map(bool, map(filter, leaves))
    return _of_mask(tree, filter)


def _is_inexact(x: Any) -> bool:
    return is_arraylike(x) and dtypes.issubdtype(dtype_of(x), np.inexact)


def _inside(tree: Any, cls: type) -> Iterator[bool]:
    """Whether each leaf lies in a module of a class."""
    found = lambda x: isinstance(x, cls)
    for node in tree_leaves(tree, is_leaf=found):
        yield from [True] * len(tree_leaves(node)) if found(node) else (False,)


def _dtype_of_filter(filter: Any) -> Any:
    """The dtype, or the kind of dtypes, that a filter is; None if it is something else."""
    if isinstance(filter, type) and issubclass(filter, np.generic):
        return filter
    if isinstance(filter, (str, np.dtype, type(jnp.float32))):
        return np.dtype(filter)
    return None


def _takes_path(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a builtin
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) == 2


def _of_mask(tree: Any, mask: Any) -> Iterator[bool]:
    flags, structure = tree_flatten(mask)
    if not all(isinstance(x, (bool, np.bool_)) for x in flags):
        raise TypeError(
            "partition: filter must be a function, a dtype, a class or a tree of bools, got "
            f"{mask!r}."
        )
    for flag, part in zip(flags, structure.flatten_up_to(tree)):
        yield from [bool(flag)] * len(tree_leaves(part))


def combine(*trees: T) -> T:
    """Join what `partition` separated: each leaf from the first tree that has it.

    Args:
      trees: trees of one form with None for missing leaves.

        >>> nn.combine({"a": 1, "b": None}, {"a": None, "b": 2})
        {'a': 1, 'b': 2}
    """
    first = lambda *leaves: next((x for x in leaves if x is not None), None)
    return tree_map(first, *trees, is_leaf=lambda x: x is None)


def count_parameters(tree: Any) -> int:
    """The number of trained numbers in a network; an array at several places counts once.

    >>> nn.count_parameters(nn.Dense(2, 3, key=amdjax.random.key(0)))
    9
    """
    distinct = {id(x): x for x in tree_leaves(partition(tree)[0])}
    return sum(int(np.size(x)) for x in distinct.values())


class _Place:
    """What stands for a leaf while `where` of `tree_at` looks at a tree."""

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf


def tree_at(
    where: Callable[[T], Any],
    tree: T,
    replace: Any = _MISSING,
    replace_fn: Callable[[Any], Any] | None = None,
) -> T:
    """A tree with something else at one place of it, or at several.

    Args:
      where: takes the tree and returns a part of it, or a tuple or list of parts. It finds places;
        the leaves it sees are no arrays.
      tree: a module or another pytree.
      replace: what comes there; as many as there are parts if `where` returns several.
      replace_fn: makes of each part what comes in its place.

    Returns:
      The changed tree.

    Raises:
      TypeError: neither `replace` nor `replace_fn` is given, or both are.
      ValueError: `where` returns what is no part of the tree, or a part more than once.

        >>> net = nn.Sequential([nn.Dense(2, 3, key=amdjax.random.key(0)), nn.relu])
        >>> nn.tree_at(lambda net: net.layers[0].bias, net, None)[0]
        Dense(kernel=float32[2,3], bias=None)
    """
    if (replace is _MISSING) == (replace_fn is None):
        raise TypeError("tree_at: either replace or replace_fn must be given.")
    leaves, structure = tree_flatten(tree, is_leaf=lambda x: x is None)
    marked = tree_unflatten(structure, list(map(_Place, leaves)))
    found = _where(where, marked)
    single = _found(marked, [found]) or not isinstance(found, (tuple, list))
    parts = [found] if single else list(found)
    if not _found(marked, parts):
        raise ValueError(
            "tree_at: where must return parts of the tree it is given, each once and none within "
            f"another, got {found!r}."
        )
    if replace_fn is not None:
        new = [replace_fn(tree_map(lambda place: place.leaf, part)) for part in parts]
    else:
        if not single and not isinstance(replace, (tuple, list)):
            raise ValueError(
                f"tree_at: replace must be a list with one entry for each of {len(parts)} parts, "
                f"got {replace!r}."
            )
        new = [replace] if single else list(replace)
    if len(new) != len(parts):
        raise ValueError(
            f"tree_at: replace must have one entry for each of {len(parts)} parts, got {len(new)}."
        )
    by_part = {id(part): value for part, value in zip(parts, new)}
    put = lambda part: by_part[id(part)] if id(part) in by_part else part.leaf  # noqa: SIM401
    return tree_map(put, marked, is_leaf=lambda x: id(x) in by_part)


def _where(where: Callable[[Any], Any], marked: Any) -> Any:
    """What `where` finds; what it cannot do with leaves is said of it."""
    if not callable(where):
        raise TypeError(f"tree_at: where must be a function of the tree, got {where!r}.")
    try:
        return where(marked)
    except (AttributeError, TypeError) as error:
        if _Place.__name__ not in str(error):
            raise
        what = str(error).replace(_Place.__name__, "leaf")
    raise TypeError(
        "tree_at: where must return parts of the tree as they are; the leaves that it sees stand "
        f"for places and are no arrays to compute with: {what}."
    )


def _found(marked: Any, parts: list[Any]) -> bool:
    """Whether each of `parts` is at one place of a tree, and none within another."""
    wanted = {id(part) for part in parts}
    stops = tree_leaves(marked, is_leaf=lambda x: id(x) in wanted)
    return sorted(id(x) for x in stops if id(x) in wanted) == sorted(map(id, parts))
