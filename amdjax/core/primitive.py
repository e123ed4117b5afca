"""A primitive: the name of an operation and the rules that give it meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from amdjax.core.aval import ShapedArray
from amdjax.core.context import context
from amdjax.core.lowering import Control, Host, Lowering
from amdjax.core.sharding import HOST, Space

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
        "memory_space",
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
        self.memory_space: Callable[..., Space | None] = self._space_of_operands

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the primitive under the current trace."""
        return context.trace.process_primitive(self, args, params)

    def out_types(self, avals: Sequence[Any], params: dict[str, Any]) -> Any:
        """What `abstract_eval` gives, with the memory spaces of the results.

        Raises:
          ValueError: operands are in several memory spaces.
        """
        assert self.abstract_eval is not None
        return self.placed(avals, self.abstract_eval(*avals, **params))

    def placed(self, avals: Sequence[Any], out: Any) -> Any:
        """Types that `abstract_eval` gave for these operands, with memory spaces."""
        if HOST not in [a.memory_space for a in avals]:
            return out
        space = self.memory_space(*avals)
        if space is None:
            return out
        moved = [
            a.update(memory_space=space) if isinstance(a, ShapedArray) else a
            for a in (out if self.multiple_results else [out])
        ]
        return moved if self.multiple_results else moved[0]

    def _space_of_operands(self, *avals: Any) -> Space | None:
        """The memory space of all operands with axes; None where the operation gives types.

        Some operand is in the host's.
        """
        if isinstance(self.lowering, (Control, Host)):
            return None
        first: Any = None
        for a in avals:
            if not getattr(a, "shape", ()):
                continue
            first = a if first is None else first
            if a.memory_space is not first.memory_space:
                raise ValueError(
                    f"memory_space of all inputs passed to `{self.name}` must be the same. Got one "
                    f"operand with type: {first} and another operand with type: {a}. "
                    "device_put(x, memory.Space.Device) moves one to the device's memory."
                )
        # Numbers go with arrays of any memory; by themselves they stay where one of them is.
        return Space.Host if first is None else first.memory_space

    def def_abstract_eval(self, rule: Rule) -> Rule:
        self.abstract_eval = rule
        return rule

    def def_memory_space(self, rule: Rule) -> Rule:
        """`rule` of the operands' types gives the memory space of the results.

        None says that `abstract_eval` gives it; without a rule it is that of all operands.
        """
        self.memory_space = rule
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
