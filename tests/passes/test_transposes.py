"""Transposes around a reshape become one, or none, and move elements where both did."""

import random

import numpy as np
import pytest

import amdjax
from amdjax import lax
from amdjax.core.check import check_jaxpr
from amdjax.passes import prepare
from tests.support.jit_helpers import primitives, run_jaxpr

B, T, K, G, D = 2, 5, 2, 3, 4
FORMS = {
    "there and back": (
        lambda x: x.transpose(0, 2, 1, 3).reshape(B * K * G, T, D)
        .reshape(B, K * G, T, D).transpose(0, 2, 1, 3),
        (B, T, K * G, D), [],
    ),
    "heads in groups": (
        lambda x: x.transpose(0, 2, 1, 3).reshape(B, K, G, T, D).transpose(0, 3, 1, 2, 4),
        (B, T, K * G, D), ["reshape"],
    ),
    "groups as heads": (
        lambda x: x.transpose(0, 2, 3, 1, 4).reshape(B, K * G, T, D).transpose(0, 2, 1, 3),
        (B, T, K, G, D), ["reshape"],
    ),
    "groups behind positions": (
        lambda x: x.transpose(0, 1, 3, 2, 4).reshape(B, K, T, G * D).transpose(0, 2, 1, 3),
        (B, K, G, T, D), ["reshape", "transpose", "reshape"],
    ),
    "parts that meet nowhere": (
        lambda x: x.transpose(1, 0, 2).reshape(4, 3, D).transpose(1, 0, 2),
        (6, 2, D), ["transpose", "reshape", "transpose"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    f, shape, names = FORMS[form]
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    closed = prepare(amdjax.make_jaxpr(f)(x))
    assert primitives(closed) == names
    np.testing.assert_array_equal(run_jaxpr(closed, x)[0], f(x))
    np.testing.assert_array_equal(amdjax.jit(f)(x), f(x))


def grouped(rng, factors):
    """A shape whose axes are neighbors of some factors, and now and then one of length one."""
    shape, i = [], 0
    while i < len(factors):
        count = rng.randint(1, 2)
        shape.append(int(np.prod(factors[i : i + count])))
        i += count
    if rng.random() < 0.3:
        shape.insert(rng.randint(0, len(shape)), 1)
    return shape


def halved(rng, n):
    factors = [k for k in (2, 3) if n % k == 0 and n > k]
    if factors and rng.random() < 0.5:
        k = rng.choice(factors)
        return [k, n // k]
    return [n]


def test_any_shapes():
    rng, fewer = random.Random(0), 0
    for _ in range(150):
        shape = grouped(rng, [rng.choice([1, 2, 2, 3, 4]) for _ in range(rng.randint(1, 5))])
        p = rng.sample(range(len(shape)), len(shape))
        middle = grouped(rng, [k for axis in p for k in halved(rng, shape[axis])])
        q = rng.sample(range(len(middle)), len(middle))
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        before = amdjax.make_jaxpr(
            lambda x, p=p, m=middle, q=q: lax.transpose(lax.reshape(lax.transpose(x, p), m), q)
        )(x)
        after = prepare(before)
        check_jaxpr(after.jaxpr)
        want = x.transpose(p).reshape(middle).transpose(q)
        np.testing.assert_array_equal(run_jaxpr(after, x)[0], want)
        fewer += primitives(after).count("transpose") < 2
    assert fewer > 100
