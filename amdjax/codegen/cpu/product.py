"""Products of tiles: by vector lanes, by VNNI and by AMX."""

from __future__ import annotations

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.cpu import amx
from amdjax.codegen.cpu.emitter import CpuEmitter, Rep
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.engine import host
from amdjax.codegen.llvm import Type
from amdjax.tile import ops

__all__ = ["LOWERINGS"]

LOWERINGS = Lowerings()


@LOWERINGS.of(ops.Dot)
def lower_dot(c: CpuEmitter, op: ops.Dot) -> list[Rep]:
    a, b, acc = (c.rep(v) for v in op.operands)
    assert isinstance(a, list) and isinstance(b, list) and isinstance(acc, list)
    floating = op.operands[2].dtype in tile.FLOATS
    out = []
    for row, total in zip(a, acc, strict=True):
        for k, b_row in enumerate(b):
            x = c.f.splat(c.f.extract(row, k), b_row.type.lanes)
            if floating:
                total = c.f.fma(x, b_row, total)
            else:
                total = c.f.add(c.f.mul(x, b_row), total)
        out.append(total)
    return [out]


@LOWERINGS.of(ops.Dot4)
def lower_dot4(c: CpuEmitter, op: ops.Dot4) -> list[Rep]:
    a, b, acc = (c.scalar(v) for v in op.operands)
    f, t = c.f, acc.type
    if t.lanes == 16 and host().has("avx512vnni"):
        as_bytes = Type("i8", 64)
        name = "llvm.x86.avx512.vpdpbusd.512"
        return [f.call(name, t, acc, f.bitcast(a, as_bytes), f.bitcast(b, as_bytes))]
    for byte in range(4):
        up, down = llvm.const(t, 24 - 8 * byte), llvm.const(t, 24)
        x, y = f.lshr(f.shl(a, up), down), f.ashr(f.shl(b, up), down)
        acc = f.add(acc, f.mul(x, y))
    return [acc]


@LOWERINGS.of(ops.AmxProduct)
def lower_amx_product(c: CpuEmitter, op: ops.AmxProduct) -> list[Rep]:
    amx.amx_product(c.f, op, c.address, c.scalar)
    return []
