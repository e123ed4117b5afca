"""Sizes that become symbolic once calls differ in them: `jit(f, dynamic="auto")`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from amdjax.core.config import config
from amdjax.core.dims import SymbolicScope, symbolic_dimension
from amdjax.core.pytree import PyTreeDef
from amdjax.jit.symbolic import SaidShapes, SymbolicTypes, kind_of, shape_of

Shapes = tuple[tuple[int, ...], ...]


@dataclass
class _Family:
    """Signatures that differ in sizes alone.

    Attributes:
      seen: shapes of calls, each of which differs in another way from those before.
      said: the shapes that stand for all calls, once some differ.
      reason: why the function is traced for each size, if it is.
    """

    scope: SymbolicScope = field(default_factory=SymbolicScope)
    seen: list[Shapes] = field(default_factory=list)
    said: SaidShapes | None = None
    reason: str | None = None

    def sizes_of(self, shapes: Shapes) -> dict[str, int] | None:
        """The sizes of the variables; None if other axes differ as well."""
        return None if self.said is None else self.said.equations.solved(shapes)

    def widen(self, avals: Sequence[Any], shapes: Shapes) -> None:
        """Make the axes symbolic in which a call differs from those before.

        Axes share a variable that had equal sizes in all calls.
        """
        self.seen.append(shapes)
        if len(self.seen) < 2:
            return
        self.scope, variables = SymbolicScope(), dict[Any, Any]()
        symbolic = []
        for column in zip(*self.seen):
            dims = []
            for sizes in zip(*column):
                if len(set(sizes)) == 1:
                    dims.append(sizes[0])
                else:
                    name = f"d{len(variables)}"
                    dims.append(variables.setdefault(sizes, symbolic_dimension(name, self.scope)))
            symbolic.append(tuple(dims))
        self.said = SaidShapes(symbolic, avals, self.scope)


class DynamicShapes:
    """The shapes for which one trace of a function serves, as its calls show them."""

    def __init__(self) -> None:
        self._families: dict[Any, _Family] = {}
        self._lock = threading.Lock()  # two calls at once may differ in other axes each

    def of(self, avals: Sequence[Any], tree: PyTreeDef, static: Any) -> SymbolicTypes | None:
        """Symbolic types for a new signature, None where it is traced as it is.

        The first one of a family is; from the second on, axes that differ are symbolic.
        """
        family = self._family(avals, tree, static)
        if family.reason is not None:
            return None
        shapes = tuple(shape_of(a) for a in avals)
        with self._lock:
            sizes = family.sizes_of(shapes)
            if sizes is None:
                family.widen(avals, shapes)
                sizes = family.sizes_of(shapes)
            if sizes is None or family.said is None:
                return None
            return SymbolicTypes(family.said.types(avals), sizes, family.scope)

    def refuse(
        self, avals: Sequence[Any], tree: PyTreeDef, static: Any, name: str, error: Exception
    ) -> None:
        """Trace a family for each size from now on, since its function cannot be otherwise."""
        reason = f"{type(error).__name__}: {error}"
        self._family(avals, tree, static).reason = reason
        if "logging" not in sys.modules:
            return
        # late: programs that log have it loaded
        import logging

        logging.getLogger("amdjax.jit").info("jit of %s traces each size anew: %s", name, reason)

    def reason(self, avals: Sequence[Any], tree: PyTreeDef, static: Any) -> str | None:
        """Why the function is traced for each size, if it cannot be otherwise."""
        return self._family(avals, tree, static).reason

    def _family(self, avals: Sequence[Any], tree: PyTreeDef, static: Any) -> _Family:
        kinds = tuple(map(kind_of, avals))
        key = tree, static, config.trace_key(), kinds
        return self._families.setdefault(key, _Family())
