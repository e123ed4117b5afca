import itertools
import operator
from functools import partial, reduce

import numpy as np
import pytest
from hypothesis import given, strategies as st

import amdjax
import amdjax.numpy as jnp
from amdjax import grad, jvp, lax, linear_transpose, vjp, vmap
from amdjax.core.check import check_jaxpr
from amdjax.core.config import enable_x64
from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.errors import JaxprTypeError
from amdjax.test_util import check_grads
from amdjax.transforms.staging import make_jaxpr

pytestmark = pytest.mark.usefixtures("double_precision")


def rows(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def close(got, wanted, rtol=1e-9):
    """Compare pytrees; a list is an array."""
    is_list = lambda x: isinstance(x, list)
    got, wanted = (amdjax.tree.leaves(x, is_leaf=is_list) for x in (got, wanted))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-10)


def eqns(fun, *args, name):
    """The equations of a primitive in the program of a function."""
    return [e for e in make_jaxpr(fun)(*args).eqns if e.primitive.name == name]


# cond and switch


@pytest.mark.parametrize("pred", [True, False, 1, 0, 0.5, np.bool_(True), np.zeros((), np.int8)])
def test_cond_chooses(pred):
    left = lambda x: {"a": x + 1, "b": (x,)}
    right = lambda x: {"a": -x, "b": (x,)}
    fun = lambda p, x: lax.cond(p, left, right, x)
    wanted = {"a": 4.0 if pred else -3.0, "b": (3.0,)}
    close(fun(pred, 3.0), wanted)
    close(amdjax.jit(fun)(pred, 3.0), wanted)


def test_cond_forms():
    close(lax.cond(True, lambda: 1.0, lambda: 2.0), 1.0)
    close(lax.cond(False, lambda x: x[0], lambda x: x[1], operand=(1.0, 2.0)), 2.0)
    close(lax.cond(False, 1.0, lambda x: x, 2.0, lambda x: x * 10), 20.0)


def test_cond_runs_one_branch():
    seen = []

    def note(x):
        amdjax.debug.callback(lambda v: seen.append(float(v)), x, ordered=True)
        return x

    amdjax.jit(lambda p: lax.cond(p, lambda: note(1.0), lambda: note(2.0)))(False)
    assert seen == [2.0]


def test_cond_captures_values_of_both_branches():
    def fun(p, a, b):
        return lax.cond(p, lambda x: x * a, lambda x: x + b + a, 2.0)

    close(amdjax.jit(fun)(True, 3.0, 5.0), 6.0)
    close(amdjax.jit(fun)(False, 3.0, 5.0), 10.0)
    close(grad(fun, (1, 2))(True, 3.0, 5.0), (2.0, 0.0))
    close(grad(fun, (1, 2))(False, 3.0, 5.0), (1.0, 1.0))


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switch_clamps(index):
    branches = [lambda x: x, lambda x: x * x, lambda x: -x]
    wanted = [3.0, 9.0, -3.0][min(max(index, 0), 2)]
    close(lax.switch(index, branches, 3.0), wanted)
    close(amdjax.jit(lambda i: lax.switch(i, branches, 3.0))(index), wanted)
    indices = np.array([index, 1])
    close(vmap(lambda i: lax.switch(i, branches, 3.0))(indices), [wanted, 9.0])


def test_switch_of_one_branch_is_a_call():
    assert not eqns(lambda x: lax.switch(4, [jnp.sin], x), 1.0, name="cond")


def test_branches_that_keep_different_residuals():
    # Different numbers and types of values are needed for the derivative of each branch.
    many = lambda x: jnp.sin(x) * jnp.cos(x) * jnp.exp(x)
    few = lambda x: jnp.sum(x) * jnp.ones_like(x)
    fun = lambda x: lax.cond(jnp.sum(x) > 0, many, few, x)
    for x in (rows(3), -rows(3), np.abs(rows(3))):
        check_grads(fun, (x,), order=2)


def test_cond_of_integers_and_floats():
    fun = lambda x: lax.cond(x > 0, lambda x: (x * 2, 1), lambda x: (x, 0), x)
    close(vjp(fun, 3.0)[1]((1.0, np.zeros((), amdjax.float0))), (2.0,))
    (y, i), (dy, di) = jvp(fun, (3.0,), (1.0,))
    assert (float(y), int(i), float(dy)) == (6.0, 1, 2.0)
    assert di.dtype == amdjax.float0


def test_batched_predicate_selects():
    fun = lambda p, x, y: lax.cond(p, lambda x, y: (x + y, y), lambda x, y: (x * y, y), x, y)
    x, p = rows(4), np.array([True, False, True, False])
    close(vmap(fun, (0, 0, None))(p, x, 3.0), (np.where(p, x + 3, x * 3), np.full(4, 3.0)))
    assert not eqns(vmap(fun, (0, 0, None)), p, x, 3.0, name="cond")


def test_batched_operands_stay_a_cond():
    fun = lambda p, x: lax.cond(p, jnp.sin, lambda x: x, x)
    x = rows(2, 3)
    close(vmap(fun, (None, 1), 1)(True, x), np.sin(x))
    assert eqns(vmap(fun, (None, 1)), True, x, name="cond")


def test_cond_prints():
    fun = lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x * 2, x)
    with enable_x64(False):
        text = str(make_jaxpr(fun)(True, np.float32(1)))
    assert (
        """cond[
      branches=(
        { lambda ; e:f32[]. let f:f32[] = mul e 2.0:f32[] in (f,) }
        { lambda ; g:f32[]. let h:f32[] = add g 1.0:f32[] in (h,) }
      )
    ] c b"""
        in text
    )


def test_dead_code_of_branches():
    fun = lambda p, x, y: lax.cond(p, lambda: (x, jnp.sin(y)), lambda: (x + 1, y))
    jaxpr = make_jaxpr(fun)(True, 1.0, 2.0).jaxpr
    pruned, used = dce_jaxpr(jaxpr, [True, False])
    assert used == [True, True, False]
    assert "sin" not in str(pruned)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: lax.cond(None, abs, abs, 1.0), TypeError, "[Pp]red"),
        (lambda: lax.cond("yes", abs, abs, 1.0), TypeError, "[Pp]red.*scalar"),
        (lambda: lax.cond(np.ones(2) > 0, abs, abs, 1.0), TypeError, r"[Pp]red.*\(2,\)"),
        (lambda: lax.cond(1j, abs, abs, 1.0), TypeError, "[Pp]red.*complex"),
        (lambda: lax.cond(True, 1, abs), TypeError, "true_fun must be callable"),
        (lambda: lax.cond(True, abs, 1), TypeError, "false_fun must be callable"),
        (lambda: lax.cond(True, abs, abs, "x"), TypeError, r"operands\[0\]"),
        (lambda: lax.cond(True, abs, abs, 1, operand=2), TypeError, "operand"),
        (lambda: lax.cond(True, abs, abs, other=2), TypeError, "other"),
        (lambda: lax.cond(True, lambda: {"a": 1.0}, lambda: {"a": 1}), TypeError, r"\['a'\]"),
        (lambda: lax.cond(True, lambda: (1, 2), lambda: 1), TypeError, "structure"),
        (lambda: lax.switch(1.0, [abs], 1.0), TypeError, "index.*float"),
        (lambda: lax.switch(np.ones(1, int), [abs], 1.0), TypeError, "index.*shape"),
        (lambda: lax.switch("1", [abs], 1.0), TypeError, "index"),
        (lambda: lax.switch(0, [], 1.0), ValueError, "branches is empty"),
        (lambda: lax.switch(0, [abs, 3], 1.0), TypeError, r"branches\[1\]"),
        (lambda: lax.switch(0, [lambda: 1, lambda: 1, lambda: 1.0]), TypeError, r"branches\[2\]"),
    ],
)
def test_cond_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_platform_dependent():
    fun = lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)
    for f in (fun, amdjax.jit(fun), vmap(fun)):
        close(f(rows(3)), np.sin(rows(3)))
    close(grad(amdjax.jit(fun))(1.0), np.cos(1.0))
    close(lax.platform_dependent(1.0, cuda=jnp.sin, default=jnp.cos), np.cos(1.0))
    with pytest.raises(NotImplementedError, match="cuda"):
        lax.platform_dependent(1.0, cuda=jnp.sin, rocm=jnp.cos)
    with pytest.raises(ValueError, match="rocm"):
        lax.platform_dependent(1.0, gpu=jnp.sin)


# while_loop and fori_loop


def test_while_loop():
    def fun(x, n):
        step = lambda c: {"i": c["i"] + 1, "x": c["x"] * x}
        return lax.while_loop(lambda c: c["i"] < n, step, {"i": 0, "x": 1.0})

    for f in (fun, amdjax.jit(fun)):
        close(f(2.0, 5), {"i": 5, "x": 32.0})
        close(f(2.0, -1), {"i": 0, "x": 1.0})


def test_while_loop_forward_mode():
    def fun(x, n):
        step = lambda c: (c[0] + 1, jnp.sin(c[1]) * x)
        return lax.while_loop(lambda c: c[0] < n, step, (0, x))[1]

    check_grads(lambda x: fun(x, 4), (0.7,), order=2, modes=["fwd"])
    unrolled = lambda x: reduce(lambda c, _: jnp.sin(c) * x, range(4), x)
    close(jvp(lambda x: fun(x, 4), (0.7,), (1.0,)), jvp(unrolled, (0.7,), (1.0,)))
    close(amdjax.linearize(lambda x: fun(x, 4), 0.7)[1](1.0), grad(unrolled)(0.7))


def test_while_loop_reverse_mode_teaches():
    fun = lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * x, 1.5)
    with pytest.raises(ValueError, match=r"(?s)while_loop.*lax\.scan.*fori_loop"):
        grad(fun)(2.0)
    # Nothing flows through this loop, so there is nothing to reverse.
    counted = lambda x: x * lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0)
    close(grad(counted)(2.0), 3.0)


def test_while_loop_batched():
    fun = lambda n, x: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, 1.0))
    n, x = np.array([3, 0, 5]), np.array([2.0, 3.0, 0.5])
    close(vmap(fun)(n, x), (n, x**n))
    close(vmap(fun, (0, None))(n, 2.0), (n, 2.0**n))
    close(vmap(fun, (None, 0))(3, x), (np.full(3, 3), x**3))
    both = vmap(vmap(fun, (0, None)), (None, 0))(n, x)
    close(both, (np.broadcast_to(n, (3, 3)), x[:, None] ** n))
    (loop,) = eqns(vmap(fun, (None, 0)), 3, x, name="while")
    assert loop.params["cond_jaxpr"].out_avals[0].shape == ()
    close(jvp(lambda x: vmap(fun)(n, x)[1], (x,), (np.ones(3),))[1], n * x ** (n - 1))


def test_while_loop_keeps_what_does_not_change_out_of_the_carry():
    fun = lambda x: lax.while_loop(lambda c: c[0] < 9.0, lambda c: (c[0] * c[1], c[1]), (1.0, x))
    (loop,) = eqns(fun, 2.0, name="while")
    assert (len(loop.outvars), loop.params["body_nconsts"]) == (1, 1)
    close(fun(2.0), (16.0, 2.0))


def test_while_loop_dead_code():
    def step(c):
        i, x, y, z = c
        return i + 1, x + y, y * 2, jnp.sin(z)

    fun = lambda x: lax.while_loop(lambda c: c[0] < 3, step, (0, x, x, x))
    pruned, _ = dce_jaxpr(make_jaxpr(fun)(1.0).jaxpr, [False, True, False, False])
    (loop,) = pruned.eqns
    assert len(loop.outvars) == 3
    assert "sin" not in str(pruned)


def test_while_loop_initial_value_takes_the_type_of_the_body():
    assert lax.while_loop(lambda c: c < 3, lambda c: c + np.float64(1.5), 0).dtype == np.float64


unrolled = amdjax.jit(lambda n: lax.fori_loop(0, n, lambda i, v: v, 1, unroll=4))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: lax.while_loop(1, abs, 1.0), TypeError, "cond_fun must be callable"),
        (lambda: lax.while_loop(abs, 1, 1.0), TypeError, "body_fun must be callable"),
        (lambda: lax.while_loop(lambda x: x, abs, 1.0), TypeError, "cond_fun.*boolean scalar"),
        (lambda: lax.while_loop(lambda x: (x < 1,), abs, 1.0), TypeError, "cond_fun.*boolean"),
        (lambda: lax.while_loop(lambda x: x < 1, abs, np.ones(2)), TypeError, "cond_fun.*bool.2."),
        (lambda: lax.while_loop(bool, abs, "x"), TypeError, "init_val"),
        (lambda: lax.while_loop(lambda x: True, lambda x: (x, x), 1.0), TypeError, "structure"),
        (
            lambda: lax.while_loop(lambda x: True, lambda v: v > 0, 1.0),
            TypeError,
            r"carry v has type float64\[\]",
        ),
        (lambda: lax.fori_loop(0.0, 1, max, 1), TypeError, "equal types, got float64 and int64"),
        (lambda: lax.fori_loop(1j, 1, max, 1), TypeError, "lower must be a real scalar"),
        (lambda: lax.fori_loop(0, np.ones(1, int), max, 1), TypeError, "upper must be a real"),
        (lambda: lax.fori_loop(np.int8(0), np.int16(1), max, 1), TypeError, "equal types"),
        (lambda: lax.fori_loop(0, 1, None, 1), TypeError, "body_fun must be callable"),
        (
            lambda: lax.fori_loop(0, 1, lambda i, v: (v, v), 1),
            TypeError,
            "carry v is a pytree leaf",
        ),
        (
            lambda: lax.fori_loop(0, 1, lambda i, v: [v[0] > 0], [1.0]),
            TypeError,
            r"v\[0\] has type",
        ),
        (lambda: unrolled(3), ValueError, "unroll"),
    ],
)
def test_while_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("lower, upper", [(0, 4), (-2, 1), (3, 3), (5, 2)])
def test_fori_loop(lower, upper):
    body = lambda i, c: (c[0] + i, c[1] * 2)
    wanted = (sum(range(lower, upper)), 2.0 ** max(upper - lower, 0))
    close(lax.fori_loop(lower, upper, body, (0, 1.0)), wanted)
    close(amdjax.jit(lambda a, b: lax.fori_loop(a, b, body, (0, 1.0)))(lower, upper), wanted)
    upto = lambda n: lax.fori_loop(np.int64(lower), n, body, (0, 1.0))[0]
    close(vmap(upto)(np.array([upper, lower])), [wanted[0], 0])


def test_fori_loop_with_known_bounds_is_a_scan():
    fun = lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * x + i, x)
    (loop,) = eqns(fun, 1.0, name="scan")
    assert loop.params["length"] == 3
    check_grads(fun, (0.3,), order=2)
    dynamic = lambda n, x: lax.fori_loop(0, n, lambda i, c: c * x, x)
    assert len(eqns(dynamic, 3, 1.0, name="while")) == 1


def test_index_has_the_dtype_of_traced_bounds():
    for lower, upper, dtype in ((np.int8(0), 3, np.int8), (0, np.uint16(3), np.uint16)):
        loop = lambda a, b, dtype=dtype: lax.fori_loop(a, b, lambda i, c: i, dtype(0))
        assert amdjax.jit(loop)(lower, upper).dtype == dtype


def test_index_of_known_bounds_is_a_python_integer():
    for lower, upper in ((np.int8(0), 3), (0, np.uint16(3)), (0.0, 3.5), (False, True)):
        last = lax.fori_loop(lower, upper, lambda i, c: i, 0)
        assert last.weak_type and last.dtype == np.asarray(1).dtype and last == int(upper) - 1


# scan


def python_scan(f, init, xs, reverse=False):
    carry, ys = init, []
    order = list(range(len(xs)))
    for i in reversed(order) if reverse else order:
        carry, y = f(carry, xs[i])
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, jnp.stack(ys)


def cell(w):
    def step(c, x):
        new = jnp.tanh(w @ c + x)
        return new, new * x

    return step


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 2, True])
def test_scan_agrees_with_a_python_loop(reverse, unroll):
    w, h, xs = rows(3, 3), rows(3, seed=1), rows(5, 3, seed=2)
    fun = lambda w, h, xs: lax.scan(cell(w), h, xs, reverse=reverse, unroll=unroll)
    wanted = lambda w, h, xs: python_scan(cell(w), h, xs, reverse)
    close(fun(w, h, xs), wanted(w, h, xs))
    tangents = rows(3, 3, seed=3), rows(3, seed=4), rows(5, 3, seed=5)
    close(jvp(fun, (w, h, xs), tangents), jvp(wanted, (w, h, xs), tangents))
    cts = rows(3, seed=6), rows(5, 3, seed=7)
    close(vjp(fun, w, h, xs)[1](cts), vjp(wanted, w, h, xs)[1](cts))


def test_scan_second_order():
    fun = lambda w, h, xs: lax.scan(cell(w), h, xs)
    check_grads(fun, (rows(2, 2), rows(2, seed=1), rows(3, 2, seed=2)), order=2)


def test_scan_of_pytrees():
    def step(carry, x):
        total, (count, nothing) = carry
        return (total + x["a"] * x["b"], (count + 1, nothing)), {"y": (total, None)}

    xs = {"a": rows(4), "b": rows(4, seed=1)}
    (total, (count, nothing)), ys = lax.scan(step, (0.0, (0, None)), xs)
    products = xs["a"] * xs["b"]
    close(total, products.sum())
    assert (int(count), nothing) == (4, None)
    close(ys, {"y": (np.cumsum(products) - products, None)})


def test_scan_without_arrays():
    close(lax.scan(lambda c, _: (c * 2, c), 1.0, None, length=3), (8.0, [1.0, 2.0, 4.0]))
    close(lax.scan(lambda c, x: (c, x), (), rows(2)), ((), rows(2)))
    assert lax.scan(lambda c, _: (c, None), None, length=2) == (None, None)


def test_scan_of_no_rows():
    fun = lambda w, xs: lax.scan(lambda c, x: (c * w * x, c), w * 3, xs)
    close(fun(2.0, np.zeros(0)), (6.0, np.zeros(0)))
    close(grad(lambda w, xs: fun(w, xs)[0], (0, 1))(2.0, np.zeros(0)), (3.0, np.zeros(0)))


def test_scan_passes_on_what_does_not_change():
    fun = lambda k, xs: lax.scan(lambda c, x: ((c[0] + c[1] * x, c[1]), (x, c[0])), (0.0, k), xs)
    (loop,) = eqns(fun, 2.0, rows(3), name="scan")
    assert (loop.params["num_consts"], loop.params["num_carry"], len(loop.outvars)) == (1, 1, 2)
    (total, k), (xs, sums) = fun(2.0, rows(3))
    close((total, k, xs), (2 * rows(3).sum(), 2.0, rows(3)))
    close(sums[1:], 2 * np.cumsum(rows(3))[:-1])


def test_scan_initial_values_take_the_type_of_the_body():
    carry, _ = lax.scan(lambda c, x: (c + x, None), 0, rows(3))
    assert carry.dtype == np.float64
    close(carry, rows(3).sum())


def test_residuals_that_no_step_changes_are_not_stacked():
    def loss(w, xs):
        return lax.scan(lambda c, x: (jnp.sin(w) * c + x, None), 1.0, xs)[0]

    forward, backward = eqns(grad(loss), 2.0, rows(5), name="scan")
    # cos(w) and sin(w) are computed before the loop; only the carry of each step is kept.
    assert [v.aval.shape for v in forward.outvars] == [(), (5,)]
    assert not any(e.primitive.name in ("sin", "cos") for e in forward.params["jaxpr"].eqns)
    assert [v.aval.shape for v in backward.invars].count((5,)) == 1
    check_grads(loss, (2.0, rows(5)), order=2)


def test_rows_of_xs_are_not_stacked_again():
    loss = lambda w, xs: lax.scan(lambda c, x: (c + w * x, None), 0.0, xs)[0]
    forward, _ = eqns(grad(loss), 2.0, rows(5), name="scan")
    assert [v.aval.shape for v in forward.outvars] == [()]
    close(grad(loss)(2.0, rows(5)), rows(5).sum())


def test_scan_dead_code():
    def step(c, x):
        a, b, used = c
        return (a + x, b + jnp.sin(a), used * 2), (jnp.cos(b), used)

    jaxpr = make_jaxpr(lambda xs: lax.scan(step, (0.0, 1.0, 2.0), xs))(rows(3)).jaxpr
    pruned, used = dce_jaxpr(jaxpr, [False, False, False, False, True])
    (loop,) = pruned.eqns
    assert (len(loop.outvars), used) == (2, [False])
    pruned, used = dce_jaxpr(jaxpr, [False, True, False, False, False])
    assert len(pruned.eqns[0].outvars) == 2
    assert "cos" not in str(pruned)
    assert used == [True]


def test_unused_scan_disappears_unless_it_has_effects():
    fun = lambda x: (lax.scan(lambda c, _: (c * 2, None), x, length=3), x)[1]
    assert dce_jaxpr(make_jaxpr(fun)(1.0).jaxpr, [True])[0].eqns == []

    def noisy(c, _):
        amdjax.debug.callback(lambda v: None, c)
        return c, None

    fun = lambda x: (lax.scan(noisy, x, length=3), x)[1]
    assert len(dce_jaxpr(make_jaxpr(fun)(1.0).jaxpr, [True])[0].eqns) == 1


def test_effects_happen_in_order():
    seen = []

    def step(c, x):
        amdjax.debug.callback(lambda c, x: seen.append((float(c), float(x))), c, x, ordered=True)
        return c + x, None

    fun = lambda c: lax.scan(step, c, np.arange(3.0))[0]
    amdjax.jit(fun)(1.0)
    assert seen == [(1.0, 0.0), (1.0, 1.0), (2.0, 2.0)]
    seen.clear()
    close(grad(fun)(1.0), 1.0)
    assert seen == [(1.0, 0.0), (1.0, 1.0), (2.0, 2.0)]


def test_scan_batches_only_what_differs():
    def step(c, x):
        a, b = c
        return (a + x, b * 2), (a, b)

    fun = lambda a, xs: lax.scan(step, (a, 1.0), xs)
    xs = rows(4, 3)
    (_, b), (_, bs) = vmap(fun, (None, 1), ((0, None), (0, None)))(0.0, xs)
    close((b, bs), (16.0, [1.0, 2.0, 4.0, 8.0]))
    (a, _), (sums, _) = vmap(fun, (None, 1))(0.0, xs)
    close((a, sums), (xs.sum(0), (np.cumsum(xs, 0) - xs).T))
    (loop,) = eqns(lambda xs: vmap(fun, (None, 1))(0.0, xs)[1][0], xs, name="scan")
    assert [v.aval.shape for v in loop.params["jaxpr"].jaxpr.invars] == [(3,), (), (3,)]


def test_collectives_inside():
    step = lambda c, y: (c + lax.psum(c * y, "i"), lax.axis_index("i"))
    fun = lambda x: lax.scan(step, x, np.ones(2))
    carry, which = vmap(fun, axis_name="i")(np.arange(3.0))
    close((carry, which), ([15.0, 16.0, 17.0], np.repeat(np.arange(3)[:, None], 2, 1)))


def test_transpose_of_a_loop_with_a_counter():
    # The counter is known, so it is run beforehand; the rest is linear.
    fun = lambda x: lax.fori_loop(0, 4, lambda i, c: c * 2.0 + jnp.asarray(i, float) * c, x)
    close(linear_transpose(fun, 1.0)(1.0), (120.0,))
    weigh = lambda xs: lax.scan(
        lambda c, x: ((c[0] + 1, c[1] + x * c[0]), x * c[0]), (1.0, 0.0), xs
    )
    pull = linear_transpose(lambda xs: weigh(xs)[0][1] + 10 * weigh(xs)[1].sum(), np.ones(3))
    close(pull(1.0), (np.array([11.0, 22.0, 33.0]),))


def test_gradient_with_respect_to_integers():
    fun = lambda w, i: lax.scan(lambda c, k: (c * w + k, k), w, i)[0]
    dw, di = grad(fun, (0, 1), allow_int=True)(2.0, np.arange(3))
    close(dw, 4 * 2.0**3 + 2 * 0 * 2.0 + 1)
    assert di.dtype == amdjax.float0


def test_complex_scan():
    fun = lambda w, xs: lax.scan(lambda c, x: (c * w + x, c), w, xs)
    xs = rows(3) + 1j * rows(3, seed=1)
    check_grads(fun, (0.5 + 0.25j, xs), order=2)


TRACES = []


def adding(c, x):
    TRACES.append(1)
    return c + x, None


def test_functions_are_traced_once_for_eager_calls():
    TRACES.clear()
    for i in range(3):
        close(lax.scan(adding, float(i), rows(4))[0], i + rows(4).sum())
    assert len(TRACES) == 1
    factor = 1.0
    scaled = lambda c, x: (c + factor * x, None)
    close(lax.scan(scaled, 0.0, rows(4))[0], rows(4).sum())
    factor = 2.0
    close(lax.scan(scaled, 0.0, rows(4))[0], 2 * rows(4).sum())


ONES = np.ones(2)
keep = lambda c, x: (c, x)
of_length = amdjax.jit(lambda n: lax.scan(keep, 0.0, length=n))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: lax.scan(1, 0.0, ONES), TypeError, "f must be callable"),
        (lambda: lax.scan(lambda c, x: c, 0.0, ONES), TypeError, "pair"),
        (lambda: lax.scan(lambda c, x: (c, x, x), 0.0, ONES), TypeError, "pair.*length 3"),
        (lambda: lax.scan(lambda c, x: (c, "y"), 0.0, ONES), TypeError, "str"),
        (lambda: lax.scan(keep, "c", ONES), TypeError, "init is 'c'"),
        (lambda: lax.scan(keep, 0.0, {"k": "x"}), TypeError, r"xs\['k'\]"),
        (lambda: lax.scan(keep, 0.0, [ONES, rows(3)]), ValueError, r"xs\[0\] has 2, xs\[1\] has 3"),
        (lambda: lax.scan(keep, 0.0, ONES, length=3), ValueError, "of 3 .*sizes .2."),
        (lambda: lax.scan(keep, 0.0, 1.0), ValueError, "xs is a scalar"),
        (lambda: lax.scan(keep, 0.0), ValueError, "length"),
        (lambda: lax.scan(keep, 0.0, length=-1), ValueError, "negative"),
        (lambda: lax.scan(keep, 0.0, ONES, unroll=-1), ValueError, "unroll"),
        (lambda: of_length(3), TypeError, "number of steps"),
        (
            lambda: lax.scan(lambda h, x: (h[:1], x), ONES, ONES),
            TypeError,
            r"carry h .*\[2\].*\[1\], so the sh",
        ),
        (
            lambda: lax.scan(lambda h, x: ((h, h), x), 0.0, ONES),
            TypeError,
            "carry h is a pytree leaf",
        ),
        (lambda: lax.scan(lambda h, x: ([h[0] > 0], x), [0.0], ONES), TypeError, r"h\[0\].*dtypes"),
    ],
)
def test_scan_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


# map and associative_scan


@given(st.integers(0, 7), st.sampled_from([None, 0, 1, 2, 3, 7, 9]))
def test_map(size, batch_size):
    xs = rows(size, 2)
    fun = lambda x: {"sum": x.sum(), "x": jnp.sin(x)}
    with enable_x64(True):
        close(lax.map(fun, xs, batch_size=batch_size), {"sum": xs.sum(1), "x": np.sin(xs)})


def test_map_differentiates():
    for batch_size in (None, 2):
        check_grads(lambda xs: lax.map(jnp.sin, xs, batch_size=batch_size), (rows(5),), order=2)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: lax.map(1, np.ones(2)), TypeError, "f must be callable"),
        (lambda: lax.map(abs, np.ones(2), batch_size=-1), ValueError, "batch_size"),
        (lambda: lax.map(abs, 1.0), ValueError, "map got value with no leading axis"),
        (lambda: lax.map(abs, ()), ValueError, "map"),
    ],
)
def test_map_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


@given(st.integers(0, 20), st.booleans())
def test_associative_scan_of_sums(size, reverse):
    xs = np.arange(size)
    order = xs[::-1] if reverse else xs
    wanted = np.array(list(itertools.accumulate(order)), int)
    got = lax.associative_scan(operator.add, xs, reverse=reverse)
    np.testing.assert_array_equal(got, wanted[::-1] if reverse else wanted)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_associative_scan_does_not_commute(axis):
    """First-order recurrences, of which the function composes pairs."""

    def compose(f, g):
        return {"a": f["a"] * g["a"], "b": f["b"] * g["a"] + g["b"]}

    elems = {"a": rows(6, 5), "b": rows(6, 5, seed=1)}
    got = lax.associative_scan(compose, elems, axis=axis)["b"]
    a, b = (np.moveaxis(elems[k], axis, 0) for k in "ab")
    state, wanted = 0.0, []
    for i in range(len(a)):
        state = a[i] * state + b[i]
        wanted.append(state)
    close(got, np.moveaxis(np.stack(wanted), 0, axis))


def test_associative_scan_depth_and_gradient():
    jaxpr = make_jaxpr(partial(lax.associative_scan, lax.mul))(rows(64))
    assert sum(e.primitive.name == "mul" for e in jaxpr.eqns) == 11
    check_grads(partial(lax.associative_scan, lax.mul), (rows(7),), order=2)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: lax.associative_scan(1, np.ones(2)), TypeError, "fn must be callable"),
        (lambda: lax.associative_scan(max, (np.ones(2), np.ones(3))), ValueError, "one size"),
        (lambda: lax.associative_scan(max, np.ones(2), axis=1), ValueError, "axis"),
        (lambda: lax.associative_scan(lambda a, b: (a, b), np.ones(2)), ValueError, "structure"),
    ],
)
def test_associative_scan_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


# custom_root and custom_linear_solve


def newton(f, x):
    return lax.while_loop(lambda x: abs(f(x)) > 1e-12, lambda x: x - f(x) / (3 * x * x), x)


def cube_root(a):
    return lax.custom_root(lambda x: x**3 - a, 1.0, newton, lambda g, y: y / g(1.0))


def test_custom_root():
    for f in (cube_root, amdjax.jit(cube_root)):
        close(f(8.0), 2.0)
        close(grad(f)(8.0), 1 / 12)
        close(grad(grad(f))(8.0), -2 / 9 * 8.0 ** (-5 / 3))
        close(jvp(f, (8.0,), (3.0,)), (2.0, 0.25))
        close(vmap(grad(f))(np.array([1.0, 8.0, 27.0])), [1 / 3, 1 / 12, 1 / 27])
        close(grad(lambda a: vmap(f)(a).sum())(np.array([1.0, 8.0])), [1 / 3, 1 / 12])


def test_custom_root_of_a_system_with_extra_results():
    def solve(f, x):
        steps = lax.fori_loop(0, 60, lambda i, x: amdjax.tree.map(lambda x, d: x - d, x, f(x)), x)
        return steps, {"steps": 60}

    def root(a):
        f = lambda x: {"u": x["u"] - a * jnp.cos(x["v"]) / 2, "v": x["v"] - jnp.sin(x["u"]) / 2}
        guess = {"u": 0.0, "v": 0.0}
        return lax.custom_root(f, guess, solve, solve_linear, has_aux=True)

    def solve_linear(g, y):
        improve = lambda i, x: amdjax.tree.map(lambda x, b, r: x + b - r, x, y, g(x))
        return lax.fori_loop(0, 60, improve, y)

    assert int(root(0.5)[1]["steps"]) == 60
    check_grads(lambda a: root(a)[0], (0.5,), order=2)


@pytest.mark.parametrize("symmetric", [False, True])
def test_custom_linear_solve(symmetric):
    a = rows(3, 3) * 0.3 + np.eye(3) * 3
    a = (a + a.T) / 2 if symmetric else a
    iterate = lambda mv, b: lax.while_loop(
        lambda x: jnp.abs(b - mv(x)).max() > 1e-13, lambda x: x + (b - mv(x)) / 3.5, b
    )
    transposed = None if symmetric else iterate

    def solve(a, b):
        a = (a + a.T) / 2 if symmetric else a
        mv = lambda x: a @ x
        return lax.custom_linear_solve(mv, b, iterate, transposed, symmetric=symmetric)

    b = rows(3, seed=1)
    close(solve(a, b), np.linalg.solve(a, b), 1e-8)
    check_grads(solve, (a, b), order=2)
    bs = rows(4, 3, seed=2)
    close(vmap(solve, (None, 0))(a, bs), np.linalg.solve(a, bs.T).T, 1e-8)
    db = vmap(grad(lambda a, b: solve(a, b).sum(), 1), (None, 0))(a, bs)
    close(db, np.broadcast_to(np.linalg.solve(a.T, np.ones(3)), (4, 3)), 1e-8)


def test_custom_linear_solve_needs_the_transpose_for_reverse_mode():
    fun = lambda b: lax.custom_linear_solve(lambda x: 2 * x, b, lambda mv, b: b / 2)
    close(jvp(fun, (3.0,), (1.0,)), (1.5, 0.5))
    with pytest.raises(TypeError, match="transpose_solve"):
        grad(fun)(3.0)


root, solve = lax.custom_root, lax.custom_linear_solve


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: root(1, 1.0, newton, newton), TypeError, "f must be callable"),
        (lambda: root(lambda x: (x, x), 1.0, newton, newton), TypeError, r"f\(\) output"),
        (lambda: root(abs, 1.0, lambda f, x: (x, x), newton), TypeError, r"solve\(\) output"),
        (lambda: root(abs, "x", newton, newton), TypeError, "initial_guess"),
        (lambda: solve(1, 1.0, newton), TypeError, "matvec must be callable"),
        (lambda: solve(abs, ONES, lambda mv, b: b[:1]), ValueError, "output shapes must"),
        (lambda: solve(abs, 1.0, lambda mv, b: b, has_aux=True), TypeError, "pair"),
    ],
)
def test_solver_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_disable_jit_runs_python():
    with amdjax.disable_jit():
        kinds = []
        lax.scan(lambda c, x: (kinds.append(type(c)), (c + x, None))[1], 0.0, rows(3))
        assert len(kinds) == 3
        close(lax.cond(rows(1)[0] > 9, lambda: 1 / 0, lambda: 2.0), 2.0)
        close(lax.fori_loop(0, 0, lambda i, c: c, 1.0), 1.0)
        close(lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0), 3)
        with pytest.raises(ValueError, match="disable_jit"):
            lax.scan(lambda c, x: (c, x), 0.0, np.zeros(0))


# How the compiled loop moves its carry between buffers must not show.
STEPS = {
    "exchange": lambda c, x: ((c[1], c[0]), c[0]),
    "same result twice": lambda c, x: ((c[0] + x, c[0] + x), c[0] + x),
    "constant": lambda c, x: ((1.0 * jnp.ones(2), c[0] * x), c[1]),
    "row": lambda c, x: ((x, c[0]), c[1]),
    "carry as y": lambda c, x: ((c[0] + c[1], c[1] * x), (c[0], c[1])),
    "update in place": lambda c, x: ((c[0].at[0].add(x[1]), c[1] + c[0]), c[0]),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_carry_between_buffers(step, length):
    def fun(h, xs):
        h, xs = jnp.sin(h), jnp.cos(xs)
        carry, ys = lax.scan(step, (h, 2 * h), xs)
        twice = lax.fori_loop(0, length, lambda i, c: step(c, xs[0])[0], carry)
        return carry, ys, twice, h + 1

    args = rows(2), rows(length, 2, seed=1)
    with amdjax.disable_jit():
        wanted = fun(*args)
    close(amdjax.jit(fun)(*args), wanted)
    close(fun(*args), wanted)


def test_one_value_as_initial_carry_and_as_xs():
    def fun(x):
        v = jnp.sin(x)
        return lax.scan(lambda c, y: (c * 2 + y + v, None), v, v)[0]

    def loop(x):
        v = jnp.sin(x)
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2 + v), (0, v))[1]

    for f in (fun, loop):
        with amdjax.disable_jit():
            wanted = f(rows(3))
        close(amdjax.jit(f)(rows(3)), wanted)


@pytest.mark.parametrize(
    "loop",
    [
        lambda step, x: lax.while_loop(lambda c: c[0] < 9, step, (x, x)),
        lambda step, x: lax.fori_loop(0, 9, lambda _, c: step(c), (x, x)),
        lambda step, x: lax.scan(lambda c, _: (step(c), None), (x, x), None, length=9)[0],
        lambda step, x: lax.cond(True, step, step, (x, x)),
        lambda step, x: lax.switch(1, [step, step], (x, x)),
    ],
)
def test_steps_that_change_arrays_in_place_change_no_other(loop):
    def step(c):
        x, y = c
        x += 1
        return x, y + x

    x = np.zeros((), np.float32)
    compiled = loop(step, x)
    with amdjax.disable_jit():
        plain = loop(step, x)
    assert list(map(float, plain)) == list(map(float, compiled))
    assert x == 0


@pytest.mark.parametrize(
    "primitive, change, words",
    [
        ("scan", {"reverse": 4}, "reverse of type int, bool required: 4"),
        ("scan", {"num_consts": -3}, "num_consts of type int, non-negative int required: -3"),
        ("scan", {"length": 2.5}, "length of type float, non-negative int required"),
        ("cond", {"branches": (4, 2)}, "branches of type tuple, tuple of ClosedJaxpr required"),
    ],
)
def test_programs_made_by_hand_are_checked(primitive, change, words):
    def fun(x):
        x = lax.switch(0 * x.astype(int), [jnp.sin, jnp.cos], x)
        return lax.scan(lambda c, _: (c * x, None), x, None, length=2)[0]

    jaxpr = make_jaxpr(fun)(1.0).jaxpr
    eqn = next(e for e in jaxpr.eqns if e.primitive.name == primitive)
    eqn.params.update(change)
    with pytest.raises(JaxprTypeError, match=f"invalid {primitive} param {words}"):
        check_jaxpr(jaxpr)
