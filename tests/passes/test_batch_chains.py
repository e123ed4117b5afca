"""Chains of batched products run a few members at a time, wherever all in them can be cut."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, lax, nn
from amdjax.core.config import disabled_passes
from amdjax.core.jaxpr import jaxpr_as_fun
from amdjax.passes import batch_chains, prepare
from amdjax.passes.batch_chains import Caches, run_chains_in_cache
from tests.support.jit_helpers import compiled, on_machine

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Chains of any size pay."""
    monkeypatch.setattr(batch_chains, "FROM_SHARE", 0)
    monkeypatch.setattr(batch_chains, "LEAST_BYTES", 0)
    monkeypatch.setattr(batch_chains, "TURNED_SHARE", 1e9)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def attention(q, k, v, mask):
    """With weights that no pattern knows."""
    s = jnp.einsum("nqd,nkd->nqk", q, k)
    p = jnp.exp(jnp.tanh(s) * s + mask) ** 2
    return jnp.einsum("nqk,nkd->nqd", p / (1 + p.sum(-1, keepdims=True)), v)


def heads(q, k, v, mask):
    """The same, features of each head after the position."""
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    p = jnp.maximum(s + mask, 0) ** 2
    return jnp.einsum("bhqk,bkhd->bqhd", p, v)


def features_first(q, k, v):
    """The batch behind other axes of each operand and of the result."""
    s = jnp.einsum("dqn,dnk->nqk", q, k)
    return jnp.einsum("nqk,knd->qdn", jnp.maximum(s, 0) ** 2, v)


def layers(x, w):
    """Whose gradient has chains behind products that need the chains in front."""
    for _ in range(2):
        s = jnp.einsum("nqd,nkd->nqk", x @ w, x)
        x = jnp.einsum("nqk,nkd->nqd", jnp.tanh(s) / (1 + (s * s).sum(-1, keepdims=True)), x) @ w
    return x


def bilinear(x, a, y):
    return jnp.tanh(jnp.einsum("nid,de,nje->nij", x, a, y)).sum(-1)


def experts(x, w1, w2):
    return jnp.einsum("ecf,efm->ecm", nn.gelu(jnp.einsum("ecm,emf->ecf", x, w1)), w2)


def gradient(f):
    return lambda *args: amdjax.grad(lambda *xs: (f(*xs) ** 2).sum(), tuple(range(len(args))))(
        *args
    )


CASES = {
    "attention": (attention, [draw(6, 9, 4)] * 3 + [draw(9, 9)]),
    "heads": (heads, [draw(4, 9, 2, 5)] * 3 + [draw(9, 9)]),
    "features first": (features_first, [draw(4, 9, 6), draw(4, 6, 9), draw(9, 6, 4)]),
    "gradient of layers": (gradient(layers), [draw(6, 9, 4), draw(4, 4)]),
    "bilinear": (bilinear, [draw(6, 7, 4), draw(4, 5), draw(6, 8, 5)]),
    "experts": (experts, [draw(4, 7, 5), draw(4, 5, 8), draw(4, 8, 5)]),
    "gradient of attention": (gradient(attention), [draw(6, 9, 4)] * 3 + [draw(9, 9)]),
    "gradient of experts": (gradient(experts), [draw(4, 7, 5), draw(4, 5, 8), draw(4, 8, 5)]),
}  # fmt: skip


def loops(closed):
    return [e for e in closed.eqns if e.primitive.name == "scan"]


def products(closed):
    return sum(e.primitive.name == "dot_general" for e in closed.eqns)


@pytest.mark.parametrize(("f", "args"), CASES.values(), ids=CASES)
def test_the_same_values_a_few_members_at_a_time(f, args):
    """Bit by bit: each member's sums are the same."""
    with disabled_passes("run_chains_in_cache"):
        wanted = amdjax.tree.leaves(jit(lambda *xs: f(*xs))(*args))
    found = compiled(f, *args)
    assert "scan" in found.as_text("simplified")
    for x, y in zip(amdjax.tree.leaves(found(*args)), wanted, strict=True):
        np.testing.assert_array_equal(x, y)


def test_values_against_numpy():
    q, k, v, mask = CASES["attention"][1]
    s = np.einsum("nqd,nkd->nqk", q, k)
    p = np.exp(np.tanh(s) * s + mask) ** 2
    wanted = np.einsum("nqk,nkd->nqd", p / (1 + p.sum(-1, keepdims=True)), v)
    np.testing.assert_allclose(jit(attention)(q, k, v, mask), wanted, rtol=1e-4, atol=1e-5)


def cut(f, *args, cache=1 << 10):
    """A program with its loops, for caches of so many bytes."""
    closed = prepare(amdjax.make_jaxpr(f)(*args))
    return closed, run_chains_in_cache(closed, Caches(cache, 1 << 20, 1))


def test_all_of_a_gradient_is_one_chain():
    """But sums over the batch, of what is the same for all members, which stay outside."""
    closed, found = cut(*[CASES["gradient of attention"][0]], *CASES["gradient of attention"][1])
    (loop,) = loops(found)
    assert products(found) == 0 and products(loop.params["jaxpr"]) == products(closed)
    assert any(e.primitive.name == "reduce_sum" for e in found.eqns)


def test_steps_fit_the_cache():
    args = [np.ones((12, 8, 8), np.float32)] * 3
    f = lambda x, y, z: jnp.maximum(x @ y, 0) @ z  # 256 bytes a member between them
    for cache, steps in ((1 << 9, 12), (1 << 10, 6), (1 << 11, 3), (1 << 14, 2)):
        (loop,) = loops(cut(f, *args, cache=cache)[1])
        assert loop.params["length"] == steps


def test_gradients_behind_other_products_have_chains_of_their_own():
    """Of each layer's gradient one; what is in front of it is kept for it, and in no loop."""
    f, args = CASES["gradient of layers"]
    closed, found = cut(f, *args)
    assert [products(e.params["jaxpr"]) for e in loops(found)] == [4, 4]
    assert products(found) == products(closed) - 8


def test_what_is_turned_is_little(monkeypatch):
    """Intermediates of 9×9 numbers a member, 13×9 of which would be turned."""
    f, args = CASES["features first"]
    monkeypatch.setattr(batch_chains, "TURNED_SHARE", 1)
    assert not loops(cut(f, *args)[1])


def test_less_memory(monkeypatch):
    args = [np.ones((16, 64, 64), np.float32)] * 3
    f = lambda x, y, z: jnp.maximum(x @ y, 0) @ z
    on_machine(monkeypatch, l2_bytes=1 << 17, threads=1)
    temporary = compiled(f, *args).memory_analysis().temp_size_in_bytes
    with disabled_passes("run_chains_in_cache"):
        whole = compiled(lambda *xs: f(*xs), *args).memory_analysis().temp_size_in_bytes
    assert temporary <= whole // 4


REFUSED = {
    "products of other members": lambda x, y, z: lax.rev(jnp.exp(x @ y), (0,)) @ z,
    "sums over the batch": lambda x, y, z: jnp.exp(x @ y).sum(0, keepdims=True) + x @ z,
    "batch axes that differ": lambda x, y, z: jnp.einsum("inj,ink->njk", jnp.exp(x @ y), z),
    "all members beside each": lambda x, y, z: (
        (p := jnp.exp(x @ y)) * p.sum(1, keepdims=True).reshape(1, 4, 4)
    ) @ z,
    "elementwise work alone": lambda x, y, z: jnp.exp(x @ y),
}  # fmt: skip


@pytest.mark.parametrize("f", REFUSED.values(), ids=REFUSED)
def test_what_needs_other_members_is_no_chain(f):
    args = [np.ones((4, 4, 4), np.float32)] * 3
    assert not loops(cut(f, *args)[1])


def test_small_intermediates_stay(monkeypatch):
    monkeypatch.undo()
    args = [np.ones((4, 8, 8), np.float32)] * 3
    assert "scan" not in compiled(lambda x, y, z: (x @ y) ** 2 @ z, *args).as_text("simplified")


@st.composite
def programs(draw):
    """Steps of a program over arrays of shape (6, 4, 4), by number of operation and operands."""
    count = draw(st.integers(3, 9))
    step = lambda i: st.tuples(st.integers(0, 15), st.integers(0, i + 1), st.integers(0, i + 1))
    return [draw(step(i)) for i in range(count)], draw(st.integers(1, 3))


def run(steps, results, x, y):
    """Small integers all along, so that sums are exact in any order."""
    values = [x, y]
    small = lambda v: v % 5 - 2
    kinds = [
        *[lambda a, b: small(a @ b)] * 4,
        lambda a, b: small(a @ jnp.swapaxes(b, 1, 2)),
        lambda a, b: small(jnp.einsum("nij,nkj->nki", a, b)),
        lambda a, b: small(a + b),
        lambda a, b: jnp.where(a > b, a, -b),
        lambda a, b: a - jnp.max(b, -1, keepdims=True),
        lambda a, b: small(jnp.cumsum(a, 1) + b.sum(1, keepdims=True)),
        lambda a, b: small(a.reshape(6, 2, 8).sum(1).reshape(6, 2, 4).repeat(2, 1) + b),
        lambda a, b: jnp.concatenate([a[:, :2], b[:, 2:]], 1),
        lambda a, b: small(a + lax.broadcasted_iota(np.float32, a.shape, 2) * b[0]),
        lambda a, b: small(a.sum(0) + b),
        lambda a, b: lax.rev(a, (0,)) + b,
        lambda a, b: small(jnp.swapaxes(a[:4], 0, 1).reshape(4, 16).sum(1) @ b),
    ]
    for kind, i, j in steps:
        out = kinds[kind](values[i], values[j])
        values.append(jnp.broadcast_to(out, x.shape) if out.ndim == 3 else out[:, None] + x)
    return values[-results:]


@given(programs(), st.sampled_from((1 << 7, 1 << 9, 1 << 12)))
@settings(max_examples=4)
def test_random_programs(program, cache):
    steps, results = program
    rng = np.random.default_rng(len(steps))
    x, y = (rng.integers(-2, 3, (6, 4, 4)).astype(np.float32) for _ in range(2))
    closed, found = cut(lambda x, y: run(steps, results, x, y), x, y, cache=cache)
    with disabled_passes("run_chains_in_cache"):
        wanted = jit(jaxpr_as_fun(closed))(x, y)
        for a, b in zip(jit(jaxpr_as_fun(found))(x, y), wanted, strict=True):
            np.testing.assert_array_equal(a, b)
