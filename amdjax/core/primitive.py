"""A primitive: the name of an operation and the rules that give it meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from amdjax.core.context import context
from amdjax.core.lowering import Lowering

Rule = TypeVar("Rule", bound=Callable[..., Any])


class Primitive:
    """An operation that traces can record, transform and compile.

    Rules are attached where the primitive is defined, so that one block of code tells all about
    it. `docs/design.md` gives the signature of each rule.

    Args:
      name: the name printed in jaxprs; JAX's name for the same operation.
      multiple_results: whether `bind` returns a list.

    Attributes:
      lowering: how the operation is computed, in the vocabulary of `core.lowering`.
      impl: a Python function that computes values instead, outside compiled programs.
    """

    __slots__ = (
        "__weakref__",
        "abstract_eval",
        "batch",
        "effects",
        "impl",
        "jvp",
        "linearize",
        "lowering",
        "multiple_results",
        "name",
        "transpose",
    )

    by_name: ClassVar[dict[str, Primitive]] = {}

    def __init__(self, name: str, *, multiple_results: bool = False):
        self.name = name
        Primitive.by_name.setdefault(name, self)  # programs may have primitives of their own
        self.multiple_results = multiple_results
        self.abstract_eval: Callable[..., Any] | None = None
        self.effects: Callable[..., Any] | None = None
        self.jvp: Callable[..., Any] | None = None
        self.linearize: Callable[..., Any] | None = None
        self.transpose: Callable[..., Any] | None = None
        self.batch: Callable[..., Any] | None = None
        self.lowering: Lowering | None = None
        self.impl: Callable[..., Any] | None = None

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the primitive under the current trace."""
        return context.trace.process_primitive(self, args, params)

    def def_abstract_eval(self, rule: Rule) -> Rule:
        self.abstract_eval = rule
        return rule

    def def_impl(self, rule: Rule) -> Rule:
        self.impl = rule
        return rule

    def def_effectful_abstract_eval(self, rule: Rule) -> Rule:
        """`rule` returns the results' types and the effects."""
        self.abstract_eval = lambda *avals, **params: rule(*avals, **params)[0]
        self.effects = lambda *avals, **params: frozenset(rule(*avals, **params)[1])
        return rule

    def get_bind_params(self, params: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """What `bind` takes before the operands, and as parameters, to repeat an equation."""
        return [], dict(params)

    def def_effects(self, rule: Rule) -> Rule:
        self.effects = rule
        return rule

    def def_jvp(self, rule: Rule) -> Rule:
        self.jvp = rule
        return rule

    def def_linearize(self, rule: Rule) -> Rule:
        self.linearize = rule
        return rule

    def def_transpose(self, rule: Rule) -> Rule:
        self.transpose = rule
        return rule

    def def_batch(self, rule: Rule) -> Rule:
        self.batch = rule
        return rule

    def __repr__(self) -> str:
        return self.name
