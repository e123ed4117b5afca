"""Products by the matrix unit of Hopper, which takes its operands from shared memory.

Copies from global to shared memory run several tiles ahead, without passing through registers
(`cp.async`). Rows of 128 bytes lie there with their cells exchanged by the number of the row, as
`wgmma` and the banks want it; along the depth or, if elements have 16 bits, along the lines,
whichever the operand has side by side in global memory. Four warps multiply together and
asynchronously: the next product is issued while the last one runs.

Source: "Parallel Thread Execution ISA", asynchronous warpgroup matrix multiply-accumulate.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from amdjax.codegen import llvm
from amdjax.codegen.gpu.accumulators import Product
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.matrix import accumulator_type, i32, lds_address, log2
from amdjax.codegen.gpu.operand_staging import Load, Operand, RowStaging, distribute
from amdjax.codegen.llvm import I32, I64, VOID, Function, Type, Value
from amdjax.targets.mma import (
    CELL_BYTES,
    WARPGROUP_ROW_BYTES,
    WARPGROUP_STEP_BYTES,
    MmaAtom,
    Tiling,
)

CELLS = WARPGROUP_ROW_BYTES // CELL_BYTES
BLOCK = 64  # lines that rows hold which lie along them
GROUP = 1024  # bytes of eight rows, after which the exchange of cells repeats

#: What the instruction calls the accumulators' dtype and those of operands.
NAMES = {
    "f16": "f32.f16.f16", "bf16": "f32.bf16.bf16", "i8": "s32.s8.s8", "xf32": "f32.tf32.tf32"
}  # fmt: skip


class NextTile(NamedTuple):
    """What a round of a loop over tiles knows of the next one.

    Args:
      turn: the number of this round.
      a, b: where elements of the operands begin in the next one, which has as many lines.
      more: zero where there is none.
    """

    turn: Value
    a: Value
    b: Value
    more: Value


class WarpgroupProduct(Product):
    """A product by `wgmma`; each warpgroup has 64 rows and all columns.

    In a loop over tiles stages go round without an end: copies for the first steps of the next tile
    run during the last ones of this, and while its sums are stored, which pass through other LDS.
    """

    def __init__(
        self, g: GpuEmitter, tiling: Tiling, operands: Sequence[Operand],
        next_tile: NextTile | None = None,
    ):  # fmt: skip
        super().__init__(g, tiling)
        self.next_tile = next_tile
        sizes, origins = (tiling.rows, tiling.columns), (0, tiling.rows * WARPGROUP_ROW_BYTES)
        self.copies = [
            _Copies(g, operand, lines, origin)
            for operand, lines, origin in zip(operands, sizes, origins, strict=True)
        ]
        self.stage = (tiling.rows + tiling.columns) * WARPGROUP_ROW_BYTES
        self.memory, address = aligned_memory(self)
        group = self.f.lshr(self.waves[0], i32(2))
        rows = self.f.mul(group, i32(64 * WARPGROUP_ROW_BYTES))
        self.places = [self.f.add(address, rows), self.f.add(address, i32(self.copies[1].origin))]

    @property
    def memory_bytes(self) -> int:
        return self.stage * self.tiling.stages

    def accumulated(self, start: Value, stop: Value, ragged: bool) -> list[Value]:
        f, stages = self.f, self.tiling.stages
        limit = stop if ragged else None
        step = llvm.const(start.type, self.tiling.depth)
        last = self.last_tile(start, stop)
        lookahead = stages - 1

        def load(k: Value, stage: Value) -> None:
            size, next_tile = i32(CELL_BYTES), self.next_tile
            bases = [x.operand.base for x in self.copies]
            if next_tile is not None:  # behind the last tile the first of the next round is read
                here = f.icmp("slt", k, stop)
                there = f.icmp("ne", next_tile.more, llvm.zero(next_tile.more.type))
                size = f.select(f.or_(here, there), size, i32(0))
                k = f.select(here, k, f.sub(k, f.sub(stop, start)))
                bases = [
                    f.select(here, x, y)
                    for x, y in zip(bases, (next_tile.a, next_tile.b), strict=True)
                ]
            elif not ragged:  # behind the last tile nothing is read, at a place that exists
                size = f.select(f.icmp("slt", k, stop), size, i32(0))
                k = f.intrinsic("smin", k.type, k, last)
            for x, base in zip(self.copies, bases, strict=True):
                x.load(k, limit, size, lds_address(f, self.memory, stage, 0), base)
            f.call("llvm.nvvm.cp.async.commit.group", VOID)

        def first_loads() -> list[Value]:
            k = start
            for i in range(lookahead):
                load(k, i32(i * self.stage))
                k = f.add(k, step)
            return []

        read, write = i32(0), i32(lookahead * self.stage)
        if self.next_tile is None:
            first_loads()
        else:
            turn = self.next_tile.turn
            f.if_(f.icmp("eq", turn, llvm.zero(turn.type)), first_loads)
            steps = f.op(f"udiv {f.sub(stop, start)}, {self.tiling.depth}", turn.type)
            before = f.int_resize(f.mul(turn, steps), "i32", False)
            read, write = (
                f.mul(f.op(f"urem {f.add(before, i32(n))}, {stages}", I32), i32(self.stage))
                for n in (0, lookahead)
            )
        zeros = [llvm.zero(accumulator_type(self.atom).with_lanes(0))] * accumulator_type(
            self.atom
        ).lanes

        def body(k: Value, carried: list[Value]) -> list[Value]:
            read, write, *sums = carried
            f.call("llvm.nvvm.cp.async.wait.group", VOID, i32(lookahead - 1))
            fence_copies(f)
            self.barrier()
            sums = self._multiply(sums, read)
            sums = _wait(f, sums, 1)
            self.barrier()  # no thread reads the stage before; the product is of this one
            load(f.add(k, llvm.const(k.type, lookahead * self.tiling.depth)), write)
            return [self._next(read), self._next(write), *sums]

        first = [read, write, *zeros]
        _, _, *sums = f.loop(start, stop, step, first, body)
        sums = _wait(f, sums, 0)
        if self.next_tile is None:
            f.call("llvm.nvvm.cp.async.wait.group", VOID, i32(0))
        whole = llvm.undef(accumulator_type(self.atom))
        for i, x in enumerate(sums):
            whole = f.insert(whole, x, i)
        return [whole]

    def _next(self, stage: Value) -> Value:
        f = self.f
        following = f.add(stage, i32(self.stage))
        wraps = f.icmp("eq", following, i32(self.memory_bytes))
        return f.select(wraps, i32(0), following)

    def _multiply(self, sums: list[Value], stage: Value) -> list[Value]:
        f = self.f
        a, b = (
            matrix_descriptor(f, f.add(place, stage), x.block_bytes)
            for place, x in zip(self.places, self.copies, strict=True)
        )
        f.call("llvm.nvvm.wgmma.fence.sync.aligned", VOID)
        for i in range(WARPGROUP_ROW_BYTES // WARPGROUP_STEP_BYTES):
            x, y = (
                f.add(descriptor, llvm.const(I64, i * copies.step_bytes >> 4))
                for descriptor, copies in zip((a, b), self.copies, strict=True)
            )
            by_lines = self.copies[0].by_lines, self.copies[1].by_lines
            sums = _instruction(f, self.atom, sums, x, y, by_lines)
        f.call("llvm.nvvm.wgmma.commit_group.sync.aligned", VOID)
        return sums


class StagedProduct(Product):
    """A product by `wgmma` of operands that are rounded, split or turned in registers.

    While the matrix unit reads one of two stages, threads write the other, and the loads for the
    one after it are on their way.
    """

    def __init__(self, g: GpuEmitter, tiling: Tiling, operands: Sequence[Operand]):
        super().__init__(g, tiling)
        a = RowStaging(g, tiling, operands[0], tiling.rows, 0)
        b = RowStaging(g, tiling, operands[1], tiling.columns, a.nbytes)
        self.stagings = a, b
        self.stage = a.nbytes + b.nbytes
        self.memory, address = aligned_memory(self)
        group = self.f.lshr(self.waves[0], i32(2))
        rows = self.f.mul(group, i32(64 * WARPGROUP_ROW_BYTES))
        self.places = self.f.add(address, rows), self.f.add(address, i32(b.origin))

    @property
    def memory_bytes(self) -> int:
        return self.stage * self.tiling.stages

    def accumulated(self, start: Value, stop: Value, ragged: bool) -> list[Value]:
        f, depth = self.f, self.tiling.depth
        limit = stop if ragged else None
        step = llvm.const(start.type, depth)
        last = self.last_tile(start, stop)

        def load(k: Value) -> list[list[Load]]:
            if not ragged:  # the last tile is brought again rather than what lies behind it
                k = f.intrinsic("smin", k.type, k, last)
            return [x.load(k, limit) for x in self.stagings]

        def store(loads: Sequence[Sequence[Load]], stage: Value) -> None:
            place = lds_address(f, self.memory, stage, 0)
            for x, values in zip(self.stagings, loads, strict=True):
                x.store(list(values), place)

        store(load(start), i32(0))
        first = load(f.add(start, step))
        sums = accumulator_type(self.atom)
        zeros = [llvm.zero(sums.with_lanes(0))] * sums.lanes

        def body(k: Value, carried: list[Value]) -> list[Value]:
            stage, *rest = carried
            on_their_way, held = iter(rest[: -sums.lanes]), rest[-sums.lanes :]
            fence_copies(f)
            self.barrier()
            found = self._multiply(None if self.atom.sums_tiles else held, stage)
            stage = f.xor(stage, i32(self.stage))
            store([[x.of(on_their_way) for x in loads] for loads in first], stage)
            following = load(f.add(k, llvm.const(k.type, 2 * depth)))
            found = _wait(f, found, 0)
            if self.atom.sums_tiles:
                found = [f.add(x, y) for x, y in zip(held, found, strict=True)]
            return [stage, *_values(following), *found]

        carried = [i32(0), *_values(first), *zeros]
        found = f.loop(start, stop, step, carried, body, metadata=self.g.not_unrolled())
        whole = llvm.undef(sums)
        for i, x in enumerate(found[-sums.lanes :]):
            whole = f.insert(whole, x, i)
        return [whole]

    def _multiply(self, sums: list[Value] | None, stage: Value) -> list[Value]:
        """What is added to: None for zeros."""
        f, (a, b) = self.f, self.stagings
        x, y = (matrix_descriptor(f, f.add(place, stage), CELL_BYTES) for place in self.places)
        f.call("llvm.nvvm.wgmma.fence.sync.aligned", VOID)
        for left, right in self.atom.part_pairs:
            for at in range(0, WARPGROUP_ROW_BYTES, WARPGROUP_STEP_BYTES):
                here, there = left * a.part_bytes + at, right * b.part_bytes + at
                own, other = (
                    f.add(x, llvm.const(I64, here >> 4)),
                    f.add(y, llvm.const(I64, there >> 4)),
                )
                sums = _instruction(f, self.atom, sums, own, other)
        f.call("llvm.nvvm.wgmma.commit_group.sync.aligned", VOID)
        assert sums is not None
        return sums


def _values(loads: Sequence[Sequence[Load]]) -> list[Value]:
    return [value for some in loads for x in some for value in x.values]


def aligned_memory(product: WarpgroupProduct | StagedProduct) -> tuple[Value, Value]:
    """LDS for a product that begins as groups of rows must, and its address."""
    f = product.f
    nbytes, buffers = product.memory_bytes + GROUP, product.g.buffers
    if isinstance(product, WarpgroupProduct) and product.next_tile is not None:
        memory = buffers.address(buffers.shared("prefetched", nbytes))
    else:
        memory = product.lds(nbytes)
    address = f.op(f"ptrtoint {memory} to i32", I32)
    padding = f.and_(f.neg(address), i32(GROUP - 1))
    return lds_address(f, memory, padding, 0), f.add(address, padding)


def _instruction(
    f: Function, atom: MmaAtom, sums: list[Value] | None, a: Value, b: Value,
    by_lines: tuple[bool, bool] = (False, False),
) -> list[Value]:  # fmt: skip
    """One `wgmma`, which adds to sums unless there are none; operands of 16 bits may be turned."""
    n = len(atom.elements)
    registers = ", ".join(f"${i}" for i in range(n))
    first = n if sums is None else 2 * n
    # Signs of floats, and how operands lie.
    flags = "" if atom.operand == "i8" else ", 1, 1"
    flags += "".join(f", {int(x)}" for x in by_lines if atom.operand_bytes == 2)
    text = (
        f"{{ .reg .pred p; setp.ne.b32 p, {int(sums is not None)}, 0; "
        f"wgmma.mma_async.sync.aligned.m64n{2 * n}k{atom.step}.{NAMES[atom.operand]} "
        f"{{{registers}}}, ${first}, ${first + 1}, p{flags}; }}"
    )
    if sums is None:
        return fresh_assembly(f, text, [accumulator_type(atom).with_lanes(0)] * n, [a, b])
    return tied_assembly(f, text, sums, [a, b])


def matrix_descriptor(f: Function, address: Value, block_bytes: int) -> Value:
    """Where an operand lies in shared memory, and how."""
    fixed = (block_bytes >> 4) << 16 | (GROUP >> 4) << 32 | 1 << 62
    place = f.and_(f.lshr(address, i32(4)), i32(0x3FFF))
    return f.or_(f.cast("zext", place, "i64"), llvm.const(I64, fixed))


def _wait(f: Function, sums: list[Value], pending: int) -> list[Value]:
    """Until at most `pending` groups run; the sums are only known to be ready then."""
    return tied_assembly(f, f"wgmma.wait_group.sync.aligned {pending};", sums, [])


def tied_assembly(f: Function, text: str, sums: list[Value], more: list[Value]) -> list[Value]:
    """Assembly that changes registers in place."""
    held = "f" if sums[0].type.is_float else "r"
    constraints = [f"={held}"] * len(sums) + [str(i) for i in range(len(sums))]
    return _assembly(f, text, constraints, [x.type for x in sums], sums, more)


def fresh_assembly(f: Function, text: str, types: list[Type], more: list[Value]) -> list[Value]:
    """Assembly that writes registers while it still reads others."""
    constraints = ["=&f" if x.is_float else "=&r" for x in types]
    return _assembly(f, text, constraints, types, [], more)


def _assembly(
    f: Function, text: str, constraints: list[str], types: list[Type], tied: list[Value],
    more: list[Value],
) -> list[Value]:  # fmt: skip
    constraints = [*constraints, *("l" if x.type.bits == 64 else "r" for x in more)]
    struct = "{" + ", ".join(map(str, types)) + "}"
    arguments = ", ".join(map(str, [*tied, *more]))
    got = f.op(
        f'call {struct} asm sideeffect "{text}", "{",".join(constraints)}"({arguments})',
        Type(struct),
    )
    return [f.op(f"extractvalue {got}, {i}", x) for i, x in enumerate(types)]


def fence_copies(f: Function) -> None:
    """What this thread wrote to shared memory is there for the matrix unit."""
    f.emit('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()')


class _Copies:
    """The copies of one operand's tile that a thread makes.

    Along lines, the tile is cut into blocks of 64 lines of 16 bits, of which each has a row for
    every step in depth.
    """

    def __init__(self, g: GpuEmitter, operand: Operand, lines: int, origin: int):
        self.g, self.f, self.operand, self.origin = g, g.f, operand, origin
        self.by_lines = operand.side.axis == "lines"
        self.block_bytes = BLOCK * WARPGROUP_ROW_BYTES if self.by_lines else CELL_BYTES
        self.step_bytes = (
            WARPGROUP_STEP_BYTES // 2 * WARPGROUP_ROW_BYTES
            if self.by_lines
            else WARPGROUP_STEP_BYTES
        )
        f = g.f
        fast, slow = (lines // CELLS, BLOCK) if self.by_lines else (CELLS, lines)
        together = fast & -fast
        self.slots = []
        found = distribute(f, g.threads.number, g.workgroup, together, slow)
        for first, (cell, row, behind) in itertools.product(range(0, fast, together), found):
            cell = f.add(cell, i32(first))
            inside = f.and_(cell, i32(CELLS - 1))
            exchanged = f.xor(inside, f.and_(row, i32(CELLS - 1)))
            target = f.add(f.mul(row, i32(WARPGROUP_ROW_BYTES)), f.mul(exchanged, i32(CELL_BYTES)))
            inner = f.mul(cell, i32(operand.side.vector))
            line, depth = row, inner
            if self.by_lines:
                block = f.lshr(cell, i32(log2(CELLS)))
                target = f.add(target, f.mul(block, i32(self.block_bytes)))
                line, depth = inner, row
            offset, coords = operand.line(f, line)
            step = f.int_resize(depth, offset.type.elem, False)
            self.slots.append((offset, coords, step, behind, target))

    def load(self, k: Value, limit: Value | None, size: Value, stage: Value, base: Value) -> None:
        """Start the copies of `size` bytes of each cell of the tile whose depth begins at `k`."""
        f = self.f
        places = replace(self.operand, base=base).tile(self.g, k, limit)
        for offset, coords, depth, behind, target in self.slots:
            address, valid, _ = places(offset, coords, depth, behind)
            assert isinstance(address, Value)
            read = size if valid is None else f.select(valid, size, i32(0))
            to = lds_address(f, stage, target, self.origin)
            f.call("llvm.nvvm.cp.async.cg.shared.global.16.s", VOID, to, address, read)
