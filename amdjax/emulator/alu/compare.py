"""What comparisons of vector instructions compute: one bit a lane."""

from __future__ import annotations

from collections.abc import Callable

from amdjax.codegen.llvm import Type, Value
from amdjax.emulator.alu.valu import define
from amdjax.emulator.builder import Lanes

_INT_PREDICATES = {"lt": "lt", "eq": "eq", "le": "le", "gt": "gt", "ne": "ne", "ge": "ge"}
FLOAT_PREDICATES = {
    "lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge", "o": "ord",
    "u": "uno", "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge",
}  # fmt: skip


def compare_int(condition: str, signed: bool) -> Callable[..., Value]:
    predicate = _INT_PREDICATES[condition]
    if predicate not in ("eq", "ne"):
        predicate = ("s" if signed else "u") + predicate
    return lambda h, a, b: h.f.icmp(predicate, a, b)


def compare_float(condition: str) -> Callable[..., Value]:
    return lambda h, a, b: h.f.fcmp(FLOAT_PREDICATES[condition], a, b)


def compare_class(h: Lanes, x: Value, classes: Value) -> Value:
    """Whether x is of one of the classes set in a mask of ten bits."""
    f = h.f
    classes = f.int_resize(classes, "i32", False)
    found = h.const("i1", False)
    # AMD's bits and LLVM's is.fpclass have the same order: sNaN, qNaN, -inf, -normal, …, +inf.
    for bit in range(10):
        name = f"llvm.is.fpclass.{x.type.suffix}"
        result = x.type.with_elem("i1")
        f.module.declare(name, result, [x.type, Type("i32")])
        member = f.op(f"call {result} @{name}({x}, i32 {1 << bit})", result)
        wanted = f.icmp("ne", f.and_(classes, h.like(classes, 1 << bit)), h.like(classes, 0))
        found = f.or_(found, f.and_(member, wanted))
    return found


for _prefix in ("v_cmp", "v_cmpx"):
    for _t in ("i16", "u16", "i32", "u32", "i64", "u64"):
        for _c in _INT_PREDICATES:
            define(f"{_prefix}_{_c}_{_t}", f"mask {_t} {_t}", compare_int(_c, _t[0] == "i"))
        define(f"{_prefix}_f_{_t}", f"mask {_t} {_t}", lambda h, a, b: h.const("i1", False))
        define(f"{_prefix}_t_{_t}", f"mask {_t} {_t}", lambda h, a, b: h.const("i1", True))
    for _t in ("f16", "f32", "f64"):
        for _c in FLOAT_PREDICATES:
            define(f"{_prefix}_{_c}_{_t}", f"mask {_t} {_t}", compare_float(_c))
        define(f"{_prefix}_f_{_t}", f"mask {_t} {_t}", lambda h, a, b: h.const("i1", False))
        define(f"{_prefix}_tru_{_t} {_prefix}_t_{_t}", f"mask {_t} {_t}",
               lambda h, a, b: h.const("i1", True))  # fmt: skip
        define(f"{_prefix}_class_{_t}", f"mask {_t} {'b16' if _t == 'f16' else 'b32'}",
               compare_class)  # fmt: skip
