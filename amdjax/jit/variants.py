"""The compiled forms of a program of symbolic shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.backend import get_backend
from amdjax.core.dims import Dim, SizedScope, SymbolicScope
from amdjax.core.instantiate import instantiate
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.jit.arrays import Runner

__all__ = ["Variants"]

_KEPT = 256  # instances of a program that are ready to run


@dataclass
class Variant:
    """A compiled form, good for a range of sizes.

    Attributes:
      scope: the dimension variables that stay symbolic, and the guards on them.
      fixed: those that do not, with their sizes.
      program: makes the program of given sizes.
    """

    scope: SizedScope
    fixed: Mapping[str, int]
    program: Callable[[Mapping[str, int]], Runner]

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is right for sizes."""
        return (
            all(sizes[name] == size for name, size in self.fixed.items())
            and all(sizes[name] > FIXED_UP_TO for name in self.scope.sizes)
            and all(guard.holds(sizes) for guard in self.scope.required)
        )

    def suits(self, sizes: Mapping[str, int]) -> bool:
        """Whether the same would be chosen for sizes, of which it is right."""
        return all(guard.holds(sizes) for guard in self.scope.preferred)

    def __str__(self) -> str:
        fixed = [f"{name} == {size}" for name, size in self.fixed.items()]
        rest = [f"{name} > {FIXED_UP_TO}" for name in self.scope.sizes]
        preferred = ", ".join(map(str, self.scope.preferred))
        needed = ", ".join([*fixed, *rest, *map(str, self.scope.required)])
        return f"{needed}; chosen for {preferred}" if preferred else needed


def _scope(closed: ClosedJaxpr) -> SymbolicScope | None:
    """What is known of the dimension variables of a program."""
    dims = (n for aval in closed.in_avals for n in getattr(aval, "shape", ()))
    return next((n.scope for n in dims if isinstance(n, Dim)), None)


#: Sizes up to this one are compiled as they are: much is simpler where an axis has one element.
FIXED_UP_TO = 1


#: As many variants are compiled for sizes of which all of them are right.
MOST_CHOSEN = 4


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
        if self.reason is None:
            try:
                return self._variant(sizes).program(sizes)
            except Exception as e:  # errors of the program itself come again below
                self.reason = f"{type(e).__name__}: {e}"
                # late: programs that log have it loaded
                import logging

                logger = logging.getLogger("amdjax.jit")
                logger.debug("A program is compiled for each of its sizes: %s", self.reason)
        program = instantiate(self.closed, sizes)
        return get_backend().compile(program, self.donated, self.refs, self.place)

    def _variant(self, sizes: Mapping[str, int]) -> Variant:
        """The first variant that fits, or a new one."""
        fitting = [variant for variant in self.known if variant.fits(sizes)]
        suiting = [variant for variant in fitting if variant.suits(sizes)]
        if suiting or len(fitting) >= MOST_CHOSEN:
            return (suiting or fitting)[0]
        fixed = {name: size for name, size in sizes.items() if size <= FIXED_UP_TO}
        left = {name: size for name, size in sizes.items() if name not in fixed}
        scope = SizedScope(left, _scope(self.closed))
        program = instantiate(self.closed, {**fixed, **scope.variables()})
        compiled = get_backend().compile_sized(program, self.donated, self.refs, self.place)
        variant = Variant(scope, fixed, compiled)
        self.known.append(variant)
        return variant

    def __str__(self) -> str:
        return "\n".join([f"{i}: {variant}" for i, variant in enumerate(self.known)])
