"""What all matrix primitives share: their form, how they reach LAPACK, small matrix algebra."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core.aval import ShapedArray
from amdjax.core.dtypes import to_inexact_dtype
from amdjax.core.lowering import Host
from amdjax.core.precision import Precision
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    INEXACT,
    Kinds,
    batch_to,
    check_dtype,
    check_same_dtype,
    dtype_of,
    is_complex,
    real_dtype,
    shape_of,
)
from amdjax.lax.casting import convert_element_type
from amdjax.lax.comparison import eq, le
from amdjax.lax.complexes import conj as conj_, real as real_
from amdjax.lax.dot import dot_general
from amdjax.lax.elementwise import add, mul
from amdjax.lax.filling import broadcasted_iota, full_like
from amdjax.lax.gather import take_along
from amdjax.lax.joining import concatenate
from amdjax.lax.reductions import reduce_sum
from amdjax.lax.selection import select
from amdjax.lax.shape import broadcast_in_dim, expand_dims, transpose
from amdjax.lax.slicing import slice_in_dim

Spec = tuple[tuple[int, ...], Any]


def matrix_primitive(
    name: str, ranks: Sequence[int], results: Callable[..., Sequence[Spec]],
    one: Callable[..., Any], *, many: Callable[..., Any] | None = None, kinds: Kinds = INEXACT,
    multiple: bool = True,
) -> Primitive:  # fmt: skip
    """A primitive over batches of matrices, computed on the host.

    Args:
      name: its name.
      ranks: for each operand, how many trailing axes make one example; all others are batch.
      results: `results(*avals, **params)`, of the avals of one example, to the shape and dtype of
        each result; raises `ValueError` for shapes that do not fit.
      one: `one(*arrays, **params)` computes one example with NumPy, to a tuple of arrays, or `None`
        where there is no answer.
      many: the same for a whole batch at once, where NumPy can; it may raise `LinAlgError`, upon
        which examples are computed one by one.
      kinds: the dtypes accepted.
      multiple: whether the primitive has several results.

    Returns:
      The primitive with type rule, batching and lowering.
    """
    primitive = Primitive(name, multiple_results=multiple)

    @primitive.def_abstract_eval
    def abstract_eval(*avals: Any, **params: Any) -> Any:
        for aval in avals:
            check_dtype(name, aval.dtype, kinds)
        check_same_dtype(f"linalg.{name}", *avals)
        batch = _batch_shape(name, avals, ranks)
        outs = [
            ShapedArray((*batch, *shape), dtype)
            for shape, dtype in results(*_examples(avals, ranks), **params)
        ]
        return outs if multiple else outs[0]

    @primitive.def_batch
    def batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
        args = [batch_to(x, d, axis.size) for x, d in zip(args, dims)]
        out = primitive.bind(*args, **params)
        return (out, [0] * len(out)) if multiple else (out, 0)

    def host(*arrays: np.ndarray, **params: Any) -> list[np.ndarray]:
        examples = _examples([ShapedArray(a.shape, a.dtype) for a in arrays], ranks)
        specs = results(*examples, **params)
        lead = arrays[0].shape[: arrays[0].ndim - ranks[0]]
        narrow = arrays[0].dtype.itemsize < 4
        if narrow and np.dtype(arrays[0].dtype).kind not in "iu":
            arrays = tuple(a.astype(np.float32) for a in arrays)
        outs = _evaluate(one, many, arrays, ranks, lead, specs, params)
        return [
            np.ascontiguousarray(out, dtype=dtype).reshape(*lead, *shape)
            for out, (shape, dtype) in zip(outs, specs)
        ]

    primitive.lowering = Host(host)
    return primitive


def _batch_shape(name: str, avals: Sequence[Any], ranks: Sequence[int]) -> tuple[int, ...]:
    for position, (aval, rank) in enumerate(zip(avals, ranks)):
        if len(aval.shape) < rank:
            raise TypeError(
                f"{name} operand {position} must have at least {rank} dimensions, "
                f"got shape {aval.shape}."
            )
    batches = [aval.shape[: len(aval.shape) - rank] for aval, rank in zip(avals, ranks)]
    if any(batch != batches[0] for batch in batches):
        found = ", ".join(str(aval.shape) for aval in avals)
        raise TypeError(f"{name} operands must have the same batch dimensions, got shapes {found}.")
    return batches[0]


def _examples(avals: Sequence[Any], ranks: Sequence[int]) -> list[ShapedArray]:
    return [ShapedArray(a.shape[len(a.shape) - rank :], a.dtype) for a, rank in zip(avals, ranks)]


def _evaluate(one, many, arrays, ranks, lead, specs, params) -> list[np.ndarray]:
    count = math.prod(lead)
    if any(0 in a.shape for a in arrays):
        return [_of_nothing(count, shape, dtype) for shape, dtype in specs]
    if many is not None:
        try:
            return list(many(*arrays, **params))
        except np.linalg.LinAlgError:
            pass
    outs = [np.empty((count, *shape), dtype) for shape, dtype in specs]
    flat = [a.reshape(count, *a.shape[a.ndim - rank :]) for a, rank in zip(arrays, ranks)]
    for k, example in enumerate(zip(*flat)):
        answer = one(*example, **params)
        for position, out in enumerate(outs):
            out[k] = _no_answer(out.dtype) if answer is None else answer[position]
    return outs


def _of_nothing(count: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The factors of an empty matrix: identities, and no exchange of rows."""
    example: np.ndarray
    if len(shape) == 2:
        example = np.eye(*shape)
    else:
        example = np.arange(*shape) if np.dtype(dtype).kind in "iu" else np.zeros(shape)
    return np.broadcast_to(example, (count, *shape)).astype(dtype)


def _no_answer(dtype: np.dtype) -> Any:
    return dtype.type(-1) if dtype.kind in "iu" else dtype.type(np.nan)


def check_square(name: str, aval: Any) -> None:
    """Raise a ValueError unless an example is a square matrix."""
    if aval.shape[0] != aval.shape[1]:
        raise ValueError(f"{name} takes square matrices, got shape {aval.shape}.")


def magnitude_dtype(dtype: Any) -> np.dtype:
    """The real dtype of eigenvalues and norms of a matrix of `dtype`."""
    return real_dtype(ShapedArray((), dtype))


def matmul(a: Any, b: Any) -> Any:
    """The product of matrices, batch by batch, in full precision."""
    batch = tuple(range(len(shape_of(a)) - 2))
    rank = len(batch)
    return dot_general(a, b, (((rank + 1,), (rank,)), (batch, batch)), precision=Precision.HIGHEST)


def transposed(x: Any) -> Any:
    rank = len(shape_of(x))
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def adjoint(x: Any) -> Any:
    return conj_(transposed(x)) if is_complex(x) else transposed(x)


def conj(x: Any) -> Any:
    return conj_(x) if is_complex(x) else x


def real(x: Any) -> Any:
    return real_(x) if is_complex(x) else x


def symmetrize(x: Any) -> Any:
    """The Hermitian part; of integers in the floats that they promote to."""
    x = convert_element_type(x, to_inexact_dtype(dtype_of(x)))
    half = full_like(x, 0.5)
    return mul(add(x, adjoint(x)), half)


def _where_lower(x: Any, k: int, keep_lower: bool) -> Any:
    shape = shape_of(x)
    rows, columns = (broadcasted_iota(np.int32, shape, len(shape) - 2 + axis) for axis in (0, 1))
    limit = add(rows, full_like(rows, k if keep_lower else k - 1))
    lower = le(columns, limit)
    zeros = full_like(x, 0)
    return select(lower, x, zeros) if keep_lower else select(lower, zeros, x)


def tril(x: Any, k: int = 0) -> Any:
    """`x` with all above diagonal `k` set to zero."""
    return _where_lower(x, k, keep_lower=True)


def triu(x: Any, k: int = 0) -> Any:
    """`x` with all below diagonal `k` set to zero."""
    return _where_lower(x, k, keep_lower=False)


def _on_diagonal(x: Any, n: int) -> Any:
    shape = (*shape_of(x)[:-2], n, n)
    rows, columns = (broadcasted_iota(np.int32, shape, len(shape) - 2 + axis) for axis in (0, 1))
    return eq(rows, columns)


def eye_like(x: Any, n: int) -> Any:
    """Identities of size `n`, one for each matrix of the batch `x`."""
    return convert_element_type(_on_diagonal(x, n), dtype_of(x))


def diagonal(x: Any) -> Any:
    """The main diagonals of square matrices."""
    alone = select(_on_diagonal(x, shape_of(x)[-1]), x, full_like(x, 0))
    return reduce_sum(alone, (len(shape_of(x)) - 1,))


def set_diagonal(x: Any, value: float) -> Any:
    """Square matrices with their main diagonals replaced by a number."""
    return select(_on_diagonal(x, shape_of(x)[-1]), full_like(x, value), x)


def as_column(x: Any) -> Any:
    return expand_dims(x, (len(shape_of(x)),))


def as_row(x: Any) -> Any:
    return expand_dims(x, (len(shape_of(x)) - 1,))


def repeated_like(x: Any, matrix: Any) -> Any:
    """A row or a column, repeated to the shape of `matrix`."""
    return broadcast_in_dim(x, shape_of(matrix), tuple(range(len(shape_of(matrix)))))


def columns(x: Any, start: int, stop: int) -> Any:
    return slice_in_dim(x, start, stop, axis=len(shape_of(x)) - 1)


def rows(x: Any, start: int, stop: int) -> Any:
    return slice_in_dim(x, start, stop, axis=len(shape_of(x)) - 2)


def joined(parts: Sequence[Any], axis: int) -> Any:
    """Matrices side by side (`axis=-1`) or one below the other (`axis=-2`)."""
    return concatenate(list(parts), len(shape_of(parts[0])) + axis)


def take_rows(x: Any, order: Any) -> Any:
    """The rows of each matrix in the order of its own permutation."""
    positions = repeated_like(as_column(order), x)
    return take_along(x, positions, len(shape_of(x)) - 2)


def take_columns(x: Any, order: Any) -> Any:
    """The columns of each matrix in the order of its own permutation."""
    positions = repeated_like(as_row(order), x)
    return take_along(x, positions, len(shape_of(x)) - 1)
