"""Activations with parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.nn import _random as random, initializers
from amdjax.nn._arguments import check_callable, check_integer, check_positive
from amdjax.nn._torch import TorchTensor
from amdjax.nn.activations import prelu
from amdjax.nn.functions import sigmoid
from amdjax.nn.linear import dense
from amdjax.nn.module import Module, static
from amdjax.numpy._util import ArrayLike

__all__ = ["GLU", "PReLU"]

_KERNEL = initializers.lecun_normal()


class PReLU(Module):
    """`nn.prelu` with trained slopes (He et al., 2015).

    Args:
      features: how many slopes, one for each element along `axis`; 1 shares one.
      alpha: the slopes' start.
      axis: the axis of channels.
      dtype: dtype of the slopes; None means the default float.

    Raises:
      ValueError: `features` is no positive integer.

        >>> nn.PReLU(alpha=0.5)(jnp.array([-1.0, 2.0]))
        Array([-0.5,  2. ], dtype=float32)
    """

    alpha: Array
    axis: int = static()

    def __init__(
        self, features: int = 1, *, alpha: float = 0.25, axis: int = -1, dtype: Any = None
    ) -> None:
        check_positive("PReLU", features=features)
        check_integer("PReLU", "axis", axis)
        self.alpha, self.axis = jnp.full(features, alpha, dtype or float), axis

    def __call__(self, x: ArrayLike) -> Array:
        """As `nn.prelu` with these slopes."""
        return prelu(x, self.alpha, self.axis)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.PReLU`, as `Module.torch_tensors` says."""
        return (TorchTensor("weight", "alpha"),)


class GLU(Module):
    """A gated linear unit: `(x @ a) * activation(x @ b)`, as one product (Dauphin et al., 2017).

    With `nn.relu` it is ReGLU, with `nn.gelu` GEGLU, with `nn.silu` SwiGLU (Shazeer, 2020).

    Args:
      activation: function of the gate.
      kernel_init: how the kernel starts, `(in_features, 2 * out_features)`; the gate is behind.
      bias_init: how the bias starts, `(2 * out_features,)`.

        >>> layer = nn.GLU(3, 4, activation=nn.silu, key=amdjax.random.key(0))
        >>> layer(jnp.ones((2, 3))).shape
        (2, 4)
    """

    kernel: Array
    bias: Array | None
    activation: Callable[[Any], Array] = static()

    def __init__(
        self, in_features: int, out_features: int, *, key: Any,
        activation: Callable[[Any], Array] = sigmoid, use_bias: bool = True,
        kernel_init: initializers.Initializer = _KERNEL,
        bias_init: initializers.Initializer = initializers.zeros, dtype: Any = None,
    ) -> None:  # fmt: skip
        check_positive("GLU", in_features=in_features, out_features=out_features)
        check_callable("GLU", activation=activation, kernel_init=kernel_init, bias_init=bias_init)
        key, bias_key = random.split(random.checked_key(type(self).__name__, key))
        self.kernel = kernel_init(key, (in_features, 2 * out_features), dtype)
        self.bias = bias_init(bias_key, (2 * out_features,), dtype) if use_bias else None
        self.activation = activation

    def __call__(self, x: ArrayLike) -> Array:
        """The gated product; `x` of shape `(..., in_features)`."""
        values, gates = jnp.split(dense(x, self.kernel, self.bias), 2, -1)
        return values * self.activation(gates)
