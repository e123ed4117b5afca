"""Planning a program takes as many operations as it has equations, times a constant.

Operations are lines of Python that run: their numbers are the same in each run, so that what grows
with the square shows while it is a small part of the whole.
"""

import sys
from collections.abc import Callable

import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.jit.cpu.program import cpu_target
from amdjax.jit.plan import plan_program

X, W, V = jnp.ones((4, 16)), jnp.ones((16, 16)), jnp.ones((16,))


def chain(n):
    """Products whose weights are one matrix, and what follows each."""

    def fn(x, w, v):
        for _ in range(n):
            x = jnp.tanh(x @ w + v)
        return x

    return fn, (X, W, V)


def recurrent_gradient(n):
    """Values that wait for the way back, which are read far from where they are made."""

    def fn(x, w, v):
        h = x
        for _ in range(n):
            h = jnp.tanh(h @ w + v)
        return (h * h).sum()

    return amdjax.grad(fn, (1, 2)), (X, W, V)


def leaves(n):
    """An optimizer's step, whose leaves nothing connects."""

    def fn(params, moments):
        moments = [0.9 * m + p for p, m in zip(params, moments)]
        return [p - 0.1 * m for p, m in zip(params, moments)], moments

    arrays = [jnp.ones((3 + i % 5, 7)) for i in range(n)]
    return fn, (arrays, arrays)


def training_step(n):
    """Gradients of layers, and what an optimizer makes of them much later."""

    def loss(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return (x * x).sum()

    def fn(weights, moments, x):
        grads = amdjax.grad(loss)(weights, x)
        moments = [0.9 * m + g for g, m in zip(grads, moments)]
        return [w - 0.1 * m for w, m in zip(weights, moments)], moments

    return fn, ([W] * n, [W] * n, X)


def updates(n):
    """An array that changes in place, and reads between."""

    def fn(x, w, v):
        for i in range(n):
            v = v.at[i % 16].set(jnp.sin(v[i * 7 % 16]) + w[0, i % 16])
        return v

    return fn, (X, W, V)


def gathers_gradient(n):
    """Updates of one array of zeros, whose results are summed."""
    fn = lambda x, w, v: sum((v[i % 16] * w[i % 16]).sum() for i in range(n))
    return amdjax.grad(fn, (1, 2)), (X, W, V)


PROGRAMS = [chain, recurrent_gradient, leaves, training_step, updates, gathers_gradient]


def lines(run: Callable[[], object]) -> int:
    """How many lines of Python run."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_planning_takes_time_in_proportion_to_equations(program):
    counts = []
    for n in (4, 32, 64, 128):  # the first makes what is made once
        fn, args = program(n)
        closed = amdjax.make_jaxpr(fn)(*args)
        counts.append(lines(lambda closed=closed: plan_program(closed, cpu_target())))
    first, second = counts[2] - counts[1], counts[3] - counts[2]
    assert second <= 2.15 * first
