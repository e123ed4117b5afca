"""A reduction as the schedule sees it: identity, element, merge, finish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax import tile
from amdjax.core.jaxpr import JaxprEqn
from amdjax.core.lowering import Reduce
from amdjax.schedule.arithmetic import aligned
from amdjax.schedule.element import ElementBuilder
from amdjax.schedule.index import Index
from amdjax.schedule.values import El, compute_dtype, part_dtype, short_dtype
from amdjax.tile.types import NARROW_INTS


class Reduction:
    """Uniform view of a `Reduce` rule over one or several values."""

    def __init__(self, eqn: JaxprEqn):
        assert isinstance(eqn.primitive.lowering, Reduce)
        self.eqn, self.rule = eqn, eqn.primitive.lowering

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that is reduced."""
        return tuple(self.eqn.invars[0].aval.shape)

    @property
    def accumulators(self) -> int:
        """How many accumulators there are."""
        identity = self.rule.identity
        return len(identity) if isinstance(identity, (list, tuple)) else 1

    @property
    def accumulator_bits(self) -> int:
        """The bits of all accumulators of a row."""
        dtypes = {short_dtype(x.aval.dtype) for x in (*self.eqn.invars, *self.eqn.outvars)}
        widest = max(8 * tile.itemsize(compute_dtype(part_dtype(d))) for d in dtypes)
        complex_parts = 2 if dtypes & {"c64", "c128"} else 1
        return self.accumulators * complex_parts * widest

    def _params(self) -> dict[str, Any]:
        return self.eqn.params

    def identity(self, b: ElementBuilder) -> list[El]:
        """The accumulators before anything was combined."""
        identities = self.rule.identity
        operands = self._operand_dtypes()
        if not isinstance(identities, (list, tuple)):
            identities = [identities]
        if len(operands) < len(identities):
            operands = operands + self._result_dtypes(len(identities) - len(operands))
        return [
            x if isinstance(x, El) else b.const(x, dtype)
            for x, dtype in (
                (f(dtype), dtype) for f, dtype in zip(identities, operands, strict=False)
            )
        ]

    def _operand_dtypes(self) -> list[Any]:
        rank = len(self.eqn.invars[0].aval.shape)
        return [x.aval.dtype for x in self.eqn.invars if len(x.aval.shape) == rank]

    def _result_dtypes(self, n: int) -> list[Any]:
        return [self.eqn.outvars[-1].aval.dtype] * n

    def element(self, b: ElementBuilder, index: tuple[Index, ...]) -> list[El]:
        """What one element of the domain contributes."""
        xs = [b.value(x, index if x.aval.shape else ()) for x in self.eqn.invars]
        if self.rule.prepare is None:
            return xs
        out = self.rule.prepare(b, index, *xs, **self._params())
        return list(out) if isinstance(out, (list, tuple)) else [out]

    def merge(self, b: ElementBuilder, left: Sequence[El], right: Sequence[El]) -> list[El]:
        """Combine two sets of accumulators; `left` comes first in memory."""
        if isinstance(self.rule.combine, str):
            return [
                self._combine_one(b, self.rule.combine, x, y)
                for x, y in zip(left, right, strict=True)
            ]
        out = self.rule.combine(b, list(left), list(right))
        return list(out) if isinstance(out, (list, tuple)) else [out]

    def append(self, b: ElementBuilder, left: Sequence[El], right: Sequence[El]) -> list[El]:
        """As `merge`, where all of `right` comes later along the reduced axes."""
        if self.rule.append is None:
            return self.merge(b, left, right)
        return list(self.rule.append(b, list(left), list(right)))

    @staticmethod
    def _combine_one(b: ElementBuilder, name: str, x: El, y: El) -> El:
        if x.is_complex or x.dtype in NARROW_INTS:
            return b.op(name, x, y)
        # In the accumulator's own precision: narrow floats are rounded once, at the end.
        return El(x.dtype, aligned(b.k, name, x.value, y.value))

    @property
    def is_simple(self) -> bool:
        """Whether it combines single numbers by one operation, in any order."""
        kinds = (x.aval.dtype.kind for x in self.eqn.invars)
        return isinstance(self.rule.combine, str) and (
            self.rule.combine == "add" or "c" not in kinds
        )

    @property
    def is_numeric(self) -> bool:
        """Whether what it combines are real numbers."""
        return all(x.aval.dtype.kind in "fiuV" for x in self.eqn.invars)

    def segments(self, b: ElementBuilder, accs: Sequence[El], width: int) -> list[El]:
        """What runs of `width` lanes combine to, in each of their lanes."""
        out, distance = list(accs), 1
        while distance < width:
            there = [lane ^ distance for lane in range(out[0].parts[0].shape[0])]
            others = [El(a.dtype, *(b.k.shuffle(p, there) for p in a.parts)) for a in out]
            out = self.merge(b, out, others)
            distance *= 2
        return out

    def horizontal(self, b: ElementBuilder, accs: Sequence[El]) -> list[El]:
        """Combine the lanes of the accumulators."""
        if self.is_simple:
            assert isinstance(self.rule.combine, str)
            combine = self.rule.combine
            return [El(a.dtype, *(_reduced(b.k, combine, p) for p in a.parts)) for a in accs]
        lanes = accs[0].value.shape[0] if accs[0].value.shape else 1
        while self.rule.append is not None and lanes % 2 == 0:  # in any order
            lanes //= 2
            halves = [_lanes(b, accs, first, lanes) for first in (0, lanes)]
            accs = self.merge(b, *halves)
        out = [_lane(b, a, 0) for a in accs]
        for i in range(1, lanes):
            out = self.merge(b, out, [_lane(b, a, i) for a in accs])
        return out

    def finish(self, b: ElementBuilder, accs: Sequence[El]) -> list[El]:
        """Results from the accumulators, in the dtypes of the type rule."""
        results: Any = list(accs)
        if self.rule.finish is not None:
            results = self.rule.finish(b, results, **self._params())
            results = list(results) if isinstance(results, (list, tuple)) else [results]
        pairs = zip(results, self.eqn.outvars, strict=False)
        return [
            x if x.dtype == short_dtype(v.aval.dtype) else b.convert(x, v.aval.dtype)
            for x, v in pairs
        ]


def _reduced(k: tile.Builder, combine: str, x: tile.Value) -> tile.Value:
    return k.reduce(combine, x) if x.shape else x


def _lanes(b: ElementBuilder, xs: Sequence[El], first: int, count: int) -> list[El]:
    lanes = range(first, first + count)
    return [El(x.dtype, *(b.k.shuffle(p, lanes) for p in x.parts)) for x in xs]


def _lane(b: ElementBuilder, x: El, i: int) -> El:
    return El(x.dtype, *(b.k.extract(p, i) if p.shape else p for p in x.parts))
