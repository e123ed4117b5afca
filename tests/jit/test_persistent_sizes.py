"""Loops of symbolic rounds and extents, which a GPU runs as one launch, at many sizes."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, rnn, targets, tile
from amdjax.core.dims import SizedScope, SymbolicScope, at_sizes
from amdjax.core.instantiate import instantiate
from amdjax.emulator.debug.counters import recording
from amdjax.export import symbolic_shape
from amdjax.jit.gpu.kernels import compile_device
from amdjax.kernels.products.gpu.resident import plan_resident
from amdjax.runtime.gpu import GpuDevice
from amdjax.schedule.gpu.persistent import MOST_ARRIVALS, PersistentPlan
from amdjax.tree_util import tree_leaves
from tests.jit.test_persistent import contraction, counted, flipped, gated_slices, sums, written
from tests.jit.test_variants_gpu import arrays, variants

GPUS = pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])

#: Rounds and batch: one, two, odd ones, powers of two and their neighbors.
SIZES = [(4, 3), (5, 3), (2, 2), (7, 5), (1, 3), (3, 1), (2, 17)]


def layer(kind, hidden=12, inputs=6):
    """A layer as a function of its input and weights, and their shapes."""
    wide = {"rnn": 1, "gru": 3, "lstm": 4}[kind] * hidden
    specs = [f"t, b, {inputs}", f"{inputs}, {wide}", f"{hidden}, {wide}", f"{wide}", f"{wide}"]
    return lambda x, *w: getattr(rnn, kind)(rnn.Weights(*w), x)[0] / 2, specs


def gradients(f, specs):
    return amdjax.grad(lambda *xs: jnp.sin(f(*xs)).sum(), tuple(range(len(specs)))), specs


def launched(f, specs, gfx, sizes):
    """The names of what is launched at each size, results compared with programs of the host."""
    compiled, shapes = variants(f, specs, gfx)
    static, names = amdjax.jit(f), []
    for t, b in sizes:
        xs = arrays(shapes, {"t": t, "b": b})
        run = compiled.runner({"t": t, "b": b})
        with recording() as launches:
            results = [np.asarray(x) for x in run(xs)]
        names.append([x.kernel for x in launches])
        with amdjax.default_device(amdjax.devices("cpu")[0]):
            wanted = [np.asarray(x) for x in tree_leaves(static(*xs))]
        for got, want in zip(results, wanted, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            scale = max(1.0, float(np.abs(want).max(initial=0)))
            error = 40 * scale * np.finfo(np.float32).eps
            np.testing.assert_allclose(got, want, 0, error, err_msg=f"{t}×{b}")
    assert compiled.reason is None
    return names


def loops(names):
    return sum(name.startswith("persistent") for name in names)


@GPUS
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_layers(kind, gfx):
    """As many launches for any number of rounds, one of them the loop."""
    names = launched(*layer(kind), gfx, SIZES)
    several = [found for (t, _), found in zip(SIZES, names, strict=True) if t > 1]
    assert len(set(map(len, several))) == 1 and set(map(loops, several)) == {1}


@GPUS
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_gradients_of_layers(kind, gfx):
    sizes = [(4, 3), (5, 3), (2, 2)]
    names = launched(*gradients(*layer(kind)), gfx, sizes)
    assert set(map(loops, names)) == {2} and len(set(map(len, names))) == 1


@GPUS
@pytest.mark.parametrize("f", [counted, written, sums, gated_slices, flipped])
def test_extents(f, gfx):
    """Loops of a number of rounds over arrays of any number of rows."""
    names = launched(f, ["b, 12", "12, 12"], gfx, [(1, b) for b in (4, 3, 7, 8, 33)])
    assert set(map(loops, names)) == {1}


def backwards(x, w):
    return lax.scan(lambda h, a: (jnp.tanh(h @ w) + a, h.sum()), x[0], x, reverse=True)


def all_but_one(x, w):
    return lax.scan(lambda h, a: (jnp.tanh(h @ w) + a, h), x[0], x[1:])


def counted_to(x, w):
    return lax.fori_loop(0, x.shape[0], lambda i, h: jnp.tanh(h @ w) + x[i] + i, x[0])


def until_large(x, w):
    more = lambda c: jnp.abs(c[0]).max() < 20
    one = lambda c: (c[0] * 1.5 + jnp.sin(c[0] @ w) / 8, c[1] + 1)
    return lax.while_loop(more, one, (x[0], 0))


def rounds_of_numbers(x, w):
    """Rounds of which each has as many elements as there are, and none that multiplies."""
    step = lambda c, a: (c * 0.5 + a.sum(1, keepdims=True), c.max(0))
    return lax.scan(step, x[0, :, :1] + w[0, 0], x)


@GPUS
@pytest.mark.parametrize("f", [backwards, all_but_one, counted_to, until_large, rounds_of_numbers])
def test_rounds(f, gfx):
    sizes = [(5, 3), (4, 3), (3, 2), (8, 9), (2, 5), (1, 3)]
    names = launched(f, ["t, b, 12", "12, 12"], gfx, sizes)
    rounds = [t - (f is all_but_one) for t, _ in sizes]
    assert all(loops(found) for t, found in zip(rounds, names, strict=True) if t > 1)


@GPUS
def test_device_that_holds_fewer(gfx, monkeypatch):
    """Programs have several numbers of a stage, and none waits for one that is not there."""
    monkeypatch.setattr(GpuDevice, "resident_workgroups", lambda *_: 3)
    launched(*layer("gru"), gfx, [(3, 9), (4, 2), (2, 40)])


def planned(f, specs, sizes, target="gfx942"):
    """The plan of a program of symbolic shapes with sizes at hand, and those of its loops."""
    scope = SymbolicScope()
    shapes = [symbolic_shape(spec, scope=scope) for spec in specs]
    closed = amdjax.make_jaxpr(f)(*(amdjax.ShapeDtypeStruct(s, "float32") for s in shapes))
    sized, found = SizedScope(sizes, scope), []
    program = instantiate(closed, sized.variables())
    observe = lambda stage, x: found.append(x) if isinstance(x, PersistentPlan) else None
    plan, _ = compile_device(program, targets.get(target), observe=observe)
    return plan, found, sized


@pytest.mark.cpu_only("plans only")
def test_programs_wait_for_as_many_as_there_are():
    """What a launch counts to is its grid; of no size more than are resident, or 32 bits count."""
    plan, (loop,), scope = planned(*layer("lstm"), {"t": 4, "b": 3})
    (most,) = {at_sizes(loop.programs, {"t": 4, "b": b}) for b in (10_000, 100_000)}
    for t, b in [(2, 2), (3, 7), (4, 1000), (900, 5), (2048, 512)]:
        assert all(guard.holds({"t": t, "b": b}) for guard in scope.required)
        instance = plan.at({"t": t, "b": b})
        ((kernel, grid, _, _, programs, *rest),) = [
            i.words
            for i in instance.instructions
            if i.words and isinstance(i.words[0], tile.Kernel) and i.words[0].cooperative
        ]
        assert programs.offset == grid <= most
        assert [view.offset for view in rest[-len(kernel.sizes) :]] == [
            at_sizes(dim, {"t": t, "b": b}) for dim in kernel.sizes
        ]
        assert grid * t * loop.barriers < MOST_ARRIVALS
    assert not all(guard.holds({"t": 1 << 30, "b": 2}) for guard in scope.required)


@pytest.mark.cpu_only("plans only")
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_90a"])
def test_tiles_of_symbolic_rows_are_chosen_for_many(target):
    """A product is right for any number of rows, and few serve all, in whatever order they come."""
    for order in (range(2, 65), range(64, 1, -1), (2, 5, 16, 33, 64, *range(2, 65))):
        made = []
        for rows in order:
            if any(all(g.holds({"b": rows}) for g in preferred) for preferred in made):
                continue
            scope = SizedScope({"b": rows})
            plan = plan_resident(targets.get(target), contraction(scope.variables()["b"], 512, 128))
            assert not scope.required and plan.grid[0] * plan.rows >= rows
            assert all(g.holds({"b": rows}) for g in scope.preferred)
            made.append(list(scope.preferred))
        assert len(made) <= 4, len(made)
