"""Kinds of containers: how one type is taken apart and put together, and by which keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from amdjax.core.key_paths import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

_SEQUENCES = frozenset((tuple, list))


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

    def split(self, tree: Any) -> tuple[Iterable[Any], Any]:
        """Children and auxiliary data, of a function that may be a user's."""
        parts = self.children(tree)
        if type(parts) is tuple and len(parts) == 2 and type(parts[0]) in _SEQUENCES:
            return parts
        if isinstance(parts, (tuple, list)) and len(parts) == 2:
            if isinstance(parts[0], Iterable):
                return parts[0], parts[1]
            what = "tuple where 'children' is iterable"
        else:
            what = "tuple"
        raise ValueError(
            "The to_iterable function for a custom PyTree node should return a "
            f"(children, aux_data) {what}, got {parts!r} for {self.type.__name__}."
        )

    def children_with_keys(self, tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
        if self.keys is not None:
            pairs, data = self.keys(tree)
            return [(k, c) for k, c in pairs], data
        children, data = self.split(tree)
        return [(FlattenedIndexKey(i), c) for i, c in enumerate(children)], data


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


def namedtuple_kind(typ: Any) -> Kind:
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


def dict_keys(tree: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    keys = sorted_keys(tree)
    return [(DictKey(k), tree[k]) for k in keys], keys


TUPLE = Kind(tuple, lambda t: (t, None), lambda _, xs: tuple(xs), _sequence_keys)
LIST = Kind(list, lambda t: (t, None), lambda _, xs: list(xs), _sequence_keys)
DICT = Kind(dict, _dict_children, lambda keys, xs: dict(zip(keys, xs)), dict_keys)
NONE = Kind(type(None), lambda t: ((), None), lambda _, xs: None, lambda t: ((), None))
