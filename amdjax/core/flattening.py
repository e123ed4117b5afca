"""Pytrees as their leaves and structures, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amdjax.core.container_kinds import TUPLE
from amdjax.core.key_paths import KeyPath
from amdjax.core.recursion import Room, deep
from amdjax.core.treedef import (
    _FLATTENERS,
    LEAF,
    IsLeaf,
    PyTreeDef,
    _intern,
    _kind_of,
)


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], PyTreeDef]:
    """Split a pytree into its leaves and its structure.

    Args:
      tree: nested containers. Dicts are flattened in the order of their sorted keys; None is
        a container without leaves; whatever is no registered container is a leaf.
      is_leaf: called with each subtree; a true result makes it a leaf.

    Returns:
      ``(leaves, treedef)``.

    Raises:
      ValueError: the keys of a dict cannot be sorted.

        >>> tree_flatten({"b": 2, "a": (0, None)})
        ([0, 2], PyTreeDef({'a': (*, None), 'b': *}))
    """
    if is_leaf is not None:
        return _flattened_until(tree, is_leaf)
    flatten = _FLATTENERS[type(tree)]
    if flatten is None:
        return [tree], LEAF
    leaves: list[Any] = []
    try:
        return leaves, flatten(tree, leaves)
    except RecursionError:  # as `deep` does it, on the way of every call
        leaves = []
        with Room():
            return leaves, flatten(tree, leaves)


@deep
def _flattened_until(tree: Any, is_leaf: IsLeaf) -> tuple[list[Any], PyTreeDef]:
    leaves: list[Any] = []
    return leaves, _flatten_until(tree, leaves, is_leaf)


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """Rebuild a pytree; inverse of `tree_flatten`.

    Args:
      treedef: the structure.
      leaves: as many values as it has leaves.

    Raises:
      ValueError: their number does not fit.

        >>> tree_unflatten(tree_structure((0, [0])), [1, 2])
        (1, [2])
    """
    if not isinstance(treedef, PyTreeDef):  # inlined `_treedef`, for speed
        raise TypeError(f"tree_unflatten: treedef must be a PyTreeDef, got {treedef!r}")
    return treedef.unflatten(leaves)


def _treedef(name: str, argument: str, value: Any) -> PyTreeDef:
    """`value` if it is a structure, else a TypeError naming the function and the argument."""
    if not isinstance(value, PyTreeDef):
        raise TypeError(f"{name}: {argument} must be a PyTreeDef, got {value!r}")
    return value


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a pytree, left to right; arguments as in `tree_flatten`.

    >>> tree_leaves([1, (2, [3])])
    [1, 2, 3]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> PyTreeDef:
    """The structure of a pytree; arguments as in `tree_flatten`.

    >>> tree_structure([1, (2,)])
    PyTreeDef([*, (*,)])
    """
    return tree_flatten(tree, is_leaf)[1]


@deep
def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """Like `tree_flatten`, with the key path of each leaf.

    Args:
      tree: the pytree.
      is_leaf: a true result makes the subtree a leaf.
      is_leaf_takes_path: call ``is_leaf(path, subtree)`` instead of ``is_leaf(subtree)``.

    Returns:
      ``([(path, leaf), ...], treedef)``.

        >>> from amdjax.core.pytree import keystr
        >>> [(keystr(p), x) for p, x in tree_flatten_with_path({"a": [5, 6]})[0]]
        [("['a'][0]", 5), ("['a'][1]", 6)]
    """
    predicate = is_leaf
    if is_leaf is not None and not is_leaf_takes_path:
        predicate = lambda _, x: is_leaf(x)
    out: list[tuple[KeyPath, Any]] = []
    return out, _flatten_with_path(tree, (), out, predicate)


def tree_leaves_with_path(
    tree: Any, is_leaf: IsLeaf | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """The leaves of a pytree with their key paths; arguments as in `tree_flatten_with_path`.

    >>> tree_leaves_with_path({"a": 5})
    [((DictKey(key='a'),), 5)]
    """
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple whose items have the given structures.

    >>> treedef_tuple([tree_structure(0), tree_structure([0])])
    PyTreeDef((*, [*]))
    """
    items = tuple(_treedef("treedef_tuple", "each of treedefs", t) for t in treedefs)
    return _intern(TUPLE, None, items)


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """Structures of the immediate children.

    >>> treedef_children(tree_structure((0, [0])))
    [PyTreeDef(*), PyTreeDef([*])]
    """
    return _treedef("treedef_children", "treedef", treedef).children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is one node: a leaf, or a container without children.

    >>> treedef_is_leaf(tree_structure(1)), treedef_is_leaf(tree_structure([1]))
    (True, False)
    """
    return _treedef("treedef_is_leaf", "treedef", treedef).num_nodes == 1


def treedef_is_strict_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is a leaf, and no empty container."""
    return treedef._kind is None


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf | None = None) -> bool:
    """Whether every item is a leaf.

    Args:
      iterable: the items.
      is_leaf: a true result makes an item a leaf.

        >>> all_leaves([1, 2]), all_leaves([1, (2,)]), all_leaves([None])
        (True, False, False)
    """
    if is_leaf is None:
        return all([_FLATTENERS[type(x)] is None for x in iterable])
    return all([is_leaf(x) or _FLATTENERS[type(x)] is None for x in iterable])


def _flatten_until(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> PyTreeDef:
    """Flatten with a predicate which may stop early."""
    kind = None if is_leaf(tree) else _kind_of(type(tree))
    if kind is None:
        leaves.append(tree)
        return LEAF
    children, data = kind.split(tree)
    return _intern(kind, data, tuple([_flatten_until(c, leaves, is_leaf) for c in children]))


def _flatten_with_path(
    tree: Any, path: KeyPath, out: list[tuple[KeyPath, Any]], is_leaf: IsLeaf | None
) -> PyTreeDef:
    stop = is_leaf is not None and is_leaf(path, tree)
    kind = None if stop else _kind_of(type(tree))
    if kind is None:
        out.append((path, tree))
        return LEAF
    pairs, data = kind.children_with_keys(tree)
    children = [_flatten_with_path(c, (*path, k), out, is_leaf) for k, c in pairs]
    return _intern(kind, data, tuple(children))
