"""L-BFGS, and searches for a step along a direction."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.pytree import tree_leaves, tree_map
from amdjax.nn._arguments import is_integer
from amdjax.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    Updates,
    chain,
    check_number,
    check_params,
    identity,
    transformation,
)
from amdjax.optim.moments import cast_like, count_of_updates, incremented, zeros_like
from amdjax.optim.scaling import scale, scale_by_learning_rate
from amdjax.optim.schedules import Schedule
from amdjax.scipy.optimize.line_search import line_search as wolfe_search
from amdjax.transforms import value_and_grad

__all__ = [
    "LinesearchState", "ScaleByLBFGSState", "lbfgs", "scale_by_backtracking_linesearch",
    "scale_by_lbfgs", "scale_by_zoom_linesearch", "value_and_grad_from_state",
]  # fmt: skip


class ScaleByLBFGSState(NamedTuple):
    """State of `scale_by_lbfgs`.

    Args:
      params: the parameters before the last update.
      updates: the gradients there.
      diff_params_memory: the last changes of the parameters, stacked along the first axis of each.
      diff_updates_memory: those of the gradients.
      weights_memory: one over the product of each pair of changes, 0 where there is none.
    """

    count: Array  # type: ignore[assignment]  # hides tuple.count, as in optax
    params: Params
    updates: Updates
    diff_params_memory: Updates
    diff_updates_memory: Updates
    weights_memory: Array


class LinesearchState(NamedTuple):
    """State of a line search.

    Args:
      learning_rate: the step that was taken.
      value: of the function behind it; infinite before the first step.
      grad: gradient there; None if the search does not know it.
      num_linesearch_steps: how many steps were tried.
    """

    learning_rate: Array
    value: Array
    grad: Updates | None
    num_linesearch_steps: Array


def _vdot(a: Updates, b: Updates) -> Array:
    products = [jnp.real(jnp.vdot(x, y)) for x, y in zip(tree_leaves(a), tree_leaves(b))]
    return sum(products[1:], start=products[0])


def _moved(params: Params, step: Any, direction: Updates) -> Params:
    """Parameters plus a step, in their dtypes."""
    return tree_map(lambda p, d: (p + step * d).astype(p.dtype), params, direction)


def _real_dtype(params: Params) -> Any:
    return jnp.real(tree_leaves(params)[0]).dtype


def scale_by_lbfgs(
    memory_size: int = 10, scale_init_precond: bool = True
) -> GradientTransformation:
    """Multiply by an inverse Hessian estimated from the last updates (Liu & Nocedal, 1989).

    Args:
      memory_size: from how many.
      scale_init_precond: whether the estimate starts from the curvature of the last update rather
        than from one.

    Raises:
      ValueError: `memory_size` is not positive.

        >>> newton = optim.scale_by_lbfgs()
        >>> w = jnp.array([2.0])
        >>> newton.update(4 * w, newton.init(w), w)[0]
        Array([1.], dtype=float32)
    """
    if not is_integer(memory_size) or memory_size < 1:
        raise ValueError(
            f"scale_by_lbfgs: memory_size must be a positive integer, got {memory_size!r}."
        )

    def init(params: Params) -> ScaleByLBFGSState:
        memory = tree_map(lambda p: jnp.zeros((memory_size, *p.shape), p.dtype), params)
        zeros, weights = zeros_like(params), jnp.zeros(memory_size)
        return ScaleByLBFGSState(count_of_updates(), zeros, zeros, memory, memory, weights)

    def update(
        grads: Updates, state: ScaleByLBFGSState, params: Params = None
    ) -> tuple[Updates, ScaleByLBFGSState]:
        check_params("scale_by_lbfgs", params)
        known = state.count > 0
        change = lambda new, old: tree_map(lambda x, y: jnp.where(known, x - y, 0), new, old)
        moved, turned = change(params, state.params), change(grads, state.updates)
        product = _vdot(turned, moved)
        weight = jnp.where(product == 0, 0, 1 / jnp.where(product == 0, 1, product))
        at = (state.count - 1) % memory_size
        store = lambda memory, x: tree_map(lambda m, v: m.at[at].set(v), memory, x)
        stored, turns, weights = memories = store(
            (state.diff_params_memory, state.diff_updates_memory, state.weights_memory),
            (moved, turned, weight.astype(state.weights_memory.dtype)),
        )
        start: Any = 1.0
        if scale_init_precond:
            bend, size = _vdot(turned, turned), jnp.sqrt(_vdot(grads, grads))
            ratio = jnp.where(bend > 0, product / jnp.where(bend > 0, bend, 1), 1)
            start = jnp.where(known, ratio, jnp.minimum(1, 1 / size))
        updates = _preconditioned(grads, stored, turns, weights, start, state.count % memory_size)
        return updates, ScaleByLBFGSState(incremented(state.count), params, grads, *memories)

    return transformation(init, update)


def _preconditioned(
    grads: Updates, moved: Updates, turned: Updates, weights: Array, start: Any, oldest: Array
) -> Updates:
    """The two loops of L-BFGS (Nocedal & Wright, algorithm 7.4)."""
    order = (oldest + jnp.arange(weights.shape[0])) % weights.shape[0]

    def back(vector: Updates, i: Array) -> tuple[Updates, Array]:
        s, y = tree_map(lambda x: x[i], (moved, turned))
        alpha = weights[i] * _vdot(s, vector)
        return _moved(vector, -alpha, y), alpha

    def forth(vector: Updates, pair: tuple[Array, Array]) -> tuple[Updates, None]:
        i, alpha = pair
        s, y = tree_map(lambda x: x[i], (moved, turned))
        beta = weights[i] * _vdot(y, vector)
        return _moved(vector, alpha - beta, s), None

    vector, alphas = lax.scan(back, grads, order, reverse=True)
    vector = tree_map(lambda v: (start * v).astype(v.dtype), vector)
    return lax.scan(forth, vector, (order, alphas))[0]


def _search_state(params: Params, grad: Updates | None) -> LinesearchState:
    dtype = _real_dtype(params)
    one, far = jnp.ones((), dtype), jnp.full((), np.inf, dtype)
    return LinesearchState(one, far, grad, count_of_updates())


def scale_by_backtracking_linesearch(
    max_backtracking_steps: int, slope_rtol: float = 1e-4, decrease_factor: float = 0.8,
    increase_factor: float = 1.5, max_learning_rate: float = 1.0, atol: float = 0.0,
    rtol: float = 0.0, store_grad: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Shorten the step until the function falls enough (Armijo, 1966).

    Its `update` takes `value`, the function's value at the parameters, `grad`, its gradient there,
    and `value_fn`, the function, by name; what else it is given goes to `value_fn`.

    Args:
      max_backtracking_steps: how often at most.
      slope_rtol: by how much of what the slope promises.
      decrease_factor: factor of each step to the next.
      increase_factor: factor of the last step to the first that is tried.
      max_learning_rate: the largest step.
      atol: by how much less, absolutely.
      rtol: by how much less, relative to the value.
      store_grad: whether to compute the gradient behind the step, for `value_and_grad_from_state`.

        >>> f = lambda w: jnp.sum(w**2)
        >>> optimizer = optim.chain(optim.sgd(1.0), optim.scale_by_backtracking_linesearch(10))
        >>> w = jnp.array([1.0])
        >>> more = {"value": f(w), "grad": 2 * w, "value_fn": f}
        >>> optimizer.update(2 * w, optimizer.init(w), w, **more)[0].round(3)
        Array([-1.6], dtype=float32)
    """
    check_number(
        "scale_by_backtracking_linesearch", "max_backtracking_steps", max_backtracking_steps
    )

    def init(params: Params) -> LinesearchState:
        return _search_state(params, zeros_like(params) if store_grad else None)

    def update(
        updates: Updates, state: LinesearchState, params: Params = None, *,
        value: Any, grad: Updates, value_fn: Callable[..., Any], **given: Any,
    ) -> tuple[Updates, LinesearchState]:  # fmt: skip
        check_params("scale_by_backtracking_linesearch", params)
        slope, fn = _vdot(updates, grad), functools.partial(value_fn, **given)
        value = jnp.asarray(value)

        def missing(step: Array, reached: Array) -> Array:
            error = reached - (1 + rtol) * value - step * slope_rtol * slope
            return jnp.maximum(jnp.where(jnp.isnan(error), np.inf, error), 0)

        def shorten(search: Any) -> Any:
            step, _, _, tried = search
            step = jnp.where(tried > 0, decrease_factor * step, step).astype(step.dtype)
            reached = fn(_moved(params, step, updates)).astype(value.dtype)
            return step, reached, missing(step, reached), tried + 1

        first = jnp.minimum(increase_factor * state.learning_rate, max_learning_rate)
        first = first.astype(state.learning_rate.dtype)
        far = jnp.full_like(missing(first, value), np.inf)
        step, reached, error, tried = lax.while_loop(
            lambda s: ~(s[2] <= atol) & (s[3] <= max_backtracking_steps),
            shorten,
            (first, value, far, count_of_updates()),
        )
        step = jnp.where(jnp.isinf(error), 0, step)
        updates = tree_map(lambda u: (step * u).astype(u.dtype), updates)
        new_grad = None
        if store_grad:
            new_grad = value_and_grad(fn)(_moved(params, 1, updates))[1]
        return updates, cast_like(LinesearchState(step, reached, new_grad, tried), state)

    return GradientTransformationExtraArgs(*transformation(init, update))


def scale_by_zoom_linesearch(
    max_linesearch_steps: int, slope_rtol: float = 1e-4, curv_rtol: float = 0.9
) -> GradientTransformation:
    """Find a step behind which the function is lower and flatter: the strong Wolfe conditions.

    (Nocedal & Wright, algorithms 3.5 and 3.6.) Its `update` takes `value`, the function's value at
    the parameters, `grad`, its gradient there, and `value_fn`, the function, by name; what else it
    is given goes to `value_fn`.

    Args:
      max_linesearch_steps: how often the step is doubled at most.
      slope_rtol: by how much of what the slope promises the function must fall.
      curv_rtol: to which share of itself the slope must fall.

        >>> f = lambda w: jnp.sum(w**4)
        >>> optimizer = optim.chain(optim.sgd(0.1), optim.scale_by_zoom_linesearch(20))
        >>> w = jnp.array([1.0])
        >>> more = {"value": f(w), "grad": 4 * w**3, "value_fn": f}
        >>> bool(f(w + optimizer.update(4 * w**3, optimizer.init(w), w, **more)[0]) < 0.5)
        True
    """
    check_number("scale_by_zoom_linesearch", "max_linesearch_steps", max_linesearch_steps)

    def init(params: Params) -> LinesearchState:
        return _search_state(params, zeros_like(params))

    def update(
        updates: Updates, state: LinesearchState, params: Params = None, *,
        value: Any, grad: Updates, value_fn: Callable[..., Any], **given: Any,
    ) -> tuple[Updates, LinesearchState]:  # fmt: skip
        check_params("scale_by_zoom_linesearch", params)
        slope, dtype = _vdot(updates, grad), state.learning_rate.dtype

        # The search sees the function along the line, of one number.
        def along(step: Array) -> Array:
            return value_fn(_moved(params, step[0], updates), **given)

        found = wolfe_search(
            along, jnp.zeros(1, dtype), jnp.ones(1, dtype), old_fval=value,
            gfk=slope[None].astype(dtype), c1=slope_rtol, c2=curv_rtol,
            maxiter=max_linesearch_steps,
        )  # fmt: skip
        step = jnp.where(jnp.isfinite(found.f_k), found.a_k, 0)
        updates = tree_map(lambda u: (step * u).astype(u.dtype), updates)
        fn = functools.partial(value_fn, **given)
        reached, new_grad = value_and_grad(fn)(_moved(params, 1, updates))
        return updates, cast_like(LinesearchState(step, reached, new_grad, found.nfev), state)

    return GradientTransformationExtraArgs(*transformation(init, update))


def lbfgs(
    learning_rate: float | Array | Schedule | None = None,
    memory_size: int = 10,
    scale_init_precond: bool = True,
    linesearch: GradientTransformation | None = scale_by_zoom_linesearch(20),  # noqa: B008
) -> GradientTransformation:
    """L-BFGS: steps by an inverse Hessian estimated from the last (Liu & Nocedal, 1989).

    With a line search its `update` takes `value`, `grad` and `value_fn` by name, as the search
    does.

    Args:
      learning_rate: a number, or a schedule; None means 1.
      memory_size: from how many updates the Hessian is estimated.
      scale_init_precond: whether the estimate starts from the curvature of the last update.
      linesearch: what finds the length of a step; None means none.

        >>> f = lambda w: jnp.sum((w - jnp.array([1.0, -2.0])) ** 4)
        >>> optimizer, w = optim.lbfgs(), jnp.zeros(2)
        >>> state, value_and_grad = optimizer.init(w), optim.value_and_grad_from_state(f)
        >>> for _ in range(10):
        ...     value, grad = value_and_grad(w, state=state)
        ...     updates, state = optimizer.update(
        ...         grad, state, w, value=value, grad=grad, value_fn=f)
        ...     w = optim.apply_updates(w, updates)
        >>> bool(f(w) < 1e-4)
        True
    """
    rate = 1.0 if learning_rate is None else learning_rate
    return chain(
        scale_by_lbfgs(memory_size, scale_init_precond),
        scale(-1.0) if learning_rate is None else scale_by_learning_rate(rate),
        identity() if linesearch is None else linesearch,
    )


def value_and_grad_from_state(value_fn: Callable[..., Any]) -> Callable[..., Any]:
    """`value_and_grad` of a function, from the state of a line search that has computed them.

    Args:
      value_fn: function of the parameters with one value.

    Returns:
      A function `(params, *args, state, **kwargs) -> (value, grad)`, which calls `value_fn` where
      the state knows of none yet.

    Raises:
      TypeError: `value_fn` cannot be called.
      ValueError: when called, there is no state of a line search with a gradient in `state`.

        >>> f, w = lambda w: jnp.sum(w**2), jnp.array([3.0])
        >>> optim.value_and_grad_from_state(f)(w, state=optim.lbfgs().init(w))
        (Array(9., dtype=float32), Array([6.], dtype=float32))
    """
    if not callable(value_fn):
        raise TypeError(f"value_and_grad_from_state: value_fn must be callable, got {value_fn!r}.")

    def found(params: Params, *args: Any, state: Any, **kwargs: Any) -> tuple[Array, Updates]:
        is_search = lambda x: isinstance(x, LinesearchState)
        searches = [s for s in tree_leaves(state, is_leaf=is_search) if is_search(s)]
        if not searches or searches[0].grad is None:
            raise ValueError(
                "value_and_grad_from_state: state must hold that of a line search with a gradient."
            )
        value, grad = searches[0].value, searches[0].grad

        def compute() -> tuple[Array, Updates]:
            fresh = value_and_grad(value_fn)(params, *args, **kwargs)
            return cast_like(fresh, (value, grad))

        return lax.cond(jnp.isfinite(value), lambda: (value, grad), compute)

    return found
