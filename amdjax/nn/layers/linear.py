"""Layers of products with trained matrices, and tables of vectors."""

from __future__ import annotations

from typing import Any

from amdjax.core.array import Array
from amdjax.nn import _random as random, initializers
from amdjax.nn._arguments import check_callable, check_positive
from amdjax.nn._torch import TorchTensor
from amdjax.nn.linear import dense, embedding
from amdjax.nn.module import Module
from amdjax.numpy._util import ArrayLike

__all__ = ["Dense", "Embedding", "Linear"]

_KERNEL = initializers.lecun_normal()


class Dense(Module):
    """`x @ kernel + bias` on the last axis.

    >>> layer = nn.Dense(3, 4, key=amdjax.random.key(0))
    >>> layer(jnp.ones((2, 3))).shape
    (2, 4)
    """

    kernel: Array
    bias: Array | None

    def __init__(
        self, in_features: int, out_features: int, *, key: Any, use_bias: bool = True,
        kernel_init: initializers.Initializer = _KERNEL,
        bias_init: initializers.Initializer = initializers.zeros, dtype: Any = None,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        check_positive(name, in_features=in_features, out_features=out_features)
        check_callable(name, kernel_init=kernel_init, bias_init=bias_init)
        key, bias_key = random.split(random.checked_key(type(self).__name__, key))
        self.kernel = kernel_init(key, (in_features, out_features), dtype)
        self.bias = bias_init(bias_key, (out_features,), dtype) if use_bias else None

    def __call__(self, x: ArrayLike) -> Array:
        """`nn.dense` with these parameters; `x` of shape `(..., in_features)`."""
        return dense(x, self.kernel, self.bias)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.Linear`, as `Module.torch_tensors` says."""
        return TorchTensor("weight", "kernel", (1, 0)), TorchTensor("bias", "bias")


class Linear(Dense):
    """`Dense` by its other name.

    >>> nn.Linear(3, 4, key=amdjax.random.key(0))
    Linear(kernel=float32[3,4], bias=float32[4])
    """


class Embedding(Module):
    """A table of vectors, one for each number.

    Args:
      count: how many vectors.
      features: size of each.
      key: key of the table's random start.
      table_init: how the table starts, `(count, features)`.
      dtype: dtype of the table; None means the default float.

        >>> layer = nn.Embedding(10, 4, key=amdjax.random.key(0))
        >>> layer(jnp.array([1, 2, 3])).shape
        (3, 4)
    """

    table: Array

    def __init__(
        self,
        count: int,
        features: int,
        *,
        key: Any,
        table_init: initializers.Initializer = initializers.normal(1.0),  # noqa: B008
        dtype: Any = None,
    ) -> None:
        check_positive("Embedding", count=count, features=features)
        if key is not None:
            random.checked_key(type(self).__name__, key)
        self.table = table_init(key, (count, features), dtype)

    def __call__(self, ids: ArrayLike) -> Array:
        """Vectors of `ids`, `(*ids.shape, features)`; ids out of range take the nearest row."""
        return embedding(self.table, ids)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.Embedding`, as `Module.torch_tensors` says."""
        return (TorchTensor("weight", "table"),)
