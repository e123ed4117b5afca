"""Products by the matrix unit of Hopper, which takes its operands from shared memory.

Copies from global to shared memory run several tiles ahead, without passing through registers
(`cp.async`). Rows of 128 bytes lie there with their cells exchanged by the number of the row, as
`wgmma` and the banks want it; along the depth or, if elements have 16 bits, along the lines,
whichever the operand has side by side in global memory. Four warps multiply together and
asynchronously: the next product is issued while the last one runs.

Source: "Parallel Thread Execution ISA", asynchronous warpgroup matrix multiply-accumulate.
"""

from __future__ import annotations

from collections.abc import Sequence

from amdjax.codegen import llvm
from amdjax.codegen.gpu.accumulators import Product
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.matrix import accumulator_type, i32, lds_address, log2
from amdjax.codegen.gpu.operand_staging import Operand, distribute
from amdjax.codegen.llvm import I32, I64, VOID, Function, Type, Value
from amdjax.targets.mma import CELL_BYTES, WARPGROUP_ROW_BYTES, WARPGROUP_STEP_BYTES, Tiling

CELLS = WARPGROUP_ROW_BYTES // CELL_BYTES
BLOCK = 64  # lines that rows hold which lie along them
GROUP = 1024  # bytes of eight rows, after which the exchange of cells repeats

#: What the instruction calls the accumulators' dtype and those of operands.
NAMES = {"f16": "f32.f16.f16", "bf16": "f32.bf16.bf16", "i8": "s32.s8.s8"}


class WarpgroupProduct(Product):
    """A product by `wgmma`; each warpgroup has 64 rows and all columns."""

    def __init__(self, g: GpuEmitter, tiling: Tiling, operands: Sequence[Operand]):
        super().__init__(g, tiling)
        sizes, origins = (tiling.rows, tiling.columns), (0, tiling.rows * WARPGROUP_ROW_BYTES)
        self.copies = [
            _Copies(g, operand, lines, origin)
            for operand, lines, origin in zip(operands, sizes, origins, strict=True)
        ]
        self.stage = (tiling.rows + tiling.columns) * WARPGROUP_ROW_BYTES
        memory = self.lds(self.memory_bytes + GROUP)
        address = self.f.op(f"ptrtoint {memory} to i32", I32)
        padding = self.f.and_(self.f.neg(address), i32(GROUP - 1))
        self.memory = lds_address(self.f, memory, padding, 0)
        address = self.f.add(address, padding)
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
        last = f.sub(stop, step)
        lookahead = stages - 1

        def load(k: Value, stage: Value) -> None:
            size = i32(CELL_BYTES)
            if not ragged:  # behind the last tile nothing is read, at a place that exists
                size = f.select(f.icmp("slt", k, stop), size, i32(0))
                k = f.intrinsic("smin", k.type, k, last)
            for x in self.copies:
                x.load(k, limit, size, lds_address(f, self.memory, stage, 0))
            f.call("llvm.nvvm.cp.async.commit.group", VOID)

        k = start
        for i in range(lookahead):
            load(k, i32(i * self.stage))
            k = f.add(k, step)
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

        first = [i32(0), i32(lookahead * self.stage), *zeros]
        _, _, *sums = f.loop(start, stop, step, first, body)
        sums = _wait(f, sums, 0)
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
            sums = self._instruction(sums, x, y)
        f.call("llvm.nvvm.wgmma.commit_group.sync.aligned", VOID)
        return sums

    def _instruction(self, sums: list[Value], a: Value, b: Value) -> list[Value]:
        n, operand, depth = len(sums), self.atom.operand, self.atom.step
        registers = ", ".join(f"${i}" for i in range(n))
        # Signs, and whether operands lie along their lines; bytes have no choice.
        flags = "" if operand == "i8" else ", 1, 1"
        flags += "".join(f", {int(x.by_lines)}" for x in self.copies if operand != "i8")
        text = (
            "{ .reg .pred p; setp.ne.b32 p, 1, 0; "
            f"wgmma.mma_async.sync.aligned.m64n{2 * n}k{depth}.{NAMES[operand]} "
            f"{{{registers}}}, ${2 * n}, ${2 * n + 1}, p{flags}; }}"
        )
        return tied_assembly(self.f, text, sums, [a, b])


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
        self.slots = []
        for cell, row, behind in distribute(f, g.threads.number, g.workgroup, fast, slow):
            inside = f.and_(cell, i32(CELLS - 1))
            exchanged = f.xor(inside, f.and_(row, i32(CELLS - 1)))
            target = f.add(f.mul(row, i32(WARPGROUP_ROW_BYTES)), f.mul(exchanged, i32(CELL_BYTES)))
            first = f.mul(cell, i32(operand.side.vector))
            line, depth = row, first
            if self.by_lines:
                block = f.lshr(cell, i32(log2(CELLS)))
                target = f.add(target, f.mul(block, i32(self.block_bytes)))
                line, depth = first, row
            offset, coords = operand.line(f, line)
            step = f.int_resize(depth, offset.type.elem, False)
            self.slots.append((offset, coords, step, behind, target))

    def load(self, k: Value, limit: Value | None, size: Value, stage: Value) -> None:
        """Start the copies of `size` bytes of each cell of the tile whose depth begins at `k`."""
        f = self.f
        places = self.operand.tile(self.g, k, limit)
        for offset, coords, depth, behind, target in self.slots:
            address, valid = places(offset, coords, depth, behind)
            read = size if valid is None else f.select(valid, size, i32(0))
            to = lds_address(f, stage, target, self.origin)
            f.call("llvm.nvvm.cp.async.cg.shared.global.16.s", VOID, to, address, read)
