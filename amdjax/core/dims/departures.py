"""Sizes for which a program that was traced for all sizes may be none."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from amdjax.core.dims.operations import Bounds
from amdjax.core.dims.polynomial import Polynomial, compiled, evaluate, variables

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
        self.ranges = list(ranges.items())
        self._natural, self._nonzero = (
            [a for a in some if variables(a) <= ranges.keys()] for some in told
        )

    @functools.cached_property
    def _evaluated(self) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
        return compiled([*self._natural, *self._nonzero])

    def first(self, sizes: Mapping[str, Any]) -> Polynomial | None:
        """What is first found to be less than zero, or zero, and was taken not to be."""
        values: Iterable[Any] = (
            evaluate(a, sizes.__getitem__) for a in (*self._natural, *self._nonzero)
        )
        if all(type(size) is int for size in sizes.values()):
            with contextlib.suppress(ZeroDivisionError):  # what comes before tells why
                values = self._evaluated(sizes)
        found = iter(values)
        below = (a for a in self._natural if next(found) < 0)
        zero = (a for a in self._nonzero if next(found) == 0)
        return next(itertools.chain(below, zero), None)
