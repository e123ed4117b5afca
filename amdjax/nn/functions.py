"""Activation functions, softmax and its kin, encodings: layers without parameters."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.config import config
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.trace import concrete_or_error
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    as_array,
    broadcast_arrays,
    broadcast_to,
    canonical_axes,
    canonical_axis,
    constant,
    convert,
    is_kind,
    promote_args_inexact,
    select,
    stop_gradient,
)
from amdjax.numpy.logsumexp import logmeanexp, logsumexp
from amdjax.numpy.reductions import _static
from amdjax.transforms import custom_jvp

__all__ = ["logmeanexp", "logsumexp"]


def identity(x: ArrayLike) -> Array:
    """`x` itself.

    >>> nn.identity(jnp.array([1.0, -1.0]))
    Array([ 1., -1.], dtype=float32)
    """
    return as_array("identity", x)


@custom_jvp
def _relu(x: Array) -> Array:
    return jnp.maximum(x, 0)


# At zero the derivative is zero.
_relu.defjvps(lambda g, ans, x: jnp.where(jnp.greater(x, 0), g, lax.full_like(g, 0)))


@composite
def relu(x: ArrayLike) -> Array:
    """`max(x, 0)`, with derivative 0 at 0.

    >>> nn.relu(jnp.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return _relu(as_array("relu", x))


@custom_jvp
def _relu6(x: Array) -> Array:
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


_relu6.defjvps(
    lambda g, ans, x: jnp.where(
        jnp.logical_and(jnp.greater(x, 0), jnp.less(x, 6)), g, lax.full_like(g, 0)
    )
)


@composite
def relu6(x: ArrayLike) -> Array:
    """`min(max(x, 0), 6)`.

    >>> nn.relu6(jnp.array([-1.0, 2.0, 9.0]))
    Array([0., 2., 6.], dtype=float32)
    """
    return _relu6(as_array("relu6", x))


def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """`(x + sqrt(x² + b)) / 2`, a smooth relu.

    >>> nn.squareplus(jnp.array([0.0]))
    Array([1.], dtype=float32)
    """
    return _squareplus(as_array("squareplus", x), as_array("squareplus", b))


@composite
def _squareplus(x: Array, b: Array) -> Array:
    y = jnp.add(x, jnp.sqrt(jnp.add(jnp.square(x), b)))
    return jnp.true_divide(y, 2)


def softplus(x: ArrayLike) -> Array:
    """`log(1 + exp(x))`.

    >>> nn.softplus(jnp.array([0.0]))
    Array([0.6931472], dtype=float32)
    """
    return jnp.logaddexp(x, 0)


@composite
def sparse_plus(x: ArrayLike) -> Array:
    """0 up to -1, `(x + 1)² / 4` up to 1, `x` beyond.

    >>> nn.sparse_plus(jnp.array([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    x = as_array("sparse_plus", x)
    return jnp.where(x <= -1.0, 0.0, jnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


@composite
def soft_sign(x: ArrayLike) -> Array:
    """`x / (|x| + 1)`.

    >>> nn.soft_sign(jnp.array([1.0, -3.0]))
    Array([ 0.5 , -0.75], dtype=float32)
    """
    x = as_array("soft_sign", x)
    return x / (jnp.abs(x) + 1)


def sigmoid(x: ArrayLike) -> Array:
    """`1 / (1 + exp(-x))`.

    >>> nn.sigmoid(jnp.array([0.0]))
    Array([0.5], dtype=float32)
    """
    return lax.logistic(as_array("sigmoid", x))


@composite
def sparse_sigmoid(x: ArrayLike) -> Array:
    """0 up to -1, `(x + 1) / 2` up to 1, 1 beyond.

    >>> nn.sparse_sigmoid(jnp.array([-2.0, 0.0, 2.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return 0.5 * jnp.clip(as_array("sparse_sigmoid", x) + 1.0, 0.0, 2.0)


@composite
def silu(x: ArrayLike) -> Array:
    """`x * sigmoid(x)`, also called swish.

    >>> nn.silu(jnp.array([0.0, 1.0]))
    Array([0.       , 0.7310586], dtype=float32)
    """
    x = as_array("silu", x)
    return x * sigmoid(x)


swish = silu


@composite
def mish(x: ArrayLike) -> Array:
    """`x * tanh(softplus(x))`.

    >>> nn.mish(jnp.array([0.0, 1.0]))
    Array([0.       , 0.8650984], dtype=float32)
    """
    x = as_array("mish", x)
    return x * jnp.tanh(softplus(x))


@composite
def log_sigmoid(x: ArrayLike) -> Array:
    """`log(sigmoid(x))`, accurate for large negative `x`.

    >>> nn.log_sigmoid(jnp.array([0.0]))
    Array([-0.6931472], dtype=float32)
    """
    return -softplus(-as_array("log_sigmoid", x))


@composite
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """`x` where positive, `alpha * (exp(x) - 1)` elsewhere.

    >>> nn.elu(jnp.array([-1.0, 2.0]))
    Array([-0.63212055,  2.        ], dtype=float32)
    """
    x = as_array("elu", x)
    # The untaken branch is kept finite, or its gradient would be NaN.
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0.0, x)))


@composite
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """`x` where not negative, `negative_slope * x` elsewhere.

    >>> nn.leaky_relu(jnp.array([-1.0, 2.0]))
    Array([-0.01,  2.  ], dtype=float32)
    """
    x = as_array("leaky_relu", x)
    return jnp.where(x >= 0, x, negative_slope * x)


@composite
def hard_tanh(x: ArrayLike) -> Array:
    """`x` between -1 and 1, those beyond.

    >>> nn.hard_tanh(jnp.array([-3.0, 0.5]))
    Array([-1. ,  0.5], dtype=float32)
    """
    x = as_array("hard_tanh", x)
    return jnp.where(x > 1, 1, jnp.where(x < -1, -1, x))


@composite
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """`max(x, 0) + alpha * min(exp(x / alpha) - 1, 0)`.

    >>> nn.celu(jnp.array([-1.0, 2.0]))
    Array([-0.63212055,  2.        ], dtype=float32)
    """
    x = as_array("celu", x)
    return jnp.maximum(x, 0.0) + alpha * jnp.expm1(jnp.minimum(x, 0.0) / alpha)


@composite
def selu(x: ArrayLike) -> Array:
    """The self-normalizing `elu` of Klambauer et al. (2017).

    >>> nn.selu(jnp.array([1.0]))
    Array([1.050701], dtype=float32)
    """
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return scale * elu(x, alpha)


@composite(static_argnames="approximate")
def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """`x` times the normal distribution function of `x` (Hendrycks and Gimpel, 2016).

    Args:
      approximate: use the form with tanh instead of the error function.

        >>> nn.gelu(jnp.array([1.0]), approximate=False)
        Array([0.8413447], dtype=float32)
    """
    (x,) = promote_args_inexact("gelu", x)
    x = convert(x, x.dtype)  # its result is never weakly typed
    half, one = constant(x, 0.5), constant(x, 1)
    if not approximate:
        root = constant(x, np.sqrt(0.5))
        return lax.mul(lax.mul(half, x), lax.erfc(lax.mul(lax.neg(x), root)))
    cubic = lax.mul(constant(x, 0.044715), lax.integer_pow(x, 3))
    inner = lax.mul(constant(x, np.sqrt(2 / np.pi)), lax.add(x, cubic))
    return lax.mul(x, lax.mul(half, lax.add(one, lax.tanh(inner))))


@composite(static_argnames="axis")
def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half along `axis` times the sigmoid of the second.

    >>> nn.glu(jnp.array([2.0, 0.0]))
    Array([1.], dtype=float32)
    """
    x = as_array("glu", x)
    axis = canonical_axis(axis, x.ndim, "glu: axis")
    if x.shape[axis] % 2:
        raise ValueError(f"glu: the size of x along axis {axis} must be even, got {x.shape}.")
    first, second = jnp.split(x, 2, axis)
    return first * sigmoid(second)


@composite
def hard_sigmoid(x: ArrayLike) -> Array:
    """`relu6(x + 3) / 6`.

    >>> nn.hard_sigmoid(jnp.array([0.0]))
    Array([0.5], dtype=float32)
    """
    return relu6(as_array("hard_sigmoid", x) + 3.0) / 6.0


@composite
def hard_silu(x: ArrayLike) -> Array:
    """`x * hard_sigmoid(x)`, also called hard swish.

    >>> nn.hard_silu(jnp.array([1.0]))
    Array([0.6666667], dtype=float32)
    """
    x = as_array("hard_silu", x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@composite
def log1mexp(x: ArrayLike) -> Array:
    """`log(1 - exp(-x))` for positive `x`, accurate at both ends (Mächler, 2012).

    >>> nn.log1mexp(jnp.array([1.0]))
    Array([-0.45867515], dtype=float32)
    """
    (x,) = promote_args_inexact("log1mexp", x)
    near = lax.lt(x, constant(x, np.log(2)))
    small = lax.log(lax.neg(lax.expm1(lax.neg(select(near, x, constant(x, 1))))))
    large = lax.log1p(lax.neg(lax.exp(lax.neg(select(near, constant(x, 1), x)))))
    return select(near, small, large)


def _with_mask(name: str, x: ArrayLike, where: ArrayLike | None) -> tuple[Array, Array | None]:
    """An inexact argument and a mask of its shape."""
    (x,) = promote_args_inexact(name, x)
    if where is None:
        return x, None
    mask = as_array(name, where)
    if x.ndim:
        x, mask = broadcast_arrays(x, mask)
    return x, mask


def _masked(x: Array, axis: Axis, where: Array | None) -> tuple[Array, tuple[int, ...], Array]:
    """What softmax starts from: the exponents less the largest one."""
    axes = canonical_axes(axis, x.ndim)
    largest = jnp.max(x, axes, keepdims=True, where=where, initial=-jnp.inf)
    if where is not None:
        x = select(where, x, constant(x, -np.inf))
        # A row of which nothing is kept has no largest element.
        largest = select(lax.eq(largest, constant(largest, -np.inf)), constant(largest, 0), largest)
    return lax.sub(x, stop_gradient(broadcast_to(largest, x.shape))), axes, largest


def _softmax_values(x: Array, where: Array | None, axis: Axis, fast: bool) -> Array:
    if fast:
        axes = canonical_axes(axis, x.ndim)
        terms = lax.exp(x if where is None else select(where, x, constant(x, -np.inf)))
    else:
        shifted, axes, _ = _masked(x, axis, where)
        terms = lax.exp(shifted)
    total = jnp.sum(terms, axes, keepdims=True)
    if where is not None:
        total = select(lax.eq(total, constant(total, 0)), constant(total, 1), total)
    return lax.div(terms, broadcast_to(total, terms.shape))


def _make_softmax(axis: Axis, fast: bool) -> Any:
    """Softmax along `axis` with its own derivative, which needs nothing but the result."""

    @custom_jvp
    def softmax(x: Array, where: Array | None) -> Array:
        return _softmax_values(x, where, axis, fast)

    def jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
        y = softmax(*primals)
        weighted = lax.mul(y, tangents[0])
        total = jnp.sum(weighted, canonical_axes(axis, y.ndim), keepdims=True)
        return y, lax.sub(weighted, lax.mul(y, broadcast_to(total, y.shape)))

    softmax.defjvp(jvp)
    return softmax


@composite(static_argnames=("axis", "fast"))
def _softmax(x: Array, where: Array | None, axis: Axis, fast: bool) -> Array:
    if config.softmax_custom_jvp:
        return _make_softmax(axis, fast)(x, where)
    return _softmax_values(x, where, axis, fast)


def softmax(
    x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None, *, algorithm: str = "accurate",
) -> Array:  # fmt: skip
    """Exponentials of the elements, divided by their sum along `axis`.

    Args:
      x: exponents.
      axis: the axis or axes that sum to one; None means all.
      where: mask of the elements to include; the others are 0.
      algorithm: "accurate" takes the largest element from all; "fast" does not, so that it reads
        `x` once less and overflows where an element is above some 88 (11 in float16); "log" gives
        the logarithm, as `log_softmax`.

    Raises:
      ValueError: for an unknown `algorithm`.

        >>> nn.softmax(jnp.array([1.0, 1.0]))
        Array([0.5, 0.5], dtype=float32)
    """
    x, where = _with_mask("softmax", x, where)
    if algorithm not in ("accurate", "fast", "log"):
        raise ValueError(
            f'softmax: algorithm must be "accurate", "fast" or "log", got {algorithm!r}.'
        )
    if algorithm == "log":
        return _log_softmax(x, where, _static(axis))
    return _softmax(x, where, _static(axis), algorithm == "fast")


@composite(static_argnames="axis")
def _log_softmax(x: Array, where: Array | None, axis: Axis) -> Array:
    shifted, axes, _ = _masked(x, axis, where)
    total = lax.log(jnp.sum(lax.exp(shifted), axes, keepdims=True))
    result = lax.sub(shifted, broadcast_to(total, shifted.shape))
    if where is not None:
        result = select(where, result, constant(result, -np.inf))
    return result


def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """The logarithm of `softmax`, computed without it.

    >>> nn.log_softmax(jnp.array([0.0, 0.0]))
    Array([-0.6931472, -0.6931472], dtype=float32)
    """
    x, where = _with_mask("log_softmax", x, where)
    return _log_softmax(x, where, _static(axis))


@composite(static_argnames=("axis", "algorithm"))
def _standardize(
    x: Array, axis: Axis, mean: Array | None, variance: Array | None, epsilon: ArrayLike,
    where: Array | None, algorithm: str,
) -> Array:  # fmt: skip
    if mean is None:
        mean = jnp.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "fast":
            squares = jnp.mean(jnp.square(x), axis, keepdims=True, where=where)
            # Rounding may leave less than nothing.
            variance = jnp.clip(squares - jnp.square(mean), 0)
        else:
            variance = jnp.mean(jnp.square(x - mean), axis, keepdims=True, where=where)
    return jnp.subtract(x, mean) * lax.rsqrt(jnp.add(variance, epsilon))


def standardize(
    x: ArrayLike, axis: Axis = -1, mean: ArrayLike | None = None, variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-05, where: ArrayLike | None = None, *, algorithm: str = "fast",
) -> Array:  # fmt: skip
    """`x` moved and scaled to mean 0 and variance 1 along `axis`.

    Args:
      axis: axis or axes of the statistics.
      mean: known mean, to be used instead.
      variance: known variance, to be used instead.
      where: mask of the elements that count.
      algorithm: "fast" takes the mean of squares less the squared mean; "stable" the mean of
        squared deviations, which loses fewer digits where the mean is large.

        >>> nn.standardize(jnp.array([-1.0, 1.0]))
        Array([-0.999995,  0.999995], dtype=float32)
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"Invalid algorithm: {algorithm}. Choose 'fast' or 'stable'.")
    (x,) = promote_args_inexact("standardize", x)
    opt = lambda v: None if v is None else as_array("standardize", v)
    return _standardize(x, _static(axis), opt(mean), opt(variance), epsilon, opt(where), algorithm)


def kthvalue(
    x: ArrayLike, k: int, axis: int = -1, *, keepdims: bool = False
) -> tuple[Array, Array]:
    """The `k`-th smallest elements along an axis, and where they are.

    Args:
      k: 1 for the smallest.
      axis: the axis that is searched.
      keepdims: keep it with size one.

    Returns:
      The elements and their int32 positions, of equal ones that of the `k`-th in order. NaN counts
      as larger than all.

    Raises:
      ValueError: for an axis out of range, or a `k` that is no number from 1 to its size.

        >>> nn.kthvalue(jnp.array([5.0, 1.0, 3.0]), 2)
        (Array(3., dtype=float32), Array(2, dtype=int32))
    """
    x = as_array("kthvalue", x)
    axis = canonical_axis(axis, x.ndim)
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= x.shape[axis]:
        raise ValueError(f"kthvalue: k must lie between 1 and {x.shape[axis]}, got {k!r}.")
    return _kthvalue(x, int(k), axis, bool(keepdims))


@composite(static_argnames=("k", "axis", "keepdims"))
def _kthvalue(x: Array, k: int, axis: int, keepdims: bool) -> tuple[Array, Array]:
    places = lax.broadcasted_iota(np.dtype(np.int32), x.shape, axis)
    _, places = lax.sort_key_val(stop_gradient(x), places, axis)
    at = lax.slice_in_dim(places, k - 1, k, axis=axis)
    value = jnp.take_along_axis(x, at, axis)
    return (value, at) if keepdims else (jnp.squeeze(value, axis), jnp.squeeze(at, axis))


@composite(static_argnames=("num_classes", "dtype", "axis"))
def _one_hot(x: Array, num_classes: int, dtype: Any, axis: int) -> Array:
    rank = x.ndim + 1
    axis = axis + rank if axis < 0 else axis
    classes = lax.broadcasted_iota(
        x.dtype, tuple(num_classes if i == axis else 1 for i in range(rank)), axis
    )
    return convert(jnp.equal(lax.expand_dims(x, (axis,)), classes), dtype)


def one_hot(x: ArrayLike, num_classes: int, *, dtype: Any = None, axis: int | str = -1) -> Array:
    """Integers as vectors with a single one; those out of range as zeros.

    Args:
      x: class numbers.
      num_classes: length of the vectors.
      dtype: dtype of the result; None means the default float.
      axis: where the new axis goes.

        >>> nn.one_hot(jnp.array([0, 2]), 3)
        Array([[1., 0., 0.],
               [0., 0., 1.]], dtype=float32)
    """
    x = jnp.asarray(x) if isinstance(x, (list, tuple)) else as_array("one_hot", x)
    if not is_symbolic_dim(num_classes):
        where = "The error arose in jax.nn.one_hot argument `num_classes`."
        known = concrete_or_error(None, num_classes, where)
        if known.shape or not is_kind(known.dtype, np.integer):
            raise TypeError(f"one_hot: num_classes must be an integer, got {num_classes!r}.")
        num_classes = int(known)
    if num_classes < 0:
        raise ValueError(f"one_hot: num_classes must not be negative, got {num_classes}.")
    if not isinstance(axis, (int, np.integer)):
        raise TypeError(f"one_hot: axis must be an integer, got {axis!r}.")
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {x.ndim + 1}")
    dtype = dtypes.default_float_dtype() if dtype is None else dtypes.canonicalize_dtype(dtype)
    if not is_kind(x.dtype, np.integer):
        if is_kind(x.dtype, np.inexact):
            warnings.warn(
                f"jax.nn.one_hot input should be integer-typed; got dtype={x.dtype}",
                DeprecationWarning,
                stacklevel=2,
            )
        x = convert(x, dtypes.default_int_dtype())
    return _one_hot(x, num_classes, dtype, axis)


tanh = jnp.tanh
