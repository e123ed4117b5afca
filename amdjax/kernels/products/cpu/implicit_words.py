"""Convolutions of bytes, of 16 bits and of bfloat16 whose words are read from a padded copy.

`implicit.py` with the steps of `vnni.py`: a word is a few features of a pixel, so that none holds
parts of two taps.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import size_hint
from amdjax.kernels.products.contraction import ProductProblem, best_even_tiles
from amdjax.kernels.products.cpu.costs import nanoseconds
from amdjax.kernels.products.cpu.implicit import (
    ImplicitPlan,
    ImplicitProduct,
    best_blocks,
    features_of,
    implicit_cost,
    sees_taps,
)
from amdjax.kernels.products.cpu.packing import PanelPacker
from amdjax.kernels.products.cpu.vnni import (
    VnniShape,
    WordSums,
    column_sums,
    moved_up,
    word_types,
)
from amdjax.kernels.products.cpu.words import WORDS, WordPacker, as_bits
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

Value = tile.Value


@dataclass(frozen=True)
class ImplicitWordPlan(ImplicitPlan):
    """The micro-kernel on words of a padded copy of what its positions see.

    Args:
      types: of the elements of words.
    """

    types: tuple[str, str] = ("u8", "i8")

    @property
    def size(self) -> int:
        return itemsize(self.types[0])

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return ImplicitWordProduct(ctx, self).calls()

    def __str__(self) -> str:
        return f"{super().__str__()}, words of {self.types[0]}"


def implicit_word_plans(product: ProductProblem, target: CpuTarget) -> list[ImplicitWordPlan]:
    """Plans of several tiles and blocks; none where words would hold parts of two taps."""
    p, axes = product.merged, product.windows
    types = word_types(p, target)
    if types is None or not sees_taps(p, axes) or features_of(p, axes) * itemsize(types[0]) % 4:
        return []
    shapes = best_even_tiles(p, target, size_hint(axes[-1].positions))
    found = [
        ImplicitWordPlan(as_bits(p, types), axes, VnniShape.of(x, itemsize(types[0])), (), 0, types)
        for x in shapes[:2]
        if x.columns % WORDS == 0
    ]
    return best_blocks(product, found, target)


def implicit_word_cost(product: ProductProblem, plan: ImplicitWordPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    sums = column_sums(plan.problem.at_hand, plan.types, plan.tile, target)
    return implicit_cost(product, plan, target) + nanoseconds(sums, target)


IMPLICIT_WORDS = Solver("implicit words", implicit_word_plans, implicit_word_cost)


class ImplicitWordProduct(ImplicitProduct):
    """A convolution of words as launches."""

    def __init__(self, ctx: ShapedContext, plan: ImplicitWordPlan):
        self.per = 4 // plan.size
        super().__init__(ctx, moved_up(plan.problem, plan.types), plan)
        self.words = WordSums(ctx, plan.types, self.packer, plan.tile)
        # What sums of columns stand for are all taps, zeros beside the input included.
        self.skips = not self.words.signed

    def make_packer(self) -> PanelPacker:
        element, columns = f"u{8 * self.plan.size}", self.plan.tile.columns
        return WordPacker(self.ctx, self.problem, columns, self.ctx.target, element)

    def calls(self) -> list[Call]:
        first, *others = super().calls()
        return [first, *self.words.calls(), *others]

    def add(self, k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
        return self.words.add(k, a, b, total)

    def start(self, panel: Value) -> list[Value]:
        if not self.words.signed:
            return super().start(panel)
        return self.words.start(self.program, self.packer.index(self.batch, panel))
