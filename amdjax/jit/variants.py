"""The compiled forms of a program of symbolic shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amdjax.core.backend import get_backend
from amdjax.core.dims import (
    Choice,
    Dim,
    Guard,
    SizedScope,
    SymbolicScope,
    compiled,
    divisor,
    in_units,
)
from amdjax.core.instantiate import check_values, instantiate
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.jit.arrays import Runner

__all__ = ["Variants"]

_KEPT = 256  # instances of a program that are ready to run


@dataclass(frozen=True, eq=False)
class Guards:
    """Sizes for which one plan was made.

    Attributes:
      required: what has to hold of other sizes of which the plan is right.
      preferred: what holds of those for which the same would be chosen.
    """

    required: Sequence[Guard]
    preferred: Sequence[Guard | Choice]

    @cached_property
    def _compared(self) -> tuple[list[Guard], Callable[[Mapping[str, int]], tuple[int, ...]]]:
        """The preferences that compare, and what evaluates all that is compared."""
        preferred = [guard for guard in self.preferred if isinstance(guard, Guard)]
        return preferred, compiled([g.polynomial for g in (*self.required, *preferred)])

    def regrets(self, sizes: Mapping[str, int]) -> int | None:
        """How many choices would be others; None where the plan is not right."""
        preferred, evaluated = self._compared
        values = iter(evaluated(sizes))
        if any(not guard.agrees(next(values)) for guard in self.required):
            return None
        others = sum(not guard.agrees(value) for guard, value in zip(preferred, values))
        choices = (choice for choice in self.preferred if isinstance(choice, Choice))
        return others + sum(not choice.holds(sizes) for choice in choices)

    def __str__(self) -> str:
        preferred = [f"preferably {guard}" for guard in self.preferred]
        return ", ".join([*map(str, self.required), *preferred])


@dataclass
class Variant:
    """A compiled form, good for a range of sizes.

    Attributes:
      units: in what the dimension variables are counted that stay symbolic.
      fixed: those that do not, with their sizes.
      program: makes the program of given counts.
      identity: equals that of another program that computes the same in the same way.
      guards: of each sizes for which it was planned, as those in between may be planned otherwise.
    """

    units: Mapping[str, int]
    fixed: Mapping[str, int]
    program: Callable[[Mapping[str, int]], Runner]
    identity: Any
    guards: list[Guards]

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether the variables that are fixed are those of sizes, and have these sizes."""
        return all(sizes[name] == size for name, size in self.fixed.items()) and all(
            sizes[name] > FIXED_UP_TO and sizes[name] % unit == 0
            for name, unit in self.units.items()
        )

    def regrets(self, sizes: Mapping[str, int]) -> int | None:
        """How much would be chosen otherwise for sizes; None where it is not right for them."""
        if not self.serves(sizes):
            return None
        counts = in_units(sizes, self.units)
        found = (guards.regrets(counts) for guards in self.guards)
        return min((n for n in found if n is not None), default=None)

    def __str__(self) -> str:
        fixed = [f"{name} == {size}" for name, size in self.fixed.items()]
        units = self.units.items()
        rest = [f"{n} > {FIXED_UP_TO}" if u == 1 else f"{n} == {u}*{n}_{u}" for n, u in units]
        known = ", ".join([*fixed, *rest])
        return "\n   or ".join(", ".join(filter(None, (known, str(g)))) for g in self.guards)


def _scope(closed: ClosedJaxpr) -> SymbolicScope | None:
    """What is known of the dimension variables of a program."""
    # What a gradient of a sum takes has no axes.
    avals = (*closed.in_avals, *closed.out_avals)
    dims = (n for aval in avals for n in getattr(aval, "shape", ()))
    return next((n.scope for n in dims if isinstance(n, Dim)), None)


def _aligning(closed: ClosedJaxpr) -> frozenset[str]:
    """The variables on which it depends whether rows of arrays are aligned."""
    outs = [v.aval for eqn in closed.jaxpr.eqns for v in eqn.outvars]
    found: set[str] = set()
    for aval in (*closed.in_avals, *outs):
        row = 1
        for n in reversed(getattr(aval, "shape", ())[1:]):
            if isinstance(n, Dim) and row % GPU_UNITS[-1]:
                found |= n.variables()
            row *= divisor(n)
    return frozenset(found)


#: Sizes up to this one are compiled as they are: much is simpler where an axis has one element.
FIXED_UP_TO = 1


#: As many variants are compiled for sizes of which all of them are right.
MOST_CHOSEN = 3


#: As often it is planned for such sizes; most plans turn out to be those of other sizes.
MOST_PLANNED = 24

#: In what GPUs count sizes: rows of multiples of them are aligned, and move in wide accesses.
GPU_UNITS = (1, 4, 16)


class Variants:
    """The compiled forms of a program of symbolic shapes.

    Args:
      closed: the program.
      donated: which of its arguments it may overwrite, `refs` left out.
      refs: its leading arguments, which are references known now.
      place: where it runs; None for the host.
    """

    def __init__(
        self, closed: ClosedJaxpr, donated: Sequence[bool], refs: Sequence[Any], place: Any
    ):
        self.closed, self.donated, self.refs, self.place = closed, donated, refs, place
        on_gpu = place is not None and place.device.platform != "cpu"
        self.aligning = _aligning(closed) if on_gpu else frozenset()
        self.known: list[Variant] = []
        self.reason: str | None = None  # why programs are compiled for single sizes
        self._instances: dict[tuple[tuple[str, int], ...], Runner] = {}  # the last used at the end

    def runner(self, sizes: Mapping[str, int]) -> Runner:
        """The program for given sizes of its dimension variables, as a function of arrays.

        Args:
          sizes: the size of each variable.

        Returns:
          A function of the other arguments than `refs`.

        Raises:
          KeyError: a variable has no size.
          OverflowError: a size that the program computes with is too large for its dtype.
        """
        key = tuple(sorted(sizes.items()))
        run = self._instances.pop(key, None)
        if run is None:
            run = self._made(sizes)
        while len(self._instances) >= _KEPT:
            self._instances.pop(next(iter(self._instances)), None)
        self._instances[key] = run
        return run

    def _made(self, sizes: Mapping[str, int]) -> Runner:
        """The program for sizes: by a variant, or for them alone where none can be made."""
        check_values(self.closed, sizes)
        if self.reason is None:
            try:
                variant = self._variant(sizes)
                return variant.program(in_units(sizes, variant.units))
            except Exception as e:  # errors of the program itself come again below
                self.reason = f"{type(e).__name__}: {e}"
                # late: programs that log have it loaded
                import logging

                logger = logging.getLogger("amdjax.jit")
                logger.debug("A program is compiled for each of its sizes: %s", self.reason)
        program = instantiate(self.closed, sizes)
        return get_backend().compile(program, self.donated, self.refs, self.place)

    def _variant(self, sizes: Mapping[str, int]) -> Variant:
        """The variant that would be chosen for sizes, or that is nearest to it; perhaps a new one.

        What is planned for other sizes and turns out to be the same program is one variant: the
        program is right for the sizes of both, since each was planned.
        """
        units = {n: self._unit(n, size) for n, size in sizes.items() if size > FIXED_UP_TO}
        alike = [variant for variant in self.known if variant.units == units]
        fitting = [(n, v) for v in alike if (n := v.regrets(sizes)) is not None]
        nearest = min(fitting, key=lambda pair: pair[0], default=None)
        planned = sum(len(variant.guards) for _, variant in fitting)
        if nearest is not None and (
            not nearest[0] or len(fitting) >= MOST_CHOSEN or planned >= MOST_PLANNED
        ):
            return nearest[1]
        fixed = {name: size for name, size in sizes.items() if size <= FIXED_UP_TO}
        left = {name: size for name, size in sizes.items() if name not in fixed}
        scope = SizedScope(left, _scope(self.closed), units)
        program = instantiate(self.closed, {**fixed, **scope.variables()})
        compiled, identity = get_backend().compile_sized(
            program, self.donated, self.refs, self.place
        )
        guards = Guards(scope.required, scope.preferred)
        scope.close()
        for variant in alike:
            if variant.serves(sizes) and variant.identity == identity:
                variant.guards.append(guards)
                return variant
        variant = Variant(units, fixed, compiled, identity, [guards])
        self.known.append(variant)
        return variant

    def _unit(self, name: str, size: int) -> int:
        """In what a variable is counted that has a size."""
        fitting = (unit for unit in GPU_UNITS if size % unit == 0)
        return max(fitting) if name in self.aligning else 1

    def __str__(self) -> str:
        return "\n".join([f"{i}: {variant}" for i, variant in enumerate(self.known)])
