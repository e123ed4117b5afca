"""Pytrees: nested containers seen as a flat list of leaves and a structure.

Here are the functions on pytrees and the registration of container types; `amdjax.core.treedef`
holds the structures.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from amdjax.core.treedef import (
    _TUPLE,
    _WALKERS,
    LEAF,
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    IsLeaf,
    KeyEntry,
    KeyPath,
    Kind,
    PyTreeDef,
    SequenceKey,
    _add_kind,
    _dict_keys,
    _flatten_until,
    _flatten_with_path,
    _intern,
    _kind_of,
    _kinds,
    keystr,
)

__all__ = [
    "LEAF",
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "IsLeaf",
    "KeyEntry",
    "KeyPath",
    "Kind",
    "Partial",
    "PyTreeDef",
    "Registry",
    "SequenceKey",
    "all_leaves",
    "broadcast_prefix",
    "default_registry",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_is_strict_leaf",
    "treedef_tuple",
]

T = TypeVar("T")
Typ = TypeVar("Typ", bound=type)


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
        leaves: list[Any] = []
        return leaves, _flatten_until(tree, leaves, is_leaf)
    walk = _WALKERS[type(tree)]
    if walk is None:
        return [tree], LEAF
    leaves = []
    return leaves, walk(tree, leaves)


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
    """The leaves of a pytree with their key paths; arguments as in `tree_flatten_with_path`."""
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple whose items have the given structures.

    >>> treedef_tuple([tree_structure(0), tree_structure([0])])
    PyTreeDef((*, [*]))
    """
    items = tuple(_treedef("treedef_tuple", "each of treedefs", t) for t in treedefs)
    return _intern(_TUPLE, None, items)


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
        return all([_WALKERS[type(x)] is None for x in iterable])
    return all([is_leaf(x) or _WALKERS[type(x)] is None for x in iterable])


def is_tree_node(typ: type) -> bool:
    """Whether instances of `typ` are containers.

    >>> is_tree_node(dict), is_tree_node(int)
    (True, False)
    """
    if not isinstance(typ, type):
        raise TypeError(f"is_tree_node: typ must be a type, got {typ!r}")
    return _kind_of(typ) is not None


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Any]:
    """Children and auxiliary data of the root.

    Raises:
        ValueError: `tree` is a leaf.

        >>> flatten_one_level({"b": [1], "a": 2})
        ((2, [1]), ('a', 'b'))
    """
    kind = _kind_of(type(tree))
    if kind is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    children, data = kind.children(tree)
    if kind.label:  # a namedtuple's type is all there is to know about it
        return list(children), kind.type
    return children, data


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Any]:
    """``(key, child)`` pairs and auxiliary data of the root.

    Raises:
        ValueError: `tree` is a leaf.
    """
    kind = _kind_of(type(tree))
    if kind is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    pairs, data = kind.children_with_keys(tree)
    return tuple(pairs), kind.type if kind.label else data


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make a type a container of pytrees.

    Args:
        nodetype: the type; its subclasses are not included.
        flatten_func: instance -> (children, auxiliary data). The data is part of the structure;
            it should be hashable and must not hold arrays. Data which compare equal are taken
            to be interchangeable.
        unflatten_func: (auxiliary data, children) -> instance. Must accept any objects as
            children, since transformations put their own there.
        flatten_with_keys_func: instance -> ((key, child) pairs, auxiliary data).

    Raises:
        ValueError: `nodetype` is registered already.
        TypeError: an argument is not a type, or not callable.

        >>> class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, c: Pair(*c))
        >>> tree_leaves([Pair(1, 2), 3])
        [1, 2, 3]
    """
    if not isinstance(nodetype, type):
        raise TypeError(f"nodetype must be a type, got {nodetype!r}.")
    for name, fun in (("flatten_func", flatten_func), ("unflatten_func", unflatten_func)):
        if not callable(fun):
            raise TypeError(f"{name} must be callable, got {fun!r}.")
    _check_unregistered(nodetype)
    _add_kind(Kind(nodetype, flatten_func, unflatten_func, flatten_with_keys_func))


def _check_unregistered(nodetype: type) -> None:
    known = _kinds.get(nodetype)
    # A namedtuple met as such may still get functions of its own.
    if known is not None and not known.label:
        raise ValueError(f"nodetype: {nodetype} is registered as a pytree already.")


def register_pytree_node_class(cls: Typ) -> Typ:
    """Class decorator for containers with ``tree_flatten`` and ``tree_unflatten`` methods.

    Args:
        cls: has ``tree_flatten(self) -> (children, aux_data)`` and the class method
            ``tree_unflatten(cls, aux_data, children)``.

    Returns:
        `cls` itself.

    Raises:
        TypeError: `cls` is no class with these methods.
    """
    _check_methods("register_pytree_node_class", cls, "tree_flatten", "tree_unflatten")
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def _check_methods(name: str, cls: Any, *methods: str) -> None:
    missing = [m for m in methods if not callable(getattr(cls, m, None))]
    if missing or not isinstance(cls, type):
        wanted = " and ".join(methods)
        raise TypeError(f"{name}: cls must be a class with {wanted}, got {cls!r}.")


def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """Make a type a container whose children have keys.

    Args:
        nodetype: the type.
        flatten_with_keys: instance -> ((key, child) pairs, auxiliary data).
        unflatten_func: (auxiliary data, children) -> instance.
        flatten_func: instance -> (children, auxiliary data), if that can be done faster.
    """
    if not callable(flatten_with_keys):
        raise TypeError(f"flatten_with_keys must be callable, got {flatten_with_keys!r}.")
    if flatten_func is None:

        def flatten_func(tree: T) -> tuple[Iterable[Any], Any]:
            pairs, data = flatten_with_keys(tree)
            return [child for _, child in pairs], data

    register_pytree_node(nodetype, flatten_func, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: Typ) -> Typ:
    """Class decorator like `register_pytree_node_class`, with ``tree_flatten_with_keys``.

    Args:
        cls: has ``tree_flatten_with_keys(self) -> ((key, child) pairs, aux_data)``, the class
            method ``tree_unflatten``, and perhaps ``tree_flatten``.

    Returns:
        `cls` itself.

    Raises:
        TypeError: `cls` is no class with these methods.
    """
    methods = ("tree_flatten_with_keys", "tree_unflatten")
    _check_methods("register_pytree_with_keys_class", cls, *methods)
    register_pytree_with_keys(
        cls,
        operator.methodcaller("tree_flatten_with_keys"),
        cls.tree_unflatten,  # type: ignore[attr-defined]
        operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None,
    )
    return cls


def register_dataclass(
    nodetype: Typ,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Typ:
    """Make a dataclass a container; usable as a decorator.

    Args:
        nodetype: a dataclass, or a class which takes its fields as keyword arguments.
        data_fields: fields which hold children. Default: all but the static ones.
        meta_fields: fields which belong to the structure. Default: those declared with
            ``field(metadata={"static": True})`` or `amdjax.tree.static`.
        drop_fields: fields to leave out; they take their defaults again when rebuilt.

    Returns:
        `nodetype` itself.

    Raises:
        TypeError: only one of `data_fields` and `meta_fields` is given, or none of them and
            `nodetype` is no dataclass.
        ValueError: the fields do not cover the dataclass's exactly, or overlap.

        >>> @register_dataclass
        ... @dataclasses.dataclass
        ... class Layer:
        ...     weight: object
        ...     name: str = dataclasses.field(metadata={"static": True})
        >>> tree_structure(Layer(1.0, "dense"))
        PyTreeDef(CustomNode(Layer[('dense',)], [*]))
    """
    data, meta = _dataclass_fields(nodetype, data_fields, meta_fields, drop_fields)
    get_data, get_meta = _attributes(data), _attributes(meta)
    keys = tuple(map(GetAttrKey, data))

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return get_data(tree), get_meta(tree)

    def flatten_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], tuple[Any, ...]]:
        return zip(keys, get_data(tree)), get_meta(tree)

    def unflatten(meta_values: tuple[Any, ...], children: Iterable[Any]) -> Any:
        return nodetype(**dict(zip(data, children)), **dict(zip(meta, meta_values)))

    register_pytree_node(nodetype, flatten, unflatten, flatten_with_keys)
    return nodetype


def _dataclass_fields(
    nodetype: type,
    data_fields: Sequence[str] | None,
    meta_fields: Sequence[str] | None,
    drop_fields: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not isinstance(nodetype, type):
        raise TypeError(f"register_dataclass: nodetype must be a class, got {nodetype!r}.")
    for argument, names in (
        *(("data_fields", data_fields), ("meta_fields", meta_fields)),
        ("drop_fields", drop_fields),
    ):
        if names is not None and (isinstance(names, str) or not all(map(_is_name, names))):
            raise TypeError(
                f"register_dataclass: {argument} must be a sequence of field names, got {names!r}."
            )
    is_dataclass = dataclasses.is_dataclass(nodetype)
    if data_fields is None or meta_fields is None:
        if data_fields is not meta_fields:
            raise TypeError(
                "register_dataclass: data_fields and meta_fields must be given both or not at "
                f"all; got {data_fields=} {meta_fields=}."
            )
        if not is_dataclass:
            raise TypeError(
                "register_dataclass: data_fields and meta_fields are required, since "
                f"nodetype={nodetype} is not a dataclass."
            )
        fields = [f for f in dataclasses.fields(nodetype) if f.name not in drop_fields]
        data_fields = [f.name for f in fields if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
    given = {*data_fields, *meta_fields}
    if is_dataclass:
        required = {f.name for f in dataclasses.fields(nodetype) if f.init} - {*drop_fields}
        if given != required:
            missing, unexpected = sorted(required - given), sorted(given - required)
            raise ValueError(
                "data_fields and meta_fields must name the fields with init=True and no others."
                + (f" Missing fields: {missing}; drop_fields may list them." if missing else "")
                + (f" Unexpected fields: {unexpected}." if unexpected else "")
            )
    else:
        _check_keywords(nodetype, given)
    if overlap := sorted({*data_fields} & {*meta_fields}):
        raise ValueError(f"data_fields and meta_fields must not overlap; both have {overlap}.")
    return tuple(data_fields), tuple(meta_fields)


def _is_name(name: Any) -> bool:
    return isinstance(name, str)


def _check_keywords(nodetype: type, fields: set[str]) -> None:
    """Raise TypeError where a class without dataclass fields cannot be rebuilt from `fields`."""
    try:
        parameters = inspect.signature(nodetype).parameters
    except ValueError:  # a type written in C, such as int
        parameters = MappingProxyType({})
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    if unknown := sorted(fields - {*parameters}):
        raise TypeError(
            f"register_dataclass: {nodetype.__name__} does not take its fields {unknown} as "
            "keyword arguments, so it cannot be rebuilt from them."
        )


def _attributes(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function from an object to the tuple of its attributes `names`."""
    if not names:
        return lambda tree: ()
    get: Any = operator.attrgetter(*names)
    return get if len(names) > 1 else lambda tree: (get(tree),)


def register_static(cls: type[T]) -> type[T]:
    """Class decorator: instances are containers without leaves, part of the structure.

    Args:
        cls: a class whose instances are hashable and compare by value.

    Returns:
        `cls` itself.

        >>> @register_static
        ... class Mode(str): pass
        >>> tree_leaves((1, Mode("train")))
        [1]
    """
    register_pytree_with_keys(cls, lambda tree: ((), tree), lambda tree, _: tree)
    return cls


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
        from amdjax.core.pytree_errors import prefix_errors

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

    def __new__(cls, func: Callable[..., Any], *args: Any, **kw: Any) -> Partial:
        # functools.partial would merge a partial `func` into this one; which arguments are
        # whose decides the structure, so hide it.
        if isinstance(func, functools.partial):
            func = _Opaque(func)
        return super().__new__(cls, func, *args, **kw)


class _Opaque:
    """A callable which forwards to another one, and equals it."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun

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
    pairs, keys = _dict_keys(tree)
    return pairs, (tree.default_factory, keys)


register_pytree_with_keys(
    collections.defaultdict,
    _defaultdict_keys,
    lambda data, values: collections.defaultdict(data[0], zip(data[1], values)),
)
