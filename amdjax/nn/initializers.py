"""How parameters start: functions of a key, a shape and a dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import api_boundary, public_surface as _public_surface
from amdjax.core.docs import complete as _complete
from amdjax.lax._public import named
from amdjax.nn import _docs, _random as random
from amdjax.numpy._util import canonical_shape

__all__ = [
    "Initializer", "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal",
    "he_uniform", "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal",
    "ones", "orthogonal", "truncated_normal", "uniform", "variance_scaling", "xavier_normal",
    "xavier_uniform", "zeros",
]  # fmt: skip

Axes = int | Sequence[int]


class Initializer(Protocol):
    """`init(key, shape, dtype) -> array`."""

    def __call__(
        self, key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None
    ) -> Array:
        """Make the parameter."""
        ...


def _dtype(given: Any, default: Any) -> np.dtype:
    chosen = default if given is None else given
    if chosen is None:
        return dtypes.default_float_dtype()
    return dtypes.check_and_canonicalize_user_dtype(chosen)


def zeros(key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
    """Zeros; the key is ignored.

    >>> nn.initializers.zeros(None, (2,))
    Array([0., 0.], dtype=float32)
    """
    return jnp.zeros(shape, _dtype(dtype, None))


def ones(key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
    """Ones; the key is ignored.

    >>> nn.initializers.ones(None, (2,))
    Array([1., 1.], dtype=float32)
    """
    return jnp.ones(shape, _dtype(dtype, None))


def constant(value: Any, dtype: Any = None) -> Initializer:
    """An initializer that fills with one value.

    >>> nn.initializers.constant(7.0)(None, (2,))
    Array([7., 7.], dtype=float32)
    """

    @api_boundary
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Array:
        return jnp.full(shape, value, _dtype(dtype, None))

    return init


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer that draws uniformly from `[0, scale)`.

    >>> nn.initializers.uniform(1.0)(amdjax.random.key(0), (2,)).shape
    (2,)
    """

    @api_boundary
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Array:
        kind = _dtype(dtype, None)
        return random.uniform(key, shape, kind) * jnp.array(scale, kind)

    return init


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer that draws from a normal distribution around 0.

    >>> nn.initializers.normal(1.0)(amdjax.random.key(0), (2,)).shape
    (2,)
    """

    @api_boundary
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Array:
        kind = _dtype(dtype, None)
        return random.normal(key, shape, kind) * jnp.array(stddev, kind)

    return init


def truncated_normal(
    stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0
) -> Initializer:
    """An initializer that draws from a normal distribution cut off at both ends.

    Args:
      stddev: standard deviation before the cut.
      dtype: default dtype of what it makes.
      lower: cut below, in units of `stddev`.
      upper: cut above, in units of `stddev`.

        >>> nn.initializers.truncated_normal(1.0)(amdjax.random.key(0), (2,)).shape
        (2,)
    """

    @api_boundary
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Array:
        kind = _dtype(dtype, None)
        drawn = random.truncated_normal(key, lower, upper, shape, kind)
        return drawn * jnp.array(stddev, kind)

    return init


def _fans(
    shape: Sequence[int], in_axis: Axes, out_axis: Axes, batch_axis: Axes
) -> tuple[float, float]:
    """How many inputs an output has, and how many outputs an input."""
    if len(shape) <= 1 and in_axis == -2:
        raise ValueError(
            f"Can't compute input and output sizes of a {len(shape)}-dimensional weights tensor "
            "with default in_axis. Must be at least 2D or specify in_axis explicitly."
        )
    extent = lambda axes: math.prod(shape[i] for i in ((axes,) if isinstance(axes, int) else axes))
    inputs, outputs, batch = extent(in_axis), extent(out_axis), extent(batch_axis)
    receptive = math.prod(shape) / inputs / outputs / batch
    return inputs * receptive, outputs * receptive


#: What a variance is divided by, from the numbers of inputs and of outputs of a unit.
_FANS: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda inputs, outputs: inputs,
    "fan_out": lambda inputs, outputs: outputs,
    "fan_avg": lambda inputs, outputs: (inputs + outputs) / 2,
    "fan_geo_avg": lambda inputs, outputs: math.sqrt(inputs * outputs),
}
_DRAWN = ("truncated_normal", "normal", "uniform")


def variance_scaling(
    scale: Any, mode: str, distribution: str, in_axis: Axes = -2, out_axis: Axes = -1,
    batch_axis: Axes = (), dtype: Any = None,
) -> Initializer:  # fmt: skip
    """An initializer whose variance is `scale` divided by a fan of the weights.

    Args:
      scale: numerator of the variance.
      mode: "fan_in", "fan_out", "fan_avg" or "fan_geo_avg".
      distribution: "truncated_normal", "normal" or "uniform".
      in_axis: axis or axes of inputs.
      out_axis: axis or axes of outputs.
      batch_axis: axis or axes that are neither.
      dtype: default dtype of what it makes.

    Raises:
      ValueError: `mode` or `distribution` is unknown.

        >>> init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
        >>> init(amdjax.random.key(0), (2, 3)).shape
        (2, 3)
    """
    for name, value, known in (("mode", mode, _FANS), ("distribution", distribution, _DRAWN)):
        if value not in tuple(known):
            raise ValueError(
                f"variance_scaling: {name} must be one of {', '.join(known)}, got {value!r}."
            )
    fan = _FANS[mode]

    @api_boundary
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Array:
        shape = canonical_shape(shape)
        kind = _dtype(dtype, None)
        variance = jnp.array(
            scale / fan(*_fans(shape, in_axis, out_axis, batch_axis)), dtypes.finfo(kind).dtype
        )
        if distribution == "normal":
            return random.normal(key, shape, kind) * jnp.sqrt(variance).astype(kind)
        if distribution == "uniform":
            if dtypes.issubdtype(kind, np.floating):
                return random.uniform(key, shape, kind, -1) * jnp.sqrt(3 * variance).astype(kind)
            return _complex_uniform(key, shape, kind) * jnp.sqrt(variance).astype(kind)
        if dtypes.issubdtype(kind, np.floating):
            # The cut at ±2 leaves this standard deviation of one.
            stddev = jnp.sqrt(variance) / jnp.array(0.87962566103423978, variance.dtype)
            drawn = random.truncated_normal(key, -2, 2, shape, kind)
        else:
            stddev = jnp.sqrt(variance) / jnp.array(0.95311164380491208, variance.dtype)
            drawn = _complex_truncated_normal(key, shape, kind)
        return drawn * stddev.astype(kind)

    return init


def _complex_uniform(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Uniform in the disc in which magnitudes have unit variance."""
    key_r, key_theta = random.split(key)
    real = dtypes.finfo(dtype).dtype
    radius = jnp.sqrt(2 * random.uniform(key_r, shape, real)).astype(dtype)
    theta = 2 * jnp.pi * random.uniform(key_theta, shape, real).astype(dtype)
    return radius * jnp.exp(1j * theta)


def _complex_truncated_normal(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Normal with magnitudes up to two."""
    key_r, key_theta = random.split(key)
    real = dtypes.finfo(dtype).dtype
    t = (1 - jnp.exp(jnp.array(-4, real))) * random.uniform(key_r, shape, real)
    radius = jnp.sqrt(-jnp.log(1 - t)).astype(dtype)
    theta = 2 * jnp.pi * random.uniform(key_theta, shape, real).astype(dtype)
    return radius * jnp.exp(1j * theta)


class _Scaled(Protocol):
    def __call__(
        self, in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
    ) -> Initializer: ...


def _scaled(name: str, scale: float, mode: str, variance: str, source: str) -> _Scaled:
    """`variance_scaling` by settings that have a name, which ends by the distribution's."""
    distribution = "uniform" if name.endswith("uniform") else "truncated_normal"

    def make(
        in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    text = f"{distribution.replace('_', ' ').capitalize()} with variance `{variance}` ({source})."
    example = f"nn.initializers.{name}()(amdjax.random.key(0), (2, 3)).shape"
    return named(make, name, text, example, "(2, 3)")


_GLOROT = 1.0, "fan_avg", "2 / (fan_in + fan_out)", "Glorot and Bengio, 2010"
_LECUN = 1.0, "fan_in", "1 / fan_in", "LeCun et al., 1998"
_HE = 2.0, "fan_in", "2 / fan_in", "He et al., 2015"

glorot_uniform = _scaled("glorot_uniform", *_GLOROT)
glorot_normal = _scaled("glorot_normal", *_GLOROT)
lecun_uniform = _scaled("lecun_uniform", *_LECUN)
lecun_normal = _scaled("lecun_normal", *_LECUN)
he_uniform = _scaled("he_uniform", *_HE)
he_normal = _scaled("he_normal", *_HE)
xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer of matrices with orthonormal rows or columns (Saxe et al., 2013).

    Args:
      scale: factor of the matrix.
      column_axis: the axis of columns; the others are flattened into rows.
      dtype: default dtype of what it makes.

        >>> nn.initializers.orthogonal()(amdjax.random.key(0), (3, 2)).shape
        (3, 2)
    """

    @api_boundary
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Array:
        kind = _dtype(dtype, None)
        shape = canonical_shape(shape)
        if len(shape) < 2:
            raise ValueError("orthogonal initializer requires at least a 2D shape")
        columns = shape[column_axis]
        rows = math.prod(n for i, n in enumerate(shape) if i != column_axis % len(shape))
        matrix = (max(rows, columns), min(rows, columns))
        q, r = jnp.linalg.qr(random.normal(key, matrix, kind))
        # With the signs of r's diagonal the distribution is uniform.
        diagonal = jnp.diagonal(r)
        q = q * jnp.expand_dims(diagonal / jnp.abs(diagonal), 0)
        q = q.T if rows < columns else q
        rest = [n for i, n in enumerate(shape) if i != column_axis % len(shape)]
        q = jnp.moveaxis(jnp.reshape(q, (*rest, columns)), -1, column_axis)
        return jnp.array(scale, kind) * q

    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer of convolutions: orthogonal at the center, zero elsewhere (Xiao et al., 2018).

    >>> nn.initializers.delta_orthogonal()(amdjax.random.key(0), (3, 3, 2, 4)).shape
    (3, 3, 2, 4)
    """

    @api_boundary
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Array:
        kind = _dtype(dtype, None)
        shape = canonical_shape(shape)
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape.")
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`.")
        square = orthogonal(scale, column_axis, kind)(key, shape[-2:])
        center = tuple((n - 1) // 2 for n in shape[:-2])
        return jnp.zeros(shape, kind).at[center].set(square)

    return init


_complete(globals(), _docs.INITIALIZERS, _docs.INITIALIZER_PHRASES)
_public_surface(globals())
