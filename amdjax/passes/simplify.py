"""Algebraic simplification: a table of rewrites applied by one engine.

A rule is a pattern beside its replacement. Patterns are written with `op.<primitive>(…)`,
variables (`x`, `y`), and numbers; a pattern parameter `axes=P("axes")` binds the equation's
parameter. A replacement is a variable of the pattern, or a function that receives the `Match` and
returns an atom, or None to decline. Rules keep every value equal, except that `x + 0` loses the
sign of a zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdjax.core.dims import same_shape
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from amdjax.core.lowering import Element
from amdjax.core.primitive import Primitive

Atom = Any


@dataclass(frozen=True)
class X:
    """A pattern variable: matches any atom, the same one wherever it occurs."""

    name: str


@dataclass(frozen=True)
class P:
    """Binds an equation's parameter."""

    name: str


@dataclass(frozen=True)
class Op:
    """Matches the result of a primitive applied to operands that match."""

    name: str
    operands: tuple[Any, ...]
    params: tuple[tuple[str, Any], ...]


class _Ops:
    """`op.add(x, y)` is a pattern for the primitive `add`."""

    def __getattr__(self, name: str) -> Callable[..., Op]:
        return lambda *operands, **params: Op(name, operands, tuple(params.items()))


op = _Ops()


@dataclass(frozen=True)
class Rule:
    """One rewrite: what to look for, what to put there."""

    name: str
    pattern: Op
    replacement: X | Callable[[Match], Atom | None]


@dataclass
class Match:
    """Bindings of a pattern, and the means to build a replacement."""

    rewriter: _Rewriter
    eqn: JaxprEqn
    atoms: dict[str, Atom] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.atoms[name] if name in self.atoms else self.params[name]

    @property
    def out(self) -> Any:
        """Type of the value being replaced."""
        return self.eqn.outvars[0].aval

    def apply(self, name: str, *operands: Atom, **params: Any) -> Atom:
        """An equation with the primitive of that name."""
        return self.rewriter.apply(Primitive.by_name[name], operands, params)

    def convert(self, atom: Atom, dtype: np.dtype) -> Atom:
        """An atom in another dtype."""
        if atom.aval.dtype == dtype:
            return atom
        return self.apply(
            "convert_element_type",
            atom,
            new_dtype=dtype,
            weak_type=atom.aval.weak_type,
            sharding=None,
        )

    def source(self, atom: Atom, name: str) -> JaxprEqn | None:
        """The equation behind an atom, if its primitive has that name."""
        eqn = self.rewriter.makers.get(atom) if isinstance(atom, Var) else None
        return eqn if eqn is not None and eqn.primitive.name == name else None


def rewrite(closed: ClosedJaxpr, rules: Sequence[Rule]) -> ClosedJaxpr:
    """The program with every rule applied wherever it fits."""
    return _Rewriter(rules).run(closed)


class _Rewriter:
    """Copies a program equation by equation; what a rule matches is replaced as it is copied."""

    def __init__(self, rules: Sequence[Rule]):
        self.by_name: dict[str, list[Rule]] = {}
        for rule in rules:
            self.by_name.setdefault(rule.pattern.name, []).append(rule)
        self.makers: dict[Var, JaxprEqn] = {}
        self.eqns: list[JaxprEqn] = []
        self.names: dict[Var, Atom] = {}
        self.source: Any = None
        self.uses: Counter[Var] = Counter()  # in the program as it was

    def run(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        self.uses.update(x for e in closed.jaxpr.eqns for x in e.invars if isinstance(x, Var))
        self.uses.update(x for x in closed.jaxpr.outvars if isinstance(x, Var))
        for eqn in closed.jaxpr.eqns:
            self.source = eqn.source
            invars = [self.names.get(x, x) if isinstance(x, Var) else x for x in eqn.invars]
            new = eqn.replace(invars=invars)
            replaced = self.rewrite(new)
            if replaced is None:
                self.record(new)
            else:
                self.names[eqn.outvars[0]] = replaced
        outvars = [self.names.get(v, v) if isinstance(v, Var) else v for v in closed.jaxpr.outvars]
        old = closed.jaxpr
        jaxpr = Jaxpr(old.constvars, old.invars, outvars, self.eqns, None, old.debug_info)
        return ClosedJaxpr(jaxpr, closed.consts)

    def record(self, eqn: JaxprEqn) -> None:
        self.eqns.append(eqn)
        self.makers.update((v, eqn) for v in eqn.outvars)

    def rewrite(self, eqn: JaxprEqn) -> Atom | None:
        """What replaces the result of an equation, or None."""
        if len(eqn.outvars) != 1 or eqn.effects:
            return None
        for rule in self.by_name.get(eqn.primitive.name, ()):
            match = Match(self, eqn)
            if not self.matches_eqn(rule.pattern, eqn, match):
                continue
            new = (
                match.atoms.get(rule.replacement.name)
                if isinstance(rule.replacement, X)
                else rule.replacement(match)
            )
            if new is not None and self.same_type(new, eqn):
                return new
        return None

    @staticmethod
    def same_type(atom: Atom, eqn: JaxprEqn) -> bool:
        want = eqn.outvars[0].aval
        return same_shape(atom.aval.shape, want.shape) and atom.aval.dtype == want.dtype

    def apply(self, primitive: Primitive, operands: Sequence[Atom], params: dict[str, Any]) -> Atom:
        assert primitive.abstract_eval is not None
        aval = primitive.abstract_eval(*(x.aval for x in operands), **params)
        eqn = JaxprEqn(primitive, list(operands), [Var(aval)], params, source=self.source)
        replaced = self.rewrite(eqn)
        if replaced is not None:
            return replaced
        self.record(eqn)
        return eqn.outvars[0]

    # Matching

    def matches_eqn(self, pattern: Op, eqn: JaxprEqn, match: Match) -> bool:
        if len(pattern.operands) != len(eqn.invars):
            return False
        for name, want in pattern.params:
            if isinstance(want, P):
                match.params[want.name] = eqn.params[name]
            elif eqn.params.get(name) != want:
                return False
        pairs = zip(pattern.operands, eqn.invars, strict=True)
        return all(self.matches(p, x, match) for p, x in pairs)

    def matches(self, pattern: Any, atom: Atom, match: Match) -> bool:
        if isinstance(pattern, X):
            known = match.atoms.setdefault(pattern.name, atom)
            if known is atom or not isinstance(known, Literal) or not isinstance(atom, Literal):
                return known is atom
            return known.val == atom.val and known.aval == atom.aval
        if isinstance(pattern, Op):
            eqn = self.makers.get(atom) if isinstance(atom, Var) else None
            return (
                eqn is not None
                and eqn.primitive.name == pattern.name
                and self.matches_eqn(pattern, eqn, match)
            )
        value = self.constant(atom)
        return value is not None and value == pattern

    def constant(self, atom: Atom) -> Any:
        """The number an atom is everywhere, if it is one: a literal, perhaps broadcast."""
        while isinstance(atom, Var):
            eqn = self.makers.get(atom)
            if eqn is None:
                return None
            rule = eqn.primitive.lowering
            if not (isinstance(rule, Element) and rule.keeps_order):
                return None
            atom = eqn.invars[0]
        value = np.asarray(atom.val)
        return value.item() if value.dtype.kind in "biufc" else float(value)
