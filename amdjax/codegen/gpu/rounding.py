"""Conversions of what a thread holds, several elements at once where that takes less."""

from __future__ import annotations

from amdjax.codegen import llvm
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.registers import joined
from amdjax.codegen.llvm import I32, Value
from amdjax.codegen.pointwise import lower_convert

__all__ = ["converted", "converted_together", "together"]

#: Elements from which one question about all of them pays, and how many are asked at once.
MANY, MOST = 8, 32


def _asks_once(g: GpuEmitter, source: str, to: str) -> bool:
    """Whether a wave asks whether it has a NaN, and if not, for no element.

    Rounded on their bits, floats could become any bfloat16 where they are NaN. Not in loops around
    products, where LLVM moves things side by side that the branch would keep apart.
    """
    return (source, to) == ("f32", "bf16") and not (g.isa.target.rounds_to_bf16 or g.has_dots)


def together(g: GpuEmitter, lanes: int, source: str, to: str) -> int:
    """How many vectors of `lanes` elements are best converted together."""
    return max(MOST // lanes, 1) if _asks_once(g, source, to) else 1


def converted_together(g: GpuEmitter, parts: list[Value], source: str, to: str) -> list[Value]:
    """Vectors of one length, or scalars, of dtype `source` as `to`."""
    if len(parts) < 2:
        return [converted(g, x, source, to) for x in parts]
    f, n = g.f, parts[0].type.lanes
    x = converted(g, joined(f, parts), source, to)
    if not n:
        return [f.extract(x, i) for i in range(len(parts))]
    return [f.shuffle(x, None, range(i * n, i * n + n)) for i in range(len(parts))]


def converted(g: GpuEmitter, x: Value, source: str, to: str) -> Value:
    """Elements of dtype `source` as `to`."""
    if x.type.lanes < MANY or not _asks_once(g, source, to):
        return lower_convert(g.f, x, source, to)
    f, n = g.f, x.type.lanes

    def numbers() -> list[Value]:
        bits = f.bitcast(x, I32.with_lanes(n))
        half, low, one = (llvm.const(bits.type, i) for i in (16, 0x7FFF, 1))
        odd = f.and_(f.lshr(bits, half), one)
        upper = f.cast("trunc", f.lshr(f.add(f.add(bits, odd), low), half), "i16")
        return [f.bitcast(upper, upper.type.with_elem("bfloat"))]

    elements = [f.extract(x, i) for i in range(n)]
    pairs = zip(elements[::2], [*elements[1::2], *elements[-1:]], strict=False)
    nan = g.isa.any(f, *(f.fcmp("uno", a, b) for a, b in pairs))
    (result,) = g.when(f.not_(nan), numbers, lambda: [lower_convert(f, x, source, to)])
    return result
