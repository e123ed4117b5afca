"""Tile programs of contractions while they are written: sizes, buffers, loops within one index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax import tile
from amdjax.kernels.products.contraction import Axis
from amdjax.kernels.shaped import Call, ShapedContext

Value = tile.Value


class Program:
    """A kernel being written.

    Args:
      runtime: sizes are parameters of the launch, so that other sizes share the machine code.
    """

    def __init__(self, ctx: ShapedContext, name: str, *, runtime: bool = False):
        self.kernel = ctx.kernel(name)
        self.k = self.kernel.k
        self.ctx, self.runtime = ctx, runtime
        self._numbers: dict[str, Value] = {}

    def num(self, name: str, x: int) -> Value:
        """A size: a constant, or the parameter of that name."""
        return self.param(name, x) if self.runtime else self.k.const("index", x)

    def param(self, name: str, x: int) -> Value:
        """The parameter of that name, which must first be named outside all blocks."""
        if name not in self._numbers:
            size = self.k.param(name, "index", "size")
            self.kernel.args.append(x)
            self._numbers[name] = self.k.size(size)
        return self._numbers[name]

    def declare(self, numbers: dict[str, int]) -> None:
        """Name sizes before any block is entered, where all code sees them."""
        for name, x in numbers.items():
            self.num(name, x)

    def buffer(self, owner: Any, dtype: str, role: str = "in") -> tile.Buffer:
        """The parameter of `owner`, seen as memory of `dtype`."""
        get = {"in": self.kernel.input, "out": self.kernel.output, "inout": self.kernel.inout}[role]
        found = get(owner)
        return tile.Buffer(found.name, dtype, found.role, found.size)

    def launch(self, grid: int, nanoseconds: float) -> Call:
        return self.kernel.launch(grid, nanoseconds)

    def split(self, index: Value, name: str, axes: Sequence[Axis]) -> list[Value]:
        """The place along each of several loops that `index` counts through."""
        digits: list[Value] = []
        for i in range(len(axes) - 1, 0, -1):
            n = self._like(self.num(f"{name}{i}.extent", axes[i].extent), index)
            digits.insert(0, index % n)
            index = index // n
        return [index, *digits] if axes else []

    def _like(self, n: Value, index: Value) -> Value:
        """A size in the type of a tile of indices; tiles divide in 32 bits."""
        return self.k.convert(n, "u32") if index.dtype == "u32" else n

    def less(self, a: Value, b: Value) -> Value:
        return a < b
