"""Convolutions with few features a group, as products of operands that are packed for them first.

A matrix unit wants 16 bytes that lie side by side in depth. Where there are few input features,
pixels get as many more features (zeros) as make their number a power of two, and kernels as many
more columns (zeros) as align the pixels that a row of taps sees: then that row is one run of
memory, and nothing leaves the input, since the packed one includes the padding. Where groups are
narrow, several become one: its kernel has zeros where features of different groups meet. A few
times the work on zeros costs less than feeding a matrix unit element by element.

Gradients of such kernels are products of the same kinds, from whose results an additional launch
takes what belongs to the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amdjax.core.dims import is_multiple
from amdjax.core.integers import power_of_two, round_up
from amdjax.kernels.loops import row_major
from amdjax.kernels.products.contraction import Axis, Limit
from amdjax.kernels.products.formats import operand_formats, sum_dtype
from amdjax.kernels.products.gpu.contraction import plan_product
from amdjax.kernels.products.gpu.layout_conversion import ConversionPlan, into_workspace
from amdjax.kernels.products.gpu.tiling import operand_atoms
from amdjax.kernels.shaped import InOrder, KernelPlan, ShapedContext, Temp
from amdjax.schedule.values import short_dtype
from amdjax.targets import GpuTarget
from amdjax.targets.mma import WARPGROUP_ROW_BYTES, warpgroup_atoms
from amdjax.tile import itemsize

if TYPE_CHECKING:
    from amdjax.kernels.products.convolution import Convolution

CELL = 16  # bytes that a matrix unit reads of a line
RUN = 64  # bytes of neighboring features from which on memory is read well
FEW_COLUMNS = 16  # features that a group computes, fewer of which leave a matrix unit idle
FLOATS = ("f16", "bf16", "f32")

Plans = Sequence[KernelPlan]


def plan_packed(ctx: ShapedContext, conv: Convolution) -> InOrder | None:
    """The plan; None where packing does not pay, or there is nothing to pack."""
    if 0 in (*conv.rhs, *conv.out):
        return None
    dtypes = [short_dtype(x.aval.dtype) for x in (*ctx.inputs, *ctx.outputs)]
    if any(d not in FLOATS for d in dtypes) or dtypes[0] != dtypes[1] or not conv.spatial:
        return None
    attempts = [_padded_groups, _padded_groups_gradient, _features_innermost]
    formats = operand_formats(ctx.params["precision"])
    units = operand_atoms(ctx.gpu, dtypes[0], dtypes[1], sum_dtype(ctx), formats)
    if not any(u.by_lanes for u in units):
        attempts += [_few_features, _few_features_gradient]  # vector lanes need no whole cells
    for attempt in attempts:
        plans = attempt(ctx, conv, dtypes[0])
        if plans is not None:
            return InOrder(plans)
    return None


def _product(ctx: ShapedContext, conv: Convolution, owners: Sequence[Any]) -> Plans | None:
    """The plans of a convolution of (in part) workspace."""
    plans = [plan_product(ctx.gpu, problem) for problem in conv.contractions(ctx, owners)]
    found = [plan for plan in plans if plan is not None]
    return found if len(found) == len(plans) else None


def _is_plain(conv: Convolution) -> bool:
    """Whether there are neither groups nor a dilated input."""
    groups = conv.feature_groups * conv.batch_groups
    return groups == 1 and all(n == 1 for n in conv.dilation)


def _is_gradient(conv: Convolution) -> bool:
    """Whether kernel and result have changed places: the kernel is as large as an image."""
    return math.prod(conv.rhs[2:]) > math.prod(conv.out[2:])


# Few input features


def _few_features(ctx: ShapedContext, conv: Convolution, dtype: str) -> Plans | None:
    """Pixels and taps with more features."""
    (columns, features, *window), dilation = conv.rhs, conv.window_dilation
    size = itemsize(dtype)
    if not _is_plain(conv) or features * size >= CELL or columns < FEW_COLUMNS:
        return None
    if math.prod(window) == 1 or _is_gradient(conv) or any(n != 1 for n in dilation):
        return None
    more = power_of_two(features)
    taps = _whole_cells(window, more, conv.strides[-1], size)
    wide = replace(conv, rhs=(columns, more, *taps))
    first, x, wide = _packed_input(ctx, wide, more, image=0, feature=1)
    across, into, *along = conv.rhs_strides
    axes = [Axis(columns, across, (0, 0))]
    axes += [Axis(n, s, (0, 0)) for n, s in zip(taps[:-1], along[:-1], strict=True)]
    axes += [Axis(taps[-1], along[-1], (1, 0)), Axis(more, into, (0, 1))]
    limits = Limit(0, window[-1]), Limit(0, features)
    second, weights = into_workspace(ctx.inputs[1], axes, limits, conv.rhs_offset)
    across, *along, into = row_major((columns, *taps, more))
    wide = replace(wide, rhs_strides=(across, into, *along), rhs_offset=0)
    product = _product(ctx, wide, (x, weights, ctx.outputs[0]))
    return None if product is None else [first, second, *product]


def _few_features_gradient(ctx: ShapedContext, conv: Convolution, dtype: str) -> Plans | None:
    """The gradient of taps with more features, without those."""
    (features, columns, *window), images, size = conv.out, conv.rhs[1], itemsize(dtype)
    if not _is_plain(conv) or not _is_gradient(conv) or conv.strides[-1] != 1 or not images:
        return None
    if features * size >= CELL or columns < FEW_COLUMNS or math.prod(window) == 1:
        return None
    more = power_of_two(features)
    taps = _whole_cells(window, more, conv.window_dilation[-1], size)
    wide = replace(conv, out=(more, columns, *taps))
    first, x, wide = _packed_input(ctx, wide, more, image=1, feature=0)
    shape = (*taps, more, columns)
    *along, into, across = row_major(shape)
    accumulators = Temp(sum_dtype(ctx), math.prod(shape))
    wide = replace(wide, out_strides=(into, across, *along))
    product = _product(ctx, wide, (x, ctx.inputs[1], accumulators))
    if product is None:
        return None
    extents, strides = (*window, features, columns), (*along, into, across)
    axes = [Axis(n, s) for n, s in zip(extents, strides, strict=True)]
    into, across, *along = conv.out_strides
    last = ConversionPlan(accumulators, tuple(axes), strides=(*along, into, across))
    return [first, *product, last]


def _whole_cells(window: Sequence[int], features: int, step: int, size: int) -> tuple[int, ...]:
    """Taps, of which a row is a run of whole cells as far as rows are aligned to them."""
    *outer, last = window
    cell = math.gcd(CELL // size, step * features)
    return (*outer, round_up(last * features, cell) // features)


def _packed_input(
    ctx: ShapedContext, conv: Convolution, more: int, image: int, feature: int
) -> tuple[KernelPlan, Temp, Convolution]:
    """The plan that packs the input with its padding and `more` features.

    Args:
      ctx: the equation.
      conv: the convolution, with the taps and positions that are wanted.
      more: features of a pixel.
      image: the axis of images.
      feature: the axis of features.

    Returns:
      The plan, what it writes, and the convolution that reads it.
    """
    spatial = range(conv.spatial)
    extents = [
        (conv.out[2 + d] - 1) * conv.strides[d]
        + (conv.rhs[2 + d] - 1) * conv.window_dilation[d]
        + 1
        for d in spatial
    ]

    def shifts(coordinate: int) -> tuple[int, ...]:
        return tuple(int(coordinate == j) for j in range(conv.spatial + 1))

    strides, images = conv.lhs_strides, conv.lhs[image]
    axes = [Axis(images, strides[image], shifts(-1))]
    axes += [Axis(extents[d], strides[2 + d], shifts(d)) for d in spatial]
    axes.append(Axis(more, strides[feature], shifts(conv.spatial)))
    limits = [Limit(-conv.padding[d], conv.lhs[2 + d]) for d in spatial]
    limits.append(Limit(0, conv.lhs[feature]))
    offset = -sum(conv.padding[d] * strides[2 + d] for d in spatial)
    plan, x = into_workspace(ctx.inputs[0], axes, limits, offset)
    far, *along, near = row_major((images, *extents, more))
    first = ((images, far), (more, near))
    (a, s), (b, t) = first if image == 0 else first[::-1]
    packed = replace(
        conv, lhs=(a, b, *extents), lhs_strides=(s, t, *along), padding=(0,) * conv.spatial
    )
    return plan, x, packed


# Positions side by side


def _features_innermost(ctx: ShapedContext, conv: Convolution, dtype: str) -> Plans | None:
    """Kernels whose taps lie outside of features, where the input's positions lie side by side.

    Depth is counted in the order of the kernel. With features innermost those of a tile share a
    tap, hence a place in the input and whether that is inside.
    """
    columns, features, *window = conv.rhs
    across, into, *along = conv.rhs_strides
    inside = all(abs(into) < abs(s) for n, s in zip(window, along, strict=True) if n > 1)
    if inside or not conv.is_transposed or _is_gradient(conv):
        return None
    if not is_multiple(features, RUN // itemsize(dtype)):
        return None
    axes = [Axis(columns, across)]
    axes += [Axis(n, s) for n, s in zip(window, along, strict=True)]
    axes.append(Axis(features, into))
    first, weights = into_workspace(ctx.inputs[1], axes, offset=conv.rhs_offset)
    across, *along, into = row_major((columns, *window, features))
    turned = replace(conv, rhs_strides=(across, into, *along), rhs_offset=0)
    product = _product(ctx, turned, (ctx.inputs[0], weights, ctx.outputs[0]))
    return None if product is None else [first, *product]


# Padded groups


def _padded_groups(ctx: ShapedContext, conv: Convolution, dtype: str) -> Plans | None:
    """Several groups as one, whose kernel has zeros where features of different groups meet."""
    if conv.feature_groups == 1 or conv.batch_groups > 1:
        return None
    (out, into, *window), near = conv.rhs, conv.lhs_strides[1] == 1
    columns = out // conv.feature_groups
    merged = _merged(ctx.gpu, dtype, conv.feature_groups, into, columns, near)
    if merged == 1:
        return None
    across, inside, *along = conv.rhs_strides
    axes = [Axis(conv.feature_groups // merged, merged * columns * across, (0,))]
    axes += [Axis(merged, columns * across, (-1,)), Axis(columns, across, (0,))]
    axes += [Axis(n, s, (0,)) for n, s in zip(window, along, strict=True)]
    axes += [Axis(merged, 0, (1,)), Axis(into, inside, (0,))]
    first, weights = into_workspace(ctx.inputs[1], axes, [Limit(0, 1)], conv.rhs_offset)
    across, *along, inside = row_major((out, *window, merged * into))
    wide = replace(
        conv, rhs=(out, merged * into, *window), rhs_strides=(across, inside, *along),
        rhs_offset=0, feature_groups=conv.feature_groups // merged,
    )  # fmt: skip
    product = _product(ctx, wide, (ctx.inputs[0], weights, ctx.outputs[0]))
    return None if product is None else [first, *product]


def _padded_groups_gradient(ctx: ShapedContext, conv: Convolution, dtype: str) -> Plans | None:
    """The gradient of the kernel of several groups as one, of which the groups' own are taken."""
    if conv.batch_groups == 1 or conv.feature_groups > 1 or not _is_gradient(conv):
        return None
    (into, out, *window), near = conv.out, conv.lhs_strides[0] == 1
    columns = out // conv.batch_groups
    merged = _merged(ctx.gpu, dtype, conv.batch_groups, into, columns, near)
    if merged == 1:
        return None
    *along, inside, across = row_major((*window, merged * into, out))
    accumulators = Temp(sum_dtype(ctx), math.prod(window) * merged * into * out)
    wide = replace(
        conv, out=(merged * into, out, *window), out_strides=(inside, across, *along),
        batch_groups=conv.batch_groups // merged,
    )  # fmt: skip
    product = _product(ctx, wide, (*ctx.inputs, accumulators))
    if product is None:
        return None
    axes = [Axis(n, s) for n, s in zip(window, along, strict=True)]
    axes += [Axis(into, inside), Axis(conv.batch_groups // merged, merged * columns)]
    axes += [Axis(merged, columns + into * inside), Axis(columns, 1)]
    inside, across, *along = conv.out_strides
    strides = (*along, inside, merged * columns * across, columns * across, across)
    return [*product, ConversionPlan(accumulators, tuple(axes), strides=strides)]


def _merged(
    target: GpuTarget, dtype: str, groups: int, features: int, columns: int, near: bool
) -> int:
    """How many groups become one, so that neither runs of memory nor results are narrow.

    Args:
      target: the GPU.
      dtype: of the operands.
      groups: that there are.
      features: of the input in each.
      columns: features that each computes.
      near: whether features lie side by side.
    """
    run = RUN if near else 1
    if near and warpgroup_atoms(target, dtype):  # whose tiles are best runs of memory
        run = WARPGROUP_ROW_BYTES
    features *= itemsize(dtype)
    merged = 1
    while groups % (2 * merged) == 0 and (
        merged * features < run or merged * columns < FEW_COLUMNS
    ):
        merged *= 2
    return merged
