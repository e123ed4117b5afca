"""Combining on a GPU: the lanes of a tile, and the partial results of split reductions."""

from __future__ import annotations

from collections.abc import Sequence

from amdjax import tile
from amdjax.core.dims import choosing
from amdjax.core.integers import power_of_two
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call
from amdjax.schedule.combine import CombineKernel
from amdjax.schedule.element import ElementBuilder
from amdjax.schedule.fusion import Root
from amdjax.schedule.gpu.element import TileElements
from amdjax.schedule.gpu.tiles import TileAxis, first_lanes, region_name, tile_lanes
from amdjax.schedule.index import Index, LoopVar
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.values import El, flat_parts, regroup
from amdjax.targets import GpuTarget

COLUMNS = 64  # rows whose partial results a program combines
TILE = 2048  # partial results that it has at once


def combine_axes(
    b: ElementBuilder, rule: Reduction, accs: list[El], axes: Sequence[int]
) -> list[El]:
    """Combine accumulators along axes of the tile, which disappear."""
    k, combine = b.k, rule.rule.combine
    for axis in sorted(axes, reverse=True):
        if isinstance(combine, str) and not (accs[0].is_complex and combine != "add"):
            accs = [El(a.dtype, *(k.reduce(combine, p, axis) for p in a.parts)) for a in accs]
        else:
            accs = _combine_together(b, rule, accs, axis)
    return accs


def _combine_together(b: ElementBuilder, rule: Reduction, accs: list[El], axis: int) -> list[El]:
    """Combine accumulators that depend on each other, or whose parts do."""
    tiles, neutral = flat_parts(accs), flat_parts(rule.identity(b))

    def merge(*elements: tile.Value) -> list[tile.Value]:
        half = len(elements) // 2
        left, right = (regroup(accs, xs) for xs in (elements[:half], elements[half:]))
        return flat_parts(rule.merge(b, left, right))

    return regroup(accs, b.k.reduce_by(b.nested(merge), tiles, neutral, axis))


class GpuCombineKernel(CombineKernel):
    """Combines partial results of a reduction and computes what follows from them per row."""

    elements = TileElements
    b: TileElements
    target: GpuTarget

    @property
    def name(self) -> str:
        return region_name("combine", self.region)

    def build(self) -> Call:
        k, n = self.k, self.rows
        self.totals: dict[Root, list[El]] = {}
        with choosing():
            self.row = TileAxis(LoopVar("row", n), min(power_of_two(n), COLUMNS))
            count = min(power_of_two(self.splits), TILE // self.row.count)
        self.split = TileAxis(LoopVar("split", self.splits), count)
        elements = count * self.row.count
        most = self.target.usual_workgroup
        k.schedule.workgroup = max(self.target.wave_size, min(power_of_two(elements // 4), most))
        (self.base,), _ = first_lanes(k, [self.row], k.program_id(), 0)
        symbols = [Index.of(LoopVar(f"r{i}", m)) for i, m in enumerate(self.region.row_shape)]
        if n > 1:
            self.b.flatten_loops([s for i in symbols for s, _ in i.terms], self.row.var)  # type: ignore[misc]
            self.b.lanes = list(tile_lanes(k, [self.row], [self.base]))
        self.store_rows(symbols)
        return self.w.finish(self.row.blocks, n * self.splits)

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        root = next((r for r in self.partials if var in r.vars), None)
        if root is None:
            return None
        if root not in self.totals:
            with self.k.made_from(root.eqn.origin):
                self.totals[root] = self._total(root)
        return self.totals[root][root.vars.index(var)]

    def _total(self, root: Root) -> list[El]:
        """The results of a reduction, a lane for each row."""
        rule = self.reductions[root]
        buffers = [self.w.param(t, t.dtype, "in") for t in self.partials[root]]
        axes = [self.split] if self.rows == 1 else [self.split, self.row]
        edge = self.row.edge(self.k, self.base, self.rows)
        accs = combine_splits(self.b, rule, buffers, axes, self.base, self.rows, edge)
        return rule.finish(self.b, accs)


def combine_splits(
    b: ElementBuilder, rule: Reduction, buffers: Sequence[tile.Buffer], axes: Sequence[TileAxis],
    first: tile.Value, stride: int, edge: tile.Value | None = None,
) -> list[El]:  # fmt: skip
    """The accumulators of a reduction from those of its splits, in their order.

    Args:
      b: writes them.
      rule: the reduction.
      buffers: partial results, one for each part of each accumulator.
      axes: the splits, and the rows side by side if there are several.
      first: where the first split is.
      stride: elements from one split to the next.
      edge: which of the rows exist; None if all do.
    """
    k, start = b.k, rule.identity(b)
    shape, splits = tuple(a.count for a in axes), axes[0]
    strides = (stride, 1)[: len(axes)]

    def wide(mask: tile.Value, axis: int) -> tile.Value:
        return k.broadcast(k.expand(mask, 1 - axis) if len(axes) > 1 else mask, shape)

    def tile_at(base: tile.Value, *carried: tile.Value) -> list[tile.Value]:
        exists = splits.edge(k, base, splits.var.extent)
        masks = [wide(m, axis) for axis, m in enumerate((exists, edge)) if m is not None]
        mask = None
        for m in masks:
            mask = m if mask is None else mask & m
        offset, it = base * stride + first, iter(buffers)
        xs = [El(a.dtype, *(k.load(next(it), offset, shape, strides, mask) for _ in a.parts))
              for a in start]  # fmt: skip
        if exists is not None:
            keep = El("bool", masks[0])
            xs = [b.select(keep, x, e) for x, e in zip(xs, start, strict=True)]
        if carried:
            xs = rule.merge(b, regroup(start, carried), xs)
        return [k.broadcast(p, shape) for x in xs for p in x.parts]

    if splits.is_whole:
        flat: Sequence[tile.Value] = tile_at(k.const("index", 0))
    else:
        init = [k.broadcast(p, shape) for e in start for p in e.parts]
        flat = k.for_(0, splits.var.extent, splits.count, b.nested(tile_at), init)
    return combine_axes(b, rule, regroup(start, flat), [0])
