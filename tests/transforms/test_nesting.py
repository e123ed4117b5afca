"""Transforms in every order: each chain must agree with finite differences or with plain Python."""

import itertools

import numpy as np
import pytest

import amdjax
from amdjax import lax
from amdjax.core.check import check_jaxpr
from amdjax.test_util import check_grads
from tests.support.lax_checks import total

X = np.array([0.3, 0.7, -0.2], np.float32)


@amdjax.custom_jvp
def with_jvp(x):
    return lax.mul(lax.sin(x), x)


@with_jvp.defjvp
def _rule(primals, tangents):
    (x,), (t,) = primals, tangents
    return with_jvp(x), lax.mul(t, lax.add(lax.sin(x), lax.mul(x, lax.cos(x))))


@amdjax.custom_vjp
def with_vjp(x):
    return lax.mul(lax.sin(x), x)


with_vjp.defvjp(
    lambda x: (with_vjp(x), x),
    lambda x, ct: (lax.mul(ct, lax.add(lax.sin(x), lax.mul(x, lax.cos(x)))),),
)


def in_scan(x):
    def body(c, y):
        return lax.mul(lax.sin(c), x), lax.mul(c, y)

    last, ys = lax.scan(body, x, np.arange(3).astype(x.dtype))
    return lax.add(last, lax.reduce_sum(ys, (0,)))


def in_cond(x):
    return lax.cond(lax.gt(total(x), 0.0), lax.sin, lambda x: lax.mul(x, x), x)


def first(x):
    return lax.squeeze(lax.slice_in_dim(x, 0, 1, axis=0), (0,))


# Each is a function of an array, beside the same in NumPy.
FUNCTIONS = {
    "plain": (lambda x: lax.mul(lax.sin(x), x), lambda x: np.sin(x) * x),
    "custom_jvp": (with_jvp, lambda x: np.sin(x) * x),
    "custom_vjp": (with_vjp, lambda x: np.sin(x) * x),
    "jit": (amdjax.jit(lambda x: lax.mul(lax.sin(x), x)), lambda x: np.sin(x) * x),
    "checkpoint": (amdjax.checkpoint(lambda x: lax.mul(lax.sin(x), x)), lambda x: np.sin(x) * x),
    "scan": (in_scan, None),
    "cond": (in_cond, lambda x: np.sin(x) if x.sum() > 0 else x * x),
}

# Wrappers that leave the function what it is.
SAME = {
    "jit": lambda f: lambda x: amdjax.jit(f)(x),
    "checkpoint": lambda f: lambda x: amdjax.checkpoint(f)(x),
    "vmap": lambda f: lambda x: first(amdjax.vmap(f)(lax.broadcast(x, (1,)))),
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(x), None), x, None, length=1)[0],
    "cond": lambda f: lambda x: lax.cond(True, f, lambda x: x, x),
    "while": lambda f: lambda x: lax.fori_loop(0, 1, lambda i, c: f(c), x),
}


# Derivatives as functions from arrays to arrays of the same shape.
DERIVATIVES = {
    "grad": lambda f: amdjax.grad(lambda x: total(f(x))),
    "jvp": lambda f: lambda x: amdjax.jvp(f, (x,), (np.ones_like(X),))[1],
    "vjp": lambda f: lambda x: amdjax.vjp(f, x)[1](np.ones_like(X))[0],
    "linearize": lambda f: lambda x: amdjax.linearize(f, x)[1](np.ones_like(X)),
}


def close(a, b, tol=3e-4):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tol, atol=tol)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name):
    f, expected = FUNCTIONS[name]
    if expected is not None:
        close(f(X), expected(X))
    for wrap in SAME.values():
        close(wrap(f)(X), f(X))


def derivative(name, mode):
    """The derivative of one of `FUNCTIONS`, by central differences of it in float64."""
    numpy_f = FUNCTIONS[name][1]
    steps = np.ones_like(X) if mode in ("jvp", "linearize") else None
    with amdjax.enable_x64(True):
        g = numpy_f or (lambda x: np.asarray(scan_in_numpy(x)))
        x, eps = X.astype(np.float64), 1e-6
        if steps is not None:
            return (g(x + eps) - g(x - eps)) / (2 * eps)
        rows = [(g(x + eps * e) - g(x - eps * e)) / (2 * eps) for e in np.eye(3)]
        return np.stack(rows).sum(1)


def scan_in_numpy(x):
    c, total_ys = x, 0
    for y in range(3):
        total_ys = total_ys + c * y
        c = np.sin(c) * x
    return c + total_ys


@pytest.mark.parametrize("mode", DERIVATIVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_through_one_wrapper(name, mode):
    if name == "custom_vjp" and mode in ("jvp", "linearize"):
        pytest.skip("the rule defines reverse mode only")
    f = FUNCTIONS[name][0]
    d = DERIVATIVES[mode]
    expected = derivative(name, mode)
    close(d(f)(X), expected)
    for wrapper, wrap in SAME.items():
        if wrapper == "while" and mode in ("grad", "vjp") and name == "custom_vjp":
            continue
        close(d(wrap(f))(X), expected)
        close(wrap(d(f))(X), expected)


CHAINS = list(itertools.product(["jit", "vmap", "checkpoint", "scan", "cond"], repeat=2))


@pytest.mark.parametrize(("outer", "inner"), CHAINS)
def test_second_derivatives_between_wrappers(outer, inner):
    f = FUNCTIONS["plain"][0]
    expected = 2 * np.cos(X) - X * np.sin(X)
    for second, first_ in itertools.product(("grad", "jvp", "vjp"), repeat=2):
        g = DERIVATIVES[second](SAME[outer](DERIVATIVES[first_](SAME[inner](f))))
        close(g(X), expected)


@pytest.mark.parametrize("name", ["plain", "custom_jvp", "jit", "checkpoint", "scan", "cond"])
def test_hessian_of_batches(name):
    f = FUNCTIONS[name][0]
    scalar = lambda x: total(f(x))
    batch = np.stack([X, X + np.float32(0.5)])
    by_example = np.stack([np.asarray(amdjax.hessian(scalar)(x)) for x in batch])
    close(amdjax.vmap(amdjax.hessian(scalar))(batch), by_example)
    close(amdjax.jit(amdjax.vmap(amdjax.hessian(scalar)))(batch), by_example)
    close(amdjax.vmap(amdjax.jacrev(amdjax.jacrev(scalar)))(batch), by_example)
    close(amdjax.vmap(amdjax.jacrev(amdjax.jacfwd(scalar)))(batch), by_example)


@pytest.mark.parametrize("name", ["plain", "custom_jvp", "checkpoint", "scan", "cond"])
def test_third_order(name):
    with amdjax.enable_x64(True):
        check_grads(FUNCTIONS[name][0], (X.astype(np.float64),), order=2, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_are_well_formed_after_every_transform(name):
    f = FUNCTIONS[name][0]
    scalar = lambda x: total(f(x))
    batch = np.stack([X, X])
    for g, x in (
        (f, X),
        (amdjax.grad(scalar), X),
        (amdjax.vmap(amdjax.grad(scalar)), batch),
        (amdjax.grad(lambda x: total(amdjax.vmap(f)(x))), batch),
        (amdjax.jit(amdjax.grad(scalar)), X),
    ):
        check_jaxpr(amdjax.make_jaxpr(g)(x))
