"""Exact linear programs of a few rows: what inequalities imply of a linear form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Contradiction", "minimum"]

Form = Mapping[Any, int]
"""Coefficients by unknown; the constant, if there is one, stands apart."""


class Contradiction(ValueError):
    """No values of the unknowns satisfy all inequalities."""


def minimum(objective: Form, rows: Sequence[tuple[Form, int]]) -> int | None:
    """The least integer value of a linear form where `form + constant >= 0` holds for all rows.

    All unknowns are integers, which the bound is rounded for.

    Farkas: the objective is a sum of rows with factors that are not negative, and what such a sum
    leaves of the constants is a bound. The best one is the optimum of the dual program, which the
    simplex method finds; Bland's rule keeps it from going in circles.

    Args:
      objective: the form, without a constant.
      rows: the inequalities.

    Returns:
      The minimum over rational values, rounded up; None if there is none.

    Raises:
      Contradiction: the inequalities exclude each other.

    >>> minimum({"a": 2, "b": -1}, [({"a": 1}, -1), ({"a": 1, "b": -1}, 0)])
    1
    """
    unknowns = sorted({u for form, _ in rows for u in form} | set(objective), key=str)
    # One equation an unknown; the factors of rows are its variables, an artificial one its slack.
    count, lines = len(rows), []
    for i, unknown in enumerate(unknowns):
        right = objective.get(unknown, 0)
        sign = -1 if right < 0 else 1
        factors = [sign * form.get(unknown, 0) for form, _ in rows]
        lines.append([*factors, *(int(i == j) for j in range(len(unknowns))), sign * right])
    table = _Table(lines, [count + i for i in range(len(unknowns))])
    artificial = [0] * count + [1] * len(unknowns)
    infeasible = table.least(artificial, count + len(unknowns))
    if infeasible is not None and infeasible[0]:
        return None  # no sum of rows gives the objective
    table.drop_artificial(count)
    best = table.least([constant for _, constant in rows] + [0] * len(unknowns), count)
    if best is None:
        raise Contradiction("no sizes satisfy all constraints")
    cost, scale = best
    return -(cost // scale)


class _Table:
    """Equations `sum of line[j] * x[j] = line[-1]`, each solved for the variable of its basis.

    Lines are integers, each with a scale of its own: the factor of its basic variable, which is
    positive.
    """

    def __init__(self, lines: list[list[int]], basis: list[int]):
        self.lines = lines
        self.basis = basis

    def least(self, cost: list[int], columns: int) -> tuple[int, int] | None:
        """The least cost over variables of at least zero, as a fraction; None without a bound."""
        reduced, scale = [*cost, 0], 1
        for line, variable in zip(self.lines, self.basis):
            reduced, scale = _eliminated(reduced, line, variable, scale)
        while (entering := next((j for j in range(columns) if reduced[j] < 0), None)) is not None:
            row = self.leaving(entering)
            if row is None:
                return None
            self.pivot(row, entering)
            reduced, scale = _eliminated(reduced, self.lines[row], entering, scale)
        return -reduced[-1], scale

    def leaving(self, column: int) -> int | None:
        """The equation that bounds a variable most, among equals that of the first variable."""
        best: int | None = None
        for i, line in enumerate(self.lines):
            if line[column] > 0:
                other = line if best is None else self.lines[best]
                difference = line[-1] * other[column] - other[-1] * line[column]
                first = best is None or self.basis[i] < self.basis[best]
                if difference < 0 or (not difference and first):
                    best = i
        return best

    def pivot(self, row: int, column: int) -> None:
        """Solve an equation for another variable, and put it into the others."""
        if self.lines[row][column] < 0:
            self.lines[row] = [-x for x in self.lines[row]]
        line = self.lines[row]
        for i, other in enumerate(self.lines):
            if i != row and other[column]:
                self.lines[i], _ = _eliminated(other, line, column, 0)
        self.basis[row] = column

    def drop_artificial(self, count: int) -> None:
        """Replace what is left of the artificial variables, all zero, or drop idle equations."""
        for row in reversed(range(len(self.lines))):
            if self.basis[row] >= count:
                column = next((j for j in range(count) if self.lines[row][j]), None)
                if column is None:
                    del self.lines[row], self.basis[row]
                else:
                    self.pivot(row, column)


def _eliminated(
    line: list[int], pivot: list[int], column: int, scale: int
) -> tuple[list[int], int]:
    """A line, and what else it is scaled by, without a variable that another one is solved for."""
    factor, by = line[column], pivot[column]
    if not factor:
        return line, scale
    found = [x * by - y * factor for x, y in zip(line, pivot)]
    scale *= by
    common = math.gcd(scale, *found)
    return ([x // common for x in found], scale // common) if common > 1 else (found, scale)
