"""Ordinary differential equations, solved adaptively and differentiated by their adjoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.api_util import safe_map as safe_map, safe_zip as safe_zip
from amdjax.core.array import Array
from amdjax.core.aval import is_valid_value
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.core.config import default_matmul_precision
from amdjax.core.docs import Phrases as _Phrases, complete as _complete
from amdjax.core.pytree import tree_leaves, tree_map
from amdjax.flatten_util import ravel_pytree
from amdjax.numpy._util import check_arraylike, is_kind, promote_dtypes_inexact
from amdjax.transforms import custom_vjp, vjp, vmap
from amdjax.transforms.closures import closure_convert

__all__ = ["odeint"]

map, zip = safe_map, safe_zip  # for those who import everything from here

# Dormand and Prince's pair of orders 5 and 4 (1980).
_NODES = np.array([1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
_STAGES = np.array([
    [1 / 5, 0, 0, 0, 0, 0, 0],
    [3 / 40, 9 / 40, 0, 0, 0, 0, 0],
    [44 / 45, -56 / 15, 32 / 9, 0, 0, 0, 0],
    [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729, 0, 0, 0],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656, 0, 0],
    [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0],
])  # fmt: skip
_SOLUTION = _STAGES[-1]
_ERROR = _SOLUTION - np.array(
    [1951 / 21600, 0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60]
)
# The solution in the middle of a step, to order 4 (Shampine 1986).
_MIDDLE = np.array([
    6025192743 / 30085553152, 0, 51252292925 / 65400821598, -2691868925 / 45128329728,
    187940372067 / 1594534317056, -1776094331 / 19743644256, 11237099 / 235043384,
]) / 2  # fmt: skip
# How the quartic through both ends, their slopes and the middle depends on these.
_QUARTIC = np.array([
    [-2, 2, -8, -8, 16], [5, -3, 18, 14, -32], [-4, 1, -11, -5, 16], [1, 0, 0, 0, 0],
    [0, 0, 1, 0, 0],
])  # fmt: skip


def ravel_first_arg(
    f: Callable[..., Any], unravel: Callable[[Array], Any], debug_info: Any = None
) -> Callable[..., Array]:
    """A function of a pytree as one of a vector.

    Args:
      f: takes a pytree and further arguments, returns a pytree.
      unravel: makes that pytree of a vector.
      debug_info: accepted.

    Returns:
      A function of the vector and the further arguments that returns a vector.

        >>> ravel_first_arg(lambda y: {"b": 2 * y["a"]}, lambda v: {"a": v})(jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """
    return lambda y, *args: ravel_pytree(f(unravel(y), *args))[0]


def interp_fit_dopri(y0: Array, y1: Array, k: Array, dt: Array) -> Array:
    """The quartic of a step, highest power first, in the share of the step; see `runge_kutta_step`.

    Args:
      y0: the state before, of shape `(n,)`.
      y1: the state after.
      k: the slopes of the stages, of shape `(7, n)`.
      dt: the step.
    """
    middle = y0 + dt.astype(y0.dtype) * jnp.dot(jnp.asarray(_MIDDLE, y0.dtype), k)
    return jnp.stack(fit_4th_order_polynomial(y0, y1, middle, k[0], k[-1], dt))


def fit_4th_order_polynomial(
    y0: Array, y1: Array, y_mid: Array, dy0: Array, dy1: Array, dt: Array
) -> tuple[Array, ...]:
    """The coefficients, highest first, of the quartic with given ends, slopes and middle."""
    dt = dt.astype(y0.dtype)
    known = jnp.stack([dt * dy0, dt * dy1, y0, y1, y_mid])
    return tuple(jnp.tensordot(jnp.asarray(_QUARTIC, y0.dtype), known, axes=1))


def initial_step_size(
    fun: Callable[[Array, Array], Array], t0: Array, y0: Array, order: int, rtol: Any, atol: Any,
    f0: Array,
) -> Array:  # fmt: skip
    """A first step (Hairer, Nørsett and Wanner, "Solving Ordinary Differential Equations I")."""
    y0, f0 = promote_dtypes_inexact(y0, f0)
    scale = (atol + jnp.abs(y0) * rtol).astype(y0.dtype)
    d0, d1 = jnp.linalg.norm(y0 / scale), jnp.linalg.norm(f0 / scale)
    h0 = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1)
    f1 = fun(y0 + h0.astype(y0.dtype) * f0, t0 + h0)
    d2 = jnp.linalg.norm((f1 - f0) / scale) / h0
    still = (d1 <= 1e-15) & (d2 <= 1e-15)
    h1 = (0.01 / jnp.maximum(d1, d2)) ** (1.0 / (order + 1.0))
    return jnp.minimum(100.0 * h0, jnp.where(still, jnp.maximum(1e-6, h0 * 1e-3), h1))


def runge_kutta_step(
    func: Callable[[Array, Array], Array], y0: Array, f0: Array, t0: Array, dt: Array
) -> tuple[Array, Array, Array, Array]:
    """One step of Dormand and Prince's method.

    Args:
      func: the slope, a function of state and time.
      y0: the state, of shape `(n,)`.
      f0: its slope.
      t0: the time.
      dt: the step.

    Returns:
      The state after the step, its slope, an estimate of the error, and the slopes of all stages.
    """
    stages, nodes = jnp.asarray(_STAGES, f0.dtype), jnp.asarray(_NODES, dt.dtype)
    step = dt.astype(f0.dtype)

    def stage(i: Any, k: Array) -> Array:
        slope = func(y0 + step * jnp.dot(stages[i], k), t0 + dt * nodes[i])
        return k.at[i + 1].set(slope)

    k = lax.fori_loop(0, 6, stage, jnp.zeros((7, *f0.shape), f0.dtype).at[0].set(f0))
    combined = lambda weights: step * jnp.dot(jnp.asarray(weights, f0.dtype), k)
    return y0 + combined(_SOLUTION), k[-1], combined(_ERROR), k


def abs2(x: Array) -> Array:
    """The square of the magnitude."""
    if is_kind(x.dtype, np.complexfloating):
        return jnp.real(x) ** 2 + jnp.imag(x) ** 2
    return x**2


def mean_error_ratio(error_estimate: Array, rtol: Any, atol: Any, y0: Array, y1: Array) -> Array:
    """The root mean square of the error in units of what is allowed."""
    allowed = atol + rtol * jnp.maximum(jnp.abs(y0), jnp.abs(y1))
    return jnp.sqrt(jnp.mean(abs2(error_estimate / allowed.astype(error_estimate.dtype))))


def optimal_step_size(
    last_step: Array, mean_error_ratio: Array, safety: float = 0.9, ifactor: float = 10.0,
    dfactor: float = 0.2, order: float = 5.0,
) -> Array:  # fmt: skip
    """The next step, from the last one and its error.

    Args:
      last_step: the step.
      mean_error_ratio: its error in units of what is allowed.
      safety: by how much a step is made shorter than it might be.
      ifactor: how much longer the next step is at most.
      dfactor: how much shorter it is at least, if the last one failed.
      order: that of the method.
    """
    least = jnp.where(mean_error_ratio < 1, 1.0, dfactor)
    wanted = mean_error_ratio ** (-1.0 / order) * safety
    factor = jnp.minimum(ifactor, jnp.maximum(wanted, least))
    return last_step * jnp.where(mean_error_ratio == 0, ifactor, factor)


def odeint(
    func: Callable[..., Any], y0: Any, t: Array, *args: Any, rtol: float = 1.4e-8,
    atol: float = 1.4e-8, mxstep: float = math.inf, hmax: float = math.inf,
) -> Any:  # fmt: skip
    """The solution of `dy/dt = func(y, t, *args)` at some times.

    Reverse-mode derivatives solve the adjoint equation backwards (Chen and others, 2018), so memory
    does not grow with the number of steps.

    Args:
      func: the slope, a pytree like `y0`.
      y0: the state at the first time, a pytree of arrays.
      t: times, rising, floats of shape `(k,)`.
      args: further arguments of `func`, arrays or numbers in pytrees.
      rtol: relative error allowed in a step.
      atol: absolute error allowed in a step.
      mxstep: steps at most between two times.
      hmax: the longest step.

    Returns:
      The states, a pytree like `y0` with a new first axis of length `k`.

    Raises:
      TypeError: `args` holds something else, or `t` are no floats.

        >>> from amdjax.experimental.ode import odeint
        >>> jnp.round(odeint(lambda y, t: -y, jnp.array(1.0), jnp.array([0.0, 1.0])), 4)
        Array([1.    , 0.3679], dtype=float32)
    """
    for arg in tree_leaves(args):
        if not is_valid_value(arg):
            raise TypeError(
                f"The contents of odeint *args must be arrays or scalars, but got {arg}."
            )
    check_arraylike("odeint", t)
    if not is_kind(jnp.result_type(t), np.floating):
        raise TypeError(f"t must be an array of floats, but got {t}.")
    converted, consts = closure_convert(func, y0, t[0], *args)
    return _odeint_wrapper(converted, rtol, atol, mxstep, hmax, y0, t, *args, *consts)


@composite(static_argnames=("func", "rtol", "atol", "mxstep", "hmax"))
def _odeint_wrapper(
    func: Callable[..., Any], rtol: Any, atol: Any, mxstep: Any, hmax: Any, y0: Any, ts: Array,
    *args: Any,
) -> Any:  # fmt: skip
    flat, unravel = ravel_pytree(y0)
    slope = ravel_first_arg(func, unravel)
    with default_matmul_precision("highest"):
        return vmap(unravel)(_odeint(slope, rtol, atol, mxstep, hmax, flat, ts, *args))


class _Step(NamedTuple):
    """Where the solver is, the step it tries next, and the quartic of the last one."""

    y: Any
    f: Any
    t: Any
    dt: Any
    previous: Any
    quartic: Any


@partial(custom_vjp, nondiff_argnums=(0, 1, 2, 3, 4))
def _odeint(
    func: Any, rtol: Any, atol: Any, mxstep: Any, hmax: Any, y0: Array, ts: Array, *args: Any
) -> Array:
    slope = lambda y, t: func(y, t, *args)

    def advance(state: _Step) -> _Step:
        y, error_f, error, k = runge_kutta_step(slope, state.y, state.f, state.t, state.dt)
        ratio = mean_error_ratio(error, rtol, atol, state.y, y)
        dt = jnp.clip(optimal_step_size(state.dt, ratio), 0.0, hmax)
        quartic = interp_fit_dopri(state.y, y, k, state.dt)
        taken = _Step(y, error_f, state.t + state.dt, dt, state.t, quartic)
        return tree_map(lambda a, b: jnp.where(ratio <= 1.0, a, b), taken, state._replace(dt=dt))

    def reach(state: _Step, target: Array) -> tuple[_Step, Array]:
        def unfinished(carry: tuple[Any, _Step]) -> Array:
            i, s = carry
            return (s.t < target) & (i < mxstep) & (s.dt > 0)

        step = lambda carry: (carry[0] + 1, advance(carry[1]))
        _, state = lax.while_loop(unfinished, step, (0, state))
        share = (target - state.previous) / (state.t - state.previous)
        return state, jnp.polyval(state.quartic, share.astype(state.quartic.dtype))

    f0 = slope(y0, ts[0])
    dt = jnp.clip(initial_step_size(slope, ts[0], y0, 4, rtol, atol, f0), 0.0, hmax)
    start = _Step(y0, f0, ts[0], dt.astype(ts.dtype), ts[0], jnp.stack([y0] * 5))
    _, ys = lax.scan(reach, start, ts[1:])
    return jnp.concatenate([y0[None], ys])


def _odeint_fwd(
    func: Any, rtol: Any, atol: Any, mxstep: Any, hmax: Any, y0: Array, ts: Array, *args: Any
) -> tuple[Array, Any]:
    ys = _odeint(func, rtol, atol, mxstep, hmax, y0, ts, *args)
    return ys, (ys, ts, args)


def _odeint_rev(
    func: Any, rtol: Any, atol: Any, mxstep: Any, hmax: Any, residuals: Any, g: Array
) -> tuple[Any, ...]:
    ys, ts, args = residuals

    def backwards(state: Any, t: Array, *args: Any) -> Any:
        """State and adjoints, in time that runs the other way."""
        y, y_bar, *_ = state
        y_dot, pull = vjp(func, y, -t, *args)
        return (-y_dot, *pull(y_bar))

    def interval(carry: Any, i: Array) -> tuple[Any, Array]:
        y_bar, t0_bar, args_bar = carry
        t_bar = jnp.real(jnp.dot(func(ys[i], ts[i], *args), g[i]))
        state = (ys[i], y_bar, t0_bar - t_bar, args_bar)
        solved = odeint(
            backwards, state, jnp.stack([-ts[i], -ts[i - 1]]), *args, rtol=rtol, atol=atol,
            mxstep=mxstep, hmax=hmax,
        )  # fmt: skip
        _, y_bar, t0_bar, args_bar = tree_map(lambda x: x[1], solved)
        return (y_bar + g[i - 1], t0_bar, args_bar), t_bar

    start = (g[-1], jnp.zeros((), ts.dtype), tree_map(jnp.zeros_like, args))
    steps = jnp.arange(len(ts) - 1, 0, -1)
    with default_matmul_precision("highest"):
        (y_bar, t0_bar, args_bar), t_bars = lax.scan(interval, start, steps)
    return (y_bar, jnp.concatenate([t0_bar[None], t_bars[::-1]]), *args_bar)


_odeint.defvjp(_odeint_fwd, _odeint_rev)
_complete(globals(), (), _Phrases())
_public_surface(globals())
