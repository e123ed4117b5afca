"""Activations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amdjax import nn, numpy as jnp

from ..registry import rule


@rule("Sigmoid")
def sigmoid(x: Any, *, consumed_inputs: Any = None) -> Any:
    return nn.sigmoid(x)


@rule("Relu")
def relu(x: Any, *, consumed_inputs: Any = None) -> Any:
    return jnp.maximum(x, np.zeros((), x.dtype))


@rule("Softplus")
def softplus(x: Any) -> Any:
    return nn.softplus(x)


@rule("Softsign")
def softsign(x: Any) -> Any:
    return nn.soft_sign(x)


@rule("Elu")
def elu(x: Any, *, alpha: float = 1.0, consumed_inputs: Any = None) -> Any:
    return nn.elu(x, alpha)


@rule("Selu")
def selu(
    x: Any, *, alpha: float = 1.6732632423543772848170429916717,
    gamma: float = 1.0507009873554804934193349852946, consumed_inputs: Any = None,
) -> Any:  # fmt: skip
    return gamma * nn.elu(x, alpha)


@rule("Celu", since=12)
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    return nn.celu(x, alpha)


@rule("LeakyRelu")
def leaky_relu(x: Any, *, alpha: float = 0.01, consumed_inputs: Any = None) -> Any:
    return nn.leaky_relu(x, alpha)


@rule("ThresholdedRelu", since=10)
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    return jnp.where(x > np.asarray(alpha).astype(x.dtype), x, np.zeros((), x.dtype))


@rule("HardSigmoid")
def hard_sigmoid(
    x: Any, *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: Any = None
) -> Any:
    return jnp.clip(alpha * x + beta, 0, 1)


@rule("HardSwish", since=14)
def hard_swish(x: Any) -> Any:
    return x * hard_sigmoid(x, alpha=1 / 6)


@rule("Mish", since=18)
def mish(x: Any) -> Any:
    return nn.mish(x)


@rule("Gelu", since=20)
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return nn.gelu(x, approximate=approximate == "tanh")


@rule("Swish", since=24)
def swish(x: Any, *, alpha: float = 1.0) -> Any:
    return x * nn.sigmoid(x if alpha == 1 else alpha * x)


@rule("PRelu", since=7)
def prelu(x: Any, slope: Any) -> Any:
    return jnp.where(x < 0, slope * x, x)


@rule("PRelu")
def prelu_before(x: Any, slope: Any, *, consumed_inputs: Any = None) -> Any:
    """One slope a channel, or one."""
    return prelu(x, slope if slope.size == 1 else slope.reshape(-1, *[1] * (x.ndim - 2)))


@rule("Shrink", since=9)
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    move, limit = (np.asarray(v).astype(x.dtype) for v in (bias, lambd))
    zero = np.zeros((), x.dtype)
    return jnp.where(x < -limit, x + move, jnp.where(x > limit, x - move, zero))


def _hardmax(x: Any, axis: int) -> Any:
    return nn.one_hot(jnp.argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis)


_OVER_AXIS = {"Softmax": nn.softmax, "LogSoftmax": nn.log_softmax, "Hardmax": _hardmax}

for _name, _function in _OVER_AXIS.items():

    def _over_axis(x: Any, *, axis: int = -1, _function: Any = _function) -> Any:
        return _function(x, axis=axis)

    def _over_rest(x: Any, *, axis: int = 1, _function: Any = _function) -> Any:
        """Before version 13: over all axes from one on, together."""
        axis += x.ndim if axis < 0 else 0
        rows = x.reshape(math.prod(x.shape[:axis]), -1) if x.size else x
        return _function(rows, axis=-1).reshape(x.shape)

    rule(_name)(_over_rest)
    rule(_name, since=13)(_over_axis)
