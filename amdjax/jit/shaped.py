"""What a shaped kernel is given, and what it gives back.

A kernel family registers a function under the name its primitive's `Shaped` rule carries:

    @shaped("dot_general")
    def lower(ctx: ShapedContext) -> list[Call | Copy]: ...

It reads the equation from `ctx.eqn`, builds tile programs with `ctx.kernel(name)`, and returns the
launches in order; workspace between them is `Temp(dtype, size)`. Results computed tile by tile go
through `kernel.writer(...)`, which also computes whatever was fused behind the equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.jit import tile
from amdjax.jit.element import El, ElementBuilder, Lanes, compute_dtype, short_dtype
from amdjax.jit.index import Index, LoopVar, delinear, linear
from amdjax.jit.schedule import Call, Copy, Temp
from amdjax.targets.cpu import CpuTarget

__all__ = ["SHAPED", "Call", "Copy", "ShapedContext", "ShapedKernel", "Temp", "TileWriter", "shaped"]

Lower = Callable[["ShapedContext"], "list[Call | Copy]"]
SHAPED: dict[str, Lower] = {}


def shaped(name: str) -> Callable[[Lower], Lower]:
    """Register the kernels of the primitives whose lowering is `Shaped(name)`."""

    def register(fn: Lower) -> Lower:
        SHAPED[name] = fn
        return fn

    return register


@dataclass
class Epilogue:
    """Elementwise work fused behind a shaped kernel: values to store instead of its result.

    Args:
      stored: the variables to write, all of the result's shape.
      producers: equations that compute them from the result and from memory.
    """

    stored: list[Var]
    producers: dict[Var, JaxprEqn]


@dataclass
class ShapedContext:
    """One equation to lower.

    Args:
      eqn: the equation.
      target: the machine.
      epilogue: what is fused behind its (single) result, if anything.
    """

    eqn: JaxprEqn
    target: CpuTarget
    epilogue: Epilogue | None = None

    @property
    def params(self) -> dict[str, Any]:
        return self.eqn.params

    @property
    def inputs(self) -> list[Any]:
        return list(self.eqn.invars)

    @property
    def outputs(self) -> list[Var]:
        return list(self.eqn.outvars)

    def kernel(self, name: str) -> ShapedKernel:
        """Begin a kernel."""
        return ShapedKernel(self, name)


class ShapedKernel:
    """A tile program being written, together with the arguments of its launch."""

    def __init__(self, ctx: ShapedContext, name: str):
        self.ctx = ctx
        self.k = tile.Builder(name)
        self.args: list[Any] = []
        self._buffers: dict[Any, tile.Buffer] = {}

    def input(self, owner: Var | Literal | Temp) -> tile.Buffer:
        """The parameter through which an operand or workspace is read."""
        return self._param(owner, "in")

    def output(self, owner: Var | Temp) -> tile.Buffer:
        """The parameter through which a result or workspace is written."""
        return self._param(owner, "out")

    def inout(self, owner: Var | Temp) -> tile.Buffer:
        """A parameter that is read and written."""
        return self._param(owner, "inout")

    def _param(self, owner: Any, role: str) -> tile.Buffer:
        found = self._buffers.get(owner)
        if found is None:
            dtype = owner.dtype if isinstance(owner, Temp) else short_dtype(owner.aval.dtype)
            found = self._buffers[owner] = self.k.param(f"p{len(self.args)}", dtype, role)
            self.args.append(owner)
        return found

    def writer(self, shape: Sequence[int]) -> TileWriter:
        """Writes tiles of the equation's first result, seen as an array (batch…, rows, columns)."""
        return TileWriter(self, tuple(shape))

    def launch(self, grid: int, nanoseconds: float) -> Call:
        """The finished kernel as a launch of `grid` programs taking that long on one thread."""
        return Call(self.k.finish(grid), self.args, grid, nanoseconds)


@dataclass
class TileWriter:
    """Stores tiles of a result, after the fused epilogue.

    Args:
      kernel: the kernel that computes the tiles.
      shape: the result seen as (batch, rows, columns), row-major in memory.
    """

    kernel: ShapedKernel
    shape: tuple[int, ...]
    _plain: tile.Buffer | None = field(default=None, init=False)

    def store(self, batch: tile.Value | int, row: tile.Value, column: tile.Value, value: tile.Value,
              row_mask: tile.Value | None = None, column_mask: tile.Value | None = None) -> None:
        """Store a (rows, columns) tile, or a row of lanes, whose first element is at the position.

        Args:
          batch: position along the batch axis.
          row: first row.
          column: first column.
          value: tile of rank 2, or of rank 1 for lanes along the columns.
          row_mask: which rows exist, a rank-1 bool tile; None for all.
          column_mask: which columns exist, likewise.
        """
        k, (_, rows, columns) = self.kernel.k, self.shape
        out = self.kernel.ctx.outputs[0]
        b = ElementBuilder(k, {}, self.kernel.input)
        # A loop of one step would fold to a constant, but a wider tile still has lanes along it.
        high, wide = (*value.shape, 1, 1)[:2] if len(value.shape) == 2 else (1, *value.shape, 1)[:2]
        batch_var = LoopVar("b", self.shape[0])
        row_var = LoopVar("r", max(rows, min(high, 2)))
        column_var = LoopVar("c", max(columns, min(wide, 2)))
        b.scalars[batch_var] = k.index(batch)
        if len(value.shape) == 2:
            b.lanes = [
                Lanes(row_var, value.shape[0], 0, row, None if row_mask is None else k.expand(row_mask, 1)),
                Lanes(column_var, value.shape[1], 1, column, None if column_mask is None else k.expand(column_mask, 0)),
            ]
        else:
            b.scalars[row_var] = row
            b.lanes = [Lanes(column_var, value.shape[0], 0, column, column_mask)] if value.shape else []
            if not value.shape:
                b.scalars[column_var] = column
        position = linear((Index.of(batch_var), Index.of(row_var), Index.of(column_var)), self.shape)
        dtype = short_dtype(out.aval.dtype)
        result = El(dtype, k.convert(value, compute_dtype(dtype)))
        epilogue = self.kernel.ctx.epilogue
        if epilogue is None:
            b.store(self.kernel.output(out), position, result)
            return
        b.producers = epilogue.producers
        b.special = lambda var, index: result if var is out else None
        index = delinear(position, out.aval.shape)
        for var in epilogue.stored:
            b.store(self.kernel.output(var), position, b.value(var, index))
