"""Products of tiles: by vector lanes, by dot products of words and by AMX."""

from __future__ import annotations

from typing import NamedTuple

from amdjax import tile
from amdjax.codegen.cpu import amx
from amdjax.codegen.cpu.emitter import CpuEmitter, Rep
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.engine import host
from amdjax.codegen.llvm import Type
from amdjax.codegen.pointwise import dot_words
from amdjax.tile import ops

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


class _Words(NamedTuple):
    """An instruction on words: what a CPU that has it is called, its name, what it takes.

    One that does not add leaves that to another.
    """

    feature: str
    name: str
    operand: Type
    adds: bool = True


#: By the elements of a word and their number.
_WORDS = {
    ("u8", 16): _Words("avx512vnni", "llvm.x86.avx512.vpdpbusd.512", Type("i8", 64)),
    ("bf16", 16): _Words("avx512bf16", "llvm.x86.avx512bf16.dpbf16ps.512", Type("bfloat", 32)),
    ("i16", 16): _Words("avx512bw", "llvm.x86.avx512.pmaddw.d.512", Type("i16", 32), False),
    ("i16", 8): _Words("avx2", "llvm.x86.avx2.pmadd.wd", Type("i16", 16), False),
}


@LOWERINGS.of(ops.DotWords)
def lower_dot_words(c: CpuEmitter, op: ops.DotWords) -> list[Rep]:
    a, b, acc = (c.scalar(v) for v in op.operands)
    f, of = c.f, _WORDS.get((op.types[0], acc.type.lanes))
    if of is not None and host().has(of.feature):
        words = (f.bitcast(x, of.operand) for x in (a, b))
        if of.adds:
            return [f.call(of.name, acc.type, acc, *words)]
        return [f.add(acc, f.call(of.name, acc.type, *words))]
    return [dot_words(f, op.types, a, b, acc)]


@LOWERINGS.of(ops.AmxProduct)
def lower_amx_product(c: CpuEmitter, op: ops.AmxProduct) -> list[Rep]:
    amx.amx_product(c.f, op, c.address, c.scalar)
    return []
