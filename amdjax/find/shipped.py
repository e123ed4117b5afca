"""Estimates that come with the package, read where it lies and never written.

A file for each GPU target, of lines as `export` writes them, made by `tools/ship_estimates.py`: of
each problem the plan that is taken without measuring, and the fastest where that is another.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache

from amdjax.find.database import Known
from amdjax.find.lines import read_lines
from amdjax.find.problem import Problem
from amdjax.jit.finding import estimates_of

__all__ = ["shipped"]


@cache
def shipped(target: str) -> Mapping[Problem, Sequence[Known]]:
    """What is estimated for a target, by problem; nothing where no file has come with the package.

    Args:
      target: such as `gfx942`.
    """
    path, found = estimates_of(target), dict[Problem, list[Known]]()
    try:
        for known in read_lines(path):
            found.setdefault(known.problem, []).append(known)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        warnings.warn(f"the estimates that come with amdjax cannot be read: {e}", stacklevel=2)
        return {}
    return found
