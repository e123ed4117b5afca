"""Interpreters of programs that users write, and the helpers that libraries take for them."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import api_util, core, lax
from amdjax.extend import core as extend_core, linear_util as lu
from amdjax.interpreters import ad, partial_eval as pe

INVERSES = {
    amdjax.lax.exp_p: jnp.log,
    amdjax.lax.tanh_p: jnp.arctanh,
    amdjax.lax.neg_p: lambda x: -x,
}


def evaluate(jaxpr, consts, *args):
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args]))
    read = lambda v: v.val if type(v) is extend_core.Literal else env[v]
    for eqn in jaxpr.eqns:
        subfuns, params = eqn.primitive.get_bind_params(eqn.params)
        outs = eqn.primitive.bind(*subfuns, *map(read, eqn.invars), **params)
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
    return [read(v) for v in jaxpr.outvars]


def invert(fun, example):
    closed = amdjax.make_jaxpr(fun)(example)

    def inverse(y):
        env = {closed.jaxpr.outvars[0]: y}
        for eqn in reversed(closed.jaxpr.eqns):
            env[eqn.invars[0]] = INVERSES[eqn.primitive](env[eqn.outvars[0]])
        return env[closed.jaxpr.invars[0]]

    return inverse


def test_an_evaluator_of_programs_with_control_flow_and_calls():
    def f(x):
        y = amdjax.jit(lambda v: amdjax.nn.relu(v) * 2)(x)
        return amdjax.lax.fori_loop(0, 3, lambda i, c: c + jnp.sin(y), y).sum()

    x = jnp.linspace(-1.0, 1.0, 5)
    closed = amdjax.make_jaxpr(f)(x)
    (out,) = evaluate(closed.jaxpr, closed.literals, x)
    np.testing.assert_allclose(out, f(x), rtol=1e-6)
    (again,) = amdjax.jit(lambda x: evaluate(closed.jaxpr, closed.consts, x))(x)
    np.testing.assert_allclose(again, f(x), rtol=1e-6)
    slope = amdjax.grad(lambda x: evaluate(closed.jaxpr, closed.consts, x)[0])(x)
    np.testing.assert_allclose(slope, amdjax.grad(f)(x), rtol=1e-6)


def test_an_inverse_by_interpretation_composes_with_transforms():
    f = lambda x: jnp.exp(jnp.tanh(-x))
    f_inverse = invert(f, 1.0)
    np.testing.assert_allclose(f_inverse(f(0.3)), 0.3, rtol=1e-5)
    xs = jnp.linspace(0.1, 0.9, 4)
    np.testing.assert_allclose(amdjax.jit(amdjax.vmap(f_inverse))(f(xs)), xs, rtol=1e-5)
    expected = 1 / amdjax.grad(f)(0.3)
    np.testing.assert_allclose(amdjax.grad(f_inverse)(f(0.3)), expected, rtol=1e-4)


def test_programs_from_wrapped_functions():
    args = {"a": jnp.ones(2)}, 3.0
    leaves, tree = amdjax.tree_util.tree_flatten((args, {}))
    fun = lu.wrap_init(lambda d, s: {"out": d["a"] * s})
    flat, out_tree = api_util.flatten_fun(fun, tree)
    avals = [api_util.shaped_abstractify(x) for x in leaves]
    jaxpr, out_avals, consts = pe.trace_to_jaxpr_dynamic(flat, avals)
    assert jaxpr.eqns[-1].primitive.name == "mul" and not consts
    assert out_avals[0].shape == (2,)
    outs = core.eval_jaxpr(jaxpr, consts, *leaves)
    assert set(out_tree().unflatten(outs)) == {"out"}


def test_transformations_by_functions_and_by_generators():
    @lu.transformation2
    def negated(fun, *args):
        return [-x for x in fun(*args)]

    @lu.transformation_with_aux
    def counted(*args):
        outs = yield args, {}
        yield outs, len(outs)

    fun, count = counted(negated(lu.wrap_init(lambda *xs: [2 * x for x in xs])))
    assert fun.call_wrapped(1, 2) == [-2, -4]
    assert count() == 2


def test_known_values_are_not_traced():
    fun = lu.wrap_init(lambda x, y: [x * y, y + 1])
    unknown = pe.PartialVal.unknown(core.ShapedArray((), "float32"))
    jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(fun, [unknown, pe.PartialVal.known(2.0)])
    assert [v.is_known() for v in outs] == [False, True] and outs[1].get_known() == 3.0
    assert core.eval_jaxpr(jaxpr, consts, 5.0) == [10.0]
    assert [e.primitive.name for e in jaxpr.eqns] == ["mul"]


def test_jvp_of_a_wrapped_function():
    outs, tangents = ad.jvp(lu.wrap_init(lambda x: [x * x, 1.0])).call_wrapped((3.0,), (1.0,))
    assert outs[0] == 9.0 and tangents[0] == 6.0 and tangents[1] == 0.0


def test_dead_code_with_constants():
    big = np.arange(3.0, dtype=np.float32)
    closed = amdjax.make_jaxpr(lambda x, y: (x * 2, y + big))(1.0, 1.0)
    jaxpr, used_consts, used = pe.dce_jaxpr_consts(closed.jaxpr, [True, False])
    assert used_consts == [False] and used == [True, False] and len(jaxpr.eqns) == 1


def test_what_is_being_traced():
    seen = []

    def f(x):
        seen.append(extend_core.unsafe_am_i_under_a_jit_DO_NOT_USE())
        seen.append(extend_core.unsafe_am_i_under_a_vmap_DO_NOT_USE())
        return x

    f(1.0)
    amdjax.jit(f)(1.0)
    amdjax.vmap(f)(jnp.ones(2))
    assert seen == [False, False, True, False, False, True]
    state = extend_core.get_opaque_trace_state()
    assert state == extend_core.get_opaque_trace_state()
    states = []
    amdjax.jit(lambda x: states.append(extend_core.get_opaque_trace_state()) or x)(1.0)
    assert states[0] != state


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_loops_of_unknown_values_are_whole_in_the_program(dtype):
    def f(x, y):
        total, _ = lax.scan(lambda c, _: (c * c + y, ()), x, length=2)
        return [amdjax.jit(lambda v: v * v)(total), jnp.cos(y)]

    unknown = pe.PartialVal.unknown(core.ShapedArray((), dtype))
    y = jnp.asarray(3, dtype)
    jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(
        lu.wrap_init(f), [unknown, pe.PartialVal.known(y)]
    )
    assert [out.is_known() for out in outs] == [False, True]
    x = jnp.asarray(2, dtype)
    assert core.eval_jaxpr(jaxpr, consts, x) == f(x, y)[:1]
