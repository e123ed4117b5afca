"""Elementwise operations, constants, counts and conversions on a workgroup."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.divide import FEWEST, divided
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.layout import Place
from amdjax.codegen.gpu.positions import Coordinates, Held, Positional, Rep
from amdjax.codegen.gpu.registers import elementwise, joined, register
from amdjax.codegen.gpu.rounding import converted
from amdjax.codegen.llvm import Value
from amdjax.codegen.math.narrow import div as narrow_div
from amdjax.codegen.pointwise import dot_words
from amdjax.tile import ops

__all__ = ["LOWERINGS"]

LOWERINGS = Lowerings()


def _each(g: GpuEmitter, op: tile.Op, fn: Callable[..., Value]) -> list[Rep]:
    """`fn` of the operands' elements; of positions alone, it stays a function of position."""
    reps = [g.rep(v) for v in op.operands]
    shape = op.results[0].shape
    if not shape:
        return [fn(*reps)]
    if any(isinstance(rep, Held) for rep in reps):
        layout = g.layout(op.results[0])
        return [Held(fn(*(g.in_layout(v, layout) for v in op.operands)))]
    return [Positional(lambda at: fn(*(g.evaluate(rep, at) for rep in reps)))]


@LOWERINGS.of(ops.Div)
def lower_div(g: GpuEmitter, op: ops.Div) -> list[Rep]:
    """Where a thread has several elements with the same divisor, without so many divisions."""
    x, d = op.operands
    if op.becomes and g.isa.target.is_amdgpu:
        return _each(g, op, lambda x, d: narrow_div(g.f, x, d, op.becomes))
    if op.relaxed or d.dtype != "f32" or not isinstance(g.rep(x), Held):
        return lower_elementwise(g, op)
    groups = _equal_registers(g, op.result, op.same_along) if d.shape else [[0]]
    if min(map(len, groups)) < FEWEST:
        return lower_elementwise(g, op)
    layout = g.layout(op.result)
    elements, divisors = g.in_layout(x, layout), g.in_layout(d, layout)
    parts = [
        divided(g, g.f.shuffle(elements, None, same), register(g.f, divisors, same[0]))
        for same in groups
    ]
    return [Held(joined(g.f, parts))]


def _equal_registers(g: GpuEmitter, v: tile.Value, same: tuple[int, ...]) -> list[list[int]]:
    """The registers of a tile that is the same along axes, those with one number together."""

    def where(r: int) -> list[Place]:
        return [place for axis, place in enumerate(places[r]) if axis not in same]

    places = g.layouts.places(g.layout(v))
    return [list(equal) for _, equal in itertools.groupby(range(len(places)), where)]


@LOWERINGS.of(ops.Elementwise)
def lower_elementwise(g: GpuEmitter, op: ops.Elementwise) -> list[Rep]:
    dtype = op.operands[-1].dtype  # `select` has its condition first
    return _each(g, op, lambda *xs: elementwise(g.f, op.name, dtype, *xs, **op.parameters))


@LOWERINGS.of(ops.Contractible)
def lower_contractible(g: GpuEmitter, op: ops.Contractible) -> list[Rep]:
    """Packed operations have sums, with signs of operands turned, and no differences."""
    if op.result.dtype != "f32" or not g.isa.target.is_amdgpu:
        return lower_elementwise(g, op)
    relaxed, turned = (
        op.relaxed or op.contracts,
        isinstance(op, ops.Sub) and "f32" in g.isa.target.packed,
    )

    def write(a: Value, b: Value) -> Value:
        name, b = ("add", g.f.neg(b)) if turned else (op.name, b)
        return elementwise(g.f, name, "f32", a, b, relaxed=relaxed)

    return _each(g, op, write)


@LOWERINGS.of(ops.Convert)
def lower_convert(g: GpuEmitter, op: ops.Convert) -> list[Rep]:
    source, to = (
        g.types.index.elem if d == "index" else d
        for d in (op.operands[0].dtype, op.results[0].dtype)
    )
    if op.nsz and (source, to) == ("f32", "f16") and g.isa.target.is_amdgpu:
        return _each(g, op, lambda x: g.f.cast("fptrunc nsz", x, "half"))
    return _each(g, op, lambda x: converted(g, x, source, to))


@LOWERINGS.of(ops.Bitcast)
def lower_bitcast(g: GpuEmitter, op: ops.Bitcast) -> list[Rep]:
    to = g.types.element(op.results[0].dtype)
    if op.operands[0].dtype == "index":  # of 64 bits, whatever it has here
        return _each(g, op, lambda x: g.f.int_resize(x, to, True))
    return _each(g, op, lambda x: g.f.bitcast(x, x.type.with_elem(to)))


@LOWERINGS.of(ops.Const)
def lower_const(g: GpuEmitter, op: ops.Const) -> list[Rep]:
    t, x = op.results[0].type, op.value.x
    if not t.shape:
        return [llvm.const(g.types.vector(t.dtype), x)]
    return [Positional(lambda at: llvm.const(g.types.vector(t.dtype, at.registers), x))]


@LOWERINGS.of(ops.ProgramId)
def lower_program_id(g: GpuEmitter, op: ops.ProgramId) -> list[Rep]:
    index = g.types.index.elem
    return [g.threads.at_head(lambda: g.f.int_resize(g.program, index, False))]


@LOWERINGS.of(ops.Size)
def lower_size(g: GpuEmitter, op: ops.Size) -> list[Rep]:
    return [g.f.int_resize(g.buffers.address(op.buffer), g.types.index.elem, True)]


@LOWERINGS.of(ops.Iota)
def lower_iota(g: GpuEmitter, op: ops.Iota) -> list[Rep]:
    dtype = op.results[0].dtype
    element = g.types.element(dtype)

    def count(at: Coordinates) -> Value:
        if dtype in tile.FLOATS:
            return g.f.cast("uitofp", at.axis(0), element)
        return g.f.int_resize(at.axis(0), element, False)

    return [Positional(count)]


@LOWERINGS.of(ops.DotWords)
def lower_dot_words(g: GpuEmitter, op: ops.DotWords) -> list[Rep]:
    def one(a: Value, b: Value, acc: Value) -> Value:
        if op.types == ("u8", "i8"):
            return g.isa.dot4(g.f, a, b, acc)
        return dot_words(g.f, op.types, a, b, acc)

    def product(*xs: Value) -> Value:
        registers = [[register(g.f, x, r) for x in xs] for r in range(xs[0].type.lanes or 1)]
        return joined(g.f, [one(*words) for words in registers])

    return _each(g, op, product)
