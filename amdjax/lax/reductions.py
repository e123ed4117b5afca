"""Reductions: one value from all elements along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import ClosedJaxpr, jaxpr_as_fun
from amdjax.core.lowering import Decompose, Reduce
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.core.trace import trace_to_jaxpr
from amdjax.lax._rules import (
    BOOL,
    FLAT,
    INT,
    LINEAR,
    NUMBER,
    ORDERED,
    Derivative,
    Kinds,
    Shape,
    after_batch,
    as_ints,
    aval_of,
    batch_to,
    check_dtype,
    check_same_dtype,
    check_same_shape,
    dtype_of,
    jvp_from,
    map_examples,
    move_axis,
    shape_of,
    transpose_from,
    zero_tangent,
)
from amdjax.lax.casting import convert_like
from amdjax.lax.comparison import eq
from amdjax.lax.elementwise import add, div, mul
from amdjax.lax.shape import broadcast, broadcast_in_dim, expand_dims, reshape
from amdjax.transforms.forward import jvp_flat
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "argmax",
    "argmax_p",
    "argmin",
    "argmin_p",
    "reduce",
    "reduce_and",
    "reduce_and_p",
    "reduce_max",
    "reduce_max_p",
    "reduce_min",
    "reduce_min_p",
    "reduce_or",
    "reduce_or_p",
    "reduce_p",
    "reduce_prod",
    "reduce_prod_p",
    "reduce_sum",
    "reduce_sum_p",
    "reduce_xor",
    "reduce_xor_p",
]


def _check_axes(name: str, x: Any, axes: Shape) -> None:
    if any(not 0 <= axis < x.ndim for axis in axes):
        raise ValueError(f"{name}: axes {axes} contain out-of-bounds indices for {x}.")
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: duplicate value in axes {axes}.")


def _without(shape: Shape, axes: Shape) -> Shape:
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def reducer(
    name: str,
    kinds: Kinds,
    combine: str,
    identity: Callable[[np.dtype], Any],
    derivative: Derivative,
) -> Primitive:
    """A reduction of one array by an associative and commutative tile op.

    Args:
      name: its name.
      kinds: the accepted dtypes.
      combine: the tile op.
      identity: the value of an empty reduction in a dtype.
      derivative: `fn(g, y, x, *, axes)`, or a word of `_rules`.

    Returns:
      The primitive with all its rules but the transpose.
    """
    primitive = Primitive(name)

    def abstract_eval(x: Any, *, axes: Shape, **_: Any) -> ShapedArray:
        check_dtype(name, x.dtype, kinds)
        _check_axes(name, x, axes)
        return ShapedArray(_without(x.shape, axes), x.dtype, x.weak_type)

    primitive.abstract_eval = abstract_eval
    primitive.batch = _reduction_batch(primitive)
    primitive.jvp = jvp_from(primitive, (derivative,))
    primitive.lowering = Reduce(combine, identity)
    return primitive


def _reduction_batch(primitive: Primitive) -> Callable[..., Any]:
    def batch(axis: Any, args: Any, dims: Any, *, axes: Shape, **params: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        moved = tuple(after_batch(d, dim) for d in axes)
        y = primitive.bind(x, axes=moved, **params)
        return y, dim - sum(d < dim for d in moved)

    return batch


def lowest(dtype: Any) -> Any:
    """The value that no value of `dtype` is below."""
    if dtype == np.bool_:
        return False
    if dtypes.issubdtype(dtype, np.integer):
        return dtypes.iinfo(dtype).min
    return -np.inf if dtypes.supports_inf(dtype) else float(dtypes.finfo(dtype).min)


def highest(dtype: Any) -> Any:
    """The value that no value of `dtype` is above."""
    if dtype == np.bool_:
        return True
    if dtypes.issubdtype(dtype, np.integer):
        return dtypes.iinfo(dtype).max
    return np.inf if dtypes.supports_inf(dtype) else float(dtypes.finfo(dtype).max)


def _all_bits(dtype: Any) -> Any:
    if dtype == np.bool_:
        return True
    return dtypes.iinfo(dtype).max if dtypes.issubdtype(dtype, np.unsignedinteger) else -1


def _extremum_derivative(g: Any, y: Any, x: Any, *, axes: Shape, **_: Any) -> Any:
    """All elements equal to the extremum share its tangent."""
    chosen = convert_like(eq(x, expand_dims(y, axes)), g)
    return div(reduce_sum(mul(g, chosen), axes), reduce_sum(chosen, axes))


def _product_derivative(g: Any, y: Any, x: Any, *, axes: Shape, **_: Any) -> Any:
    """Halve the axis again and again: no division, so zeros among the elements do no harm."""
    from amdjax.lax.joining import pad
    from amdjax.lax.slicing import slice_in_dim

    x, g = _flatten_axes(x, axes), _flatten_axes(g, axes)
    while (n := shape_of(x)[0]) > 1:
        if n % 2:
            config = [(0, 1, 0), *[(0, 0, 0)] * (len(shape_of(x)) - 1)]
            one, zero = np.ones((), dtype_of(x))[()], np.zeros((), dtype_of(x))[()]
            x, g = pad(x, one, config), pad(g, zero, config)
        half = (n + 1) // 2
        (x0, x1), (g0, g1) = (
            (slice_in_dim(v, 0, half), slice_in_dim(v, half, 2 * half)) for v in (x, g)
        )
        x, g = mul(x0, x1), add(mul(g0, x1), mul(x0, g1))
    return reduce_sum(g, (0,))


def _flatten_axes(x: Any, axes: Shape) -> Any:
    """Bring `axes` together into one leading axis."""
    shape = shape_of(x)
    for place, axis in enumerate(sorted(axes)):
        x = move_axis(x, axis, place)
    rest = _without(shape, axes)
    return reshape(x, (int(np.prod([shape[d] for d in axes], dtype=int)), *rest))


reduce_sum_p = reducer("reduce_sum", NUMBER, "add", lambda dtype: 0, LINEAR)
reduce_prod_p = reducer("reduce_prod", NUMBER, "mul", lambda dtype: 1, _product_derivative)
reduce_max_p = reducer("reduce_max", ORDERED, "max", lowest, _extremum_derivative)
reduce_min_p = reducer("reduce_min", ORDERED, "min", highest, _extremum_derivative)
reduce_and_p = reducer("reduce_and", BOOL | INT, "and", _all_bits, FLAT)
reduce_or_p = reducer("reduce_or", BOOL | INT, "or", lambda dtype: 0, FLAT)
reduce_xor_p = reducer("reduce_xor", BOOL | INT, "xor", lambda dtype: 0, FLAT)

reduce_sum_p.transpose = transpose_from(
    lambda ct, x, *, axes, **_: broadcast_in_dim(
        ct, x.aval.shape, [d for d in range(x.aval.ndim) if d not in axes]
    )
)


def reduce_sum(operand: ArrayLike, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Sum of the elements along axes.

    Args:
      operand: array of a numeric dtype.
      axes: the axes to reduce, none of them twice.
      out_sharding: accepted for compatibility; arrays live on one device.

    Returns:
      Array of the operand's dtype without these axes; 0 for no elements.

    Raises:
      TypeError: for another dtype.
      ValueError: if an axis is out of bounds or named twice.

    Example:
      >>> int(reduce_sum(np.array([1, 2, 3]), (0,)))
      6
    """
    return reduce_sum_p.bind(
        operand, axes=as_ints(axes, "reduce_sum axes"), out_sharding=out_sharding
    )


def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Product of the elements along axes.

    Args:
      operand: array of a numeric dtype.
      axes: the axes to reduce, none of them twice.

    Returns:
      Array of the operand's dtype without these axes; 1 for no elements.

    Raises:
      TypeError: for another dtype.
      ValueError: if an axis is out of bounds or named twice.

    Example:
      >>> int(reduce_prod(np.array([2, 3, 4]), (0,)))
      24
    """
    return reduce_prod_p.bind(operand, axes=as_ints(axes, "reduce_prod axes"))


def reduce_max(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Greatest of the elements along axes; NaN if any is.

    Args:
      operand: array of a real or boolean dtype.
      axes: the axes to reduce, none of them twice.

    Returns:
      Array of the operand's dtype without these axes; for no elements its least value.

    Raises:
      TypeError: for another dtype.
      ValueError: if an axis is out of bounds or named twice.

    Example:
      >>> int(reduce_max(np.array([2, 4, 3]), (0,)))
      4
    """
    return reduce_max_p.bind(operand, axes=as_ints(axes, "reduce_max axes"))


def reduce_min(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Least of the elements along axes; NaN if any is.

    Args:
      operand: array of a real or boolean dtype.
      axes: the axes to reduce, none of them twice.

    Returns:
      Array of the operand's dtype without these axes; for no elements its greatest value.

    Raises:
      TypeError: for another dtype.
      ValueError: if an axis is out of bounds or named twice.

    Example:
      >>> int(reduce_min(np.array([2, 4, 3]), (0,)))
      2
    """
    return reduce_min_p.bind(operand, axes=as_ints(axes, "reduce_min axes"))


def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise conjunction of the elements along axes; of booleans the logical one.

    Args:
      operand: array of an integer or boolean dtype.
      axes: the axes to reduce, none of them twice.

    Returns:
      Array of the operand's dtype without these axes; all bits set for no elements.

    Raises:
      TypeError: for another dtype.
      ValueError: if an axis is out of bounds or named twice.

    Example:
      >>> bool(reduce_and(np.array([True, False]), (0,)))
      False
    """
    return reduce_and_p.bind(operand, axes=as_ints(axes, "reduce_and axes"))


def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise disjunction of the elements along axes; of booleans the logical one.

    Args:
      operand: array of an integer or boolean dtype.
      axes: the axes to reduce, none of them twice.

    Returns:
      Array of the operand's dtype without these axes; 0 for no elements.

    Raises:
      TypeError: for another dtype.
      ValueError: if an axis is out of bounds or named twice.

    Example:
      >>> bool(reduce_or(np.array([True, False]), (0,)))
      True
    """
    return reduce_or_p.bind(operand, axes=as_ints(axes, "reduce_or axes"))


def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise exclusive disjunction of the elements along axes.

    Args:
      operand: array of an integer or boolean dtype.
      axes: the axes to reduce, none of them twice.

    Returns:
      Array of the operand's dtype without these axes; 0 for no elements.

    Raises:
      TypeError: for another dtype.
      ValueError: if an axis is out of bounds or named twice.

    Example:
      >>> int(reduce_xor(np.array([6, 3]), (0,)))
      5
    """
    return reduce_xor_p.bind(operand, axes=as_ints(axes, "reduce_xor axes"))


def _arg_reducer(name: str, better: str, worst: Callable[[np.dtype], Any]) -> Primitive:
    """Index of the extreme element: a reduction of pairs (value, index)."""
    primitive = Primitive(name)

    def abstract_eval(x: Any, *, axes: Shape, index_dtype: Any) -> ShapedArray:
        check_dtype(name, x.dtype, ORDERED)
        (axis,) = axes
        if not 0 <= axis < x.ndim:
            raise ValueError(f"{name}: invalid axis {axis} for operand shape {x.shape}.")
        if not dtypes.issubdtype(index_dtype, np.integer):
            raise TypeError(f"{name}: index_dtype must be an integer dtype, got {index_dtype}.")
        if x.shape[axis] == 0:
            raise ValueError(f"{name}: axis {axis} of operand shape {x.shape} must not be empty.")
        return ShapedArray(_without(x.shape, axes), index_dtype)

    def prepare(b: Any, index: Any, x: Any, *, axes: Shape, index_dtype: Any) -> list[Any]:
        return [x, b.index_value(index[axes[0]], index_dtype)]

    def combine(b: Any, left: Any, right: Any) -> list[Any]:
        """The better value, NaN best of all; of equals the first."""
        (x, i), (y, j) = left, right
        x_nan, y_nan = b.compare("ne", x, x), b.compare("ne", y, y)
        first = b.compare("lt", i, j)
        tied = b.or_(b.compare("eq", x, y), b.and_(x_nan, y_nan))
        wins = b.or_(b.compare(better, x, y), b.and_(x_nan, b.not_(y_nan)))
        left_wins = b.or_(wins, b.and_(tied, first))
        return [b.select(left_wins, x, y), b.select(left_wins, i, j)]

    def jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        return y, zero_tangent(y)

    primitive.abstract_eval = abstract_eval
    primitive.batch = _reduction_batch(primitive)
    primitive.jvp = jvp
    primitive.lowering = Reduce(
        combine, [worst, highest], prepare, lambda b, values, **_: values[1]
    )
    return primitive


argmax_p = _arg_reducer("argmax", "gt", lowest)
argmin_p = _arg_reducer("argmin", "lt", highest)


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Index of the greatest element along an axis; of the first of equals, of the first NaN if any.

    Args:
      operand: array of a real or boolean dtype.
      axis: the axis to search, not empty.
      index_dtype: integer dtype of the result.

    Returns:
      Array of `index_dtype` without that axis.

    Raises:
      TypeError: if `index_dtype` is not an integer dtype.
      ValueError: if the axis is empty or out of bounds.

    Example:
      >>> int(argmax(np.array([2, 4, 3]), 0, np.int32))
      1
    """
    dtype = dtypes.check_and_canonicalize_user_dtype(index_dtype, "argmax")
    return argmax_p.bind(operand, axes=as_ints(axis, "argmax axis"), index_dtype=dtype)


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Index of the least element along an axis; of the first of equals, of the first NaN if any.

    Args:
      operand: array of a real or boolean dtype.
      axis: the axis to search, not empty.
      index_dtype: integer dtype of the result.

    Returns:
      Array of `index_dtype` without that axis.

    Raises:
      TypeError: if `index_dtype` is not an integer dtype.
      ValueError: if the axis is empty or out of bounds.

    Example:
      >>> int(argmin(np.array([2, 4, 3]), 0, np.int32))
      0
    """
    dtype = dtypes.check_and_canonicalize_user_dtype(index_dtype, "argmin")
    return argmin_p.bind(operand, axes=as_ints(axis, "argmin axis"), index_dtype=dtype)


reduce_p = Primitive("reduce", multiple_results=True)


@reduce_p.def_abstract_eval
def _reduce_type(
    *avals: Any, computation: Any, jaxpr: ClosedJaxpr, dimensions: Shape
) -> list[ShapedArray]:
    operands, inits = avals[: len(avals) // 2], avals[len(avals) // 2 :]
    check_same_shape("reduce", *operands)
    _check_axes("reduce", operands[0], dimensions)
    for position, (x, init) in enumerate(zip(operands, inits)):
        check_same_dtype("reduce", x, init)
        if init.shape:
            raise ValueError(
                f"reduce: init_values must be scalars, got shape {init.shape} at {position}."
            )
    out: Any
    for x, out in zip(operands, jaxpr.out_avals):
        if (out.shape, out.dtype) != ((), x.dtype):
            raise TypeError(
                f"reduce: the computation must return scalars of the operands' dtypes, got {out} "
                f"for an operand of dtype {x.dtype}."
            )
    shape = _without(operands[0].shape, dimensions)
    return [ShapedArray(shape, x.dtype, x.weak_type) for x in operands]


def _tree_reduce(*args: Any, computation: Any, jaxpr: ClosedJaxpr, dimensions: Shape) -> list[Any]:
    """Combine one half of the axis with the other until one element is left."""
    from amdjax.lax.joining import concatenate
    from amdjax.lax.slicing import slice_in_dim

    operands, inits = args[: len(args) // 2], args[len(args) // 2 :]
    combine = elementwise_computation(jaxpr)
    xs = [_flatten_axes(x, dimensions) for x in operands]
    seeds = [broadcast(init, (1, *shape_of(x)[1:])) for init, x in zip(inits, xs)]
    if shape_of(xs[0])[0] == 0:
        return [reshape(seed, shape_of(seed)[1:]) for seed in seeds]
    while (n := shape_of(xs[0])[0]) > 1:
        if n % 2:
            xs = [concatenate([x, seed], 0) for x, seed in zip(xs, seeds)]
        half = (n + 1) // 2
        left = [slice_in_dim(x, 0, half) for x in xs]
        right = [slice_in_dim(x, half, 2 * half) for x in xs]
        xs = combine(*left, *right)
    return [reshape(x, shape_of(x)[1:]) for x in combine(*seeds, *xs)]


def elementwise_computation(jaxpr: ClosedJaxpr) -> Callable[..., list[Any]]:
    """A program of scalars as a function of arrays, applied element by element."""
    scalars = jaxpr_as_fun(jaxpr)

    def fn(*xs: Any) -> list[Any]:
        shape = shape_of(xs[0])
        size = int(np.prod(shape, dtype=int))
        flat = [reshape(x, (size,)) for x in xs]
        return [reshape(y, shape) for y in map_examples(scalars, flat, (0,) * len(xs), size)]

    return fn


@reduce_p.def_jvp
def _reduce_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    return jvp_flat(lambda *xs: _tree_reduce(*xs, **params), primals, tangents)


@reduce_p.def_batch
def _reduce_batch(
    axis: Any, args: Any, dims: Any, *, dimensions: Shape, **params: Any
) -> tuple[Any, Any]:
    count = len(args) // 2
    if any(d is not None for d in dims[count:]):
        ys = map_examples(
            lambda *xs: _tree_reduce(*xs, dimensions=dimensions, **params), args, dims, axis.size
        )
        return ys, [0] * count
    operands = [batch_to(x, d, axis.size) for x, d in zip(args[:count], dims)]
    moved = tuple(d + 1 for d in dimensions)
    return reduce_p.bind(*operands, *args[count:], dimensions=moved, **params), [0] * count


reduce_p.lowering = Decompose(_tree_reduce)

# Computations that have a primitive of their own, and the initial value they must start from.
_MONOIDS: dict[str, tuple[Callable[..., Any], Callable[[np.dtype], Any]]] = {
    "add": (reduce_sum, lambda dtype: 0),
    "mul": (reduce_prod, lambda dtype: 1),
    "max": (reduce_max, lowest),
    "min": (reduce_min, highest),
    "and": (reduce_and, _all_bits),
    "or": (reduce_or, lambda dtype: 0),
    "xor": (reduce_xor, lambda dtype: 0),
}


def monoid_name(jaxpr: ClosedJaxpr) -> str | None:
    """The primitive that a program of two scalars consists of, if it is just one."""
    if len(jaxpr.eqns) != 1 or jaxpr.consts:
        return None
    (eqn,) = jaxpr.eqns
    ours = set(map(id, eqn.invars)) == set(map(id, jaxpr.jaxpr.invars))
    if not ours or len(eqn.invars) != 2 or eqn.outvars[0] is not jaxpr.jaxpr.outvars[0]:
        return None
    return eqn.primitive.name


def starts_from(init: Any, identity: Callable[[np.dtype], Any]) -> bool:
    """Whether `init` is known when tracing and is the identity of its dtype."""
    from amdjax.core.trace import is_concrete

    if not is_concrete(init):
        return False
    value = np.asarray(init)
    return bool(value == np.asarray(identity(dtype_of(init))).astype(value.dtype))


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:
    """Combine elements along axes by a function of two.

    Args:
      operands: pytree of arrays of one shape.
      init_values: pytree of scalars of the same structure: the identity of `computation`.
      computation: associative function of two pytrees of scalars that returns a third; it is
        called with values in any grouping.
      dimensions: the axes to reduce.
      out_sharding: accepted for compatibility; arrays live on one device.

    Returns:
      Pytree of arrays without these axes.

    Raises:
      TypeError: if dtypes do not match.
      ValueError: if structures differ or an axis is out of bounds.

    Example:
      >>> int(reduce(np.array([1, 2, 3]), 0, lambda x, y: x | y, (0,)))
      3
    """
    flat, tree = tree_flatten(operands)
    inits, init_tree = tree_flatten(init_values)
    if tree != init_tree:
        raise ValueError(
            f"reduce: operands and init_values differ in structure: {tree} and {init_tree}."
        )
    dims = as_ints(dimensions, "reduce dimensions")
    jaxpr = trace_binary("reduce", computation, tree, [aval_of(init) for init in inits])
    monoid = _MONOIDS.get(monoid_name(jaxpr) or "")
    if len(flat) == 1 and monoid is not None and starts_from(inits[0], monoid[1]):
        check_same_dtype("reduce", aval_of(flat[0]), aval_of(inits[0]))
        return tree_unflatten(tree, [monoid[0](flat[0], dims)])
    outs = reduce_p.bind(*flat, *inits, computation=computation, jaxpr=jaxpr, dimensions=dims)
    return tree_unflatten(tree, outs)


def trace_binary(
    name: str, computation: Callable[..., Any], tree: Any, avals: Sequence[Any]
) -> ClosedJaxpr:
    """Record a function of two pytrees of scalars.

    Raises:
      TypeError: if it returns another structure, or closes over traced values.
    """
    from amdjax.core.array import ConcreteArray

    def flat(*scalars: Any) -> list[Any]:
        left, right = scalars[: len(avals)], scalars[len(avals) :]
        out = computation(tree_unflatten(tree, left), tree_unflatten(tree, right))
        leaves, out_tree = tree_flatten(out)
        if out_tree != tree:
            raise TypeError(f"{name}: computation must return {tree}, got {out_tree}.")
        return leaves

    scalar_avals = [ShapedArray((), aval.dtype) for aval in avals]
    closed = trace_to_jaxpr(flat, scalar_avals * 2)
    if any(isinstance(c, Array) and not isinstance(c, ConcreteArray) for c in closed.consts):
        raise TypeError(f"{name}: computation must not close over traced values.")
    return closed
