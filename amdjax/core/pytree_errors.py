"""Where and how two pytrees differ, and prefixes such as vmap's in_axes spread over arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from amdjax.core.flattening import (
    tree_flatten,
    tree_structure,
    tree_unflatten,
    treedef_is_strict_leaf,
)
from amdjax.core.key_paths import KeyPath, keystr
from amdjax.core.pytree_registry import flatten_one_level_with_keys
from amdjax.core.treedef import IsLeaf, PyTreeDef

NamedError = Callable[[str], ValueError]


def prefix_errors(
    prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None
) -> list[NamedError]:
    """All places where `prefix_tree` fails to be a prefix of `full_tree`.

    Args:
        prefix_tree: the pytree meant to be the prefix.
        full_tree: the pytree it should be a prefix of.
        is_leaf: a true result makes a subtree of `prefix_tree` a leaf.

    Returns:
        Functions which take the argument's name for the message, and return the error.

        >>> [error] = prefix_errors({"a": (0, 0)}, {"a": (1, 2, 3)})
        >>> print(error("in_axes"))  # doctest: +ELLIPSIS
        pytree structure error: different lengths of tuple at key path
            in_axes['a']
        ...
    """
    return list(_prefix_errors((), prefix_tree, full_tree, is_leaf))


def _prefix_errors(
    path: KeyPath, prefix: Any, full: Any, is_leaf: IsLeaf | None
) -> Iterator[NamedError]:
    if treedef_is_strict_leaf(tree_structure(prefix, is_leaf)):
        return
    difference = _root_difference(prefix, full)
    if difference is not None:
        headline, prefix_has, full_has, details = difference
        yield lambda name: ValueError(
            f"pytree structure error: {headline} at key path\n    {name}{keystr(path)}\n"
            f"At that key path, the prefix pytree {name} has {prefix_has},\n"
            f"but the full pytree has {full_has}.{details}"
        )
        return
    prefix_pairs, _ = flatten_one_level_with_keys(prefix)
    full_pairs, _ = flatten_one_level_with_keys(full)
    for (key, p), (_, f) in zip(prefix_pairs, full_pairs):
        yield from _prefix_errors((*path, key), p, f, is_leaf)


def _root_difference(a: Any, b: Any) -> tuple[str, str, str, str] | None:
    """How the roots differ: headline, what `a` has, what `b` has, details."""
    if type(a) is not type(b):
        return (
            "different types",
            f"a subtree of type\n    {type(a)}",
            f"a subtree of different type\n    {type(b)}",
            "",
        )
    a_pairs, a_data = _one_level(a)
    b_pairs, b_data = _one_level(b)
    typ = type(a).__name__
    if isinstance(a, (tuple, list)) and len(a) != len(b):
        return (
            f"different lengths of {typ}",
            f"a {typ} of length {len(a)}",
            f"a {typ} of length {len(b)}",
            "",
        )
    a_keys, b_keys = [k for k, _ in a_pairs], [k for k, _ in b_pairs]
    if len(a_pairs) != len(b_pairs):
        only = [k for k in a_keys + b_keys if (k in a_keys) != (k in b_keys)]
        return (
            "different numbers of pytree children",
            f"a {typ} with {_listed(a_keys)}",
            f"a {typ} with {_listed(b_keys)}",
            f"\nOnly one of them has {_names(only)}." if only else "",
        )
    if a_data is not b_data and a_data != b_data:
        return (
            "different pytree metadata",
            f"a {typ} with metadata\n    {a_data}",
            f"a {typ} with metadata\n    {b_data}",
            "",
        )
    return None


def _one_level(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    try:
        pairs, data = flatten_one_level_with_keys(tree)
    except ValueError:  # a leaf, of the same type as a subtree that is_leaf let pass
        return [], None
    return list(pairs), data


def _names(keys: Iterable[Any]) -> str:
    return " ".join(keystr((k,)) for k in keys)


def _children(keys: list[Any]) -> str:
    return f"{len(keys)} child{'' if len(keys) == 1 else 'ren'}"


def _listed(keys: list[Any]) -> str:
    return f"{_children(keys)}: {_names(keys)}".rstrip(": ")


def equality_errors(
    tree1: Any, tree2: Any, is_leaf: IsLeaf | None = None
) -> Iterator[tuple[KeyPath, str, str, str]]:
    """All places where two pytrees differ in structure.

    Args:
        tree1: a pytree.
        tree2: another one.
        is_leaf: a true result makes a subtree a leaf.

    Yields:
        ``(key path, what tree1 has, what tree2 has, explanation)``.

        >>> for path, a, b, why in equality_errors({"x": (1,)}, {"x": (1, 2)}):
        ...     print(f"at {keystr(path)}: {a}, {b}; {why}")
        at ['x']: tuple of length 1, tuple of length 2; the lengths do not match
    """
    yield from _equality_errors((), tree1, tree2, is_leaf)


def _equality_errors(
    path: KeyPath, a: Any, b: Any, is_leaf: IsLeaf | None
) -> Iterator[tuple[KeyPath, str, str, str]]:
    a_leaf = treedef_is_strict_leaf(tree_structure(a, is_leaf))
    b_leaf = treedef_is_strict_leaf(tree_structure(b, is_leaf))
    if a_leaf and b_leaf:
        return
    if type(a) is not type(b):
        yield path, str(type(a)), str(type(b)), "their Python types differ"
        return
    typ = type(a)
    if isinstance(a, (tuple, list)) and len(a) != len(b):
        name = typ.__name__
        sides = f"{name} of length {len(a)}", f"{name} of length {len(b)}"
        yield path, sides[0], sides[1], "the lengths do not match"
        return
    a_pairs, a_data = _one_level(a)
    b_pairs, b_data = _one_level(b)
    if len(a_pairs) != len(b_pairs):
        a_keys, b_keys = ([k for k, _ in pairs] for pairs in (a_pairs, b_pairs))
        only = [k for k in a_keys + b_keys if (k in a_keys) != (k in b_keys)]
        why = "the numbers of children do not match"
        if only:
            why += f": only one has {_names(only)}"
        yield path, f"{typ} with {_children(a_keys)}", f"{typ} with {_children(b_keys)}", why
        return
    if a_data is not b_data and a_data != b_data:
        sides = f"{typ} with pytree metadata {a_data}", f"{typ} with pytree metadata {b_data}"
        yield path, sides[0], sides[1], "the pytree node metadata does not match"
        return
    for (key, x), (_, y) in zip(a_pairs, b_pairs):
        yield from _equality_errors((*path, key), x, y, is_leaf)


class _Leaf:
    def __repr__(self) -> str:
        return "leaf"


def equality_errors_pytreedef(
    tree1: PyTreeDef, tree2: PyTreeDef
) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Like `equality_errors`, for structures."""
    leaf = _Leaf()
    yield from equality_errors(
        tree_unflatten(tree1, [leaf] * tree1.num_leaves),
        tree_unflatten(tree2, [leaf] * tree2.num_leaves),
    )


def broadcast_flattened_prefix(
    prefix_leaves: list[Any], prefix_treedef: PyTreeDef, full_treedef: PyTreeDef
) -> list[Any]:
    """`broadcast_prefix` for structures: each leaf repeated for the leaves it stands for.

    Raises:
        ValueError: `prefix_treedef` is no prefix of `full_treedef`.

        >>> prefix, full = tree_structure((0, 0)), tree_structure((0, [0, 0]))
        >>> broadcast_flattened_prefix([1, 2], prefix, full)
        [1, 2, 2]
    """
    out: list[Any] = []
    leaves = iter(prefix_leaves)

    def visit(prefix: PyTreeDef, full: PyTreeDef) -> None:
        if prefix._kind is None:
            out.extend([next(leaves)] * full.num_leaves)
            return
        same = (
            prefix._kind is full._kind
            and len(prefix._children) == len(full._children)
            and (prefix._data is full._data or prefix._data == full._data)
        )
        if not same:
            raise ValueError(f"{prefix_treedef} is not a prefix of {full_treedef}.")
        for p, f in zip(prefix._children, full._children):
            visit(p, f)

    visit(prefix_treedef, full_treedef)
    return out


def flatten_axes(
    name: str, treedef: PyTreeDef, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False
) -> list[Any]:
    """Spread a specification such as `in_axes` over the leaves of the arguments.

    Args:
        name: the specification's name in messages, for example "vmap in_axes".
        treedef: structure of the arguments.
        axis_tree: a prefix of it. None is a value here, not an empty container.
        kws: `treedef` belongs to ``(args, kwargs)``; the message then leaves kwargs out.
        tupled_args: `treedef` is that of the tuple of arguments, which the message explains.

    Returns:
        One entry of `axis_tree` for each leaf.

    Raises:
        ValueError: `axis_tree` is no prefix of the arguments; the message names the place.

        >>> from amdjax.tree_util import tree_structure
        >>> flatten_axes("in_axes", tree_structure((0, {"a": 0, "b": 0})), (None, 1))
        [None, 1, 1]
    """
    none_is_leaf = lambda x: x is None
    leaves, axis_def = tree_flatten(axis_tree, none_is_leaf)
    try:
        return broadcast_flattened_prefix(leaves, axis_def, treedef)
    except ValueError:
        pass
    full = tree_unflatten(treedef, [_Leaf()] * treedef.num_leaves)
    if kws:
        axis_tree, (full, _) = axis_tree[0] if isinstance(axis_tree, tuple) else axis_tree, full
        treedef = tree_structure(full)
    hint = ""
    if tupled_args and isinstance(axis_tree, list):
        hint = f"\nPass {name} as a tuple with one entry for each argument, not as a list."
    elif tupled_args and isinstance(axis_tree, tuple) and len(axis_tree) != len(full):
        hint = (
            f"\n{name} has {len(axis_tree)} entries, but the function was called with "
            f"{len(full)} positional arguments."
        )
    elif tupled_args and len(full) == 1 and not isinstance(axis_tree, tuple):
        hint = f"\nFor a single argument, {name} must be a tuple of one entry: {(axis_tree,)}."
    errors = prefix_errors(axis_tree, full, none_is_leaf)
    found = "".join(f"\n  {error(name)}" for error in errors)
    details = f"\nMismatch details ({len(errors)} found):{found}" if errors else ""
    raise ValueError(
        f"{name} specification must be a tree prefix of the corresponding value; {name}="
        f"{axis_tree!r} does not fit {treedef}.{hint}{details}"
    )
