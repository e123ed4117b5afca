"""Iterative solvers of linear equations: `scipy.sparse.linalg`.

Unknowns are pytrees, operators matrices or functions. Solutions are differentiated by the equation
that they solve, with one more solve, whatever the solver did.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Family, Phrases, complete as _complete
from amdjax.core.pytree import tree_leaves, tree_map, tree_structure
from amdjax.numpy._util import convert, is_kind

__all__ = ["bicgstab", "cg", "gmres"]

Operator = Callable[[Any], Any]


def _identity(x: Any) -> Any:
    return x


def _as_operator(f: Any) -> Operator:
    """A linear function, given as such or as a square matrix."""
    if callable(f):
        return f
    if isinstance(f, (np.ndarray, Array)) or hasattr(f, "__matmul__"):
        shape = getattr(f, "shape", None)
        if shape is not None and (len(shape) != 2 or shape[0] != shape[1]):
            raise ValueError(f"linear operator must be a square matrix, but has shape: {shape}")
        return functools.partial(
            operator.matmul, jnp.asarray(f) if isinstance(f, np.ndarray) else f
        )
    raise TypeError(f"linear operator must be either a function or ndarray: {f}")


def _sum(tree: Any) -> Any:
    return functools.reduce(operator.add, tree_leaves(tree))


def _dot(x: Any, y: Any) -> Any:
    """The inner product, conjugate in its first argument."""
    return _sum(tree_map(jnp.vdot, x, y))


def _real_dot(x: Any, y: Any) -> Any:
    """The real part of the inner product."""

    def one(x: Any, y: Any) -> Any:
        total = jnp.vdot(jnp.real(x), jnp.real(y))
        if is_kind(x.dtype, np.complexfloating) or is_kind(y.dtype, np.complexfloating):
            total = total + jnp.vdot(jnp.imag(x), jnp.imag(y))
        return total

    return _sum(tree_map(one, x, y))


def _norm(x: Any) -> Any:
    return jnp.sqrt(_real_dot(x, x))


def _axpy(a: Any, x: Any, y: Any) -> Any:
    """`a · x + y`."""
    return tree_map(lambda x, y: a * x + y, x, y)


def _sub(x: Any, y: Any) -> Any:
    return tree_map(operator.sub, x, y)


def _choose(condition: Any, x: Any, y: Any) -> Any:
    return tree_map(lambda a, b: jnp.where(condition, a, b), x, y)


def _cg(A: Operator, b: Any, *, x0: Any, tol: Any, atol: Any, maxiter: Any, M: Operator) -> Any:
    limit = jnp.maximum(jnp.square(tol) * _real_dot(b, b), jnp.square(atol))

    def unfinished(state: Any) -> Any:
        _, r, gamma, _, k = state
        size = jnp.real(gamma) if M is _identity else _real_dot(r, r)
        return (size > limit) & (k < maxiter)

    def step(state: Any) -> Any:
        x, r, gamma, p, k = state
        product = A(p)
        alpha = gamma / _real_dot(p, product).astype(gamma.dtype)
        x, r = _axpy(alpha, p, x), _axpy(-alpha, product, r)
        z = M(r)
        new = _real_dot(r, z).astype(gamma.dtype)
        return x, r, new, _axpy(new / gamma, p, z), k + 1

    r = _sub(b, A(x0))
    z = M(r)
    dtype = jnp.result_type(*tree_leaves(z))
    state = (x0, r, _real_dot(r, z).astype(dtype), z, 0)
    return lax.while_loop(unfinished, step, state)[0]


def _bicgstab(
    A: Operator, b: Any, *, x0: Any, tol: Any, atol: Any, maxiter: Any, M: Operator
) -> Any:
    limit = jnp.maximum(jnp.square(tol) * _real_dot(b, b), jnp.square(atol))

    def unfinished(state: Any) -> Any:
        _, r, *_, k = state
        return (_real_dot(r, r) > limit) & (k < maxiter) & (k >= 0)

    def step(state: Any) -> Any:
        x, r, shadow, alpha, omega, rho, p, q, k = state
        new_rho = _dot(shadow, r)
        beta = new_rho / rho * alpha / omega
        p = _axpy(beta, _axpy(-omega, q, p), r)
        p_hat = M(p)
        q = A(p_hat)
        alpha = new_rho / _dot(shadow, q)
        s = _axpy(-alpha, q, r)
        s_hat = M(s)
        t = A(s_hat)
        omega = _dot(t, s) / _dot(t, t)
        half = _axpy(alpha, p_hat, x)
        early = _real_dot(s, s) < limit
        x = _choose(early, half, _axpy(omega, s_hat, half))
        r = _choose(early, s, _axpy(-omega, t, s))
        # A negative count ends the iteration: it has broken down.
        k = jnp.where((omega == 0) | (alpha == 0), -11, k + 1)
        k = jnp.where(new_rho == 0, -10, k)
        return x, r, shadow, alpha, omega, new_rho, p, q, k

    r = _sub(b, A(x0))
    one = jnp.ones((), jnp.result_type(*tree_leaves(b)))
    state = (x0, r, r, one, one, one, r, r, jnp.asarray(0, np.int32))
    return lax.while_loop(unfinished, step, state)[0]


def _check_guess(b: Any, x0: Any) -> None:
    if tree_structure(x0) != tree_structure(b):
        raise ValueError(
            "x0 and b must have matching tree structure:"
            f" {tree_structure(x0)} vs {tree_structure(b)}"
        )
    shapes = [[np.shape(leaf) for leaf in tree_leaves(tree)] for tree in (x0, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"arrays in x0 and b must have matching shapes: {shapes[0]} vs {shapes[1]}"
        )


def _typed_like(solve: Callable[..., Any]) -> Callable[[Operator, Any], Any]:
    """A solver whose solution has the types of the right-hand side, weak ones too."""

    def typed(A: Operator, b: Any) -> Any:
        return tree_map(lambda x, y: convert(x, x.dtype, y.weak_type), solve(A, b), b)

    return typed


def _prepare(
    A: Any, b: Any, x0: Any, maxiter: Any, M: Any
) -> tuple[Operator, Any, Any, int, Operator, int]:
    b = tree_map(jnp.asarray, b)
    x0 = tree_map(jnp.zeros_like if x0 is None else jnp.asarray, b if x0 is None else x0)
    _check_guess(b, x0)
    size = sum(leaf.size for leaf in tree_leaves(b))
    preconditioner = _identity if M is None else _as_operator(M)
    return _as_operator(A), b, x0, 10 * size if maxiter is None else maxiter, preconditioner, size


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:  # fmt: skip
    """The solution of `A · x = b` by conjugate gradients, for a Hermitian positive definite `A`.

    >>> x, _ = amdjax.scipy.sparse.linalg.cg(jnp.diag(jnp.array([2.0, 4.0])), jnp.ones(2))
    >>> x
    Array([0.5 , 0.25], dtype=float32)
    """
    A, b, x0, maxiter, M, _ = _prepare(A, b, x0, maxiter, M)
    solve = _typed_like(functools.partial(_cg, x0=x0, tol=tol, atol=atol, maxiter=maxiter, M=M))
    symmetric = not any(is_kind(leaf.dtype, np.complexfloating) for leaf in tree_leaves(b))
    x = lax.custom_linear_solve(A, b, solve=solve, transpose_solve=solve, symmetric=symmetric)
    return x, None


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:  # fmt: skip
    """The solution of `A · x = b` by stabilized biconjugate gradients, for any `A`.

    Source: van der Vorst, "Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG", 1992.

    >>> x, _ = amdjax.scipy.sparse.linalg.bicgstab(jnp.diag(jnp.array([2.0, 4.0])), jnp.ones(2))
    >>> jnp.round(x, 3)
    Array([0.5 , 0.25], dtype=float32)
    """
    A, b, x0, maxiter, M, _ = _prepare(A, b, x0, maxiter, M)
    solve = _typed_like(
        functools.partial(_bicgstab, x0=x0, tol=tol, atol=atol, maxiter=maxiter, M=M)
    )
    return lax.custom_linear_solve(A, b, solve=solve, transpose_solve=solve), None


def _unit(x: Any, least: Any) -> tuple[Any, Any]:
    """`x` with norm one and its norm; zeros and zero where that is at most `least`."""
    size = _norm(x)
    enough = size > least
    scale = jnp.where(enough, 1 / jnp.where(enough, size, 1), 0)
    return tree_map(lambda leaf: leaf * scale.astype(leaf.dtype), x), jnp.where(enough, size, 0)


def _orthogonalized(basis: Any, v: Any) -> tuple[Any, Array]:
    """`v` without its parts along a basis, and the coefficients of these.

    Classical Gram-Schmidt, twice: that is enough (Giraud and others, 2005).
    """
    coefficients: Any = 0
    for _ in range(2):
        parts = tree_map(lambda q, x: jnp.tensordot(jnp.conj(q), x, axes=x.ndim), basis, v)
        h = _sum(parts)
        v = tree_map(lambda q, x: x - jnp.tensordot(h, q, axes=1), basis, v)
        coefficients = coefficients + h
    return v, coefficients


def _rotation(a: Array, b: Array) -> tuple[Array, Array]:
    """The cosine and sine that turn `(a, b)` into `(r, 0)`."""
    length = jnp.sqrt(jnp.abs(a) ** 2 + jnp.abs(b) ** 2)
    safe = jnp.where(length == 0, 1, length).astype(a.dtype)
    none = length == 0
    return jnp.where(none, 1, a / safe), jnp.where(none, 0, b / safe)


def _turn(column: Array, i: Any, rotation: tuple[Array, Array]) -> Array:
    cosine, sine = rotation
    x, y = column[i], column[i + 1]
    column = column.at[i].set(jnp.conj(cosine) * x + jnp.conj(sine) * y)
    return column.at[i + 1].set(cosine * y - sine * x)


def _gmres_cycle(
    A: Operator, b: Any, x0: Any, unit: Any, size: Array, goal: Array, restart: int, M: Operator
) -> Any:
    """One cycle: an orthonormal basis of the Krylov space, and the least residual in it."""
    dtype = jnp.result_type(*tree_leaves(b))
    eps = float(dtypes.finfo(dtype).eps)
    basis = tree_map(lambda x: jnp.pad(x[None], ((0, restart),) + ((0, 0),) * x.ndim), unit)
    # Columns that are not reached stay those of the identity: their coefficients are zero.
    triangle = jnp.eye(restart, restart + 1, dtype=dtype)
    turns = jnp.zeros((restart, 2), dtype)
    rhs = jnp.zeros(restart + 1, dtype).at[0].set(size.astype(dtype))

    def unfinished(state: Any) -> Any:
        k, error, *_ = state
        return (k < restart) & (error > goal)

    def step(state: Any) -> Any:
        k, _, basis, triangle, turns, rhs = state
        v = M(A(tree_map(lambda q: q[k], basis)))
        before = _norm(v)
        v, column = _orthogonalized(basis, v)
        v, rest = _unit(v, eps * before)
        basis = tree_map(lambda q, x: q.at[k + 1].set(x), basis, v)
        column = column.at[k + 1].set(rest.astype(dtype))
        column = lax.fori_loop(0, k, lambda i, c: _turn(c, i, (turns[i, 0], turns[i, 1])), column)
        rotation = _rotation(column[k], column[k + 1])
        turns = turns.at[k].set(jnp.stack(rotation))
        triangle = triangle.at[k].set(_turn(column, k, rotation))
        rhs = _turn(rhs, k, rotation)
        # Where the space is exhausted the solution lies in it.
        error = jnp.where(rest == 0, 0, jnp.abs(rhs[k + 1]))
        return k + 1, error, basis, triangle, turns, rhs

    state = (jnp.asarray(0, np.int32), size, basis, triangle, turns, rhs)
    _, _, basis, triangle, _, rhs = lax.while_loop(unfinished, step, state)
    upper = triangle[:, :-1].T
    diagonal = jnp.diagonal(upper)
    singular = diagonal == 0
    upper = upper + jnp.diag(jnp.where(singular, 1, 0).astype(dtype))
    y = jnp.where(singular, 0, rhs[:-1])
    y = lax.linalg.triangular_solve(upper, y[:, None], left_side=True)[:, 0]
    x = tree_map(lambda x, q: x + jnp.tensordot(y, q[:-1], axes=1), x0, basis)
    return x, *_unit(M(_sub(b, A(x))), float(dtypes.finfo(size.dtype).eps))


def gmres(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, restart: int = 20,
    maxiter: int | None = None, M: Any = None, solve_method: str = "batched",
) -> tuple[Any, Array]:  # fmt: skip
    """The solution of `A · x = b` by generalized minimal residuals, for any `A`.

    Args:
      restart: vectors in the basis, after which it is begun anew.
      maxiter: how often at most; ten times for each unknown by default.
      solve_method: "incremental" ends a cycle when the residual is small enough, "batched" goes
        through whole cycles.

    Returns:
      The solution; and 0, or -1 where it is not finite.

    Raises:
      ValueError: `A` is not square, `x0` does not fit `b` or `solve_method` is unknown.
      TypeError: `A` is neither a matrix nor a function.

    Source: Saad and Schultz, "GMRES", 1986.

        >>> x, _ = amdjax.scipy.sparse.linalg.gmres(jnp.diag(jnp.array([2.0, 4.0])), jnp.ones(2))
        >>> jnp.round(x, 3)
        Array([0.5 , 0.25], dtype=float32)
    """
    A, b, x0, maxiter, M, size = _prepare(A, b, x0, maxiter, M)
    if solve_method not in ("incremental", "batched"):
        raise ValueError(
            f"invalid solve_method {solve_method}, must be either 'incremental' or 'batched'"
        )
    restart = min(restart, size)
    b_norm = _norm(b)
    limit = jnp.maximum(tol * b_norm, atol)
    goal = _norm(M(b)) * jnp.minimum(1.0, limit / b_norm)
    cycle_goal = goal if solve_method == "incremental" else jnp.zeros_like(goal)

    @_typed_like
    def solve(A: Operator, b: Any) -> Any:
        def cycle(state: Any) -> Any:
            x, k, unit, norm = state
            x, unit, norm = _gmres_cycle(A, b, x, unit, norm, cycle_goal, restart, M)
            return x, k + 1, unit, norm

        unit, norm = _unit(M(_sub(b, A(x0))), float(dtypes.finfo(b_norm.dtype).eps))
        state = (x0, jnp.asarray(0, np.int32), unit, norm)
        more = lambda state: (state[1] < maxiter) & (state[3] > limit)
        return lax.while_loop(more, cycle, state)[0]

    x = lax.custom_linear_solve(A, b, solve=solve, transpose_solve=solve)
    return x, jnp.where(jnp.isnan(_norm(x)), -1, 0)


_PHRASES = Phrases(
    {
        "A": "a square matrix, or a linear function of trees like `b`.",
        "b": "the right-hand side, an array or a pytree of arrays.",
        "x0": "where to begin; zeros by default.",
        "tol": "the residual's norm is to be at most this share of that of `b`,",
        "atol": "or at most this.",
        "maxiter": "steps at most; ten for each unknown by default.",
        "M": "the inverse of something close to `A`, given like `A`.",
    }
)
_FAMILY = Family(
    "cg bicgstab",
    "The solution, and None.",
    "ValueError: `A` is not square, or `x0` does not fit `b`.",
    "TypeError: `A` is neither a matrix nor a function.",
)
_complete(globals(), [_FAMILY], _PHRASES)
_public_surface(globals())
