"""Measured choices: of algorithms and of their plans, for the problems of a program.

The compiler chooses kernels by estimates. Here they are tried out, compared with results in
float64, timed, and recorded in a database, by which programs are compiled from then on:

    from amdjax import find
    find.tune(f, *args, budget=60)

`problems` lists what a function computes step by step, `find_solutions` measures the ways to do one
of them, `python -m amdjax.find` shows and edits databases. Settings are in docs/find.md.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

if _TYPE_CHECKING:
    from amdjax.find.problem import Problem as Problem
    from amdjax.find.solutions import (
        Solution as Solution,
        find_solutions as find_solutions,
        load_solution as load_solution,
    )
    from amdjax.find.tuning import Tuning as Tuning, problems as problems, tune as tune

#: Files of the names: programs that follow what is known load less than those that measure.
_PLACES = {
    "Problem": "problem", "Solution": "solutions", "find_solutions": "solutions",
    "load_solution": "solutions", "Tuning": "tuning", "problems": "tuning", "tune": "tuning",
}  # fmt: skip
__all__ = [
    "Problem", "Solution", "Tuning", "find_solutions", "load_solution", "problems", "tune",
]  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # late: see _PLACES
    value = getattr(_importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
