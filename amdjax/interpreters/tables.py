"""Rules of primitives as the mappings that libraries write them into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from amdjax.core.primitive import Primitive

Rule = Callable[..., Any]


def _unchanged(primitive: Primitive, rule: Rule) -> Rule:
    return rule


class RuleTable(MutableMapping[Primitive, Rule]):
    """One kind of rule of all primitives; reading and writing it is done on the primitives.

    Args:
      kind: the attribute of `Primitive` that holds the rule.
      to_rule: `to_rule(primitive, given)`, our form of the rule that a library gives.
      from_rule: the inverse.
    """

    def __init__(
        self,
        kind: str,
        to_rule: Callable[[Primitive, Rule], Rule] = _unchanged,
        from_rule: Callable[[Primitive, Rule], Rule] = _unchanged,
    ):
        self._kind, self._to_rule, self._from_rule = kind, to_rule, from_rule

    def __setitem__(self, primitive: Primitive, rule: Rule) -> None:
        setattr(primitive, self._kind, self._to_rule(primitive, rule))

    def __getitem__(self, primitive: Primitive) -> Rule:
        rule = getattr(primitive, self._kind)
        if rule is None:
            raise KeyError(primitive)
        return self._from_rule(primitive, rule)

    def __delitem__(self, primitive: Primitive) -> None:
        self[primitive]
        setattr(primitive, self._kind, None)

    def __contains__(self, primitive: object) -> bool:
        return getattr(primitive, self._kind, None) is not None

    def __iter__(self) -> Iterator[Primitive]:
        return (p for p in list(Primitive.by_name.values()) if p in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
