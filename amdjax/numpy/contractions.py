"""Products of vectors, matrices and tensors."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.core.dims import is_natural
from amdjax.numpy._util import (
    ArrayLike,
    DTypeLike,
    as_arrays,
    broadcast_to,
    canonical_axis,
    convert,
    is_kind,
    promote_dtypes,
    refuse_out,
    user_dtype,
)
from amdjax.numpy.joining import stack
from amdjax.numpy.manipulation import moveaxis


def _operands(
    name: str, preferred: DTypeLike, *args: ArrayLike
) -> tuple[list[Array], np.dtype, bool]:
    """Operands in their own dtypes, the dtype of the product, and whether it is weak."""
    arrays = as_arrays(name, *args)
    dtype, weak = promotion.lattice_result_type(*arrays)
    arrays = [convert(x, x.dtype) for x in arrays]
    if preferred is not None:
        return arrays, user_dtype(preferred, name), False
    return arrays, dtype, weak


def dot_general(
    x: Array, y: Array, contract: Any, batch: Any, precision: Any, preferred: Any
) -> Array:
    """`lax.dot_general` whose axis numbers are plain ints."""
    numbers: Any = tuple(
        (tuple(builtins.int(i) for i in left), tuple(builtins.int(i) for i in right))
        for left, right in (contract, batch)
    )
    return lax.dot_general(x, y, numbers, precision=precision, preferred_element_type=preferred)


def matmul(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: DTypeLike = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """The matrix product; leading axes broadcast.

    Args:
      a: of shape `(..., n, k)` or `(k,)`.
      b: of shape `(..., k, m)` or `(k,)`.

    Raises:
      ValueError: an argument is a scalar.
      TypeError: the contracted extents differ.

        >>> jnp.matmul(jnp.array([[1, 2]]), jnp.array([[3], [4]]))
        Array([[11]], dtype=int32)
    """
    (x, y), dtype, weak = _operands("matmul", preferred_element_type, a, b)
    for i, operand in enumerate((x, y)):
        if operand.ndim < 1:
            raise ValueError(
                f"matmul input operand {i} must have ndim at least 1, but it has ndim"
                f" {operand.ndim}"
            )
    k = canonical_axis(-1 if y.ndim == 1 else -2, y.ndim)
    if x.shape[-1] != y.shape[k]:
        raise TypeError(
            "dot_general requires contracting dimensions to have the same shape, got"
            f" ({x.shape[-1]},) and ({y.shape[k]},)."
        )
    if y.ndim <= 2:
        result = dot_general(x, y, ((x.ndim - 1,), (k,)), ((), ()), precision, dtype)
        return convert(result, dtype, weak)
    return convert(_batched(x, y, precision, dtype), dtype, weak)


def _batched(x: Array, y: Array, precision: Any, dtype: Any) -> Array:
    """Batch axes both operands have are batch dimensions, others stay with their operand."""
    x_matrix, y_matrix = x.ndim > 1, y.ndim > 1
    xb = x.shape[:-2] if x_matrix else ()
    yb = y.shape[:-2]
    rank = builtins.max(len(xb), len(yb))
    xb = (1,) * (rank - len(xb)) + xb
    yb = (1,) * (rank - len(yb)) + yb
    shape = lax.broadcast_shapes(xb, yb)
    x_core = x.shape[-2:] if x_matrix else x.shape[-1:]
    y_core = y.shape[-2:] if y_matrix else y.shape[-1:]
    # A batch axis of one is squeezed away; the other operand keeps it as a free axis.
    x_kept = [i for i in range(rank) if xb[i] != 1]
    y_kept = [i for i in range(rank) if yb[i] != 1]
    x = lax.reshape(x, (*(xb[i] for i in x_kept), *x_core))
    y = lax.reshape(y, (*(yb[i] for i in y_kept), *y_core))
    both = [i for i in x_kept if i in y_kept]
    contract = ((x.ndim - 1,), (len(y_kept) if y_matrix else 0,))
    batch = ([x_kept.index(i) for i in both], [y_kept.index(i) for i in both])
    result = dot_general(x, y, contract, batch, precision, dtype)
    # In the result the shared axes come first, then the others of x, then the others of y.
    labels: list[Any] = [*both, *(i for i in x_kept if i not in both)]
    labels += ["row"] if x_matrix else []
    labels += [i for i in y_kept if i not in both]
    labels += ["column"] if y_matrix else []
    wanted = [*range(rank), *(["row"] if x_matrix else []), *(["column"] if y_matrix else [])]
    present = [label for label in wanted if label in labels]
    order = tuple(labels.index(label) for label in present)
    if order != tuple(range(len(order))):
        result = lax.transpose(result, order)
    missing = tuple(i for i, label in enumerate(wanted) if label not in labels)
    result = lax.expand_dims(result, missing) if missing else result
    return broadcast_to(result, (*shape, *result.shape[rank:]))


def dot(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: DTypeLike = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """NumPy's dot product: the last axis of `a` with the second last of `b`.

    >>> jnp.dot(jnp.array([1, 2]), jnp.array([3, 4]))
    Array(11, dtype=int32)
    """
    (x, y), dtype, weak = _operands("dot", preferred_element_type, a, b)
    if x.ndim == 0 or y.ndim == 0:
        common = promotion.result_type(x, y)
        product = lax.mul(*(broadcast_to(convert(v, common), x.shape or y.shape) for v in (x, y)))
        return convert(product, dtype, weak)
    contract = ((x.ndim - 1,), (0 if y.ndim == 1 else y.ndim - 2,))
    return convert(dot_general(x, y, contract, ((), ()), precision, dtype), dtype, weak)


def vdot(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: DTypeLike = None
) -> Array:
    """The dot product of flattened arrays, the first conjugated.

    >>> jnp.vdot(jnp.array([1j]), jnp.array([1j]))
    Array(1.+0.j, dtype=complex64)
    """
    x, y = as_arrays("vdot", a, b)
    x = lax.conj(x) if is_kind(x.dtype, np.complexfloating) else x
    flat = lambda v: lax.reshape(v, (v.size,))
    return dot(flat(x), flat(y), precision=precision, preferred_element_type=preferred_element_type)


def vecdot(
    x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1, precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:  # fmt: skip
    """The dot products of vectors along `axis`, the first conjugated; other axes broadcast.

    >>> jnp.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    x, y = as_arrays("vecdot", x1, x2)
    if x.shape[axis] != y.shape[axis]:
        raise ValueError(
            f"vecdot: sizes {x.shape[axis]} and {y.shape[axis]} along axis {axis} differ"
        )
    x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    x = lax.conj(x) if is_kind(x.dtype, np.complexfloating) else x
    column = lax.expand_dims(y, (y.ndim,))
    row = lax.expand_dims(x, (x.ndim - 1,))
    result = matmul(row, column, precision=precision, preferred_element_type=preferred_element_type)
    return lax.squeeze(result, (result.ndim - 2, result.ndim - 1))


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Matrices times vectors; leading axes broadcast.

    >>> jnp.matvec(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    x, y = as_arrays("matvec", x1, x2)
    if x.ndim < 2 or y.ndim < 1:
        raise ValueError(f"matvec needs a matrix and a vector, got shapes {x.shape} and {y.shape}")
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"matvec: shapes {x.shape} and {y.shape} differ in their last axes")
    result = matmul(x, lax.expand_dims(y, (y.ndim,)))
    return lax.squeeze(result, (result.ndim - 1,))


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Conjugated vectors times matrices; leading axes broadcast.

    >>> jnp.vecmat(jnp.array([1, 1]), jnp.array([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    """
    x, y = as_arrays("vecmat", x1, x2)
    if x.ndim < 1 or y.ndim < 2:
        raise ValueError(f"vecmat needs a vector and a matrix, got shapes {x.shape} and {y.shape}")
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"vecmat: {x.shape[-1]} elements meet {y.shape[-2]} rows")
    x = lax.conj(x) if is_kind(x.dtype, np.complexfloating) else x
    result = matmul(lax.expand_dims(x, (x.ndim - 1,)), y)
    return lax.squeeze(result, (result.ndim - 2,))


def inner(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: DTypeLike = None
) -> Array:
    """The sum of products over the last axes.

    >>> jnp.inner(jnp.array([1, 2]), jnp.array([3, 4]))
    Array(11, dtype=int32)
    """
    x, y = as_arrays("inner", a, b)
    if x.ndim == 0 or y.ndim == 0:
        return dot(x, y, precision=precision, preferred_element_type=preferred_element_type)
    return tensordot(
        x, y, (-1, -1), precision=precision, preferred_element_type=preferred_element_type
    )


def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """The products of all pairs of elements.

    >>> jnp.outer(jnp.array([1, 2]), jnp.array([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    refuse_out("outer", out)
    x, y = promote_dtypes(*as_arrays("outer", a, b))
    left = broadcast_to(lax.reshape(x, (x.size, 1)), (x.size, y.size))
    right = broadcast_to(lax.reshape(y, (1, y.size)), (x.size, y.size))
    return lax.mul(left, right)


def tensordot(
    a: ArrayLike, b: ArrayLike, axes: Any = 2, *, precision: Any = None,
    preferred_element_type: DTypeLike = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """The sum of products over several axes.

    Args:
      b: array.
      axes: the number of last axes of `a` and first axes of `b` to contract, or a pair of axes or
        of sequences of axes.

        >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), 1).shape
        (2, 4)
    """
    (x, y), dtype, weak = _operands("tensordot", preferred_element_type, a, b)
    if isinstance(axes, (int, np.integer)):
        if axes > builtins.min(x.ndim, y.ndim):
            raise TypeError(
                f"Number of tensordot axes (axes {axes}) exceeds input ranks ({x.shape} and"
                f" {y.shape})"
            )
        contract = (tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes)))
    elif isinstance(axes, Sequence) and len(axes) == 2:
        if not all(isinstance(v, (int, np.integer, tuple, list)) for v in axes):
            raise TypeError(
                f"tensordot requires both axes lists to be either ints, tuples or lists, got {axes}"
            )
        left, right = ((v,) if isinstance(v, (int, np.integer)) else tuple(v) for v in axes)
        if len(left) != len(right):
            raise TypeError(
                f"tensordot requires axes lists to have equal length, got {left} and {right}."
            )
        contract = (
            tuple(canonical_axis(i, x.ndim) for i in left),
            tuple(canonical_axis(i, y.ndim) for i in right),
        )
    else:
        raise TypeError("tensordot axes argument must be an int, a pair of ints, or a pair of"
                        f" lists/tuples of ints, got {axes}.")  # fmt: skip
    return convert(dot_general(x, y, contract, ((), ()), precision, dtype), dtype, weak)


def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1,
    axis: int | None = None,
) -> Array:  # fmt: skip
    """The cross product of vectors of two or three elements.

    >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promote_dtypes(*as_arrays("cross", a, b))
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product")
    shape = lax.broadcast_shapes(x.shape[:-1], y.shape[:-1])

    def parts(v: Array) -> list[Array]:
        n = v.shape[-1]
        return [
            broadcast_to(lax.index_in_dim(v, i, v.ndim - 1, keepdims=False), shape)
            for i in range(n)
        ]

    u, v = parts(x), parts(y)
    minus = lambda p, q, r, s: lax.sub(lax.mul(p, q), lax.mul(r, s))
    last = minus(u[0], v[1], u[1], v[0])
    if len(u) == len(v) == 2:
        return last
    zero = lax.full(shape, 0, x.dtype)
    u, v = ([*w, zero] if len(w) == 2 else w for w in (u, v))
    first = minus(u[1], v[2], u[2], v[1])
    second = minus(u[2], v[0], u[0], v[2])
    return moveaxis(stack([first, second, last], -1), -1, axisc)


def _slide(
    name: str, a: ArrayLike, v: ArrayLike, mode: str, precision: Any, preferred: Any
) -> Array:
    """Convolution (of `correlate`, after its flip) as a one-channel `conv_general_dilated`."""
    (x, y), dtype, _ = _operands(name, preferred, a, v)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"{name}() only support 1-dimensional inputs.")
    if not x.size or not y.size:
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {x.shape} and {y.shape}.")
    dtype = dtypes.to_inexact_dtype(dtype)
    x, y = convert(x, dtype), convert(y, dtype)
    # The shorter one slides, but where a full result is the same and sizes do not tell it.
    either = mode == "full" and is_natural(x.size - y.size) is None
    swapped = not either and x.size < y.size
    if name == "correlate" and is_kind(y.dtype, np.complexfloating):
        y = lax.conj(y)
    x, y = (y, x) if swapped else (x, y)
    if name == "convolve":
        y = lax.rev(y, (0,))
    n = y.size
    padding = {"valid": (0, 0), "same": (n // 2, n - n // 2 - 1), "full": (n - 1, n - 1)}.get(mode)
    if padding is None:
        raise ValueError("mode must be one of ['full', 'same', 'valid']")
    result = lax.conv_general_dilated(
        lax.reshape(x, (1, 1, x.size)), lax.reshape(y, (1, 1, n)), (1,), [padding],
        precision=precision,
    )  # fmt: skip
    result = lax.reshape(result, (result.size,))
    if preferred is not None:
        result = convert(result, user_dtype(preferred, name))
    # A correlation with its operands exchanged runs backwards.
    return lax.rev(result, (0,)) if swapped and name == "correlate" else result


def convolve(
    a: ArrayLike, v: ArrayLike, mode: str = "full", *, precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:  # fmt: skip
    """The discrete convolution of two vectors.

    >>> jnp.convolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0]))
    Array([0., 1., 2., 3.], dtype=float32)
    """
    return _slide("convolve", a, v, mode, precision, preferred_element_type)


def correlate(
    a: ArrayLike, v: ArrayLike, mode: str = "valid", *, precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:  # fmt: skip
    """The cross-correlation of two vectors, the second conjugated.

    >>> jnp.correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0]))
    Array([2., 3.], dtype=float32)
    """
    return _slide("correlate", a, v, mode, precision, preferred_element_type)
