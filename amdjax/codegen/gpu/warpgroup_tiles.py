"""Products of tiles by Hopper's `wgmma`: the left operand in registers, the right one in LDS.

There the right operand lies in blocks of rows of 128 bytes, whose cells are exchanged by the number
of the row, along the depth or along its lines: as it lies in memory, so that one tile serves for
both. Asynchronous copies bring it where a loop lets them run ahead (`copied_tiles.py`); else it
comes from registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from amdjax.codegen import llvm
from amdjax.codegen.gpu.accesses import BlockPointer, tile_pointers
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.fragments import (
    FragmentLayout,
    accumulator_layout,
    operand_layout,
    rectangles,
)
from amdjax.codegen.gpu.layout_assignment import dot_tiling
from amdjax.codegen.gpu.matrix import i32, lds_address
from amdjax.codegen.gpu.positions import Held, Rep
from amdjax.codegen.gpu.registers import joined, splat
from amdjax.codegen.gpu.wgmma import (
    CELLS,
    GROUP,
    NAMES,
    fence_copies,
    fresh_assembly,
    matrix_descriptor,
    tied_assembly,
)
from amdjax.codegen.llvm import F32, I32, I64, VOID, Type, Value
from amdjax.targets.mma import CELL_BYTES, WARPGROUP_ROW_BYTES, WARPGROUP_STEP_BYTES
from amdjax.tile import itemsize, ops

#: Bits of the addresses of global memory that are always zero.
_ZERO_BITS = 14


class WarpgroupTileProduct:
    """One product in a kernel.

    Args:
      g: the kernel being written.
      op: with a tiling.
    """

    def __init__(self, g: GpuEmitter, op: ops.Dot):
        self.g, self.f, self.op = g, g.f, op
        self.tiling = dot_tiling(g.isa.target, op)
        #: Whether rows in LDS are steps in depth.
        self.by_lines = True
        self.rows = 0

    def sums(self) -> Value:
        """The accumulators of a thread."""
        g, f, op, tiling = self.g, self.f, self.op, self.tiling
        wave, high = g.isa.wave, tiling.fragments[0]
        left = g.in_layout(op.a, operand_layout(tiling, wave))
        words = f.bitcast(left, Type("i32", left.type.lanes * itemsize(op.a.dtype) // 4))
        place = self._right()
        held = g.in_layout(op.acc, accumulator_layout(tiling, wave))
        descriptor = matrix_descriptor(f, place, self._block_bytes)
        given = [f.extract(words, i) for i in range(words.type.lanes)]
        n, one = held.type.lanes, held.type.with_lanes(0)
        if held.ref == splat(f, llvm.const(one, 0), n).ref:  # nothing is added to: it is not passed
            given = [self._in_register(x, i) for i, x in enumerate(given)]
            text = self._text(n, n, high, len(given))
            return joined(f, fresh_assembly(f, text, [one] * n, [*given, descriptor]))
        sums = [f.extract(held, i) for i in range(n)]
        text = self._text(n, 2 * n, high, len(given))
        return joined(f, tied_assembly(f, text, sums, [*given, descriptor]))

    def _in_register(self, word: Value, number: int) -> Value:
        """A word of the left operand, which is no constant for what comes later.

        Constants would have to be put into registers between the products. A zero is another one
        for each word.
        """
        return self.f.or_(word, _hidden_zero(self.g, 1 + number))

    def _text(self, sums: int, operands: int, high: int, words: int) -> str:
        """All products, and waiting for them: nothing else may touch their registers meanwhile.

        Args:
          sums: how many there are, which come first.
          operands: the number of the first word of the left operand.
          high: fragments along the rows.
          words: of the left operand.
        """
        atom, each, depth = self.tiling.atom, sums // high, self.tiling.depth
        names = [f"${i}" for i in range(sums)]
        given = [f"${operands + i}" for i in range(words)]
        step = WARPGROUP_STEP_BYTES // atom.operand_bytes
        steps = depth // step
        lines = ["wgmma.fence.sync.aligned;"]
        for s in range(steps):
            lines.append(f"add.s64 d, ${operands + words}, {self._step_bytes(s) >> 4};")
            adds = "p" if s or operands > sums else "q"
            for i in range(high):
                d = ", ".join(names[i * each : (i + 1) * each])
                at = (i * steps + s) * 4
                a = ", ".join(given[at : at + 4])
                lines.append(
                    f"wgmma.mma_async.sync.aligned.m64n{2 * each}k{step}.{NAMES[atom.operand]} "
                    f"{{{d}}}, {{{a}}}, d, {adds}, 1, 1, {int(self.by_lines)};"
                )
        lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        head = ".reg .pred p, q; .reg .b64 d; setp.ne.b32 p, 1, 0; setp.ne.b32 q, 0, 0;"
        return f"{{ {head} {' '.join(lines)} }}"

    @property
    def _block_bytes(self) -> int:
        """Distance of blocks of lines, where rows are steps in depth."""
        return self.rows * WARPGROUP_ROW_BYTES if self.by_lines else CELL_BYTES

    def _step_bytes(self, step: int) -> int:
        """How far a step in depth is from the first."""
        size = self.tiling.atom.operand_bytes
        if self.by_lines:
            return step * WARPGROUP_STEP_BYTES // size * WARPGROUP_ROW_BYTES
        block, inside = divmod(step * WARPGROUP_STEP_BYTES, WARPGROUP_ROW_BYTES)
        return block * self.rows * WARPGROUP_ROW_BYTES + inside

    def _right(self) -> Value:
        """The address in LDS of the right operand."""
        g, f, op = self.g, self.f, self.op
        copied = g.copied.tiles.get(op.b.number)
        if copied is None:
            return self._bring()
        self.by_lines, self.rows = op.b.number not in g.copied.transposes, copied.rows
        rep = g.rep(op.b)
        assert isinstance(rep, Held)
        memory = g.buffers.shared(copied.name, 2 * copied.nbytes + GROUP)
        g.buffers.access(memory, "read")
        return f.add(_aligned(g, g.buffers.address(memory))[1], rep.value)

    def _bring(self) -> Value:
        """From registers."""
        g, f, op = self.g, self.f, self.op
        cell = CELL_BYTES // itemsize(op.b.dtype)
        source = g.layout(op.b)
        if not isinstance(source, FragmentLayout) or source.width % cell:
            source = rectangles((op.b.shape[0], op.b.shape[1]), g.workgroup, itemsize(op.b.dtype))
        along = source.minor_axis
        self.by_lines, self.rows = along == 1, source.shape[1 - along]
        x = g.in_layout(op.b, source)
        nbytes = self.rows * source.shape[along] * itemsize(op.b.dtype)
        buffer = g.buffers.reserved(nbytes + GROUP)
        g.buffers.access(buffer, "write")
        memory, address = _aligned(g, g.buffers.address(buffer))
        leaders = FragmentLayout(
            source.shape, source.threads, source.bases, source.elements[::cell]
        )

        def write() -> list[Value]:
            for i, at in enumerate(_cell_places(g, leaders, 1 - along)):
                part = f.shuffle(x, None, range(i * cell, (i + 1) * cell))
                f.store(f.bitcast(part, Type("i32", 4)), lds_address(f, memory, at, 0), CELL_BYTES)
            return []

        owner = g.layouts.owner(source)
        if owner is None:
            write()
        else:
            g.when(owner, write)
        fence_copies(f)
        g.buffers.access(buffer, "read")
        return address


def _hidden_zero(g: GpuEmitter, number: int) -> Value:
    """A zero that neither LLVM nor NVIDIA's assembler knows: high bits of addresses."""
    f = g.f
    if number:  # the first is no other's
        number = 1 + (number - 1) % (_ZERO_BITS * len(g.pointers) - 1)
    which, bits = g.pointers[number // _ZERO_BITS], 63 - number % _ZERO_BITS

    def zero() -> Value:
        address = f.op(f"ptrtoint {which} to i64", I64)
        return f.cast("trunc", f.lshr(address, llvm.const(I64, bits)), "i32")

    return g.threads.at_head(zero)


def hidden_sums(g: GpuEmitter, x: Value) -> Value:
    """What products in a loop are added to first; zeros as numbers that are not known.

    NVIDIA's assembler (of CUDA 12.9 and 13.0) has equal constants in one register, also a zero that
    is multiplied and one that products are added to, which it is no longer after the first.
    """
    n, zeros = x.type.lanes, llvm.const(F32, 0)
    if x.type.elem != F32.elem or not n or x.ref != splat(g.f, zeros, n).ref:
        return x
    return g.f.splat(g.f.bitcast(_hidden_zero(g, 0), F32), n)


def _aligned(g: GpuEmitter, memory: Value) -> tuple[Value, Value]:
    """The first place in LDS at which groups of rows may begin: a pointer and its number."""
    f = g.f

    def padding() -> Value:
        address = f.op(f"ptrtoint {memory} to i32", I32)
        return f.and_(f.neg(address), i32(GROUP - 1))

    pad = g.threads.at_head(padding)
    pointer = g.threads.at_head(lambda: lds_address(f, memory, pad, 0))
    return pointer, g.threads.at_head(lambda: f.op(f"ptrtoint {pointer} to i32", I32))


def _cell_places(g: GpuEmitter, leaders: FragmentLayout, rows: int) -> Iterator[Value]:
    """Where cells lie, in bytes from the tile's first, by the places of their first elements.

    Args:
      g: the kernel.
      leaders: of each cell of a thread.
      rows: the axis of rows.
    """
    f, cell = g.f, CELL_BYTES // 2
    height = leaders.shape[rows]

    def place(row: Value, column: Value) -> Value:
        number = f.lshr(column, i32(cell.bit_length() - 1))
        block = f.lshr(number, i32(CELLS.bit_length() - 1))
        exchanged = f.xor(f.and_(number, i32(CELLS - 1)), f.and_(row, i32(CELLS - 1)))
        at = f.add(
            f.mul(block, i32(height * WARPGROUP_ROW_BYTES)), f.mul(exchanged, i32(CELL_BYTES))
        )
        return f.add(at, f.mul(row, i32(WARPGROUP_ROW_BYTES)))

    known: dict[tuple[int, int], Value] = {}
    for places in leaders.places(g.threads):
        (row, low), (column, right) = ((places[a].base, places[a].step) for a in (rows, 1 - rows))
        near = low % CELLS, right

        def first(row: Value | None = row, column: Value | None = column, near=near) -> Value:  # type: ignore[no-untyped-def]
            steps = zip((row, column), near, strict=True)
            return place(*(i32(s) if b is None else f.add(b, i32(s)) for b, s in steps))

        if near not in known:
            known[near] = g.threads.at_head(first)
        yield f.add(known[near], i32((low - near[0]) * WARPGROUP_ROW_BYTES))


# Copies


@cache
def cell_layout(shape: tuple[int, int], threads: int, itemsize: int) -> FragmentLayout:
    """The first elements of cells that each thread copies; neighbors copy what lies together."""
    (rows, columns), cell = shape, CELL_BYTES // itemsize
    wide = columns // cell
    beside = min(wide, threads)
    below = min(threads // beside, rows)
    elements = tuple(
        (top, left) for top in range(0, rows, below) for left in range(0, columns, beside * cell)
    )
    digits = ((beside, below, 1),), ((1, beside, cell),)
    bases = tuple(tuple(d for d in x if d[1] > 1) for x in digits)
    return FragmentLayout(shape, threads, bases, elements)


def copy_tile(
    g: GpuEmitter, op: ops.Load, where: BlockPointer, layout: FragmentLayout,
    masks: Sequence[Value] | None,
) -> Rep:  # fmt: skip
    """Start copying a tile; zeros where masks are false. It is held as its place in LDS.

    A carried tile is used meanwhile: this one goes to the other place.
    """
    f, copied = g.f, g.copied.tiles[op.result.number]
    memory = g.buffers.shared(copied.name, 2 * copied.nbytes + GROUP)
    used = g.copied.partners[op.result.number]
    place = i32(0)
    if used is None:  # the rounds of a loop wait for each other as they begin
        g.buffers.access(memory, "write")
    else:
        rep = g.rep(used)
        assert isinstance(rep, Held)
        place = f.xor(rep.value, i32(copied.nbytes))
    start = lds_address(f, _aligned(g, g.buffers.address(memory))[0], place, 0)
    source = tile_pointers(g, where, layout)
    for i, at in enumerate(_cell_places(g, layout, 0)):
        to, address = lds_address(f, start, at, 0), source(i)
        if masks is None:
            f.call("llvm.nvvm.cp.async.cg.shared.global.16", VOID, to, address)
            continue
        there = f.select(masks[i], address, g.buffers.address(where.buffer))
        size = f.select(masks[i], i32(CELL_BYTES), i32(0))
        f.call("llvm.nvvm.cp.async.cg.shared.global.16.s", VOID, to, there, size)
    f.call("llvm.nvvm.cp.async.commit.group", VOID)
    return Held(place)


def wait_for_copies(g: GpuEmitter) -> None:
    """Until the copies of all threads are there, and all have used what was before."""
    await_own_copies(g)
    fence_copies(g.f)
    g.isa.barrier(g.f, g.buffers.waves, only_lds=True)
    g.buffers.barriers.waited()


def await_own_copies(g: GpuEmitter) -> None:
    """Until this thread's copies are there."""
    g.f.call("llvm.nvvm.cp.async.wait.group", VOID, i32(0))
