"""Operators that TensorFlow's optimizer makes of several: a product and what follows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax, nn

from ..nodes import Node
from ..registry import rule
from .convolutions import conv, depthwise_conv
from .products import bias_add, mat_mul

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "Relu": nn.relu, "Relu6": nn.relu6, "Elu": nn.elu, "Sigmoid": nn.sigmoid, "Tanh": jnp.tanh,
    "GeluApproximate": nn.gelu, "GeluExact": lambda x: nn.gelu(x, approximate=False),
}  # fmt: skip


@rule("_FusedConv2D", only_device=True)
def fused_conv(node: Node, x: Any, filter: Any, *args: Any) -> Any:
    return _finished(node, conv(node, x, filter), args)


@rule("_FusedDepthwiseConv2dNative", only_device=True)
def fused_depthwise_conv(node: Node, x: Any, filter: Any, *args: Any) -> Any:
    return _finished(node, depthwise_conv(node, x, filter), args)


@rule("_FusedMatMul", only_device=True)
def fused_mat_mul(node: Node, a: Any, b: Any, *args: Any) -> Any:
    return _finished(node, mat_mul(node, a, b), args)


def _finished(node: Node, y: Any, args: tuple[Any, ...]) -> Any:
    """What follows a product, in the order of the attribute `fused_ops`."""
    rest = list(args)

    def take(count: int) -> list[Any]:
        if len(rest) < count:
            raise node.invalid(f"{len(args)} inputs are too few for {node.texts('fused_ops')}")
        taken, rest[:] = rest[:count], rest[count:]
        return taken

    for op in node.texts("fused_ops"):
        if op == "BiasAdd":
            y = bias_add(node, y, *take(1))
        elif op == "Add":
            y = y + take(1)[0]
        elif op == "FusedBatchNorm":
            y = _normalized(node, y, *take(4))
        elif op == "LeakyRelu":
            slope = np.asarray(node.real("leakyrelu_alpha", 0.2), y.dtype)
            y = jnp.where(y > 0, y, y * slope)
        elif op in _ACTIVATIONS:
            y = _ACTIVATIONS[op](y)
        else:
            raise node.invalid(f"{op!r} in fused_ops is not read")
    return y


def _normalized(node: Node, y: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    epsilon = np.asarray(node.real("epsilon", 1e-4), scale.dtype)
    factor = scale * lax.rsqrt(variance + epsilon)
    return bias_add(node, y * _along(node, y, factor), offset - mean * factor)


def _along(node: Node, y: Any, values: Any) -> Any:
    axis = 1 if node.text("data_format", "NHWC").startswith("NC") else y.ndim - 1
    return values.reshape([-1 if i == axis else 1 for i in range(y.ndim)])
