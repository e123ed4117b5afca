"""Minima of smooth functions by quasi-Newton methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.numpy._util import ArrayLike, promote_dtypes_inexact
from amdjax.scipy.optimize.line_search import line_search
from amdjax.transforms import value_and_grad

_LBFGS = "l-bfgs-experimental-do-not-rely-on-this"


class OptimizeResults(NamedTuple):
    """Result of `minimize`.

    Args:
      x: where the search ended, of shape `(n,)`.
      success: whether the gradient is small enough there.
      status: why the search ended, an int; see `minimize`.
      fun: value of the function.
      jac: its gradient, of shape `(n,)`.
      hess_inv: estimate of the inverse Hessian, of shape `(n, n)`; None for L-BFGS.
      nfev: number of values computed.
      njev: number of gradients computed.
      nit: number of steps.
    """

    x: Array
    success: Array
    status: Array
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: Array
    njev: Array
    nit: Array


def minimize(
    fun: Callable[..., Array], x0: ArrayLike, args: tuple[Any, ...] = (), *, method: str,
    tol: float | None = None, options: Mapping[str, Any] | None = None,
) -> OptimizeResults:  # fmt: skip
    """A local minimum of a function of several variables.

    Args:
      fun: called as `fun(x, *args)`, returns one real number and is differentiable.
      x0: where the search begins, of shape `(n,)`.
      args: further arguments of `fun`.
      method: "BFGS", or "l-bfgs-experimental-do-not-rely-on-this" for the method that keeps few
        vectors in place of a matrix.
      tol: accepted; the tolerances are among the options.
      options: of BFGS, `maxiter`, `norm`, `gtol`, `line_search_maxiter`; of L-BFGS, `maxiter`,
        `norm`, `maxcor`, `ftol`, `gtol`, `maxfun`, `maxgrad`, `maxls`.

    Returns:
      The minimum `x`, whether the gradient is small enough there, and why the search ended: a
      `status` of 0 if it is, for BFGS 1 after `maxiter` steps and 3 or 5 where a line search
      failed, for L-BFGS 1, 2, 3 after `maxiter`, `maxfun`, `maxgrad`, 4 if the function hardly
      fell, 5 where a line search failed.

    Raises:
      TypeError: `args` is no tuple.
      ValueError: `method` is unknown.

    Source: Nocedal and Wright, "Numerical Optimization", 2nd edition, algorithms 6.1 and 7.5.

        >>> found = amdjax.scipy.optimize.minimize(
        ...     lambda x: jnp.sum((x - 1) ** 2), jnp.zeros(2), method="BFGS")
        >>> found.x
        Array([1., 1.], dtype=float32)
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to minimize must be a tuple, got {args}")
    methods: dict[str, Callable[..., OptimizeResults]] = {
        "bfgs": minimize_bfgs,
        _LBFGS: minimize_lbfgs,
    }
    if method.lower() not in methods:
        raise ValueError(f"Method {method} not recognized; it must be one of {list(methods)}")
    return methods[method.lower()](lambda x: fun(x, *args), x0, **(options or {}))


class _Search(NamedTuple):
    """Where the search is, and how it stands."""

    x: Any
    value: Any
    gradient: Any
    iterations: Any
    evaluations: Any
    converged: Any
    failed: Any
    status: Any


def _begin(fun: Callable[[Array], Array], x0: ArrayLike, small: Callable[[Any], Any]) -> _Search:
    (x,) = promote_dtypes_inexact(jnp.asarray(x0))
    value, gradient = value_and_grad(fun)(x)
    zero, no = jnp.asarray(0, np.int32), jnp.asarray(False)
    return _Search(x, value, gradient, zero, zero + 1, small(gradient), no, zero)


def _results(s: _Search, status: Any, inverse: Any) -> OptimizeResults:
    return OptimizeResults(
        s.x, s.converged & ~s.failed, status, s.value, s.gradient, inverse, s.evaluations,
        s.evaluations, s.iterations,
    )  # fmt: skip


def minimize_bfgs(
    fun: Callable[[Array], Array], x0: ArrayLike, maxiter: int | None = None, norm: Any = np.inf,
    gtol: float = 1e-5, line_search_maxiter: int = 10,
) -> OptimizeResults:  # fmt: skip
    """A minimum by the method of Broyden, Fletcher, Goldfarb and Shanno; see `minimize`.

    Args:
      fun: the function.
      x0: where the search begins, of shape `(n,)`.
      maxiter: steps at most; 200 for each variable by default.
      norm: of the gradient, as `numpy.linalg.norm` takes it.
      gtol: below which the norm is small enough.
      line_search_maxiter: how often a step is doubled at most.

    Returns:
      The result, with the estimate of the inverse of the Hessian.
    """
    small = lambda gradient: jnp.linalg.norm(gradient, ord=norm) < gtol
    search = _begin(fun, x0, small)
    n = search.x.shape[0]
    limit = n * 200 if maxiter is None else maxiter
    identity = jnp.eye(n, dtype=search.x.dtype)

    def unfinished(state: Any) -> Array:
        s = state[0]
        return ~s.converged & ~s.failed & (s.iterations < limit)

    def step(state: Any) -> Any:
        s, inverse, scale, before = state
        direction = -(inverse @ s.gradient)
        # Where rounding has left no way down, begin again from the scale of the last step.
        lost = ~(jnp.dot(direction, s.gradient) < 0)
        inverse = jnp.where(lost, scale * identity, inverse)
        direction = jnp.where(lost, -scale * s.gradient, direction)
        found = line_search(
            fun, s.x, direction, old_fval=s.value, old_old_fval=before, gfk=s.gradient,
            maxiter=line_search_maxiter,
        )  # fmt: skip
        move = found.a_k.astype(s.x.dtype) * direction
        turn = found.g_k - s.gradient
        curvature = jnp.dot(turn, move)
        rho = 1 / curvature
        w = identity - rho * jnp.outer(move, turn)
        updated = w @ inverse @ w.T + rho * jnp.outer(move, move)
        inverse = jnp.where(jnp.isfinite(rho), updated, inverse)
        scale = jnp.where(curvature > 0, curvature / jnp.dot(turn, turn), scale)
        after = _Search(
            s.x + move, found.f_k, found.g_k, s.iterations + 1, s.evaluations + found.nfev,
            small(found.g_k), found.failed, found.status.astype(np.int32),
        )  # fmt: skip
        return after, inverse, scale, s.value

    guess = search.value + jnp.linalg.norm(search.gradient).astype(search.value.dtype) / 2
    state = (search, identity, jnp.ones((), search.x.dtype), guess)
    search, inverse, _, _ = lax.while_loop(unfinished, step, state)
    ended = jnp.where(
        search.iterations == limit, 1, jnp.where(search.failed, 2 + search.status, -1)
    )
    return _results(search, jnp.where(search.converged, 0, ended), inverse)


def minimize_lbfgs(
    fun: Callable[[Array], Array], x0: ArrayLike, maxiter: float | None = None, norm: Any = np.inf,
    maxcor: int = 10, ftol: float = 2.220446049250313e-09, gtol: float = 1e-5,
    maxfun: float | None = None, maxgrad: float | None = None, maxls: int = 20,
) -> OptimizeResults:  # fmt: skip
    """A minimum by BFGS with limited memory; see `minimize`.

    Args:
      fun: the function.
      x0: where the search begins, of shape `(n,)`, real or complex.
      maxiter: steps at most; 200 for each variable by default, if no other limit is given.
      norm: of the gradient, as `numpy.linalg.norm` takes it.
      maxcor: how many steps are remembered.
      ftol: a lesser fall of the function ends the search.
      gtol: below which the norm is small enough.
      maxfun: evaluations at most.
      maxgrad: evaluations of the gradient at most.
      maxls: how often a step is doubled at most.

    Returns:
      The result; `hess_inv` is None.
    """
    small = lambda gradient: jnp.linalg.norm(gradient, ord=norm) < gtol
    search = _begin(fun, x0, lambda _: jnp.asarray(False))
    n, dtype = search.x.shape[0], search.x.dtype
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = n * 200

    def step(state: tuple[_Search, _History]) -> tuple[_Search, _History]:
        s, history = state
        direction = _direction(s.gradient, history)
        found = line_search(fun, s.x, direction, s.value, gfk=s.gradient, maxiter=maxls)
        move = found.a_k.astype(dtype) * direction
        turn = found.g_k - s.gradient
        curvature = jnp.real(jnp.dot(turn, move))
        history = _History(
            _shifted(history.moves, move),
            _shifted(history.turns, turn),
            _shifted(history.weights, 1 / curvature),
            curvature / jnp.real(jnp.vdot(turn, turn)),
        )
        status = jnp.where(s.value - found.f_k < ftol, 4, 0)
        counts = (3, s.evaluations, maxgrad), (2, s.evaluations, maxfun), (1, s.iterations, maxiter)
        for number, count, limit in counts:
            if limit is not None and limit < np.inf:
                status = jnp.where(count >= int(limit), number, status)
        status = jnp.where(found.failed, 5, status)
        converged = small(found.g_k)
        status = jnp.where(converged, 0, status).astype(np.int32)
        after = _Search(
            s.x + move, found.f_k, found.g_k, s.iterations + 1, s.evaluations + found.nfev,
            converged, status > 0, status,
        )  # fmt: skip
        return after, history

    real = jnp.real(search.x).dtype
    nothing = jnp.zeros((maxcor, n), dtype)
    history = _History(nothing, nothing, jnp.zeros(maxcor, real), jnp.ones((), real))
    search, _ = lax.while_loop(
        lambda state: ~state[0].converged & ~state[0].failed, step, (search, history)
    )
    return _results(search, search.status, None)


class _History(NamedTuple):
    """The last steps and changes of the gradient, the latest last, with their weights."""

    moves: Any
    turns: Any
    weights: Any
    scale: Any


def _shifted(history: Array, new: Array) -> Array:
    return jnp.concatenate([history[1:], new[None].astype(history.dtype)])


def _direction(gradient: Array, history: _History) -> Array:
    """The product of the inverse Hessian with the gradient, by two loops over the history.

    What is not there yet has weight zero and changes nothing.
    """
    moves, turns, weights, scale = history
    size = weights.shape[0]

    def backward(j: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        q, shares = carry
        i = size - 1 - j
        share = weights[i] * jnp.real(jnp.vdot(moves[i], q))
        return q - share.astype(q.dtype) * jnp.conj(turns[i]), shares.at[i].set(share)

    def forward(i: Any, q: Array) -> Array:
        share = shares[i] - weights[i] * jnp.real(jnp.dot(turns[i], q))
        return q + share.astype(q.dtype) * moves[i]

    q, shares = lax.fori_loop(0, size, backward, (-jnp.conj(gradient), jnp.zeros_like(weights)))
    return lax.fori_loop(0, size, forward, scale.astype(q.dtype) * q)
