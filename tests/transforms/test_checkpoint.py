"""checkpoint: what is kept, what is computed again."""

import numpy as np
import pytest

import amdjax
from amdjax import checkpoint_policies as policies, lax
from amdjax.ad_checkpoint import checkpoint_name
from amdjax.core.check import check_jaxpr
from amdjax.core.jaxpr import subjaxprs
from tests.support.lax_checks import close, total

X = np.array([0.3, -0.7, 1.2], np.float32)
W = np.arange(9, dtype=np.float32).reshape(3, 3) / 10


def layer(x, w):
    y = lax.dot_general(x, w, (((0,), (0,)), ((), ())))
    z = checkpoint_name(lax.sin(y), "z")
    return lax.sin(lax.mul(z, z))


def count(closed, name):
    """How often a primitive occurs, in nested programs too."""
    return sum(e.primitive.name == name for e in closed.eqns) + sum(
        count(sub, name) for sub in subjaxprs(closed)
    )


KEEP_Z = policies.save_only_these_names("z")

# name: (policy, sines and products computed in all by the gradient)
KEPT = {
    "nothing": (None, 3, 3),
    "nothing_saveable": (policies.nothing_saveable, 3, 3),
    "everything_saveable": (policies.everything_saveable, 2, 2),
    "dots_saveable": (policies.dots_saveable, 3, 2),
    "dots_with_no_batch_dims_saveable": (policies.dots_with_no_batch_dims_saveable, 3, 2),
    "save_only_these_names": (KEEP_Z, 2, 3),
    "other names": (policies.save_only_these_names("y"), 3, 3),
    "save_any_names_but_these": (policies.save_any_names_but_these("z"), 3, 3),
    "save_anything_except_these_names": (policies.save_anything_except_these_names("z"), 2, 2),
    "both": (
        policies.save_from_both_policies(policies.dots_saveable, KEEP_Z),
        2,
        2,
    ),
    "offload": (policies.offload_dot_with_no_batch_dims("device", "pinned_host"), 3, 2),
    "save and offload": (
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["z"],
            offload_src="device",
            offload_dst="pinned_host",
        ),
        2,
        3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("inner_jit", [False, True])
def test_policies(name, inner_jit):
    policy, sines, products = KEPT[name]
    if inner_jit and policy is None:
        pytest.skip("same without a policy")
    f = amdjax.checkpoint(amdjax.jit(layer) if inner_jit else layer, policy=policy)
    g = amdjax.grad(lambda x: total(f(x, W)))
    closed = amdjax.make_jaxpr(g)(X)
    check_jaxpr(closed)
    assert count(closed, "sin") == sines
    # One product more is the derivative itself.
    assert count(closed, "dot_general") == products
    close(g(X), amdjax.grad(lambda x: total(layer(x, W)))(X))


@pytest.mark.parametrize(
    "policy", [None, policies.dots_saveable, policies.save_only_these_names("z")]
)
def test_transforms_of_checkpointed_functions(policy):
    f = amdjax.checkpoint(layer, policy=policy)
    plain = lambda x: total(layer(x, W))
    kept = lambda x: total(f(x, W))
    close(kept(X), plain(X))
    close(amdjax.jvp(kept, (X,), (X,)), amdjax.jvp(plain, (X,), (X,)))
    close(amdjax.hessian(kept)(X), amdjax.hessian(plain)(X), 1e-4)
    close(amdjax.jacrev(amdjax.grad(kept))(X), amdjax.hessian(plain)(X), 1e-4)
    batch = np.stack([X, 2 * X])
    close(amdjax.vmap(amdjax.grad(kept))(batch), amdjax.vmap(amdjax.grad(plain))(batch))
    mapped = lambda x: total(amdjax.vmap(f, (0, None))(x, W))
    close(amdjax.grad(mapped)(batch), amdjax.vmap(amdjax.grad(plain))(batch))
    close(amdjax.jit(amdjax.grad(kept))(X), amdjax.grad(plain)(X))


def test_nested():
    f = amdjax.checkpoint(lambda x: lax.sin(amdjax.checkpoint(lambda y: lax.sin(lax.sin(y)))(x)))
    g = lambda x: lax.sin(lax.sin(lax.sin(x)))
    close(amdjax.grad(f)(0.3), amdjax.grad(g)(0.3))
    close(amdjax.grad(amdjax.grad(f))(0.3), amdjax.grad(amdjax.grad(g))(0.3))


def test_static_arguments_and_closures():
    @amdjax.checkpoint
    def plain(x):
        return lax.mul(lax.sin(x), lax.sin(x))

    def power(x, n):
        for _ in range(n):
            x = lax.sin(x)
        return x

    f = amdjax.checkpoint(power, static_argnums=(1,))
    close(amdjax.grad(f)(0.3, 2), np.cos(np.sin(0.3)) * np.cos(0.3))
    named = amdjax.checkpoint(static_argnames="n")(power)
    for call in (lambda x: named(x, 2), lambda x: named(x, n=2)):
        close(amdjax.grad(call)(0.3), np.cos(np.sin(0.3)) * np.cos(0.3))
    with pytest.raises(ValueError, match="missing"):
        amdjax.checkpoint(power, static_argnames=("missing",))
    close(amdjax.grad(plain)(0.3), np.sin(0.6))
    close(amdjax.grad(lambda y: amdjax.checkpoint(lambda x: lax.mul(x, y))(2.0))(3.0), 2.0)
    with pytest.raises(NotImplementedError, match="static_argnums"):
        amdjax.checkpoint(power, concrete=True)


_twice = lambda f: amdjax.checkpoint(amdjax.checkpoint(f))
_in_loop = lambda f: amdjax.checkpoint(
    lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0]
)


@pytest.mark.parametrize(
    ("wrap", "calls"),
    [
        (amdjax.checkpoint, 2),
        (_twice, 3),
        (lambda f: amdjax.checkpoint(amdjax.jit(f)), 2),
        (lambda f: amdjax.checkpoint(f, policy=lambda *_, **__: True), 2),
        (_in_loop, 6),
        (lambda f: lambda x: lax.cond(x > 0, amdjax.checkpoint(f), lambda x: x, x), 2),
    ],
)
@pytest.mark.parametrize("ordered", [False, True])
def test_effects_happen_again(wrap, calls, ordered):
    """As often as in JAX: what is computed again calls again."""
    seen = []

    def f(x):
        amdjax.debug.callback(lambda v: seen.append(float(v)), x, ordered=ordered)
        return lax.sin(lax.sin(x))

    for grad in (amdjax.grad(wrap(f)), amdjax.jit(amdjax.grad(wrap(f)))):
        seen.clear()
        grad(0.5)
        assert len(seen) == calls


def test_saved_residuals(capsys):
    amdjax.ad_checkpoint.print_saved_residuals(lambda x: total(layer(x, W)), X)
    before = capsys.readouterr().out
    assert "output of cos from" in before
    assert "test_checkpoint.py" in before
    amdjax.ad_checkpoint.print_saved_residuals(lambda x: total(amdjax.checkpoint(layer)(x, W)), X)
    after = capsys.readouterr().out
    assert "cos" not in after
    assert "from the argument x" in after


@pytest.mark.parametrize("wrap", [lambda f: f, amdjax.checkpoint])
def test_saved_residuals_by_name(wrap):
    def f(x, y):
        return y * W[0] * x * checkpoint_name(lax.sin(x), "z")

    f = amdjax.checkpoint(f, policy=KEEP_Z) if wrap is amdjax.checkpoint else f
    texts = [text for _, text in amdjax.ad_checkpoint.saved_residuals(f, X, X)]
    assert sum(text.startswith("named 'z' from") for text in texts) == 1
    given = [text for text in texts if text.startswith("from")]
    assert given == texts[: len(given)]
    assert "from the argument x" in given
    assert given[:-1] == sorted(given[:-1], key=lambda text: text != "from a constant")


def test_a_checkpointed_function_is_traced_once():
    traces = []

    def f(x, power):
        traces.append(power)
        return x**power

    f = amdjax.checkpoint(f, static_argnums=1)
    for power in (2, 3, 2, 2.0, 3):
        close(f(X, power), X**power)
        close(amdjax.grad(lambda x, p=power: total(f(x, p)))(X), power * X ** (power - 1))
    assert traces == [2, 3, 2.0]
    # What is closed over from another trace is of that trace.
    outer = amdjax.vmap(lambda w: amdjax.checkpoint(lambda x: x * w)(2.0))
    close(outer(X), 2 * X)
    scaled = lambda x, w: [amdjax.checkpoint(lambda y: y * w)(x) for w in (w, 2 * w)]
    close(amdjax.jit(scaled)(X, 3.0), [3 * X, 6 * X])


# policy: products and sines in the gradient of a checkpointed loop, as JAX has them
IN_LOOPS = {
    None: (4, 2),
    policies.dots_saveable: (3, 2),
    policies.everything_saveable: (3, 1),
    policies.nothing_saveable: (4, 2),
}


# the same of a branch, and of one that is taken in a step
IN_BRANCHES = {
    None: (8, 2, 3),
    policies.dots_saveable: (5, 2, 3),
    policies.everything_saveable: (5, 0, 0),
    policies.nothing_saveable: (8, 2, 3),
}


@pytest.mark.parametrize("policy", IN_BRANCHES)
def test_policies_look_into_branches(policy):
    def branch(x, w):
        for _ in range(3):
            x = lax.sin(lax.dot(x, w))
        return x

    def f(w):
        return lax.cond(total(X) > 0, branch, lambda x, w: x * w[0], X, w)

    checkpointed = amdjax.checkpoint(f, policy=policy)
    y, f_vjp = amdjax.vjp(checkpointed, W)
    backward = amdjax.make_jaxpr(f_vjp)(y)
    names = "dot_general", "sin", "cos"
    assert tuple(count(backward.jaxpr, name) for name in names) == IN_BRANCHES[policy]
    close(amdjax.jacrev(checkpointed)(W), amdjax.jacrev(f)(W))

    def steps(f, w):
        step = lambda c, _: (c + lax.cond(total(c) > 1, branch, lambda x, w: x * w[0], c, w), None)
        return total(f(lambda w: lax.scan(step, X, None, length=3)[0])(w))

    for again in (lambda f: f, amdjax.jit, lambda f: lambda w: amdjax.vmap(f)(w[None])[0]):
        remat = amdjax.checkpoint(policy=policy)
        got = amdjax.grad(lambda w, a=again, r=remat: steps(lambda f: a(r(f)), w))(W)
        close(got, amdjax.grad(lambda w: steps(lambda f: f, w))(W))


def loop(x, w, nested):
    def step(c, _):
        return lax.sin(lax.dot(c, w)), None

    def outer(c, _):
        return lax.scan(step, c, None, length=2)

    return total(lax.scan(outer if nested else step, x, None, length=3)[0])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("policy", IN_LOOPS)
def test_policies_look_into_loops(policy, nested):
    f = amdjax.checkpoint(lambda x, w: loop(x, w, nested), policy=policy)
    gradient = amdjax.make_jaxpr(amdjax.grad(f, argnums=(0, 1)))(X, W)
    check_jaxpr(gradient.jaxpr)
    assert (count(gradient.jaxpr, "dot_general"), count(gradient.jaxpr, "sin")) == IN_LOOPS[policy]
    plain = amdjax.grad(lambda x, w: loop(x, w, nested), argnums=(0, 1))
    for got, expected in zip(amdjax.grad(f, argnums=(0, 1))(X, W), plain(X, W)):
        close(got, expected)
    close(amdjax.hessian(f)(X, W), amdjax.hessian(lambda x, w: loop(x, w, nested))(X, W))


def test_operations_in_python_run_inside():
    double_p = amdjax.extend.core.Primitive("double")
    double_p.def_impl(lambda x: x + x)
    double_p.def_abstract_eval(lambda x: x)
    double_p.def_jvp(lambda primals, tangents: (double_p.bind(*primals), 2 * tangents[0]))
    inner = amdjax.checkpoint(lambda x: double_p.bind(x) * x)
    outer = amdjax.checkpoint(lambda x: double_p.bind(inner(x)))
    close(outer(X), 4 * X * X)
    close(amdjax.grad(lambda x: total(outer(x)))(X), 8 * X)


def test_what_is_computed_again_says_so():
    f = amdjax.checkpoint(lambda x: lax.sin(lax.sin(x)))
    text = amdjax.make_jaxpr(amdjax.grad(f))(1.0).jaxpr.pretty_print(name_stack=True)
    again = [line for line in text.splitlines() if "rematted_computation" in line]
    assert len(again) == 3 and all("sin" in line or "cos" in line for line in again)


def test_a_flag_of_recomputation_for_each_argument():
    f = amdjax.checkpoint(
        lambda x: lax.sin(x["a"]) * x["b"], prevent_cse=({"a": True, "b": False},)
    )
    assert float(amdjax.grad(f)({"a": 0.0, "b": 2.0})["a"]) == 2
    with pytest.raises(TypeError, match="prevent_cse must be a bool or tuple of bools, got None"):
        amdjax.checkpoint(lax.sin, prevent_cse=None)


def test_values_that_are_kept_are_computed_on_with_as_they_are_kept():
    """A kernel may hold a product of bfloat16 in float32; what is kept has lost those bits."""
    x = np.full(4, 1 + 2**-7).astype("bfloat16")

    @amdjax.custom_vjp
    def widened(x):
        return lax.convert_element_type(x, np.float32)

    widened.defvjp(lambda x: (widened(x), x), lambda kept, _: (kept,))

    @amdjax.jit
    @amdjax.checkpoint(policy=policies.everything_saveable)
    def f(x):
        return widened(lax.mul(x, x))

    y, pullback = amdjax.vjp(f, x)
    np.testing.assert_array_equal(y, np.asarray(x * x, np.float32))
    pullback(y)
