"""Atomic operations on memory; how a workgroup learns that it is the last of a grid, or waits."""

from __future__ import annotations

from amdjax.codegen import llvm
from amdjax.codegen.emitter import Lowerings, arrival, atomic_operation
from amdjax.codegen.gpu.accesses import BlockPointer, guarded, pointer, store_tile
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.isa import by_words
from amdjax.codegen.gpu.layout_conversion import element_of, row_major, take
from amdjax.codegen.gpu.positions import Held, Rep
from amdjax.codegen.gpu.registers import joined, register
from amdjax.codegen.llvm import I32, Type, Value
from amdjax.tile import FLOATS, ops

LOWERINGS = Lowerings()


@LOWERINGS.of(ops.Atomic)
def lower_atomic(g: GpuEmitter, op: ops.Atomic) -> list[Rep]:
    """One thread does it for a scalar; for a tile, each for its elements."""
    offset = op.operands[0]
    g.buffers.access(op.buffer, "atomic", None if offset.shape else "first thread")
    return [_atomic_tile(g, op) if offset.shape else _atomic_scalar(g, op)]


def _atomic(g: GpuEmitter, op: ops.Atomic, offset: Value, x: Value) -> Value:
    """Combine into memory at once; what was there before."""
    dtype, at = op.operands[1].dtype, pointer(g, op.buffer, offset)
    name = atomic_operation(op.combine, dtype)
    extra = g.isa.atomic_metadata if dtype in FLOATS else ""
    return g.f.op(f"atomicrmw {name} {at}, {x} {g.isa.device_scope}monotonic{extra}", x.type)


def _atomic_scalar(g: GpuEmitter, op: ops.Atomic) -> Value:
    offset, value = op.operands[:2]
    first = g.threads.compare("eq", g.threads.number, 0)
    if op.mask is not None:
        first = g.f.and_(first, g.scalar(op.mask))
    (old,) = g.when(
        first,
        lambda: [_atomic(g, op, g.scalar(offset), g.scalar(value))],
        lambda: [llvm.zero(g.types.vector(value.dtype))],
    )
    if op.results[0].number not in g.used:
        return old
    if g.workgroup > g.isa.wave:
        return element_of(g, value.dtype, (g.workgroup,), old, 0)
    return by_words(g.f, old, lambda word: g.isa.lane(g.f, word, 0))


def _atomic_tile(g: GpuEmitter, op: ops.Atomic) -> Rep:
    v, value = op.operands[:2]
    layout = g.layouts.of(v.shape)
    offsets, x = g.in_registers(v), g.in_registers(value)
    masks = None if op.mask is None else g.in_registers(op.mask)
    guards = guarded(g, g.layouts.guards(layout), masks)
    guards = guarded(g, guards, g.layouts.owner(layout))
    old, nothing = [], llvm.zero(x.type.with_lanes(0))
    for r, guard in enumerate(guards):

        def one(r: int = r) -> list[Value]:
            return [_atomic(g, op, register(g.f, offsets, r), register(g.f, x, r))]

        old += one() if guard is None else g.when(guard, one, lambda: [nothing])
    before = joined(g.f, old)
    if layout.period == g.workgroup or op.results[0].number not in g.used:
        return Held(before)
    shared = g.buffers.temporary(value.dtype, layout.size)  # threads that did nothing learn it too
    g.buffers.access(shared, "write")
    strides = row_major(v.shape)
    store_tile(g, BlockPointer(shared, 0, strides), value.dtype, layout, before)
    return take(g, shared, v.shape, 0, strides)


@LOWERINGS.of(ops.Arrive)
def lower_arrive(g: GpuEmitter, op: ops.Arrive) -> list[Rep]:
    """One thread arrives for all of them, behind their stores, and tells them."""
    f, waves, barriers = g.f, g.buffers.waves, g.buffers.barriers
    g.isa.gather(f, waves)
    barriers.waited()
    counter = g.buffers.element(op.buffer, g.scalar(op.operands[0]))
    flag = g.buffers.temporary("bool", 1)
    place = g.buffers.address(flag)
    g.buffers.access(flag, "write")

    def arrive() -> list[Value]:
        g.isa.release(f)  # NVPTX drops the ordering of an atomic itself
        suffix = f"{g.isa.device_scope}monotonic{g.isa.atomic_metadata}"
        last = arrival(f, counter, op.programs, suffix)
        g.isa.acquire(f)
        f.store(f.cast("zext", last, "i8"), place, 1)
        return []

    g.when(g.threads.compare("eq", g.threads.number, 0), arrive)
    # Also of global memory: what the one thread may see now, all may.
    g.isa.barrier(f, waves, only_lds=False)
    barriers.waited()
    g.buffers.access(flag, "read")
    return [f.icmp("ne", f.load(Type("i8"), place, 1), llvm.const(Type("i8"), 0))]


@LOWERINGS.of(ops.GridBarrier)
def lower_grid_barrier(g: GpuEmitter, op: ops.GridBarrier) -> list[Rep]:
    """One thread arrives for all of them, behind their stores, and waits until all others have.

    The counter goes up from barrier to barrier and wraps to zero with the last arrival of all, so
    that it needs no reset. One less than it, as an unsigned number, is then the largest there is.
    """
    f, waves, barriers = g.f, g.buffers.waves, g.buffers.barriers
    g.isa.gather(f, waves)
    barriers.waited()
    counter = g.buffers.element(op.buffer, g.scalar(op.offset))
    number, programs, times = (
        f.int_resize(g.scalar(v), "i32", False) for v in (op.number, op.programs, op.times)
    )
    one = llvm.const(I32, 1)
    last = f.sub(f.mul(programs, times), one)
    least = f.sub(f.mul(f.add(number, one), programs), one)
    scope = f"{g.isa.device_scope}monotonic"

    def arrivals() -> Value:
        return f.op(f"load atomic i32, {counter} {scope}, align 4", I32)

    def wait(_: list[Value]) -> list[Value]:
        g.isa.pause(f)
        return [arrivals()]

    def meet() -> list[Value]:
        g.isa.release(f)  # NVPTX drops the ordering of an atomic itself
        f.emit(f"atomicrmw uinc_wrap {counter}, {last} {scope}{g.isa.atomic_metadata}")
        f.while_loop([arrivals()], lambda seen: f.icmp("ult", f.sub(seen[0], one), least), wait)
        g.isa.acquire(f)
        return []

    g.when(g.threads.compare("eq", g.threads.number, 0), meet)
    # Also of global memory: what the one thread may see now, all may.
    g.isa.barrier(f, waves, only_lds=False)
    barriers.waited()
    return []


@LOWERINGS.of(ops.ProgramBarrier)
def lower_program_barrier(g: GpuEmitter, op: ops.ProgramBarrier) -> list[Rep]:
    """All threads see what any of them stored."""
    g.isa.barrier(g.f, g.buffers.waves, only_lds=False)
    g.buffers.barriers.waited()
    return []
