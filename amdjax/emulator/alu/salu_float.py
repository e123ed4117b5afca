"""Float arithmetic in scalar registers (RDNA3.5 and RDNA4), and 64-bit scalar integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.codegen.llvm import Value
from amdjax.emulator.alu import compare, valu, valu_float
from amdjax.emulator.alu.salu import define
from amdjax.emulator.builder import Lanes

_fn: Callable[..., Any]  # of the tables below


def into_scc(predicate: str) -> Callable[..., tuple[Value, Value]]:
    """A comparison whose only result is SCC."""
    return lambda h, a, b: (a, h.f.fcmp(predicate, a, b))


def high_half(h: Lanes, x: Value) -> Value:
    f = h.f
    half = f.cast("trunc", f.lshr(x, h.like(x, 16)), "i16")
    return f.cast("fpext", f.bitcast(half, half.type.with_elem("half")), "float")


for _t in ("f16", "f32"):
    for _name, _fn in {
        "add": lambda h, a, b: h.f.add(a, b), "sub": lambda h, a, b: h.f.sub(a, b),
        "mul": lambda h, a, b: h.f.mul(a, b), "min": valu_float.fmin, "max": valu_float.fmax,
        "min_num": valu_float.fmin, "max_num": valu_float.fmax, "minimum": valu_float.minimum,
        "maximum": valu_float.maximum,
    }.items():  # fmt: skip
        define(f"s_{_name}_{_t}", f"{_t} {_t} {_t}", _fn)
    for _name in ("fmac", "fmamk", "fmaak"):
        define(f"s_{_name}_{_t}", f"{_t} {_t} {_t} {_t}", valu_float.fma)
    for _name in ("ceil", "floor", "trunc"):
        define(f"s_{_name}_{_t}", f"{_t} {_t}", valu_float.rounding(_name))
    define(f"s_rndne_{_t}", f"{_t} {_t}", valu_float.rounding("roundeven"))
    for _c, _p in compare.FLOAT_PREDICATES.items():
        define(f"s_cmp_{_c}_{_t}", f"- {_t} {_t}", into_scc(_p))
    # One lane's worth of the transcendental unit, on scalar registers.
    for _name in ("exp", "log", "rcp", "rsq", "sqrt"):
        valu.define(f"v_s_{_name}_{_t}", f"{_t} {_t}", valu.OPERATIONS[f"v_{_name}_{_t}"].compute)

for _names, _types, _fn in (
    ("s_cvt_f32_i32", "f32 i32", valu_float.from_int("sitofp", "float")),
    ("s_cvt_f32_u32", "f32 u32", valu_float.from_int("uitofp", "float")),
    ("s_cvt_i32_f32", "i32 f32", valu_float.to_int(True, "i32")),
    ("s_cvt_u32_f32", "u32 f32", valu_float.to_int(False, "i32")),
    ("s_cvt_f16_f32", "f16 f32", valu_float.cast("fptrunc", "half")),
    ("s_cvt_f32_f16", "f32 f16", valu_float.cast("fpext", "float")),
    ("s_cvt_hi_f32_f16", "f32 b32", high_half),
    ("s_cvt_pk_rtz_f16_f32", "b32 f32 f32", valu_float.pack_converted(valu_float.round_to_zero16)),
    ("s_add_nc_u64 s_add_u64", "u64 u64 u64", lambda h, a, b: h.f.add(a, b)),
    ("s_sub_nc_u64 s_sub_u64", "u64 u64 u64", lambda h, a, b: h.f.sub(a, b)),
    ("s_mul_u64", "u64 u64 u64", lambda h, a, b: h.f.mul(a, b)),
):
    define(_names, _types, _fn)
