"""Flattening, common subexpressions, dead code: programs before and after, verified each time."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import grad, jit, lax, make_jaxpr
from amdjax.core.primitive import Primitive
from amdjax.passes import PASSES, Facts, Pass, prepare, preparing
from amdjax.passes.barriers import remove_barriers
from amdjax.passes.cleanup import eliminate_common_subexpressions, eliminate_dead_code
from amdjax.passes.flatten import flatten_calls
from tests.support.jit_helpers import primitives, run_jaxpr

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.fixture(autouse=True)
def _checked(checked):
    pass


def test_the_checker_runs_after_every_pass(monkeypatch):
    programs = []
    closed = make_jaxpr(lambda x: jnp.sin(x) + 1)(X)
    monkeypatch.setattr(preparing, "check_jaxpr", programs.append)
    prepare(closed)
    assert len(programs) == sum(p.runs(Facts()) for p in PASSES)


def test_a_pass_that_breaks_types_is_caught(monkeypatch):
    def broken(closed, facts):
        other = make_jaxpr(lambda x: x > 0)(X)
        return closed.replace(jaxpr=closed.jaxpr.replace(outvars=other.jaxpr.outvars))

    monkeypatch.setattr(preparing, "PASSES", (Pass("broken", "", broken, "", is_needed=True),))
    with pytest.raises(Exception, match=r"(?i)var|scope|defined"):
        prepare(make_jaxpr(lambda x: x * 2)(X))


def test_passes_are_observed_in_order():
    seen = []
    facts = Facts(machine="cpu", is_whole=True)
    prepare(make_jaxpr(lambda x: x + 0.0)(X), facts, lambda name, *programs: seen.append(name))
    assert seen == [p.name for p in PASSES if p.run is not None and p.only != "gpu"]


def test_calls_of_all_kinds_are_inlined():
    @jit
    def inner(x):
        return jnp.tanh(x)

    @amdjax.custom_jvp
    def custom(x):
        return x * 3

    custom.defjvp(lambda p, t: (p[0] * 3, t[0] * 3))

    def f(x):
        return amdjax.checkpoint(lambda y: inner(inner(y)) + custom(y))(x)

    flat = flatten_calls(make_jaxpr(f)(X))
    assert primitives(flat) == ["tanh", "tanh", "mul", "add"]
    np.testing.assert_allclose(run_jaxpr(flat, X)[0], np.tanh(np.tanh(X)) + X * 3, rtol=1e-6)


def test_constants_of_inner_programs_move_out():
    table = jnp.arange(3.0)
    flat = flatten_calls(make_jaxpr(lambda x: jit(lambda y: y * table)(x))(X))
    np.testing.assert_array_equal(run_jaxpr(flat, X)[0], X * np.arange(3))


def test_results_that_are_arguments_or_literals_stay():
    flat = flatten_calls(make_jaxpr(lambda x: jit(lambda y: (y, 2.0, y))(x))(X))
    assert primitives(flat) == []
    a, b, c = run_jaxpr(flat, X)
    np.testing.assert_array_equal(a, X)
    np.testing.assert_array_equal(c, X)
    assert b == 2


def test_loop_bodies_keep_their_calls_until_they_are_lowered():
    flat = flatten_calls(
        make_jaxpr(lambda x: lax.fori_loop(0, 3, lambda i, c: jit(jnp.sin)(c), x))(X)
    )
    assert primitives(flat) == ["scan"] or primitives(flat) == ["while"]


def test_decomposed_operations_become_primitives_with_kernels():
    flat = flatten_calls(make_jaxpr(lambda x: jnp.linalg.norm(x, axis=1))(X))
    from amdjax.core.lowering import Decompose

    assert not any(isinstance(e.primitive.lowering, Decompose) for e in flat.jaxpr.eqns)


def test_equal_expressions_are_computed_once():
    def f(x):
        return jnp.sin(x) * 2 + jnp.sin(x) * 2, jnp.sum(x, 0) + jnp.sum(x, 0)

    after = eliminate_common_subexpressions(flatten_calls(make_jaxpr(f)(X)))
    assert primitives(after) == ["sin", "mul", "add", "reduce_sum", "add"]


@pytest.mark.parametrize("f", [
    lambda x: (jnp.sum(x, 0), jnp.sum(x, 1)[:1]),
    lambda x: (x.astype("float16"), x.astype("bfloat16")),
    lambda x: (x * 1.5, x * 2.5),
    lambda x: (x * 0.0, x * -0.0),
    lambda x: (x - x[::-1], x[::-1] - x),
])  # fmt: skip
def test_different_expressions_stay_different(f):
    before = flatten_calls(make_jaxpr(f)(X))
    after = eliminate_common_subexpressions(before)
    for a, b in zip(run_jaxpr(before, X), run_jaxpr(after, X), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def test_effects_are_never_merged_or_dropped():
    seen = []

    def f(x):
        amdjax.debug.callback(lambda v: seen.append(float(v)), x[0, 0])
        amdjax.debug.callback(lambda v: seen.append(float(v)), x[0, 0])
        return 1.0

    after = prepare(make_jaxpr(f)(X))
    assert primitives(after).count("debug_callback") == 2
    jit(f)(X)
    assert seen == [-2.0, -2.0]


def test_dead_code_goes_and_arguments_stay():
    def f(x, y):
        jnp.exp(y) @ jnp.ones((3, 2))
        return x * 2

    after = eliminate_dead_code(flatten_calls(make_jaxpr(f)(X, X)))
    assert primitives(after) == ["mul"]
    assert len(after.jaxpr.invars) == 2
    assert not after.consts


def test_unused_carries_of_loops_go():
    def f(x):
        return lax.fori_loop(0, 4, lambda i, c: (c[0] + 1, jnp.sin(c[1])), (x, x))[0]

    after = prepare(make_jaxpr(f)(X))
    (loop,) = [e for e in after.jaxpr.eqns if e.primitive.name in ("scan", "while")]
    body = loop.params.get("jaxpr") or loop.params["body_jaxpr"]
    assert "sin" not in primitives(body)


def test_one_constant_is_one_variable():
    table = jnp.arange(3.0)
    f = lambda x: jit(lambda y: y + table)(x) * jit(lambda y: y - table)(x)
    after = eliminate_common_subexpressions(flatten_calls(make_jaxpr(f)(X)))
    used = {x for e in after.jaxpr.eqns for x in e.invars if x in after.jaxpr.constvars}
    assert len(used) == 1


def test_what_checkpoint_recomputes_is_not_merged_with_what_was_known():
    def f(x):
        return amdjax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()

    closed = flatten_calls(make_jaxpr(grad(f))(X))
    merged = eliminate_common_subexpressions(closed)
    names = primitives(merged)
    assert "optimization_barrier" in names
    # the argument is read before and behind, where no kernel shall compute for both
    assert "optimization_barrier" in primitives(remove_barriers(merged))
    without = eliminate_common_subexpressions(remove_barriers(closed))
    assert names.count("sin") >= primitives(without).count("sin")
    (g,) = run_jaxpr(remove_barriers(merged), X)
    np.testing.assert_allclose(g, np.cos(np.sin(X)) * np.cos(X), rtol=1e-5)


def test_barriers_written_by_users_separate_too():
    f = lambda x: jnp.sin(x) + jnp.sin(lax.optimization_barrier(x))
    after = prepare(make_jaxpr(f)(X))
    assert primitives(after).count("sin") == 2


def test_programs_are_not_changed_by_passes():
    closed = make_jaxpr(lambda x: jit(lambda y: y + 0.0)(x) * 1.0)(X)
    text = str(closed)
    prepare(closed)
    assert str(closed) == text


def test_simplified_golden():
    def f(x):
        y = (x.T.T + 0.0) * 1.0
        return jnp.maximum(y, y).reshape(6).reshape(3, 2) / 4.0

    after = prepare(make_jaxpr(f)(X))
    assert primitives(after) == ["reshape", "mul"]
    assert all(Primitive.by_name[n].lowering is not None for n in primitives(after))


def test_what_is_written_twice_is_shared_before_rules_take_it_apart():
    closed = prepare(make_jaxpr(lambda x, y: (x @ y, (x @ y).T))(X, X.T))
    assert primitives(closed).count("dot_general") == 1
