"""Derivatives with respect to the data of sparse arrays; their places are constants."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from amdjax import transforms
from amdjax.core.pytree import tree_flatten, tree_map, tree_unflatten
from amdjax.experimental.sparse.base import JAXSparse, over_batch

_is_sparse = lambda x: isinstance(x, JAXSparse)


def _data(tree: Any) -> Any:
    """The tree with the data in place of sparse arrays."""
    return tree_map(lambda x: x.data if _is_sparse(x) else x, tree, is_leaf=_is_sparse)


def _filled(tree: Any, data: Any) -> Any:
    """The tree with such data in its sparse arrays."""

    def fill(x: Any, new: Any) -> Any:
        if not _is_sparse(x):
            return new
        leaves, structure = tree_flatten(x)
        return tree_unflatten(structure, [new, *leaves[1:]])  # the data come first

    return tree_map(fill, tree, data, is_leaf=_is_sparse)


def _batches(tree: Any, data: Any) -> Any:
    """The tree, where data have more leading axes than its sparse arrays as batches of these."""

    def fill(x: Any, new: Any) -> Any:
        more = new.ndim - x.data.ndim if _is_sparse(x) else 0
        return over_batch(lambda part: _filled(x, part), more)(new)

    return tree_map(fill, tree, data, is_leaf=_is_sparse)


def _of_data(
    transform: Callable[..., Any], fun: Callable[..., Any], argnums: Any, options: Any,
    restore: Callable[[Any, Any], Any],
) -> Callable[..., Any]:  # fmt: skip
    """A derivative of `fun` in its arguments' data, put back among their places."""
    numbers = argnums if isinstance(argnums, Sequence) else (argnums,)

    @functools.wraps(fun)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        chosen = [args[i] for i in numbers]

        def on_data(*data: Any) -> Any:
            full = list(args)
            for i, original, new in zip(numbers, chosen, data, strict=True):
                full[i] = _filled(original, new)
            return fun(*full, **kwargs)

        wanted = tuple(range(len(numbers))) if isinstance(argnums, Sequence) else 0
        found = transform(on_data, argnums=wanted, **options)(*map(_data, chosen))
        shape: Any = tuple(chosen) if isinstance(argnums, Sequence) else chosen[0]
        return restore(shape, found)

    return derivative


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `amdjax.grad`; the gradient in a sparse array is one with the same places.

    >>> sparse.grad(lambda m: (m @ jnp.ones(2)).sum())(sparse.eye(2)).data
    Array([1., 1.], dtype=float32)
    """
    options = {"has_aux": has_aux, **kwargs}
    restore = lambda tree, g: (_filled(tree, g[0]), g[1]) if has_aux else _filled(tree, g)
    return _of_data(transforms.grad, fun, argnums, options, restore)


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `amdjax.value_and_grad`; see `grad`.

    >>> value, gradient = sparse.value_and_grad(lambda m: (m @ jnp.ones(2)).sum())(sparse.eye(2))
    >>> value, gradient.data
    (Array(2., dtype=float32), Array([1., 1.], dtype=float32))
    """
    options = {"has_aux": has_aux, **kwargs}
    restore = lambda tree, found: (found[0], _filled(tree, found[1]))
    return _of_data(transforms.value_and_grad, fun, argnums, options, restore)


def _jacobian(transform: Callable[..., Any]) -> Callable[..., Any]:
    def jacobian(
        fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
        **kwargs: Any,
    ) -> Callable[..., Any]:  # fmt: skip
        """As `amdjax.jacfwd` of a function whose result is dense; see `grad`.

        Each element of the result has its own derivative, so that one in a sparse array is a batch.

        Example:
          >>> sparse.jacfwd(lambda m: m @ jnp.ones(2))(sparse.eye(2))
          BCOO(float32[2, 2, 2], nse=2, n_batch=1)
        """
        options = {"has_aux": has_aux, **kwargs}
        restore = lambda tree, j: (_batches(tree, j[0]), j[1]) if has_aux else _batches(tree, j)
        return _of_data(transform, fun, argnums, options, restore)

    return jacobian


jacfwd = _jacobian(transforms.jacfwd)
jacrev = _jacobian(transforms.jacrev)
jacobian = jacrev
