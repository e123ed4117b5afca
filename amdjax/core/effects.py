"""Effects: what an operation does besides computing its results."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar


class Effect:
    """Base of effects. Operations that have one are kept even if their results are not read.

    Attributes:
      ordered: whether operations that have it run in program order.
      not_masked: why a loop may not have it in which examples of a batch take different numbers of
        steps, so that some only seem to go on; None if it may.
    """

    __slots__ = ()
    ordered = False
    not_masked: ClassVar[str | None] = None

    def __repr__(self) -> str:
        return type(self).__name__


class OrderedEffect(Effect):
    """An effect whose operations run in program order."""

    __slots__ = ()
    ordered = True


class DebugEffect(Effect):
    """Shows values to a person; may run in any order."""

    __slots__ = ()


class OrderedDebugEffect(OrderedEffect):
    """Shows values to a person, in program order."""

    __slots__ = ()


_IO_NOT_MASKED = (
    "IO effect not supported in while_loop with batched predicate: Python would be called for "
    "examples that are done"
)


class IOEffect(Effect):
    """Calls Python for its side effects; may run in any order."""

    __slots__ = ()
    not_masked = _IO_NOT_MASKED


class OrderedIOEffect(OrderedEffect):
    """Calls Python for its side effects, in program order."""

    __slots__ = ()
    not_masked = _IO_NOT_MASKED


class NamedAxisEffect(Effect):
    """Says that an operation speaks of a mapped axis by name; no reason to keep it."""

    __slots__ = ("name",)

    def __init__(self, name: Hashable):
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedAxisEffect) and self.name == other.name

    def __hash__(self) -> int:
        return hash((NamedAxisEffect, self.name))

    def __repr__(self) -> str:
        return f"NamedAxisEffect({self.name!r})"


class AllowedEffects:
    """Kinds of effects that may happen somewhere.

    Args:
      kinds: classes of effects, whose subclasses may too.
    """

    def __init__(self, *kinds: type):
        self.kinds = kinds

    def add_type(self, kind: type) -> None:
        """Let effects of a kind happen."""
        self.kinds += (kind,)

    def contains(self, effect: Any) -> bool:
        """Whether an effect may happen."""
        return isinstance(effect, self.kinds)

    def require(self, where: str, effects: Effects) -> Effects:
        """`effects`, all of which may happen.

        Raises:
          NotImplementedError: one may not.
        """
        refused = sorted(str(e) for e in effects if not isinstance(e, self.kinds))
        if refused:
            raise NotImplementedError(f"Effects not supported in {where}: {', '.join(refused)}")
        return effects


_HARMLESS = (DebugEffect, OrderedDebugEffect, NamedAxisEffect)
control_flow_allowed_effects = AllowedEffects(*_HARMLESS, IOEffect, OrderedIOEffect)
custom_derivatives_allowed_effects = AllowedEffects(*_HARMLESS, IOEffect, OrderedIOEffect)
remat_allowed_effects = AllowedEffects(*_HARMLESS)


def allow_everywhere(kind: type[Effect]) -> type[Effect]:
    """Let effects of a kind happen in control flow, custom derivatives and checkpoints."""
    for allowed in (
        control_flow_allowed_effects, custom_derivatives_allowed_effects, remat_allowed_effects
    ):  # fmt: skip
        allowed.add_type(kind)
    return kind


Effects = frozenset[Effect]
no_effects: Effects = frozenset()

debug_effect = DebugEffect()
ordered_debug_effect = OrderedDebugEffect()
io_effect = IOEffect()
ordered_io_effect = OrderedIOEffect()


def join_effects(*sets: Any) -> Effects:
    """The union of sets of effects."""
    return no_effects.union(*sets) if any(sets) else no_effects


def has_side_effects(effects: Effects) -> bool:
    """Whether an operation must run though its results are not read."""
    return any(not isinstance(e, NamedAxisEffect) for e in effects) if effects else False
