"""What passes changed, as text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.pprint import format_alike


class Changed(NamedTuple):
    """A pass that ran, the program that it was given and what it made of that."""

    name: str
    source: ClosedJaxpr
    result: ClosedJaxpr

    def __str__(self) -> str:
        return changes_text([self])


def changes_text(changes: Sequence[Changed]) -> str:
    """Which passes changed a program, and what: numbers of equations, and lines that differ.

    Args:
      changes: the passes that ran, in order.

    Returns:
      Of each pass that changed something its name, how many equations the program had and has,
      and the lines that differ, three around them. A variable has one name throughout.

    Example:
      >>> print(changes_text(amdjax.jit(lambda x: x + 0.0).lower(1.0).compile().passes))
      # simplify: 1 equation → 0 equations
      @@ -1 +1 @@
      -{ lambda ; a:f32[]. let b:f32[] = add a 0.0:f32[] in (b,) }
      +{ lambda ; a:f32[]. let  in (a,) }
    """
    changes = [c for c in changes if str(c.source) != str(c.result)]
    programs = [p for c in changes for p in (c.source, c.result)]
    texts = [t.splitlines() for t in format_alike(programs)]
    parts = []
    for c, before, after in zip(changes, texts[::2], texts[1::2], strict=True):
        counts = f"# {c.name}: {_equations(c.source)} → {_equations(c.result)}"
        parts.append("\n".join([counts, *_difference(before, after)]))
    return "\n\n".join(parts) or "# no pass changed anything"


def _equations(closed: ClosedJaxpr) -> str:
    n = len(closed.eqns)
    return f"{n} equation" if n == 1 else f"{n} equations"


def _difference(before: Sequence[str], after: Sequence[str]) -> list[str]:
    lines = difflib.unified_diff(before, after, lineterm="", n=3)
    return [line for line in lines if not line.startswith(("---", "+++"))]
