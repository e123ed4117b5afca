"""Derivatives of primitives, and what their rules speak of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.primitive import Primitive
from amdjax.extend import linear_util as lu
from amdjax.interpreters.tables import RuleTable
from amdjax.transforms.forward import JVPTrace as JVPTrace, JVPTracer as JVPTracer, jvp_flat
from amdjax.transforms.linear import linearize_flat
from amdjax.transforms.zero import (
    UndefinedPrimal as UndefinedPrimal,
    Zero as Zero,
    add_any_p as add_jaxvals_p,
    add_tangents as add_tangents,
    instantiate_zeros as instantiate_zeros,
    is_undefined_primal as is_undefined_primal,
    zeros_like_aval as zeros_like_aval,
)

__all__ = [
    "JVPTrace", "JVPTracer", "UndefinedPrimal", "Zero", "add_jaxvals", "add_jaxvals_p",
    "add_tangents", "defbilinear", "defjvp", "defjvp2", "deflinear", "deflinear2",
    "get_primitive_transpose", "instantiate_zeros", "is_undefined_primal", "jvp", "linearize",
    "primitive_jvps", "primitive_transposes", "zeros_like_aval",
]  # fmt: skip

primitive_jvps = RuleTable("jvp")
"""`primitive_jvps[p] = rule`; `rule(primals, tangents, **params) -> (result, tangent)`."""

primitive_transposes = RuleTable("transpose")
"""`primitive_transposes[p] = rule`; `rule(cotangent, *operands, **params) -> cotangents`."""


def get_primitive_transpose(primitive: Primitive) -> Callable[..., Any]:
    """The transpose rule of a primitive.

    Args:
      primitive: the primitive.

    Returns:
      The rule.

    Raises:
      NotImplementedError: it has none.

        >>> from amdjax.extend.core.primitives import neg_p
        >>> callable(get_primitive_transpose(neg_p))
        True
    """
    if primitive.transpose is None:
        raise NotImplementedError(
            f"Transpose rule (for reverse-mode differentiation) for '{primitive}' not implemented"
        )
    return primitive.transpose


def add_jaxvals(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents.

    Args:
      x: an array.
      y: another one of its type.

    Returns:
      An array.

        >>> add_jaxvals(jnp.ones(2), jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """
    return add_jaxvals_p.bind(x, y)


def _results(primitive: Primitive, values: Any) -> Any:
    return list(values) if primitive.multiple_results else values


def deflinear2(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """Declare a primitive linear in all its operands.

    Args:
      primitive: the primitive.
      transpose_rule: `rule(cotangent, *operands, **params) -> [cotangent of each operand]`.

        >>> from amdjax.extend.core import Primitive
        >>> twice_p = Primitive("twice")
        >>> _ = twice_p.def_impl(lambda x: 2 * x)
        >>> _ = twice_p.def_abstract_eval(lambda x: x)
        >>> deflinear2(twice_p, lambda ct, x: [twice_p.bind(ct)])
        >>> print(amdjax.grad(twice_p.bind)(3.0))
        2.0
    """

    def jvp_rule(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        if all(type(t) is Zero for t in tangents):
            zeros = [Zero.of(x) for x in (out if primitive.multiple_results else [out])]
            return out, zeros if primitive.multiple_results else zeros[0]
        return out, primitive.bind(*map(instantiate_zeros, tangents), **params)

    primitive.jvp, primitive.transpose = jvp_rule, transpose_rule


def deflinear(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """As `deflinear2`, with a transpose rule that does not look at the operands.

    Args:
      primitive: the primitive.
      transpose_rule: `rule(cotangent, **params) -> [cotangent of each operand]`.

        >>> from amdjax.extend.core import Primitive
        >>> twice_p = Primitive("twice")
        >>> _ = twice_p.def_impl(lambda x: 2 * x)
        >>> _ = twice_p.def_abstract_eval(lambda x: x)
        >>> deflinear(twice_p, lambda ct: [twice_p.bind(ct)])
        >>> print(amdjax.grad(twice_p.bind)(3.0))
        2.0
    """

    def transpose(ct: Any, *operands: Any, **params: Any) -> Any:
        cts = ct if primitive.multiple_results else [ct]
        if all(type(c) is Zero for c in cts):
            return [None] * len(operands)
        return transpose_rule(ct, **params)

    deflinear2(primitive, transpose)


def _sum_of_parts(
    primitive: Primitive, tangents: Any, parts: Sequence[Callable[..., Any] | None], out: Any
) -> Any:
    """The tangent of `out`, one part from each operand that has a tangent and a rule."""
    total: Any = Zero.of(out)
    for tangent, part in zip(tangents, parts):
        if part is not None and type(tangent) is not Zero:
            total = add_tangents(total, part(tangent))
    return total


def defjvp(primitive: Primitive, *jvps: Callable[..., Any] | None) -> None:
    """Give a primitive of one result a derivative for each operand.

    Args:
      primitive: the primitive.
      *jvps: `rule(tangent, *operands, **params)`, the part of the result's tangent that comes from
        one operand; None where the result does not depend on it.

        >>> from amdjax.extend.core import Primitive
        >>> twice_p = Primitive("twice")
        >>> _ = twice_p.def_impl(lambda x: 2 * x)
        >>> _ = twice_p.def_abstract_eval(lambda x: x)
        >>> defjvp(twice_p, lambda t, x: 2 * t)
        >>> print(amdjax.grad(twice_p.bind)(3.0))
        2.0
    """

    def jvp_rule(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        parts = [
            None if rule is None else lambda t, rule=rule: rule(t, *primals, **params)
            for rule in jvps
        ]
        return out, _sum_of_parts(primitive, tangents, parts, out)

    primitive.jvp = jvp_rule


def defjvp2(primitive: Primitive, *jvps: Callable[..., Any] | None) -> None:
    """As `defjvp`; the rules take the result, too: `rule(tangent, result, *operands, **params)`.

    Args:
      primitive: the primitive.
      jvps: as for `defjvp`.

        >>> from amdjax.extend.core import Primitive
        >>> twice_p = Primitive("twice")
        >>> _ = twice_p.def_impl(lambda x: 2 * x)
        >>> _ = twice_p.def_abstract_eval(lambda x: x)
        >>> defjvp2(twice_p, lambda t, out, x: t * out / x)
        >>> print(amdjax.grad(twice_p.bind)(3.0))
        2.0
    """

    def jvp_rule(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        parts = [
            None if rule is None else lambda t, rule=rule: rule(t, out, *primals, **params)
            for rule in jvps
        ]
        return out, _sum_of_parts(primitive, tangents, parts, out)

    primitive.jvp = jvp_rule


def defbilinear(
    primitive: Primitive, lhs_rule: Callable[..., Any], rhs_rule: Callable[..., Any]
) -> None:
    """Declare a primitive linear in each of its two operands.

    Args:
      primitive: the primitive.
      lhs_rule: `rule(cotangent, x, y, **params) -> cotangent of x`.
      rhs_rule: `rule(cotangent, x, y, **params) -> cotangent of y`.

        >>> from amdjax.extend.core import Primitive
        >>> times_p = Primitive("times")
        >>> _ = times_p.def_impl(lambda x, y: x * y)
        >>> _ = times_p.def_abstract_eval(lambda x, y: x)
        >>> product = times_p.bind
        >>> defbilinear(times_p, lambda ct, x, y: product(ct, y), lambda ct, x, y: product(x, ct))
        >>> print(amdjax.grad(product)(3.0, 4.0))
        4.0
    """
    defjvp(
        primitive,
        lambda t, x, y, **params: primitive.bind(t, y, **params),
        lambda t, x, y, **params: primitive.bind(x, t, **params),
    )

    def transpose(ct: Any, x: Any, y: Any, **params: Any) -> Any:
        unknown = is_undefined_primal(x), is_undefined_primal(y)
        if type(ct) is Zero or sum(unknown) != 1:
            return [None, None]
        if unknown[0]:
            return [lhs_rule(ct, x, y, **params), None]
        return [None, rhs_rule(ct, x, y, **params)]

    primitive.transpose = transpose


def jvp(fun: lu.WrappedFun, has_aux: bool = False, instantiate: bool = True, **options: Any) -> Any:
    """`fun` on flat arguments as a function of primals and tangents.

    Args:
      fun: takes flat arguments, returns a list.
      has_aux: not supported, must be False.
      instantiate: whether tangents that are zero are returned as arrays.
      **options: accepted.

    Returns:
      A wrapped function of two lists, that returns two.

    Raises:
      NotImplementedError: `has_aux` is not False.

        >>> from amdjax.extend import linear_util as lu
        >>> fun = lu.wrap_init(lambda x: [x * x])
        >>> print(*jvp(fun).call_wrapped([3.0], [1.0]))
        [Array(9., dtype=float32, weak_type=True)] [Array(6., dtype=float32, weak_type=True)]
    """
    if has_aux:
        raise NotImplementedError("interpreters.ad.jvp: has_aux is not supported; use amdjax.jvp")

    def run(inner: Callable[..., Any], primals: Any, tangents: Any) -> Any:
        outs, out_tangents = jvp_flat(inner, primals, tangents)
        if instantiate:
            out_tangents = [instantiate_zeros(t) for t in out_tangents]
        return outs, out_tangents

    return lu.transformation2(run)(fun)


def linearize(fun: lu.WrappedFun, *primals: Any, **options: Any) -> Any:
    """Results of `fun`, and the linear program of its tangents.

    Args:
      fun: takes flat arguments, returns a list.
      primals: the point.
      options: accepted.

    Returns:
      The results; the linear program and its constants; which results have a tangent.

        >>> from amdjax.extend import linear_util as lu
        >>> fun = lu.wrap_init(lambda x: [x * x])
        >>> results, program, consts, nonzeros = linearize(fun, 3.0)
        >>> results, nonzeros
        ([Array(9., dtype=float32, weak_type=True)], [True])
    """
    outs, nonzeros, closed = linearize_flat(fun.call_wrapped, primals)
    return outs, closed.jaxpr, closed.consts, nonzeros
