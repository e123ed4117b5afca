"""What a launch needs besides its kernel on a GPU: the width of indices, workspace for scratch.

Scratch is LDS there. Kernels that ask for more than there is, as those written for the caches of a
CPU do, get workspace in global memory instead, a part for each program; where that would be too
much memory, fewer programs do all the work, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from amdjax.core.dims import Dim
from amdjax.schedule.calls import Call, Copy, Temp
from amdjax.targets import GpuTarget
from amdjax.tile import (
    Block,
    Buffer,
    Kernel,
    Number,
    Op,
    TileType,
    Value,
    highest_number,
    itemsize,
    nested_ops,
    ops,
)

WORKSPACE = 256 << 20  # bytes of global memory that stand in for the scratch of one launch
#: Buffers up to this size have offsets of 32 bits, the elements of an unfinished tile included.
NARROW_INDEX = (1 << 31) - (1 << 20)


def fit_gpu(calls: Sequence[Call | Copy], target: GpuTarget) -> list[Call | Copy]:
    """The launches as a GPU can do them."""
    return [c if isinstance(c, Copy) else _with_index_bits(_fit_scratch(c, target)) for c in calls]


def _with_index_bits(call: Call) -> Call:
    narrow = all(_is_narrow(a) for a in call.args)
    schedule = replace(call.kernel.schedule, index_bits=32 if narrow else 64)
    return replace(call, kernel=replace(call.kernel, schedule=schedule))


def _is_narrow(arg: Any) -> bool:
    """Whether 32 bits hold every offset into an argument and every index read from it."""
    if isinstance(arg, (int, Dim)):
        return arg <= NARROW_INDEX
    if isinstance(arg, Temp):
        return arg.size * itemsize(arg.dtype) <= NARROW_INDEX
    dtype = arg.aval.dtype
    wide_integers = dtype.kind in "iu" and dtype.itemsize == 8
    return arg.aval.nbytes <= NARROW_INDEX and not wide_integers


def scratch_limit(target: GpuTarget) -> int:
    """Bytes of scratch a program may have; the rest of the LDS moves data between waves."""
    return target.lds_bytes // 2


def _bytes(buffer: Buffer) -> int:
    return buffer.size * itemsize(buffer.dtype)


def _fit_scratch(call: Call, target: GpuTarget) -> Call:
    if call.whole_lds:
        return call
    scratch = sorted(call.kernel.scratch, key=_bytes, reverse=True)
    moved: list[Buffer] = []
    while sum(map(_bytes, scratch)) > scratch_limit(target):
        moved.append(scratch.pop(0))
    if not moved:
        return call
    each, grid = sum(map(_bytes, moved)), int(call.grid)
    programs = max(1, min(grid, WORKSPACE // each))
    kernel = _Mover(call.kernel, moved, grid if programs < grid else 0, programs).kernel()
    temps = [Temp(b.dtype, b.size * programs) for b in moved]
    return replace(call, kernel=kernel, args=[*call.args, *temps], grid=programs)


class _Mover:
    """Rewrites a kernel so that scratch buffers are parameters.

    Args:
      kernel: as it was.
      moved: its scratch buffers that become parameters.
      work: programs whose work is shared among fewer ones; 0 if each does its own.
      programs: how many there are then.
    """

    def __init__(self, kernel: Kernel, moved: Sequence[Buffer], work: int, programs: int):
        self.old, self.work, self.programs = kernel, work, programs
        self.moved = {b.name: b for b in moved}
        self.params = {b.name: Buffer(f"w_{b.name}", b.dtype, "inout") for b in moved}
        self.count = highest_number(kernel.body)
        self.head: list[Op] = []
        self.bases: dict[tuple[str, str], Value] = {}

    def kernel(self) -> Kernel:
        self.program = self._emit(self.head, ops.ProgramId, ())
        body = self.old.body
        renamed: dict[int, Value] = {}
        if self.work:
            number = self._value(TileType("index"))
            renamed = {r.number: number for r in _program_ids(body)}
            block = self._block(body, renamed)
            bounds = (self.program, self._index(self.work), self._index(self.programs))
            work: list[Op] = [ops.For(bounds, {}, (), (Block([number], block.ops),))]
        else:
            work = self._block(body, renamed).ops
        return replace(
            self.old,
            params=[*self.old.params, *self.params.values()],
            scratch=[b for b in self.old.scratch if b.name not in self.moved],
            body=Block(ops=[*self.head, *work]),
        )

    def _block(self, block: Block, renamed: dict[int, Value]) -> Block:
        written: list[Op] = []
        for op in block.ops:
            if self.work and isinstance(op, ops.ProgramId):
                continue
            operands = tuple(renamed.get(v.number, v) for v in op.operands)
            buffer = op.attrs.get("buffer")
            attrs = op.attrs
            if isinstance(buffer, Buffer) and buffer.name in self.moved:
                operands = (self._shifted(written, operands[0], buffer), *operands[1:])
                param = replace(self.params[buffer.name], dtype=buffer.dtype)
                attrs = {**attrs, "buffer": param}
            blocks = tuple(self._block(b, renamed) for b in op.blocks)
            parts = operands, attrs, op.results, blocks, op.origin  # the kernel's text has it so
            written.append(type(op)(*parts))
        return Block(block.args, written, tuple(renamed.get(v.number, v) for v in block.yields))

    def _shifted(self, to: list[Op], offset: Value, buffer: Buffer) -> Value:
        """An offset into the program's own part of the workspace."""
        base = self._base(buffer)
        if offset.shape:
            base = self._emit(to, ops.Broadcast, (base,), offset.shape)
        return self._emit(to, ops.Add, (offset, base), offset.shape)

    def _base(self, buffer: Buffer) -> Value:
        """Where the program's part begins, in elements of the dtype it is seen as."""
        key = buffer.name, buffer.dtype
        if key not in self.bases:
            size = _bytes(self.moved[buffer.name]) // itemsize(buffer.dtype)
            self.bases[key] = self._emit(self.head, ops.Mul, (self.program, self._index(size)))
        return self.bases[key]

    def _index(self, x: int) -> Value:
        return self._emit(self.head, ops.Const, (), value=Number(x))

    def _emit(
        self, to: list[Op], kind: type[Op], operands: tuple[Value, ...],
        shape: tuple[int, ...] = (), **attrs: Any,
    ) -> Value:  # fmt: skip
        result = self._value(TileType("index", shape))
        to.append(kind(operands, attrs, (result,)))
        return result

    def _value(self, type: TileType) -> Value:
        self.count += 1
        return Value(None, self.count, type)


def _program_ids(block: Block) -> list[Value]:
    return [op.result for op in nested_ops(block) if isinstance(op, ops.ProgramId)]
