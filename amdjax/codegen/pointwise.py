"""Elementwise tile ops as LLVM instructions, the same for every target.

One vector in, one vector out. Semantics that the hardware leaves open are fixed here: division by
zero, shifts past the width, conversions out of range, the order of zeros in `min` and `max`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from amdjax.codegen import llvm
from amdjax.codegen.llvm import Function, Value
from amdjax.codegen.math import CONVERSIONS, MATH, NARROW, RELAXED
from amdjax.codegen.math.expr import Expr, copysign
from amdjax.tile.types import NARROW_INTS

#: LLVM element type in registers. Narrow floats without arithmetic travel as their bits.
ELEMENT_TYPES = {
    "bool": "i1", "index": "i64",
    **{f"{s}{n}": f"i{n}" for s in "iu" for n in (8, 16, 32, 64)},
    **dict.fromkeys(NARROW_INTS, "i8"),
    "f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double",
    **dict.fromkeys(
        ("f8_e4m3fn", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e4m3b11fnuz", "f8_e4m3",
         "f8_e3m4", "f8_e8m0fnu"), "i8",
    ),
    **dict.fromkeys(("f4_e2m1fn", "f6_e2m3fn", "f6_e3m2fn"), "i8"),
}  # fmt: skip

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
SIGNED = frozenset({"i1", "i2", "i4", "i8", "i16", "i32", "i64", "index"})

_INT_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def lower_pointwise(
    f: Function,
    name: str,
    dtype: str,
    *xs: Value,
    rounded: str = "",
    relaxed: bool = False,
    **attrs: Any,
) -> Value:
    """One elementwise op on operands of `dtype` (the dtype of the last operand).

    `rounded` is the dtype of 16 bits that the result is computed for, `relaxed` says that larger
    errors are allowed, see `tile.Builder.op`.
    """
    if rounded and f.module.estimates:
        return NARROW[name](f, *xs, rounded)
    if relaxed:
        return _RELAXED_RULES[name](f, *xs)
    if name == "select":
        return f.select(*xs)
    if name in _INT_COMPARE:
        return _compare(f, name, dtype, *xs)
    if dtype in FLOATS:
        rule = _FLOAT_RULES.get(name) or MATH.get(name)
    elif dtype == "bool":
        rule = _BOOL_RULES.get(name)
    else:
        rule = _int_rule(name, dtype)
    if rule is None:
        raise NotImplementedError(f"tile op {name!r} has no lowering for {dtype}")
    return rule(f, *xs, **attrs)


def dot_words(f: Function, types: tuple[str, str], a: Value, b: Value, acc: Value) -> Value:
    """What `ops.DotWords` is where no instruction does it: four bytes, or two of 16 bits."""
    words, total = a.type, acc.type
    if types[0] == "i16":
        half = llvm.const(words, 16)
        for lower in (lambda x: f.ashr(f.shl(x, half), half), lambda x: f.ashr(x, half)):
            acc = f.add(acc, f.mul(lower(a), lower(b)))
        return acc
    if types[0] == "bf16":
        shift, upper = llvm.const(words, 16), llvm.const(words, 0xFFFF0000)
        for part in (lambda x: f.and_(x, upper), lambda x: f.shl(x, shift)):
            acc = f.fma(f.bitcast(part(a), total), f.bitcast(part(b), total), acc)
        return acc
    for byte in range(4):
        up, down = llvm.const(words, 24 - 8 * byte), llvm.const(words, 24)
        x, y = f.lshr(f.shl(a, up), down), f.ashr(f.shl(b, up), down)
        acc = f.add(acc, f.mul(x, y))
    return acc


def _compare(f: Function, name: str, dtype: str, a: Value, b: Value) -> Value:
    if dtype in FLOATS:
        return f.fcmp(_FLOAT_COMPARE[name], a, b)
    if name in ("eq", "ne"):
        return f.icmp(name, a, b)
    return f.icmp(("s" if dtype in SIGNED else "u") + name, a, b)


def _overloaded(name: str) -> Callable[..., Value]:
    return lambda f, *xs: f.intrinsic(name, xs[0].type, *xs)


def _with_flag(name: str) -> Callable[[Function, Value], Value]:
    """Intrinsics whose second operand says that zero (or the minimum) is not poison."""

    def rule(f: Function, x: Value) -> Value:
        full = f"llvm.{name}.{x.type.suffix}"
        return f.call(full, x.type, x, llvm.const(llvm.I1, False))

    return rule


def _is_finite(f: Function, x: Value) -> Value:
    magnitude = f.intrinsic("fabs", x.type, x)
    return f.fcmp("olt", magnitude, llvm.const(x.type, float("inf")))


def _copysign(f: Function, magnitude: Value, sign: Value) -> Value:
    return copysign(Expr(f, magnitude), Expr(f, sign)).value


def _extremum(predicate: str) -> Callable[[Function, Value, Value], Value]:
    """The greater or lesser operand, NaN if either is one.

    Selecting both ways round gives the same number twice, or a NaN once: their bits joined are the
    result. That is three instructions without masks. Beside a constant one of them is enough, which
    selects the other operand where that is NaN. Zeros are not ordered by sign.
    """

    def rule(f: Function, a: Value, b: Value) -> Value:
        for x, number in ((a, b), (b, a)):
            if llvm.is_number(number):
                return f.select(f.fcmp(predicate, number, x), number, x)
        bits = a.type.with_elem(f"i{a.type.bits}")
        one = f.bitcast(f.select(f.fcmp(predicate, a, b), a, b), bits)
        other = f.bitcast(f.select(f.fcmp(predicate, b, a), b, a), bits)
        return f.bitcast(f.or_(one, other), a.type)

    return rule


_FLOAT_RULES: dict[str, Callable[..., Value]] = {
    "add": Function.add, "sub": Function.sub, "mul": Function.mul, "div": Function.fdiv,
    "neg": Function.neg, "abs": _overloaded("fabs"), "fma": Function.fma,
    "min": _extremum("olt"), "max": _extremum("ogt"),
    "is_finite": _is_finite, "copysign": _copysign,
}  # fmt: skip


def _contracted(op: str) -> Callable[[Function, Value, Value], Value]:
    """An operation that LLVM may join with others to `fma`."""
    return lambda f, a, b: f.op(f"{op} contract {a}, {b.ref}", a.type)


_RELAXED_RULES: dict[str, Callable[..., Value]] = {
    "add": _contracted("fadd"), "sub": _contracted("fsub"), "mul": _contracted("fmul"), **RELAXED,
}  # fmt: skip

_BOOL_RULES: dict[str, Callable[..., Value]] = {
    "and": Function.and_, "or": Function.or_, "xor": Function.xor, "not": Function.not_,
    "min": Function.and_, "max": Function.or_, "mul": Function.and_, "add": Function.or_,
}  # fmt: skip


def _divide(signed: bool, remainder: bool) -> Callable[..., Value]:
    """`x / 0 == -1`, `x rem 0 == x`, and the one signed overflow wraps."""

    def rule(f: Function, a: Value, b: Value) -> Value:
        zero = f.icmp("eq", b, llvm.zero(b.type))
        unsafe = zero
        if signed:
            lowest = f.icmp("eq", a, llvm.const(a.type, 1 << (a.type.bits - 1)))
            minus = f.icmp("eq", b, llvm.const(b.type, -1))
            unsafe = f.or_(zero, f.and_(lowest, minus))
        divisor = f.select(unsafe, llvm.const(b.type, 1), b)
        if remainder:
            rest = f.srem(a, divisor) if signed else f.urem(a, divisor)
            return f.select(zero, a, rest)
        quotient = f.sdiv(a, divisor) if signed else f.udiv(a, divisor)
        return f.select(zero, llvm.const(a.type, -1), quotient)

    return rule


def _shift(kind: str) -> Callable[..., Value]:
    """Shifts by the width or more give 0, or copies of the sign bit."""

    def rule(f: Function, a: Value, b: Value) -> Value:
        width = llvm.const(b.type, a.type.bits)
        inside = f.icmp("ult", b, width)
        if kind == "ashr":
            return f.ashr(a, f.select(inside, b, llvm.const(b.type, a.type.bits - 1)))
        shifted = (f.shl if kind == "shl" else f.lshr)(a, f.select(inside, b, llvm.zero(b.type)))
        return f.select(inside, shifted, llvm.zero(a.type))

    return rule


def _int_sign(signed: bool) -> Callable[[Function, Value], Value]:
    def rule(f: Function, x: Value) -> Value:
        zero = llvm.zero(x.type)
        positive = f.cast("zext", f.icmp("sgt" if signed else "ne", x, zero), x.type.elem)
        if not signed:
            return positive
        return f.sub(positive, f.cast("zext", f.icmp("slt", x, zero), x.type.elem))

    return rule


def _index_rules() -> dict[str, Callable[..., Value]]:
    """Index arithmetic is the compiler's own: no zero divisors, no wide shifts."""
    return {"div": Function.sdiv, "rem": Function.srem, "shl": Function.shl,
            "shr_logical": Function.lshr, "shr_arithmetic": Function.ashr}  # fmt: skip


#: Of index arithmetic: what it makes of numbers, and the last operand that changes nothing.
_OF_NUMBERS: dict[str, Callable[..., int]] = {
    "neg": operator.neg, "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "min": min, "max": max,
}  # fmt: skip
_OF_COUNTS: dict[str, Callable[..., int]] = {"div": operator.floordiv, "rem": operator.mod}
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1}


def folded(name: str, xs: Sequence[Value]) -> Value | None:
    """The number or the operand that an operation on indices gives, where it is one."""
    numbers = [llvm.integer(x) for x in xs]
    last, known = numbers[-1], [n for n in numbers if n is not None]
    if last is None:
        return folded(name, xs[::-1]) if known and name in ("add", "mul") else None
    rule = _OF_NUMBERS.get(name) or (_OF_COUNTS.get(name) if known[0] >= 0 < last else None)
    if rule is not None and len(known) == len(xs):
        return llvm.const(llvm.I64, rule(*known))
    if last == _NEUTRAL.get(name):
        return xs[0]
    zero = (name == "mul" and last == 0) or (name == "rem" and last == 1)
    return llvm.const(llvm.I64, 0) if zero else None


def _int_rules(signed: bool) -> dict[str, Callable[..., Value]]:
    s = "s" if signed else "u"
    return {
        "add": Function.add, "sub": Function.sub, "mul": Function.mul, "neg": Function.neg,
        "div": _divide(signed, False), "rem": _divide(signed, True),
        "abs": _with_flag("abs") if signed else lambda f, x: x,
        "sign": _int_sign(signed),
        "min": _overloaded(s + "min"), "max": _overloaded(s + "max"),
        "and": Function.and_, "or": Function.or_, "xor": Function.xor, "not": Function.not_,
        "shl": _shift("shl"), "shr_logical": _shift("lshr"), "shr_arithmetic": _shift("ashr"),
        "clz": _with_flag("ctlz"), "popcnt": _overloaded("ctpop"),
    }  # fmt: skip


_SIGNED_RULES, _UNSIGNED_RULES, _INDEX_RULES = _int_rules(True), _int_rules(False), _index_rules()


def _int_rule(name: str, dtype: str) -> Callable[..., Value] | None:
    if dtype == "index" and name in _INDEX_RULES:
        return _INDEX_RULES[name]
    return (_SIGNED_RULES if dtype in SIGNED else _UNSIGNED_RULES).get(name)


def lower_convert(f: Function, x: Value, source: str, target: str) -> Value:
    """Convert between tile dtypes: floats round to nearest even, floats to integers saturate."""
    if source == target:
        return x
    if source in NARROW_INTS:  # in memory the bits above the lowest ones mean nothing
        x, source = _extend(f, x, source), "i8" if source in SIGNED else "u8"
        if source == target:
            return x
    if (source, target) in CONVERSIONS:
        return CONVERSIONS[source, target](f, x)
    if target == "bool":
        if source in FLOATS:
            return f.fcmp("une", x, llvm.zero(x.type))
        return f.icmp("ne", x, llvm.zero(x.type))
    if source in FLOATS and target in FLOATS:
        if "bf16" in (source, target) or {source, target} == {"f16", "f64"}:
            return lower_convert(f, lower_convert(f, x, source, "f32"), "f32", target)
        wider = int(target[1:]) > int(source[1:])
        return f.cast("fpext" if wider else "fptrunc", x, ELEMENT_TYPES[target])
    if source == "bool" and target not in FLOATS and not target.startswith("f"):
        return f.cast("zext", x, ELEMENT_TYPES[target])
    if source in FLOATS or target in FLOATS:
        return _between_float_and_int(f, x, source, target)
    if source.startswith("f") or target.startswith("f"):  # narrow floats go through f32
        return lower_convert(f, lower_convert(f, x, source, "f32"), "f32", target)
    return _int_to_int(f, x, source, target)


def _extend(f: Function, x: Value, dtype: str) -> Value:
    """An int4 or int2 extended to the byte it lives in."""
    up = llvm.const(x.type, 8 - NARROW_INTS[dtype])
    return (f.ashr if dtype in SIGNED else f.lshr)(f.shl(x, up), up)


def _int_to_int(f: Function, x: Value, source: str, target: str) -> Value:
    x = f.int_resize(x, ELEMENT_TYPES[target], source in SIGNED)
    return _extend(f, x, target) if target in NARROW_INTS else x


def _between_float_and_int(f: Function, x: Value, source: str, target: str) -> Value:
    if source in FLOATS:
        if source in ("f16", "bf16"):
            return lower_convert(f, lower_convert(f, x, source, "f32"), "f32", target)
        if not (target in SIGNED or target.startswith("u")):  # a narrow float
            return lower_convert(f, lower_convert(f, x, source, "f32"), "f32", target)
        bits = int(target[1:]) if target != "index" else 64
        name = "fptosi.sat" if target in SIGNED else "fptoui.sat"
        wide = x.type.with_elem(f"i{max(bits, 8)}")
        converted = f.intrinsic(name, wide, x, overload=[wide, x.type])
        if bits < 8:
            low, high = (
                (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
                if target in SIGNED
                else (0, (1 << bits) - 1)
            )
            s = "s" if target in SIGNED else "u"
            converted = f.intrinsic(s + "max", wide, converted, llvm.const(wide, low))
            converted = f.intrinsic(s + "min", wide, converted, llvm.const(wide, high))
        return converted
    if target in ("f16", "bf16"):
        middle = "f64" if source in ("i64", "u64", "index") else "f32"
        return lower_convert(f, lower_convert(f, x, source, middle), middle, target)
    if source.startswith("f"):
        return lower_convert(f, lower_convert(f, x, source, "f32"), "f32", target)
    return f.cast("sitofp" if source in SIGNED else "uitofp", x, ELEMENT_TYPES[target])
