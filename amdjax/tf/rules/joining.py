"""Arrays joined, divided and padded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.dims import is_symbolic_dim

from ..nodes import Node
from ..registry import MAX_HOST, axis_of, namespace, rule, size, sizes
from .arithmetic import check_same_dtype
from .convolutions import layout_of

#: Outputs that a node may have.
_MAX_OUTPUTS = 1 << 16


@rule("Pack")
def pack(node: Node, *values: Any) -> Any:
    _check_some(node, values)
    at = axis_of(node, "axis", node.integer("axis", 0), values[0].ndim + 1)
    return namespace(*values).stack(values, axis=at)


def _check_some(node: Node, values: Any) -> None:
    if not values:
        raise node.error("takes one input at least")
    check_same_dtype(node, *values)


@rule("Unpack")
def unpack(node: Node, value: Any) -> Any:
    at = axis_of(node, "axis", node.integer("axis", 0), value.ndim)
    count = value.shape[at]
    if is_symbolic_dim(count) or count != node.integer("num", count) or count > _MAX_OUTPUTS:
        raise node.error(f"axis {at} has {count} elements, expected {node.integer('num', -1)}")
    return tuple(_taken(value, at, i) for i in range(count))


def _taken(x: Any, axis: int, i: int) -> Any:
    return x[(*[slice(None)] * axis, i)]


@rule("ConcatV2", numbers=("-1",))
def concat_v2(node: Node, *values: Any) -> Any:
    return _joined(node, values[-1], values[:-1])


@rule("Concat", numbers=("concat_dim",))
def concat(node: Node, concat_dim: Any, *values: Any) -> Any:
    return _joined(node, concat_dim, values)


def _joined(node: Node, axis: Any, values: Any) -> Any:
    _check_some(node, values)
    at = axis_of(node, "axis", size(node, "axis", axis), values[0].ndim)
    return namespace(*values).concatenate(values, axis=at)


@rule("Split", numbers=("axis",))
def split(node: Node, axis: Any, value: Any) -> Any:
    at = axis_of(node, "axis", size(node, "axis", axis), value.ndim)
    count, n = node.integer("num_split"), value.shape[at]
    if not 1 <= count <= _MAX_OUTPUTS or n % count:
        raise node.error(f"{n} elements of axis {at} cannot be split into {count}")
    part = n // count
    return _split(value, at, [part] * count)


@rule("SplitV", numbers=("size_splits", "axis"))
def split_v(node: Node, value: Any, size_splits: Any, axis: Any) -> Any:
    at = axis_of(node, "axis", size(node, "axis", axis), value.ndim)
    parts, n = sizes(size_splits), value.shape[at]
    if [p for p in parts if isinstance(p, int) and p < 0] == [-1]:
        rest = n - sum(parts) - 1
        parts = [rest if isinstance(p, int) and p == -1 else p for p in parts]
    if any(isinstance(p, int) and p < 0 for p in parts) or sum(parts) != n:
        raise node.error(f"{n} elements of axis {at} cannot be split into {sizes(size_splits)}")
    return _split(value, at, parts)


def _split(x: Any, axis: int, parts: list[Any]) -> Any:
    found, start = [], 0
    for part in parts:
        found.append(x[(*[slice(None)] * axis, slice(start, start + part))])
        start = start + part
    return tuple(found)


@rule("Pad", numbers=("paddings",))
def pad(node: Node, x: Any, paddings: Any) -> Any:
    return _padded(node, x, paddings, np.zeros((), x.dtype))


@rule("PadV2", numbers=("paddings",), only_device=True)
def pad_v2(node: Node, x: Any, paddings: Any, constant_values: Any) -> Any:
    check_same_dtype(node, x, constant_values)
    return _padded(node, x, paddings, constant_values)


def _pairs(node: Node, x: Any, paddings: np.ndarray) -> list[tuple[Any, Any]]:
    if paddings.shape != (x.ndim, 2):
        raise node.error(f"paddings of shape {paddings.shape} do not fit shape {x.shape}")
    flat = sizes(paddings)
    if any(isinstance(n, int) and not 0 <= n < 2**31 for n in flat):
        raise node.error(f"paddings must not be negative, got {flat}")
    return list(zip(flat[::2], flat[1::2]))


def _padded(node: Node, x: Any, paddings: np.ndarray, value: Any) -> Any:
    pads = _pairs(node, x, paddings)
    whole = [n + low + high for n, (low, high) in zip(x.shape, pads)]
    if namespace(x) is np and not any(map(is_symbolic_dim, whole)) and math.prod(whole) <= MAX_HOST:
        return np.pad(x, pads, constant_values=0)
    return lax.pad(jnp.asarray(x), jnp.asarray(value), [(*pair, 0) for pair in pads])


@rule("MirrorPad", numbers=("paddings",), only_device=True)
def mirror_pad(node: Node, x: Any, paddings: Any) -> Any:
    mode = node.text("mode", None, ("REFLECT", "SYMMETRIC"))
    pads = _pairs(node, x, paddings)
    for n, pair in zip(x.shape, pads):
        most = n - 1 if mode == "REFLECT" else n
        if any(isinstance(p, int) and isinstance(most, int) and p > most for p in pair):
            raise node.error(f"paddings {pads} are too large for shape {x.shape}")
    return jnp.pad(x, pads, mode=mode.lower())


@rule("SpaceToBatchND", numbers=("block_shape", "paddings"), only_device=True)
def space_to_batch(node: Node, x: Any, block_shape: Any, paddings: Any) -> Any:
    blocks = _blocks(node, x, block_shape, paddings)
    m = len(blocks)
    flat = sizes(paddings)
    pads = [(0, 0, 0), *((a, b, 0) for a, b in zip(flat[::2], flat[1::2]))]
    x = lax.pad(x, jnp.zeros((), x.dtype), pads + [(0, 0, 0)] * (x.ndim - 1 - m))
    shape = [x.shape[0]]
    for n, block in zip(x.shape[1 : 1 + m], blocks):
        if n % block:
            raise node.error(f"{n} elements cannot be divided into blocks of {block}")
        shape += [n // block, block]
    rest = x.shape[1 + m :]
    order = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m + 1, 2)]
    order += range(2 * m + 1, 2 * m + 1 + len(rest))
    split = x.reshape(*shape, *rest).transpose(order)
    return split.reshape(x.shape[0] * math.prod(blocks), *shape[1::2], *rest)


@rule("BatchToSpaceND", numbers=("block_shape", "crops"), only_device=True)
def batch_to_space(node: Node, x: Any, block_shape: Any, crops: Any) -> Any:
    blocks = _blocks(node, x, block_shape, crops)
    m, total = len(blocks), math.prod(blocks)
    if x.shape[0] % total:
        raise node.error(f"a batch of {x.shape[0]} cannot be divided by {total}")
    batch, space, rest = x.shape[0] // total, x.shape[1 : 1 + m], x.shape[1 + m :]
    order = [m, *(i for k in range(m) for i in (m + 1 + k, k))]
    order += range(2 * m + 1, 2 * m + 1 + len(rest))
    joined = x.reshape(*blocks, batch, *space, *rest).transpose(order)
    whole = [n * block for n, block in zip(space, blocks)]
    flat = sizes(crops)
    bounds = tuple(slice(low, n - high) for n, low, high in zip(whole, flat[::2], flat[1::2]))
    return joined.reshape(batch, *whole, *rest)[(slice(None), *bounds)]


def _blocks(node: Node, x: Any, block_shape: np.ndarray, paddings: np.ndarray) -> list[int]:
    blocks = sizes(block_shape)
    if paddings.shape != (len(blocks), 2) or x.ndim < 1 + len(blocks) or block_shape.ndim != 1:
        raise node.error(f"blocks {blocks} of paddings {paddings.shape} do not fit {x.shape}")
    if any(is_symbolic_dim(n) or not 1 <= n < 2**31 for n in blocks):
        raise node.error(f"blocks must be positive, got {blocks}")
    if any(isinstance(n, int) and not 0 <= n < 2**31 for n in sizes(paddings)):
        raise node.error(f"sizes must not be negative, got {sizes(paddings)}")
    return blocks


@rule("SpaceToDepth", only_device=True)
def space_to_depth(node: Node, x: Any) -> Any:
    x, n, is_last = _images(node, x)
    b, h, w, c = x.shape
    if h % n or w % n:
        raise node.error(f"images of {h}×{w} cannot be divided into blocks of {n}")
    y = x.reshape(b, h // n, n, w // n, n, c).transpose(0, 1, 3, 2, 4, 5)
    y = y.reshape(b, h // n, w // n, n * n * c)
    return y if is_last else y.transpose(0, 3, 1, 2)


@rule("DepthToSpace", only_device=True)
def depth_to_space(node: Node, x: Any) -> Any:
    x, n, is_last = _images(node, x)
    b, h, w, c = x.shape
    if c % (n * n):
        raise node.error(f"{c} channels cannot be divided into blocks of {n}×{n}")
    y = x.reshape(b, h, w, n, n, c // (n * n)).transpose(0, 1, 3, 2, 4, 5)
    y = y.reshape(b, h * n, w * n, c // (n * n))
    return y if is_last else y.transpose(0, 3, 1, 2)


def _images(node: Node, x: Any) -> tuple[Any, int, bool]:
    """Images with channels last, the size of blocks, and whether channels were last."""
    if x.ndim != 4:
        raise node.error(f"the batch must have 4 axes, got {x.ndim}")
    n = node.integer("block_size")
    if not 1 <= n < 2**16:
        raise node.error(f"block_size must be positive, got {n}")
    is_last = layout_of(node, 4) == "NHWC"
    return (x if is_last else x.transpose(0, 2, 3, 1)), n, is_last
