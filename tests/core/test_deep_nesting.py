"""Pytrees of hundreds of levels and programs within hundreds of programs."""

import sys

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, tree
from amdjax.core.recursion import Room

LEVELS = 500
WRAPS = {"list": lambda t: [t], "dict": lambda t: {"a": t}, "tuple": lambda t: (None, t)}


@pytest.fixture(autouse=True)
def limit_is_restored():
    before = sys.getrecursionlimit()
    yield
    assert sys.getrecursionlimit() == before


def nested(wrap, leaf):
    for _ in range(LEVELS):
        leaf = WRAPS[wrap](leaf)
    return leaf


def only_leaf(t):
    (leaf,) = tree.leaves(t)
    return leaf


@pytest.mark.parametrize("wrap", WRAPS)
class TestDeepPytrees:
    def test_structures(self, wrap):
        t = nested(wrap, 2.0)
        leaves, structure = tree.flatten(t)
        assert leaves == [2.0] and structure == tree.structure(nested(wrap, 0))
        assert only_leaf(structure.unflatten([3.0])) == 3.0
        assert repr(structure).count("*") == 1
        assert only_leaf(tree.map(lambda x, y: x + y, t, t)) == 4.0
        assert only_leaf(tree.map(lambda x: x + 1, t, is_leaf=lambda x: x == 2.0)) == 3.0
        ((path, leaf),) = tree.flatten_with_path(t)[0]
        assert len(path) == LEVELS and leaf == 2.0
        assert structure.compose(structure).num_leaves == 1
        inner = tree.structure([0, 0])
        turned = tree.transpose(structure, inner, tree.map(lambda x: [x, x], t))
        assert list(map(only_leaf, turned)) == [2.0, 2.0]

    def test_transforms(self, wrap):
        t = nested(wrap, jnp.float32(2.0))
        double = lambda t: tree.map(lambda x: x * 2, t)
        assert only_leaf(amdjax.jit(double)(t)) == 4.0
        assert only_leaf(amdjax.grad(lambda t: only_leaf(t) ** 2)(t)) == 4.0
        many = tree.map(lambda x: x + jnp.arange(3.0), t)
        np.testing.assert_array_equal(only_leaf(amdjax.vmap(double)(many)), [4, 6, 8])
        axes = tree.map(lambda _: 0, t)
        mapped = amdjax.vmap(double, in_axes=(axes,))(many)
        np.testing.assert_array_equal(only_leaf(mapped), [4, 6, 8])
        assert only_leaf(lax.scan(lambda c, _: (double(c), None), t, length=3)[0]) == 16.0
        assert only_leaf(lax.cond(True, double, lambda t: t, t)) == 4.0
        assert only_leaf(amdjax.eval_shape(double, t)).shape == ()


def test_structures_that_differ_deep_down_say_where():
    with pytest.raises(ValueError, match=r"\['a'\]\['a'\]"):
        tree.map(lambda x, y: x, nested("dict", (1, 2)), nested("dict", (1, 2, 3)))


def test_the_limit_is_restored_wherever_it_was_raised():
    def at_depth(n):
        if n:
            return at_depth(n - 1)
        with Room():
            return True

    before = sys.getrecursionlimit()
    ends = []
    for depth in range(before):
        try:
            ends.append(at_depth(depth))
        except RecursionError:
            ends.append(False)
        assert sys.getrecursionlimit() == before, depth
    assert ends[0] and not ends[-1]


def test_a_list_in_itself_is_an_error_not_a_crash():
    t = []
    t.append(t)
    with pytest.raises(RecursionError):
        tree.flatten(t)


def jits(n):
    f = lambda x: x * 1.5
    for _ in range(n):
        f = amdjax.jit(lambda x, f=f: f(x) + 1.0)
    return f


@pytest.mark.turns(3)
def test_programs_in_programs():
    n = 300
    assert jits(n)(2.0) == 303.0
    assert amdjax.grad(jits(n))(2.0) == 1.5
    np.testing.assert_array_equal(amdjax.vmap(jits(n))(jnp.ones(3)), np.full(3, 301.5))
    assert amdjax.jvp(jits(n), (2.0,), (2.0,))[1] == 3.0
    assert str(amdjax.make_jaxpr(jits(n))(2.0)).count("jit[") == n


def test_recursion_without_end_is_an_error_not_a_crash():
    def f(x):
        return amdjax.jit(f)(x) + 1

    def g(x):
        return amdjax.grad(lambda y: amdjax.jit(g)(y))(x)

    for endless in (f, g):
        with pytest.raises(RecursionError):
            endless(1.0)
