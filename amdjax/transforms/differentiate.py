"""Derivatives as users ask for them: `jvp`, `vjp`, `linearize`, `grad`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import get_aval, is_array_like
from amdjax.core.boundaries import api_boundary
from amdjax.core.dtypes import float0
from amdjax.core.jaxpr import Jaxpr, eval_jaxpr
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.pytree import Partial, PyTreeDef, tree_flatten, tree_structure, tree_unflatten
from amdjax.core.ref import is_ref, refuse_aliases
from amdjax.core.source_info import transformed
from amdjax.transforms.flat import (
    argument_names,
    flatten_fun,
    fun_name,
    join_args,
    positions_of,
    shaped,
    split_args,
)
from amdjax.transforms.forward import jvp_flat
from amdjax.transforms.linear import has_tangent, linearize_flat
from amdjax.transforms.pullback import pull_back
from amdjax.transforms.reverse import backward_pass
from amdjax.transforms.zero import UndefinedPrimal, Zero, as_result, ones_like_aval

Argnums = int | Sequence[int]


# Forward


@api_boundary
def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """The value of a function and its derivative in a direction.

    Args:
      fun: a function of pytrees of arrays, with positional arguments.
      primals: tuple of arguments, the point.
      tangents: tuple of the same structure, shapes and dtypes; float0 for integer arguments.

    Returns:
      `(result, tangent)`, or `(result, tangent, aux)`.

    Raises:
      TypeError: primals and tangents differ in structure or dtype.
      ValueError: they differ in shape.

        >>> y, dy = amdjax.jvp(lambda x: x * x, (3.0,), (1.0,))
        >>> print(y, dy)
        9.0 6.0
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            "primal and tangent arguments to jax.jvp must be tuples or lists; found "
            f"{type(primals).__name__} and {type(tangents).__name__}. They have an entry for each "
            f"argument of {fun_name(fun)}."
        )
    in_tree = tree_structure(primals)
    given, tree = tree_flatten(tangents)
    if tree != in_tree:
        raise TypeError(
            "primal and tangent arguments to jax.jvp must have the same tree structure: primals "
            f"have {in_tree}, tangents {tree}."
        )
    leaves, flat = flatten_fun(fun, primals, {}, has_aux=has_aux)
    _check_values("jvp", leaves)
    given = [_check_tangent(*pair) for pair in zip(leaves, given)]
    outs, out_tangents = jvp_flat(transformed("jvp", flat), leaves, given)
    out_tangents = [as_result(t) for t in out_tangents]
    result = flat.unflatten(outs), flat.unflatten(out_tangents)
    return (*result, flat.aux) if has_aux else result


def _check_values(what: str, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not is_array_like(leaf):
            raise TypeError(
                f"{what}: argument {leaf!r} of type {type(leaf)} is not a valid JAX type."
            )


def _check_tangent(primal: Any, tangent: Any) -> Any:
    aval: Any = get_aval(primal)
    wanted, got = aval.to_tangent(), get_aval(tangent)
    if got.dtype != wanted.dtype:
        raise TypeError(
            "primal and tangent arguments to jax.jvp do not match. The tangent of a value of dtype "
            f"{aval.dtype} must have dtype {_dtype_name(wanted.dtype)}, but got "
            f"{_dtype_name(got.dtype)}."
        )
    if got.shape != wanted.shape:
        raise ValueError(
            f"jvp called with different primal and tangent shapes: {wanted.shape} and {got.shape}."
        )
    return Zero(wanted) if wanted.dtype == float0 else tangent


def _dtype_name(dtype: Any) -> str:
    return "float0" if dtype == float0 else str(dtype)


@api_boundary
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of a function at a point and its derivative there as a linear function.

    Args:
      *primals: the point.

    Returns:
      `(result, f_jvp)` or `(result, f_jvp, aux)`, where `f_jvp(*tangents)` may be called many
      times and does not compute `fun` again.

        >>> y, f_jvp = amdjax.linearize(lambda x: x * x, 3.0)
        >>> print(y, f_jvp(1.0), f_jvp(2.0))
        9.0 6.0 12.0
    """
    leaves, flat = flatten_fun(fun, primals, {}, has_aux=has_aux)
    _check_values("linearize", leaves)
    nonzeros = [has_tangent(x) for x in leaves]
    outs, nonzeros_out, linear = linearize_flat(transformed("jvp", flat), leaves, nonzeros)
    known = _Pushforward(
        tree_structure(primals), flat.out_tree, nonzeros, nonzeros_out,
        [get_aval(x) for x in leaves], [get_aval(x) for x in outs],
    )  # fmt: skip
    f_jvp = Partial(functools.partial(_push, linear.jaxpr, known), list(linear.consts))
    result = flat.unflatten(outs), f_jvp
    return (*result, flat.aux) if has_aux else result


class _Pushforward(NamedTuple):
    """What the function that `linearize` returns takes and gives."""

    in_tree: PyTreeDef
    out_tree: PyTreeDef
    nonzeros: list[bool]
    nonzeros_out: list[bool]
    in_avals: list[Any]
    out_avals: list[Any]


@api_boundary
def _push(linear: Jaxpr, known: _Pushforward, residuals: list[Any], *tangents: Any) -> Any:
    leaves, tree = tree_flatten(tangents)
    if tree != known.in_tree:
        raise TypeError(
            f"the linearized function takes tangents of the structure {known.in_tree}, got {tree}."
        )
    for t, aval in zip(leaves, known.in_avals):
        _check_linear_input(get_aval(t), aval.to_tangent())
    given = [t for t, nz in zip(leaves, known.nonzeros) if nz]
    found = iter(eval_jaxpr(linear, residuals, *given))
    outs = [
        as_result(next(found) if nz else Zero(a.to_tangent()))
        for nz, a in zip(known.nonzeros_out, known.out_avals)
    ]
    return tree_unflatten(known.out_tree, outs)


def _check_linear_input(got: Any, wanted: Any) -> None:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        raise ValueError(
            "linearized function called on tangent values inconsistent with the original primal "
            f"values: got {got.str_short()} where {wanted.str_short()} is expected."
        )


# Reverse


@api_boundary
def vjp(
    fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: Any = ()
) -> Any:
    """The value of a function and the pull-back of cotangents.

    Args:
      *primals: the point.

    Returns:
      `(result, f_vjp)` or `(result, f_vjp, aux)`; `f_vjp(cotangent)` takes a pytree like the
      result and returns a tuple with a cotangent for each argument.

        >>> y, f_vjp = amdjax.vjp(lambda x, y: x * y, 2.0, 3.0)
        >>> print(y, *f_vjp(1.0))
        6.0 3.0 2.0
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to vjp is deprecated")
    leaves, flat = flatten_fun(fun, primals, {}, has_aux=has_aux)
    _check_values("vjp", leaves)
    if any(map(is_ref, leaves)):
        refuse_aliases("vjp", argument_names(fun, primals), leaves)
    out, f_vjp = pull_back(flat, leaves, tree_structure(primals))
    return (out, f_vjp, flat.aux) if has_aux else (out, f_vjp)


def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Any = ()) -> Any:
    """The transpose of a function that is linear in its arguments.

    Args:
      fun: a linear function of pytrees of arrays.
      *primals: examples of its arguments; only shapes and dtypes matter, `ShapeDtypeStruct` will
        do.

    Returns:
      A function from cotangents of the result to a tuple of cotangents of the arguments, a pytree.

    Raises:
      TypeError: of arguments and results some are integers and others not, or some are neither
        integers nor inexact; or the cotangent has another type than the result.

        >>> f_t = amdjax.linear_transpose(lambda x: 3.0 * x, 1.0)
        >>> print(*f_t(2.0))
        6.0
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to transpose is deprecated")
    leaves, flat = flatten_fun(fun, primals, {})
    avals = [shaped(x) for x in leaves]
    closed = trace_to_jaxpr(flat, avals)
    dtypes_in, dtypes_out = ([a.dtype for a in side] for side in (avals, closed.out_avals))
    found = dtypes_in + dtypes_out
    if not any(all(dtypes.issubdtype(d, kind) for d in found) for kind in (np.inexact, np.integer)):
        raise TypeError(
            "linear_transpose only supports [float or complex] -> [float or complex], and "
            f"integer -> integer functions, but got {dtypes_in} -> {dtypes_out}."
        )
    jaxpr, in_tree, out_tree = closed.jaxpr, tree_structure(primals), flat.out_tree
    out_avals = closed.out_avals

    @api_boundary
    def transposed(consts: Any, cotangent: Any) -> Any:
        cts, tree = tree_flatten(cotangent)
        if tree != out_tree:
            raise TypeError(
                f"cotangent tree does not match function output, expected {out_tree} but got {tree}"
            )
        for ct, a in zip(cts, out_avals):
            got: Any = get_aval(ct)
            if (got.shape, got.dtype) != (a.shape, a.dtype):
                raise TypeError(
                    "cotangent type does not match function output, expected "
                    f"{a.str_short()} but got {got.str_short()}"
                )
        args = [UndefinedPrimal(a) for a in avals]
        backward = transformed("transpose", backward_pass)
        found = backward(jaxpr, consts, args, cts)
        return tree_unflatten(in_tree, [as_result(ct) for ct in found])

    return Partial(transposed, closed.consts)


# Gradients


def grad(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
    allow_int: bool = False, reduce_axes: Sequence[Any] = (),
) -> Callable[..., Any]:  # fmt: skip
    """A function that computes the gradient of a scalar-valued function.

    Args:
      fun: returns a scalar; arguments are pytrees of arrays.
      has_aux: whether `fun` returns a pair `(result, aux)`.

    Returns:
      A function with the arguments of `fun` that returns the gradient, with the structure of the
      argument (a tuple of gradients if `argnums` is one), or `(gradient, aux)`.

    Raises:
      TypeError: an argument or the result has a dtype that cannot be differentiated, or the result
        is no scalar.

        >>> print(amdjax.grad(lambda x: x**3)(2.0))
        12.0
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @functools.wraps(fun)
    @api_boundary
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, g = both.__wrapped_boundary__(*args, **kwargs)  # type: ignore[attr-defined]
        return (g, value[1]) if has_aux else g

    return gradient


def value_and_grad(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
    allow_int: bool = False, reduce_axes: Sequence[Any] = (),
) -> Callable[..., Any]:  # fmt: skip
    """A function that computes a scalar-valued function and its gradient.

    Args:
      fun: returns a scalar; arguments are pytrees of arrays.
      has_aux: whether `fun` returns a pair `(result, aux)`.

    Returns:
      A function with the arguments of `fun` that returns `(result, gradient)`, or
      `((result, aux), gradient)`.

    Raises:
      TypeError: as for `grad`.

        >>> print(*amdjax.value_and_grad(lambda x: x**3)(2.0))
        8.0 12.0
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to grad is deprecated")
    check_callable(fun)
    check_argnums(argnums)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = differentiated(fun, argnums, args, kwargs)
        check = functools.partial(check_grad_input, "grad", holomorphic, allow_int)
        leaves, flat = flatten_fun(partial, chosen, {}, has_aux=has_aux)
        flat.what = fun_name(fun)
        for x in leaves:
            check(x)
        value, f_vjp = pull_back(flat, leaves, tree_structure(tuple(chosen)))
        _check_scalar(value)
        check_grad_output("grad", holomorphic, value)
        g = as_asked(argnums, f_vjp(as_result(ones_like_aval(get_aval(value)))))
        return ((value, flat.aux), g) if has_aux else (value, g)

    public = functools.wraps(fun)(api_boundary(value_and_gradient))
    public.__wrapped_boundary__ = value_and_gradient  # type: ignore[attr-defined]
    return public


def check_callable(fun: Any) -> None:
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")


def check_argnums(argnums: Any) -> None:
    numbers = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in numbers):
        raise TypeError(f"argnums must be an int or a tuple of ints, got {argnums!r}.")


def differentiated(
    fun: Callable[..., Any], argnums: Argnums, args: Any, kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function of the differentiated arguments alone, and those arguments."""
    numbers = positions_of(argnums)
    count = len(args)
    for n in numbers:
        if not -count <= n < count:
            raise TypeError(
                f"differentiating with respect to argnums={argnums} requires at least "
                f"{n + 1 if n >= 0 else -n} positional arguments to be passed by the "
                f"caller, but got only {count} positional arguments. The function is "
                f"{fun_name(fun)}."
            )
    positions = [n % count for n in numbers]
    chosen, others = split_args(args, positions)

    def partial(*values: Any) -> Any:
        return fun(*join_args(positions, values, others), **kwargs)

    partial.__name__ = fun_name(fun)
    return partial, tuple(chosen)


def as_asked(argnums: Argnums, values: Sequence[Any]) -> Any:
    """Of values of the differentiated arguments all, or the only one where `argnums` is an int."""
    return tuple(values) if isinstance(argnums, (tuple, list)) else values[0]


def check_grad_input(name: str, holomorphic: bool, allow_int: bool, x: Any) -> None:
    if not is_array_like(x):
        raise TypeError(f"{name}: argument {x!r} of type {type(x)} is not a valid JAX type.")
    dtype = get_aval(x).dtype
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                f"{name} with holomorphic=True requires inputs with complex dtype, but got {dtype}."
            )
    elif not dtypes.issubdtype(dtype, np.inexact) and not allow_int:
        raise TypeError(
            f"{name} requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
            f"np.inexact), but got {dtype}. For integers, use vjp directly or allow_int=True. Of a "
            "network that holds them, differentiate in its parameters: nn.partition(network)[0]."
        )


def _check_scalar(value: Any) -> None:
    leaves = tree_flatten(value)[0]
    advice = "Gradient only defined for scalar-output functions. "
    if len(leaves) != 1 or leaves[0] is not value:
        raise TypeError(f"{advice}Output was a {type(value).__name__} with {len(leaves)} leaves.")
    shape = get_aval(value).shape
    if shape != ():
        raise TypeError(f"{advice}Output had shape: {shape}.")


def check_grad_output(name: str, holomorphic: bool, value: Any) -> None:
    dtype = get_aval(value).dtype
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                f"{name} with holomorphic=True requires outputs with complex dtype, "
                f"but got {dtype}."
            )
    elif dtypes.issubdtype(dtype, np.complexfloating):
        raise TypeError(
            f"{name} requires real-valued outputs (output dtype that is a sub-dtype of "
            f"np.floating), but got {dtype}. For holomorphic differentiation, pass "
            "holomorphic=True; for the others, use vjp."
        )
    elif not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(
            f"{name} requires real-valued outputs (output dtype that is a sub-dtype of "
            f"np.floating), but got {dtype}. For integer outputs, use vjp."
        )
