"""Calls whose arrays are mostly weakly typed; only the types of results and slopes are recorded."""

from __future__ import annotations

import importlib
from typing import Any

from tests.support.jax_calls import Call, Draw, Family, Spec

PREFIX = ""
SPOIL_EVERY = 10**9
MODES = "types,slopes"
X64_EVERY = 2


class WeakDraw(Draw):
    """Draws weakly typed arrays where the dtypes of Python's numbers will do."""

    def array(
        self,
        shape: Any = None,
        dtypes: list[str] | None = None,
        kind: str = "usual",
        plain: bool = False,
    ) -> Spec:
        spec = super().array(shape, dtypes, kind, plain)
        fits = [v for d, v in (("float32", 0.5), ("int32", 1)) if dtypes is None or d in dtypes]
        if not isinstance(spec, dict) or not fits or self.chance(0.4):
            return spec
        ((tag, value),) = spec.items()
        return {"w": [self.pick(fits), value[1]]} if tag in ("a", "n") else spec


DRAW = WeakDraw


def _named(family: Family, start: str) -> Family:
    """The family, which is told its functions' names without their module's."""

    def draw(d: Draw) -> Call:
        d.name = d.name.removeprefix(start)
        return family(d)

    return draw


def _families() -> dict[Family, str]:
    found = {}
    for module in ("numpy", "lax", "lax_structure", "nn", "random", "special", "stats", "scipy"):
        generator = importlib.import_module(f"tests.support.jax_calls.{module}")
        start = getattr(generator, "PREFIX", module) + "."
        for family, names in generator.FAMILIES.items():
            alone = ("Array.", "operator.")
            paths = [n if n.startswith(alone) else start + n for n in names.split()]
            found[_named(family, start)] = " ".join(paths)
    return found


FAMILIES = _families()
