"""What `jit` was told of symbolic shapes, and the sizes that arguments give their variables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from amdjax.core.aval import ShapedArray
from amdjax.core.dims import (
    Dim,
    DimSize,
    ShapeEquations,
    SymbolicScope,
    Unsolvable,
    holds_or_is_assumed,
    scope_of,
    shape_variables,
    solve,
    symbolic_shape,
)
from amdjax.core.dims.expression import wrapped
from amdjax.core.dims.polynomial import Polynomial, of, variables
from amdjax.core.instantiate import type_at
from amdjax.core.pytree import PyTreeDef, broadcast_prefix, tree_leaves
from amdjax.core.ref import AbstractRef
from amdjax.jit.arguments import Parameters
from amdjax.transforms.flat import signature


class SymbolicTypes(NamedTuple):
    """Types of arguments of which some dimensions are symbolic.

    Args:
      avals: the types of the leaves.
      sizes: what a call gives the variables.
      scope: what is known of these.
    """

    avals: list[Any]
    sizes: Mapping[str, int]
    scope: SymbolicScope

    def where(self, case: Mapping[str, Polynomial]) -> SymbolicTypes:
        """The same with polynomials in place of some variables, perhaps multiples of new ones."""
        instead = {name: wrapped(self.scope, a) for name, a in case.items()}
        others = {n: size for n, size in self.sizes.items() if n not in case}
        for name, a in case.items():
            others |= {n: self.sizes[name] // a[0][1] for n in variables(a) - self.sizes.keys()}
        values = {**{n: Dim(self.scope, of(n)) for n in others}, **instead}
        avals = [type_at(a, cast("Mapping[str, int]", values)) for a in self.avals]
        return SymbolicTypes(avals, others, self.scope)


class SymbolicShapes:
    """The shapes that `jit(f, symbolic=…)` names.

    Args:
      parameters: those of the function.
      specs: a text for all arguments, a sequence with an entry for each positional parameter, or a
        dictionary by parameter name; entries are pytree prefixes, of texts and None.
      constraints: what holds of the variables.

    Raises:
      ValueError: a name is no parameter, there are more entries than parameters, or no sizes
        satisfy the constraints.
    """

    def __init__(self, parameters: Parameters, specs: Any, constraints: Sequence[str] = ()):
        self.parameters, self.name = parameters, parameters.name
        self.scope = SymbolicScope(constraints)
        self._signature = signature(parameters.fun)
        self._for_all = specs if isinstance(specs, str) else None
        self._specs = {} if isinstance(specs, str) else self._by_name(specs)
        self.variables = self._said_variables()
        self._known: dict[Any, SaidShapes] = {}

    def _said_variables(self) -> frozenset[str]:
        """The variables of all shapes, which are read once so that mistakes are told at once."""
        given = {"": self._for_all} if self._for_all is not None else self._specs
        found = set[str]()
        for name, entry in given.items():
            where = f"symbolic[{name!r}]" if name else "symbolic"
            for spec in tree_leaves(entry):
                if not isinstance(spec, str):
                    raise ValueError(
                        f"jit: {where} must be a text as 'b, 128', or a pytree of texts and None "
                        f"where the argument is one, got {spec!r}"
                    )
                try:
                    found |= shape_variables(spec, self.scope)
                except ValueError as e:
                    raise ValueError(f"jit: {where} is {spec!r}: {e}") from None
        return frozenset(found)

    def _by_name(self, specs: Any) -> dict[str, Any]:
        known = self._signature.parameters.values() if self._signature else ()
        if isinstance(specs, Mapping):
            names = {p.name for p in known if p.kind is not p.VAR_KEYWORD}
            takes_any = any(p.kind is p.VAR_KEYWORD for p in known)
            wrong = [n for n in specs if n not in names and not takes_any]
            if wrong:
                raise ValueError(
                    f"jit: symbolic names {wrong[0]!r}, but {self.name} takes {sorted(names)}"
                )
            return dict(specs)
        if not isinstance(specs, (tuple, list)):
            raise ValueError(
                "jit: symbolic must be a text, a sequence with an entry for each argument, or a "
                f"dictionary by parameter name, got {specs!r}"
            )
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names_in_order = [p.name for p in known if p.kind in positional]
        found = dict(zip(names_in_order, specs))
        rest = tuple(specs[len(names_in_order) :])
        if rest:
            many = [p.name for p in known if p.kind is p.VAR_POSITIONAL]
            if not many:
                raise ValueError(
                    f"jit: symbolic has {len(specs)} entries, {self.name} takes "
                    f"{len(names_in_order)} positional arguments"
                )
            found[many[0]] = rest
        return found

    def of(self, avals: Sequence[Any], tree: PyTreeDef, static: Any) -> SymbolicTypes:
        """The symbolic types of arguments, and the sizes that theirs give the variables.

        Args:
          avals: the types of the leaves.
          tree: their structure.
          static: the static arguments, as `Parameters.split` gives them.

        Raises:
          ValueError: a shape does not fit what it was said to be, or a constraint is violated; the
            message names argument, axis and sizes.
        """
        said, sizes = self._said(avals, tree, static)
        return SymbolicTypes(said.types(avals), sizes, self.scope)

    def check(self, avals: Sequence[Any], tree: PyTreeDef, static: Any) -> None:
        """Check arguments whose own sizes are symbolic, as where another function is traced.

        Args:
          avals, tree, static: as for `of`.

        Raises:
          ValueError: as `of`, whatever the sizes are. Those that violate a constraint though not
            all do are traced apart, where the call raises.
        """
        self._said(avals, tree, static)

    def _said(
        self, avals: Sequence[Any], tree: PyTreeDef, static: Any
    ) -> tuple[SaidShapes, dict[str, Any]]:
        """What was said of the shape of each leaf, and the sizes of the variables."""
        names = lambda: self.parameters.leaf_names(avals, tree, static)
        key = tree, static, tuple([len(shape_of(a)) for a in avals])
        said = self._known.get(key)
        if said is None:
            specs = self._of_leaves(tree, static)
            shapes = [
                None if spec is None else self._shape(aval, spec, name)
                for aval, spec, name in zip(avals, specs, names(), strict=True)
            ]
            while len(self._known) >= _KEPT:
                for oldest in tuple(self._known)[:1]:  # other threads may take some, too
                    self._known.pop(oldest, None)
            said = self._known[key] = SaidShapes(shapes, avals, self.scope)
        return said, checked_sizes(self.name, said.equations, avals, names)

    def _shape(self, aval: Any, spec: str, name: str) -> tuple[DimSize | None, ...]:
        """What a text says of the axes of an argument; None where they have their own sizes."""
        given = shape_of(aval)
        count = spec.count(",") + 1
        if "..." not in spec and "(" not in spec and len(given) != count and spec.strip():
            raise ValueError(
                f"jit of {self.name}: argument '{name}' of shape {given} is said to have the "
                f"shape {spec!r}, of {count} dimensions, and has {len(given)}: name each, as _ "
                "where it stays what it is, or write ... for the rest"
            )
        try:
            said = symbolic_shape(spec, scope=self.scope, like=[_OWN] * len(given))
        except ValueError as e:
            raise ValueError(
                f"jit of {self.name}: argument '{name}' of shape {given} is said to have the "
                f"shape {spec!r}: {e}"
            ) from None
        return tuple(None if n is _OWN else n for n in said)

    def _of_leaves(self, tree: PyTreeDef, static: Any) -> list[Any]:
        """The entry that speaks of each leaf."""
        count = tree.num_leaves
        if self._for_all is not None:
            return [self._for_all] * count
        found: list[Any] = [None] * count
        args, kwargs = self.parameters.restore(list(map(_Leaf, range(count))), tree, static)
        for name, value in self._bound(args, kwargs):
            spec = self._specs.get(name)
            if spec is None:
                continue
            try:
                below = broadcast_prefix(spec, value, is_leaf=lambda x: x is None)
            except ValueError as e:
                if type(value) is _Leaf and isinstance(spec, (tuple, list)):
                    text = ", ".join(map(str, spec))
                    raise ValueError(
                        f"jit of {self.name}: symbolic is no prefix of the argument '{name}', "
                        f"which is one array: say its shape by one text, {text!r}"
                    ) from None
                raise ValueError(
                    f"jit of {self.name}: symbolic is no prefix of the argument '{name}': {e}"
                ) from None
            for leaf, own in zip(tree_leaves(value), below):
                if type(leaf) is not _Leaf:
                    raise ValueError(
                        f"jit of {self.name}: the argument '{name}' is static, so that it has no "
                        "symbolic shape"
                    )
                found[leaf.position] = own
        return found

    def _bound(self, args: Any, kwargs: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        """The arguments by parameter name, variable keywords one by one."""
        if self._signature is None:
            yield from kwargs.items()
            return
        for name, value in self._signature.bind_partial(*args, **kwargs).arguments.items():
            several = self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            yield from value.items() if several else [(name, value)]


_KEPT = 64  # structures of arguments of a function


class _Own:
    """The size of an axis of which nothing is said."""

    def __repr__(self) -> str:
        return "_"


_OWN: Any = _Own()


class SaidShapes:
    """The shapes that arguments of one structure are said to have.

    Args:
      shapes: of the leaves; None where nothing is said of one, and in those that are, of an axis.
      avals: types that leaves have.
      scope: of the dimensions.
    """

    def __init__(self, shapes: Sequence[Any], avals: Sequence[Any], scope: SymbolicScope):
        said = [(None,) * len(shape_of(a)) if s is None else s for s, a in zip(shapes, avals)]
        self.equations = ShapeEquations(said, scope)
        self._shapes, self._types = shapes, dict[Any, Any]()
        self._whole = [not any(n is None for n in shape) for shape in said]

    def types(self, avals: Sequence[Any]) -> list[Any]:
        """The types of leaves as they are said to be."""
        return [
            a if s is None else self._type(i, a)
            for i, (a, s) in enumerate(zip(avals, self._shapes))
        ]

    def _type(self, i: int, aval: Any) -> Any:
        said = self._shapes[i]
        if not self._whole[i] or type(aval) is not ShapedArray:
            own = zip(said, shape_of(aval), strict=True)
            return with_shape(aval, tuple(n if dim is None else dim for dim, n in own))
        key = i, aval.dtype, aval.weak_type
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = with_shape(aval, said)
        return found


class _Leaf:
    """Stands for a leaf of the arguments."""

    def __init__(self, position: int):
        self.position = position


def checked_sizes(
    fun_name: str, said: ShapeEquations, given: Sequence[Any], names: Callable[[], Sequence[str]],
    *, of_all: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """The sizes of variables that types of arguments tell.

    Args:
      fun_name: the function, for messages.
      said: the shapes that they are said to have.
      given: the types of a call.
      names: tells what the arguments are called.
      of_all: whether all variables of constraints are among them; not those that a program which
        was traced apart has numbers for.

    Raises:
      ValueError: the sizes do not fit, or violate a constraint. Whether symbolic ones do may depend
        on the sizes: those that do are traced apart.
    """
    shapes, scope = [shape_of(a) for a in given], said.scope
    solved = said.solved(shapes)
    if solved is not None:
        return solved
    equations, places = [], []
    for name, want, have in zip(names(), said.shapes, shapes, strict=True):
        for axis, (dim, size) in enumerate(zip(want, have, strict=True)):
            if isinstance(dim, Dim) and dim.scope is scope:
                equations.append((dim, size))
                places.append((name, axis))
            elif dim is not None and dim != size:
                raise ValueError(
                    f"jit of {fun_name}: argument '{name}', axis {axis}: the size is said to be "
                    f"{dim}, got {size}"
                )
    try:
        sizes = solve(equations)
    except Unsolvable as e:
        place = "" if e.at is None else f"argument '{places[e.at][0]}', axis {places[e.at][1]}: "
        raise ValueError(f"jit of {fun_name}: {place}{e}{_told(equations, places)}") from None
    try:
        violated = next(
            (c for c, rows in scope.conditions(sizes, of_all=of_all) if not _hold(rows)), None
        )
    except KeyError as e:
        raise ValueError(
            f"jit of {fun_name}: no argument tells the size of {e}, of which a constraint speaks; "
            f"the variables are {sorted(sizes)}"
        ) from None
    if violated is not None:
        told = ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items()))
        raise ValueError(
            f"jit of {fun_name}: the constraint '{violated}' does not hold where {told}"
            f"{_told(equations, places)}"
        )
    return sizes


def _hold(rows: Sequence[Any]) -> bool:
    """Whether what a constraint says is at least zero is, or is taken to be."""
    if len(rows) == 2:  # of an equality, each the other's negative
        return holds_or_is_assumed(rows[0], "==")
    return all(holds_or_is_assumed(row, ">=") for row in rows)


def _told(equations: Sequence[tuple[Dim, int]], places: Sequence[tuple[str, int]]) -> str:
    lines = [
        f"\n  axis {axis} of '{name}' is {size}, said to be '{dim}'"
        for (dim, size), (name, axis) in zip(equations, places)
    ]
    return "".join(lines[:12])


def shape_of(aval: Any) -> Any:
    """The shape of an array, or of what a reference holds; () of other values."""
    return getattr(aval.inner_aval if isinstance(aval, AbstractRef) else aval, "shape", ())


def with_shape(aval: Any, shape: Any) -> Any:
    """The type of an array, or of a reference to one, with another shape."""
    if isinstance(aval, AbstractRef):
        return aval.of(aval.inner_aval.update(shape=shape))
    return aval.unsharded().update(shape=shape) if isinstance(aval, ShapedArray) else aval


def kind_of(aval: Any) -> Any:
    """What equals that of types that differ in sizes alone."""
    if type(aval) is ShapedArray:
        return aval.ndim, aval.dtype, aval.weak_type
    return with_shape(aval, (1,) * len(shape_of(aval)))


def has_symbolic_dims(avals: Iterable[Any]) -> bool:
    """Whether a dimension of some types is symbolic."""
    return scope_of(avals) is not None


def given_sizes(sizes: Any, scope: SymbolicScope, avals: Sequence[Any]) -> dict[str, int]:
    """Sizes of the variables of some types, as users give them.

    Raises:
      TypeError: they are no dictionary, or one is no integer.
      ValueError: a variable has none, one is negative, there is no such variable, or they violate a
        constraint.
    """
    dims = [d for a in avals for d in shape_of(a) if isinstance(d, Dim)]
    names = sorted(set().union(*(d.variables() for d in dims)))
    if not isinstance(sizes, Mapping):
        raise TypeError(f"at: sizes must be a dictionary by variable, of {names}, got {sizes!r}")
    if missing := [name for name in names if name not in sizes]:
        raise ValueError(f"at: sizes lacks {missing[0]!r}; the variables are {names}")
    if unknown := [name for name in sizes if name not in names]:
        raise ValueError(f"at: sizes names {unknown[0]!r}; the variables are {names}")
    for name, size in sizes.items():
        if not isinstance(size, (int, np.integer)) or isinstance(size, bool):
            raise TypeError(f"at: the size of {name!r} must be an integer, got {size!r}")
        if size < 0:
            raise ValueError(f"at: the size of {name!r} must not be negative, got {size}")
    found = {name: int(size) for name, size in sizes.items()}
    if (violated := scope.violated(found)) is not None:
        raise ValueError(f"at: the constraint '{violated}' does not hold of {found}")
    return found
