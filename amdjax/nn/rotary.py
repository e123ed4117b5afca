"""Rotary position embeddings."""

from __future__ import annotations

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.nn._arguments import check_number
from amdjax.numpy._util import ArrayLike, as_array, convert, promote_args_inexact

__all__ = ["rope"]

PAIRINGS = ("halves", "interleaved")


def rope(
    x: ArrayLike, positions: ArrayLike | None = None, *, base: float = 10000.0,
    scaling: float = 1.0, pairing: str = "halves", features: int | None = None,
) -> Array:  # fmt: skip
    """Turn pairs of features by angles that grow with the position (Su et al., 2021).

    The product of a query and a key that are turned so depends on their distance. Pair i turns by
    `positions / scaling * base ** (-2 * i / features)`.

    Args:
      x: queries or keys of shape `(..., T, heads, H)`.
      positions: of shape `(T,)`, or `(..., T)` where rows begin at different ones; None means 0 to
        T - 1.
      base: how slow the slowest pair turns.
      scaling: factor by which positions are brought nearer (Chen et al., 2023).
      pairing: "halves" pairs the first half of the features with the second, as in LLaMA's and
        most others' weights; "interleaved" neighbors, as in the paper.
      features: how many features, the first ones, are turned; None means all.

    Returns:
      An array of the shape and dtype of `x`. Angles and products are float32 at least.

    Raises:
      ValueError: the shapes do not fit, the number of features is odd, or there is no such
        `pairing`.

        >>> nn.rope(jnp.array([[[1.0, 0.0]], [[1.0, 0.0]]])).round(4)  # T = 2, one head, H = 2
        Array([[[1.    , 0.    ]],
               [[0.5403, 0.8415]]], dtype=float32)
    """
    (x,) = promote_args_inexact("rope", x)
    if x.ndim < 3:
        raise ValueError(f"rope: x must have shape (..., T, heads, H), got {x.shape}.")
    features = x.shape[-1] if features is None else features
    if features % 2 or not 0 < features <= x.shape[-1]:
        raise ValueError(
            f"rope: features must be even and at most {x.shape[-1]}, got {features!r}."
        )
    if pairing not in PAIRINGS:
        raise ValueError(f"rope: pairing must be one of {PAIRINGS}, got {pairing!r}.")
    for argument, number in {"base": base, "scaling": scaling}.items():
        check_number("rope", argument, number)
    rows = x.shape[:-2]
    at = jnp.arange(rows[-1]) if positions is None else as_array("rope", positions, 1)
    if len(at.shape) > len(rows) or any(
        n not in (1, m) for n, m in zip(reversed(at.shape), reversed(rows))
    ):
        raise ValueError(f"rope: positions must broadcast to {rows}, got {at.shape}.")
    return _rope(x, at, base, scaling, pairing, features)


@composite(static_argnames=("pairing", "features"))
def _rope(
    x: Array, positions: Array, base: float, scaling: float, pairing: str, features: int
) -> Array:
    wide = jnp.promote_types(x.dtype, np.float32)
    powers = jnp.arange(0, features, 2, dtype=wide) / features
    angles = (convert(positions, wide) / scaling)[..., None] * base**-powers
    cos, sin = (f(angles)[..., None, :] for f in (jnp.cos, jnp.sin))
    return turn_pairs(x, cos, sin, pairing, features)


def turn_pairs(
    x: Array, cos: Array, sin: Array, pairing: str = "halves", features: int | None = None
) -> Array:
    """Turn pairs of the first features by angles, of which cosine and sine broadcast to halves."""
    features = x.shape[-1] if features is None else features
    turned = convert(x[..., :features], jnp.promote_types(x.dtype, np.float32))
    if pairing == "halves":
        a, b = jnp.split(turned, 2, -1)
        new = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
        new = jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(turned.shape)
    new = convert(new, x.dtype)
    if features == x.shape[-1]:
        return new
    return jnp.concatenate([new, x[..., features:]], -1)


_public_surface(globals())
