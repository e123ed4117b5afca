"""Complex arithmetic as formulas over real and imaginary parts.

`COMPLEX_OPS[name](b, *values)` is the tile op `name` for complex elements; `b` is the element
builder. Formulas avoid overflow in intermediate results where the plain ones would meet it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Builder = Any
Elem = Any


def _add(b: Builder, x: Elem, y: Elem) -> Elem:
    return b.complex(b.add(b.real(x), b.real(y)), b.add(b.imag(x), b.imag(y)))


def _sub(b: Builder, x: Elem, y: Elem) -> Elem:
    return b.complex(b.sub(b.real(x), b.real(y)), b.sub(b.imag(x), b.imag(y)))


def _mul(b: Builder, x: Elem, y: Elem) -> Elem:
    a, c, d, e = b.real(x), b.imag(x), b.real(y), b.imag(y)
    return b.complex(b.sub(b.mul(a, d), b.mul(c, e)), b.add(b.mul(a, e), b.mul(c, d)))


def _neg(b: Builder, x: Elem) -> Elem:
    return b.complex(b.neg(b.real(x)), b.neg(b.imag(x)))


def _equal(b: Builder, x: Elem, y: Elem) -> Elem:
    return b.and_(b.eq(b.real(x), b.real(y)), b.eq(b.imag(x), b.imag(y)))


def _differ(b: Builder, x: Elem, y: Elem) -> Elem:
    return b.or_(b.ne(b.real(x), b.real(y)), b.ne(b.imag(x), b.imag(y)))


COMPLEX_OPS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "neg": _neg,
    "eq": _equal,
    "ne": _differ,
}
