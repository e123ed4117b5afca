"""Writes the handler of a variant: picks its family, applies modifiers to operands and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.codegen.llvm import Type, Value
from amdjax.emulator import state
from amdjax.emulator.alu import (
    compare,
    crosslane,
    indirect,
    legacy,
    matrix,
    narrow,
    rare,
    salu,
    salu_float,
    valu,
    valu_float,
)
from amdjax.emulator.builder import OPERAND_TYPES, Lanes, Operation, as_half
from amdjax.emulator.isa import ISAS, access
from amdjax.emulator.memory import buffer_memory, scalar_memory, vector_memory

# Their operations are entered in the tables.
assert compare and valu_float and indirect and legacy and narrow and rare and salu_float


def write_handler(h: Lanes) -> None:
    """Write the code of `h.variant`'s handler."""
    name = h.variant.name
    if name == "v_dual":
        _compute(h, *(as_half(h, i) for i in range(2)))
    elif name in salu.CONTROL:
        salu.CONTROL[name](h)
    elif name in crosslane.HANDLERS:
        crosslane.HANDLERS[name](h)
    elif matrix.shape_of(name) is not None:
        matrix.emit(h)
    elif name in valu.OPERATIONS or name in salu.OPERATIONS:
        _compute(h, h)
    else:
        found = access.access_of(name)
        assert found is not None
        if found.kind == "scalar":
            scalar_memory.emit(h, found)
        elif found.space == "buffer":
            buffer_memory.emit(h, found)
        else:
            vector_memory.emit(h, found)


# What `llvm.set.rounding` calls the modes: to nearest, up, down, toward zero.
_ROUNDINGS = (1, 2, 3, 0)


def _compute(h: Lanes, *operations: Lanes) -> None:
    """Write computations and then their stores, in the rounding mode of the instruction."""
    rounding = max(x.variant.flag("round") for x in operations)
    if rounding:
        _round(h, rounding)
    for store in [_computed(x) for x in operations]:
        store()
    if rounding:
        _round(h, 0)
    h.finish()


def _round(h: Lanes, mode: int) -> None:
    """Set the rounding of the machine that runs this; loads and stores stay on their side."""
    h.f.module.declarations["set.rounding"] = "declare void @llvm.set.rounding(i32)"
    barrier = 'call void asm sideeffect "", "~{memory}"()'
    for line in (barrier, f"call void @llvm.set.rounding(i32 {_ROUNDINGS[mode]})", barrier):
        h.f.emit(line)


# Bits of the flag `flush` for operands and (twice as high) results, by format.
_FLUSHED = {"float": 1, "half": 4, "double": 4}


def _flushed(h: Lanes, x: Value, is_result: bool = False) -> Value:
    """X without denormals, if the mode says so for its format."""
    bit = _FLUSHED.get(x.type.elem, 0) << is_result
    return valu_float.flush(h, x) if h.variant.flag("flush") & bit else x


def _computed(h: Lanes) -> Callable[[], None]:
    """Write the computation; the returned function writes its stores."""
    name = h.variant.name
    op = valu.OPERATIONS.get(name) or salu.OPERATIONS[name]
    if name in valu_float.MIXED:
        return _computed_mixed(h, op)
    if op.packed:
        return _computed_packed(h, op)
    sources = [h.source(i, kind) for i, kind in enumerate(op.sources)]
    result = _clamped(h, op, sources)
    second: Value | None = None
    if isinstance(result, tuple):
        result, second = result
    elif op.scc is not None:
        second = op.scc(h, result)

    def store() -> None:
        h.write(result, op.dst)
        if name.startswith("v_cmpx") and ISAS[h.variant.isa].generation == 9:
            h.set_sgpr(state.EXEC, h.bits_of(h.f.and_(result, h.write_mask())))
        if second is not None and op.sdst:
            h.write(second, op.sdst, state.SDST)
        elif second is not None:
            h.set_scc(second)

    return store


def _clamped(h: Lanes, op: Operation, sources: list[Value]) -> Any:
    """The operation with its output modifiers."""
    v, f = h.variant, h.f
    sources = [_flushed(h, x) for x in sources]
    if op.dst not in ("f16", "f32", "f64"):
        if v.clamp and op.dst != "mask":
            assert op.saturate is not None  # `lower` saw to that
            return op.saturate(h, *sources)
        return op.compute(h, *sources)
    result = op.compute(h, *sources)
    pair = result if isinstance(result, tuple) else None
    x = pair[0] if pair else result
    if v.omod and v.flag("flush") & _FLUSHED[x.type.elem] << 1:
        # Ignored where results may be denormal.
        x = f.mul(x, h.like(x, {1: 2.0, 2: 4.0, 3: 0.5}[v.omod]))
    if v.clamp:
        # NaN becomes 0, as kernels are run with DX10_CLAMP.
        x = valu_float.fmin(h, valu_float.fmax(h, x, h.like(x, 0.0)), h.like(x, 1.0))
    x = _flushed(h, x, is_result=True)
    return (x, pair[1]) if pair else x


def _computed_packed(h: Lanes, op: Operation) -> Callable[[], None]:
    """The scalar operation on low and high parts, which op_sel and op_sel_hi choose."""
    v, f = h.variant, h.f
    wide = OPERAND_TYPES[op.dst].bits == 32
    selections = (v.opsel & 7, v.flag("opsel_hi"))
    negations = (v.neg, v.flag("neg_hi"))
    parts = []
    for half in range(2):
        sources = []
        for i, kind in enumerate(op.sources):
            select = v.name == "v_pk_mov_b32" and i != half
            if select:
                continue
            # v_pk_mov takes its low result from source 0 and its high one from source 1.
            chosen = selections[0] if v.name == "v_pk_mov_b32" else selections[half]
            high = chosen >> i & 1
            x = _packed_source(h, i, kind, bool(high), wide)
            if OPERAND_TYPES[kind].is_float and negations[half] >> i & 1:
                x = f.neg(x)
            sources.append(x)
        if v.name == "v_pk_mov_b32":
            sources = [sources[0], sources[0]]
        parts.append(_clamped(h, op, sources))

    def store() -> None:
        if wide:
            words = [f.bitcast(p, Type("i32", h.lanes)) for p in parts]
            h.write(h.join(*words), "b64")
        else:
            h.write(valu.pack16(h, *parts), "b32")

    return store


def _computed_mixed(h: Lanes, op: Operation) -> Callable[[], None]:
    """An fma of operands that are f32, or a half of a register where op_sel_hi is set."""
    v, f = h.variant, h.f
    sources = []
    for i in range(3):
        x = h.raw(i, v.sources[i], 32)
        if v.flag("opsel_hi") >> i & 1:
            x = f.lshr(x, h.like(x, 16)) if v.opsel >> i & 1 else x
            x = _flushed(h, f.bitcast(f.cast("trunc", x, "i16"), Type("half", h.lanes)))
            x = f.cast("fpext", x, "float")
        else:
            x = _flushed(h, f.bitcast(x, Type("float", h.lanes)))
        if v.flag("neg_hi") >> i & 1:
            x = f.unary_intrinsic("fabs", x)
        sources.append(f.neg(x) if v.neg >> i & 1 else x)
    if op.dst == "f32":
        result = _clamped(h, op, sources)
        return lambda: h.write(result, "f32")
    result = _flushed(h, f.cast("fptrunc", f.fma(*sources), "half"), is_result=True)
    if v.clamp:
        result = valu_float.fmin(
            h, valu_float.fmax(h, result, h.like(result, 0.0)), h.like(result, 1.0)
        )
    high = v.name == "v_fma_mixhi_f16"

    def store() -> None:
        place = h.at(h.wave, h.slot(state.DST))
        mine = f.cast("zext", f.bitcast(result, Type("i16", h.lanes)), "i32")
        mine = f.shl(mine, h.like(mine, 16)) if high else mine
        old = f.load(mine.type, place, 64)
        kept = f.and_(old, h.like(old, 0xFFFF if high else 0xFFFF0000))
        h.write(f.or_(mine, kept), "b32")

    return store


def _packed_source(h: Lanes, index: int, kind: str, high: bool, wide: bool) -> Value:
    v, f = h.variant, h.f
    to = OPERAND_TYPES[kind]
    how = v.sources[index]
    if wide:
        # A constant is the same in both parts.
        if how == "k":
            x = h.raw(index, how, 32)
        else:
            x = h.split(h.raw(index, how, 64))[int(high)]
    else:
        x = h.raw(index, how, 32)
        if index == 0 and v.dpp is not None:
            x = h._dpp(x)
        x = f.lshr(x, h.like(x, 16)) if high else x
        x = f.cast("trunc", x, "i16")
    return f.bitcast(x, Type(to.elem, x.type.lanes))
