"""Which values of a program are in memory at once: an analysis that passes and planning ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate

from amdjax.core.jaxpr import JaxprEqn, Var
from amdjax.core.sharding import Space


class Liveness:
    """Where values are made and last read, by the places of equations.

    Args:
      eqns: the program's equations.
      results: what the program returns, which is in memory of the caller's.
      held: values that have memory.
      passed: values that are computed where they are read, or are other names, so that their
        readers read what they are made of.
      inside: bytes that an equation takes while it runs, as the steps of a loop do.
    """

    def __init__(
        self, eqns: Sequence[JaxprEqn], results: Collection[Var], held: Collection[Var],
        passed: Collection[Var], inside: Callable[[JaxprEqn], int] = lambda eqn: 0,
    ) -> None:  # fmt: skip
        self.made = {v: i for i, e in enumerate(eqns) for v in e.outvars}
        self.last: dict[Var, int] = dict.fromkeys(results, len(eqns))
        for i in range(len(eqns) - 1, -1, -1):
            outs = eqns[i].outvars
            at = max((self.last.get(v, i) for v in outs if v in passed), default=i)
            for x in eqns[i].invars:
                if isinstance(x, Var):
                    self.last[x] = max(self.last.get(x, -1), at)
        self._changes = [0] * (len(eqns) + 2)
        for v, i in self.made.items():
            if v in held and v not in results and v.aval.memory_space is Space.Device:
                self._changes[i] += v.aval.nbytes
                self._changes[self.last.get(v, i) + 1] -= v.aval.nbytes
        for i, eqn in enumerate(eqns):
            taken = inside(eqn)
            self._changes[i] += taken
            self._changes[i + 1] -= taken

    @property
    def sizes(self) -> list[int]:
        """Bytes in memory at each equation."""
        return list(accumulate(self._changes))

    def peak(self) -> tuple[int, int]:
        """The equation at which most bytes are in memory, and how many."""
        sizes = self.sizes
        most = max(sizes, default=0)
        return sizes.index(most) if sizes else 0, most
