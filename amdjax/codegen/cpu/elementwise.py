"""Elementwise operations, constants, counts and conversions of vectors."""

from __future__ import annotations

from amdjax.codegen import llvm
from amdjax.codegen.cpu.emitter import CpuEmitter, Rep, llvm_type, rowwise
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.llvm import I32, I64, Function, Value
from amdjax.codegen.pointwise import ELEMENT_TYPES, lower_convert as converted, lower_pointwise
from amdjax.tile import ops

LOWERINGS = Lowerings()


@LOWERINGS.of(ops.Elementwise)
def lower_elementwise(c: CpuEmitter, op: ops.Elementwise) -> list[Rep]:
    result = op.results[0].type
    dtype = op.operands[-1].dtype  # `select` has its condition first
    if dtype == "index" and not result.shape:
        return [c.index(op.name, *[c.scalar(v) for v in op.operands])]
    operands = [c.rep(v) for v in op.operands]
    if isinstance(op, ops.Comparison) and op.positional:
        operands[-1] = _hidden(c, operands[-1])

    def one(*xs: Value) -> Value:
        return lower_pointwise(c.f, op.name, dtype, *xs, **op.parameters)

    return [rowwise(result, one, *operands)]


def _hidden(c: CpuEmitter, rep: Rep) -> Rep:
    """Bounds of lane positions, hidden from constant folding.

    A mask made with known ones would be constant, and LLVM 22 compiles some constant masks
    wrongly (a masked store of one lane takes its value past the mask of the load behind it, or
    writes a wider integer) and fails on others (loads that it splits into halves of which one
    is never read).
    """
    if isinstance(rep, list):
        return [_hide(c.f, row) for row in rep]
    return _hide(c.f, rep)


def _hide(f: Function, x: Value) -> Value:
    scalar = f.splatted(x)
    if scalar is not None and scalar.type in (I32, I64):
        opaque = f.op(f'call {scalar.type} asm "", "=r,0"({scalar})', scalar.type)
        return f.splat(opaque, x.type.lanes)
    zero = f.op('call i64 asm "", "=r,0"(i64 0)', I64)
    lanes = f.splat(f.int_resize(zero, f"i{x.type.bits}", signed=False), x.type.lanes)
    return f.bitcast(f.xor(f.bitcast(x, lanes.type), lanes), x.type)


@LOWERINGS.of(ops.Convert)
def lower_convert(c: CpuEmitter, op: ops.Convert) -> list[Rep]:
    (x,), to = op.operands, op.results[0].type
    return [rowwise(to, lambda v: converted(c.f, v, x.dtype, to.dtype), c.rep(x))]


@LOWERINGS.of(ops.ConvertClamped)
def lower_convert_clamped(c: CpuEmitter, op: ops.ConvertClamped) -> list[Rep]:
    """Selects by ordered comparisons, which are single instructions and false of NaN."""
    f, to = c.f, op.result.type

    def row(x: Value) -> Value:
        low, high = (llvm.const(x.type, float(n)) for n in (op.low, op.high))
        held = f.select(f.fcmp("ogt", x, low), x, low)
        held = f.select(f.fcmp("olt", held, high), held, high)
        number = f.cast("fptosi", held, "i32")
        if op.low:  # what is selected is part of the conversion, as a mask
            number = f.select(f.fcmp("ord", x, x), number, llvm.zero(number.type))
        return f.int_resize(number, ELEMENT_TYPES[to.dtype], op.low < 0)

    return [rowwise(to, row, c.rep(op.x))]


@LOWERINGS.of(ops.Bitcast)
def lower_bitcast(c: CpuEmitter, op: ops.Bitcast) -> list[Rep]:
    to = op.results[0].type
    return [rowwise(to, lambda v: c.f.bitcast(v, llvm_type(to)), c.rep(op.operands[0]))]


@LOWERINGS.of(ops.Const)
def lower_const(c: CpuEmitter, op: ops.Const) -> list[Rep]:
    t = op.results[0].type
    value = llvm.const(llvm_type(t), op.value.x)
    return [[value] * t.shape[0] if len(t.shape) == 2 else value]


@LOWERINGS.of(ops.ProgramId)
def lower_program_id(c: CpuEmitter, op: ops.ProgramId) -> list[Rep]:
    return [c.program]


@LOWERINGS.of(ops.Size)
def lower_size(c: CpuEmitter, op: ops.Size) -> list[Rep]:
    return [c.address(op.buffer)]


@LOWERINGS.of(ops.Iota)
def lower_iota(c: CpuEmitter, op: ops.Iota) -> list[Rep]:
    t = op.results[0].type
    return [llvm.vector(ELEMENT_TYPES[t.dtype], range(t.shape[0]))]
