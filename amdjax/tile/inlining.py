"""Kernels as parts of others: the operations of one, written into the block of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from amdjax.tile import ops
from amdjax.tile.attributes import Side
from amdjax.tile.builder import Builder
from amdjax.tile.ir import Block, Op, Value
from amdjax.tile.kernel import Kernel
from amdjax.tile.types import Buffer


def inline(
    k: Builder,
    kernel: Kernel,
    program: Value,
    buffers: Mapping[str, Buffer],
    copies: Mapping[str, Sequence[Buffer]],
    first: Value,
) -> None:
    """Write the operations of a program of another kernel here.

    Those of unknown origin are made from what is written here.

    Args:
      k: the kernel that is being written.
      kernel: the other one.
      program: the number of its program.
      buffers: what its parameters and scratch are here, by their names there; symbolic dimensions
        become parameters of their own.
      copies: buffers that get what is stored to a parameter, too.
      first: whether what is done once has to be done now.
    """
    # Dimensions are values here before what is inlined uses them.
    names = [p.name for p in kernel.params[len(kernel.given) :]]
    sizes = {name: k.const("index", dim) for name, dim in zip(names, kernel.sizes, strict=True)}
    inlining = _Inlining(k, program, buffers, copies, first, sizes)
    k.block.ops.extend(inlining.block(kernel.body).ops)


class _Inlining:
    def __init__(
        self,
        k: Builder,
        program: Value,
        buffers: Mapping[str, Buffer],
        copies: Mapping[str, Sequence[Buffer]],
        first: Value,
        sizes: Mapping[str, Value],
    ):
        self.first, self.sizes = first, sizes
        self.k, self.program, self.buffers, self.copies = k, program, buffers, copies
        self.values: dict[int, Value] = {}

    def block(self, block: Block) -> Block:
        args = self._made(block.args)
        written = [new for op in block.ops for new in self._op(op)]
        return Block(args, written, tuple(self.values[v.number] for v in block.yields))

    def _made(self, values: Sequence[Value]) -> list[Value]:
        """Values of the same types."""
        made = [self.k.value(v.type) for v in values]
        self.values.update((v.number, new) for v, new in zip(values, made, strict=True))
        return made

    def _op(self, op: Op) -> list[Op]:
        if isinstance(op, ops.ProgramId):
            self.values[op.result.number] = self.program
            return []
        if isinstance(op, ops.Size) and op.buffer.name in self.sizes:
            self.values[op.result.number] = self.sizes[op.buffer.name]
            return []
        origin = self.k.origin if op.origin is None else op.origin
        if isinstance(op, ops.Once):
            return [ops.If((self.first,), {}, (), (self.block(op.body), Block()), origin)]
        operands = tuple(self.values[v.number] for v in op.operands)
        blocks = tuple(self.block(b) for b in op.blocks)
        attrs = {name: self._renamed(x) for name, x in op.attrs.items()}
        results = tuple(self._made(op.results))
        found = [type(op)(operands, attrs, results, blocks, origin)]
        if isinstance(op, (ops.Store, ops.StoreAt)):
            for buffer in self.copies.get(op.buffer.name, ()):
                other = {**attrs, "buffer": replace(buffer, dtype=op.buffer.dtype)}
                found.append(type(op)(operands, other, (), (), origin))
        return found

    def _renamed(self, x: Any) -> Any:
        """An attribute with buffers by their names here."""
        if isinstance(x, Buffer):
            return replace(self.buffers[x.name], dtype=x.dtype)
        if isinstance(x, Side):
            return replace(x, buffer=self._renamed(x.buffer))
        if isinstance(x, tuple):
            return tuple(map(self._renamed, x))
        return x
