"""Measured choices: of algorithms and of their plans, for the problems of a program.

The compiler chooses kernels by estimates. Here they are tried out, compared with results in
float64, timed, and recorded in a database, by which programs are compiled from then on:

    from amdjax import find
    find.tune(f, *args, budget=60)

`problems` lists what a function computes step by step, `find_solutions` measures the ways to do one
of them, `python -m amdjax.find` shows and edits databases. Settings are in docs/find.md.
"""

from amdjax.find.problem import Problem as Problem
from amdjax.find.solutions import (
    Solution as Solution,
    find_solutions as find_solutions,
    load_solution as load_solution,
)
from amdjax.find.tuning import Tuning as Tuning, problems as problems, tune as tune

__all__ = [
    "Problem", "Solution", "Tuning", "find_solutions", "load_solution", "problems", "tune",
]  # fmt: skip
