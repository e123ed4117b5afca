"""Vector quantization: `scipy.cluster.vq`."""

from __future__ import annotations

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, check_arraylike, promote_dtypes_inexact

__all__ = ["vq"]


@composite(static_argnames="check_finite")
def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The nearest code of each observation.

    Args:
      obs: observations, of shape `(m, n)`, or `(m,)` for single numbers.
      code_book: codes, of shape `(k, n)` or `(k,)`.
      check_finite: accepted; nothing is checked.

    Returns:
      The position of the nearest code and the distance to it, both of shape `(m,)`.

    Raises:
      ValueError: the ranks differ, or are not 1 or 2.

        >>> amdjax.scipy.cluster.vq.vq(jnp.array([0.0, 4.0]), jnp.array([1.0, 3.0]))
        (Array([0, 1], dtype=int32), Array([1., 1.], dtype=float32))
    """
    check_arraylike("scipy.cluster.vq.vq", obs, code_book)
    obs, codes = promote_dtypes_inexact(obs, code_book)
    if obs.ndim != codes.ndim:
        raise ValueError(
            "Observation and code_book should have the same rank, got shapes"
            f" {obs.shape} and {codes.shape}"
        )
    if obs.ndim == 1:
        obs, codes = obs[:, None], codes[:, None]
    if obs.ndim != 2:
        raise ValueError(f"ndim different than 1 or 2 are not supported, got shape {obs.shape}")
    distances = jnp.linalg.norm(obs[:, None, :] - codes[None, :, :], axis=-1)
    return jnp.argmin(distances, axis=-1), jnp.min(distances, axis=-1)


_public_surface(globals())
