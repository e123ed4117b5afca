"""Layers of attention."""

from __future__ import annotations

from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.nn import _random as random, initializers
from amdjax.nn._arguments import check_number, check_positive, check_rate
from amdjax.nn._scope import is_training
from amdjax.nn._torch import TorchTensor
from amdjax.nn.attention import dot_product_attention
from amdjax.nn.kv_cache import KVCache, PagedKVCache, cached_attention
from amdjax.nn.layers.linear import Dense
from amdjax.nn.module import Module, static
from amdjax.nn.rotary import PAIRINGS, rope
from amdjax.numpy._util import ArrayLike, as_array

__all__ = ["MultiHeadAttention"]

_KERNEL = initializers.glorot_uniform()


class MultiHeadAttention(Module):
    """Attention of several heads between trained products (Vaswani et al., 2017).

    Args:
      features: size of the last axis of the input and of the result.
      heads: number of heads.
      kv_heads: number of heads of keys and values, a divisor of `heads` (Ainslie et al., 2023);
        None means as many.
      head_features: features of a head; None means `features // heads`.
      context_features: size of the last axis of what is attended to; None means `features`.
      use_bias: whether products have a bias.
      rate: probability of a weight of attention to be dropped in training.
      rope: how queries and keys are turned by their position: "halves" or "interleaved", as for
        `nn.rope`; None means not.
      rope_base: the `base` of that.
      rope_scaling: the `scaling` of that.
      kernel_init: how kernels start.
      bias_init: how biases start.

    Raises:
      ValueError: a size is no positive integer or does not divide another, `rate` is no
        probability, or there is no such `rope`.

        >>> layer = nn.MultiHeadAttention(8, 4, kv_heads=2, key=amdjax.random.key(0))
        >>> layer(jnp.ones((1, 5, 8)), is_causal=True).shape
        (1, 5, 8)
    """

    query: Dense
    keys: Dense
    values: Dense
    out: Dense
    heads: int = static()
    rate: float = static()
    rope: str | None = static()
    rope_base: float = static()
    rope_scaling: float = static()

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        key: Any,
        kv_heads: int | None = None,
        head_features: int | None = None,
        context_features: int | None = None,
        use_bias: bool = True,
        rate: float = 0.0,
        rope: str | None = None,
        rope_base: float = 10000.0,
        rope_scaling: float = 1.0,
        kernel_init: initializers.Initializer = _KERNEL,
        bias_init: initializers.Initializer = initializers.zeros,
        dtype: Any = None,
    ) -> None:
        name = "MultiHeadAttention"
        check_positive(name, features=features, heads=heads)
        kv_heads = heads if kv_heads is None else kv_heads
        if head_features is None and features % heads:
            raise ValueError(f"{name}: heads must divide features, got {heads=}, {features=}.")
        head = features // heads if head_features is None else head_features
        context = features if context_features is None else context_features
        check_positive(name, kv_heads=kv_heads, head_features=head, context_features=context)
        if heads % kv_heads:
            raise ValueError(f"{name}: kv_heads must divide heads, got {kv_heads=}, {heads=}.")
        if rope is not None and (rope not in PAIRINGS or head % 2):
            raise ValueError(
                f"{name}: rope must be None or one of {PAIRINGS}, and head_features even, got "
                f"{rope!r} and {head}."
            )
        check_rate(name, rate)
        for argument, number in {"rope_base": rope_base, "rope_scaling": rope_scaling}.items():
            check_number(name, argument, number)
        options: Any = {"use_bias": use_bias, "kernel_init": kernel_init, "bias_init": bias_init,
                        "dtype": dtype}  # fmt: skip
        ks = random.split(random.checked_key("MultiHeadAttention", key), 4)
        self.query = Dense(features, heads * head, key=ks[0], **options)
        self.keys = Dense(context, kv_heads * head, key=ks[1], **options)
        self.values = Dense(context, kv_heads * head, key=ks[2], **options)
        self.out = Dense(heads * head, features, key=ks[3], **options)
        self.heads, self.rate = int(heads), rate
        self.rope, self.rope_base, self.rope_scaling = rope, rope_base, rope_scaling

    def __call__(
        self,
        x: ArrayLike,
        context: ArrayLike | None = None,
        *,
        bias: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        is_causal: bool = False,
        positions: ArrayLike | None = None,
        cache: Any = None,
        key: Any = None,
        train: bool | None = None,
    ) -> Any:
        """The attention of each position of `x` to those of `context`, or of `x` itself.

        Args:
          x: of shape `(batch, T, features)`.
          context: of shape `(batch, S, context_features)`; None means `x`.
          bias: added to the logits; broadcasts to `(batch, heads, T, S)`.
          mask: boolean of that shape; false entries take no part.
          is_causal: each position attends to itself and earlier ones only.
          positions: of `x` for `nn.rope`, `(T,)` or `(batch, T)`; None means from 0, or behind
            those of the cache.
          cache: former positions to attend to as well, a `KVCache` or `PagedKVCache`; attention is
            causal then.
          key: key of what is dropped; None for one of the `nn.apply` around the call.
          train: whether to drop weights; None means as `nn.apply` says.

        Returns:
          An array of the shape of `x`; with a cache also the cache with the new positions.

        Raises:
          ValueError: the shapes do not fit; `mask` is not boolean; a cache is given with what does
            not go with it; in training without a key.
        """
        x = as_array("MultiHeadAttention", x)
        if x.ndim != 3:
            raise ValueError(
                f"MultiHeadAttention: x must have shape (batch, T, features), got {x.shape}."
            )
        mask = None if mask is None else as_array("MultiHeadAttention", mask)
        if mask is not None and mask.dtype != bool:
            raise ValueError(f"MultiHeadAttention: mask must be boolean, got {mask.dtype}.")
        source = x if context is None else as_array("MultiHeadAttention", context, 1)
        head = self.query.kernel.shape[1] // self.heads
        split = lambda y: y.reshape(*y.shape[:2], y.shape[2] // head, head)
        q, k, v = split(self.query(x)), split(self.keys(source)), split(self.values(source))
        dropping = self.rate > 0 and is_training(train)
        if positions is not None and self.rope is None:
            raise ValueError(
                "MultiHeadAttention: positions are those of rope, got positions of a layer with "
                "rope=None."
            )
        if cache is not None and not isinstance(cache, (KVCache, PagedKVCache)):
            raise TypeError(
                f"MultiHeadAttention: cache must be a KVCache or PagedKVCache, got {cache!r}."
            )
        if self.rope is not None:
            if context is not None:
                raise ValueError("MultiHeadAttention: rope goes without context.")
            at = positions
            if at is None and cache is not None:
                at = cache.lengths[:, None] + jnp.arange(x.shape[1])
            q, k = self._turned(q, at), self._turned(k, at)
        if cache is not None:
            if dropping or any(a is not None for a in (context, bias, mask)):
                raise ValueError(
                    "MultiHeadAttention: a cache goes without context, bias, mask and training."
                )
            attended, cache = cached_attention(q, k, v, cache)
        else:
            attended = dot_product_attention(
                q, k, v, bias, mask, is_causal=is_causal,
                dropout_rate=self.rate if dropping else 0.0,
                dropout_key=self.next_key(key) if dropping else None,
            )  # fmt: skip
        y = self.out(attended.reshape(*attended.shape[:2], self.heads * head))
        return y if cache is None else (y, cache)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.MultiheadAttention`, as `Module.torch_tensors` says.

        It keeps the three products of inputs as one where they have one shape.
        """
        parts = lambda layer: (layer.query, layer.keys, layer.values)
        together = TorchTensor(
            "in_proj_weight", lambda x: tuple(p.kernel for p in parts(x)), (1, 0)
        )
        apart = (
            TorchTensor(f"{name[0]}_proj_weight", f"{name}.kernel", (1, 0))
            for name in ("query", "keys", "values")
        )
        one_shape = len({p.kernel.shape for p in parts(self)}) == 1
        return (
            *((together,) if one_shape else apart),
            TorchTensor("in_proj_bias", lambda x: tuple(p.bias for p in parts(x))),
            TorchTensor("out_proj.weight", "out.kernel", (1, 0)),
            TorchTensor("out_proj.bias", "out.bias"),
        )

    def _turned(self, x: Array, positions: Any) -> Array:
        return rope(x, positions, base=self.rope_base, scaling=self.rope_scaling,
                    pairing=self.rope)  # type: ignore[arg-type]  # fmt: skip
