"""What a thread holds of a tile: elements as a vector, or a scalar where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.llvm import Function, Type, Value
from amdjax.codegen.pointwise import ELEMENT_TYPES, lower_pointwise


@dataclass(frozen=True, slots=True)
class Types:
    """LLVM's types of elements in a kernel.

    Args:
      index: of an index.
    """

    index: Type

    def element(self, dtype: str) -> str:
        """Of an element in registers."""
        return self.index.elem if dtype == "index" else ELEMENT_TYPES[dtype]

    def memory(self, dtype: str) -> Type:
        """Of an element in memory; booleans take a byte."""
        return Type("i8" if dtype == "bool" else self.element(dtype))

    def vector(self, dtype: str, registers: int = 1) -> Type:
        """Of `registers` elements of a thread."""
        return Type(self.element(dtype), registers if registers > 1 else 0)

    def bytes(self, dtype: str) -> int:
        """Of an element in memory."""
        return self.memory(dtype).bits // 8


def register(f: Function, x: Value, i: int) -> Value:
    """One element."""
    return f.extract(x, i) if x.type.lanes else x


def splat(f: Function, x: Value, registers: int) -> Value:
    """A scalar as many elements."""
    return f.splat(x, registers) if registers > 1 else x


def joined(f: Function, parts: Sequence[Value]) -> Value:
    """Scalars and vectors one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not any(p.type.lanes for p in parts):
        out = llvm.undef(parts[0].type.with_lanes(len(parts)))
        for i, p in enumerate(parts):
            out = f.insert(out, p, i)
        return out
    if len(parts) % 2:
        return _concatenated(f, joined(f, parts[:-1]), parts[-1])
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return joined(f, [_concatenated(f, a, b) for a, b in pairs])


def _concatenated(f: Function, a: Value, b: Value) -> Value:
    n, m = a.type.lanes, b.type.lanes
    if not m:
        b, m = f.insert(llvm.undef(b.type.with_lanes(1)), b, 0), 1
    if n != m:  # LLVM joins vectors of one length
        more = [*range(m), *[-1] * (n - m)]
        b = f.shuffle(b, None, more)
    return f.shuffle(a, b, [*range(n), *range(n, n + m)])


def elementwise(f: Function, name: str, dtype: str, *xs: Value, **attrs: Any) -> Value:
    """One elementwise op; GPUs have extrema that pass NaN on."""
    if name in ("min", "max") and dtype in tile.FLOATS:
        return f.intrinsic(name + "imum", xs[0].type, *xs)
    return lower_pointwise(f, name, dtype, *xs, **attrs)


def from_memory(f: Function, types: Types, x: Value, dtype: str) -> Value:
    """What was loaded, as elements of a dtype."""
    if dtype == "bool":
        return f.icmp("ne", x, llvm.zero(x.type))
    return f.bitcast(x, x.type.with_elem(types.element(dtype)))


def to_memory(f: Function, x: Value, dtype: str, memory: Type) -> Value:
    """Elements of a dtype, as `memory` has them."""
    if dtype == "bool":
        x = f.cast("zext", x, "i8")
    return f.bitcast(x, x.type.with_elem(memory.elem))
