"""Sizes for which a program that was traced for all sizes may be none."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from amdjax.core.dims.operations import Bounds
from amdjax.core.dims.polynomial import (
    Polynomial,
    compiled,
    evaluate,
    of,
    plus,
    scale,
    variables,
)

__all__ = ["Departures"]


class Departures:
    """What sizes of some variables are compared with that may be apart.

    It is good as long as a scope takes nothing more to be so; it takes nothing back.

    Args:
      assumed: what a scope takes to be at least zero.
      undecided: what it takes to be other than zero.
      ranges: the bounds of the variables that have sizes.
    """

    def __init__(
        self, assumed: Iterable[Polynomial], undecided: Iterable[Polynomial],
        ranges: Mapping[str, Bounds],
    ):  # fmt: skip
        told = list(assumed), list(undecided)
        self.version = len(told[0]), len(told[1])
        # What is at least zero, and what to tell if it is not.
        self._natural: list[tuple[Polynomial, Polynomial]] = []
        for name, (least, most) in ranges.items():
            if least is not None:
                self._natural.append((plus(of(name), of(-least)), of(name)))
            if most is not None:
                self._natural.append((plus(of(most), scale(of(name), -1)), of(name)))
        self._natural += [(a, a) for a in told[0] if variables(a) <= ranges.keys()]
        self._nonzero = [a for a in told[1] if variables(a) <= ranges.keys()]
        self._fine: tuple[int, ...] = ()  # the last sizes of which all holds

    @functools.cached_property
    def _evaluated(self) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
        return compiled([*[a for a, _ in self._natural], *self._nonzero])

    def first(self, sizes: Mapping[str, Any]) -> Polynomial | None:
        """What is first found to be less than zero, or zero, and was taken not to be."""
        values = tuple(sizes.values())
        if {*map(type, values)} == {int} and (values == self._fine or self._is_fine(sizes)):
            self._fine = values
            return None
        value = sizes.__getitem__
        below = (told for a, told in self._natural if evaluate(a, value) < 0)
        zero = (a for a in self._nonzero if evaluate(a, value) == 0)
        return next(itertools.chain(below, zero), None)

    def _is_fine(self, sizes: Mapping[str, int]) -> bool:
        """Whether all holds; False, too, where something is divided by zero."""
        try:
            values = self._evaluated(sizes)
        except ZeroDivisionError:
            return False  # what comes before tells why
        count = len(self._natural)
        return 0 not in values[count:] and min(values[:count], default=0) >= 0
