"""Functions with derivatives of their own."""

import functools

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.errors import UnexpectedTracerError
from amdjax.core.jaxpr import eval_jaxpr
from amdjax.custom_derivatives import (
    CustomJVPException,
    CustomVJPException,
    CustomVJPPrimal,
    SymbolicZero,
)
from tests.support.lax_checks import close, total

X = np.array([0.3, -0.7, 1.2], np.float32)


# Rules with a recognizable factor show that it is they that are used.


@amdjax.custom_jvp
def sin7(x):
    return lax.sin(x)


sin7.defjvp(lambda p, t: (sin7(*p), lax.mul(lax.mul(t[0], lax.cos(p[0])), np.float32(7))))


@amdjax.custom_vjp
def sin9(x):
    return lax.sin(x)


sin9.defvjp(
    lambda x: (sin9(x), lax.cos(x)), lambda c, ct: (lax.mul(lax.mul(ct, c), np.float32(9)),)
)

CONTEXTS = {
    "eager": lambda f: f,
    "jit": amdjax.jit,
    "inner jit": lambda f: lambda x: amdjax.jit(f)(x),
    "checkpoint": amdjax.checkpoint,
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (c, f(x)), 0, None, length=1)[1][0:1],
    "cond": lambda f: lambda x: lax.cond(True, f, lambda x: x, x),
    "vmap": lambda f: lambda x: amdjax.vmap(f)(x),
    "vmap of jit": lambda f: lambda x: amdjax.vmap(amdjax.jit(f))(x),
}
del CONTEXTS["scan"]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(("f", "factor"), [(sin7, 7), (sin9, 9)])
def test_reverse_mode_uses_the_rule(context, f, factor):
    g = CONTEXTS[context](f)
    close(g(X), np.sin(X))
    close(amdjax.grad(lambda x: total(g(x)))(X), factor * np.cos(X))
    close(amdjax.jit(amdjax.grad(lambda x: total(g(x))))(X), factor * np.cos(X))
    each = amdjax.vmap(amdjax.grad(lambda x: total(g(lax.broadcast(x, (1,))))))(X)
    close(each, factor * np.cos(X))


@pytest.mark.parametrize("context", CONTEXTS)
def test_forward_mode_uses_the_rule(context):
    g = CONTEXTS[context](sin7)
    close(amdjax.jvp(g, (X,), (np.ones_like(X),))[1], 7 * np.cos(X))
    close(amdjax.jacfwd(g)(X), np.diag(7 * np.cos(X)))


@pytest.mark.parametrize("context", CONTEXTS)
def test_forward_mode_of_a_reverse_rule_is_refused(context):
    g = CONTEXTS[context](sin9)
    with pytest.raises(TypeError, match="forward-mode"):
        amdjax.jvp(g, (X,), (np.ones_like(X),))


def test_second_order():
    close(amdjax.grad(amdjax.grad(sin7))(0.3), -7 * np.sin(0.3))
    # cos(x) is a residual here, so it is differentiated as a part of the forward rule.
    close(amdjax.grad(amdjax.grad(sin9))(0.3), -9 * np.sin(0.3))
    close(amdjax.hessian(lambda x: total(sin7(x)))(X), np.diag(-7 * np.sin(X)))


def test_python_control_flow_on_values():
    @amdjax.custom_jvp
    def relu(x):
        return lax.mul(x, 1.0) if float(x) > 0 else lax.mul(x, 0.0)

    @relu.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return relu(x), (lax.mul(t, 2.0) if float(x) > 0 else lax.mul(t, 3.0))

    close(relu(2.0), 2.0)
    close(amdjax.grad(relu)(2.0), 2.0)
    close(amdjax.grad(relu)(-2.0), 3.0)


def test_nondiff_arguments():
    @amdjax.custom_jvp
    def jvp_apply(fn, x, power):
        return fn(x)

    jvp_apply.nondiff_argnums = (0, 2)
    jvp_apply.defjvp(lambda fn, power, p, t: (fn(*p), lax.mul(t[0], np.float32(power))))
    close(amdjax.grad(lambda x: jvp_apply(lax.sin, x, 5))(0.3), 5)

    from functools import partial

    @partial(amdjax.custom_vjp, nondiff_argnums=(0,), nondiff_argnames=("power",))
    def vjp_apply(fn, x, power=2):
        return fn(x)

    vjp_apply.defvjp(
        lambda fn, x, power: (fn(x), None),
        lambda fn, power, _, ct: (lax.mul(ct, np.float32(power)),),
    )
    close(amdjax.grad(lambda x: vjp_apply(lax.sin, x, power=6))(0.3), 6)
    close(amdjax.grad(lambda x: vjp_apply(lax.sin, x))(0.3), 2)
    with pytest.raises(UnexpectedTracerError, match="nondiff_argnums"):
        amdjax.jit(lambda x, n: vjp_apply(lax.sin, x, n))(0.3, 2)


def test_pytrees_and_none():
    @amdjax.custom_vjp
    def f(p, n):
        return {"out": lax.mul(p["a"], p["b"][0])}

    def fwd(p, n):
        return f(p, n), (p, "static", 3)

    def bwd(residuals, ct):
        p, label, number = residuals
        assert (label, number) == ("static", 3)
        return {"a": lax.mul(ct["out"], p["b"][0]), "b": None}, None

    f.defvjp(fwd, bwd)
    g = amdjax.grad(lambda p: total(f(p, 3)["out"]))({"a": X, "b": [2 * X]})
    close(g["a"], 2 * X)
    close(g["b"][0], np.zeros(3))


def test_symbolic_zeros():
    seen = []

    @amdjax.custom_vjp
    def f(x, y):
        return lax.mul(x, y), lax.add(x, y)

    def fwd(x, y):
        assert isinstance(x, CustomVJPPrimal)
        seen.append((x.perturbed, y.perturbed))
        return f(x.value, y.value), y.value

    def bwd(y, cts):
        seen.append(tuple(isinstance(ct, SymbolicZero) for ct in cts))
        return lax.mul(cts[0], y), None

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    close(amdjax.grad(lambda x: f(x, 3.0)[0])(2.0), 3.0)
    assert seen == [(True, False), (False, True)]

    @amdjax.custom_jvp
    def g(x, y):
        return lax.mul(x, y)

    def rule(primals, tangents):
        assert isinstance(tangents[1], SymbolicZero)
        return g(*primals), lax.mul(tangents[0], primals[1])

    g.defjvp(rule, symbolic_zeros=True)
    close(amdjax.grad(lambda x: g(x, 3.0))(2.0), 3.0)
    close(amdjax.jit(amdjax.grad(lambda x: g(x, 3.0)))(2.0), 3.0)


def test_defjvps():
    @amdjax.custom_jvp
    def f(x, y):
        return lax.mul(x, y)

    f.defjvps(lambda t, out, x, y: lax.mul(t, y), None)
    close(amdjax.grad(f, argnums=(0, 1))(2.0, 3.0), (3.0, 0.0))
    f.defjvps(lambda t, out, x, y: lax.mul(t, y), lambda t, out, x, y: lax.mul(t, x))
    close(amdjax.grad(f, argnums=(0, 1))(2.0, 3.0), (3.0, 2.0))


def test_methods_and_keywords():
    class Layer:
        @amdjax.custom_jvp
        def scaled(self, x):
            return lax.mul(x, 2.0)

    Layer.scaled.nondiff_argnums = (0,)
    Layer.scaled.defjvp(lambda self, p, t: (self.scaled(*p), lax.mul(t[0], 5.0)))
    close(amdjax.grad(lambda x: Layer().scaled(x))(1.0), 5.0)
    close(sin7(x=X), np.sin(X))
    assert sin7.__name__ == "sin7"


def test_closures_over_mapped_values():
    def f(y):
        @amdjax.custom_jvp
        def g(x):
            return lax.mul(x, y)

        g.defjvp(lambda p, t: (g(*p), lax.mul(t[0], y)))
        return g(2.0)

    close(amdjax.vmap(f)(X), 2 * X)
    close(amdjax.jit(f)(3.0), 6.0)
    close(amdjax.vmap(amdjax.jit(f))(X), 2 * X)


def test_derivatives_by_closed_over_values_are_refused():
    def by_jvp(y):
        @amdjax.custom_jvp
        def g(x):
            return lax.mul(x, y)

        g.defjvp(lambda p, t: (g(*p), t[0]))
        return g(2.0)

    def by_vjp(y):
        @amdjax.custom_vjp
        def g(x):
            return lax.mul(x, y)

        g.defvjp(lambda x: (g(x), None), lambda _, ct: (ct,))
        return g(2.0)

    for f, error in ((by_jvp, CustomJVPException), (by_vjp, CustomVJPException)):
        with pytest.raises(error, match="closes over"):
            amdjax.grad(amdjax.jit(f))(3.0)
        with pytest.raises((error, UnexpectedTracerError)):
            amdjax.grad(f)(3.0)


def test_closure_convert():
    def scaled(y):
        f, consts = amdjax.closure_convert(lambda x: lax.mul(lax.mul(x, y), X), 1.0)
        assert len(consts) == 1
        return total(f(2.0, *consts))

    close(amdjax.grad(scaled)(3.0), 2 * X.sum())
    close(amdjax.jit(amdjax.grad(scaled))(3.0), 2 * X.sum())


def test_custom_gradient():
    @amdjax.custom_gradient
    def f(x, y):
        z = lax.mul(x, y)
        return z, lambda ct: (lax.mul(ct, x), lax.mul(ct, z))

    close(f(2.0, 3.0), 6.0)
    close(amdjax.grad(f, argnums=(0, 1))(2.0, 3.0), (2.0, 6.0))
    close(amdjax.jit(amdjax.grad(f))(2.0, 3.0), 2.0)
    close(amdjax.vmap(amdjax.grad(f))(X, X), X)
    close(amdjax.grad(amdjax.grad(f))(2.0, 3.0), 1.0)


def with_jvp(rule):
    @amdjax.custom_jvp
    def f(x):
        return lax.sin(x)

    f.defjvp(rule)
    return lambda: amdjax.grad(lambda x: total(f(x)))(X)


def with_vjp(fwd, bwd):
    @amdjax.custom_vjp
    def f(x):
        return lax.sin(x)

    f.defvjp(fwd, bwd)
    return lambda: amdjax.grad(lambda x: total(f(x)))(X)


def plain(x):
    return lax.sin(x), None


ERRORS = {
    "no jvp": (lambda: amdjax.custom_jvp(lax.sin)(X), AttributeError, "No JVP defined for.* sin"),
    "no vjp": (lambda: amdjax.custom_vjp(lax.sin)(X), AttributeError, "No VJP defined for.* sin"),
    "jvp no pair": (with_jvp(lambda p, t: t[0]), TypeError, r"must produce a pair"),
    "jvp structure": (with_jvp(lambda p, t: (p[0], t)), TypeError, "equal container"),
    "jvp type": (with_jvp(lambda p, t: (p[0], total(t[0]))), TypeError, r"3\]\) but got"),
    "fwd no pair": (with_vjp(lambda x: x, lambda r, ct: (ct,)), TypeError, "result and residuals"),
    "bwd no tuple": (with_vjp(plain, lambda r, ct: ct), TypeError, "must produce a tuple"),
    "bwd length": (with_vjp(plain, lambda r, ct: (ct, ct)), TypeError, "tuple of length 2"),
    "bwd structure": (with_vjp(plain, lambda r, ct: ((ct, ct),)), TypeError, "not a valid"),
    "bwd shape": (with_vjp(plain, lambda r, ct: (total(ct),)), TypeError, r"\[\] .* float32\[3\]"),
    "argument name": (
        lambda: amdjax.custom_jvp(lambda x: x, nondiff_argnames=("y",)),
        ValueError,
        "'y'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_is_wrong(case):
    call, error, message = ERRORS[case]
    with pytest.raises((error, ValueError), match=message):
        call()


def scaled_sine(c, kind):
    """sin with the derivative c, a value that the rule closes over."""
    if kind == "jvp":
        f = amdjax.custom_jvp(lax.sin)
        f.defjvp(lambda primals, tangents: (lax.sin(primals[0]), lax.mul(c, tangents[0])))
    else:
        f = amdjax.custom_vjp(lax.sin)
        f.defvjp(lambda x: (lax.sin(x), None), lambda _, ct: (lax.mul(c, ct),))
    return f


def twice(f, x):
    return lax.scan(lambda carry, _: (f(carry), None), x, None, length=2)[0]


THROUGH = {
    "call": lambda f, x: f(x),
    "jit": lambda f, x: amdjax.jit(f)(x),
    "checkpoint": lambda f, x: amdjax.checkpoint(f)(x),
    "cond": lambda f, x: lax.cond(x > 0, f, lax.cos, x),
    "scan": twice,
    "scan in jit": lambda f, x: amdjax.jit(lambda x: twice(f, x))(x),
}


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
@pytest.mark.parametrize("through", THROUGH)
def test_rules_close_over_values_of_enclosing_functions(through, kind):
    apply = THROUGH[through]
    expected = 9.0 if "scan" in through else 3.0
    gradient = lambda c, x: amdjax.grad(lambda x: apply(scaled_sine(c, kind), x))(x)
    close(amdjax.jit(gradient)(3.0, 1.0), expected)
    close(amdjax.vmap(gradient, in_axes=(0, None))(np.array([3.0], np.float32), 1.0), [expected])
    close(amdjax.grad(gradient)(3.0, 1.0), 6.0 if "scan" in through else 1.0)
    if kind == "jvp":
        forward = lambda c, x: amdjax.jvp(lambda x: apply(scaled_sine(c, kind), x), (x,), (1.0,))
        close(amdjax.jit(forward)(3.0, 1.0)[1], expected)


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_rules_must_not_outlive_what_they_close_over(kind):
    inner = amdjax.jit(lambda c, x: scaled_sine(c, kind)(x))
    with pytest.raises(UnexpectedTracerError, match="escaped"):
        amdjax.grad(lambda x: inner(3.0, x))(1.0)


def test_python_numbers_reach_rules_as_arrays():
    seen = []

    @amdjax.custom_jvp
    def f(x):
        seen.append(x.dtype)
        return lax.mul(x, 2.0)

    @f.defjvp
    def rule(primals, tangents):
        seen.append(primals[0].dtype)
        return f(primals[0]), lax.mul(tangents[0], 2.0)

    @amdjax.custom_vjp
    def g(x):
        return lax.mul(x, 2.0)

    def fwd(x):
        seen.append(x.dtype)
        return g(x), x

    g.defvjp(fwd, lambda x, ct: (lax.mul(ct, lax.full_like(x, 2.0)),))
    assert amdjax.grad(f)(1.0) == amdjax.grad(g)(1.0) == 2.0
    assert f(3.0) == 6.0 and amdjax.jvp(f, (1.0,), (1.0,))[1] == 2.0
    assert set(seen) == {np.dtype("float32")}


# custom_vmap under derivatives: what a batch computes is what is differentiated.


def _squares_when_batched():
    @amdjax.custom_batching.custom_vmap
    def f(x, y):
        return jnp.sin(x), x * y

    @f.def_vmap
    def rule(size, batched, x, y):
        x = x if batched[0] else jnp.broadcast_to(x, (size,))
        y = y if batched[1] else jnp.broadcast_to(y, (size,))
        return (3 * x**2, x * y**2), (True, True)

    return f


BATCHED_FORM = lambda x, y: (3 * x**2, x * y**2)
BATCH = np.array([0.5, 1.0, 2.0], np.float32)
OTHER = np.array([3.0, -1.0, 0.5], np.float32)


@pytest.mark.parametrize("order", ["outside", "inside", "jit", "inside jit"])
@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize(
    "what", ["jvp", "grad", "linearize", "jvp of jvp", "hessian", "one result"]
)
def test_derivatives_of_custom_vmap_are_those_of_the_rule(what, in_axes, order):
    f = _squares_when_batched()
    args = [x if a == 0 else x[0] for x, a in zip((BATCH, OTHER), in_axes)]
    push = lambda f: lambda *args: amdjax.jvp(f, args, tuple(2 * a for a in args))
    transforms = {
        "jvp": push,
        "grad": lambda f: amdjax.grad(lambda x, y: sum(map(jnp.sum, f(x, y))), (0, 1)),
        "linearize": lambda f: lambda *args: amdjax.linearize(f, *args)[1](*args),
        "jvp of jvp": lambda f: push(push(f)),
        "hessian": lambda f: amdjax.hessian(lambda x, y: sum(map(jnp.sum, f(x, y))), (0, 1)),
        "one result": lambda f: amdjax.grad(lambda x, y: jnp.sum(f(x, y)[1])),
    }
    transform = transforms[what]
    apply = {
        "outside": lambda f: transform(amdjax.vmap(f, in_axes)),
        "inside": lambda f: amdjax.vmap(transform(f), in_axes),
        "jit": lambda f: amdjax.jit(transform(amdjax.jit(amdjax.vmap(f, in_axes)))),
        "inside jit": lambda f: amdjax.jit(amdjax.vmap(amdjax.jit(transform(f)), in_axes)),
    }[order]
    found, wanted = apply(f)(*args), apply(BATCHED_FORM)(*args)
    amdjax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, wanted)


@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 0)])
def test_custom_vmap_rules_are_told_what_primal_and_tangent_batch(in_axes):
    told = []

    @amdjax.custom_batching.custom_vmap
    def f(x):
        return 7 * x

    @f.def_vmap
    def rule(size, batched, x):
        told.append((size, batched, x.shape))
        return 11 * x, batched[0]

    both = in_axes == (0, 0)
    args = [BATCH if a == 0 else 2.0 for a in in_axes]
    push = lambda x, t: amdjax.jvp(f, (x,), (t,))
    outs = amdjax.vmap(push, in_axes, out_axes=in_axes)(*args)  # a shared tangent stays shared
    assert told == [(3, [both], (3,) if both else ())]
    for out, arg in zip(outs, args):
        np.testing.assert_allclose(out, 11 * arg)


def test_custom_vmap_of_integers_and_a_symbolic_batch():
    f = amdjax.custom_batching.custom_vmap(lambda i, x: (i + 1, 2 * x))
    f.def_vmap(lambda size, batched, i, x: ((i + 1, 3 * x), (True, True)))
    of = lambda i, x: amdjax.jvp(lambda x: f(i, x)[1], (x,), (x,))
    many = amdjax.jit(amdjax.vmap(of), symbolic="n, ...")
    for n in (2, 5):
        i, x = np.arange(3 * n, dtype=np.int32).reshape(n, 3), np.ones((n, 3), np.float32)
        close(many(i, x)[0], 3 * x)
        close(many(i, x)[1], 3 * x)


def test_custom_vmap_without_a_batch_is_the_function():
    f = _squares_when_batched()
    a, b = amdjax.grad(lambda x, y: sum(f(x, y)), (0, 1))(0.5, 2.0)
    np.testing.assert_allclose([a, b], [np.cos(0.5) + 2, 0.5], rtol=1e-6)


def pair_function(decorate):
    @decorate
    def f(x, y):
        return jnp.sin(x), x + jnp.cos(y)

    return f


def ruled(kind):
    """A function of two results, with forward or reverse rules that differ from its derivative."""
    f = pair_function(amdjax.custom_jvp if kind == "jvp" else amdjax.custom_vjp)
    if kind == "jvp":
        f.defjvp(lambda p, t: (f(*p), (2 * t[0], 3 * t[0] + 5 * t[1])))
    else:
        f.defvjp(lambda x, y: (f(x, y), None), lambda _, g: (2 * g[0] + 3 * g[1], 5 * g[1]))
    return f


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
@pytest.mark.parametrize("used, gradient", [((1, 0), (2, 0)), ((0, 1), (3, 5)), ((1, 1), (5, 5))])
def test_results_that_nothing_reads_leave_the_program_and_keep_the_rule(kind, used, gradient):
    closed = amdjax.make_jaxpr(ruled(kind))(0.1, 0.2)
    jaxpr, kept = dce_jaxpr(closed.jaxpr, list(map(bool, used)))
    assert kept == [True, True]
    names = {e.primitive.name for e in jaxpr.eqns[0].params["call_jaxpr"].eqns}
    assert ("sin" in names, "cos" in names) == tuple(map(bool, used))
    total = lambda *xs: sum(eval_jaxpr(jaxpr, [], *xs))
    assert tuple(map(float, amdjax.grad(total, (0, 1))(0.1, 0.2))) == gradient


def test_tangents_known_to_be_zero_stay_so_under_vmap():
    seen = []

    @amdjax.custom_jvp
    def f(x, y):
        return x * y

    @functools.partial(f.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        seen.append([type(t) is SymbolicZero for t in tangents])
        return f(*primals), primals[1] * tangents[0]

    x = jnp.arange(3.0)
    g = lambda x: amdjax.vmap(f)(x, x + 1)
    h = lambda x: amdjax.vmap(lambda x, y: amdjax.jvp(lambda x: f(x, y), (x,), (1.0,))[1])(x, x + 1)
    np.testing.assert_array_equal(h(x), x + 1)
    assert seen == [[False, True]]
    y = 2 * jnp.ones(3)
    _, tangent = amdjax.jvp(lambda x: amdjax.vmap(f)(x, y), (x,), (x,))
    np.testing.assert_array_equal(tangent, 2 * x)
    assert seen[1] == [False, True]
    assert g(x).shape == (3,)


@pytest.mark.parametrize("shape, structure", [((3,), False), ((), True)])
@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_results_of_rules_are_checked_against_the_function(kind, shape, structure):
    f = (amdjax.custom_jvp if kind == "jvp" else amdjax.custom_vjp)(lambda x: x)
    bad = (lambda x: (x, x)) if structure else (lambda x: jnp.full(shape, x))
    if kind == "jvp":
        f.defjvp(lambda p, t: (bad(*p), bad(*t)))
    else:
        f.defvjp(lambda x: (bad(x), None), lambda _, g: (g,))
    loop = lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]
    with pytest.raises(TypeError, match="output's first element had"):
        amdjax.grad(loop)(1.0)


def test_a_cotangent_stands_for_all_leaves_of_its_argument():
    f = amdjax.custom_vjp(lambda d: d["a"] * d["b"])
    f.defvjp(lambda d: (f(d), None), lambda _, g: (g,))
    assert amdjax.tree.map(float, amdjax.grad(f)({"a": 2.0, "b": 3.0})) == {"a": 1.0, "b": 1.0}


def test_cotangents_of_other_shapes_name_the_argument():
    f = amdjax.custom_vjp(lambda d, y: d["a"] * y)
    f.defvjp(lambda d, y: (f(d, y), None), lambda _, g: ({"a": jnp.ones(2)}, g))
    match = r"output\[0\]\['a'\] the bwd rule produced an output of type float32\[2\]"
    with pytest.raises(ValueError, match=match):
        amdjax.grad(f)({"a": 1.0}, 2.0)


def test_cotangents_may_be_of_another_width():
    f = amdjax.custom_vjp(lambda x: 2 * x)
    f.defvjp(lambda x: (f(x), None), lambda _, g: (jnp.ones(2, np.float32),))
    assert amdjax.grad(lambda x: f(x).sum())(jnp.ones(2, "bfloat16")).dtype == np.float32


def test_rules_are_set_through_decorators():
    f = amdjax.custom_vjp(amdjax.custom_batching.custom_vmap(jnp.sin))
    f.def_vmap(lambda size, batched, x: (jnp.cos(x), batched[0]))
    f.defvjp(lambda x: (f(x), x), lambda x, g: (7 * g,))
    np.testing.assert_array_equal(amdjax.vmap(f)(jnp.zeros(2)), [1, 1])
    assert float(amdjax.grad(f)(0.0)) == 7
    with pytest.raises(AttributeError, match="no attribute 'defjvp'"):
        f.defjvp(None)


def test_integers_have_jacobians_of_zeros():
    jac = amdjax.jacrev(lambda x, i: x * i, argnums=(0, 1), allow_int=True)
    by_x, by_i = jac(jnp.ones(2), np.array([7, 8], np.int32))
    np.testing.assert_array_equal(by_x, np.diag([7, 8]))
    assert (by_i.shape, by_i.dtype, by_i.any()) == ((2, 2), np.int32, False)


def test_results_that_depend_on_the_batch_in_their_tangents_alone():
    @amdjax.custom_jvp
    def constant(x):
        return lax.cos(0.0)

    constant.defjvp(lambda primals, tangents: (constant(*primals), primals[0] * tangents[0]))

    def f(scale):
        inner = lambda row: lax.map(lambda x: constant(scale * x), row)
        return amdjax.vmap(inner)(jnp.arange(6.0).reshape(2, 3)).sum()

    for g in (amdjax.grad(f), amdjax.jit(amdjax.grad(f))):
        assert float(g(2.0)) == 2 * sum(i * i for i in range(6))


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("f", [sin7, sin9])
def test_recorded_calls_keep_no_tracers_alive(f, context):
    g = CONTEXTS[context](f)
    with amdjax.checking_leaks():
        amdjax.jit(lambda x: g(2 * x))(X)
        amdjax.jit(lambda x: amdjax.vjp(g, 2 * x)[0])(X)
