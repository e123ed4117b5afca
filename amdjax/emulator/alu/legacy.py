"""Multiply-adds of older instruction sets, and those with DirectX 9's zero.

`v_mad` rounds the product before it adds. Those of f32 know no denormals, whatever the mode.
"""

from __future__ import annotations

from collections.abc import Callable

from amdjax.codegen.llvm import Value
from amdjax.emulator.alu import valu, valu_float
from amdjax.emulator.builder import Lanes


def mad(h: Lanes, a: Value, b: Value, c: Value) -> Value:
    """The product is rounded to the operands' type."""
    return h.f.add(h.f.mul(a, b), c)


def flushing(compute: Callable[..., Value]) -> Callable[..., Value]:
    """Denormal operands, product and sum are zero."""

    def wrapped(h: Lanes, a: Value, b: Value, c: Value) -> Value:
        a, b, c = (valu_float.flush(h, x) for x in (a, b, c))
        return valu_float.flush(h, h.f.add(valu_float.flush(h, compute(h, a, b)), c))

    return wrapped


def zero_wins(compute: Callable[..., Value]) -> Callable[..., Value]:
    """DirectX 9: the product is zero if one operand is, whatever the other; a sum is then c."""

    def wrapped(h: Lanes, a: Value, b: Value, *c: Value) -> Value:
        f = h.f
        either = f.or_(f.fcmp("oeq", a, h.like(a, 0.0)), f.fcmp("oeq", b, h.like(b, 0.0)))
        return f.select(either, c[0] if c else h.like(a, 0.0), compute(h, a, b, *c))

    return wrapped


def product(h: Lanes, a: Value, b: Value) -> Value:
    return h.f.mul(a, b)


for _names in ("v_mad_f32", "v_mac_f32", "v_madmk_f32", "v_madak_f32"):
    valu.define(_names, "f32 f32 f32 f32", flushing(product))
for _names in ("v_mad_f16", "v_mac_f16", "v_madmk_f16", "v_madak_f16"):
    valu.define(_names, "f16 f16 f16 f16", mad)
valu.define("v_mul_legacy_f32", "f32 f32 f32", zero_wins(product))
valu.define("v_mad_legacy_f32", "f32 f32 f32 f32", flushing(zero_wins(product)))
valu.define("v_fma_dx9_zero_f32 v_fmac_dx9_zero_f32", "f32 f32 f32 f32", zero_wins(valu_float.fma))
valu.ALIASES |= {
    "v_mul_dx9_zero_f32": "v_mul_legacy_f32", "v_fma_legacy_f32": "v_fma_dx9_zero_f32",
    "v_fmac_legacy_f32": "v_fmac_dx9_zero_f32", "v_exp_legacy_f32": "v_exp_f32",
    "v_log_legacy_f32": "v_log_f32",
    # Of the two forms of an f16 operation on CDNA this is the one that clears the other half.
    "v_mad_legacy_f16": "v_mad_f16", "v_mad_legacy_u16": "v_mad_u16",
    "v_mad_legacy_i16": "v_mad_i16", "v_fma_legacy_f16": "v_fma_f16",
    "v_div_fixup_legacy_f16": "v_div_fixup_f16",
}  # fmt: skip
