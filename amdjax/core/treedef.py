"""Structures of pytrees, and how containers are taken apart and put together.

Flattening is on the path of every call of a compiled function, hence the shape of this module:

* `_FLATTENERS` maps the type of a value to the function which flattens it, or to None for leaves;
  one look-up decides, and unseen types are classified once.
* Structures are interned. Equal structures are one object, so comparing and hashing a
  `PyTreeDef` is as cheap as comparing and hashing a pointer.
* A container which holds leaves only is recognized in C (``set.issuperset`` over ``map(type)``)
  and its structure is remembered by length or by keys.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from amdjax.core import recorded
from amdjax.core.container_kinds import DICT, LIST, NONE, TUPLE, Kind, namedtuple_kind, sorted_keys
from amdjax.core.key_paths import DictKey, FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey
from amdjax.core.recursion import deep

IsLeaf = Callable[..., Any]


class PyTreeDef:
    """The structure of a pytree: everything but its leaves.

    Interned: equal structures are the same object. Made by `tree_structure` and `tree_flatten`.

    >>> from amdjax.core.pytree import tree_structure
    >>> tree_structure({"b": (1, 2), "a": None})
    PyTreeDef({'a': None, 'b': (*, *)})
    """

    __slots__ = ("__weakref__", "_children", "_data", "_flat", "_kind", "num_leaves", "num_nodes")

    _kind: Kind | None
    _data: Any
    _children: tuple[PyTreeDef, ...]
    num_leaves: int
    num_nodes: int
    _flat: bool  # a tuple, list or dict of leaves only

    def __new__(cls, *args: Any, **kwargs: Any) -> PyTreeDef:
        raise TypeError("PyTreeDef has no constructor; use tree_structure(tree).")

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Put `leaves` into this structure.

        Raises:
          ValueError: their number is not `num_leaves`.

        Example:
          >>> from amdjax.core.pytree import tree_structure
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
        return _build_any(self, leaves)

    @deep
    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` at the places of this structure's leaves.

        Raises:
          ValueError: this structure is no prefix of `tree`.

        Example:
          >>> from amdjax.core.pytree import tree_structure
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
        return kind.type, list(self._data) if kind is DICT else self._data

    @deep
    def compose(self, inner_tree: PyTreeDef) -> PyTreeDef:
        """This structure with `inner_tree` in place of each leaf.

        Example:
          >>> from amdjax.core.pytree import tree_structure
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
        """Fold from the leaves up: ``f_node(results_of_children, data)`` at each node."""
        rest = iter(leaves)

        def visit(node: PyTreeDef) -> Any:
            if node._kind is None:
                leaf = next(rest)
                return leaf if f_leaf is None else f_leaf(leaf)
            children = tuple([visit(c) for c in node._children])
            return f_node(children, _outer_data(node._kind, node._data))

        return visit(self)

    @deep
    def from_iterable_tree(self, subtrees: Any) -> Any:
        """Build the tree from nested iterables which mirror this structure."""
        if self._kind is None:
            return subtrees
        pairs = zip(self._children, subtrees, strict=True)
        return self._kind.build(self._data, tuple([c.from_iterable_tree(x) for c, x in pairs]))

    @staticmethod
    def from_node_data_and_children(
        registry: Any, node_data: tuple[type, Any] | None, children: Iterable[PyTreeDef]
    ) -> PyTreeDef:
        """The structure with the given root; inverse of `node_data` and `children`."""
        if node_data is None:
            return LEAF
        typ, data = node_data
        kind = _kind_of(typ)
        if kind is None:
            raise ValueError(f"node_data: {typ} is not registered as a pytree.")
        return _intern(kind, tuple(data) if kind is DICT else data, tuple(children))

    make_from_node_data_and_children = from_node_data_and_children

    @deep
    def paths(self) -> list[KeyPath]:
        """Key path of each leaf. Nodes of custom types are named by flat index."""
        return [path for path, _ in _paths(self, ())]

    @deep
    def __repr__(self) -> str:
        return f"PyTreeDef({_show(self)})"

    def __copy__(self) -> PyTreeDef:
        return self

    def __deepcopy__(self, memo: Any) -> PyTreeDef:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.node_data(), self._children)


def _outer_data(kind: Kind, data: Any) -> Any:
    """A node's data as JAX shows it: a dict's keys in a list, a namedtuple's type."""
    if kind is DICT:
        return list(data)
    return kind.type if kind.label else data


def _rebuild(node_data: tuple[type, Any] | None, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    return PyTreeDef.from_node_data_and_children(None, node_data, children)


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
            and self._equal_data(other)
        )

    def _equal_data(self, other: PyTreeDef) -> bool:
        try:
            return bool(self._data == other._data)
        except Exception as e:
            raise ValueError(
                "Exception raised while checking equality of metadata fields of pytree. They are "
                "part of the structure and must compare with ==: arrays belong to the leaves. Got "
                f"{self._data!r} of {self._kind}. {type(e).__name__}: {e}"
            ) from e

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


class _Flatteners(dict[type, Any]):
    """Flattening function of each type; types are classified when first met."""

    def __missing__(self, typ: type) -> Any:
        if issubclass(typ, tuple) and hasattr(typ, "_fields") and typ not in _kinds:
            _add_kind(namedtuple_kind(typ))
            return self[typ]
        # Programs which make types as they run must not fill the memory.
        if len(_LEAF_TYPES) >= 4096:
            for old in tuple(_LEAF_TYPES):
                self.pop(old, None)
            _LEAF_TYPES.clear()
        _LEAF_TYPES.add(typ)
        self[typ] = None
        return None


_FLATTENERS = _Flatteners()
_LEAF_TYPES: set[type] = set()
_all_leaf_types = _LEAF_TYPES.issuperset
_kinds: dict[type, Kind] = {}


def _flatten_each(children: Iterable[Any], leaves: list[Any]) -> tuple[PyTreeDef, ...]:
    """Flatten the children of one node onto `leaves`."""
    flatteners = _FLATTENERS
    out = []
    for child in children:
        flatten = flatteners[type(child)]
        if flatten is None:
            leaves.append(child)
            out.append(LEAF)
        else:
            out.append(flatten(child, leaves))
    return tuple(out)


_FLAT_MEMO_LENGTH = 256
_flat_tuples: dict[int, PyTreeDef] = {}
_flat_lists: dict[int, PyTreeDef] = {}


def _flat_sequence(kind: Kind, memo: dict[int, PyTreeDef], length: int) -> PyTreeDef:
    treedef = _intern(kind, None, (LEAF,) * length)
    if length < _FLAT_MEMO_LENGTH:
        memo[length] = treedef
    return treedef


def _flatten_tuple(tree: tuple[Any, ...], leaves: list[Any]) -> PyTreeDef:
    if _all_leaf_types(map(type, tree)):
        leaves += tree
        n = len(tree)
        return _flat_tuples.get(n) or _flat_sequence(TUPLE, _flat_tuples, n)
    return _intern(TUPLE, None, _flatten_each(tree, leaves))


def _flatten_list(tree: list[Any], leaves: list[Any]) -> PyTreeDef:
    if _all_leaf_types(map(type, tree)):
        leaves += tree
        n = len(tree)
        return _flat_lists.get(n) or _flat_sequence(LIST, _flat_lists, n)
    return _intern(LIST, None, _flatten_each(tree, leaves))


def _flatten_none(tree: None, leaves: list[Any]) -> PyTreeDef:
    return _NONE_DEF


# Keys of a dict in insertion order -> (sorted keys, function to the sorted values or None if
# they are sorted already, structure when all values are leaves).
_Layout = tuple[tuple[Any, ...], Callable[[Any], tuple[Any, ...]] | None, PyTreeDef]
_layouts: dict[tuple[str, ...], _Layout] = {}
_LAYOUTS_LENGTH = 4096
_all_str = frozenset((str,)).issuperset


def _flatten_dict(tree: dict[Any, Any], leaves: list[Any]) -> PyTreeDef:
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
    return _intern(DICT, keys, _flatten_each(values, leaves))


def _layout_of(keys: tuple[str, ...]) -> _Layout:
    if len(_layouts) >= _LAYOUTS_LENGTH:
        _layouts.clear()
    layout = _layouts[keys] = _new_layout(keys)
    return layout


def _new_layout(keys: tuple[Any, ...]) -> _Layout:
    ordered = sorted_keys(keys)
    flat = _intern(DICT, ordered, (LEAF,) * len(ordered))
    return ordered, None if ordered == keys else operator.itemgetter(*ordered), flat


def _flatten_custom(kind: Kind) -> Callable[[Any, list[Any]], PyTreeDef]:
    take_apart = kind.split

    def flatten(tree: Any, leaves: list[Any]) -> PyTreeDef:
        children, data = take_apart(tree)
        return _intern(kind, data, _flatten_each(children, leaves))

    return flatten


def _kind_of(typ: type) -> Kind | None:
    """The kind registered for `typ`, or None if its instances are leaves."""
    _FLATTENERS[typ]
    return _kinds.get(typ)


def is_namedtuple(typ: type) -> bool:
    """Whether values of a type are taken apart as the tuples that they are."""
    kind = _kind_of(typ)
    return kind is not None and bool(kind.label)


def _add_kind(kind: Kind, flatten: Callable[[Any, list[Any]], PyTreeDef] | None = None) -> None:
    typ = kind.type
    if typ in _kinds:
        for forget in recorded.on_change:
            forget()
    _kinds[typ] = kind
    _LEAF_TYPES.discard(typ)
    _FLATTENERS[typ] = flatten or _flatten_custom(kind)


_NONE_DEF = _intern(NONE, None, ())

_add_kind(TUPLE, _flatten_tuple)
_add_kind(LIST, _flatten_list)
_add_kind(DICT, _flatten_dict)
_add_kind(NONE, _flatten_none)


@deep
def _build_any(treedef: PyTreeDef, leaves: Sequence[Any]) -> Any:
    return _build(treedef, leaves, 0)


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
    return kind.build(treedef._data, children if kind is LIST else tuple(children))


def _show(treedef: PyTreeDef) -> str:
    kind = treedef._kind
    if kind is None:
        return "*"
    inner = [_show(c) for c in treedef._children]
    if kind is TUPLE:
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if kind is LIST:
        return f"[{', '.join(inner)}]"
    if kind is DICT:
        return f"{{{', '.join(f'{k!r}: {c}' for k, c in zip(treedef._data, inner))}}}"
    if kind is NONE:
        return "None"
    label = kind.label or f"{kind.type.__name__}[{treedef._data}]"
    return f"CustomNode({label}, [{', '.join(inner)}])"


def _paths(treedef: PyTreeDef, path: KeyPath) -> Iterator[tuple[KeyPath, None]]:
    kind = treedef._kind
    if kind is None:
        yield path, None
        return
    keys: Iterable[Any]
    if kind is DICT or kind.type is OrderedDict:
        keys = map(DictKey, treedef._data)
    elif kind is TUPLE or kind is LIST:
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
        what = kind.type.__name__.capitalize() if kind in (TUPLE, LIST) else "Custom node"
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
    typ: type = type(tree)
    if typ is not kind.type:
        if kind is NONE:
            raise ValueError(
                f"Expected None, got {tree!r}. To treat None as a leaf, pass "
                "is_leaf=lambda x: x is None:\n"
                "    tree_map(lambda x, y: None if x is None else f(x, y), a, b, "
                "is_leaf=lambda x: x is None)"
            )
        if kind in (TUPLE, LIST, DICT):
            raise ValueError(f"Expected {kind.type.__name__}, got {tree!r}.")
        if not kind.label:
            what = "Custom node type mismatch: expected type"
        elif not (isinstance(tree, tuple) and hasattr(tree, "_fields")):
            raise ValueError(f"Expected named tuple, got {tree!r}.")
        else:
            what = "Named tuple type mismatch: expected type"
        raise ValueError(f"{what}: {kind.type}, value: {tree!r}.")
    if kind is DICT:
        keys = treedef._data
        try:
            if len(keys) == len(tree):
                return [tree[k] for k in keys], keys
        except KeyError:
            pass
        raise ValueError(
            f"Dict key mismatch; expected keys: {list(keys)}; present keys: {list(tree)}."
        )
    children, data = kind.split(tree)
    return children if isinstance(children, (tuple, list)) else tuple(children), data
