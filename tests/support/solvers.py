"""Products by one solver, wherever it has plans for them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from amdjax.kernels.products.cpu.dispatch import PRODUCTS
from amdjax.schedule.search import Solver


@contextlib.contextmanager
def everywhere(solver: Solver[Any, Any, Any], number: int) -> Iterator[list[Any]]:
    """What a solver has plans for is done by its plan of that number; yields those plans."""
    chosen: list[Any] = []

    def usual(product: Any, machine: Any) -> Any:
        plans = solver.plans(product, machine)
        chosen.extend(plans[number % len(plans)] for _ in plans[:1])
        return chosen[-1] if plans else None

    usually = PRODUCTS.solvers
    PRODUCTS.solvers = [dataclasses.replace(solver, usual=usual, tier=-1), *usually]
    try:
        yield chosen
    finally:
        PRODUCTS.solvers = usually
