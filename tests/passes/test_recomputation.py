"""Programs under `memory_limit` compute again what they cannot keep, and give the same results."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, lax
from amdjax.core.config import memory_limit
from amdjax.core.errors import JaxRuntimeError
from amdjax.jit import plan as planning
from amdjax.jit.memory_limit import keep_within
from amdjax.passes.liveness import Liveness
from tests.random_programs.check import check
from tests.random_programs.draw import draw
from tests.random_programs.libraries import Traced

LAYERS, ROWS, WIDTH = 6, 256, 64


def block(p, x):
    mean = x.mean(-1, keepdims=True)
    y = (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * p["scale"]
    return x + amdjax.nn.gelu(y @ p["w1"] + p["b"]) @ p["w2"]


def attention(p, x):
    q, k, v = (x @ p["w1"][:, :WIDTH], x @ p["w2"][:WIDTH], x * p["scale"])
    return block(p, x + amdjax.nn.softmax(q @ k.T / 6.0) @ v)


def training_step(layer):
    def loss(params, x, t):
        for p in params:
            x = layer(p, x)
        return ((x - t) ** 2).mean()

    def step(params, x, t):
        value, grads = amdjax.value_and_grad(loss)(params, x, t)
        return value, amdjax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    return step


def arguments():
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape) * 0.1, "float32")
    params = [
        {"w1": normal(WIDTH, 4 * WIDTH), "w2": normal(4 * WIDTH, WIDTH),
         "b": normal(4 * WIDTH), "scale": 1 + normal(WIDTH)}
        for _ in range(LAYERS)
    ]  # fmt: skip
    return params, normal(ROWS, WIDTH), normal(ROWS, WIDTH)


ARGS = arguments()


def needs(compiled):
    return compiled.memory_analysis().temp_size_in_bytes


def products(compiled):
    return compiled.as_text("simplified").count("dot_general")


def assert_same(got, expected):
    for a, b in zip(amdjax.tree.leaves(got), amdjax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("layer", [block, attention])
def test_a_training_step_within_half_of_its_memory(layer):
    lowered = jit(training_step(layer)).lower(*ARGS)
    plain = lowered.compile()
    half = needs(plain) // 2
    compiled = lowered.compile(compiler_options={"memory_limit": half})
    assert needs(compiled) <= half
    # a third of the products are the forward pass, of which less than all is repeated
    assert products(compiled) <= 4 / 3 * products(plain)
    assert_same(compiled(*ARGS), plain(*ARGS))
    assert "# recompute_for_memory" in compiled.as_text("passes")


def test_jit_and_config_take_the_limit_too():
    step = training_step(block)
    half = needs(jit(step).lower(*ARGS).compile()) // 2
    limited = jit(step, compiler_options={"memory_limit": half})
    assert needs(limited.lower(*ARGS).compile()) <= half
    assert_same(limited(*ARGS), jit(step)(*ARGS))
    with memory_limit(half):
        assert needs(jit(step).lower(*ARGS).compile()) <= half


def test_what_is_within_the_limit_stays_as_it_is():
    lowered = jit(training_step(block)).lower(*ARGS)
    plain = lowered.compile()
    same = lowered.compile(compiler_options={"memory_limit": needs(plain)})
    assert same.as_text("simplified") == plain.as_text("simplified")


def test_a_limit_out_of_reach_tells_the_least_peak():
    lowered = jit(training_step(block)).lower(*ARGS)
    message = r"memory_limit is 1,000 bytes, but intermediates take [\d,]+, and ([\d,]+) at least"
    with pytest.raises(JaxRuntimeError, match=message) as e:
        lowered.compile(compiler_options={"memory_limit": 1000})
    least = int(e.value.args[0].split("and ")[1].split(" at")[0].replace(",", ""))
    assert least < needs(lowered.compile()) / 2
    compiled = lowered.compile(compiler_options={"memory_limit": least})
    assert needs(compiled) == least
    with pytest.raises(
        JaxRuntimeError, match=r"limit is 10 bytes, but intermediates take 32,768.$"
    ):
        jit(lambda x: jnp.sort(x * 2) @ x).lower(jnp.ones(2048)).compile(
            compiler_options={"memory_limit": 10}
        )


def test_it_can_be_off():
    off = "recompute_for_memory,checkpoint_loops"
    options = {"memory_limit": 1000, "disabled_passes": off}
    jit(training_step(block)).lower(*ARGS).compile(compiler_options=options)


@pytest.mark.parametrize("options", [{"symbolic": "n"}, {"dynamic": "auto"}])
def test_programs_of_symbolic_shapes_are_compiled_for_each_size(options):
    f = jit(lambda x: jnp.sort(x) * 2, compiler_options={"memory_limit": 100}, **options)
    for n in (4, 5, 6):
        np.testing.assert_array_equal(f(jnp.ones(n)), [2] * n)
    with pytest.raises(JaxRuntimeError, match=r"memory_limit is 100 bytes, but .* take"):
        f(jnp.ones(5000))


def test_checkpointed_layers_keep_their_arguments_only():
    plain = jit(training_step(block)).lower(*ARGS).compile()
    compiled = jit(training_step(amdjax.checkpoint(block))).lower(*ARGS).compile()
    assert needs(compiled) < needs(plain) / 3
    assert_same(compiled(*ARGS), plain(*ARGS))


def test_what_is_packed_of_constants_once_does_not_count():
    params, x, _ = ARGS
    lowered = jit(lambda x: block(params[0], x)).lower(x)
    options = {"memory_limit": needs(lowered.compile())}
    assert needs(lowered.compile(compiler_options=options)) == options["memory_limit"]


@pytest.mark.parametrize("last", ["new name", "first name"])
def test_memory_of_a_value_with_two_names_is_taken_over_once_both_are_read(last):
    def f(x):
        a = jnp.sort(x)
        y, b = lax.optimization_barrier((x, a))
        c = jnp.sort(y if last == "first name" else b) * 3
        return (x if last == "first name" else y) * 2 + c

    x = np.random.default_rng(1).normal(size=4096).astype("float32")
    compiled = jit(f, donate_argnums=0).lower(jnp.asarray(x)).compile()
    assert compiled.memory_analysis().alias_size_in_bytes == x.nbytes
    np.testing.assert_allclose(compiled(jnp.asarray(x)), x * 2 + np.sort(x) * 3, rtol=1e-6)


def test_liveness_of_values_that_are_computed_where_they_are_read():
    def f(x):
        a = x + 1
        b = a * 2
        c = jnp.sin(x)
        return jnp.cos(c) + b

    closed = amdjax.make_jaxpr(f)(jnp.ones(4))
    a, b, c, d, e = (eqn.outvars[0] for eqn in closed.eqns)
    lives = Liveness(closed.eqns, {e}, held={a, c}, passed={b, d})
    assert [lives.last[v] for v in (a, b, c, d)] == [4, 4, 4, 4]
    assert lives.sizes[:5] == [16, 16, 32, 32, 32]
    assert lives.peak() == (2, 32)


@pytest.mark.turns(4)
@pytest.mark.parametrize("which", range(2))
@pytest.mark.parametrize("seed", range(4))
def test_random_programs_compute_the_same(monkeypatch, seed, which):
    """Whatever is computed again, and whether that is of use or not."""

    def anything(closed, limit, needed, search, note):
        found = []

        def needs(program):
            found.append(program)
            return limit + 1

        with pytest.raises(JaxRuntimeError):
            keep_within(closed, limit, needs, search)
        return found[min(which + 1, len(found) - 1)]

    monkeypatch.setattr(planning, "keep_within", anything)
    program, inputs = draw(9000 + seed, 16)
    with memory_limit(1):
        check(program, inputs, Traced("amdjax"), ["derivative"])


@pytest.mark.parametrize("kinds,features,limit", [("stt", 64, 448_915), ("eeset", 128, 1_120_000)])
def test_products_that_nothing_reads_any_more_are_told_from_others(kinds, features, limit):
    """What is computed again leaves a product without readers, of the shapes of one with some."""
    generator = np.random.default_rng(0)
    shapes = [(features, features)] * len(kinds)
    ws = [generator.standard_normal(s, dtype=np.float32) / features**0.5 for s in shapes]
    x = generator.standard_normal((256, features), dtype=np.float32)

    def loss(ws, x):
        for w, kind in zip(ws, kinds):
            h = x @ w
            x = {"s": jnp.sin(h) * h, "t": jnp.tanh(h) + x, "e": jnp.exp(-h * h) + x}[kind]
        return (x * x).mean()

    gradient = amdjax.grad(loss)
    found = amdjax.jit(gradient, compiler_options={"memory_limit": limit})(ws, x)
    for one, other in zip(found, amdjax.jit(gradient)(ws, x)):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
