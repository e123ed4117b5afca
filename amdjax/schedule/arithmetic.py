"""Arithmetic of elements: tile operations on numbers, complex ones as pairs of parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax import tile
from amdjax.core import dtypes
from amdjax.core.config import config
from amdjax.passes import is_on
from amdjax.schedule.complex_math import COMPLEX_OPS
from amdjax.schedule.values import El, compute_dtype, part_dtype, short_dtype
from amdjax.tile.types import NARROW_INTS

#: Operations that read the bits of the byte above an int4 or int2, and whether as of a signed one.
_WIDENED = {"clz": "u", "popcnt": "u", "shr_logical": "u", "shr_arithmetic": "i"}


def aligned(k: tile.Builder, name: str, *xs: tile.Value, **how: Any) -> tile.Value:
    """A tile op on values, each repeated along the axes of the tile that it lacks."""
    shapes = {x.shape for x in xs if x.shape}
    if len(shapes) > 1:
        shape = np.broadcast_shapes(*shapes)
        xs = tuple([k.broadcast(x, shape) if x.shape else x for x in xs])
    return k.op(name, *xs, **how)


def _is_repeated(x: tile.Value, divisor: tile.Value) -> bool:
    """Whether several elements of `x` are divided by the same number."""
    return math.prod(divisor.shape) < math.prod(x.shape)


class Arithmetic:
    """Writes tile code for operations on elements; every tile op is a method.

    Args:
      k: where the code goes.
    """

    def __init__(self, k: tile.Builder):
        self.k = k
        self._is_relaxed = config.fast_math and is_on("relax_arithmetic")

    def const(self, x: Any, dtype: Any) -> El:
        name = dtype if isinstance(dtype, str) else short_dtype(dtype)
        if name in ("c64", "c128"):
            x = complex(x)
            part = part_dtype(name)
            return El(name, self.k.const(part, x.real), self.k.const(part, x.imag))
        if isinstance(x, np.generic) and x.dtype.kind not in "biufc":
            x = float(x) if not name.startswith(("i", "u")) else int(x)
        if compute_dtype(name) == "f32" and name != "f32":  # the number as that dtype holds it
            x = float(np.asarray(x).astype(dtypes.dtype_from_short_name(name)))
        return El(name, self.k.const(compute_dtype(name), x))

    def op(self, name: str, *xs: El) -> El:
        """A tile op on elements of one dtype."""
        name = name.rstrip("_")
        if name == "select":
            return self.select(*xs)
        if name == "compare":
            raise TypeError("call b.compare(predicate, x, y)")
        if any([x.is_complex for x in xs]):
            return COMPLEX_OPS[name](self, *xs)
        dtype = xs[-1].dtype
        rounded = dtype if dtype in ("f16", "bf16") and name in tile.NARROW else ""
        values = [x.value for x in xs]
        narrow = dtype in NARROW_INTS and name in _WIDENED
        if narrow:
            values = [self._within(_WIDENED[name] + dtype[1:], v) for v in values]
        relaxed = self._is_relaxed and name in tile.RELAXED and values[-1].dtype in tile.FLOATS
        if relaxed and name == "div" and _is_repeated(*values):
            one = self.k.const(values[1].dtype, 1.0)
            values[1], name = aligned(self.k, "div", one, values[1]), "mul"
        value = aligned(self.k, name, *values, rounded=rounded, relaxed=relaxed and not rounded)
        if value.dtype == "bool":
            return El("bool", value)
        if narrow and name == "clz":  # of the byte, less the bits that are no part of the integer
            value = aligned(self.k, "sub", value, self.k.const(value.dtype, 8 - int(dtype[1:])))
        return self._wrap(dtype, value)

    def __getattr__(self, name: str) -> Callable[..., El]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *xs: self.op(name, *xs)

    def _wrap(self, dtype: str, value: tile.Value) -> El:
        """Integers narrower than their register keep to their width."""
        return El(dtype, self._within(dtype, value) if dtype in NARROW_INTS else value)

    def _within(self, dtype: str, value: tile.Value) -> tile.Value:
        """What the lowest bits of a value mean as an integer narrower than its register."""
        return self.k.convert(self.k.convert(value, dtype), compute_dtype(dtype))

    def compare(self, predicate: str, x: El, y: El) -> El:
        return self.op(predicate, x, y)

    def select(self, cond: El, a: El, b: El) -> El:
        if a.is_complex or b.is_complex:
            pairs = zip(a.parts, b.parts, strict=True)
            return El(a.dtype, *(self._select(cond.value, x, y) for x, y in pairs))
        return El(a.dtype, self._select(cond.value, a.value, b.value))

    def _select(self, cond: tile.Value, a: tile.Value, b: tile.Value) -> tile.Value:
        if a is b:
            return a
        return aligned(self.k, "select", cond, a, b)

    def convert(self, x: El, dtype: Any) -> El:
        """Convert; to a narrow dtype this rounds to what that dtype can hold."""
        name = dtype if isinstance(dtype, str) else short_dtype(dtype)
        if x.dtype == name:
            return x
        if name in ("c64", "c128"):
            part = part_dtype(name)
            real, imag = (x.parts[0], x.parts[1]) if x.is_complex else (x.value, None)
            re = self.convert(El(part_dtype(x.dtype), real), part).value
            im = (
                self.k.const(part, 0.0)
                if imag is None
                else self.convert(El(part_dtype(x.dtype), imag), part).value
            )
            return El(name, re, im)
        if x.is_complex:
            if name == "bool":
                zero = self.const(0, x.dtype)
                return self.ne(x, zero)
            return self.convert(El(part_dtype(x.dtype), x.parts[0]), name)
        return self.rounded(El(name, x.value))

    def rounded(self, x: El) -> El:
        """What the dtype of an element can hold of its value."""
        narrow = self.k.convert(x.value, x.dtype)
        return El(x.dtype, self.k.convert(narrow, compute_dtype(x.dtype)))

    def bitcast(self, x: El, dtype: Any) -> El:
        """Reinterpret the bits of an element as another dtype of the same width."""
        name = dtype if isinstance(dtype, str) else short_dtype(dtype)
        bits = self.k.bitcast(self.k.convert(x.value, x.dtype), name)
        return El(name, self.k.convert(bits, compute_dtype(name)))

    def real(self, x: El) -> El:
        return El(part_dtype(x.dtype), x.parts[0])

    def imag(self, x: El) -> El:
        if not x.is_complex:
            return self.const(0, x.dtype)
        return El(part_dtype(x.dtype), x.parts[1])

    def complex(self, re: El, im: El) -> El:
        return El("c64" if re.dtype == "f32" else "c128", re.value, im.value)
