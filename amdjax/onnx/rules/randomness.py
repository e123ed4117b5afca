"""Random numbers: of the node's seed, and of a fixed one where it has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import numpy as jnp, random

from ..registry import rule


def _key(seed: float | None) -> Any:
    """The key of a seed, whose bits count: it is a float."""
    return random.key(0 if seed is None else int(np.float32(seed).view(np.uint32)))


def _normal(shape: Any, dtype: Any, mean: float, scale: float, seed: float | None) -> Any:
    drawn = random.normal(_key(seed), tuple(shape), dtype)
    return drawn * np.asarray(scale).astype(dtype) + np.asarray(mean).astype(dtype)


def _uniform(shape: Any, dtype: Any, low: float, high: float, seed: float | None) -> Any:
    return random.uniform(_key(seed), tuple(shape), dtype, low, high)


_FLOAT, _INTEGER = np.dtype(np.float32), np.dtype(np.int32)


@rule("RandomNormal")
def random_normal(
    *, shape: Any, dtype: Any = _FLOAT, mean: float = 0.0, scale: float = 1.0, seed: Any = None
) -> Any:
    return _normal(shape, dtype, mean, scale, seed)


@rule("RandomNormalLike")
def random_normal_like(
    x: Any, *, dtype: Any = None, mean: float = 0.0, scale: float = 1.0, seed: Any = None
) -> Any:
    return _normal(x.shape, dtype or x.dtype, mean, scale, seed)


@rule("RandomUniform")
def random_uniform(
    *, shape: Any, dtype: Any = _FLOAT, low: float = 0.0, high: float = 1.0, seed: Any = None
) -> Any:
    return _uniform(shape, dtype, low, high, seed)


@rule("RandomUniformLike")
def random_uniform_like(
    x: Any, *, dtype: Any = None, low: float = 0.0, high: float = 1.0, seed: Any = None
) -> Any:
    return _uniform(x.shape, dtype or x.dtype, low, high, seed)


@rule("Multinomial", since=7)
def multinomial(x: Any, *, dtype: Any = _INTEGER, sample_size: int = 1, seed: Any = None) -> Any:
    """Samples by unnormalized logarithms of probabilities, a row each."""
    shape = (sample_size, x.shape[0])
    return random.categorical(_key(seed), x, axis=-1, shape=shape).T.astype(dtype)


@rule("Bernoulli", since=15)
def bernoulli(x: Any, *, dtype: Any = None, seed: Any = None) -> Any:
    return random.bernoulli(_key(seed), jnp.asarray(x).astype(np.float32)).astype(dtype or x.dtype)
