"""Functions of symbolic shapes inside transforms and other traced functions."""

import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import export
from amdjax.jit.backend import CompilerBackend
from amdjax.jit.variants import MOST_CHOSEN

SIZES = [3, 5, 9, 12, 17, 30, 44]
W = np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32)


def layer(x, w):
    return jnp.tanh(x @ w).sum(-1)


def rows(n):
    return np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)


def total(f, x):
    return lambda w: f(x, w).sum()


def four(x):
    return np.stack([x] * 4)


#: What is done to a function, and how many programs its calls are: each is traced once.
TRANSFORMED = {
    "grad": (lambda f, x: amdjax.grad(lambda x, w: f(x, w).sum(), (0, 1))(x, W), 2),
    "vmap": (lambda f, x: amdjax.vmap(f, (0, None))(np.stack([x] * (len(x) + 2)), W), 1),
    "vmap of axes": (lambda f, x: amdjax.vmap(f, (2, 0))(np.stack([x] * 4, 2), four(W)), 1),
    "jvp": (lambda f, x: amdjax.jvp(f, (x, W), (2 * x, 3 * W)), 1),
    "vmap of grad": (lambda f, x: amdjax.vmap(lambda x: amdjax.grad(total(f, x))(W))(four(x)), 2),
    "grad of vmap": (
        lambda f, x: amdjax.grad(total(amdjax.vmap(f, (0, None)), four(x)))(W), 2,
    ),
    "linearize": (lambda f, x: amdjax.linearize(f, x, W)[1](2 * x, 3 * W), 2),
    "hessian": (lambda f, x: amdjax.hessian(total(f, x))(W), 6),
    "closure": (lambda f, x: amdjax.vmap(lambda y: f(x * y, W))(jnp.arange(3.0)), 1),
}  # fmt: skip


def close(got, expected, place):
    for x, y in zip(amdjax.tree.leaves(got), amdjax.tree.leaves(expected), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype, place
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5, err_msg=str(place))


@pytest.mark.parametrize("options", [{"symbolic": ("b, 8", None)}, {"dynamic": "auto"}])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_calls_are_traced_once_and_compiled_few_times(name, options, monkeypatch):
    transformed, programs = TRANSFORMED[name]
    traced, compiled, alone = [], [], []

    def f(x, w):
        traced.append(x.shape)
        return layer(x, w)

    def count(method, calls):
        original = getattr(CompilerBackend, method)
        monkeypatch.setattr(
            CompilerBackend, method, lambda *args: (calls.append(0), original(*args))[1]
        )

    f = amdjax.jit(f, **options)
    for i, n in enumerate(SIZES):
        if i == 1:  # the first one of a dynamic function is compiled as it is
            count("compile_sized", compiled)
            count("compile", alone)
        close(transformed(f, rows(n)), transformed(layer, rows(n)), n)
    assert len(traced) <= 2 and not alone
    # As many variants of each program as are chosen among: no size of these is fixed in them.
    assert len(compiled) <= MOST_CHOSEN * programs
    close(transformed(f, rows(1)), transformed(layer, rows(1)), 1)  # which is traced apart
    close(transformed(f, rows(8)), transformed(layer, rows(8)), 8)  # where 8 is no other size


RECORDED = {
    "jit": lambda f, x: amdjax.jit(lambda x: f(x, W))(x),
    "jit of grad": lambda f, x: amdjax.jit(amdjax.grad(lambda x: f(x, W).sum()))(x),
    "grad of jit": lambda f, x: amdjax.grad(total(amdjax.jit(lambda x, w: f(x, w)), x))(W),
    "jit of a pull-back": lambda f, x: amdjax.jit(amdjax.vjp(f, x, W)[1])(x[:, 0]),
    "checkpoint": lambda f, x: amdjax.grad(total(amdjax.checkpoint(lambda x, w: f(x, w)), x))(W),
}


@pytest.mark.parametrize("name", RECORDED)
def test_programs_of_known_sizes_are_made_of_one_trace(name):
    traced = []

    def f(x, w):
        traced.append(x.shape)
        return layer(x, w)

    f = amdjax.jit(f, symbolic=("b, 8", None))
    for n in SIZES:
        close(RECORDED[name](f, rows(n)), RECORDED[name](layer, rows(n)), n)
    assert [str(shape) for shape in traced] == ["(b, 8)"]
    printed = str(amdjax.make_jaxpr(f)(rows(5), W))
    assert (
        "jit[" in printed
        and "f32[5,3]" in printed
        and "b" not in re.findall(r"\[(.*?)[,\]]", printed)
    )


def test_what_transforms_took_for_unequal_is_transformed_apart():
    """Also where the number of examples is the size that a function compares."""
    f = lambda x, y: (x * y).reshape(-1) if x.shape[0] == y.shape[0] else (x * y).sum(0)
    jitted = amdjax.jit(f, symbolic=("a, 4", "b, 4"))
    for a, b in [(3, 3), (5, 5), (1, 3), (3, 1), (4, 4), (2, 1)]:
        x, y = (np.arange(4.0 * n, dtype=np.float32).reshape(n, 4) for n in (a, b))
        for g in (
            lambda f: amdjax.grad(lambda x, y: (f(x, y) ** 2).sum(), (0, 1))(x, y),
            lambda f: amdjax.vmap(f)(np.stack([x] * b), np.stack([y] * b)),
        ):
            close(g(jitted), g(f), (a, b))


def test_functions_that_need_sizes_are_transformed_for_each():
    """Derivatives that cannot be taken of symbolic shapes are those of each size, found once."""

    @amdjax.custom_jvp
    def scaled(x):
        return x * 2

    @scaled.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        return scaled(x), t * sum(range(x.shape[0]))  # needs a number

    f = amdjax.jit(scaled, symbolic="n")
    for n in (3, 4, 3):
        grad = amdjax.grad(lambda x: f(x).sum())(np.ones(n, np.float32))
        np.testing.assert_array_equal(grad, np.full(n, n * (n - 1) / 2))


@pytest.mark.parametrize("name", ["relu", "logsumexp", "softmax"])
def test_derivatives_of_their_own_where_sizes_are_equal(name):
    """Rules remember the types that they were traced with."""
    f = getattr(amdjax.nn, name)
    g = lambda x: f(x).reshape(-1) * (2 if x.shape[0] == x.shape[1] else 3)
    jitted = amdjax.jit(g, symbolic="a, b")
    for a, b, count in [(3, 5, 3), (5, 3, 4), (4, 4, 4), (3, 4, 3)]:
        x = np.random.default_rng(a).standard_normal((count, a, b)).astype(np.float32)
        for t in (
            lambda g: amdjax.grad(lambda x: (amdjax.vmap(g)(x) ** 2).sum())(x),
            lambda g: amdjax.vmap(amdjax.grad(lambda x: (g(x) ** 2).sum()))(x),
            lambda g: amdjax.grad(lambda x: (amdjax.jit(lambda x: g(x))(x) ** 2).sum())(x[0]),
            lambda g: amdjax.hessian(lambda x: (g(x) ** 2).sum())(x[0]),
        ):
            close(t(jitted), t(g), (a, b, count))


#: What a function says, what is known where it is called, sizes that fit and that do not.
NESTED = [
    ("b, ...", ["b <= 4"], [], [(3, 8), (4, 5)], (5, 8), "'b <= 4' does not hold where b = 5"),
    ("b, ...", ["b <= 4"], ["n <= 3"], [(3, 8)], (4, 8), "constraint 'n <= 3' does not hold"),
    ("b, 2*t", [], [], [(3, 8), (5, 6)], (3, 7), "axis 1: '2*t' is 7 for no size 't'"),
    ("b, 2*t", [], ["mod(m, 2) == 0"], [(3, 8), (5, 6)], (3, 7), "'mod(m, 2) == 0' does not"),
    ("b, t + 3", [], [], [(3, 8), (3, 4)], (3, 2), "'t + 3' is 2 for no size 't'"),
    ("b, t", ["mod(t, 4) == 0"], [], [(3, 8), (2, 12)], (3, 6), "'mod(t, 4) == 0' does not hold"),
    ("b, t", ["b <= t"], [], [(3, 8), (5, 5)], (5, 4), "'b <= t' does not hold where b = 5, t = 4"),
    ("b, t", ["b + t == 11"], [], [(3, 8), (6, 5)], (3, 7), "'b + t == 11' does not hold"),
    ("b, b", [], [], [(8, 8), (3, 3)], (3, 4), "axis 1: 'b' is n where b = n, got the size m"),
    ("b, 5", [], [], [(3, 5), (5, 5)], (3, 4), "axis 1: the size is said to be 5, got m"),
    ("b, t", ["b <= 2"], ["n >= 3"], [], (3, 4), "'b <= 2' does not hold where b = n"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "constraints", "outside", "fitting", "other", "message"), NESTED)
def test_constraints_of_functions_that_are_called(
    spec, constraints, outside, fitting, other, message
):
    inner = amdjax.jit(lambda x: x * x.shape[1], symbolic=spec, constraints=constraints)
    outer = amdjax.jit(lambda x: inner(x) + 1, symbolic="n, m", constraints=outside)
    for shape in fitting:
        x = np.ones(shape, np.float32)
        np.testing.assert_array_equal(outer(x), x * shape[1] + 1)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        outer(np.ones(other, np.float32))
    assert "said to be" in str(caught.value)


def test_what_was_assumed_is_traced_once_and_kept_in_files():
    traced = []

    @amdjax.jit(symbolic="b, 2*t", constraints=["b <= 4", "mod(t, 3) == 0"])
    def inner(x):
        traced.append(x.shape)
        return x[:, ::2] * (x.shape[1] // 2)

    outer = amdjax.jit(lambda x: inner(x) + 1, symbolic="n, m")
    spec = amdjax.ShapeDtypeStruct(("n", "m"), jnp.float32)
    f = amdjax.jit(lambda x: inner(x) + 1)
    written = export.export(f)(spec).serialize()
    dynamic = amdjax.jit(lambda x: inner(x) + 1, dynamic="auto")
    for run in (outer, dynamic, f.lower(spec).compile(), export.deserialize(written).call):
        traced.clear()
        for n, m in [(2, 6), (3, 12), (4, 18)]:
            x = np.random.default_rng(n).integers(0, 9, (n, m)).astype(np.float32)
            np.testing.assert_array_equal(run(x), x[:, ::2] * (m // 2) + 1)
        assert len(traced) <= 2
        for wrong in [(5, 6), (3, 8), (3, 9)]:
            with pytest.raises(ValueError, match=r"does not hold|no size|trace and export it"):
                run(np.ones(wrong, np.float32))


def test_what_is_assumed_for_one_program_is_no_error_of_another():
    inner = amdjax.jit(lambda x: x * 2, symbolic="b, 2*t", constraints=["b + t == 7", "b >= 3"])
    f = amdjax.jit(lambda x, n: inner(x) if n else x + 1, symbolic="b, t", static_argnums=1)
    for shape, n in [((3, 8), 1), ((2, 3), 0), ((5, 4), 1), ((7, 9), 0)]:
        x = np.ones(shape, np.float32)
        np.testing.assert_array_equal(f(x, n), 2 * x)


def test_constraints_hold_of_the_sizes_of_dynamic_functions():
    inner = amdjax.jit(lambda x: x * 2, symbolic="b, ...", constraints=["b <= 4"])
    outer = amdjax.jit(lambda x: inner(x), dynamic="auto")
    for n in (2, 3, 4):
        np.testing.assert_array_equal(outer(rows(n)), 2 * rows(n))
    with pytest.raises(ValueError, match="constraint 'b <= 4' does not hold where b = 5"):
        outer(rows(5))
