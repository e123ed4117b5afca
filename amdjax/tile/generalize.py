"""One kernel for several that differ in numbers alone: their least general generalization.

Kernels of one family that were written for other sizes are often the same program with other
constants, each of which LLVM would compile by itself. Here they become one program whose differing
constants are `size` parameters. Putting the numbers of a kernel in their place gives that kernel
back, so that it computes the same bits. Strides are such constants if they are made values first
(`with_strides_told`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from amdjax.tile import ops
from amdjax.tile.attributes import Side
from amdjax.tile.ir import Block, Op, Value, highest_number, nested_ops
from amdjax.tile.kernel import Kernel
from amdjax.tile.ops.memory import Strided
from amdjax.tile.passes.rewriting import rewritten
from amdjax.tile.types import INDEX, Buffer, Number

__all__ = ["generalize", "outline", "structure", "with_strides_told"]

#: Constants of these dtypes may become parameters: places, strides, extents and limits.
_SIZES = ("index", "u64")


def structure(kernel: Kernel) -> Any:
    """What kernels have in common that can be one: all but their sizes, and how much scratch is.

    Operations without effects count by what they compute, not by where and how often they are
    written: a constant that happens to equal another one is written once.
    """
    if kernel.sizes:
        return None  # those of symbolic dimensions are one kernel already
    return _Structure(kernel).key()


def outline(kernel: Kernel) -> Any:
    """What kernels of one structure have in common that is found in a fraction of its time."""
    effects = [type(op) for op in nested_ops(kernel.body) if not _is_pure(op)]
    return len(kernel.params), len(kernel.scratch), tuple(effects)


def generalize(
    kernels: Sequence[Kernel], *, aligned: bool = False
) -> tuple[Kernel, list[list[int]]]:
    """One kernel for several of one structure, and for each what is added to its arguments.

    It has the name, the grid and the cost of the first one. `aligned` numbers are told by their
    common power of two, which wide accesses need to know of.
    """
    made = _Generalizer(kernels, aligned)
    return made.kernel, made.numbers


def with_strides_told(kernel: Kernel) -> Kernel:
    """The same program, in which strides of accesses are values, but for those of neighbors."""
    count = itertools.count(highest_number(kernel.body) + 1)

    def change(op: Op) -> Op | list[Op]:
        if isinstance(op, ops.Contract):
            return op.with_(attrs={**op.attrs, "sides": tuple(map(_without_run, op.sides))})
        if not isinstance(op, Strided) or all(s in (None, 0, 1) for s in op.strides):
            return op
        known, written, told = iter(op.dynamic_strides), list[Op](), list[Value]()
        for stride in op.strides:
            if stride is None:
                told.append(next(known))
            elif stride not in (0, 1):
                told.append(Value(None, next(count), INDEX))
                written.append(ops.Const((), {"value": Number(stride)}, (told[-1],)))
        strides = tuple(s if s in (0, 1) else None for s in op.strides)
        first = len(op.operands) - len(op.dynamic_strides) - op.masked
        masks = op.operands[len(op.operands) - op.masked :]
        operands = (*op.operands[:first], *told, *masks)
        return [*written, op.with_(operands=operands, attrs={**op.attrs, "strides": strides})]

    return rewritten(kernel, change)


def _without_run(side: Side) -> Side:
    """A side whose steps in depth are where its body says."""
    return side if side.limits or side.run in (None, 0, 1) else replace(side, run=None, shifts=())


def _is_pure(op: Op) -> bool:
    return op.is_pure and not op.blocks


def _is_size(op: Op) -> bool:
    return isinstance(op, ops.Const) and op.result.type.dtype in _SIZES and not op.result.shape


class _Structure:
    """Numbers that are equal where values are the same but for sizes."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.values: dict[int, int] = {}  # of a value
        self.pure: dict[Any, int] = {}  # of a computation: 1 and up
        self.count = 0  # of other values: -1 and down

    def key(self) -> Any:
        k = self.kernel
        params = tuple((p.name, p.dtype, p.role) for p in k.params)
        scratch = tuple((s.name, s.dtype) for s in k.scratch)
        rest = str(k.schedule), k.align, k.batch, k.own, k.parts
        body = self.block(k.body)
        return params, scratch, rest, body, tuple(self.pure)

    def block(self, block: Block) -> Any:
        for v in block.args:
            self.fresh(v)
        effects = [effect for op in block.ops if (effect := self.op(op)) is not None]
        yields = tuple(self.values[v.number] for v in block.yields)
        return tuple([v.type for v in block.args]), tuple(effects), yields

    def fresh(self, v: Value) -> None:
        self.count -= 1
        self.values[v.number] = self.count

    def op(self, op: Op) -> Any:
        """What an operation is that has effects; of others the number of what they compute."""
        values = self.values
        operands = tuple([values[v.number] for v in op.operands])
        if not _is_pure(op):
            inner = tuple([self.block(b) for b in op.blocks])
            for v in op.results:
                self.fresh(v)
            types = tuple([v.type for v in op.results])
            return type(op), self.attrs(op), operands, types, inner
        key: Any
        if _is_size(op):
            key = "size", op.result.type
        else:
            key = type(op), self.attrs(op), operands, op.result.type
        values[op.result.number] = self.pure.setdefault(key, len(self.pure) + 1)
        return None

    def attrs(self, op: Op) -> Any:
        return tuple([(name, self._seen(x)) for name, x in op.attrs.items()]) if op.attrs else ()

    def _seen(self, x: Any) -> Any:
        """An attribute without the sizes of scratch."""
        if isinstance(x, Buffer):
            return x.name, x.dtype
        if isinstance(x, Side):
            return replace(x, buffer=replace(x.buffer, size=0))
        return tuple(map(self._seen, x)) if isinstance(x, tuple) else x


@dataclass
class _Made:
    """What makes a value that has no effects, and how many blocks are around it."""

    op: Op
    depth: int


class _Generalizer:
    """Walks through several kernels at once.

    Attributes:
      kernel: the one that is made.
      numbers: of each kernel the values of its new parameters.
    """

    def __init__(self, kernels: Sequence[Kernel], aligned: bool):
        first = kernels[0]
        self.aligned = aligned
        sizes = [max(s.size for s in same) for same in zip(*(k.scratch for k in kernels))]
        scratch = [replace(s, size=n) for s, n in zip(first.scratch, sizes)]
        self.buffers = {s.name: s for s in scratch}
        self.count = 0
        self.made: list[dict[int, _Made]] = [{} for _ in kernels]  # by the number of its result
        self.values: dict[tuple[int, ...], Value] = {}  # by the numbers of a value in each kernel
        self.params: dict[tuple[int, ...], Value] = {}  # by the number that it is in each kernel
        self.buffers_of_params: list[Buffer] = []
        self.written: list[list[Op]] = []  # of the blocks around, the outermost first
        body = self.block([k.body for k in kernels])
        params = [*first.params, *self.buffers_of_params]
        self.kernel = replace(first, params=params, scratch=scratch, body=body)
        self.numbers = [list(numbers) for numbers in zip(*self.params)] or [[] for _ in kernels]

    def block(self, blocks: Sequence[Block]) -> Block:
        args = self.fresh([b.args for b in blocks])
        depth, effects = len(self.written), []
        self.written.append([])
        for made, block in zip(self.made, blocks, strict=True):
            pure = [op for op in block.ops if _is_pure(op)]
            made.update((op.result.number, _Made(op, depth)) for op in pure)
            effects.append([op for op in block.ops if not _is_pure(op)])
        for same in zip(*effects, strict=True):
            new = self.changed(same)
            self.written[-1].append(new)
        yields = self.same(*(b.yields for b in blocks))
        return Block(args, self.written.pop(), yields)

    def fresh(self, values: Sequence[Sequence[Value]]) -> list[Value]:
        """New values for those that are arguments or results of effects, of each kernel."""
        made = []
        for same in zip(*values, strict=True):
            made.append(self.new(same[0]))
            self.values[tuple([v.number for v in same])] = made[-1]
        return made

    def new(self, like: Value) -> Value:
        self.count += 1
        return Value(None, self.count, like.type)

    def same(self, *values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple([self.value(same) for same in zip(*values, strict=True)])

    def changed(self, same: Sequence[Op]) -> Op:
        """The operation for one of each kernel."""
        op = same[0]
        assert all(type(x) is type(op) for x in same), "kernels of several structures"
        operands = self.same(*(x.operands for x in same))
        blocks = tuple([self.block(inner) for inner in zip(*(x.blocks for x in same))])
        results = tuple(self.fresh([x.results for x in same]))
        attrs = {name: self.seen(x) for name, x in op.attrs.items()}
        made = {"operands": operands, "attrs": attrs, "results": results, "blocks": blocks}
        return op.with_(**made, source=None)  # it is a program of its own, which people read

    def value(self, same: Sequence[Value]) -> Value:
        """The value that is these in the kernels."""
        key = tuple([v.number for v in same])
        found = self.values.get(key)
        if found is None:
            made = [table[number] for table, number in zip(self.made, key)]
            found = self.values[key] = self.computed([m.op for m in made], [m.depth for m in made])
        return found

    def computed(self, same: Sequence[Op], depths: Sequence[int]) -> Value:
        """Write what the kernels compute where the last of them knows it."""
        if _is_size(same[0]):
            numbers = tuple([op.attrs["value"].x for op in same])
            if any(n != numbers[0] for n in numbers):
                return self.number(numbers, same[0].result)
        new = self.changed(same)
        self.written[max(depths)].append(new)
        return new.result

    def number(self, numbers: tuple[int, ...], like: Value) -> Value:
        """A parameter, which is read where the kernel begins."""
        common = math.gcd(*numbers) if self.aligned else 1
        common &= -common
        if common > 1:
            part = self.number(tuple(n // common for n in numbers), Value(None, 0, INDEX))
            factor, whole = self.new(part), self.new(part)
            self.written[0].append(ops.Const((), {"value": Number(common)}, (factor,)))
            self.written[0].append(ops.Mul((part, factor), {}, (whole,)))
            return self.converted(whole, like)
        found = self.params.get(numbers)
        if found is None:
            buffer = Buffer(f"number{len(self.params)}", "index", "size")
            self.count += 1
            found = self.params[numbers] = Value(None, self.count, INDEX)
            self.written[0].append(ops.Size((), {"buffer": buffer}, (found,)))
            self.buffers_of_params.append(buffer)
        return self.converted(found, like)

    def converted(self, found: Value, like: Value) -> Value:
        """A number in the dtype that it had as a constant."""
        if like.type == INDEX:
            return found
        converted = self.new(like)
        self.written[0].append(ops.Convert((found,), {}, (converted,)))
        return converted

    def seen(self, x: Any) -> Any:
        """An attribute with the scratch there is here."""
        if isinstance(x, Buffer):
            scratch = self.buffers.get(x.name)
            return x if scratch is None else replace(x, size=scratch.size)
        if isinstance(x, Side):
            return replace(x, buffer=self.seen(x.buffer))
        return tuple(map(self.seen, x)) if isinstance(x, tuple) else x
