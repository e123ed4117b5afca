"""Shapes of arrays, and arrays made of shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.dtypes import canonicalize_dtype

from ..nodes import Node
from ..registry import MAX_HOST, axis_of, host_array, namespace, rule, size, sizes
from .arithmetic import check_same_dtype


def _as_sizes(node: Node, values: Any) -> np.ndarray:
    made = host_array(np.array(values, object))
    return made if made.dtype == object else made.astype(node.dtype("out_type", np.int32))


def is_small(shape: Any) -> bool:
    """Whether arrays of a shape are host arrays where their values are known."""
    return not any(map(is_symbolic_dim, shape)) and math.prod(shape) <= MAX_HOST


def fitting(value: Any, shape: Any) -> Any:
    """The namespace for what is made of a value in a shape."""
    return namespace(value) if is_small(shape) else jnp


@rule("Shape")
def shape(node: Node, x: Any) -> Any:
    return _as_sizes(node, x.shape) if x.ndim else np.zeros(0, node.dtype("out_type", np.int32))


@rule("ShapeN", mixed=True)
def shape_n(node: Node, *inputs: Any) -> Any:
    return tuple(shape(node, x) for x in inputs)


@rule("Size")
def size_of(node: Node, x: Any) -> Any:
    total: Any = 1
    for n in x.shape:
        total = total * n
    return _as_sizes(node, total)


@rule("Rank")
def rank(node: Node, x: Any) -> Any:
    return np.asarray(x.ndim, np.int32)


@rule("Reshape", numbers=("shape",))
def reshape(node: Node, x: Any, shape: Any) -> Any:
    new = sizes(shape)
    if sum(isinstance(n, int) and n < 0 for n in new) > 1 or any(
        isinstance(n, int) and n < -1 for n in new
    ):
        raise node.error(f"{new} is no shape")
    return x.reshape(tuple(new))


@rule("ExpandDims", numbers=("dim",))
def expand_dims(node: Node, x: Any, dim: Any) -> Any:
    return namespace(x).expand_dims(x, axis_of(node, "dim", size(node, "dim", dim), x.ndim + 1))


@rule("Squeeze")
def squeeze(node: Node, x: Any) -> Any:
    axes = node.integers("squeeze_dims", ()) or node.integers("axis", ())
    chosen = [axis_of(node, "squeeze_dims", a, x.ndim) for a in axes]
    chosen = chosen or [i for i, n in enumerate(x.shape) if isinstance(n, int) and n == 1]
    return namespace(x).squeeze(x, tuple(sorted(set(chosen))))


@rule("Transpose", "ConjugateTranspose", numbers=("perm",))
def transpose(node: Node, x: Any, perm: Any) -> Any:
    axes = [axis_of(node, "perm", a, x.ndim) for a in sizes(perm)]
    if sorted(axes) != list(range(x.ndim)):
        raise node.error(f"perm must hold the axes of shape {x.shape}, got {sizes(perm)}")
    y = namespace(x).transpose(x, axes)
    return namespace(x).conj(y) if node.op == "ConjugateTranspose" else y


@rule("InvertPermutation", numbers=("x",))
def invert_permutation(node: Node, x: Any) -> Any:
    if sorted(sizes(x)) != list(range(x.size)):
        raise node.error(f"{sizes(x)} is no permutation")
    return np.argsort(x).astype(x.dtype)


@rule("BroadcastTo", numbers=("shape",))
def broadcast_to(node: Node, x: Any, shape: Any) -> Any:
    return _broadcast(x, _shape(node, "shape", shape))


def _shape(node: Node, name: str, value: np.ndarray) -> tuple[Any, ...]:
    if value.ndim > 1:
        raise node.error(f"{name} must be a vector, got shape {value.shape}")
    found = tuple(sizes(value))
    if len(found) > 32 or any(isinstance(n, int) and not 0 <= n < 2**40 for n in found):
        raise node.error(f"{name} must be a shape, got {list(found)}")
    return found


def _broadcast(x: Any, shape: tuple[Any, ...]) -> Any:
    xp = fitting(x, shape)
    return xp.broadcast_to(x, shape)


@rule("BroadcastArgs", numbers=("s0", "s1"))
def broadcast_args(node: Node, s0: Any, s1: Any) -> Any:
    made = np.broadcast_shapes(_shape(node, "s0", s0), _shape(node, "s1", s1))
    return host_array(np.array(made, object))


@rule("Fill", numbers=("dims",))
def fill(node: Node, dims: Any, value: Any) -> Any:
    if value.ndim:
        raise node.error(f"value must be a scalar, got shape {value.shape}")
    return _broadcast(value, _shape(node, "dims", dims))


@rule("Zeros", "Empty", numbers=("shape",))
def zeros(node: Node, shape: Any) -> Any:
    return _broadcast(np.zeros((), node.dtype("dtype")), _shape(node, "shape", shape))


@rule("ZerosLike")
def zeros_like(node: Node, x: Any) -> Any:
    return namespace(x).zeros_like(x)


@rule("OnesLike")
def ones_like(node: Node, x: Any) -> Any:
    return namespace(x).ones_like(x)


@rule("Range", numbers=("start", "limit", "delta"))
def arange(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    dtype = node.dtype("Tidx", start.dtype if start.dtype != object else np.int32)
    first: Any
    last: Any
    step: Any
    if dtype.kind not in "iu":
        first, last, step = (float(np.asarray(v).reshape(())) for v in (start, limit, delta))
    else:
        names = ("start", "limit", "delta")
        first, last, step = (size(node, n, v) for n, v in zip(names, (start, limit, delta)))
    if isinstance(step, (int, float)) and step == 0:
        raise node.error("delta must not be 0")
    known = not any(map(is_symbolic_dim, (first, last, step)))
    if known and (last - first) / step <= MAX_HOST:
        found: np.ndarray = np.arange(first, last, step).astype(dtype)
        return found
    return jnp.arange(first, last, step, canonicalize_dtype(dtype))


@rule("LinSpace", numbers=("num",), only_device=True)
def linspace(node: Node, start: Any, stop: Any, num: Any) -> Any:
    return jnp.linspace(start, stop, size(node, "num", num))


@rule("Tile", numbers=("multiples",))
def tile(node: Node, x: Any, multiples: Any) -> Any:
    counts = _shape(node, "multiples", multiples)
    if len(counts) != x.ndim:
        raise node.error(f"multiples {list(counts)} do not fit shape {x.shape}")
    xp = fitting(x, [n * m for n, m in zip(x.shape, counts)])
    if xp is np:
        return np.tile(x, counts)
    for axis, count in enumerate(counts):
        if not (isinstance(count, int) and count == 1):
            wide = jnp.broadcast_to(
                jnp.expand_dims(x, axis), (*x.shape[:axis], count, *x.shape[axis:])
            )
            x = wide.reshape(*x.shape[:axis], count * x.shape[axis], *x.shape[axis + 1 :])
    return x


@rule("OneHot", numbers=("depth",), only_device=True)
def one_hot(node: Node, indices: Any, depth: Any, on_value: Any, off_value: Any) -> Any:
    check_same_dtype(node, on_value, off_value)
    at = axis_of(node, "axis", node.integer("axis", -1), indices.ndim + 1)
    count = size(node, "depth", depth)
    if isinstance(count, int) and not 0 <= count < 2**31:
        raise node.error(f"depth must be a size, got {count}")
    whole = (*indices.shape[:at], count, *indices.shape[at:])
    classes = lax.broadcasted_iota(indices.dtype, whole, at)
    return jnp.where(jnp.expand_dims(indices, at) == classes, on_value, off_value)


@rule("Select")
def select(node: Node, condition: Any, t: Any, e: Any) -> Any:
    """A vector of conditions chooses among rows."""
    check_same_dtype(node, t, e)
    if t.shape != e.shape:
        raise node.error(f"inputs must have one shape, got {t.shape} and {e.shape}")
    if condition.ndim == 1 and t.ndim > 1:
        condition = condition.reshape(-1, *[1] * (t.ndim - 1))
    return namespace(condition, t, e).where(condition, t, e)


@rule("SelectV2")
def select_v2(node: Node, condition: Any, t: Any, e: Any) -> Any:
    check_same_dtype(node, t, e)
    return namespace(condition, t, e).where(condition, t, e)


@rule("Where", numbers=("condition",))
def where(node: Node, condition: Any) -> Any:
    return np.argwhere(condition).astype(np.int64)


@rule("MatrixBandPart", numbers=("num_lower", "num_upper"), only_device=True)
def matrix_band_part(node: Node, x: Any, num_lower: Any, num_upper: Any) -> Any:
    if x.ndim < 2:
        raise node.error(f"input must be a matrix, got shape {x.shape}")
    lower, upper = size(node, "num_lower", num_lower), size(node, "num_upper", num_upper)
    rows = lax.broadcasted_iota(np.int32, x.shape[-2:], 0)
    columns = lax.broadcasted_iota(np.int32, x.shape[-2:], 1)
    kept = jnp.ones(x.shape[-2:], bool)
    kept = kept if lower < 0 else kept & (rows - columns <= lower)
    kept = kept if upper < 0 else kept & (columns - rows <= upper)
    return jnp.where(kept, x, jnp.zeros((), x.dtype))


@rule("DiagPart", "MatrixDiagPart", only_device=True)
def diagonal(node: Node, x: Any) -> Any:
    if x.ndim < 2 or (node.op == "DiagPart" and (x.ndim != 2 or x.shape[0] != x.shape[1])):
        raise node.error(f"input must be a matrix, got shape {x.shape}")
    return jnp.diagonal(x, axis1=-2, axis2=-1)


@rule("Diag", "MatrixDiag", only_device=True)
def diagonal_matrix(node: Node, diagonal: Any) -> Any:
    if not diagonal.ndim or (node.op == "Diag" and diagonal.ndim != 1):
        raise node.error(f"diagonal must be a vector, got shape {diagonal.shape}")
    n = diagonal.shape[-1]
    same = lax.broadcasted_iota(np.int32, (n, n), 0) == lax.broadcasted_iota(np.int32, (n, n), 1)
    return jnp.where(same, diagonal[..., None], jnp.zeros((), diagonal.dtype))
