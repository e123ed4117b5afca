"""Chains of products in one kernel on GPUs, as machine code in the emulator, against NumPy."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, lax, targets
from amdjax.core.check import check_jaxpr
from amdjax.core.config import disabled_passes
from amdjax.core.jaxpr import jaxpr_as_fun
from amdjax.kernels.chains import gpu
from amdjax.kernels.chains.gpu import CHAINS, ChainProblem, chain_cost, chain_plans, plan_chain
from amdjax.kernels.chains.problem import Chain
from amdjax.kernels.shaped import ShapedContext
from amdjax.passes import prepare
from amdjax.passes.product_chains import fuse_product_chains, product_chain_p
from amdjax.schedule.equations import cost_again
from amdjax.schedule.search import deciding
from tests.support.gpu_runner import DISTINCT, EMULATED, GpuRunner
from tests.support.turns import in_turn

F16, F32, BF16 = np.float16, np.float32, ml_dtypes.bfloat16
#: Half a unit in the last place of numbers about one.
ROUNDING = {F16: 2.0**-11, BF16: 2.0**-8, F32: 2.0**-24}
#: Roundings of what is between products and of results; in float32 also of sums of a hundred terms
#: each, whose errors add up as a random walk does.
ROUNDINGS = {F16: 4, BF16: 4, F32: 4 + 10}


def sigmoid(xp, x):
    return 1 / (1 + xp.exp(-x))


def normalized(xp, q, k, v):
    """Attention by squares, which are divided by the sum of their row; heads before features."""
    w = xp.maximum(xp.einsum("bqhd,bkhd->bhqk", q, k), 0) ** 2
    return xp.einsum("bhqk,bkhd->bqhd", w / (w.sum(-1, keepdims=True) + 1), v)


def masked(xp, q, k, v, bias):
    """With a bias of all members, and a triangle of places."""
    s = xp.einsum("nqd,nkd->nqk", q, k) + bias
    seen = xp.arange(s.shape[1])[:, None] >= xp.arange(s.shape[2])
    return xp.einsum("nqk,nkd->nqd", xp.where(seen, sigmoid(xp, s) / 8, 0), v)


def centered(xp, q, k, v):
    """Of three reductions, each of which needs the one before."""
    s = xp.tanh(xp.einsum("nqd,nkd->nqk", q, k))
    s = s - s.mean(-1, keepdims=True)
    e = xp.exp(s - s.max(-1, keepdims=True)) ** 2
    return xp.einsum("nqk,nkd->nqd", e / e.sum(-1, keepdims=True), v)


def slopes(xp, ct, v, w, k):
    """A gradient's chain, whose weights are in memory."""
    p = xp.einsum("nqd,nkd->nqk", ct, v)
    return xp.einsum("nqk,nkd->nqd", w * (p - (p * w).sum(-1, keepdims=True)), k)


def columns_first(xp, ct, v, w, q):
    """Whose rows are columns of the product in front."""
    return xp.einsum("nqk,nqd->nkd", w * xp.einsum("nqd,nkd->nqk", ct, v), q)


def experts(xp, x, a, b):
    return xp.einsum("ecf,efm->ecm", xp.tanh(xp.einsum("ecm,emf->ecf", x, a)), b)


def gated(xp, x, a, b, c):
    """Of two products between which elements are multiplied, without a batch."""
    return (sigmoid(xp, x @ a) * (x @ b)) @ c


def bilinear(xp, x, a, y):
    return (x @ a) @ y


FORMS = {
    "normalized": (normalized, (2, 37, 2, 40), (2, 50, 2, 40), (2, 50, 2, 24)),
    "masked": (masked, (3, 70, 16), (3, 70, 16), (3, 70, 33), (70, 70)),
    "centered": (centered, (2, 20, 64), (2, 77, 64), (2, 77, 64)),
    "slopes": (slopes, (2, 33, 32), (2, 65, 32), (2, 33, 65), (2, 65, 32)),
    "columns first": (columns_first, (2, 33, 32), (2, 65, 32), (2, 33, 65), (2, 33, 32)),
    "experts": (experts, (4, 17, 32), (4, 32, 100), (4, 100, 32)),
    "gated": (gated, (40, 32), (32, 96), (32, 96), (96, 32)),
    "bilinear": (bilinear, (3, 20, 32), (3, 32, 48), (3, 48, 20)),
}


def operands(shapes, dtype):
    rng = np.random.default_rng(1)
    return [(rng.normal(size=s) / 4).astype(dtype) for s in shapes]


def with_chains(f, *args):
    """A program with its chains, whatever time they take."""
    closed = prepare(amdjax.make_jaxpr(f)(*args))
    return fuse_product_chains(closed, lambda eqn: Chain.of(eqn) is not None, cost_again)


def chains(f, *args):
    return [e for e in with_chains(f, *args).eqns if e.primitive is product_chain_p]


def problem_of(f, *args):
    """The chain that a whole program is, its problem, and its operands."""
    closed = with_chains(f, *args)
    (eqn,) = closed.eqns
    values = dict(zip(closed.jaxpr.invars, args, strict=True))
    return eqn, ChainProblem.of(Chain.of(eqn)), [values[v] for v in eqn.invars]


def check(f, shapes, dtype, gfx, choose=None):
    """Each element is within the roundings of what is between products, and its own."""
    args, target = operands(shapes, dtype), targets.get(gfx)
    eqn, problem, given = problem_of(lambda *xs: f(jnp, *xs), *args)
    plan = choose(chain_plans(problem, target)) if choose else CHAINS.best(problem, target)
    runner = GpuRunner(product_chain_p, given, eqn.params, gfx, lower=plan.emit)
    want = f(np, *(x.astype(np.float64) for x in args))
    got = runner(*given).astype(np.float64)
    bound = ROUNDINGS[dtype] * ROUNDING[dtype] * abs(want).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=bound)


@pytest.mark.parametrize(("gfx", "name"), in_turn(itertools.product(DISTINCT, FORMS), 3))
def test_forms(gfx, name):
    f, *shapes = FORMS[name]
    check(f, shapes, F16, gfx)


@pytest.mark.parametrize(
    ("gfx", "name", "dtype"), in_turn(itertools.product(DISTINCT, FORMS, (BF16, F32)), 8)
)
def test_dtypes(gfx, name, dtype):
    f, *shapes = FORMS[name]
    check(f, shapes, dtype, gfx)


WAYS = {
    "anew": lambda plan: not plan.kept and plan.steps > 1,
    "in registers": lambda plan: plan.kept == "registers" and plan.steps > 1,
    "in LDS": lambda plan: plan.kept == "LDS" and plan.steps > 1,
    "rows again": lambda plan: plan.cut.chunk and plan.kept == "LDS",
    "several rows": lambda plan: plan.cut.high > 1,
    "several waves": lambda plan: plan.cut.waves > 1 and plan.kept == "LDS",
}


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("way", WAYS)
def test_plans(gfx, way):
    """Wherever products of all columns are meanwhile."""
    choose = lambda found: next(filter(WAYS[way], found))
    check(normalized, [(1, 70, 2, 72), (1, 130, 2, 72), (1, 130, 2, 40)], F16, gfx, choose)


def test_results_in_parts():
    """More features than a program has sums for are several programs'."""
    shapes = [(2, 20, 16), (2, 40, 16), (2, 40, 300)]
    attention = lambda xp, q, k, v: xp.tanh(q @ xp.swapaxes(k, -1, -2)) @ v
    check(attention, shapes, F16, "gfx942", lambda found: next(p for p in found if p.cut.parts > 1))


@pytest.mark.parametrize("gfx", EMULATED)
def test_one_launch(gfx, monkeypatch):
    """Of a program, with what is fused behind a chain; values are those of several launches."""
    monkeypatch.setattr(gpu, "apart_cost", lambda chain, target: np.inf)
    f, *shapes = FORMS["normalized"]
    args = operands(shapes, F16)
    layer = lambda x, *args: x + 2 * f(jnp, *args)
    args = [operands([(2, 37, 2, 24)], F16)[0], *args]
    found = jit(layer).lower(*args).compile(gfx).profile(*args)
    with disabled_passes("fuse_product_chains"):
        apart = jit(lambda *xs: layer(*xs)).lower(*args).compile(gfx).profile(*args)
    assert len(found.launches) == 1 < len(apart.launches)
    one, several = (np.asarray(x.results[0], np.float64) for x in (found, apart))
    np.testing.assert_allclose(one, several, rtol=0, atol=2 * ROUNDING[F16] * abs(several).max())


@pytest.mark.parametrize("name", FORMS)
def test_an_equation_is_the_program_it_stands_for(name):
    f, *shapes = FORMS[name]
    args = operands(shapes, F32)
    closed = with_chains(lambda *xs: f(jnp, *xs), *args)
    check_jaxpr(closed.jaxpr)
    (got,) = jaxpr_as_fun(closed)(*args)
    want = f(np, *(x.astype(np.float64) for x in args))
    np.testing.assert_allclose(
        got, want, rtol=0, atol=ROUNDINGS[F32] * ROUNDING[F32] * abs(want).max()
    )


def test_products_belong_to_one_chain():
    """Of three in a row the first two."""
    args = operands([(20, 24), *[(24, 24)] * 3], F32)
    f = lambda x, a, b, c: jnp.tanh(jnp.tanh(x @ a) @ b) @ c
    closed = with_chains(f, *args)
    check_jaxpr(closed.jaxpr)
    names = [e.primitive.name for e in closed.eqns]
    assert names == ["product_chain", "tanh", "dot_general"]
    np.testing.assert_allclose(jaxpr_as_fun(closed)(*args)[0], f(*args), rtol=1e-5, atol=1e-6)


def test_what_is_decided_is_taken():
    """However long it takes, where a chain pays; and none where it does not."""
    target, f = targets.get("gfx942"), lambda *xs: normalized(jnp, *xs)
    shapes = [(16, 128, 16, 64), *[(16, 256, 16, 64)] * 2]
    eqn, problem, _ = problem_of(f, *operands(shapes, F16))
    context = ShapedContext(eqn, target)
    assert plan_chain(context) == CHAINS.best(problem, target)
    worst = max(chain_plans(problem, target), key=lambda p: chain_cost(problem, p, target))
    (solver,) = CHAINS.solvers
    with deciding([CHAINS.decision(solver, worst)]):
        assert plan_chain(context) == worst
    eqn, _, _ = problem_of(lambda *xs: centered(jnp, *xs), *operands(FORMS["centered"][1:], F16))
    assert plan_chain(ShapedContext(eqn, target)) is None


def weights(q, k):
    return jnp.tanh(jnp.einsum("nqd,nkd->nqk", q, k))


REFUSED = {
    "what is between is a result": lambda q, k, v: [w := weights(q, k), w @ v],
    "another product reads it": lambda q, k, v: [
        (w := weights(q, k)) @ v, jnp.swapaxes(w, 1, 2) @ q],
    "both operands are it": lambda q, k, v: (w := weights(q, k)) @ w,
    "the other operand is of it": lambda q, k, v: (w := weights(q, k)) @ (w + 1),
    "of sums over rows": lambda q, k, v: (w := weights(q, k)) / w.sum(1, keepdims=True) @ v,
    "running sums": lambda q, k, v: jnp.cumsum(weights(q, k), -1) @ v,
    "neighbors": lambda q, k, v: (lambda w: w + jnp.roll(w, 1, -1))(weights(q, k)) @ v,
    "beside what is there": lambda q, k, v: jnp.pad(
        weights(q, k)[:, :, :-1], ((0, 0), (0, 0), (1, 0))) @ v,
    "sorted": lambda q, k, v: lax.sort(weights(q, k)) @ v,
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    """Where members of a chain are needed elsewhere, or rows by themselves do not suffice."""
    args = operands([(2, 24, 16)] * 3, F16)
    assert not chains(REFUSED[name], *args)
    assert len(chains(lambda q, k, v: weights(q, k) @ v, *args)) == 1


def test_of_several_dtypes_or_words():
    target = targets.get("gfx942")

    def found(q, k, v):
        f = lambda q, k, v: lax.batch_matmul(weights(q, k).astype(v.dtype), v)
        return problem_of(f, q, k, v)[1]

    q, k, v = operands([(2, 24, 16)] * 3, F16)
    assert chain_plans(found(q, k, v), target)
    assert found(q, k, v.astype(F32)) is None
    assert found(*(x.astype(np.int8) for x in (q, k, v))) is None


def test_what_fits():
    """Products that are kept are within the LDS; rows of any length can be computed anew."""
    shapes = (1, 64, 1, 64), (1, 8192, 1, 64), (1, 8192, 1, 64)
    for gfx in DISTINCT:
        _, problem, _ = problem_of(lambda *xs: normalized(jnp, *xs), *operands(shapes, F16))
        found = chain_plans(problem, targets.get(gfx))
        assert found and not any(plan.kept for plan in found)
