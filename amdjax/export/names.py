"""Names of the layers or nodes that a program's operations were made from, beside its text.

The text tells what is computed; what this is called is of use to people alone, and changes neither
kernels nor plans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, open_jaxpr, subjaxprs_of_value
from amdjax.core.source_info import SourceInfo

__all__ = ["name_operations", "names_of"]

Program = Jaxpr | ClosedJaxpr


def names_of(program: Program, read: Program) -> dict[str, Any] | None:
    """The names of operations, in JSON.

    Args:
      program: the program.
      read: the one that its text is read as, whose operations are in the same order.

    Returns:
      Distinct `names`, and for each operation `of` which of them it is; None where there are none.
    """
    numbers: dict[str, int] = {}
    of: list[int] = []

    def note(eqn: JaxprEqn, _: JaxprEqn) -> None:
        of.append(numbers.setdefault(str(eqn.source.name_stack), len(numbers)))

    _visit(program, read, note, set())
    return {"names": list(numbers), "of": of} if any(numbers) else None


def name_operations(program: Program, told: Any) -> None:
    """Name the operations of a program that was read; any exception tells that these are none."""
    names, of = list(told["names"]), list(told["of"])
    if not all(type(name) is str for name in names):
        raise ValueError("a name is no text")
    sources = [SourceInfo(None, 0, (name,) if name else ()) for name in names]
    numbers = iter(of)

    def give(eqn: JaxprEqn, _: JaxprEqn) -> None:
        number = next(numbers, None)
        if type(number) is not int or not 0 <= number < len(sources):
            raise ValueError("an operation has no name")
        eqn.source = sources[number]

    _visit(program, program, give, set())
    if next(numbers, None) is not None:
        raise ValueError("there are more names than operations")


def _visit(
    program: Program, read: Program, visit: Callable[[JaxprEqn, JaxprEqn], None], seen: set[int]
) -> None:
    """Visit the operations of two programs that are alike, programs in the second one once."""
    one, other = open_jaxpr(program), open_jaxpr(read)
    if id(other) in seen:
        return
    seen.add(id(other))
    for a, b in zip(one.eqns, other.eqns, strict=True):
        visit(a, b)
        for name in b.params:
            bodies = zip(*map(list, map(subjaxprs_of_value, (a.params.get(name), b.params[name]))))
            for x, y in bodies:
                _visit(x, y, visit, seen)
