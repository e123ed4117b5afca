"""Regions that are independent run as one launch, and compute what they would one by one."""

from dataclasses import replace

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, nn, optim
from amdjax.core.pytree import tree_flatten, tree_map
from amdjax.jit import plan as planner
from amdjax.jit.plan import plan_program
from amdjax.jit.schedule import Schedule
from amdjax.runtime import vm
from amdjax.schedule.gpu.joined import Candidate, groups_to_join
from amdjax.targets import get
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import verify
from amdjax.tile.parse import parse_kernel
from tests.support.gpu_oracle import TINY, run_schedules

CPU = CpuTarget(vector_bits=256, threads=4)
GFX942, GFX1100, SM_90 = get("gfx942"), get("gfx1100"), get("sm_90")
#: Sizes around a tile's, matrices, one element, and none.
SHAPES = ((5,), (64,), (7, 9), (1000,), (3, 1), (1,), (0, 4), (4099,), (2, 3, 5))


def tree(seed, shapes=SHAPES, dtypes=("float32",)):
    r = np.random.default_rng(seed)
    return [
        jnp.asarray(r.normal(size=s), dtypes[i % len(dtypes)]) for i, s in enumerate(shapes)
    ]  # fmt: skip


def step(p, m, g):
    """What an optimizer does to each leaf."""
    m = tree_map(lambda m, g: (0.9 * m + 0.1 * g.astype(m.dtype)).astype(m.dtype), m, g)
    return tree_map(lambda p, m: (p - 0.25 * jnp.tanh(m)).astype(p.dtype), p, m), m


def alone(monkeypatch):
    """From now on every region has a launch of its own."""
    monkeypatch.setattr(planner, "run_together", lambda fusion, *_: fusion)
    amdjax.clear_caches()


def assert_equal(found, wanted):
    for x, y in zip(tree_flatten(found)[0], tree_flatten(wanted)[0], strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def opcodes(f, *args, target=CPU, donated=()):
    plan = plan_program(jit(f).trace(*args).jaxpr, target, donated)
    return [i.opcode for i in plan.instructions], plan


@pytest.mark.devices
@pytest.mark.parametrize("dtypes", [("float32",), ("float32", "bfloat16", "float16")])
def test_a_tree_in_one_launch(dtypes, monkeypatch):
    args = tree(0, dtypes=dtypes), tree(1, dtypes=dtypes), tree(2, dtypes=dtypes)
    together = jit(step)(*args)
    alone(monkeypatch)
    assert_equal(together, jit(step)(*args))
    amdjax.clear_caches()


def test_values_against_numpy():
    p, m, g = (tree(i) for i in range(3))
    found = jit(step)(p, m, g)
    wanted = [0.9 * np.float64(m) + 0.1 * np.float64(g) for m, g in zip(m, g, strict=True)]
    for x, w in zip(found[1], wanted, strict=True):
        np.testing.assert_allclose(np.asarray(x), w, rtol=3e-7, atol=3e-7)
    for x, old, w in zip(found[0], p, wanted, strict=True):
        exact = np.float64(old) - 0.25 * np.tanh(w)
        np.testing.assert_allclose(np.asarray(x), exact, rtol=5e-7, atol=5e-7)


@pytest.mark.devices
def test_donated_trees(monkeypatch):
    """Each leaf is written where it was, though its neighbors still run."""
    args = lambda: tree_map(lambda x: x + 0, (tree(0), tree(1), tree(2)))
    updated = jit(step, donate_argnums=(0, 1))(*args())
    assert_equal(updated, jit(step)(*args()))


@pytest.mark.devices
def test_what_a_neighbor_reads_is_not_overwritten():
    """Both regions read all of a small array that one of them could overwrite."""
    x = np.arange(40, dtype=np.float32)
    f = lambda x, y: (x * 2 + 1, x[::-1] - y)
    for n in (40, 4000):
        x = np.arange(n, dtype=np.float32)
        y = np.ones((3, n), np.float32)
        a, b = jit(f, donate_argnums=0)(jnp.asarray(x), jnp.asarray(y))
        np.testing.assert_array_equal(np.asarray(a), x * 2 + 1)
        np.testing.assert_array_equal(np.asarray(b), x[::-1] - y)


@pytest.mark.devices
def test_the_same_array_twice():
    x, y = jnp.arange(100, dtype=jnp.float32), jnp.ones((33,))
    wanted = np.arange(100) + 1, np.arange(100) * 2, np.zeros(33)
    for f in (
        jit(lambda a, b, c: (a + 1, b * 2, c - 1)),
        jit(lambda a, _, c: (a + 1, a * 2, c - 1)),
    ):
        for got, want in zip(f(x, x, y), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(got), want.astype(np.float32))
    (left,) = f(x, x, y)[:1]
    np.testing.assert_array_equal(np.asarray(left), np.arange(100) + 1)


@pytest.mark.parametrize("target", [CPU, GFX942], ids=["cpu", "gfx942"])
def test_what_depends_waits(target):
    """A region that reads another's result, whole, is no neighbor of it."""

    def f(x, y):
        a = jnp.exp(x) + jnp.sin(x)
        return a, jnp.tanh(y) * a.reshape(6, 5).T[::-1]

    x, y = jnp.linspace(0, 1, 30), jnp.ones((5, 6))
    found = opcodes(f, x, y, target=target)[0]
    assert found == [vm.CALL, vm.CALL, vm.HALT]


def test_launches_on_a_cpu():
    args = tree(0), tree(1), tree(2)
    found, _ = opcodes(step, *args)
    assert found == [vm.CALLS, vm.HALT]
    assert opcodes(lambda x: x + 1, args[0][0])[0] == [vm.CALL, vm.HALT]


@pytest.mark.parametrize("target", [GFX942, GFX1100, SM_90], ids=["gfx942", "gfx1100", "sm_90"])
def test_launches_on_a_gpu(target):
    """One for all leaves, however many of them fit its arguments; on NVIDIA's of a dtype."""
    shapes = [(n, 3) for n in range(100, 150)]
    trees = [tree(i, shapes) for i in range(3)]
    calls, plan = opcodes(step, *trees, target=target)
    assert calls == [vm.CALL, vm.HALT]
    (kernel,) = plan.kernels()
    assert kernel.batch == 50 and str(parse_kernel(str(kernel))) == str(kernel)
    two = [tree(i, shapes, ("float32", "bfloat16")) for i in range(3)]
    found = [k.batch for k in opcodes(step, *two, target=target)[1].kernels()]
    assert found == ([25, 25] if target is SM_90 else [50])
    trees = [tree(i, [(n,) for n in range(2000, 2200)]) for i in range(3)]
    kernels = opcodes(step, *trees, target=target)[1].kernels()
    most = target.kernarg_bytes // (8 * (1 + len(kernel.params)))
    # As many launches as it takes, of the same code.
    assert len(kernels) == -(-200 // most) and len({str(replace(k, grid=0)) for k in kernels}) == 1
    assert 0 <= sum(k.batch for k in kernels) - 200 < len(kernels)


@pytest.mark.devices
def test_launches_of_one_size():
    """The last launch is filled up with leaves that have no programs."""
    shapes = [(1 + n % 7,) for n in range(85)]
    args = [tree(i, shapes) for i in range(3)]
    found = jit(step)(*args)
    for i, (p, m, g) in enumerate(zip(*args, strict=True)):
        new = 0.9 * np.float64(m) + 0.1 * np.float64(g)
        np.testing.assert_allclose(np.asarray(found[1][i]), new, rtol=3e-7, atol=3e-7)
        exact = np.float64(p) - 0.25 * np.tanh(new)
        np.testing.assert_allclose(np.asarray(found[0][i]), exact, rtol=5e-7, atol=5e-7)


def test_the_schedule_says_so():
    args = tree(0), tree(1), tree(2)
    seen = []
    observe = lambda stage, x: seen.append(x) if stage == "schedule" else None
    plan_program(jit(step).trace(*args).jaxpr, CPU, observe=observe)
    (found,) = seen
    assert isinstance(found, Schedule)
    assert "8 maps in one launch:" in str(found).splitlines()


def test_tile_programs_of_a_tree():
    """The kernels of a GPU, whose tiles are a few elements, on the CPU."""
    args = tree(0, [s for s in SHAPES if 0 not in s]), tree(1, SHAPES[:6]), tree(2, SHAPES[:6])
    args = tuple(a[:6] for a in args)
    assert_equal(run_schedules(step, *args, target=TINY), jit(step)(*args))


def test_sums_of_a_tree_together():
    """Regions with reductions too, whose parts are combined by a second launch."""
    shapes = [(300,), (70, 900), (100_000,), (7,), (400_000,)]
    leaves = tree(0, shapes)
    norm = lambda xs: jnp.sqrt(sum(jnp.sum(x * x) for x in xs))
    found, _ = opcodes(norm, leaves)
    # The last sum goes on with what follows of all.
    assert found == [vm.CALLS, vm.CALLS, vm.CALL, vm.CALL, vm.HALT]
    exact = np.sqrt(sum(np.sum(np.float64(x) ** 2) for x in leaves))
    np.testing.assert_allclose(float(jit(norm)(leaves)), exact, rtol=1e-6)


@pytest.mark.devices
def test_sums_of_equal_leaves(small):
    """Reductions that programs of a GPU share, each with counters of its own."""
    n = small(200_000, 30_000)
    leaves = tree(0, [(n,), (5, 7), (n,), (n,), (5, 7)])
    sums = jit(lambda xs: [jnp.sum(x * x) for x in xs])
    for _ in range(3):  # counters are zero again
        for got, x in zip(sums(leaves), leaves, strict=True):
            exact = np.sum(np.float64(x) ** 2)
            np.testing.assert_allclose(float(got), exact, rtol=1e-6)


def test_equal_reductions_share_a_launch_on_a_gpu():
    leaves = [jnp.ones(200_000), jnp.ones((5, 7)), jnp.ones(200_000), jnp.ones((5, 7))]
    found, plan = opcodes(lambda xs: [jnp.sum(x * x) for x in xs], leaves, target=SM_90)
    assert found == [vm.CALL, vm.CALL, vm.HALT] and [k.batch for k in plan.kernels()] == [2, 1]


def test_kernels_of_different_code_share_a_launch():
    """Sums that programs share, sums of one program, maps whose threads have more elements."""
    leaves = [jnp.ones(200_000), jnp.ones((5, 7)), jnp.ones(200_000), jnp.ones(9, "int8")]
    f = lambda xs: [*(jnp.sum(x * x) for x in xs[:3]), xs[3] + 1]
    found, plan = opcodes(f, leaves, target=GFX942)
    (kernel,) = plan.kernels()
    assert found == [vm.CALL, vm.HALT] and kernel.batch == 4
    assert str(parse_kernel(str(kernel))) == str(kernel)
    verify(kernel)


@pytest.mark.devices
def test_what_kernels_of_different_code_compute(small, monkeypatch):
    """Sums, extrema and maps of several dtypes, bit by bit what launches of their own compute."""
    n = small(200_000, 30_000)
    leaves = tree(0, [(n,), (5, 7), (4099,), (3, 300), (1,)], ("float32", "bfloat16", "int32"))

    def f(xs):
        sums = [jnp.sum(x.astype("float32") ** 2) for x in xs]
        return sums, [jnp.max(x, -1) for x in xs], [x * x + 1 for x in xs]

    together = jit(f)(leaves)
    for got, x in zip(together[0], leaves, strict=True):
        np.testing.assert_allclose(float(got), np.sum(np.float64(x) ** 2), rtol=1e-5)
    alone(monkeypatch)
    assert_equal(together, jit(f)(leaves))
    amdjax.clear_caches()


def kernel_of(f, *args):
    """The first kernel of a function, as one that a launch may have beside others."""
    found = opcodes(f, *args, target=GFX942)[1].kernels()[0]
    return Candidate(found, found.grid, 1, False)


def test_which_kernels_share_a_launch():
    a, b = kernel_of(jnp.exp, jnp.ones(1000)), kernel_of(jnp.sum, jnp.ones((100, 20)))
    product = kernel_of(jnp.matmul, jnp.ones((64, 64)), jnp.ones((64, 64)))
    threads = a.kernel.schedule.workgroup
    assert groups_to_join([a, product, b], GFX942) == [[1], [0, 2]]
    assert groups_to_join([a, product, b], SM_90) == [[0], [1], [2]]
    large = replace(a, programs=GFX942.resident_threads // threads)
    assert groups_to_join([large, b], GFX942) == [[0], [1]]
    many = replace(a, lists=GFX942.kernarg_bytes // 8)
    assert groups_to_join([many, b], GFX942) == [[0], [1]]
    # More threads than it was planned for would read what others of them have written.
    few = replace(a.kernel, schedule=replace(a.kernel.schedule, workgroup=threads // 2))
    others = replace(a, kernel=few), replace(a, kernel=few, in_place=True)
    assert groups_to_join([replace(a, programs=9), others[0]], GFX942) == [[0, 1]]
    assert groups_to_join([replace(a, programs=9), others[1]], GFX942) == [[0], [1]]


@pytest.mark.devices
def test_in_a_loop(small):
    """Carried trees, whose two buffers are exchanged."""
    shapes = [(5,), (300,), (4, 9)]
    p, m, g = (tree(i, shapes) for i in range(3))
    rounds = small(9, 3)

    def many(p, m, g):
        return amdjax.lax.fori_loop(0, rounds, lambda i, c: step(*c, g), (p, m))

    found = jit(many)(p, m, g)
    for _ in range(rounds):
        p, m = jit(step)(p, m, g)
    assert_equal(found, (p, m))


@pytest.mark.devices
@pytest.mark.parametrize("name", ["adam", "adamw", "lion"])
def test_optimizers(name, monkeypatch):
    shapes = [(5,), (300,), (4, 9), (1, 1)]
    params, gradients = tree(0, shapes), tree(1, shapes)
    optimizer = getattr(optim, name)(1e-2)

    def update(params, state, gradients):
        updates, state = optimizer.update(gradients, state, params)
        return optim.apply_updates(params, updates), state

    state = optimizer.init(params)
    found = jit(update)(params, state, gradients)
    alone(monkeypatch)
    assert_equal(found, jit(update)(params, state, gradients))
    amdjax.clear_caches()


def test_a_training_step_keeps_its_loss():
    """Layers between whose steps regions go up."""
    k1, k2 = amdjax.random.split(amdjax.random.key(0))
    model = nn.Sequential([nn.Linear(9, 16, key=k1), jnp.tanh, nn.Linear(16, 4, key=k2)])
    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 9)), jnp.float32)
    loss = lambda m, x: jnp.mean(m(x) ** 2)
    eager = amdjax.value_and_grad(loss)(model, x)
    assert_close(jit(amdjax.value_and_grad(loss))(model, x), eager)


def assert_close(found, wanted):
    for x, y in zip(tree_flatten(found)[0], tree_flatten(wanted)[0], strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-6)
