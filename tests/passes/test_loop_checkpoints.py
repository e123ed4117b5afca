"""Loops that stack less under `memory_limit` compute steps again, and give the same results."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, lax, rnn
from amdjax.core.check import check_jaxpr
from amdjax.core.config import disabled_passes
from amdjax.core.errors import JaxRuntimeError
from amdjax.core.jaxpr import jaxpr_as_fun
from amdjax.core.lowering import Shaped
from amdjax.passes import prepare
from amdjax.passes.loop_checkpoints import checkpoint_loops

RNG = np.random.default_rng(0)
STEPS, ROWS, WIDTH = 12, 64, 16


def draw(*shape):
    return jnp.asarray(RNG.normal(size=shape) * 0.3, "float32")


def block(x, p):
    y = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return x + amdjax.nn.gelu(y @ p["w1"] + p["b"]) @ p["w2"], None


def network(p, x):
    return (lax.scan(block, x, p)[0] ** 2).mean()


def parameters(steps=STEPS):
    return {
        "w1": draw(steps, WIDTH, 4 * WIDTH), "b": draw(steps, 4 * WIDTH),
        "w2": draw(steps, 4 * WIDTH, WIDTH),
    }  # fmt: skip


NETWORK = amdjax.value_and_grad(network), (parameters(), draw(ROWS, WIDTH))


def needs(compiled):
    return compiled.memory_analysis().temp_size_in_bytes


def assert_same(got, want, ulps=0):
    for a, b in zip(amdjax.tree.leaves(got), amdjax.tree.leaves(want), strict=True):
        a, b = np.float64(a), np.float64(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=ulps * 2**-23 * np.abs(b).max())


def lengths(closed):
    """Steps of loops, with those of loops in them."""
    return [
        (e.params["length"], *lengths(e.params["jaxpr"]))
        for e in closed.eqns
        if e.primitive.name == "scan"
    ]


@pytest.mark.turns(2)
@pytest.mark.parametrize("share", [0.6, 0.3])
def test_a_step_of_a_scanned_network_within_a_part_of_its_memory(share):
    f, args = NETWORK
    lowered = jit(f).lower(*args)
    plain = lowered.compile()
    limit = int(share * needs(plain))
    compiled = lowered.compile(compiler_options={"memory_limit": limit})
    assert needs(compiled) <= limit
    assert "# checkpoint_loops: " in compiled.as_text("passes")
    assert_same(compiled(*args), plain(*args), 4)


def test_the_least_that_is_possible_is_told():
    f, args = NETWORK
    lowered = jit(f).lower(*args)
    with pytest.raises(JaxRuntimeError, match=r"and ([\d,]+) at least where values are") as e:
        lowered.compile(compiler_options={"memory_limit": 1000})
    least = int(e.value.args[0].split("and ")[1].split(" at")[0].replace(",", ""))
    assert least < 0.25 * needs(lowered.compile())
    compiled = lowered.compile(compiler_options={"memory_limit": least})
    assert needs(compiled) == least
    # carried once a chunk, whose steps are carried again and then run a third time
    changed = next(c for c in compiled.passes if c.name == "checkpoint_loops")
    assert any(len(loop) == 3 for loop in lengths(changed.result))


def test_on_a_gpu():
    f, args = NETWORK
    lowered = jit(f).lower(*args)
    limit = needs(lowered.compile("gfx1100")) // 3
    compiled = lowered.compile("gfx1100", compiler_options={"memory_limit": limit})
    assert needs(compiled) <= limit


@pytest.mark.devices
def test_chunks_run_on_each_machine(device):
    def loss(w, x):
        step = lambda h, x: (jnp.tanh(h @ w) * jnp.sin(x), None)
        return (lax.scan(step, jnp.ones((4, 8)), x)[0] ** 2).sum()

    w, x = draw(8, 8), draw(6, 4, 8)
    f = amdjax.value_and_grad(loss)
    with disabled_passes("sum_after_loops"):
        closed = prepare(amdjax.make_jaxpr(f)(w, x))
    found = checkpoint_loops(closed, lambda eqn: 1.0, lambda eqn: True)
    program = next(p for p, _ in found if len(lengths(p)[0]) > 1)
    got, want = jit(jaxpr_as_fun(program))(w, x), jit(f)(w, x)
    assert_same(got, want, 16)


def test_each_of_both_passes_can_be_off():
    f, args = NETWORK
    lowered = jit(f).lower(*args)
    half = needs(lowered.compile()) // 2
    options = {"memory_limit": half, "disabled_passes": "recompute_for_memory"}
    assert needs(lowered.compile(compiler_options=options)) <= half
    options["disabled_passes"] = "checkpoint_loops"
    with pytest.raises(JaxRuntimeError, match="RESOURCE_EXHAUSTED: memory_limit"):
        lowered.compile(compiler_options=options)


def test_sums_are_made_in_loops_where_their_operands_would_be_stacked():
    def loss(w, u, x):
        step = lambda h, x: (jnp.tanh(x @ w + h @ u), None)
        return lax.scan(step, jnp.zeros((ROWS, WIDTH)), x)[0].sum()

    args = draw(WIDTH, WIDTH), draw(WIDTH, WIDTH), draw(4 * STEPS, ROWS, WIDTH)
    lowered = jit(amdjax.grad(loss, argnums=(0, 1))).lower(*args)
    plain = lowered.compile()
    limit = needs(plain) // 2
    compiled = lowered.compile(compiler_options={"memory_limit": limit})
    assert needs(compiled) <= limit
    assert_same(compiled(*args), plain(*args), 16)
    with disabled_passes("sum_after_loops"):
        kept = lowered.compile(compiler_options={"memory_limit": limit})
    assert needs(kept) <= limit


def gru(x, w, u, b):
    return (rnn.gru(rnn.Weights(w, u, b, b), x)[0] ** 2).sum()


def branches(w, x):
    def step(c, x):
        i, h = c
        h = lax.cond(i % 2 == 0, lambda h: jnp.sin(h @ w), lambda h: jnp.cos(h) * x, h)
        return (i + 1, h), h[0]

    (_, h), ys = lax.scan(step, (0, jnp.ones((4, 8))), x)
    return (h * ys.sum(0)).sum()


def loops_in_steps(w, x):
    inner = lambda h, x: (jnp.tanh(h @ w + x), None)
    step = lambda h, x: (lax.scan(inner, h, x)[0], None)
    return (lax.scan(step, jnp.ones((4, 8)), x)[0] ** 2).sum()


def backward(w, x):
    """From the last step, with a value that no step changes and one that others read."""

    def step(c, x):
        h, scale = c
        y = jnp.exp(-h * h) * scale
        return (jnp.tanh(y @ w + x), scale), (y, h)

    (h, s), (ys, hs) = lax.scan(step, (jnp.ones((4, 8)), x[0]), x, reverse=True)
    return (h * s).sum() + (ys[1] * hs).sum()


def noisy(w, x):
    def step(c, x):
        h, key = c
        key, now = amdjax.random.split(key)
        h = jnp.tanh(h @ w) * amdjax.random.bernoulli(now, 0.5, h.shape) + x
        return (h, key), None

    return lax.scan(step, (jnp.ones((4, 8)), amdjax.random.key(1)), x)[0][0].sum()


def two(w, x):
    """Two loops, the second of which reads what the first stacks."""
    step = lambda h, x: (jnp.tanh(h @ w + x), jnp.sin(h))
    h, ys = lax.scan(step, jnp.ones((4, 8)), x)
    return lax.scan(step, h, ys)[0].sum()


def accumulated(w, xs):
    """Gradients of a loop, summed in the steps of another."""

    def step(total, x):
        loss = lambda w: lax.fori_loop(0, 6, lambda i, h: jnp.tanh(h @ w + x), jnp.ones((4, 8)))
        return total + amdjax.grad(lambda w: loss(w).sum())(w), None

    return (lax.scan(step, jnp.zeros_like(w), xs)[0] ** 2).sum()


CASES = {
    "gru": (gru, (draw(6, 4, 8), draw(8, 24), draw(8, 24), draw(24))),
    **{
        f.__name__: (f, (draw(8, 8), draw(6, 4, 8)))
        for f in (branches, backward, noisy, two, accumulated)
    },
    "loops_in_steps": (loops_in_steps, (draw(8, 8), draw(6, 2, 4, 8))),
}  # fmt: skip


def test_loops_in_the_steps_of_a_loop_stack_less():
    """Where gradients are accumulated, most is in memory in a step."""
    f, (p, x) = NETWORK

    def accumulated(p, xs):
        add = lambda total, x: (amdjax.tree.map(jnp.add, total, f(p, x)[1]), None)
        return lax.scan(add, amdjax.tree.map(jnp.zeros_like, p), xs)[0]

    xs = jnp.stack([x, -x, x * x])
    lowered = jit(accumulated).lower(p, xs)
    plain = lowered.compile()
    limit = int(0.6 * needs(plain))
    compiled = lowered.compile(compiler_options={"memory_limit": limit})
    assert needs(compiled) <= limit
    assert "# checkpoint_loops: " in compiled.as_text("passes")
    assert_same(compiled(p, xs), plain(p, xs), 4)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", CASES)
def test_all_ways_compute_the_same(name):
    f, args = CASES[name]
    f = f if f is accumulated else amdjax.grad(f, argnums=tuple(range(len(args))))
    with disabled_passes("sum_after_loops"):
        closed = prepare(amdjax.make_jaxpr(f)(*args))
    want = jit(jaxpr_as_fun(closed))(*args)
    cost = lambda eqn: 10.0 if isinstance(eqn.primitive.lowering, Shaped) else 1.0
    found = checkpoint_loops(closed, cost, lambda eqn: cost(eqn) < 10)
    nested = [any(len(loop) > 1 for loop in lengths(p)) for p, _ in found]
    assert any(nested)
    assert name in ("loops_in_steps", "accumulated") or not all(nested)
    for program, nanoseconds in found:
        assert nanoseconds > 0
        check_jaxpr(program.jaxpr)
        assert_same(jit(jaxpr_as_fun(program))(*args), want, 4)


def test_the_cheapest_of_several_loops_stacks_less_first():
    _, args = NETWORK
    step = lambda h, x: (jnp.tanh(jnp.sin(h) * jnp.exp(x) + jnp.cos(h)), None)

    def both(p, x, xs):
        return (lax.scan(step, lax.scan(block, x, p)[0], xs)[0] ** 2).mean()

    args = *args, draw(STEPS, ROWS, WIDTH)
    closed = prepare(amdjax.make_jaxpr(amdjax.grad(both))(*args))
    cost = lambda eqn: 1e6 if isinstance(eqn.primitive.lowering, Shaped) else 1.0
    found = checkpoint_loops(closed, cost, lambda eqn: cost(eqn) < 2)
    loops = [e for e in closed.eqns if e.primitive.name == "scan"]
    assert len(loops) == 4  # network, elementwise, and their gradients in the other order
    cheapest = min(found, key=lambda p: p.nanoseconds).program
    assert [e in cheapest.eqns for e in loops] == [True, False, False, True]
    dearest = max(found, key=lambda p: p.nanoseconds).program
    assert not any(e in dearest.eqns for e in loops)
