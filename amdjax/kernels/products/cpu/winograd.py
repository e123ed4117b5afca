"""Convolutions of 3×3 kernels through Winograd's minimal filtering.

A tile of (m + 2)×(m + 2) pixels gives m×m pixels of the result. Tiles and kernels are transformed,
multiplied point by point, which is a product over features for each of the (m + 2)² points, and
transformed back. F(4, 3) multiplies 4 times less often than the convolution itself, F(2, 3) 2.25
times; what they save in multiplications they partly spend on memory.

Sums and differences of transforms cancel, so that results are less accurate; `error_growth` bounds
by how much. In practice errors of F(2, 3) are below ε Σ|x||w|, like those of other plans, and those
of F(4, 3) up to ten times as large. But the sum is that of the whole tile: where a pixel is much
larger than its neighbors, or not finite, so are errors of positions that do not see it. So
estimates choose these where a program says that it wants results fast rather than accurate, by
`precision="fastest"` or "default"; where it says nothing, only a search does, which compares
errors. All is for float32, and nothing of this for higher precision.

Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import is_multiple
from amdjax.core.integers import ceil_div
from amdjax.core.precision import precision_setting
from amdjax.kernels.loops import tail_mask
from amdjax.kernels.products.contraction import (
    Axis,
    Contraction,
    ProductProblem,
    Sink,
    Source,
    lane_count,
)
from amdjax.kernels.products.convolution import Convolution, ConvolutionProblem, Phase
from amdjax.kernels.products.cpu.costs import launch, nanoseconds
from amdjax.kernels.products.cpu.lane_convolution import LaneConvolution
from amdjax.kernels.shaped import Call, Copy, KernelPlan, ShapedContext, Temp
from amdjax.schedule.search import Family, Solver
from amdjax.schedule.values import short_dtype
from amdjax.targets.cpu import CpuTarget

Value = tile.Value
Matrix = Sequence[Sequence[float]]
TAPS = 3


def _matrix(text: str) -> Matrix:
    def number(x: str) -> float:
        over, _, under = x.partition("/")
        return int(over) / int(under or 1)

    return [[number(x) for x in row.split()] for row in text.split(";")]


@dataclass(frozen=True)
class Transforms:
    """The matrices of F(m, 3): `out (kernel k ⊙ data d)` are m outputs of m + 2 inputs.

    Args:
      data: of the input.
      kernel: of the taps.
      out: of the products.
    """

    data: Matrix
    kernel: Matrix
    out: Matrix

    @property
    def size(self) -> int:
        """Pixels along an axis that a tile gives."""
        return len(self.out)

    @property
    def error_growth(self) -> float:
        """By how much rounding errors of two-dimensional tiles may grow, at worst."""
        norm = lambda matrix: max(sum(abs(x) for x in row) for row in matrix)
        return (norm(self.data) * norm(self.kernel) * norm(self.out)) ** 2


F23 = Transforms(
    _matrix("1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1"),
    _matrix("1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1"),
    _matrix("1 1 1 0; 0 1 -1 -1"),
)
F43 = Transforms(
    _matrix(
        "4 0 -5 0 1 0; 0 -4 -4 1 1 0; 0 4 -4 -1 1 0; 0 -2 -1 2 1 0; 0 2 -1 -2 1 0; 0 4 0 -5 0 1"
    ),
    _matrix("1/4 0 0; -1/6 -1/6 -1/6; -1/6 1/6 -1/6; 1/24 1/12 1/6; 1/24 -1/12 1/6; 0 0 1"),
    _matrix("1 1 1 1 1 0; 0 1 -1 2 -2 0; 0 1 1 4 4 0; 0 1 -1 8 -8 1"),
)


@dataclass(frozen=True)
class WinogradPlan:
    """Transforms of input and kernel, a product for each point, and the transform back.

    Args:
      conv: sizes and layout.
      phases: its positions and taps.
      size: pixels along an axis that a tile gives, 2 or 4.
      data, kernel, out: workspace of what is transformed.
      product: how the products are computed.
    """

    conv: Convolution
    phases: tuple[Phase, ...]
    size: int
    data: Temp
    kernel: Temp
    out: Temp
    product: KernelPlan

    def emit(self, ctx: ShapedContext) -> list[Call | Copy]:
        conv, transforms = self.conv, F23 if self.size == 2 else F43
        arguments = ctx, conv, self.phases
        return [
            Transformation(*arguments).of_kernel(transforms, self.kernel),
            Transformation(*arguments).of_input(transforms, self.data),
            *self.product.emit(ctx),
            Transformation(*arguments).back(transforms, self.out),
        ]

    def __str__(self) -> str:
        high, wide = (p.count for p in self.phases)
        return f"Winograd F({self.size}, 3) of {high}×{wide} positions, {self.product}"


def tile_counts(conv: Convolution, size: int) -> tuple[int, int]:
    """Tiles along both axes."""
    high, wide = (ceil_div(n, size) for n in conv.out[2:])
    return high, wide


def winograd_solver(
    name: str, transforms: Transforms, products: Family[ProductProblem, CpuTarget, KernelPlan]
) -> Solver[ConvolutionProblem, CpuTarget, WinogradPlan]:
    """The algorithm for tiles of one size; `products` are by what it multiplies."""

    def plans(problem: ConvolutionProblem, target: CpuTarget) -> list[WinogradPlan]:
        ctx, conv = problem
        if not _applies(ctx, conv):
            return []
        (phases,) = (tuple(phases) for phases in conv.phases())
        points = (transforms.size + 2) ** 2
        tiles = conv.lhs[0] * math.prod(tile_counts(conv, transforms.size))
        features, inputs = conv.rhs[:2]
        sizes = tiles * inputs, inputs * features, tiles * features
        data, kernel, out = (Temp("f32", points * n) for n in sizes)
        still = Axis(points, tiles * inputs), Axis(points, inputs * features)
        product = Contraction(
            Source(data, "f32", 0, still[:1], (Axis(tiles, inputs),), (Axis(inputs, 1),)),
            Source(kernel, "f32", 0, still[1:], (Axis(features, 1),), (Axis(inputs, features),)),
            Sink(
                out, "f32", 0, (Axis(points, tiles * features),), (Axis(tiles, features),),
                (Axis(features, 1),),
            ),
            "f32",
        )  # fmt: skip
        plan = products.best(ProductProblem.of(product), target)
        return [WinogradPlan(conv, phases, transforms.size, data, kernel, out, plan)]

    def usual(problem: ConvolutionProblem, target: CpuTarget) -> WinogradPlan | None:
        asked = problem.ctx.params["precision"] is not None
        return next(iter(plans(problem, target)), None) if asked else None

    approximate = transforms.size > 2
    return Solver(name, plans, winograd_cost, usual, composite=True, approximate=approximate)


def winograd_cost(problem: ConvolutionProblem, plan: WinogradPlan, target: CpuTarget) -> float:
    """Nanoseconds, about, of the transforms."""
    conv, costs = plan.conv.at_hand(), target.costs
    points, lanes = (plan.size + 2) ** 2, lane_count(target, "f32")
    features, inputs = conv.rhs[:2]
    high, wide = tile_counts(conv, plan.size)
    kernels = points * ceil_div(features, lanes) * costs.kernel_point
    tiles = sum(points * ceil_div(n, lanes) * wide * costs.point for n in (inputs, features))
    cycles = launch(tiles, conv.lhs[0] * high, target)
    if problem.ctx.inputs[1] not in problem.ctx.fixed:
        cycles += launch(kernels, inputs, target)
    return nanoseconds(cycles + costs.call, target)


def _applies(ctx: ShapedContext, conv: Convolution) -> bool:
    """Whether it is a convolution of 3×3 taps in float32, features side by side."""
    dtypes = {short_dtype(x.aval.dtype) for x in (*ctx.inputs, *ctx.outputs)}
    if conv.spatial != 2 or conv.rhs[2:] != (TAPS, TAPS) or dtypes != {"f32"}:
        return False
    if conv.feature_groups * conv.batch_groups != 1 or not all(conv.lhs):
        return False
    if any(n != 1 for n in (*conv.strides, *conv.dilation, *conv.window_dilation)):
        return False
    if precision_setting(ctx.params["precision"]) not in (None, "default"):
        return False
    return conv.lhs_strides[1] == 1 == conv.out_strides[1]


class Transformation(LaneConvolution):
    """The kernels that transform."""

    out: tile.Buffer

    def combined(self, rows: Matrix, values: Sequence[Value | None]) -> list[Value | None]:
        """A matrix times values, of which None is zero; multiplies by what is not ±1."""
        return [self._sum(row, values) for row in rows]

    def _sum(self, row: Sequence[float], values: Sequence[Value | None]) -> Value | None:
        k, total = self.k, None
        for factor, x in zip(row, values, strict=True):
            if not factor or x is None:
                continue
            if total is None:
                total = x if factor == 1 else x * k.const("f32", factor, x.shape)
            elif abs(factor) == 1:
                total = total + x if factor > 0 else total - x
            else:
                total = k.op("fma", x, k.const("f32", factor, x.shape), total)
        return total

    def transformed(self, matrix: Matrix, square: Sequence[Sequence[Value]]) -> list[list[Value]]:
        """`matrix square matrixᵀ`."""
        columns = [self.combined(matrix, column) for column in zip(*square, strict=True)]
        rows = [self.combined(matrix, row) for row in zip(*columns, strict=True)]
        return [[self._some(x) for x in row] for row in rows]

    def _some(self, x: Value | None) -> Value:
        return self.k.const("f32", 0, (self.lanes,)) if x is None else x

    def features(self, count: int, body: Callable[[Value, Value | None], None]) -> None:
        """Over features in lanes, with which of them exist."""

        def block(c: Value) -> None:
            whole = is_multiple(count, self.lanes)
            stop = self.k.const("index", count)
            body(c, None if whole else tail_mask(self.k, c, self.lanes, stop))

        self.k.for_(0, count, self.lanes, block)

    def store(
        self, square: Sequence[Sequence[Value]], at: Value, step: int, mask: Value | None
    ) -> None:
        """The points of a tile, each in a matrix of its own."""
        for p, x in enumerate(x for row in square for x in row):
            self.k.store(self.out, at + p * step, x, (1,), mask)

    def of_kernel(self, transforms: Transforms, out: Temp) -> Call:
        """Taps as points: (point, input feature, output feature)."""
        self.begin("winograd_kernel")
        conv, k = self.conv, self.k
        self.out = self.program.buffer(out, "f32", "out")
        features, inputs = conv.rhs[:2]
        across, inside, *along = conv.rhs_strides
        i = k.program_id()

        def block(c: Value, mask: Value | None) -> None:
            at = i * inside + c * across + conv.rhs_offset
            taps = [
                [
                    self.load(self.w, at + y * along[0] + x * along[1], (self.lanes,), across, mask)
                    for x in range(TAPS)
                ]
                for y in range(TAPS)
            ]
            square = self.transformed(transforms.kernel, taps)
            self.store(square, i * features + c, inputs * features, mask)

        self.features(features, block)
        return self.program.launch(inputs, 4.0 * inputs * features)

    def of_input(self, transforms: Transforms, out: Temp) -> Call:
        """Tiles of the input as points: (point, tile, input feature)."""
        self.begin("winograd_input")
        conv, k, size = self.conv, self.k, transforms.size
        self.out = self.program.buffer(out, "f32", "out")
        high, wide = tile_counts(conv, size)
        inputs, pid = conv.rhs[1], k.program_id()
        image, row = pid // high, pid % high
        tiles = conv.lhs[0] * high * wide

        def one(column: Value) -> None:
            def block(c: Value, mask: Value | None) -> None:
                square = self._pixels(image, (row * size, column * size), size + 2, c, mask)
                points = self.transformed(transforms.data, square)
                self.store(points, (pid * wide + column) * inputs + c, tiles * inputs, mask)

            self.features(inputs, block)

        k.for_(0, wide, 1, one)
        return self.program.launch(conv.lhs[0] * high, 1.0 * tiles * inputs * (size + 2) ** 2)

    def _pixels(
        self, image: Value, first: Sequence[Value], count: int, c: Value, mask: Value | None
    ) -> list[list[Value]]:
        """A square of the input, zero outside."""
        k, conv = self.k, self.conv
        base = image * conv.lhs_strides[0] + c
        places = []
        for d, (phase, at) in enumerate(zip(self.phases, first, strict=True)):
            extent, stride = conv.lhs[2 + d], conv.lhs_strides[2 + d]
            axis = []
            for j in range(count):
                place = at + (phase.start + j)
                inside = k.convert(place, "u64") < k.const("u64", extent)
                axis.append((place * stride, inside))
            places.append(axis)

        def load(y: tuple[Value, Value], x: tuple[Value, Value]) -> Value:
            exists = k.broadcast(y[1] & x[1], (self.lanes,))
            exists = exists if mask is None else exists & mask
            return self.load(self.x, base + y[0] + x[0], (self.lanes,), 1, exists)

        return [[load(y, x) for x in places[1]] for y in places[0]]

    def back(self, transforms: Transforms, out: Temp) -> Call:
        """Pixels of the result from points: (point, tile, output feature)."""
        self.begin("winograd_output")
        conv, k, size = self.conv, self.k, transforms.size
        points = self.program.buffer(out, "f32")
        (high, wide), features, pid = tile_counts(conv, size), conv.rhs[0], k.program_id()
        image, row = pid // high, pid % high
        tiles = conv.lhs[0] * high * wide
        (down, across), strides = conv.out[2:], conv.out_strides
        rows = [Axis(down, strides[2]), Axis(across, strides[3])]
        writer = self.writer([(Axis(conv.out[0], strides[0]), image)], rows, Axis(features, 1))
        waiting = k.scratch("pixels", "f32", size * size * self.lanes)

        def one(column: Value) -> None:
            def block(c: Value, mask: Value | None) -> None:
                at = (pid * wide + column) * features + c
                n = size + 2
                square = [
                    [
                        self.load(
                            points, at + (y * n + x) * (tiles * features), (self.lanes,), 1, mask
                        )
                        for x in range(n)
                    ]
                    for y in range(n)
                ]
                pixels = self.transformed(transforms.out, square)
                for i, x in enumerate(x for line in pixels for x in line):
                    k.store(waiting, k.const("index", i * self.lanes), x, (1,))
                rows_here = k.min(k.const("index", size), down - row * size)
                columns_here = k.min(k.const("index", size), across - column * size)

                def line(y: Value) -> None:
                    def pixel(x: Value) -> None:
                        value = k.load(waiting, (y * size + x) * self.lanes, (self.lanes,), (1,))
                        position = (row * size + y) * across + (column * size + x)
                        writer.store(position, c, value, mask)

                    k.for_(0, columns_here, 1, pixel)

                k.for_(0, rows_here, 1, line)

            self.features(features, block)

        k.for_(0, wide, 1, one)
        return self.program.launch(conv.lhs[0] * high, 1.0 * tiles * features * (size + 2) ** 2)
