"""The compiled forms of a program of symbolic shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amdjax.core.backend import get_backend
from amdjax.core.instantiate import instantiate
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.jit.arrays import Runner

__all__ = ["Variants"]

_KEPT = 64  # compiled instances of a program


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
            program = instantiate(self.closed, sizes)
            run = get_backend().compile(program, self.donated, self.refs, self.place)
        while len(self._instances) >= _KEPT:
            self._instances.pop(next(iter(self._instances)), None)
        self._instances[key] = run
        return run

    def __str__(self) -> str:
        rows = [", ".join(f"{name}={size}" for name, size in key) for key in self._instances]
        return "\n".join(["variant", *rows])
