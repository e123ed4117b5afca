"""Pytrees: nested containers seen as a flat list of leaves and a structure.

Flattening is on the path of every call of a compiled function, hence the shape of this module:

* `_WALKERS` maps the type of a value to the function which flattens it, or to None for leaves;
  one look-up decides, and unseen types are classified once.
* Structures are interned. Equal structures are one object, so comparing and hashing a
  `PyTreeDef` is as cheap as comparing and hashing a pointer.
* A container which holds leaves only is recognised in C (``set.issuperset`` over ``map(type)``)
  and its structure is remembered by length or by keys.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Typ = TypeVar("Typ", bound=type)

KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[Any, ...]
IsLeaf = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """Step of a key path into a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclasses.dataclass(frozen=True)
class DictKey:
    """Step of a key path into a dict."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """Step of a key path to an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclasses.dataclass(frozen=True)
class FlattenedIndexKey:
    """Step of a key path into a node whose type gives its children no keys."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A key path as text.

    Args:
        keys: key entries from the root to the leaf.
        simple: write bare keys and indices instead of Python's notation.
        separator: put between the entries.

        >>> keystr((DictKey("a"), SequenceKey(0), GetAttrKey("b")))
        "['a'][0].b"
        >>> keystr((DictKey("a"), SequenceKey(0)), simple=True, separator="/")
        'a/0'
    """
    return separator.join(map(_simple_key if simple else str, keys))


def _simple_key(entry: Any) -> str:
    match entry:
        case SequenceKey(key) | DictKey(key) | GetAttrKey(key) | FlattenedIndexKey(key):
            return str(key)
    return str(entry)


class Kind:
    """How one type of container is taken apart and put together."""

    __slots__ = ("build", "children", "keys", "label", "type")

    def __init__(
        self,
        typ: type,
        children: Callable[[Any], tuple[Iterable[Any], Any]],
        build: Callable[[Any, Iterable[Any]], Any],
        keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
        label: str = "",
    ) -> None:
        self.type = typ
        self.children = children
        self.build = build
        self.keys = keys
        self.label = label

    def __repr__(self) -> str:
        return f"Kind({self.type.__name__})"

    def children_with_keys(self, tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
        if self.keys is not None:
            pairs, data = self.keys(tree)
            return [(k, c) for k, c in pairs], data
        children, data = self.children(tree)
        return [(FlattenedIndexKey(i), c) for i, c in enumerate(children)], data


class PyTreeDef:
    """The structure of a pytree: everything but its leaves.

    Interned: equal structures are the same object. Made by `tree_structure` and `tree_flatten`.

        >>> tree_structure({"b": (1, 2), "a": None})
        PyTreeDef({'a': None, 'b': (*, *)})
    """

    __slots__ = ("__weakref__", "_children", "_data", "_flat", "_kind", "num_leaves", "num_nodes")

    _kind: Kind | None
    _data: Any
    _children: tuple[PyTreeDef, ...]
    num_leaves: int
    num_nodes: int

    def __new__(cls, *args: Any, **kwargs: Any) -> PyTreeDef:
        raise TypeError("PyTreeDef has no constructor; use tree_structure(tree).")

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Put `leaves` into this structure.

        Raises:
            ValueError: their number is not `num_leaves`.

            >>> tree_structure((0, {"a": 0})).unflatten([1, 2])
            (1, {'a': 2})
        """
        if type(leaves) is not list and type(leaves) is not tuple:
            leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            amount = "few" if len(leaves) < self.num_leaves else "many"
            raise ValueError(
                f"Too {amount} leaves for {self!r}; expected {self.num_leaves}, got {len(leaves)}."
            )
        if self._flat:
            return self._kind.build(self._data, leaves)  # type: ignore[union-attr]
        return _build(self, leaves, 0)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` at the places of this structure's leaves.

        Raises:
            ValueError: this structure is no prefix of `tree`.

            >>> tree_structure([0, 0]).flatten_up_to([(1, 2), 3])
            [(1, 2), 3]
        """
        out: list[Any] = []
        _flatten_up_to(self, tree, out)
        return out

    def children(self) -> list[PyTreeDef]:
        """Structures of the immediate children."""
        return list(self._children)

    def node_data(self) -> tuple[type, Any] | None:
        """Type and auxiliary data of the root; None when it is a leaf."""
        kind = self._kind
        if kind is None:
            return None
        return kind.type, list(self._data) if kind is _DICT else self._data

    def compose(self, inner_tree: PyTreeDef) -> PyTreeDef:
        """This structure with `inner_tree` in place of each leaf.

        >>> tree_structure((0, 0)).compose(tree_structure([0]))
        PyTreeDef(([*], [*]))
        """
        if self._kind is None:
            return inner_tree
        children = tuple([child.compose(inner_tree) for child in self._children])
        return _intern(self._kind, self._data, children)

    def walk(
        self,
        f_node: Callable[[tuple[Any, ...], Any], Any],
        f_leaf: Callable[[Any], Any] | None,
        leaves: Iterable[Any],
    ) -> Any:
        """Fold from the leaves up: ``f_node(results_of_children, node_data)`` at each node."""
        rest = iter(leaves)

        def visit(node: PyTreeDef) -> Any:
            if node._kind is None:
                leaf = next(rest)
                return leaf if f_leaf is None else f_leaf(leaf)
            return f_node(tuple([visit(c) for c in node._children]), node._data)

        return visit(self)

    def from_iterable_tree(self, subtrees: Any) -> Any:
        """Build the tree from nested iterables which mirror this structure."""
        if self._kind is None:
            return subtrees
        pairs = zip(self._children, subtrees, strict=True)
        return self._kind.build(self._data, tuple([c.from_iterable_tree(x) for c, x in pairs]))

    @staticmethod
    def from_node_data_and_children(
        registry: Registry, node_data: tuple[type, Any] | None, children: Iterable[PyTreeDef]
    ) -> PyTreeDef:
        """The structure with the given root; inverse of `node_data` and `children`."""
        if node_data is None:
            return LEAF
        typ, data = node_data
        kind = _kind_of(typ)
        if kind is None:
            raise ValueError(f"node_data: {typ} is not registered as a pytree.")
        return _intern(kind, tuple(data) if kind is _DICT else data, tuple(children))

    make_from_node_data_and_children = from_node_data_and_children

    def paths(self) -> list[KeyPath]:
        """Key path of each leaf. Nodes of custom types are named by flat index."""
        return [path for path, _ in _paths(self, ())]

    def __repr__(self) -> str:
        return f"PyTreeDef({_show(self)})"

    def __copy__(self) -> PyTreeDef:
        return self

    def __deepcopy__(self, memo: Any) -> PyTreeDef:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.node_data(), self._children)


def _rebuild(node_data: tuple[type, Any] | None, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    return PyTreeDef.from_node_data_and_children(default_registry, node_data, children)


class _UnhashableDataDef(PyTreeDef):
    """A structure whose auxiliary data cannot be hashed, hence cannot be interned."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _UnhashableDataDef):
            return False
        return (
            self._kind is other._kind
            and self._children == other._children
            and bool(self._data == other._data)
        )

    def __hash__(self) -> int:
        return hash((self._kind, self._children))


class _InternRef(weakref.ref):
    """Weak reference to an interned structure which knows its place in the table."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_interned: dict[tuple[Any, ...], _InternRef] = {}
_intern_lock = threading.RLock()


def _forget(ref: _InternRef) -> None:
    with _intern_lock:
        if _interned.get(ref.key) is ref:
            del _interned[ref.key]


def _intern(kind: Kind, data: Any, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    """The one structure with this root and these children."""
    key = (kind, None if data is None else _exact(data), children)
    try:
        ref = _interned.get(key)
    except TypeError:
        return _new_treedef(_UnhashableDataDef, kind, data, children)
    treedef = ref() if ref is not None else None
    if treedef is not None:
        return treedef
    for child in children:
        if type(child) is _UnhashableDataDef:
            return _new_treedef(_UnhashableDataDef, kind, data, children)
    with _intern_lock:
        ref = _interned.get(key)
        treedef = ref() if ref is not None else None
        if treedef is None:
            treedef = _new_treedef(PyTreeDef, kind, data, children)
            ref = _InternRef(treedef, _forget)
            ref.key = key
            _interned[key] = ref
    return treedef


_EXACT = frozenset((str, bytes, type(None), type, type(len), type(_intern)))
_all_exact = _EXACT.issuperset
# Keeps a marked value apart from a tuple of the same items.
_MARK = object()


def _exact(data: Any) -> Any:
    """A key for `data` which differs where ``==`` is too coarse: 1, 1.0, True, -0.0."""
    typ = type(data)
    if typ in _EXACT:
        return data
    if typ is tuple:
        if _all_exact(map(type, data)):
            return data
        return (tuple, *map(_exact, data))
    if typ is float or typ is complex:
        return _MARK, typ, repr(data)
    return _MARK, typ, data


def _new_treedef(
    cls: type[PyTreeDef], kind: Kind | None, data: Any, children: tuple[PyTreeDef, ...]
) -> PyTreeDef:
    treedef: PyTreeDef = object.__new__(cls)
    treedef._kind = kind
    treedef._data = data
    treedef._children = children
    treedef.num_leaves = sum([c.num_leaves for c in children]) if kind is not None else 1
    treedef.num_nodes = 1 + sum([c.num_nodes for c in children])
    plain = kind is not None and kind.type in (tuple, list, dict)
    treedef._flat = plain and all([c is LEAF for c in children])
    return treedef


LEAF: PyTreeDef = _new_treedef(PyTreeDef, None, None, ())


class _Walkers(dict[type, Any]):
    """Flattening function of each type; types are classified when first met."""

    def __missing__(self, typ: type) -> Any:
        if issubclass(typ, tuple) and hasattr(typ, "_fields") and typ not in _kinds:
            _add_kind(_namedtuple_kind(typ))
            return self[typ]
        # Programs which make types as they run must not fill the memory.
        if len(_LEAF_TYPES) >= 4096:
            for old in tuple(_LEAF_TYPES):
                self.pop(old, None)
            _LEAF_TYPES.clear()
        _LEAF_TYPES.add(typ)
        self[typ] = None
        return None


_WALKERS = _Walkers()
_LEAF_TYPES: set[type] = set()
_all_leaf_types = _LEAF_TYPES.issuperset
_kinds: dict[type, Kind] = {}


def _walk_each(children: Iterable[Any], leaves: list[Any]) -> tuple[PyTreeDef, ...]:
    """Flatten the children of one node onto `leaves`."""
    walkers = _WALKERS
    out = []
    for child in children:
        walk = walkers[type(child)]
        if walk is None:
            leaves.append(child)
            out.append(LEAF)
        else:
            out.append(walk(child, leaves))
    return tuple(out)


_FLAT_MEMO_LENGTH = 256
_flat_tuples: dict[int, PyTreeDef] = {}
_flat_lists: dict[int, PyTreeDef] = {}


def _flat_sequence(kind: Kind, memo: dict[int, PyTreeDef], length: int) -> PyTreeDef:
    treedef = _intern(kind, None, (LEAF,) * length)
    if length < _FLAT_MEMO_LENGTH:
        memo[length] = treedef
    return treedef


def _walk_tuple(tree: tuple[Any, ...], leaves: list[Any]) -> PyTreeDef:
    if _all_leaf_types(map(type, tree)):
        leaves += tree
        n = len(tree)
        return _flat_tuples.get(n) or _flat_sequence(_TUPLE, _flat_tuples, n)
    return _intern(_TUPLE, None, _walk_each(tree, leaves))


def _walk_list(tree: list[Any], leaves: list[Any]) -> PyTreeDef:
    if _all_leaf_types(map(type, tree)):
        leaves += tree
        n = len(tree)
        return _flat_lists.get(n) or _flat_sequence(_LIST, _flat_lists, n)
    return _intern(_LIST, None, _walk_each(tree, leaves))


def _walk_none(tree: None, leaves: list[Any]) -> PyTreeDef:
    return _NONE_DEF


# Keys of a dict in insertion order -> (sorted keys, function to the sorted values or None if
# they are sorted already, structure when all values are leaves).
_Layout = tuple[tuple[Any, ...], Callable[[Any], tuple[Any, ...]] | None, PyTreeDef]
_layouts: dict[tuple[str, ...], _Layout] = {}
_LAYOUTS_LENGTH = 4096
_all_str = frozenset((str,)).issuperset


def _walk_dict(tree: dict[Any, Any], leaves: list[Any]) -> PyTreeDef:
    if _all_str(map(type, tree)):
        keys = tuple(tree)
        keys, getter, flat = _layouts.get(keys) or _layout_of(keys)
    else:
        # 1, 1.0 and True are equal as keys; their layouts would be mistaken for each other.
        keys, getter, flat = _new_layout(tuple(tree))
    values: Any = tree.values() if getter is None else getter(tree)
    if _all_leaf_types(map(type, values)):
        leaves += values
        return flat
    return _intern(_DICT, keys, _walk_each(values, leaves))


def _layout_of(keys: tuple[str, ...]) -> _Layout:
    if len(_layouts) >= _LAYOUTS_LENGTH:
        _layouts.clear()
    layout = _layouts[keys] = _new_layout(keys)
    return layout


def _new_layout(keys: tuple[Any, ...]) -> _Layout:
    ordered = sorted_keys(keys)
    flat = _intern(_DICT, ordered, (LEAF,) * len(ordered))
    return ordered, None if ordered == keys else operator.itemgetter(*ordered), flat


def sorted_keys(keys: Iterable[Any]) -> tuple[Any, ...]:
    """Keys of a dict in the order in which its values are flattened.

    Raises:
        ValueError: they cannot be compared with each other.
    """
    keys = tuple(keys)
    try:
        return tuple(sorted(keys))
    except TypeError as e:
        raise ValueError(
            "dict keys of a pytree must be comparable, so that its leaves have an order; "
            f"got {list(keys)!r}: {e}"
        ) from None


def _walk_custom(kind: Kind) -> Callable[[Any, list[Any]], PyTreeDef]:
    take_apart = kind.children

    def walk(tree: Any, leaves: list[Any]) -> PyTreeDef:
        children, data = take_apart(tree)
        return _intern(kind, data, _walk_each(children, leaves))

    return walk


def _kind_of(typ: type) -> Kind | None:
    """The kind registered for `typ`, or None if its instances are leaves."""
    _WALKERS[typ]
    return _kinds.get(typ)


def _add_kind(kind: Kind, walk: Callable[[Any, list[Any]], PyTreeDef] | None = None) -> None:
    typ = kind.type
    _kinds[typ] = kind
    _LEAF_TYPES.discard(typ)
    _WALKERS[typ] = walk or _walk_custom(kind)


def _namedtuple_kind(typ: Any) -> Kind:
    return Kind(
        typ,
        lambda tree: (tree, None),
        lambda _, children: typ(*children),
        lambda tree: (((GetAttrKey(f), c) for f, c in zip(typ._fields, tree)), None),
        label=f"namedtuple[{typ.__name__}]",
    )


def _sequence_keys(tree: Sequence[Any]) -> tuple[Iterable[tuple[Any, Any]], None]:
    return ((SequenceKey(i), c) for i, c in enumerate(tree)), None


def _dict_children(tree: dict[Any, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    keys = sorted_keys(tree)
    return tuple([tree[k] for k in keys]), keys


def _dict_keys(tree: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    keys = sorted_keys(tree)
    return [(DictKey(k), tree[k]) for k in keys], keys


_TUPLE = Kind(tuple, lambda t: (t, None), lambda _, xs: tuple(xs), _sequence_keys)
_LIST = Kind(list, lambda t: (t, None), lambda _, xs: list(xs), _sequence_keys)
_DICT = Kind(dict, _dict_children, lambda keys, xs: dict(zip(keys, xs)), _dict_keys)
_NONE = Kind(type(None), lambda t: ((), None), lambda _, xs: None, lambda t: ((), None))
_NONE_DEF = _intern(_NONE, None, ())

_add_kind(_TUPLE, _walk_tuple)
_add_kind(_LIST, _walk_list)
_add_kind(_DICT, _walk_dict)
_add_kind(_NONE, _walk_none)


def _build(treedef: PyTreeDef, leaves: Sequence[Any], start: int) -> Any:
    """Put ``leaves[start:]`` into a structure which is more than one level of leaves."""
    kind = treedef._kind
    if kind is None:
        return leaves[start]
    children = []
    for child in treedef._children:
        if child is LEAF:
            children.append(leaves[start])
            start += 1
            continue
        stop = start + child.num_leaves
        if child._flat:
            children.append(child._kind.build(child._data, leaves[start:stop]))  # type: ignore[union-attr]
        else:
            children.append(_build(child, leaves, start))
        start = stop
    # Functions registered by users get a tuple, whatever the leaves came in.
    return kind.build(treedef._data, children if kind is _LIST else tuple(children))


def _show(treedef: PyTreeDef) -> str:
    kind = treedef._kind
    if kind is None:
        return "*"
    inner = [_show(c) for c in treedef._children]
    if kind is _TUPLE:
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if kind is _LIST:
        return f"[{', '.join(inner)}]"
    if kind is _DICT:
        return f"{{{', '.join(f'{k!r}: {c}' for k, c in zip(treedef._data, inner))}}}"
    if kind is _NONE:
        return "None"
    label = kind.label or f"{kind.type.__name__}[{treedef._data}]"
    return f"CustomNode({label}, [{', '.join(inner)}])"


def _paths(treedef: PyTreeDef, path: KeyPath) -> Iterator[tuple[KeyPath, None]]:
    kind = treedef._kind
    if kind is None:
        yield path, None
        return
    keys: Iterable[Any]
    if kind is _DICT or kind.type is collections.OrderedDict:
        keys = map(DictKey, treedef._data)
    elif kind is _TUPLE or kind is _LIST:
        keys = map(SequenceKey, range(len(treedef._children)))
    elif hasattr(kind.type, "_fields"):
        keys = map(GetAttrKey, kind.type._fields)
    else:
        keys = map(FlattenedIndexKey, range(len(treedef._children)))
    for key, child in zip(keys, treedef._children):
        yield from _paths(child, (*path, key))


def _flatten_up_to(treedef: PyTreeDef, tree: Any, out: list[Any]) -> None:
    kind = treedef._kind
    if kind is None:
        out.append(tree)
        return
    children, data = _split_like(treedef, kind, tree)
    if treedef._flat and len(children) == len(treedef._children):
        out += children
        return
    if len(children) != len(treedef._children):
        what = kind.type.__name__.capitalize() if kind in (_TUPLE, _LIST) else "Custom node"
        raise ValueError(
            f"{what} arity mismatch: {len(children)} != {len(treedef._children)}; "
            f"{kind.type.__name__}: {tree!r}."
        )
    if data is not treedef._data and data != treedef._data:
        raise ValueError(
            f"Mismatch of custom node data of {kind.type.__name__}: expected {treedef._data}, "
            f"got {data}; value: {tree!r}."
        )
    for child_def, child in zip(treedef._children, children):
        if child_def is LEAF:
            out.append(child)
        else:
            _flatten_up_to(child_def, child, out)


def _split_like(treedef: PyTreeDef, kind: Kind, tree: Any) -> tuple[Sequence[Any], Any]:
    """Children of `tree` in the order of `treedef`, and its data."""
    if type(tree) is not kind.type:
        if kind is _NONE:
            raise ValueError(
                f"Expected None, got {tree!r}. To treat None as a leaf, pass "
                "is_leaf=lambda x: x is None:\n"
                "    tree_map(lambda x, y: None if x is None else f(x, y), a, b, "
                "is_leaf=lambda x: x is None)"
            )
        if kind in (_TUPLE, _LIST, _DICT):
            raise ValueError(f"Expected {kind.type.__name__}, got {tree!r}.")
        raise ValueError(f"Custom node type mismatch: expected type: {kind.type}, value: {tree!r}.")
    if kind is _DICT:
        keys = treedef._data
        try:
            if len(keys) == len(tree):
                return [tree[k] for k in keys], keys
        except KeyError:
            pass
        raise ValueError(
            f"Dict key mismatch; expected keys: {list(keys)}; present keys: {list(tree)}."
        )
    children, data = kind.children(tree)
    return children if isinstance(children, (tuple, list)) else tuple(children), data


def _flatten_until(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> PyTreeDef:
    """Flatten with a predicate which may stop early."""
    kind = None if is_leaf(tree) else _kind_of(type(tree))
    if kind is None:
        leaves.append(tree)
        return LEAF
    children, data = kind.children(tree)
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
    return treedef.unflatten(leaves)


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
    return _intern(_TUPLE, None, tuple(treedefs))


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """Structures of the immediate children.

    >>> treedef_children(tree_structure((0, [0])))
    [PyTreeDef(*), PyTreeDef([*])]
    """
    return treedef.children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is one node: a leaf, or a container without children.

    >>> treedef_is_leaf(tree_structure(1)), treedef_is_leaf(tree_structure([1]))
    (True, False)
    """
    return treedef.num_nodes == 1


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
    """
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


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
    """
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
        fields = [f for f in dataclasses.fields(nodetype) if f.name not in drop_fields]  # type: ignore[arg-type]
        data_fields = [f.name for f in fields if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
    given = {*data_fields, *meta_fields}
    if is_dataclass:
        required = {f.name for f in dataclasses.fields(nodetype) if f.init} - {*drop_fields}  # type: ignore[arg-type]
        if given != required:
            missing, unexpected = sorted(required - given), sorted(given - required)
            raise ValueError(
                "data_fields and meta_fields must name the fields with init=True and no others."
                + (f" Missing fields: {missing}; drop_fields may list them." if missing else "")
                + (f" Unexpected fields: {unexpected}." if unexpected else "")
            )
    if overlap := sorted({*data_fields} & {*meta_fields}):
        raise ValueError(f"data_fields and meta_fields must not overlap; both have {overlap}.")
    return tuple(data_fields), tuple(meta_fields)


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
    leaves, treedef = tree_flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = tree_structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    inner, outer = inner_treedef.num_leaves, outer_treedef.num_leaves
    if treedef.num_leaves != inner * outer:
        raise TypeError(
            f"pytree_to_transpose: Mismatch\n{treedef}\n != \n{outer_treedef.compose(inner_treedef)}"
        )
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
