"""Estimates that come with the package, read where it lies and never written.

A file for each GPU target, of lines as `export` writes them, made by `tools/ship_estimates.py`: of
problems for which another plan is faster by estimate than the usual one, both.

What they depend on are kernels of products and convolutions and the model of `model.py`, not all
that makes machine code. So they have a version of their own: `tests/find/test_shipped.py` counts
some of them anew at each commit, and says when they are due to be made again, which raises it.
"""

from __future__ import annotations

import warnings
from functools import cache

from amdjax.find.database import Known
from amdjax.find.lines import MIDDLE, known_of, start_of
from amdjax.find.problem import Problem
from amdjax.jit.finding import estimates_of

#: Of the estimates that come with the package; others, of the same form, are not followed.
VERSION = "estimates 6"


class Estimates:
    """What is estimated for a target: lines, of which those of a problem are read when it is met.

    Args:
      target: such as `gfx942`; nothing is known where no file of it has come with the package.
    """

    def __init__(self, target: str):
        self._path = estimates_of(target)
        self._lines: dict[str, list[str]] = {}
        try:
            lines = self._path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return
        except (OSError, ValueError) as e:
            self._warn(e)
            return
        for line in lines:
            self._lines.setdefault(line.partition(MIDDLE)[0], []).append(line)

    def __len__(self) -> int:
        return len(self._lines)

    def of(self, problem: Problem) -> list[Known]:
        """What is known of a problem."""
        try:
            lines = self._lines.get(start_of(problem), ())
            return [known_of(line, str(self._path)) for line in lines]
        except ValueError as e:
            self._warn(e)
            return []

    def _warn(self, error: Exception) -> None:
        warnings.warn(f"estimates that come with amdjax cannot be read: {error}", stacklevel=3)


@cache
def shipped(target: str) -> Estimates:
    """The estimates that come with the package for a target, read once."""
    return Estimates(target)
