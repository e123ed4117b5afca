"""Which results are weakly typed: as in JAX, whose answers are recorded here."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax

# Python numbers and what is computed from them are weak, all else is strong.
POINTS = {"number": lambda: 2.0, "weak": lambda: jnp.asarray(2.0), "strong": lambda: jnp.float32(2)}

square = lambda x: x * x


@amdjax.custom_vjp
def tripled(x):
    return 3 * x


tripled.defvjp(lambda x: (3 * x, None), lambda _, ct: (3 * ct,))


@amdjax.custom_jvp
def doubled(x):
    return 2 * x


doubled.defjvp(lambda primals, tangents: (2 * primals[0], 2 * tangents[0]))

# What follows its argument: weak for weak points, strong for strong ones.
FOLLOWS = {
    "grad": amdjax.grad(square),
    "grad of sin": amdjax.grad(jnp.sin),
    "grad of a constant": amdjax.grad(lambda x: 3.0),
    "grad of the identity": amdjax.grad(lambda x: x),
    "value_and_grad": amdjax.value_and_grad(square),
    "grad of grad": amdjax.grad(amdjax.grad(lambda x: x**3)),
    "jit of grad": amdjax.jit(amdjax.grad(square)),
    "jit of a sum of two slopes": amdjax.jit(amdjax.grad(lambda x: x**x)),
    "grad of jit": amdjax.grad(amdjax.jit(square)),
    "jacrev": amdjax.jacrev(square),
    "jacfwd": amdjax.jacfwd(square),
    "hessian": amdjax.hessian(lambda x: x**3),
    "vjp": lambda x: amdjax.vjp(square, x)[1](x),
    "jvp": lambda x: amdjax.jvp(square, (x,), (x,)),
    "linearize": lambda x: amdjax.linearize(square, x)[1](x),
    "linear_transpose": lambda x: amdjax.linear_transpose(lambda x: 3 * x, x)(x),
    "custom_vjp": amdjax.grad(tripled),
    "custom_jvp": amdjax.grad(doubled),
    "custom_gradient": amdjax.grad(amdjax.custom_gradient(lambda x: (x * x, lambda g: g * x))),
    "checkpoint": amdjax.grad(amdjax.checkpoint(square)),
    "cond": amdjax.grad(lambda x: lax.cond(True, square, lambda x: x, x)),
    "scan": amdjax.grad(lambda x: lax.scan(lambda c, _: (c * x, None), x, None, length=2)[0]),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", FOLLOWS)
def test_derivatives_are_as_weak_as_their_arguments(name, point):
    for out in amdjax.tree.leaves(FOLLOWS[name](POINTS[point]())):
        assert isinstance(out, amdjax.Array)
        assert out.dtype == np.float32
        assert out.weak_type == (point != "strong")


def test_jacobians_have_the_types_of_argument_and_result():
    mixed = lambda x, y: x * y
    weak = lambda jac: [block.weak_type for block in jac(mixed, (0, 1))(2.0, jnp.float32(3))]
    assert weak(amdjax.jacrev) == [True, False]
    assert weak(amdjax.jacfwd) == [False, False]
    halved = lambda x: x.astype(jnp.float16)
    assert amdjax.jacrev(halved)(jnp.ones(2)).dtype == np.float32
    assert amdjax.jacfwd(halved)(jnp.ones(2)).dtype == np.float16


# Carries that the body promotes are no longer weak.
PROMOTED = {
    "scan": lambda x: lax.scan(lambda c, _: (c * x, c), 1, None, length=2),
    "while": lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * x, 1),
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, c: c * x, 1),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", PROMOTED)
def test_promoted_carries(name, point):
    for out in amdjax.tree.leaves(PROMOTED[name](POINTS[point]())):
        assert (out.dtype, out.weak_type) == (np.float32, False)


def test_collectives():
    def f(x):
        return lax.psum(1, "i"), lax.psum(2.0, "i"), lax.pmean(2.0, "i"), lax.pmean(1, "i")

    outs = amdjax.vmap(f, axis_name="i")(jnp.arange(2))
    assert [o.weak_type for o in outs] == [True] * 4
    assert [str(o.dtype) for o in outs] == ["int32", "float32", "float32", "float32"]
    index = amdjax.vmap(lambda x: lax.axis_index("i") + x, axis_name="i")(jnp.arange(2, dtype="i1"))
    assert (index.dtype, index.weak_type) == (np.int32, False)


def test_rules_are_given_arrays():
    seen = []

    @amdjax.custom_vjp
    def f(x):
        return x

    def bwd(_, ct):
        seen.append(ct)
        return (ct.at[...].add(1),)

    f.defvjp(lambda x: (x, None), bwd)
    assert float(amdjax.grad(f)(1.0)) == 2
    assert float(amdjax.grad(lambda x: f(x)[None].sum() * 0 + x)(1.0)) == 2
    assert all(isinstance(ct, amdjax.Array) for ct in seen)


# Wide values beside narrow ones: without x64 what an operation makes of 64 bits and of anything
# else has 32, and what it makes of one array keeps its type.


def wide():
    with amdjax.enable_x64(True):
        return jnp.ones(3) * 2.0


NARROWING = {
    "add": (lambda y: y + 1, "float32"),
    "add reflected": (lambda y: 1 - y, "float32"),
    "maximum": (lambda y: jnp.maximum(y, 0), "float32"),
    "sum": (lambda y: y.sum(), "float32"),
    "mean": (lambda y: y.mean(), "float32"),
    "jit": (amdjax.jit(lambda y: y * 2), "float32"),
    "sin": (jnp.sin, "float64"),
    "negative": (lambda y: -y, "float64"),
    "equal types": (lambda y: y + y, "float64"),
    "grad": (amdjax.grad(lambda y: y.sum()), "float64"),
    "broadcast": (lambda y: jnp.broadcast_to(y, (2, 3)), "float64"),
    "index": (lambda y: y[0], "float64"),
}


@pytest.mark.parametrize("name", NARROWING)
def test_wide_arrays_without_x64(name):
    f, dtype = NARROWING[name]
    assert str(f(wide()).dtype) == dtype
    with amdjax.enable_x64(True):
        assert str(f(wide()).dtype) == "float64"


def test_x64_inside_a_compiled_function():
    @amdjax.jit
    def f(x):
        with amdjax.enable_x64(True):
            y = x.astype("float64") + 1e-12
        return y, y * 2, (y - 1).astype("float32")

    y, doubled, rest = f(jnp.ones(3))
    assert [str(a.dtype) for a in (y, doubled, rest)] == ["float64", "float32", "float32"]
    np.testing.assert_array_equal(y, np.full(3, 1 + 1e-12))
    np.testing.assert_array_equal(doubled, np.full(3, 2, np.float32))


CALLS = {
    "jit": amdjax.jit(jnp.sin),
    "checkpoint": amdjax.checkpoint(jnp.sin),
    "cond": lambda x: lax.cond(x > 0, jnp.sin, lambda x: x, x),
    "switch": lambda x: lax.switch(1, [jnp.cos, jnp.sin, lambda x: x], x),
    "scan": lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=2)[0],
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_as_weak_as_cotangents(name):
    _, f_vjp = amdjax.vjp(CALLS[name], 2.0)
    assert not f_vjp(jnp.float32(1))[0].weak_type
    assert amdjax.grad(CALLS[name])(2.0).weak_type


# Of a weakly typed argument: the derivative in forward and in reverse mode.
SLOPES = {
    "power of a number": (lambda x: x**3.0, False, False),
    "integer power": (lambda x: x**3, True, True),
    "exponential": (lambda x: 3.0**x, False, True),
    "frexp": (lambda x: jnp.frexp(x)[0], False, True),
    "ldexp": (lambda x: jnp.ldexp(x, 2), False, True),
}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_of_operations_that_convert(name):
    f, forward, reverse = SLOPES[name]
    assert amdjax.jvp(f, (2.5,), (1.0,))[1].weak_type == forward
    assert amdjax.grad(f)(2.5).weak_type == reverse


def test_branches_have_the_weakness_of_the_first():
    strong, weak = lambda x: x * np.float32(3), lambda x: x
    assert lax.cond(True, strong, weak, 2.0).weak_type
    assert not lax.cond(True, weak, strong, 2.0).weak_type
