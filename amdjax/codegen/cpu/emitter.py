"""What the functions that write operations for CPUs are given: the kernel and its values so far.

A tile of rank 1 is one LLVM vector, which LLVM spreads over as many registers as it takes; a tile
of rank 2 is a list of such rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Emitter, Lowerings
from amdjax.codegen.llvm import I64, PTR, Function, Type, Value
from amdjax.codegen.pointwise import ELEMENT_TYPES, folded, lower_pointwise
from amdjax.tile import ops

Rep = Value | list[Value]  # a scalar or rank-1 tile; the rows of a rank-2 tile


class CpuEmitter(Emitter[Rep]):
    """Writes the body of one kernel, for one program of its grid.

    Args:
      f: the function, whose first argument points to a word for each parameter.
      kernel: the program.
      lowerings: what writes each operation.
    """

    def __init__(self, f: Function, kernel: tile.Kernel, lowerings: Lowerings):
        super().__init__(f, lowerings)
        self._addresses: dict[str, Value] = {}
        for i, p in enumerate(kernel.params):
            slot = f.gep(f.args[0], i, I64)
            self._addresses[p.name] = f.load(I64 if p.role == "size" else PTR, slot, 8)
        for s in kernel.scratch:
            self._addresses[s.name] = f.alloca(Type(memory_element(s.dtype)), s.size)
        #: By buffer and offset: an address, and the sum of what is added to it (`point`).
        self._moving: dict[tuple[tile.Buffer, int], tuple[Value, list[tile.Value]]] = {}
        #: Addresses and index arithmetic that were written in this block or around it.
        self._places: dict[tuple[str, ...], Value] = {}
        #: Metadata that marks streaming stores; None if there are none.
        self.streams = f.module.add_metadata("!{i32 1}") if _streams(kernel.body) else None
        #: Number of the program of the grid; the loop over programs says which.
        self.program = llvm.const(I64, 0)

    def block(self, block: tile.Block) -> list[Rep]:
        outer, self._places = self._places, dict(self._places)
        results = super().block(block)
        self._places = outer
        return results

    def address(self, buffer: tile.Buffer, offset: Value | None = None) -> Value:
        """Where an element of a buffer is, the first by default; the number itself for a size."""
        start = self._addresses[buffer.name]
        if offset is None:
            return start
        return self.moved(start, offset, memory_element(buffer.dtype))

    def point(self, loop: ops.For) -> None:
        """Write, before a loop, where its reads and prefetches start: the still parts of offsets.

        LLVM, whose loops' strength is not reduced in such kernels, would add them in each round.
        """
        made = {v.number: op for op in loop.body.ops for v in op.results}
        for op in loop.body.ops:
            if isinstance(op, (ops.Load, ops.Prefetch)):
                terms = list(_terms(op.offset, made))
                still = [v for v in terms if v.number in self._reps]
                moving = [v for v in terms if v.number not in self._reps]
                if still and not all(isinstance(made.get(v.number), ops.Const) for v in moving):
                    start = self.address(op.buffer, self.sum(map(self.scalar, still)))
                    self._moving[op.buffer, op.offset.number] = start, moving

    def address_at(self, buffer: tile.Buffer, offset: tile.Value) -> Value:
        """Where the element at an offset of the kernel is."""
        known = self._moving.get((buffer, offset.number))
        if known is None:
            return self.address(buffer, self.scalar(offset))
        start, terms = known
        moving = [self.scalar(v) for v in terms]
        fixed = [x for x in moving if llvm.integer(x) is not None]
        # What is known comes last, where it is part of an instruction.
        for part in ([x for x in moving if x not in fixed], fixed):
            if part:
                start = self.moved(start, self.sum(part), memory_element(buffer.dtype))
        return start

    def moved(self, start: Value, offset: Value, element: str) -> Value:
        """An address so many elements behind another."""
        key = element, start.ref, offset.ref
        return self.once(key, lambda: self.f.gep(start, offset, Type(element)))

    def sum(self, xs: Iterable[Value]) -> Value:
        """The sum of numbers of index arithmetic."""
        return reduce(partial(self.index, "add"), xs)

    def index(self, name: str, *xs: Value) -> Value:
        """A number of index arithmetic.

        Kernels are written for all sizes alike, so that half of this arithmetic is with 0 and 1.
        LLVM finds that, too, but takes longer for it than for all the rest of cleaning up.
        """
        known = folded(name, xs)
        if known is not None:
            return known
        key = name, *[x.ref for x in xs]
        return self.once(key, lambda: lower_pointwise(self.f, name, "index", *xs))

    def once(self, key: tuple[str, ...], write: Callable[[], Value]) -> Value:
        """What is written once in a block of the kernel and those inside of it."""
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = write()
        return found

    def flatten(self, reps: Sequence[Rep], types: Sequence[tile.TileType]) -> list[Value]:
        return [v for rep in reps for v in (rep if isinstance(rep, list) else [rep])]

    def unflatten(self, flat: Sequence[Value], types: Sequence[tile.TileType]) -> list[Rep]:
        out: list[Rep] = []
        it = iter(flat)
        for t in types:
            out.append([next(it) for _ in range(t.shape[0])] if len(t.shape) == 2 else next(it))
        return out


def _terms(v: tile.Value, made: Mapping[int, tile.Op]) -> Iterator[tile.Value]:
    """What is summed to an offset by operations of a block."""
    op = made.get(v.number)
    if op is not None and op.name == "add":
        for x in op.operands:
            yield from _terms(x, made)
    else:
        yield v


def _streams(block: tile.Block) -> bool:
    stores = (op for op in tile.nested_ops(block) if isinstance(op, ops.Store))
    return any(op.streaming and op.operands[1].shape for op in stores)


def rowwise(type: tile.TileType, fn: Callable[..., Value], *operands: Rep) -> Rep:
    """Apply `fn` to vectors, row by row for rank-2 tiles."""
    if len(type.shape) < 2:
        return fn(*operands)
    return [fn(*row) for row in zip(*operands, strict=True)]


def llvm_type(type: tile.TileType) -> Type:
    """The type of a scalar, or of one row of a tile."""
    return Type(ELEMENT_TYPES[type.dtype], type.shape[-1] if type.shape else 0)


def memory_element(dtype: str) -> str:
    """The LLVM type a dtype has in memory; booleans take a byte.

    Half precision is moved as bits: where a CPU has no instructions for it, LLVM would move lanes
    of a masked access one by one through single precision and library calls.
    """
    return {"bool": "i8", "f16": "i16", "bf16": "i16"}.get(dtype) or ELEMENT_TYPES[dtype]
