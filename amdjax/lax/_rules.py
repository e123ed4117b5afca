"""Shorthands that build primitives: type rule, derivative, transpose and batching in a line.

Most primitives are members of a family. `elementwise` makes those whose output element depends on
the operands' elements at the same index; a scalar operand, or an axis of size one, is repeated
along the other operands. `structural` makes those that take one array and move its elements.

A derivative is `fn(g, y, *operands, **params)`, the tangent of the output `y` for a tangent `g` of
one operand, or one of the words below.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.dims import as_size, same_shape
from amdjax.core.lowering import Lowering, Pointwise
from amdjax.core.primitive import Primitive
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData
from amdjax.transforms.batching import batch_flat
from amdjax.transforms.zero import Zero, add_tangents, instantiate_zeros, is_undefined_primal

__all__ = ["Zero", "add_tangents", "instantiate_zeros"]

Kinds = frozenset[type]
Shape = tuple[int, ...]

FLOAT: Kinds = frozenset({np.floating})
COMPLEX: Kinds = frozenset({np.complexfloating})
INT: Kinds = frozenset({np.integer})
SIGNED: Kinds = frozenset({np.signedinteger})
BOOL: Kinds = frozenset({np.bool_})
INEXACT = FLOAT | COMPLEX
NUMBER = INT | INEXACT
ANY = NUMBER | BOOL
ORDERED = INT | FLOAT | BOOL

FLAT = "flat"  # piecewise constant: the derivative is zero wherever it exists
LINEAR = "linear"  # the output is linear in the operand, alone: the tangent maps like the value
Derivative = Callable[..., Any] | str | None


def aval_of(x: Any) -> Any:
    """Type of an array, tracer or scalar."""
    return get_aval(x)


def shape_of(x: Any) -> Shape:
    """Shape of an array, tracer or scalar."""
    return aval_of(x).shape


def dtype_of(x: Any) -> np.dtype:
    """Dtype of an array, tracer or scalar, as amdjax sees it."""
    return aval_of(x).dtype


def is_complex(x: Any) -> bool:
    """Whether `x` has a complex dtype."""
    return dtypes.issubdtype(dtype_of(x), np.complexfloating)


def value_dtype(x: Any) -> np.dtype:
    """Dtype of a value that a lowering rule computes with."""
    return dtypes.dtype_from_short_name(x.dtype) if isinstance(x.dtype, str) else x.dtype


def is_zero(x: Any) -> bool:
    """Whether `x` is a symbolic zero."""
    return isinstance(x, Zero)


def scalar(like: Any, value: Any) -> Any:
    """The number `value` with the dtype, and the weakness, of `like`."""
    aval = aval_of(like)
    if aval.weak_type:
        python = dtypes.scalar_type_of(aval.dtype)(value)
        if dtype_of(python) == aval.dtype:
            return python
    return np.asarray(value, aval.dtype)[()]


def constant(like: Any, value: Any) -> Any:
    """As `scalar`, but weakly typed only if `like` is a weakly typed scalar, as in JAX."""
    return np.asarray(value, dtype_of(like))[()] if shape_of(like) else scalar(like, value)


def filled_like(x: Any, value: Any) -> Any:
    """An array of one value with the shape, dtype and weakness of `x`."""
    return repeat_to(shape_of(x), scalar(x, value))


_ITERABLE = (tuple, list, range, Iterable)  # the last takes longer to ask


def as_ints(values: Any, name: str) -> Shape:
    """`values` as a tuple of Python ints.

    Args:
      values: an integer or an iterable of integers.
      name: what an error should call them, such as "reshape new_sizes".

    Returns:
      The tuple.

    Raises:
      TypeError: if one is not a concrete integer.
    """
    try:
        if isinstance(values, _ITERABLE) and not isinstance(values, str):
            return tuple(map(as_size, values))
        return (as_size(values),)
    except TypeError as e:
        why = str(e).partition("\n")[0]
        raise TypeError(
            f"{name} must be concrete integers known when tracing, got {values!r}: {why}"
        ) from None


def as_axes(axes: Any, name: str) -> Shape:
    """`as_ints` of a sequence; a number alone is refused."""
    if not isinstance(axes, _ITERABLE):
        raise TypeError(f"{name} must be a sequence of integers, got {axes!r}.")
    return as_ints(axes, name)


def check_dtype(name: str, dtype: Any, kinds: Kinds, position: int | None = None) -> None:
    """Raise a TypeError that names primitive and operand unless `dtype` is among `kinds`."""
    if builtins.any(dtypes.issubdtype(dtype, kind) for kind in kinds):
        return
    where = "" if position is None else f" at position {position}"
    if dtype == dtypes.float0:
        raise TypeError(
            f"{name} got an operand of dtype float0{where}: the tangent of an integer or boolean, "
            "which holds no data: float0s do not support any operations by design. If it comes "
            "from a gradient, was it taken with respect to an integer argument?"
        )
    accepted = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(
        f"{name} does not accept dtype {dtype}{where}. Accepted dtypes are subtypes of {accepted}."
    )


def check_same_dtype(name: str, *avals: Any) -> None:
    """Raise a TypeError unless all `avals` have one dtype."""
    if builtins.any(aval.dtype != avals[0].dtype for aval in avals[1:]):
        found = ", ".join(str(aval.dtype) for aval in avals)
        raise TypeError(
            f"lax.{name} requires arguments to have the same dtypes, got {found}. "
            f"Convert with lax.convert_element_type, or use the function of amdjax.numpy, which "
            "promotes its arguments."
        )


def check_same_shape(name: str, *avals: Any) -> None:
    """Raise a TypeError unless all `avals` have one shape."""
    if builtins.any(aval.shape != avals[0].shape for aval in avals[1:]):
        found = ", ".join(str(aval.shape) for aval in avals)
        raise TypeError(f"{name} requires arguments of equal shapes, got {found}.")


def broadcast_together(name: str, shapes: Sequence[Shape]) -> Shape:
    """The common shape of operands that are scalars or agree up to axes of size one.

    Raises:
      TypeError: if the ranks differ or two sizes cannot meet; the message starts with `name`.
    """
    shaped = [shape for shape in shapes if shape]
    if not shaped:
        return ()
    if builtins.any(len(shape) != len(shaped[0]) for shape in shaped[1:]):
        found = ", ".join(map(str, shapes))
        raise TypeError(
            f"{name}: arrays must have the same number of dimensions, or be scalars; got shapes "
            f"{found}."
        )
    result = []
    for sizes in zip(*shaped):
        wide = [size for size in sizes if size != 1]
        if builtins.any(size != wide[0] for size in wide[1:]):
            found = ", ".join(map(str, shapes))
            raise TypeError(f"{name} got incompatible shapes for broadcasting: {found}.")
        result.append(wide[0] if wide else 1)
    return tuple(result)


def repeat_to(shape: Shape, x: Any) -> Any:
    """Broadcast a scalar, or an array with axes of size one, to `shape`."""
    old = shape_of(x)
    if same_shape(old, shape):
        return x
    return ops.broadcast_in_dim(x, shape, range(len(old)))


def sum_to(aval: Any, x: Any) -> Any:
    """Undo `repeat_to`: sum `x` over the axes along which an operand of type `aval` repeated."""
    shape = shape_of(x)
    if same_shape(shape, aval.shape):
        return x
    if not aval.shape:
        return ops.reduce_sum(x, tuple(range(len(shape))))
    axes = [d for d, (now, then) in enumerate(zip(shape, aval.shape)) if now != then]
    return ops.reshape(ops.reduce_sum(x, axes), aval.shape)


def zero_tangent(y: Any) -> Zero:
    """The symbolic zero tangent of the primal value `y`."""
    return Zero(aval_of(y).to_tangent())


def total(y: Any, terms: Sequence[Any]) -> Any:
    """The sum of tangents of `y`; a symbolic zero when there are none."""
    result: Any = zero_tangent(y)
    for term in terms:
        result = add_tangents(result, term)
    return result


def bilinear(bind: Callable[..., Any]) -> tuple[Derivative, Derivative]:
    """Derivatives of what is linear in each of two operands: `bind` with a tangent in its place."""
    return (
        lambda g, y, lhs, rhs, **params: bind(g, rhs, **params),
        lambda g, y, lhs, rhs, **params: bind(lhs, g, **params),
    )


def jvp_from(primitive: Primitive, derivatives: Sequence[Derivative]) -> Callable[..., Any]:
    """The jvp rule of a single-result primitive from one derivative for each operand."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        terms = []
        for rule, g in zip(derivatives, tangents):
            if rule == FLAT or is_zero(g):
                continue
            if rule == LINEAR:
                terms.append(primitive.bind(g, **params))
                continue
            if not callable(rule):
                raise NotImplementedError(
                    f"{primitive} has no derivative with respect to one of its arguments, which "
                    "depends on the differentiated inputs. Wrap it in lax.stop_gradient if the "
                    "dependence should be ignored."
                )
            term = rule(g, y, *primals, **params)
            terms.append(term if is_zero(term) else repeat_to(shape_of(y), term))
        return y, total(y, terms)

    return jvp


def joint_linear_jvp(primitive: Primitive) -> Any:
    """Derivative of operations linear in all their operands together."""

    def jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        if all(is_zero(t) for t in tangents):
            return y, zero_tangent(y)
        return y, primitive.bind(*(instantiate_zeros(t) for t in tangents), **params)

    return jvp


def transpose_from(*rules: Callable[..., Any] | None) -> Callable[..., Any]:
    """A transpose rule from one function `fn(ct, *operands, **params)` for each operand."""

    def transpose(ct: Any, *operands: Any, **params: Any) -> list[Any]:
        result: list[Any] = []
        for rule, x in zip(rules, operands):
            if not is_undefined_primal(x):
                result.append(None)
            elif is_zero(ct):
                result.append(Zero(x.aval))
            else:
                assert rule is not None
                result.append(sum_to(x.aval, rule(ct, *operands, **params)))
        return result

    return transpose


def batch_elementwise(primitive: Primitive) -> Callable[..., Any]:
    """The batching rule of an operation that repeats scalars and axes of size one."""

    def batch(
        axis: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        shape, dim = next((shape_of(x), d) for x, d in zip(args, dims) if d is not None)
        aligned = builtins.all(
            (d == dim and same_shape(shape_of(x), shape)) or not shape_of(x)
            for x, d in zip(args, dims)
        )
        if not aligned:
            rank = builtins.max(len(shape_of(x)) + (d is None) for x, d in zip(args, dims))
            args = [_lift(x, d, rank) for x, d in zip(args, dims)]
            dim = 0
        out = primitive.bind(*args, **params)
        return (out, [dim] * len(out)) if primitive.multiple_results else (out, dim)

    return batch


def _lift(x: Any, dim: int | None, rank: int) -> Any:
    """Give `x` a leading batch axis, of size one if it has none, and `rank` axes in all."""
    if not shape_of(x):
        return x
    if dim is not None:
        x = move_axis(x, dim, 0)
    shape, new = shape_of(x), int(dim is None)
    # A scalar of each example meets arrays: its new axes follow the batch axis.
    ones = (1,) * (rank - new - len(shape))
    return ops.broadcast_in_dim(x, (*(1,) * new, *shape, *ones), range(new, new + len(shape)))


def move_axis(x: Any, source: int, destination: int) -> Any:
    """Transpose `x` so that axis `source` becomes axis `destination`."""
    if source == destination:
        return x
    order = [d for d in range(len(shape_of(x))) if d != source]
    order.insert(destination, source)
    return ops.transpose(x, order)


def batch_to(x: Any, dim: int | None, size: int, destination: int = 0) -> Any:
    """`x` with its batch axis at `destination`, repeated along a new one if it has none."""
    if dim is not None:
        return move_axis(x, dim, destination)
    shape = shape_of(x)
    out = (*shape[:destination], size, *shape[destination:])
    return ops.broadcast_in_dim(x, out, [d for d in range(len(out)) if d != destination])


def map_examples(
    fn: Callable[..., list[Any]], args: Sequence[Any], dims: Sequence[int | None], size: int
) -> list[Any]:
    """Apply a function of flat arguments to each example; results have the batch axis first."""
    ys, places = batch_flat(fn, AxisData(None, size), args, dims)
    return [batch_to(y, place, size) for y, place in zip(ys, places)]


def same_dtype(*avals: Any, **_: Any) -> np.dtype:
    """Result dtype of operations that keep their operands' dtype."""
    return avals[0].dtype


def boolean(*_: Any, **__: Any) -> np.dtype:
    """Result dtype of predicates."""
    return np.dtype(np.bool_)


def real_dtype(aval: Any, **_: Any) -> np.dtype:
    """The dtype of magnitudes: the component type of a complex dtype, else the dtype itself."""
    return np.finfo(aval.dtype).dtype if aval.dtype.kind == "c" else aval.dtype


def elementwise(
    name: str, kinds: Sequence[Kinds], lowering: str | Callable[..., Any] | Lowering | None = None,
    *derivatives: Derivative, transpose: Sequence[Callable[..., Any] | None] | None = None,
    out: Callable[..., np.dtype] = same_dtype, mixed: bool = False,
) -> Primitive:  # fmt: skip
    """An elementwise primitive.

    Args:
      name: its name.
      kinds: the dtypes accepted for each operand.
      lowering: a tile op, a function for `Pointwise`, or any lowering; the op called `name` when
        left out.
      derivatives: one for each operand; none at all makes the derivative undefined.
      transpose: for each operand in which it can be linear, `fn(ct, *operands, **params)`.
      out: result dtype from the operands' types and the parameters.
      mixed: whether operands may differ in dtype.

    Returns:
      The primitive with all its rules.
    """
    primitive = Primitive(name)

    def abstract_eval(*avals: Any, **params: Any) -> ShapedArray:
        for position, (aval, accepted) in enumerate(zip(avals, kinds)):
            check_dtype(name, aval.dtype, accepted, position if len(kinds) > 1 else None)
        if not mixed:
            check_same_dtype(name, *avals)
        shape = broadcast_together(name, [aval.shape for aval in avals])
        weak = builtins.all(aval.weak_type for aval in avals)
        return ShapedArray(shape, out(*avals, **params), weak)

    primitive.abstract_eval = abstract_eval
    primitive.lowering = lowering if isinstance(lowering, Lowering) else Pointwise(lowering or name)
    primitive.batch = batch_elementwise(primitive)
    primitive.jvp = jvp_from(primitive, derivatives or (None,) * len(kinds))
    if transpose is not None:
        primitive.transpose = transpose_from(*transpose)
    return primitive


def unary(
    name: str, kinds: Kinds, derivative: Derivative = None,
    lowering: str | Callable[..., Any] | Lowering | None = None, *,
    transpose: Callable[..., Any] | None = None, out: Callable[..., np.dtype] = same_dtype,
) -> Primitive:  # fmt: skip
    """An elementwise primitive of one operand; see `elementwise`."""
    transposes = None if transpose is None else (transpose,)
    return elementwise(name, (kinds,), lowering, derivative, transpose=transposes, out=out)


def binary(
    name: str, kinds: Kinds, left: Derivative = None, right: Derivative = None,
    lowering: str | Callable[..., Any] | Lowering | None = None, *,
    transpose: Sequence[Callable[..., Any] | None] | None = None,
    out: Callable[..., np.dtype] = same_dtype,
) -> Primitive:  # fmt: skip
    """An elementwise primitive of two operands of one dtype; see `elementwise`."""
    return elementwise(name, (kinds, kinds), lowering, left, right, transpose=transpose, out=out)


def comparison(name: str, kinds: Kinds) -> Primitive:
    """A predicate of two operands, lowered to the tile op of its name."""
    return binary(name, kinds, FLAT, FLAT, out=boolean)


def structural(
    name: str,
    type_rule: Callable[..., Any],
    lowering: Lowering,
    transpose: Callable[..., Any],
    batch: Callable[..., Any],
) -> Primitive:
    """A primitive that moves, repeats or adds up the elements of one array.

    Args:
      name: its name.
      type_rule: its abstract evaluation, `fn(aval, **params) -> aval`.
      lowering: how it is computed.
      transpose: `fn(ct, aval, **params)`, the cotangent of an operand of type `aval`.
      batch: `fn(size, x, dim, **params) -> (y, dim)`.

    Returns:
      The primitive with all its rules; it is linear.
    """
    primitive = Primitive(name)
    primitive.abstract_eval = type_rule
    primitive.lowering = lowering
    primitive.jvp = jvp_from(primitive, (LINEAR,))
    primitive.transpose = transpose_from(lambda ct, x, **params: transpose(ct, x.aval, **params))
    primitive.batch = lambda axis, args, dims, **params: batch(
        axis.size, args[0], dims[0], **params
    )
    return primitive


def canonical_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """`axis`, in `[-ndim, ndim)`, counted from the front.

    Raises:
      TypeError: if it is no integer.
      numpy.exceptions.AxisError: if an array of `ndim` axes has no such axis; it is a ValueError
        and an IndexError, and the message begins with `name`.
    """
    (axis,) = as_ints((axis,), name)
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(
            f"{name} {axis} is out of bounds for array of dimension {ndim}"
        )
    return axis % ndim


def canonical_axes(axes: Any, ndim: int, name: str) -> Shape:
    """`axes` counted from the front, in ascending order.

    Raises:
      ValueError: if one is out of bounds or named twice; the message mentions `name`.
    """
    found = sorted(canonical_axis(axis, ndim) for axis in as_axes(axes, name))
    if len(set(found)) < len(found):
        raise ValueError(f"{name} are not unique, got {tuple(axes)}.")
    return tuple(found)


def insert(values: Sequence[Any], position: int, value: Any) -> tuple[Any, ...]:
    """`values` with `value` put in at `position`."""
    return (*values[:position], value, *values[position:])


def after_batch(axis: int, dim: int) -> int:
    """Where `axis` of the unbatched array lies once a batch axis stands at `dim`."""
    return axis + (axis >= dim)
