"""Key paths: the steps from the root of a pytree to a leaf, and how they are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any, TypeVar

KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """Step of a key path into a list or tuple.

    Args:
      idx: the position.
    """

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclasses.dataclass(frozen=True)
class DictKey:
    """Step of a key path into a dict.

    Args:
      key: the key.
    """

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """Step of a key path to an attribute.

    Args:
      name: the attribute.
    """

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclasses.dataclass(frozen=True)
class FlattenedIndexKey:
    """Step of a key path into a node whose type gives its children no keys.

    Args:
      key: the key.
    """

    key: int

    def __hash__(self) -> int:
        return hash((FlattenedIndexKey, self.key))  # none of a `SequenceKey`

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
