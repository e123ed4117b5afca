"""Operations that move no data but mark a program: barriers, staging, sinks."""

from __future__ import annotations

from typing import Any

from amdjax.core.array import Array
from amdjax.core.lowering import Decompose, Pointwise
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.lax._rules import LINEAR, instantiate_zeros, is_zero, jvp_from, zero_tangent

__all__ = [
    "optimization_barrier",
    "optimization_barrier_p",
    "stage",
    "stage_p",
]

optimization_barrier_p = Primitive("optimization_barrier", multiple_results=True)


@optimization_barrier_p.def_abstract_eval
def _barrier_type(*avals: Any) -> list[Any]:
    return list(avals)


@optimization_barrier_p.def_jvp
def _barrier_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    ys = optimization_barrier_p.bind(*primals)
    if all(is_zero(t) for t in tangents):
        return ys, [zero_tangent(y) for y in ys]
    known = [k for k, t in enumerate(tangents) if not is_zero(t)]
    passed = dict(zip(known, optimization_barrier_p.bind(*(tangents[k] for k in known))))
    return ys, [passed.get(k, t) for k, t in enumerate(tangents)]


@optimization_barrier_p.def_transpose
def _barrier_transpose(cts: Any, *xs: Any) -> list[Any]:
    return optimization_barrier_p.bind(*(instantiate_zeros(ct) for ct in cts))


@optimization_barrier_p.def_batch
def _barrier_batch(axis: Any, args: Any, dims: Any) -> tuple[Any, Any]:
    return optimization_barrier_p.bind(*args), dims


optimization_barrier_p.lowering = Decompose(lambda *xs: list(xs))


def optimization_barrier(operand: Any, /) -> Any:
    """Keep the compiler from joining or moving computations across this point.

    Args:
      operand: pytree of arrays.

    Returns:
      The same pytree. What follows is not merged with equal computations before the barrier.

    Raises:
      TypeError: if a leaf is not an array.

    Example:
      >>> float(optimization_barrier(1.5))
      1.5
    """
    leaves, tree = tree_flatten(operand)
    return tree_unflatten(tree, optimization_barrier_p.bind(*leaves))


stage_p = Primitive("stage")
stage_p.abstract_eval = lambda x: x
stage_p.lowering = Pointwise(lambda b, x: x)
stage_p.jvp = jvp_from(stage_p, (LINEAR,))
stage_p.transpose = lambda ct, x: [ct]
stage_p.batch = lambda axis, args, dims: (stage_p.bind(*args), dims[0])


def stage(x: Any, /) -> Array:
    """Make a value part of the program being traced, whatever traced it.

    Args:
      x: array.

    Returns:
      The same array, as a traced value inside a trace.

    Raises:
      TypeError: if `x` is not an array.

    Example:
      >>> float(stage(1.5))
      1.5
    """
    return stage_p.bind(x)
