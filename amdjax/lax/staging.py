"""Operations that move no data but mark a program: barriers, staging, sinks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from amdjax.core.array import Array
from amdjax.core.effects import Effect, allow_everywhere
from amdjax.core.errors import UnexpectedTracerError
from amdjax.core.lowering import Decompose, Pointwise
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_leaves, tree_unflatten
from amdjax.core.trace import Tracer
from amdjax.lax._rules import LINEAR, instantiate_zeros, is_zero, jvp_from, zero_tangent

__all__ = [
    "composite", "dce_sink", "dce_sink_p", "optimization_barrier", "optimization_barrier_p",
    "stage", "stage_p",
]  # fmt: skip

optimization_barrier_p = Primitive("optimization_barrier", multiple_results=True)


optimization_barrier_p.def_memory_space(lambda *avals: None)


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

        >>> float(optimization_barrier(1.5))
        1.5
    """
    leaves, tree = tree_flatten(operand)
    return tree_unflatten(tree, optimization_barrier_p.bind(*leaves))


stage_p = Primitive("stage")
stage_p.abstract_eval = lambda x: x
stage_p.lowering = Pointwise(lambda b, x: x, copies=True)
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

        >>> float(stage(1.5))
        1.5
    """
    return stage_p.bind(x)


@allow_everywhere
class NoDCEEffect(Effect):
    """Keeps an operation alive though its results are not read."""

    __slots__ = ()


_no_dce = NoDCEEffect()

dce_sink_p = Primitive("dce_sink", multiple_results=True)
dce_sink_p.abstract_eval = lambda x, *, prevent_mlir_dce: []
dce_sink_p.effects = lambda x, *, prevent_mlir_dce: frozenset({_no_dce})
dce_sink_p.jvp = lambda primals, tangents, **params: (dce_sink_p.bind(*primals, **params), [])
dce_sink_p.transpose = lambda cts, x, **_: [None]
dce_sink_p.batch = lambda axis, args, dims, **params: (dce_sink_p.bind(*args, **params), [])
dce_sink_p.lowering = Decompose(lambda x, **_: [])


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Count values as used, so that what computes them stays in the program.

    Args:
      val: pytree of arrays.
      prevent_mlir_dce: accepted for compatibility.

    Returns:
      Nothing.

        >>> dce_sink(1.5)
    """
    for leaf in tree_leaves(val):
        dce_sink_p.bind(leaf, prevent_mlir_dce=prevent_mlir_dce)


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """A function with a name that compilers may know.

    This compiler sees through it to what it is made of, so naming it changes nothing.

    Args:
      decomposition: what the function does, in terms of others.
      name: the name of the operation.
      version: the version of its meaning.

    Returns:
      A function that does as `decomposition` does. Keyword arguments are constants.

    Raises:
      UnexpectedTracerError: if a keyword argument is a traced value.

        >>> composite(lambda x: x, name="my.identity")(1.5)
        1.5
    """

    @functools.wraps(decomposition)
    def function(*args: Any, **kwargs: Any) -> Any:
        for key, value in kwargs.items():
            if isinstance(value, Tracer):
                raise UnexpectedTracerError(
                    f"composite {name!r} got a traced value as keyword argument {key!r}: pass "
                    "arrays that are computed with by position. Note: If you are passing jax "
                    "arrays as attributes, use numpy arrays instead."
                )
        return decomposition(*args, **kwargs)

    return function
