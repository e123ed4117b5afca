"""Shapes read from text, and the sizes of variables that shapes of arrays tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from amdjax.core.dims import polynomial
from amdjax.core.dims.expression import Dim, DimSize, symbolic_dimension
from amdjax.core.dims.parse import split_shape
from amdjax.core.dims.polynomial import Operation, Polynomial, compiled, of
from amdjax.core.dims.scope import SymbolicScope

__all__ = [
    "ShapeEquations", "Unsolvable", "holds_or_is_assumed", "scope_of", "shape_variables", "solve",
    "symbolic_shape", "variables_of",
]  # fmt: skip


def symbolic_shape(
    shape_spec: str | None, *, constraints: Sequence[str] = (), scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """A shape with symbolic dimensions, read from text.

    Args:
      shape_spec: dimensions separated by commas: integers, variables, `2*b + 1`, `floordiv(t, 16)`,
        `mod(t, 4)`, `max(a, b)`, `min(a, b)`. `_` takes the size from `like`, `...` as the last one
        all that are left of it; None takes all.
      constraints: what holds of the variables, as "t <= 512", "mod(t, 8) == 0", "a >= 2*b".
      scope: that of other shapes whose variables these are; constraints are its own then.
      like: sizes for `_` and `...`; None where the size must be given.

    Returns:
      A tuple of integers and symbolic dimensions.

    Raises:
      TypeError: `scope` is none.
      ValueError: the text is no shape, `like` has no size where one is needed, or another than an
        integer of the text; no sizes satisfy the constraints, or both `scope` and `constraints` are
        given.

    Example:
      >>> b, t, n = amdjax.export.symbolic_shape("b, t, 512", constraints=["t <= 1024"])
      >>> b * t + 1, n, t <= 2000
      (b*t + 1, 512, True)
    """
    if scope is not None and constraints:
        raise ValueError("symbolic_shape: give constraints to the scope when it is made, not here")
    shape_spec = "..." if shape_spec is None else shape_spec
    if not isinstance(shape_spec, str):
        raise ValueError(f"symbolic_shape: shape_spec must be a string, got {shape_spec!r}")
    if scope is not None and not isinstance(scope, SymbolicScope):
        raise TypeError(f"symbolic_shape: scope must be a SymbolicScope, got {scope!r}")
    scope = SymbolicScope(constraints) if scope is None else scope
    parts = split_shape(shape_spec)
    known = None if like is None else list(like)
    if parts and parts[-1] == "...":
        left = [] if known is None else known[len(parts) - 1 :]
        parts = [*parts[:-1], *["_"] * len(left)]
        if known is None:
            raise ValueError(f"symbolic_shape: '...' in {shape_spec!r} needs like=")
    if known is not None and len(parts) != len(known):
        raise ValueError(
            f"symbolic_shape: {shape_spec!r} has {len(parts)} dimensions, like={tuple(known)} has "
            f"{len(known)}"
        )
    return tuple(_dimension(part, i, known, scope, shape_spec) for i, part in enumerate(parts))


def _dimension(
    part: str, at: int, known: list[int | None] | None, scope: SymbolicScope, spec: str
) -> DimSize:
    if part == "...":
        raise ValueError(f"symbolic_shape: '...' must be the last dimension, got {spec!r}")
    size = None if known is None else known[at]
    if part != "_":
        dim = symbolic_dimension(part, scope)
        if isinstance(dim, int) and isinstance(size, int) and dim != size:
            raise ValueError(
                f"symbolic_shape: dimension {at} of {spec!r} is {dim}, and has the size {size} in "
                "like="
            )
        return dim
    if size is None:
        raise ValueError(f"symbolic_shape: '_' as dimension {at} of {spec!r} needs like=")
    return size


def shape_variables(spec: str, scope: SymbolicScope) -> set[str]:
    """The variables of the shape that a text describes.

    Raises:
      ValueError: it describes none.
    """
    dims = [symbolic_dimension(p, scope) for p in split_shape(spec) if p not in ("_", "...")]
    return set[str]().union(*(d.variables() for d in dims if isinstance(d, Dim)))


def scope_of(types: Iterable[Any]) -> SymbolicScope | None:
    """The scope of the symbolic dimensions of some types; None if they have none."""
    return next((d.scope for d in _dims(types)), None)


def variables_of(types: Iterable[Any]) -> set[str]:
    """The variables of the symbolic dimensions of some types."""
    return set[str]().union(*(d.variables() for d in _dims(types)))


def _dims(types: Iterable[Any]) -> Iterator[Dim]:
    """The symbolic dimensions of types, of which some have no axes."""
    return (d for x in types for d in getattr(x, "shape", ()) if isinstance(d, Dim))


class Unsolvable(ValueError):
    """Sizes that no values of the variables give.

    Args:
      why: what is wrong.
      at: which of the equations shows it, None if they leave a variable open.
    """

    def __init__(self, why: str, at: int | None):
        super().__init__(why)
        self.at = at


def solve(equations: Sequence[tuple[Dim, Any]]) -> dict[str, Any]:
    """The values of variables for which dimensions have given sizes.

    An equation of one variable that is left, and that is linear, tells its value; each is checked.

    Args:
      equations: dimensions and their sizes.

    Raises:
      Unsolvable: no values give these sizes, or more than can be told.

    >>> b, t = amdjax.export.symbolic_shape("b, 2*t + b")
    >>> solve([(t, 9), (b, 3)])
    {'b': 3, 't': 3}
    """
    found: dict[str, int] = {}
    left, learned = dict(enumerate(equations)), True
    while learned:
        learned = False
        for i, (dim, size) in list(left.items()):
            unknown = dim.variables() - found.keys()
            if not unknown:
                _check(dim, size, found, i)
                del left[i]
            elif len(unknown) == 1:
                (name,) = unknown
                value = _value(dim, size, name, found, i)
                if value is not None:
                    found[name], learned = value, True
                    del left[i]
    if left:
        open_ones = sorted(set().union(*(dim.variables() for dim, _ in left.values())) - {*found})
        raise Unsolvable(
            f"no axis tells the size of {', '.join(map(repr, open_ones))}: an axis must be the "
            "variable itself, or linear in it with all other variables told by other axes",
            None,
        )
    return found


class ShapeEquations:
    """What sizes of axes tell of variables, made ready for many calls.

    Args:
      shapes: dimensions by axis, None where an axis may have any size.
      scope: that of the variables.
    """

    def __init__(self, shapes: Sequence[Sequence[DimSize | None]], scope: SymbolicScope):
        self.shapes, self.scope = shapes, scope
        said = [(i, n) for i, n in enumerate(n for s in shapes for n in s) if n is not None]
        self._places = [i for i, _ in said]
        self._tells = _telling(said, scope)
        sides = [n.polynomial if isinstance(n, Dim) else of(n) for _, n in said]
        asked = [*sides, *scope.rows_told]
        names = set[str]().union(*map(polynomial.variables, asked))
        foreign = any(isinstance(n, Dim) and n.scope is not scope for _, n in said)
        self._evaluated = None if foreign or names - {*self._tells} else compiled(asked)

    def solved(self, shapes: Iterable[Sequence[Any]]) -> dict[str, int] | None:
        """The sizes of the variables.

        Args:
          shapes: of as many axes.

        Returns:
          None where the shapes do not fit, where constraints do not hold, or where `solve` knows
          more: it tells what is wrong.
        """
        given = [n for shape in shapes for n in shape]
        if self._evaluated is None or any(type(n) is not int for n in given):
            return None
        sizes = {name: (given[i] - c) // slope for name, (i, slope, c) in self._tells.items()}
        values = self._evaluated(sizes)
        count = len(self._places)
        fit = values[:count] == tuple([given[i] for i in self._places])
        if not fit or min((*sizes.values(), *values[count:]), default=0) < 0:
            return None
        return sizes


def _telling(
    said: Sequence[tuple[int, DimSize]], scope: SymbolicScope
) -> dict[str, tuple[int, int, int]]:
    """For variables an axis whose size is linear in them alone: where, slope and constant."""
    found: dict[str, tuple[int, int, int]] = {}
    for i, n in said:
        if isinstance(n, Dim):
            slopes = [(polynomial.atom_of(((m, 1),)), c) for m, c in n.polynomial if m]
            name, slope = slopes[0]
            if len(slopes) == 1 and isinstance(name, str):
                constant = sum(c for m, c in n.polynomial if not m)
                found.setdefault(name, (i, slope, constant))
    return found


def holds_or_is_assumed(size: DimSize, symbol: str) -> bool:
    """Whether a size is zero ("=="), or at least zero (">=").

    Where that depends on the sizes, its scope takes it to be so.
    """
    if not isinstance(size, Dim):
        return size == 0 if symbol == "==" else size >= 0
    scope, a = size.scope, size.polynomial
    holds = scope.equal(a, ()) if symbol == "==" else scope.is_at_least_zero(a)
    if holds is None:
        scope.assume(a, symbol)
    return holds is not False


def _check(dim: Dim, size: int, found: Mapping[str, int], at: int) -> None:
    value = dim.evaluate(found)
    if value != size:
        told = ", ".join(f"{name} = {found[name]}" for name in sorted(dim.variables()))
        raise Unsolvable(f"'{dim}' is {value} where {told}, got the size {size}", at)


def _value(dim: Dim, size: int, name: str, found: Mapping[str, int], at: int) -> int | None:
    """The value of a variable that an equation tells; None if it is not linear in it."""
    if not _is_linear(dim.polynomial, name):
        return None
    constant = dim.evaluate({**found, name: 0})
    slope = dim.evaluate({**found, name: 1}) - constant
    if not slope:
        return None
    value, rest = divmod(size - constant, slope)
    if not (holds_or_is_assumed(rest, "==") and holds_or_is_assumed(value, ">=")):
        raise Unsolvable(f"'{dim}' is {size} for no size '{name}'", at)
    return value


def _is_linear(a: Polynomial, name: str) -> bool:
    inside = (x.args for monomial, _ in a for x, _ in monomial if isinstance(x, Operation))
    nested = any(name in polynomial.variables(arg) for args in inside for arg in args)
    return not nested and all(p == 1 for monomial, _ in a for x, p in monomial if x == name)
