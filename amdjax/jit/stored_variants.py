"""Variants of programs of symbolic shapes as data: their plans, and for which sizes they are right.

They go with a program in a file, beside its kernels, and are read where machine code is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from amdjax.core.dims import Choice, Dim, Guard, SymbolicScope
from amdjax.core.dims.parse import parse_dimension
from amdjax.core.dims.polynomial import Polynomial, of
from amdjax.core.dims.sized import counted
from amdjax.jit.plan_keys import PlanKey
from amdjax.jit.stored_plans import (
    StoredPlan,
    Unwritable,
    read_number,
    read_plan,
    written_number,
    written_size,
)

_KINDS = ("ge", "eq")


class StoredGuards(NamedTuple):
    """For which sizes a plan was made, as `variants.Guards` has it."""

    required: Sequence[Guard]
    preferred: Sequence[Guard | Choice]


class StoredVariant(NamedTuple):
    """A variant that was read.

    Attributes:
      units, fixed: as those of a `Variant`.
      guards: those of the sizes that it was planned for.
      scope: that of the plan's dimensions, which knows nothing of them but that they are sizes.
      stored: the plan.
    """

    units: Mapping[str, int]
    fixed: Mapping[str, int]
    guards: Sequence[StoredGuards]
    scope: SymbolicScope
    stored: StoredPlan

    @property
    def dimensions(self) -> dict[str, Any]:
        """The variables of the program in those of the plan."""
        counts = {n: Dim(self.scope, of(counted(n, unit))) for n, unit in self.units.items()}
        return {**self.fixed, **{n: unit * counts[n] for n, unit in self.units.items()}}


def variants_key(key: PlanKey) -> bytes:
    """Under what the variants of a program are carried that has the key."""
    return hashlib.sha256(b"variants 1" + key.carried).digest()


# Writing


def written_variants(
    variants: Sequence[tuple[Mapping[str, int], Mapping[str, int], Sequence[Any], bytes | None]],
) -> bytes | None:
    """Variants as data; those that have no form as such are left out, None if all are.

    Args:
      variants: of each its units, its fixed sizes, its guards and its plan as data, if it is such.
    """
    told = []
    for units, fixed, guards, plan in variants:
        try:
            if plan is not None:
                told.append({
                    "units": dict(units), "fixed": dict(fixed),
                    "guards": [[[_written(g) for g in part] for part in (x.required, x.preferred)]
                               for x in guards],
                    "plan": json.loads(plan),
                })  # fmt: skip
        except Unwritable:
            continue
    try:
        data = json.dumps({"variants": told}, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:  # of numbers that JSON has not
        return None
    return data if told else None


def _written(guard: Guard | Choice) -> Any:
    if isinstance(guard, Choice):
        return ["choice", guard.place, *map(written_number, guard.costs)]
    return [guard.kind, written_size(guard.polynomial), guard.answer]


# Reading


def read_variants(data: bytes, consts: Sequence[Any]) -> list[StoredVariant]:
    """The variants that were written.

    Args:
      data: what `written_variants` made, or anything.
      consts: the constants of the program.

    Raises:
      ValueError: it is no such thing.
    """
    try:
        return [_read(told, consts) for told in json.loads(data)["variants"]]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError) as e:
        raise ValueError(f"these are no variants: {type(e).__name__}: {e}") from None


def _read(told: Any, consts: Sequence[Any]) -> StoredVariant:
    # What a scope knows of sizes would be built into dimensions that are read in it.
    scope = SymbolicScope()
    units, fixed = _sizes(told["units"]), _sizes(told["fixed"])
    guards = [
        StoredGuards([_guard(g, scope) for g in required], [_any(g, scope) for g in preferred])
        for required, preferred in told["guards"]
    ]
    stored = read_plan(json.dumps(told["plan"]).encode(), consts, scope)
    return StoredVariant(units, fixed, guards, scope, stored)


def _sizes(told: Any) -> dict[str, int]:
    found = dict(told)
    if not all(type(k) is str and type(n) is int and 0 < n < 1 << 31 for k, n in found.items()):
        raise ValueError("a size is none")
    return found


def _any(told: Any, scope: SymbolicScope) -> Guard | Choice:
    if told[0] != "choice":
        return _guard(told, scope)
    _, place, *costs = told
    if type(place) is not int or not 0 <= place < len(costs):
        raise ValueError("a choice is none")
    return Choice([read_number(cost, scope) for cost in costs], place)


def _guard(told: Any, scope: SymbolicScope) -> Guard:
    kind, polynomial, answer = told
    if kind not in _KINDS or type(polynomial) is not str or type(answer) is not bool:
        raise ValueError("a guard is none")
    found: Polynomial = parse_dimension(polynomial, scope)
    return Guard(kind, found, answer)
