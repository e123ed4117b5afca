"""What is known of the elements of tiles along each axis, as in Triton's analysis of that name.

Three powers of two for each axis of a tile of integers. *Runs* of `n` elements are those that begin
at multiples of `n` along the axis; the last may be cut off.

- contiguity: in runs of so many, elements count up by one;
- constancy: in runs of so many, elements are equal;
- divisibility: the first elements of the runs of the contiguity are multiples of it; without
  contiguity (1), all elements are.

Drawn for a tile of rank 1, `iota + 8`, and for `iota // 4 * 16`::

    iota + 8       8  9 10 11 12 13 14 15      contiguity 8, divisibility 8, constancy 1
                   └──────── one run ────┘     8 = 1 × 8: its first element is a multiple of 8

    iota // 4      0  0  0  0  1  1  1  1      constancy 4, contiguity 1, divisibility 1
    … * 16         0  0  0  0 16 16 16 16      constancy 4, divisibility 16

and of rank 2, the offsets `row * 32 + column` of a tile of 2 × 4 elements::

                    axis 1 →
    axis 0   0  1  2  3                        axis 1: contiguity 4, divisibility 32
      ↓     32 33 34 35                        axis 0: contiguity 1, divisibility 1

A load of four neighbors at such offsets moves them at once, at an address that is a multiple of
four elements; a mask of constancy four is asked once for them.

The analysis runs forward over the operations. What loops carry begins as what goes in, and meets
what a round makes of it until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.integers import power_of_two
from amdjax.tile import ops
from amdjax.tile.ir import Block, Op, Value
from amdjax.tile.kernel import Kernel
from amdjax.tile.types import INTEGERS

MOST = 1 << 30  # divisibility of zero


def minor_axis(shape: tuple[int, ...]) -> int:
    """The axis along which elements are neighbors: the last one, if not of length one."""
    return len(shape) - (2 if len(shape) == 2 and shape[-1] == 1 else 1)


def _power(n: int) -> int:
    """The largest power of two that divides a number."""
    return min(n & -n, MOST) if n else MOST


@dataclass(frozen=True, slots=True)
class AxisInfo:
    """What is known of a tile along each axis; a scalar has one axis, of length one.

    Args:
      contiguity, constancy, divisibility: see the module.
      constant: the number that all elements are.
    """

    contiguity: tuple[int, ...]
    constancy: tuple[int, ...]
    divisibility: tuple[int, ...]
    constant: int | None = None

    @classmethod
    def unknown(cls, shape: tuple[int, ...], divisibility: int = 1) -> AxisInfo:
        """Nothing but what divides all elements."""
        ones = (1,) * max(len(shape), 1)
        return cls(ones, ones, (divisibility,) * len(ones))

    @classmethod
    def same(cls, shape: tuple[int, ...], divisibility: int, constant: int | None) -> AxisInfo:
        """One number in all elements."""
        lengths = shape or (1,)
        ones = (1,) * len(lengths)
        every = (divisibility,) * len(lengths)
        return cls(ones, tuple(map(power_of_two, lengths)), every, constant)

    @property
    def divisor(self) -> int:
        """A power of two that divides all elements."""
        axes = zip(self.contiguity, self.divisibility, strict=True)
        return max((d for c, d in axes if c == 1), default=1)

    def first(self, axis: int, run: int) -> int:
        """What divides first elements of runs of `run`, in which elements count or are equal."""
        contiguity, divisibility = self.contiguity[axis], self.divisibility[axis]
        return divisibility if run >= contiguity else min(divisibility, run)

    def meet(self, other: AxisInfo) -> AxisInfo:
        """What holds of both."""
        contiguity = tuple(map(min, self.contiguity, other.contiguity))
        axes = range(len(contiguity))
        return AxisInfo(
            contiguity,
            tuple(map(min, self.constancy, other.constancy)),
            tuple(min(x.first(a, contiguity[a]) for x in (self, other)) for a in axes),
            self.constant if self.constant == other.constant else None,
        )


def axis_infos(kernel: Kernel) -> dict[int, AxisInfo]:
    """What is known of the values of a kernel, by their numbers.

    Args:
      kernel: the program.

    Returns:
      Of all integers and masks at least that nothing is known.
    """
    analysis = _Analysis()
    analysis.block(kernel.body)
    return analysis.known


#: Of an operation, what is known of its result.
Rule = Callable[["_Analysis", Any], AxisInfo]


class _Analysis:
    def __init__(self) -> None:
        self.known: dict[int, AxisInfo] = {}

    def of(self, v: Value) -> AxisInfo:
        found = self.known.get(v.number)
        return AxisInfo.unknown(v.shape) if found is None else found

    def block(self, block: Block) -> None:
        for op in block.ops:
            if isinstance(op, ops.For):
                self._for(op)
            elif isinstance(op, ops.While):
                self._while(op)
            elif op.blocks:
                self._nested(op)
            elif len(op.results) == 1:
                self._learn(op)

    def _learn(self, op: Op) -> None:
        rule = _RULES.get(type(op))
        if rule is not None:
            self.known[op.result.number] = rule(self, op)
        elif isinstance(op, ops.Elementwise):
            self.known[op.result.number] = self.elementwise(op)

    # Control flow

    def _nested(self, op: Op) -> None:
        for block in op.blocks:
            self.block(block)
        if isinstance(op, ops.If):
            yes, no = op.blocks
            for result, a, b in zip(op.results, yes.yields, no.yields, strict=True):
                self.known[result.number] = self.of(a).meet(self.of(b))

    def _for(self, op: ops.For) -> None:
        number, *carried = op.body.args
        start, step = self.of(op.start).divisor, self.of(op.step).divisor
        self.known[number.number] = AxisInfo.unknown((), min(start, step))
        self._rounds(op, carried, [op.body], op.body.yields)

    def _while(self, op: ops.While) -> None:
        for v in op.condition.args:  # the same as the body's, which settle first
            self.known.pop(v.number, None)
        self._rounds(op, op.body.args, [op.body], op.body.yields)
        for v, settled in zip(op.condition.args, op.body.args, strict=True):
            self.known[v.number] = self.of(settled)
        self.block(op.condition)

    def _rounds(
        self, op: ops.For | ops.While, args: Sequence[Value], blocks: Sequence[Block],
        yields: Sequence[Value],
    ) -> None:  # fmt: skip
        """Rounds of a loop until what is carried is known."""
        for v, init in zip(args, op.init, strict=True):
            self.known[v.number] = (
                self.of(init) if v.dtype in INTEGERS else AxisInfo.unknown(v.shape)
            )
        changed = True
        while changed:
            for block in blocks:
                self.block(block)
            changed = False
            for v, end in zip(args, yields, strict=True):
                met = self.of(v).meet(self.of(end))
                if v.dtype in INTEGERS and met != self.of(v):
                    self.known[v.number], changed = met, True
        for v, result in zip(args, op.results, strict=True):
            self.known[result.number] = self.of(v)

    # Elementwise operations

    def elementwise(self, op: Op) -> AxisInfo:
        """Where all operands are equal in a run, results are."""
        infos = [self.of(v) for v in op.operands]
        ones = (1,) * len(infos[0].contiguity)
        return AxisInfo(ones, _least([x.constancy for x in infos]), ones)


def _least(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(min, *parts)) if len(parts) > 1 else parts[0]


def _const(known: _Analysis, op: ops.Const) -> AxisInfo:
    n = int(op.value.x) if op.result.dtype in INTEGERS else None
    return AxisInfo.same(op.result.shape, 1 if n is None else _power(n), n)


def _size(known: _Analysis, op: ops.Size) -> AxisInfo:
    return AxisInfo.same((), _power(op.divisor), None)


def _iota(known: _Analysis, op: ops.Iota) -> AxisInfo:
    shape = op.result.shape
    if op.result.dtype not in INTEGERS:
        return AxisInfo.unknown(shape)
    return AxisInfo((power_of_two(shape[0]),), (1,), (MOST,))


def _broadcast(known: _Analysis, op: ops.Broadcast) -> AxisInfo:
    x, source, shape = known.of(op.x), op.x.shape, op.result.shape
    every = AxisInfo.same(shape, x.divisor, x.constant)
    leading = len(shape) - len(source)
    kept = [a >= leading and source[a - leading] == n for a, n in enumerate(shape)]

    def chosen(whole: tuple[int, ...], of_x: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(of_x[a - leading] if keep else whole[a] for a, keep in enumerate(kept))

    return AxisInfo(
        chosen(every.contiguity, x.contiguity),
        chosen(every.constancy, x.constancy),
        chosen(every.divisibility, x.divisibility),
        x.constant,
    )


def _expand(known: _Analysis, op: ops.Expand) -> AxisInfo:
    x = known.of(op.x)

    def with_axis(of_x: tuple[int, ...], one: int) -> tuple[int, ...]:
        return (one, *of_x) if op.axis == 0 else (*of_x, one)

    return AxisInfo(
        with_axis(x.contiguity, 1), with_axis(x.constancy, 1),
        with_axis(x.divisibility, x.divisor), x.constant,
    )  # fmt: skip


def _transpose(known: _Analysis, op: ops.Transpose) -> AxisInfo:
    x = known.of(op.x)
    return AxisInfo(x.contiguity[::-1], x.constancy[::-1], x.divisibility[::-1], x.constant)


def _convert(known: _Analysis, op: ops.Convert) -> AxisInfo:
    """Integers of 32 bits hold all indices that are narrowed."""
    integers = op.x.dtype in INTEGERS and op.result.dtype in INTEGERS
    return known.of(op.x) if integers else known.elementwise(op)


def _on_integers(rule: Rule) -> Rule:
    def only(known: _Analysis, op: Op) -> AxisInfo:
        integers = all(v.dtype in INTEGERS for v in (*op.operands, op.result))
        return rule(known, op) if integers else known.elementwise(op)

    return only


def _sum(swaps: bool) -> Rule:
    def rule(known: _Analysis, op: Op) -> AxisInfo:
        """What counts plus what is the same counts."""
        a, b = (known.of(v) for v in op.operands)
        runs = list(map(min, a.contiguity, b.constancy))
        if swaps:
            runs = list(map(max, runs, map(min, a.constancy, b.contiguity)))
        first = tuple(min(a.first(i, run), b.first(i, run)) for i, run in enumerate(runs))
        return AxisInfo(tuple(runs), _least([a.constancy, b.constancy]), first)

    return _on_integers(rule)


def _mul(known: _Analysis, op: Op) -> AxisInfo:
    a, b = (known.of(v) for v in op.operands)
    if b.constant == 1:
        return a
    return _scaled(a, b.divisor, _least([a.constancy, b.constancy]), b)


def _scaled(
    a: AxisInfo, by: int, constancy: tuple[int, ...], b: AxisInfo | None = None
) -> AxisInfo:
    """Multiples; each element by itself."""
    axes = range(len(a.contiguity))
    factors = [by if b is None else b.first(i, 1) for i in axes]
    products = tuple(min(a.first(i, 1) * factors[i], MOST) for i in axes)
    return AxisInfo((1,) * len(axes), constancy, products)


def _least_of_both(known: _Analysis, op: Op) -> AxisInfo:
    """One of the last two operands at each place."""
    constancy = known.elementwise(op).constancy
    a, b = (known.of(v) for v in op.operands[-2:])
    axes = range(len(constancy))
    first = tuple(min(a.first(i, 1), b.first(i, 1)) for i in axes)
    return AxisInfo((1,) * len(axes), constancy, first)


def _neg(known: _Analysis, op: Op) -> AxisInfo:
    a = known.of(op.operands[0])
    return _scaled(a, 1, a.constancy)


def _shl(known: _Analysis, op: Op) -> AxisInfo:
    a, b = (known.of(v) for v in op.operands)
    by = 1 << b.constant if b.constant is not None and 0 <= b.constant <= 30 else 1
    return _scaled(a, by, _least([a.constancy, b.constancy]))


def _div(known: _Analysis, op: Op) -> AxisInfo:
    """Counts that begin at multiples of a run have one quotient along it, if they are not negative.

    Negative offsets and coordinates are masked, whatever is known of them.
    """
    a, b = (known.of(v) for v in op.operands)
    return _alike(known.elementwise(op), _undivided(a, b))


def _shifted(known: _Analysis, op: Op) -> AxisInfo:
    """As quotients."""
    plain = known.elementwise(op)
    a, b = (known.of(v) for v in op.operands)
    if b.constant is None or not 0 <= b.constant <= 30:
        return plain
    return _alike(plain, _runs(a, 1 << b.constant))


def _alike(plain: AxisInfo, runs: Sequence[int]) -> AxisInfo:
    """What is equal along runs, too."""
    return AxisInfo(plain.contiguity, tuple(map(max, plain.constancy, runs)), plain.divisibility)


def _runs(a: AxisInfo, n: int) -> list[int]:
    """Runs of counts that multiples of `n` do not cut."""
    pairs = zip(a.contiguity, a.divisibility, strict=True)
    return [min(contiguity, first, _power(n)) for contiguity, first in pairs]


def _undivided(a: AxisInfo, b: AxisInfo) -> list[int]:
    """Runs of counts `a` that multiples of `b` do not cut, which is the same along each."""
    if b.constant is not None:
        return _runs(a, b.constant) if 0 < b.constant <= MOST else [1] * len(a.contiguity)
    return list(map(min, _runs(a, b.divisor), b.constancy))


def _rem(known: _Analysis, op: Op) -> AxisInfo:
    a, b = (known.of(v) for v in op.operands)
    runs = _undivided(a, b)
    by = _power(b.constant) if b.constant is not None and b.constant > 0 else b.divisor
    first = tuple(min(a.first(i, run), by) for i, run in enumerate(runs))
    return AxisInfo(tuple(runs), known.elementwise(op).constancy, first)


def _below(known: _Analysis, op: Op) -> AxisInfo:
    """Counts that begin at multiples of a run are all below a multiple of it, or none is."""
    plain = known.elementwise(op)
    a, b = (known.of(v) for v in op.operands)
    if b.constant is None or not 0 < b.constant <= MOST or op.operands[0].dtype not in INTEGERS:
        return plain
    constancy = tuple(map(max, plain.constancy, _runs(a, b.constant)))
    return AxisInfo(plain.contiguity, constancy, plain.divisibility)


_RULES: dict[type[Op], Rule] = {
    ops.Const: _const, ops.Size: _size, ops.Iota: _iota, ops.Broadcast: _broadcast,
    ops.Expand: _expand, ops.Transpose: _transpose, ops.Convert: _convert,
    ops.Add: _sum(True), ops.Sub: _sum(False), ops.Mul: _on_integers(_mul),
    ops.Min: _on_integers(_least_of_both), ops.Max: _on_integers(_least_of_both),
    ops.Select: _least_of_both, ops.Neg: _on_integers(_neg), ops.Shl: _on_integers(_shl),
    ops.Div: _on_integers(_div), ops.ShrLogical: _on_integers(_shifted),
    ops.ShrArithmetic: _on_integers(_shifted), ops.Rem: _on_integers(_rem),
    ops.Lt: _below, ops.Ge: _below,
}  # fmt: skip
