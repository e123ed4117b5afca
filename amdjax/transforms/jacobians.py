"""Jacobians and Hessians: derivatives along every direction at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.dtypes import float0
from amdjax.core.pytree import (
    tree_flatten,
    tree_map,
    tree_structure,
    tree_transpose,
    tree_unflatten,
)
from amdjax.core.trace import float0_zeros
from amdjax.transforms import ops
from amdjax.transforms.differentiate import (
    Argnums,
    as_asked,
    check_argnums,
    check_callable,
    check_grad_input,
    check_grad_output,
    differentiated,
    jvp,
    vjp,
)
from amdjax.transforms.vmap import vmap


def jacfwd(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """A function that computes the Jacobian column by column, by forward mode.

    Returns:
      A function that returns, in the structure of the result of `fun`, the derivative by each
      leaf of the argument: an array of shape `(*result.shape, *argument.shape)`.

        >>> print(amdjax.jacfwd(lambda x: x * x)(np.array([1.0, 2.0])))
        [[2. 0.]
         [0. 4.]]
    """
    check_callable(fun)
    check_argnums(argnums)

    @functools.wraps(fun)
    @api_boundary
    def jacobian_fun(*args: Any, **kwargs: Any) -> Any:
        partial, point = differentiated(fun, argnums, args, kwargs)
        for x in tree_flatten(point)[0]:
            _check_jacfwd_input(holomorphic, x)
        push = functools.partial(jvp, partial, point, has_aux=has_aux)
        if has_aux:
            y, columns, aux = vmap(lambda t: push(t), out_axes=(None, -1, None))(_basis(point))
        else:
            y, columns = vmap(lambda t: push(t), out_axes=(None, -1))(_basis(point))
        for leaf in tree_flatten(y)[0]:
            _check_jacfwd_output(holomorphic, leaf)
        jac = tree_map(functools.partial(_unravel, as_asked(argnums, point), -1), columns, y)
        return (jac, aux) if has_aux else jac

    return jacobian_fun


def jacrev(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that computes the Jacobian row by row, by reverse mode.

    Args:
      allow_int: whether integer arguments are allowed.

    Returns:
      A function that returns what `jacfwd` does.

        >>> print(amdjax.jacrev(lambda x: x * x)(np.array([1.0, 2.0])))
        [[2. 0.]
         [0. 4.]]
    """
    check_callable(fun)
    check_argnums(argnums)

    @functools.wraps(fun)
    @api_boundary
    def jacobian_fun(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = differentiated(fun, argnums, args, kwargs)
        for x in tree_flatten(chosen)[0]:
            check_grad_input("jacrev", holomorphic, allow_int, x)
        aux = None
        if has_aux:
            y, pull, aux = vjp(partial, *chosen, has_aux=True)
        else:
            y, pull = vjp(partial, *chosen)
        for leaf in tree_flatten(y)[0]:
            _check_jacrev_output(holomorphic, leaf)
        rows, example = as_asked(argnums, vmap(pull)(_basis(y))), as_asked(argnums, chosen)
        rows = tree_map(_without_float0, rows, example)
        by_input = tree_map(functools.partial(_unravel, y, 0), rows, example)
        jac = tree_transpose(tree_structure(example), tree_structure(y), by_input)
        return (jac, aux) if has_aux else jac

    return jacobian_fun


jacobian = jacrev


def hessian(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """A function that computes the matrix of second derivatives, forward over reverse.

    Returns:
      A function that returns, for a scalar function of an array, an array of shape
      `(*argument.shape, *argument.shape)`; for pytrees a pytree of pytrees of such blocks.

        >>> print(amdjax.hessian(lambda x: x[0] * x[1])(np.array([1.0, 2.0])))
        [[0. 1.]
         [1. 0.]]
    """
    inner = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(inner, argnums, has_aux=has_aux, holomorphic=holomorphic)


def _check_jacfwd_input(holomorphic: bool, x: Any) -> None:
    dtype = get_aval(x).dtype
    kind = np.complexfloating if holomorphic else np.floating
    if not dtypes.issubdtype(dtype, kind):
        if holomorphic:
            raise TypeError(
                f"jacfwd with holomorphic=True requires inputs with complex dtype, but got {dtype}."
            )
        raise TypeError(
            "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), "
            f"but got {dtype}. For complex inputs, use holomorphic=True or jvp."
        )


def _check_jacfwd_output(holomorphic: bool, x: Any) -> None:
    dtype = get_aval(x).dtype
    if holomorphic and not dtypes.issubdtype(dtype, np.complexfloating):
        raise TypeError(
            f"jacfwd with holomorphic=True requires outputs with complex dtype, but got {dtype}."
        )


def _check_jacrev_output(holomorphic: bool, x: Any) -> None:
    check_grad_output("jacrev", holomorphic, x)


def _sizes(tree: Any) -> list[int]:
    return [get_aval(x).size for x in tree_flatten(tree)[0]]


def _basis(tree: Any) -> Any:
    """The standard basis of the space of a pytree, stacked along a new first axis."""
    leaves, treedef = tree_flatten(tree)
    total, offset, parts = sum(_sizes(tree)), 0, []
    for x in leaves:
        aval: Any = get_aval(x)
        tangent = aval.to_tangent()
        shape = (total, *aval.shape)
        if tangent.dtype == float0:
            parts.append(float0_zeros(shape))
        else:
            rows = ops.eye(total, aval.size, -offset, tangent.dtype)
            parts.append(ops.reshape(rows, shape))
        offset += aval.size
    return tree_unflatten(treedef, parts)


def _unravel(example: Any, axis: int, x: Any, like: Any) -> Any:
    """One axis of `x`, which runs over the elements of a pytree, as that pytree of blocks.

    The blocks have the dtype of `like`, and are as weakly typed.
    """
    leaves, treedef = tree_flatten(example)
    x_shape = get_aval(x).shape
    axis %= len(x_shape)
    blocks, offset = [], 0
    for leaf in leaves:
        aval: Any = get_aval(leaf)
        block = x
        if aval.size != x_shape[axis]:
            block = ops.slice_in_dim(x, offset, offset + aval.size, axis)
        new_shape = (*x_shape[:axis], *aval.shape, *x_shape[axis + 1 :])
        if get_aval(block).shape != new_shape:
            block = _reshape(block, new_shape)
        blocks.append(_typed_like(block, get_aval(like)))
        offset += aval.size
    return tree_unflatten(treedef, blocks)


def _without_float0(x: Any, like: Any) -> Any:
    """`x`, or zeros of the dtype of `like` where `like` cannot be differentiated."""
    aval = get_aval(x)
    return np.zeros(aval.shape, get_aval(like).dtype) if aval.dtype == float0 else x


def _typed_like(x: Any, aval: Any) -> Any:
    """`x` with the dtype and weakness of tangents of a type, unless it is float0 or complex."""
    wanted, got = aval.to_tangent(), get_aval(x)
    comparable = float0 not in (wanted.dtype, got.dtype) and wanted.dtype.kind == got.dtype.kind
    return ops.convert(x, wanted.dtype, wanted.weak_type) if comparable else x


def _reshape(x: Any, shape: tuple[int, ...]) -> Any:
    if get_aval(x).dtype == float0:
        return float0_zeros(shape)
    return ops.reshape(x, shape)
