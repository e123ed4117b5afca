"""Products of arrays that are rounded to few bits, with a scale for each block of elements."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.nn.linear import scaled_matmul
from amdjax.transforms import custom_vjp

__all__ = ["get_scaled_dot_general_config", "scaled_dot_general"]


@dataclass(frozen=True, eq=False)
class BlockScaleConfig:
    """How an operand is rounded.

    Attributes:
      mode: "mxfp8" or "nvfp4".
      block_size: how many elements along the contracted axis share a scale.
      data_type: the dtype of the elements.
      scale_type: the dtype of the scales.
      global_scale: a scale for all elements, an array of shape `(1,)`; None for none.
      infer_only: accepted.
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """How `scaled_dot_general` rounds an operand.

    Args:
      mode: "mxfp8", 32 elements of 8 bits with a power of two (OCP Microscaling Formats, 2023), or
        "nvfp4", 16 elements of 4 bits with a scale of 8 bits.
      global_scale: for "nvfp4" a scale for all elements, of shape `(1,)` and float32; 1 by default.

    Returns:
      The block's size, the dtypes of elements and scales, and the global scale.

    Raises:
      ValueError: there is no such mode.

        >>> nn.get_scaled_dot_general_config("mxfp8").block_size
        32
    """
    if mode == "nvfp4":
        scale = jnp.ones(1, np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, jnp.float4_e2m1fn, jnp.float8_e4m3fn, scale, False)
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, jnp.float8_e4m3fn, jnp.float8_e8m0fnu, None, False)
    raise ValueError(f"Unsupported mode: {mode}; it must be 'mxfp8' or 'nvfp4'")


def _quantized(x: Array, config: BlockScaleConfig) -> tuple[Array, Array]:
    """The elements and the scales, one for each block of the last axis."""
    size = config.block_size
    if x.shape[-1] % size or not x.shape[-1]:
        raise ValueError(
            f"scaled_dot_general: the {x.shape[-1]} contracted elements are no multiple of the "
            f"{size} of a block of {config.mode}"
        )
    blocks = x.reshape(*x.shape[:-1], -1, size)
    largest = dtypes.finfo(config.data_type).max.astype(x.dtype)
    if config.global_scale is not None:
        blocks = blocks / config.global_scale.astype(x.dtype).reshape((1,) * blocks.ndim)
    wanted = jnp.abs(blocks).max(-1, keepdims=True) / largest
    if config.mode == "mxfp8":
        # The least power of two that is no smaller, so that nothing is clipped.
        fraction, exponent = jnp.frexp(wanted)
        exponent = jnp.where(fraction == 0.5, exponent - 1, exponent)
        scales = jnp.ldexp(jnp.ones_like(wanted), jnp.clip(exponent, -127, 127))
        scales = scales.astype(config.scale_type)
    else:
        highest = dtypes.finfo(config.scale_type).max.astype(x.dtype)
        scales = jnp.clip(wanted, 0, highest).astype(config.scale_type)
    divisor = scales.astype(np.float32).astype(x.dtype)
    rounded = jnp.clip(blocks / jnp.where(divisor == 0, 1, divisor), -largest, largest)
    return rounded.astype(config.data_type).reshape(x.shape), scales[..., 0]


def _matrices(x: Array, contract: Sequence[int], batch: Sequence[int]) -> tuple[Array, list[int]]:
    """An operand of shape `(batch, rows, contracted)`, and the axes that are its rows."""
    rows = [d for d in range(x.ndim) if d not in (*contract, *batch)]
    turned = jnp.transpose(x, (*batch, *rows, *contract))
    size = lambda axes: int(np.prod([x.shape[d] for d in axes], dtype=int))
    return turned.reshape(size(batch), size(rows), size(contract)), rows


def scaled_dot_general(
    lhs: Any, rhs: Any, dimension_numbers: Any, preferred_element_type: Any = np.float32,
    configs: Sequence[BlockScaleConfig] | None = None, implementation: str | None = None,
) -> Array:  # fmt: skip
    """A product of arrays that are rounded to few bits first; see `lax.dot_general`.

    Args:
      lhs: an array.
      rhs: an array.
      dimension_numbers: which axes are contracted and which are batches.
      preferred_element_type: the dtype of the result.
      configs: how `lhs`, `rhs` and gradients are rounded; without it nothing is.
      implementation: accepted.

    Returns:
      The product. Its gradients are products of rounded arrays too; those of "nvfp4" are not, and
      are zero where elements were clipped.

    Raises:
      ValueError: a block does not divide the contracted elements.

        >>> config = [nn.get_scaled_dot_general_config("mxfp8")] * 3
        >>> ones = jnp.ones((2, 32))
        >>> nn.scaled_dot_general(ones, ones, (((1,), (1,)), ((), ())), configs=config)
        Array([[32., 32.],
               [32., 32.]], dtype=float32)
    """
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    if configs is None:
        return lax.dot_general(
            lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type
        )
    (lc, rc), (lb, rb) = (tuple(map(tuple, side)) for side in dimension_numbers)
    (left, l_rows), (right, r_rows) = _matrices(lhs, lc, lb), _matrices(rhs, rc, rb)
    out = _product(left, right, tuple(configs), np.dtype(preferred_element_type))
    shape = [lhs.shape[d] for d in (*lb, *l_rows)] + [rhs.shape[d] for d in r_rows]
    return out.reshape(shape)


@functools.partial(custom_vjp, nondiff_argnums=(2, 3))
def _product(left: Array, right: Array, configs: Any, dtype: Any) -> Array:
    (x, x_scales), (y, y_scales) = _quantized(left, configs[0]), _quantized(right, configs[1])
    out = scaled_matmul(x, y, x_scales, y_scales, np.float32)
    for config in configs[:2]:
        if config.global_scale is not None:
            out = out * config.global_scale.reshape(1, 1, 1)
    return out.astype(dtype)


def _forward(left: Array, right: Array, configs: Any, dtype: Any) -> tuple[Array, Any]:
    return _product(left, right, configs, dtype), (left, right)


def _backward(configs: Any, dtype: Any, residuals: Any, g: Array) -> tuple[Array, Array]:
    left, right = residuals
    turn = lambda x: jnp.swapaxes(x, 1, 2)
    if configs[2].mode == "nvfp4":
        grads = jnp.matmul(g, right), jnp.matmul(turn(g), left)
        return tuple(
            jnp.where(jnp.abs(x) <= _reach(c), d, 0).astype(x.dtype)
            for x, d, c in zip(residuals, grads, configs)
        )
    d_left = _product(g, turn(right), (configs[2], configs[1], configs[2]), left.dtype)
    d_right = _product(turn(g), turn(left), (configs[2], configs[0], configs[2]), right.dtype)
    return d_left, d_right


def _reach(config: BlockScaleConfig) -> Array:
    """The largest magnitude that is not clipped."""
    both = float(dtypes.finfo(config.data_type).max) * float(dtypes.finfo(config.scale_type).max)
    return config.global_scale.reshape(1, 1, 1) * both


_product.defvjp(_forward, _backward)
