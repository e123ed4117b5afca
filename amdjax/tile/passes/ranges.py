"""Which numbers tiles may hold, and offsets of gathers in as few bits as these take."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from amdjax.tile import ops
from amdjax.tile.ir import Block, Op, Value, nested_ops
from amdjax.tile.kernel import Kernel
from amdjax.tile.ops.elementwise import CLAMPED
from amdjax.tile.passes.rewriting import all_blocks, constant_of, either_way, makers, rewritten
from amdjax.tile.types import Number, TileType

__all__ = ["clamp_conversions", "narrow_offsets", "not_negative"]

Range = tuple[int, int]

_EXACT = 1 << 24  # floats of 32 bits are all integers up to here
_INT32 = (-(1 << 31), (1 << 31) - 1)
_SHORTER = ("i8", "u8", "i16", "u16")
_RANGES: dict[str, Range] = {
    "bool": (0, 1),
    **{f"i{n}": (-(1 << n - 1), (1 << n - 1) - 1) for n in (8, 16, 32)},
    **{f"u{n}": (0, (1 << n) - 1) for n in (8, 16, 32)},
}
_EXACT64: dict[str, Range] = {  # where arithmetic does not wrap
    "i64": (-(1 << 62), 1 << 62),
    "index": (-(1 << 62), 1 << 62),
    "u64": (0, 1 << 62),
}
_ARITHMETIC: dict[type[Op], Callable[[Any, Any], Any]] = {
    ops.Add: lambda a, b: a + b,
    ops.Sub: lambda a, b: a - b,
    ops.Mul: lambda a, b: a * b,
    ops.Min: min,
    ops.Max: max,
}
_KEEP_SIGN = ops.Add | ops.Mul | ops.Div | ops.Rem | ops.Min | ops.Max | ops.Convert


def clamp_conversions(kernel: Kernel) -> Kernel:
    """A float between two integers, as an integer: NaN, which is 0, needs no care of its own.

    Clamps pass NaN on, and a conversion saturates; here neither is seen.
    """
    # What few kernels have is not searched for in all of them.
    if not kernel.has(ops.Convert) or not any(
        isinstance(op, ops.Convert) and op.x.shape for op in nested_ops(kernel.body)
    ):
        return kernel
    made = makers(kernel.body)

    def change(op: Op) -> Op:
        found = _clamped(op, made) if isinstance(op, ops.Convert) and op.x.shape else None
        if found is None:
            return op
        x, low, high = found
        attrs = {"low": low, "high": high}
        return ops.ConvertClamped((x,), attrs, op.results, (), op.origin, op.source)

    return rewritten(kernel, change)


def _clamped(op: ops.Convert, made: Mapping[int, Op]) -> tuple[Value, int, int] | None:
    """The float of which an integer is made, and between which two it is held."""
    if op.result.dtype not in CLAMPED:
        return None
    inner = made.get(op.x.number)
    if op.x.dtype in CLAMPED:  # an integer that becomes one of other bits
        found = _clamped(inner, made) if isinstance(inner, ops.Convert) else None
    else:
        found = _held(op.x, made) if op.x.dtype in ("f32", "f64") else None
    return found if found and _fits(found[1:], _RANGES[op.result.dtype]) else None


def _held(x: Value, made: Mapping[int, Op]) -> tuple[Value, int, int] | None:
    """What is clamped between two integers around zero, and these."""
    bounds: dict[type[Op], int] = {}
    while type(outer := made.get(x.number)) in (ops.Min, ops.Max):
        assert outer is not None
        found = [(a, constant_of(b, made)) for a, b in either_way(outer)]
        inner = next(((a, c) for a, c in found if c is not None), None)
        if inner is None or type(outer) in bounds or not _is_exact(inner[1]):
            break
        x, bounds[type(outer)] = inner[0], int(inner[1])
    low, high = bounds.get(ops.Max), bounds.get(ops.Min)
    return (x, low, high) if low is not None and high is not None and low <= 0 <= high else None


def _is_exact(x: float) -> bool:
    """Whether a float of any width is this integer."""
    return abs(x) <= _EXACT and x == int(x)


def narrow_offsets(kernel: Kernel) -> Kernel:
    """Gathers without masks of 32-bit offsets from a place, where offsets are known to fit.

    Vectors of these take half the registers, and 64-bit integers lack instructions.
    """
    if not kernel.has(ops.LoadAt, ops.LoadRows):
        return kernel
    made = makers(kernel.body)
    narrowed: dict[int, list[Op]] = {}  # what takes the place of a gather, by its first result
    last = max((v.number for op in nested_ops(kernel.body) for v in _defined(op)), default=0)
    for block in all_blocks(kernel.body):
        narrowing = _Narrowing(made, last)
        for op in block.ops:
            if isinstance(op, ops.LoadRows) or (isinstance(op, ops.LoadAt) and op.mask is None):
                narrowed[op.results[0].number] = narrowing.gather(op)
        last = narrowing.last

    def change(op: Op) -> Op | list[Op]:
        is_gather = isinstance(op, ops.LoadAt | ops.LoadRows)
        return narrowed.get(op.results[0].number, op) if is_gather else op

    return rewritten(kernel, change)


def _defined(op: Op) -> Iterator[Value]:
    yield from op.results
    for block in op.blocks:
        yield from block.args


class _Narrowing:
    """Writes offsets of the gathers of a block in 32 bits.

    Args:
      made: what made each value.
      last: the last number of a value.
    """

    def __init__(self, made: Mapping[int, Op], last: int):
        self.made, self.last = made, last
        self.written: list[Op] = []
        self.ranges: dict[int, Range | None] = {}
        self.narrow: dict[int, Value | None] = {}

    def gather(self, op: ops.LoadAt | ops.LoadRows) -> list[Op]:
        """What takes the place of a gather."""
        self.written = []
        found = self._parts(op.offsets) if self._is_wide(op) else None
        if found is None:
            return [*self.written, op]
        scalars, parts = found
        operands = [reduce(self._add, parts)]
        operands += [reduce(self._add, scalars)] if scalars else []
        attrs = {"buffer": op.buffer, "count": len(op.results)}
        new = ops.LoadRows(tuple(operands), attrs, op.results, (), op.origin, op.source)
        return [*self.written, new]

    @staticmethod
    def _is_wide(op: ops.LoadAt | ops.LoadRows) -> bool:
        """Whether the offsets are a row of 64-bit integers, from the start of the memory."""
        offsets = op.offsets
        return offsets.dtype == "index" and len(offsets.shape) == 1 and len(op.operands) == 1

    def _parts(self, offsets: Value) -> tuple[list[Value], list[Value]] | None:
        """Scalars and tiles of 32 bits that add up to offsets, these in 32 bits, too."""
        scalars, wide = self._terms(offsets)
        ranges = [r for v in wide if (r := self.range_of(v)) is not None]
        total = sum(low for low, _ in ranges), sum(high for _, high in ranges)
        parts = [x for v in wide if (x := self._narrow(v)) is not None]
        complete = parts and len(parts) == len(ranges) == len(wide)
        return (scalars, parts) if complete and _fits(total, _INT32) else None

    def _terms(self, v: Value) -> tuple[list[Value], list[Value]]:
        """Scalars and tiles that add up to a tile."""
        op = self.made.get(v.number)
        if isinstance(op, ops.Broadcast) and not op.x.shape:
            return [op.x], []
        if not isinstance(op, ops.Add):
            return [], [v]
        (a, b), (c, d) = map(self._terms, op.operands)
        return [*a, *c], [*b, *d]

    def _emit(
        self, kind: type[Op], operands: Sequence[Value], type: TileType, **attrs: Any
    ) -> Value:
        self.last += 1
        result = Value(None, self.last, type)
        self.written.append(kind(tuple(operands), attrs, (result,)))
        return result

    def _add(self, a: Value, b: Value) -> Value:
        return self._emit(ops.Add, (a, b), a.type)

    def _narrow(self, v: Value) -> Value | None:
        """A tile of 64-bit integers in 32 bits, if it is known to fit, step by step."""
        if v.number not in self.narrow:
            found = self.range_of(v)
            fits = found is not None and _fits(found, _INT32)
            self.narrow[v.number] = self._narrowed(v) if fits else None
        return self.narrow[v.number]

    def _narrowed(self, v: Value) -> Value | None:
        op, type = self.made.get(v.number), TileType("i32", v.shape)
        if isinstance(op, ops.Convert):
            if op.x.dtype == "i32":
                return op.x
            return self._emit(ops.Convert, (op.x,), type) if op.x.dtype in _SHORTER else None
        if isinstance(op, ops.Broadcast) and (value := constant_of(v, self.made)) is not None:
            x = self._emit(ops.Const, (), TileType("i32", ()), value=Number(int(value)))
            return self._emit(ops.Broadcast, (x,), type)
        if op is None or op.__class__ not in _ARITHMETIC:
            return None
        if isinstance(op, ops.Min | ops.Max):
            for a, b in either_way(op):
                if self._decides(op, a, b):
                    return self._narrow(a)
        left, right = map(self._narrow, op.operands)
        if left is None or right is None:
            return None
        return self._emit(op.__class__, (left, right), type)

    def _decides(self, op: Op, a: Value, b: Value) -> bool:
        """Whether the first of two tiles is always the lesser, or greater."""
        x, y = self.range_of(a), self.range_of(b)
        if x is None or y is None:
            return False
        return x[1] <= y[0] if isinstance(op, ops.Min) else x[0] >= y[1]

    def range_of(self, v: Value) -> Range | None:
        """Between which integers elements lie; None if that is not known.

        Floats have none, even of integers: these are rounded to others, or to infinity.
        """
        if v.number not in self.ranges:
            own = _RANGES.get(v.dtype)
            limits = own or _EXACT64.get(v.dtype)
            found = self._range(self.made.get(v.number)) if limits else None
            beyond = found is None or limits is None or not _fits(found, limits)
            self.ranges[v.number] = own if beyond else found
        return self.ranges[v.number]

    def _range(self, op: Op | None) -> Range | None:
        if isinstance(op, ops.Const):
            return (int(op.value.x),) * 2 if isinstance(op.value.x, int) else None
        if isinstance(op, ops.ConvertClamped):
            return op.low, op.high
        if isinstance(op, ops.Broadcast):
            return self.range_of(op.x)
        if isinstance(op, ops.Convert):
            return self.range_of(op.x)
        combine = None if op is None else _ARITHMETIC.get(op.__class__)
        if op is None or combine is None:
            return None
        a, b = map(self.range_of, op.operands)
        if a is None or b is None:
            return None
        ends = [combine(x, y) for x, y in itertools.product(a, b)]
        return min(ends), max(ends)


def not_negative(block: Block) -> frozenset[int]:
    """Numbers of integers that are known to be no less than zero, of what no loop carries."""
    found: set[int] = set()
    for op in nested_ops(block):
        known = isinstance(op, ops.ProgramId | ops.Size)
        if isinstance(op, ops.Const):
            known = isinstance(op.value.x, int) and op.value.x >= 0
        elif isinstance(op, _KEEP_SIGN):
            known = all(v.number in found for v in op.operands)
        if known:
            found.add(op.results[0].number)
    return frozenset(found)


def _fits(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]
