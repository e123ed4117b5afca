"""Pytrees: nested containers seen as a flat list of leaves and a structure.

Here are the functions on pytrees, and everything about them under one name: `flattening.py` takes
them apart, `treedef.py` holds the structures, `key_paths.py` the ways to leaves,
`pytree_registry.py` registers container types.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable
from typing import Any

from amdjax.core.boundaries import api_boundary
from amdjax.core.container_kinds import Kind, dict_keys
from amdjax.core.flattening import (
    _treedef,
    all_leaves,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_leaves_with_path,
    tree_structure,
    tree_unflatten,
    treedef_children,
    treedef_is_leaf,
    treedef_is_strict_leaf,
    treedef_tuple,
)
from amdjax.core.key_paths import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyEntry,
    KeyPath,
    SequenceKey,
    keystr,
)
from amdjax.core.pytree_errors import prefix_errors
from amdjax.core.pytree_registry import (
    flatten_one_level,
    flatten_one_level_with_keys,
    is_tree_node,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from amdjax.core.treedef import (
    LEAF,
    IsLeaf,
    PyTreeDef,
)

__all__ = [
    "LEAF", "DictKey", "FlattenedIndexKey", "GetAttrKey", "IsLeaf", "KeyEntry", "KeyPath", "Kind",
    "Partial", "PyTreeDef", "Registry", "SequenceKey", "all_leaves", "broadcast_prefix",
    "default_registry", "flatten_one_level", "flatten_one_level_with_keys", "is_tree_node",
    "keystr", "register_dataclass", "register_pytree_node", "register_pytree_node_class",
    "register_pytree_with_keys", "register_pytree_with_keys_class", "register_static", "tree_all",
    "tree_broadcast", "tree_flatten", "tree_flatten_with_path", "tree_leaves",
    "tree_leaves_with_path", "tree_map", "tree_map_with_path", "tree_reduce",
    "tree_reduce_associative", "tree_structure", "tree_transpose", "tree_unflatten",
    "treedef_children", "treedef_is_leaf", "treedef_is_strict_leaf", "treedef_tuple",
]  # fmt: skip


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Apply a function to corresponding leaves.

    Args:
      f: takes one leaf of `tree` and, for each of `rest`, the subtree at the same place.
      tree: gives the structure of the result.
      rest: pytrees of which `tree`'s structure is a prefix.
      is_leaf: a true result makes a subtree of `tree` a leaf.

    Raises:
      ValueError: a structure in `rest` does not fit; the message names the key path.

        >>> tree_map(lambda x, y: x + y, {"a": 1, "b": (2,)}, {"a": 10, "b": (20,)})
        {'a': 11, 'b': (22,)}
    """
    leaves, treedef = tree_flatten(tree, is_leaf)
    if not rest:
        return treedef.unflatten([f(x) for x in leaves])
    columns = [_leaves_like(treedef, tree, r, "tree_map tree", is_leaf) for r in rest]
    return treedef.unflatten([f(*xs) for xs in zip(leaves, *columns)])


def tree_map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: IsLeaf | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Like `tree_map`, with the key path as the first argument of `f`.

    Args:
      f: takes the key path, the leaf, and the subtrees of `rest` at the same place.
      tree: gives the structure of the result.
      rest: pytrees of which `tree`'s structure is a prefix.
      is_leaf: a true result makes a subtree of `tree` a leaf.
      is_leaf_takes_path: call ``is_leaf(path, subtree)``.

        >>> tree_map_with_path(lambda p, x: keystr(p) + f"={x}", {"a": [1]})
        {'a': ["['a'][0]=1"]}
    """
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    stop = None if is_leaf_takes_path else is_leaf
    columns = [_leaves_like(treedef, tree, r, "tree_map_with_path tree", stop) for r in rest]
    return treedef.unflatten([f(p, x, *xs) for (p, x), *xs in zip(pairs, *columns)])


def _leaves_like(
    treedef: PyTreeDef, tree: Any, other: Any, name: str, is_leaf: IsLeaf | None
) -> list[Any]:
    """`treedef.flatten_up_to(other)` with an error which names the key path."""
    try:
        return treedef.flatten_up_to(other)
    except ValueError as e:
        errors = prefix_errors(tree, other, is_leaf)
        raise (errors[0](name) if errors else e) from None


def tree_transpose(
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any
) -> Any:
    """Turn a tree of trees inside out.

    Args:
      outer_treedef: structure of the outer tree.
      inner_treedef: structure of each inner tree; None takes that of the first.
      pytree_to_transpose: its structure is the composition of the two.

    Raises:
      TypeError: it is not.

        >>> tree_transpose(tree_structure([0, 0]), tree_structure({"a": 0}), [{"a": 1}, {"a": 2}])
        {'a': [1, 2]}
    """
    _treedef("tree_transpose", "outer_treedef", outer_treedef)
    if inner_treedef is not None:
        _treedef("tree_transpose", "inner_treedef", inner_treedef)
    leaves, treedef = tree_flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = tree_structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    inner, outer = inner_treedef.num_leaves, outer_treedef.num_leaves
    if treedef.num_leaves != inner * outer:
        expected = outer_treedef.compose(inner_treedef)
        raise TypeError(f"pytree_to_transpose: Mismatch\n{treedef}\n != \n{expected}")
    return inner_treedef.unflatten(
        [
            outer_treedef.unflatten([leaves[o * inner + i] for o in range(outer)])
            for i in range(inner)
        ]
    )


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Repeat the leaves of a prefix over the structure of a full tree.

    Args:
      prefix_tree: its structure is a prefix of `full_tree`'s.
      full_tree: gives the structure of the result.
      is_leaf: a true result makes a subtree of `prefix_tree` a leaf.

        >>> tree_broadcast((1, 2), (0, {"a": 0, "b": 0}))
        (1, {'a': 2, 'b': 2})
    """
    return tree_structure(full_tree).unflatten(broadcast_prefix(prefix_tree, full_tree, is_leaf))


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of `prefix_tree`, each repeated for the leaves of `full_tree` below it.

    Raises:
      ValueError: it is no prefix; the message names the key path.

        >>> broadcast_prefix((1, 2), (0, [0, 0]))
        [1, 2, 2]
    """
    leaves, treedef = tree_flatten(prefix_tree, is_leaf)
    name = "broadcast_prefix prefix_tree"
    subtrees = _leaves_like(treedef, prefix_tree, full_tree, name, is_leaf)
    out: list[Any] = []
    for leaf, subtree in zip(leaves, subtrees):
        out += [leaf] * tree_structure(subtree).num_leaves
    return out


_NO_VALUE: Any = type("Unspecified", (), {"__repr__": lambda self: "<unspecified>"})()


def tree_reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _NO_VALUE,
    is_leaf: IsLeaf | None = None,
) -> Any:
    """Fold the leaves from the left.

    Args:
      function: takes the value so far and one leaf.
      tree: the pytree.
      initializer: the first value; default: the first leaf.
      is_leaf: a true result makes a subtree a leaf.

    Raises:
      TypeError: there are no leaves and no `initializer`.

        >>> tree_reduce(lambda a, b: a + b, [1, (2, 3)])
        6
    """
    leaves = tree_leaves(tree, is_leaf)
    if initializer is _NO_VALUE:
        if not leaves:
            raise TypeError("tree_reduce: a tree without leaves needs an initializer")
        return functools.reduce(function, leaves)
    return functools.reduce(function, leaves, initializer)


def tree_reduce_associative(
    operation: Callable[[Any, Any], Any],
    tree: Any,
    *,
    identity: Any = _NO_VALUE,
    is_leaf: IsLeaf | None = None,
) -> Any:
    """Fold the leaves as a balanced tree.

    Args:
      operation: associative, takes two values.
      tree: the pytree.
      identity: the result when there are no leaves.
      is_leaf: a true result makes a subtree a leaf.

    Raises:
      TypeError: there are no leaves and no `identity`.

        >>> tree_reduce_associative(lambda a, b: f"({a}{b})", list("abcd"))
        '((ab)(cd))'
    """
    leaves = tree_leaves(tree, is_leaf)
    if not leaves:
        if identity is _NO_VALUE:
            raise TypeError("identity is required to reduce a pytree without leaves.")
        return identity

    def reduce(low: int, high: int) -> Any:
        if high - low == 1:
            return leaves[low]
        middle = low + (high - low) // 2
        return operation(reduce(low, middle), reduce(middle, high))

    return reduce(0, len(leaves))


def tree_all(tree: Any, *, is_leaf: IsLeaf | None = None) -> bool:
    """Whether every leaf is true.

    >>> tree_all({"a": True, "b": (1, 0)})
    False
    """
    return all(tree_leaves(tree, is_leaf))


class Partial(functools.partial):
    """A `functools.partial` which is a pytree: its arguments are children, its function data.

    Args:
      func: the function; part of the structure.
      args: positional arguments to bind.
      kw: keyword arguments to bind.

        >>> tree_leaves(Partial(max, 3, key=None))
        [3]
    """

    @api_boundary
    def __new__(cls, func: Callable[..., Any], *args: Any, **kw: Any) -> Partial:
        # functools.partial would merge a partial `func` into this one; which arguments are
        # whose decides the structure, so hide it.
        if isinstance(func, functools.partial):
            func = _Opaque(func)
        if not callable(func):
            raise TypeError(f"Partial: func must be callable, got {func!r}")
        return super().__new__(cls, func, *args, **kw)


class _Opaque:
    """A partial function as if it were none; forwards to it, and equals it."""

    def __init__(self, fun: functools.partial[Any]) -> None:
        self.fun = fun

    @property
    def args(self) -> tuple[Any, ...]:
        return self.fun.args

    @property
    def keywords(self) -> dict[str, Any]:
        return self.fun.keywords

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.fun == (other.fun if isinstance(other, _Opaque) else other)

    def __hash__(self) -> int:
        return hash(self.fun)

    def __repr__(self) -> str:
        return repr(self.fun)


register_pytree_node(
    Partial,
    lambda tree: ((tree.args, tree.keywords), tree.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)
register_pytree_with_keys(
    collections.OrderedDict,
    lambda tree: ([(DictKey(k), v) for k, v in tree.items()], tuple(tree)),
    lambda keys, values: collections.OrderedDict(zip(keys, values)),
    lambda tree: (tuple(tree.values()), tuple(tree)),
)


def _defaultdict_keys(tree: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    pairs, keys = dict_keys(tree)
    return pairs, (tree.default_factory, keys)


register_pytree_with_keys(
    collections.defaultdict,
    _defaultdict_keys,
    lambda data, values: collections.defaultdict(data[0], zip(data[1], values)),
)


class Registry:
    """The container types as an object, under the method names JAX's registry has."""

    flatten = staticmethod(tree_flatten)
    is_node = staticmethod(is_tree_node)
    register_node = staticmethod(register_pytree_node)
    register_dataclass_node = staticmethod(register_dataclass)

    @staticmethod
    def flatten_with_path(
        tree: Any, leaf_predicate: IsLeaf | None = None
    ) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
        """Like `tree_flatten_with_path`; the predicate takes the path too."""
        return tree_flatten_with_path(tree, leaf_predicate, is_leaf_takes_path=True)

    @staticmethod
    def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Any] | None:
        """Children and data of the root, None for a leaf."""
        return flatten_one_level(tree) if is_tree_node(type(tree)) else None

    @staticmethod
    def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Any] | None:
        """Keyed children and data of the root, None for a leaf."""
        return flatten_one_level_with_keys(tree) if is_tree_node(type(tree)) else None


default_registry = Registry()
