"""Primitives that are functions: all their rules are those of what the function does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive
from amdjax.transforms import linear_transpose, vmap
from amdjax.transforms.forward import jvp_flat
from amdjax.transforms.zero import instantiate_zeros, is_undefined_primal


def primitive_of(
    name: str, fun: Callable[..., Any], *, multiple_results: bool = False
) -> Primitive:
    """A primitive that does what a function does.

    Args:
      name: the primitive's name.
      fun: a traceable function of arrays and of keyword parameters, which are hashable.
      multiple_results: whether it returns several arrays.

    Returns:
      The primitive, with rules for derivatives, transposes and batches, and a lowering.
    """
    primitive = Primitive(name, multiple_results=multiple_results)
    listed = (lambda out: list(out)) if multiple_results else (lambda out: [out])
    single = (lambda outs: outs) if multiple_results else (lambda outs: outs[0])
    primitive.lowering = Decompose(lambda *xs, **params: single(listed(fun(*xs, **params))))

    @functools.lru_cache(1024)
    def types(avals: Sequence[Any], params: tuple[tuple[str, Any], ...]) -> Any:
        return trace_to_jaxpr(lambda *xs: listed(fun(*xs, **dict(params))), avals).out_avals

    @primitive.def_abstract_eval
    def abstract_eval(*avals: Any, **params: Any) -> Any:
        return single(list(types(avals, tuple(params.items()))))

    @primitive.def_jvp
    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        outs, dots = jvp_flat(lambda *xs: listed(fun(*xs, **params)), primals, tangents)
        return single(outs), single(dots)

    @primitive.def_transpose
    def transpose(cts: Any, *args: Any, **params: Any) -> list[Any]:
        linear = [i for i, x in enumerate(args) if is_undefined_primal(x)]

        def of_linear(*xs: Any) -> Any:
            full = list(args)
            for i, x in zip(linear, xs, strict=True):
                full[i] = x
            return listed(fun(*full, **params))

        back = linear_transpose(of_linear, *(args[i].aval for i in linear))
        given = cts if multiple_results else [cts]
        found = dict(zip(linear, back([instantiate_zeros(ct) for ct in given]), strict=True))
        return [found.get(i) for i in range(len(args))]

    @primitive.def_batch
    def batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
        outs = vmap(lambda *xs: listed(fun(*xs, **params)), tuple(dims), axis_size=axis.size)(*args)
        return (outs, [0] * len(outs)) if multiple_results else (outs[0], 0)

    return primitive


def first_nonzeros(mat: Any, count: int, fill: Sequence[int]) -> tuple[Any, ...]:
    """The indices of the elements of a matrix that are not zero, filled up to a count."""
    count = int(np.asarray(count))
    if not mat.size:
        return tuple(jnp.full(count, n, np.int32) for n in fill)
    return jnp.nonzero(mat, size=count, fill_value=tuple(fill))
