"""A step along a direction that lowers a function enough: strong Wolfe conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.pytree import tree_map
from amdjax.numpy._util import ArrayLike, promote_dtypes_inexact
from amdjax.transforms import value_and_grad


class Point(NamedTuple):
    """A step length, the function there, its slope along the direction, and its gradient."""

    step: Any
    value: Any
    slope: Any
    gradient: Any


class LineSearchResults(NamedTuple):
    """Result of `line_search`."""

    failed: Array
    nit: Array
    nfev: Array
    ngev: Array
    k: Array
    a_k: Array
    f_k: Array
    g_k: Array
    status: Array


# What the search for a bracket has come to.
_SEARCHING, _FOUND, _RISING, _BEYOND = range(4)

_ZOOM_STEPS = 30


def _select(condition: Any, x: Any, y: Any) -> Any:
    return tree_map(lambda a, b: jnp.where(condition, a, b), x, y)


def _cubic_minimum(a: Any, fa: Any, slope: Any, b: Any, fb: Any, c: Any, fc: Any) -> Array:
    """The minimum of the cubic through three points with a given slope at the first."""
    db, dc = b - a, c - a
    rb, rc = fb - fa - slope * db, fc - fa - slope * dc
    scale = (db * dc) ** 2 * (db - dc)
    cubic = (dc**2 * rb - db**2 * rc) / scale
    square = (db**3 * rc - dc**3 * rb) / scale
    return a + (jnp.sqrt(square * square - 3 * cubic * slope) - square) / (3 * cubic)


def _quadratic_minimum(a: Any, fa: Any, slope: Any, b: Any, fb: Any) -> Array:
    """The minimum of the parabola through two points with a given slope at the first."""
    d = b - a
    return a - slope / (2 * (fb - fa - slope * d) / d**2)


def line_search(
    f: Callable[[Array], Array], xk: ArrayLike, pk: ArrayLike, old_fval: ArrayLike | None = None,
    old_old_fval: ArrayLike | None = None, gfk: ArrayLike | None = None, c1: float = 1e-4,
    c2: float = 0.9, maxiter: int = 20,
) -> LineSearchResults:  # fmt: skip
    """A step `a` for which `f(xk + a · pk)` and its slope satisfy the strong Wolfe conditions.

    Args:
      f: a function of an array of shape `(n,)` with one value.
      xk: where the search begins.
      pk: the direction.
      old_fval: `f(xk)`, if it is known.
      old_old_fval: the value before that, from which the first step is guessed.
      gfk: the gradient at `xk`, if it is known.
      c1: by how much of the slope the function must fall.
      c2: to which share of itself the slope must fall.
      maxiter: how often the step is doubled at most.

    Returns:
      The step `a_k`, value `f_k` and gradient `g_k` there, counts of evaluations, and a `status`:
      0, 1 where no step was found between two others, 3 where none was found within `maxiter`.
      Where the search `failed`, the step is the best it has seen.

    Source: Nocedal and Wright, "Numerical Optimization", 2nd edition, algorithms 3.5 and 3.6.

        >>> from amdjax.scipy.optimize.line_search import line_search
        >>> bool(line_search(lambda x: jnp.sum(x * x), jnp.ones(2), -jnp.ones(2)).failed)
        False
    """
    x, p = promote_dtypes_inexact(xk, pk)

    def at(step: Any) -> Point:
        step = jnp.asarray(step, start.step.dtype)
        value, gradient = value_and_grad(f)(x + step.astype(p.dtype) * p)
        slope = jnp.real(jnp.dot(gradient, p))
        return Point(
            step,
            value.astype(start.value.dtype),
            slope.astype(start.slope.dtype),
            gradient.astype(start.gradient.dtype),
        )

    known = old_fval is not None and gfk is not None
    value, gradient = (old_fval, gfk) if known else value_and_grad(f)(x)
    value, gradient = jnp.asarray(value), jnp.asarray(gradient)
    slope = jnp.real(jnp.dot(gradient, p))
    start = Point(jnp.zeros((), jnp.real(p).dtype), value, slope, gradient)
    first: Any = 1.0
    if old_old_fval is not None:
        first = 1.01 * 2 * (start.value - old_old_fval) / start.slope
        first = jnp.where(first > 1, 1.0, first)

    def too_high(point: Point) -> Array:
        # NaN, too: there the function is not defined, and the step is to be shorter.
        return ~(point.value <= start.value + c1 * point.step * start.slope)

    def flat(point: Point) -> Array:
        return jnp.abs(point.slope) <= -c2 * start.slope

    def lengthen(state: Any) -> Any:
        i, phase, low, high = state
        low = _select(i == 1, low, high)
        high = at(jnp.where(i == 1, first, low.step * 2))
        rising = too_high(high) | ((high.value >= low.value) & (i > 1))
        phase = jnp.where(high.slope >= 0, _BEYOND, _SEARCHING)
        phase = jnp.where(flat(high), _FOUND, phase)
        return i + 1, jnp.where(rising, _RISING, phase), low, high

    i, phase, low, high = lax.while_loop(
        lambda state: (state[1] == _SEARCHING) & (state[0] <= maxiter),
        lengthen,
        (jnp.asarray(1, np.int32), jnp.asarray(_SEARCHING), start, start),
    )
    inner, outer = _select(phase == _BEYOND, (high, low), (low, high))
    bracketed = (phase == _RISING) | (phase == _BEYOND)
    best, done, steps = _zoom(at, too_high, flat, inner, outer, bracketed)
    best = _select(bracketed, best, _select(phase == _FOUND, high, low))
    failed = ~(done | (phase == _FOUND))
    evaluations = i - 1 + steps + (0 if known else 1)
    status = jnp.where(bracketed & failed, 1, jnp.where(failed, 3, 0))
    return LineSearchResults(
        failed, i - 1, evaluations, evaluations, i, best.step, best.value, best.gradient, status
    )


def _zoom(
    at: Callable[[Any], Point], too_high: Callable[[Point], Array], flat: Callable[[Point], Array],
    low: Point, high: Point, wanted: Array,
) -> tuple[Point, Array, Array]:  # fmt: skip
    """A step between two others, of which the first is the lower; whether it is good enough."""
    narrow = 1e-5 if dtypes.finfo(low.step.dtype).bits < 64 else 1e-10

    def step(state: Any) -> Any:
        j, _, low, high, (other, other_value) = state
        left, right = jnp.minimum(low.step, high.step), jnp.maximum(low.step, high.step)
        width = right - left
        known = (low.step, low.value, low.slope, high.step, high.value)
        cubic = _cubic_minimum(*known, other, other_value)
        use_cubic = (j > 0) & (cubic > left + 0.2 * width) & (cubic < right - 0.2 * width)
        parabola = _quadratic_minimum(*known)
        use_parabola = (parabola > left + 0.1 * width) & (parabola < right - 0.1 * width)
        middle = jnp.where(use_parabola, parabola, (left + right) / 2)
        new = at(jnp.where(use_cubic, cubic, middle))

        to_high = too_high(new) | (new.value >= low.value)
        found = flat(new) & ~to_high
        turns = (new.slope * (high.step - low.step) >= 0) & ~to_high & ~found
        previous = _select(to_high | turns, high, low)
        high = _select(to_high, new, _select(turns, low, high))
        low = _select(to_high, low, new)
        return j + 1, found, low, high, (previous.step, previous.value)

    def unfinished(state: Any) -> Array:
        j, found, low, high, _ = state
        wide = jnp.abs(high.step - low.step) > narrow
        return wanted & ~found & wide & (j < _ZOOM_STEPS)

    middle = ((low.step + high.step) / 2, (low.value + high.value) / 2)
    state = (jnp.asarray(0, np.int32), jnp.asarray(False), low, high, middle)
    j, found, low, _, _ = lax.while_loop(unfinished, step, state)
    return low, found, j
