"""Taylor-mode differentiation: higher derivatives along a curve, in one pass.

A rule of `jet_rules` takes the values of an operation's operands and, for each, the further Taylor
coefficients along a curve (derivatives divided by factorials), and returns those of its results.
Operations without a rule are differentiated again and again in forward mode, which is right but
costs twice as much for each order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.api_util import safe_zip, unzip2 as unzip2, weakref_lru_cache as weakref_lru_cache
from amdjax.core.aval import get_aval
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Phrases as _Phrases, complete as _complete
from amdjax.core.jaxpr import Jaxpr, JaxprEqn, Literal
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_structure, tree_unflatten, treedef_is_leaf
from amdjax.core.pytree_registry import register_pytree_node
from amdjax.numpy._util import is_kind
from amdjax.transforms import jvp, stop_gradient_p
from amdjax.transforms.zero import add_any_p, copy_p

__all__ = ["jet"]

Series = list[Any]
Rule = Callable[..., tuple[Any, Any]]


class ZeroTerm:
    """A coefficient that is zero."""


class ZeroSeries:
    """Coefficients that are all zero."""


zero_term, zero_series = ZeroTerm(), ZeroSeries()
register_pytree_node(ZeroTerm, lambda _: ((), None), lambda *_: zero_term)
register_pytree_node(ZeroSeries, lambda _: ((), None), lambda *_: zero_series)

jet_rules: dict[Primitive, Rule] = {}


def fact(n: Any) -> Any:
    """The factorial, as a float."""
    return lax.exp(lax.lgamma(jnp.asarray(n + 1.0)))


def jet(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Sequence[Any]],
    factorial_scaled: bool = True,
    **_: Any,
) -> tuple[Any, Any]:
    """The value of a function and its derivatives along a curve.

    Args:
      fun: a function of arrays.
      primals: its arguments, arrays.
      series: for each argument the derivatives of the curve: first, second and so on.
      factorial_scaled: whether these and the results are derivatives; if false, both are Taylor
        coefficients, which are derivatives divided by factorials.

    Returns:
      The value, and a list of derivatives in place of each of its arrays.

    Raises:
      ValueError: an argument is no array, or the lists differ in length.

    Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, chapter 13.

        >>> from amdjax.experimental.jet import jet
        >>> y, (first, second) = jet(jnp.sin, (0.0,), ([1.0, 0.0],))
        >>> float(first), abs(float(second))
        (1.0, 0.0)
    """
    lengths = {len(terms) for terms in series}
    if len(lengths) != 1:
        raise ValueError("jet terms have inconsistent lengths for different arguments")
    (order,) = lengths
    for i, (x, terms) in enumerate(zip(primals, series, strict=True)):
        if not treedef_is_leaf(tree_structure(x)):
            raise ValueError(f"primal value at position {i} is not an array")
        for j, term in enumerate(terms):
            if not treedef_is_leaf(tree_structure(term)):
                raise ValueError(f"term {j} for argument {i} is not an array")
    factors = [float(math.factorial(k + 1)) if factorial_scaled else 1.0 for k in range(order)]
    scaled = [
        [t if f == 1 else jnp.divide(t, f) for t, f in zip(terms, factors, strict=True)]
        for terms in series
    ]
    trees: list[Any] = []

    def flat(*args: Any) -> list[Any]:
        leaves, tree = tree_flatten(fun(*args))
        trees.append(tree)
        return leaves

    values = [jnp.asarray(x) for x in primals]
    closed = trace_to_jaxpr(flat, [get_aval(x) for x in values])
    outs = _run(closed.jaxpr, closed.consts, order, safe_zip(values, scaled))
    results = [value for value, _ in outs]
    terms_out = [
        [_scaled(t, f) for t, f in zip(_filled(value, terms, order), factors, strict=True)]
        for value, terms in outs
    ]
    return tree_unflatten(trees[-1], results), tree_unflatten(trees[-1], terms_out)


def _scaled(x: Any, factor: float) -> Any:
    return x if factor == 1 else x * factor


def _filled(value: Any, terms: Any, order: int) -> Series:
    """All coefficients, zeros where they are not known to be anything else."""
    if terms is zero_series or isinstance(terms, ZeroSeries):
        return [jnp.zeros_like(value)] * order
    return [jnp.zeros_like(value) if isinstance(t, ZeroTerm) else t for t in terms]


def _run(jaxpr: Jaxpr, consts: Sequence[Any], order: int, args: Any) -> list[tuple[Any, Any]]:
    """Run a program on values and their coefficients."""
    env: dict[Any, Any] = {
        v: (c, zero_series) for v, c in zip(jaxpr.constvars, consts, strict=True)
    }
    env.update(zip(jaxpr.invars, args, strict=True))
    read = lambda x: (x.val, zero_series) if type(x) is Literal else env[x]
    for eqn in jaxpr.eqns:
        pairs = [read(x) for x in eqn.invars]
        env.update(zip(eqn.outvars, _apply(eqn, order, pairs), strict=True))
    return [read(x) for x in jaxpr.outvars]


def _apply(eqn: JaxprEqn, order: int, pairs: Any) -> list[tuple[Any, Any]]:
    primitive = eqn.primitive
    values = [value for value, _ in pairs]
    if all(isinstance(terms, ZeroSeries) for _, terms in pairs):
        out = primitive.bind(*values, **eqn.params)
        outs = out if primitive.multiple_results else [out]
        return [(x, zero_series) for x in outs]
    inner = next((eqn.params[p] for p in ("jaxpr", "call_jaxpr") if p in eqn.params), None)
    if inner is not None and primitive.name in _CALLS:
        return _run(inner.jaxpr, inner.consts, order, pairs)
    series = [_filled(value, terms, order) for value, terms in pairs]
    rule = jet_rules.get(primitive, functools.partial(_by_forward_mode, primitive))
    out, terms = rule(values, series, **eqn.params)
    if not primitive.multiple_results:
        return [(out, terms)]
    if isinstance(terms, ZeroSeries):
        terms = [zero_series] * len(out)
    return safe_zip(out, terms)


_CALLS = frozenset(
    ("jit", "closed_call", "remat2", "custom_jvp_call", "custom_vjp_call", "custom_lin")
)


def _by_forward_mode(primitive: Primitive, values: Any, series: Any, **params: Any) -> Any:
    """The coefficients as repeated derivatives in the curve's parameter."""
    order = len(series[0])
    real = [is_kind(x.dtype, np.inexact) for x in map(get_aval, values)]

    def at(t: Any) -> Any:
        point = []
        for x, terms, differentiable in zip(values, series, real, strict=True):
            if differentiable:
                total = jnp.zeros_like(x)
                for term in reversed(terms):
                    total = (total + term) * t.astype(total.dtype)
                x = x + total
            point.append(x)
        out = primitive.bind(*point, **params)
        return list(out) if primitive.multiple_results else [out]

    zero = jnp.zeros((), jnp.result_type(float))
    derivative: Callable[[Any], Any] = at
    found = [at(zero)]
    for k in range(1, order + 1):
        derivative = _derivative(derivative)
        found.append([x / math.factorial(k) if is_kind(x.dtype, np.inexact) else x
                      for x in derivative(zero)])  # fmt: skip
    out, *terms = found
    columns = [
        list(column) if is_kind(get_aval(value).dtype, np.inexact) else zero_series
        for value, column in zip(out, zip(*terms, strict=True), strict=True)
    ]
    return (out, columns) if primitive.multiple_results else (out[0], columns[0])


def _derivative(f: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    return lambda t: jvp(f, (t,), (jnp.ones_like(t),))[1]


def defzero(prim: Primitive) -> None:
    """Say that the results of a primitive do not change with its operands."""
    jet_rules[prim] = functools.partial(zero_prop, prim)


def zero_prop(prim: Primitive, primals_in: Any, series_in: Any, **params: Any) -> Any:
    """The rule of a primitive whose results do not change."""
    return prim.bind(*primals_in, **params), zero_series


def deflinear(prim: Primitive) -> None:
    """Say that a primitive is linear in all operands together."""
    jet_rules[prim] = functools.partial(linear_prop, prim)


def linear_prop(prim: Primitive, primals_in: Any, series_in: Any, **params: Any) -> Any:
    """The rule of a linear primitive."""
    terms = [prim.bind(*row, **params) for row in zip(*series_in, strict=True)]
    if prim.multiple_results:
        terms = [list(column) for column in zip(*terms, strict=True)]
    return prim.bind(*primals_in, **params), terms


def _linear_in(prim: Primitive, *positions: int) -> None:
    """A primitive that is linear in some operands; the others choose."""

    def rule(values: Any, series: Any, **params: Any) -> Any:
        def bind(row: Sequence[Any]) -> Any:
            args = list(values)
            for i in positions:
                args[i] = row[i]
            return prim.bind(*args, **params)

        return bind(values), [bind(row) for row in zip(*series, strict=True)]

    jet_rules[prim] = rule


def def_deriv(prim: Primitive, deriv: Callable[[Any], Any]) -> None:
    """Give a primitive of one operand a rule, by its derivative."""
    jet_rules[prim] = functools.partial(deriv_prop, prim, deriv)


def deriv_prop(
    prim: Primitive, deriv: Callable[[Any], Any], primals_in: Any, series_in: Any, **params: Any
) -> Any:
    """The rule of a primitive whose derivative is `deriv`: `v' = deriv(u) u'`."""
    (x,), (terms,) = primals_in, series_in
    slope, slopes = jet(deriv, (x,), (terms,), factorial_scaled=False)
    return prim.bind(x, **params), _integrated([slope, *slopes], [x, *terms])


def _integrated(slope: Series, u: Series) -> Series:
    """The coefficients, but the first, of `v` where `v' = slope · u'`."""
    return [sum(j * slope[k - j] * u[j] for j in range(1, k + 1)) / k for k in range(1, len(u))]


def def_comp(prim: Primitive, comp: Callable[..., Any], **kwargs: Any) -> None:
    """Give a primitive the rule of a function that computes the same."""

    def rule(values: Any, series: Any, **params: Any) -> Any:
        return jet(functools.partial(comp, **kwargs), values, series, factorial_scaled=False)

    jet_rules[prim] = rule


def _rule(*prims: Primitive) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for prim in prims:
            jet_rules[prim] = rule
        return rule

    return add


for _name in (
    "le", "lt", "gt", "ge", "eq", "ne", "not", "and", "or", "xor", "floor", "ceil", "round", "sign",
    "is_finite", "shift_left", "shift_right_arithmetic", "shift_right_logical",
    "bitcast_convert_type", "iota",
):  # fmt: skip
    defzero(getattr(lax, f"{_name}_p"))
defzero(stop_gradient_p)

for _name in (
    "neg", "real", "imag", "complex", "conj", "add", "sub", "convert_element_type",
    "broadcast_in_dim", "concatenate", "split", "stack", "unstack", "pad", "reshape", "squeeze",
    "rev", "transpose", "slice", "reduce_sum", "reduce_window_sum", "fft", "cumsum",
):  # fmt: skip
    deflinear(getattr(lax, f"{_name}_p"))
deflinear(copy_p)
deflinear(add_any_p)

_linear_in(lax.dynamic_slice_p, 0)
_linear_in(lax.dynamic_update_slice_p, 0, 1)
_linear_in(lax.gather_p, 0)
_linear_in(lax.scatter_add_p, 0, 2)


@_rule(lax.select_n_p)
def _select_n(values: Any, series: Any, **params: Any) -> Any:
    which, *cases = values
    rows = zip(*series[1:], strict=True)
    return lax.select_n(which, *cases), [lax.select_n(which, *row) for row in rows]


def _bilinear(prim: Primitive, values: Any, series: Any, **params: Any) -> Any:
    """The product of two series."""
    u, w = ([value, *terms] for value, terms in zip(values, series, strict=True))
    out = [
        functools.reduce(lax.add, (prim.bind(u[j], w[k - j], **params) for j in range(k + 1)))
        for k in range(len(u))
    ]
    return out[0], out[1:]


for _prim in (lax.mul_p, lax.dot_general_p, lax.conv_general_dilated_p):
    jet_rules[_prim] = functools.partial(_bilinear, _prim)


@_rule(lax.div_p)
def _div(values: Any, series: Any, **params: Any) -> Any:
    u, w = ([value, *terms] for value, terms in zip(values, series, strict=True))
    v: Series = []
    for k in range(len(u)):
        v.append((u[k] - sum(v[j] * w[k - j] for j in range(k))) / w[0] if k else u[0] / w[0])
    return v[0], v[1:]


@_rule(lax.exp_p)
def _exp(values: Any, series: Any, **params: Any) -> Any:
    u = [values[0], *series[0]]
    v = [lax.exp(values[0])]
    for k in range(1, len(u)):
        v.append(sum(j * v[k - j] * u[j] for j in range(1, k + 1)) / k)
    return v[0], v[1:]


@_rule(lax.log_p)
def _log(values: Any, series: Any, **params: Any) -> Any:
    u = [values[0], *series[0]]
    v = [lax.log(values[0])]
    for k in range(1, len(u)):
        v.append((u[k] - sum(j * v[j] * u[k - j] for j in range(1, k)) / k) / u[0])
    return v[0], v[1:]


def _pair(
    sign: int, first: Any, second: Any, which: int, values: Any, series: Any, **_: Any
) -> Any:
    """Sine and cosine, or their hyperbolic sisters: each is the other's derivative but for sign."""
    u = [values[0], *series[0]]
    s, c = [first(values[0])], [second(values[0])]
    for k in range(1, len(u)):
        s.append(sum(j * u[j] * c[k - j] for j in range(1, k + 1)) / k)
        c.append(sum(j * u[j] * s[k - j] for j in range(1, k + 1)) / k * sign)
    found = (s, c)[which]
    return found[0], found[1:]


for _which, (_circular, _hyperbolic) in enumerate(
    ((lax.sin_p, lax.sinh_p), (lax.cos_p, lax.cosh_p))
):
    jet_rules[_circular] = functools.partial(_pair, -1, lax.sin, lax.cos, _which)
    jet_rules[_hyperbolic] = functools.partial(_pair, 1, lax.sinh, lax.cosh, _which)


def _of_its_value(start: Any, slope: Callable[[Series, int], Any], u: Series) -> Any:
    """`v` of `v' = slope(v) · u'`, where `slope(v, k)` is a coefficient of the slope."""
    v, slopes = [start], [slope([start], 0)]
    for k in range(1, len(u)):
        v.append(sum(j * slopes[k - j] * u[j] for j in range(1, k + 1)) / k)
        slopes.append(slope(v, k))
    return v[0], v[1:]


def _square(v: Series, k: int) -> Any:
    return sum(v[j] * v[k - j] for j in range(k + 1))


@_rule(lax.logistic_p)
def _logistic_taylor(values: Any, series: Any, **params: Any) -> Any:
    slope = lambda v, k: v[k] - _square(v, k)
    return _of_its_value(lax.logistic(values[0]), slope, [values[0], *series[0]])


@_rule(lax.tanh_p)
def _tanh(values: Any, series: Any, **params: Any) -> Any:
    slope = lambda v, k: (1 if k == 0 else 0) - _square(v, k)
    return _of_its_value(lax.tanh(values[0]), slope, [values[0], *series[0]])


@_rule(lax.tan_p)
def _tan(values: Any, series: Any, **params: Any) -> Any:
    slope = lambda v, k: (1 if k == 0 else 0) + _square(v, k)
    return _of_its_value(lax.tan(values[0]), slope, [values[0], *series[0]])


def _power(values: Any, series: Any, power: Any, start: Any) -> Any:
    """`u ** power` for a constant power, where `u` is not zero."""
    u, v = [values[0], *series[0]], [start]
    for k in range(1, len(u)):
        terms = (((power + 1) * j / k - 1) * u[j] * v[k - j] for j in range(1, k + 1))
        v.append(sum(terms) / u[0])
    return v[0], v[1:]


@_rule(lax.sqrt_p)
def _sqrt(values: Any, series: Any, **params: Any) -> Any:
    return _power(values, series, 0.5, lax.sqrt(values[0]))


@_rule(lax.rsqrt_p)
def _rsqrt(values: Any, series: Any, **params: Any) -> Any:
    return _power(values, series, -0.5, lax.rsqrt(values[0]))


@_rule(lax.cbrt_p)
def _cbrt(values: Any, series: Any, **params: Any) -> Any:
    return _power(values, series, 1 / 3, lax.cbrt(values[0]))


@_rule(lax.pow_p)
def _pow(values: Any, series: Any, **params: Any) -> Any:
    exponent = lambda x, y: y * lax.log(x)
    y = (
        values[1]
        if is_kind(get_aval(values[1]).dtype, np.inexact)
        else values[1].astype(get_aval(values[0]).dtype)
    )
    terms = [jnp.asarray(t, y.dtype) for t in series[1]]
    first, rest = jet(exponent, (values[0], y), (series[0], terms), factorial_scaled=False)
    # The factor of the exponential is the power itself, which may be of a negative number.
    value = lax.pow(values[0], values[1])
    v, u = [value], [first, *rest]
    for k in range(1, len(u)):
        v.append(sum(j * v[k - j] * u[j] for j in range(1, k + 1)) / k)
    return value, v[1:]


@_rule(lax.integer_pow_p)
def _integer_pow(values: Any, series: Any, *, y: int, **params: Any) -> Any:
    def power(x: Any) -> Any:
        if y < 0:
            x = 1 / x
        result, n = None, abs(y)
        while n:
            if n & 1:
                result = x if result is None else result * x
            n >>= 1
            x = x * x if n else x
        return jnp.ones_like(x) if result is None else result

    return jet(power, values, series, factorial_scaled=False)


def_comp(lax.square_p, lambda x: x * x)
def_comp(lax.exp2_p, lambda x: lax.exp(x * math.log(2)))
def_comp(lax.rem_p, lambda x, y: x - y * _toward_zero(x / y))
def_comp(lax.clamp_p, lambda a, x, b: lax.min(lax.max(a, x), b))
def_deriv(lax.erf_p, lambda x: 2 / math.sqrt(math.pi) * lax.exp(-(x * x)))
def_deriv(lax.erfc_p, lambda x: -2 / math.sqrt(math.pi) * lax.exp(-(x * x)))
def_deriv(lax.expm1_p, lax.exp)
def_deriv(lax.log1p_p, lambda x: 1 / (1 + x))
def_deriv(lax.asin_p, lambda x: lax.rsqrt(1 - x * x))
def_deriv(lax.acos_p, lambda x: -lax.rsqrt(1 - x * x))
def_deriv(lax.atan_p, lambda x: 1 / (1 + x * x))
def_deriv(lax.asinh_p, lambda x: lax.rsqrt(x * x + 1))
def_deriv(lax.acosh_p, lambda x: lax.rsqrt(x - 1) * lax.rsqrt(x + 1))
def_deriv(lax.atanh_p, lambda x: 1 / (1 - x * x))
def_deriv(lax.lgamma_p, lax.digamma)


def _toward_zero(x: Any) -> Any:
    return lax.sign(x) * lax.floor(lax.abs(x))


@_rule(lax.erf_inv_p)
def _erf_inv(values: Any, series: Any, **params: Any) -> Any:
    u = [values[0], *series[0]]
    start = lax.erf_inv(values[0])

    def slope(v: Series, k: int) -> Any:
        squares = [_square(v, i) for i in range(k + 1)]
        value, terms = _exp((squares[0],), (squares[1:],))
        return math.sqrt(math.pi) / 2 * [value, *terms][k]

    return _of_its_value(start, slope, u)


@_rule(lax.atan2_p)
def _atan2(values: Any, series: Any, **params: Any) -> Any:
    y, x = ([value, *terms] for value, terms in zip(values, series, strict=True))
    # d = (x dy - y dx) / (x² + y²)
    top = [
        sum((k - j) * (x[j] * y[k - j] - y[j] * x[k - j]) for j in range(k))
        for k in range(1, len(x))
    ]
    bottom = [_square(x, k) + _square(y, k) for k in range(len(x) - 1)]
    if not top:
        return lax.atan2(*values), []
    first, rest = _div((top[0], bottom[0]), (top[1:], bottom[1:]))
    return lax.atan2(*values), [c / (k + 1) for k, c in enumerate([first, *rest])]


@_rule(lax.abs_p)
def _abs(values: Any, series: Any, **params: Any) -> Any:
    if is_kind(get_aval(values[0]).dtype, np.complexfloating):
        return _by_forward_mode(lax.abs_p, values, series, **params)
    sign = lax.select(values[0] < 0, lax.full_like(values[0], -1), lax.full_like(values[0], 1))
    return lax.abs(values[0]), [sign * t for t in series[0]]


def _chosen(prim: Primitive, above: bool, values: Any, series: Any, **params: Any) -> Any:
    """The greater or lesser operand; the mean of both where they are equal."""
    x, y = values
    first = lax.gt(x, y) if above else lax.lt(x, y)
    equal = lax.eq(x, y)
    mix = lambda a, b: jnp.where(equal, (a + b) / 2, jnp.where(first, a, b))
    return prim.bind(x, y, **params), [mix(a, b) for a, b in zip(*series, strict=True)]


jet_rules[lax.max_p] = functools.partial(_chosen, lax.max_p, True)
jet_rules[lax.min_p] = functools.partial(_chosen, lax.min_p, False)


def _extreme(prim: Primitive, values: Any, series: Any, *, axes: Any, **params: Any) -> Any:
    """The mean over the places of the extreme."""
    (x,) = values
    value = prim.bind(x, axes=axes, **params)
    kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
    here = (x == jnp.reshape(value, kept)).astype(x.dtype)
    count = here.sum(axes)
    return value, [(t * here).sum(axes) / count for t in series[0]]


jet_rules[lax.reduce_max_p] = functools.partial(_extreme, lax.reduce_max_p)
jet_rules[lax.reduce_min_p] = functools.partial(_extreme, lax.reduce_min_p)


def _running(combine: Callable[..., Any], values: Any, series: Any, **params: Any) -> Any:
    axis, reverse = params["axis"], params["reverse"]
    scan = lambda x: lax.associative_scan(combine, x, axis=axis, reverse=reverse)
    return jet(scan, values, series, factorial_scaled=False)


for _prim, _combine in (
    (lax.cumprod_p, lax.mul), (lax.cummax_p, lax.max), (lax.cummin_p, lax.min),
):  # fmt: skip
    jet_rules[_prim] = functools.partial(_running, _combine)

_complete(globals(), (), _Phrases())
_public_surface(globals())
