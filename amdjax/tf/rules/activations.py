"""Functions between layers."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import nn

from ..nodes import Node
from ..registry import rule

_FUNCTIONS = {
    "Elu": nn.elu, "LogSoftmax": nn.log_softmax, "Relu": nn.relu, "Relu6": nn.relu6,
    "Selu": nn.selu, "Sigmoid": nn.sigmoid, "Softmax": nn.softmax, "Softplus": nn.softplus,
    "Softsign": nn.soft_sign,
}  # fmt: skip


def _register(op: str, function: Any) -> None:
    rule(op, only_device=True)(lambda node, features: function(features))


for _op, _function in _FUNCTIONS.items():
    _register(_op, _function)


@rule("LeakyRelu", only_device=True)
def leaky_relu(node: Node, features: Any) -> Any:
    slope = np.asarray(node.real("alpha", 0.2), features.dtype)
    return jnp.where(features > 0, features, features * slope)


@rule("L2Loss", only_device=True)
def l2_loss(node: Node, t: Any) -> Any:
    return jnp.sum(t * t) / 2


@rule("SparseSoftmaxCrossEntropyWithLogits", only_device=True)
def sparse_cross_entropy(node: Node, features: Any, labels: Any) -> Any:
    targets = nn.one_hot(labels, features.shape[-1], dtype=features.dtype)
    return cross_entropy(node, features, targets)


@rule("SoftmaxCrossEntropyWithLogits", only_device=True)
def cross_entropy(node: Node, features: Any, labels: Any) -> Any:
    logarithms = nn.log_softmax(features)
    return -jnp.sum(labels * logarithms, axis=-1), jnp.exp(logarithms) - labels
