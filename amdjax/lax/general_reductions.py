"""Reductions by any computation: `reduce`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core.array import Array, ConcreteArray
from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import ClosedJaxpr, jaxpr_as_fun
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.core.trace import is_concrete
from amdjax.lax._rules import (
    Shape,
    as_ints,
    aval_of,
    batch_to,
    check_same_dtype,
    check_same_shape,
    dtype_of,
    map_examples,
    shape_of,
)
from amdjax.lax.casting import convert
from amdjax.lax.joining import concatenate
from amdjax.lax.reductions import (
    all_bits,
    check_axes,
    flatten_axes,
    highest,
    lowest,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
    without,
)
from amdjax.lax.shape import broadcast, reshape
from amdjax.lax.slicing import slice_in_dim
from amdjax.transforms.forward import jvp_flat

__all__ = ["reduce", "reduce_p"]

reduce_p = Primitive("reduce", multiple_results=True)


@reduce_p.def_abstract_eval
def _reduce_type(
    *avals: Any, computation: Any, jaxpr: ClosedJaxpr, dimensions: Shape
) -> list[ShapedArray]:
    operands, inits = avals[: len(avals) // 2], avals[len(avals) // 2 :]
    check_same_shape("reduce", *operands)
    check_axes("reduce", operands[0], dimensions)
    for position, (x, init) in enumerate(zip(operands, inits)):
        check_same_dtype("reduce", x, init)
        if init.shape:
            raise ValueError(
                f"reduce found non-scalar initial value of shape {init.shape} at {position}."
            )
    out: Any
    for x, out in zip(operands, jaxpr.out_avals):
        if (out.shape, out.dtype) != ((), x.dtype):
            raise TypeError(
                f"reduce: the computation must return scalars of the operands' dtypes, got {out} "
                f"for an operand of dtype {x.dtype}."
            )
    shape = without(operands[0].shape, dimensions)
    return [
        ShapedArray(shape, x.dtype, x.weak_type and init.weak_type)
        for x, init in zip(operands, inits)
    ]


def _tree_reduce(*args: Any, computation: Any, jaxpr: ClosedJaxpr, dimensions: Shape) -> list[Any]:
    """Combine one half of the axis with the other until one element is left."""
    operands, inits = args[: len(args) // 2], args[len(args) // 2 :]
    combine = elementwise_computation(jaxpr)
    xs = [flatten_axes(x, dimensions) for x in operands]
    seeds = [broadcast(init, (1, *shape_of(x)[1:])) for init, x in zip(inits, xs)]
    if shape_of(xs[0])[0] == 0:
        return [reshape(seed, shape_of(seed)[1:]) for seed in seeds]
    while (n := shape_of(xs[0])[0]) > 1:
        half = n // 2
        left = [slice_in_dim(x, 0, half) for x in xs]
        right = [slice_in_dim(x, half, 2 * half) for x in xs]
        pairs = combine(*left, *right)
        if n % 2:  # the last one waits, since the initial value may count once only
            last = [slice_in_dim(x, n - 1, n) for x in xs]
            pairs = [concatenate([pair, x], 0) for pair, x in zip(pairs, last)]
        xs = pairs
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
    "and": (reduce_and, all_bits),
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
    if not is_concrete(init):
        return False
    value = np.asarray(init)
    if value.ndim:
        return False
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

    Returns:
      Pytree of arrays without these axes.

    Raises:
      TypeError: if dtypes do not match.
      ValueError: if structures differ or an axis is out of bounds.

        >>> int(reduce(np.array([1, 2, 3]), 0, lambda x, y: x | y, (0,)))
        3
    """
    flat, tree = tree_flatten(operands)
    inits, init_tree = tree_flatten(init_values)
    if tree != init_tree:
        raise ValueError(
            "reduce: Operands must have the same tree structure as init_values, got "
            f"{tree} and {init_tree}."
        )
    dims = as_ints(dimensions, "reduce dimensions")
    jaxpr, tree = trace_binary("reduce", computation, tree, inits)
    monoid = _MONOIDS.get(monoid_name(jaxpr) or "")
    if len(flat) == 1 and monoid is not None and starts_from(inits[0], monoid[1]):
        return tree_unflatten(tree, [as_weak_as(monoid[0](flat[0], dims), inits[0])])
    outs = reduce_p.bind(*flat, *inits, computation=computation, jaxpr=jaxpr, dimensions=dims)
    return tree_unflatten(tree, outs)


def as_weak_as(y: Any, init: Any) -> Any:
    """The result `y` of a monoid, weakly typed only if its initial value is, too.

    The dtype of a monoid's identity does not matter: it may have been a Python number.
    """
    aval = aval_of(y)
    return convert(y, aval.dtype, aval.weak_type and aval_of(init).weak_type)


def trace_binary(
    name: str, computation: Callable[..., Any], tree: Any, inits: Sequence[Any]
) -> tuple[ClosedJaxpr, Any]:
    """Record a function of two pytrees of scalars, and the structure that it returns.

    Raises:
      TypeError: if it returns another number of values, or closes over traced values.
    """
    out_tree: Any = None

    def flat(*scalars: Any) -> list[Any]:
        nonlocal out_tree
        left, right = scalars[: len(inits)], scalars[len(inits) :]
        out = computation(tree_unflatten(tree, left), tree_unflatten(tree, right))
        leaves, out_tree = tree_flatten(out)
        if len(leaves) != len(inits):
            raise TypeError(f"{name}: computation must return {tree}, got {out_tree}.")
        return leaves

    scalar_avals = [ShapedArray((), dtype_of(init)) for init in inits]
    closed = trace_to_jaxpr(flat, scalar_avals * 2)
    if any(isinstance(c, Array) and not isinstance(c, ConcreteArray) for c in closed.consts):
        raise TypeError(f"{name}: computation must not close over traced values.")
    return closed, out_tree
