"""Largest and least of several floats, NaN if any is one, where no instruction does both.

Extrema of numbers take an instruction for one more number, and one comparison asks two numbers
whether either is NaN. To have each extremum pass NaN on would take three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from amdjax.codegen import llvm
from amdjax.codegen.llvm import Function, Value


def of_numbers(f: Function, name: str, a: Value, b: Value) -> Value:
    """The `max` or `min` of numbers; anything if there is a NaN among them."""
    full = f"llvm.{name}num.{a.type.suffix}"
    f.module.declare(full, a.type, [a.type, a.type])
    return f.op(f"call nnan nsz {a.type} @{full}({a}, {b})", a.type)


def or_nan(f: Function, nan: Value, x: Value) -> Value:
    """`x`, or NaN where a condition holds."""
    return f.select(nan, llvm.const(x.type, math.nan), x)


def extremum(f: Function, name: str, xs: Sequence[Value]) -> Value:
    """The `max` or `min` of floats, NaN if any is one."""
    if len(xs) == 1:
        return xs[0]
    nans = [f.fcmp("uno", a, b) for a, b in zip(xs[::2], xs[1::2], strict=False)]
    if len(xs) % 2:
        nans.append(f.fcmp("uno", xs[-1], xs[-1]))
    while len(nans) > 1:
        pairs = [f.or_(a, b) for a, b in zip(nans[::2], nans[1::2], strict=False)]
        nans = [*pairs, *nans[len(nans) & ~1 :]]
    while len(xs) > 1:
        pairs = [of_numbers(f, name, a, b) for a, b in zip(xs[::2], xs[1::2], strict=False)]
        xs = [*pairs, *xs[len(xs) & ~1 :]]
    return or_nan(f, nans[0], xs[0])
