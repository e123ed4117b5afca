"""Loops that a GPU runs as one launch, and those that it does not."""

import dataclasses
import itertools
import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, rnn, targets
from amdjax.emulator import machine
from amdjax.jit.gpu import kernels as device_kernels
from amdjax.kernels.products.gpu import dispatch, resident
from amdjax.runtime.devices import devices
from amdjax.runtime.gpu import DeviceError, GpuDevice
from amdjax.schedule.gpu import persistent

RNG = np.random.default_rng(0)
ON_GPUS = "what GPUs do"


def draw(*shape):
    return (RNG.standard_normal(shape) / 3).astype(np.float32)


def weights(kind, inputs, hidden):
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind]
    wide = gates * hidden
    return rnn.Weights(draw(inputs, wide), draw(hidden, wide), draw(wide), draw(wide))


def on_cpu(f, *args):
    with amdjax.default_device(devices("cpu")[0]):
        return [np.asarray(x) for x in amdjax.tree.leaves(amdjax.jit(f)(*args))]


def assert_same(f, *args, rounding=20):
    found = [np.asarray(x) for x in amdjax.tree.leaves(amdjax.jit(f)(*args))]
    for x, y in zip(found, on_cpu(f, *args), strict=True):
        scale = max(1.0, float(np.abs(y).max(initial=0)))
        np.testing.assert_allclose(x, y, 0, rounding * scale * np.finfo(np.float32).eps)


def persistent_kernels(f, *args, target="gfx942"):
    """Programs of launches that are loops, and how many loops stay loops."""
    plan, _ = device_kernels.compile_device(amdjax.jit(f).trace(*args).jaxpr, targets.get(target))
    return [k for k in plan.kernels() if k.cooperative], "REPEAT" in str_of(f, *args, target=target)


def str_of(f, *args, target="gfx942", stage="plan"):
    return amdjax.jit(f).lower(*args).compile(target=target).as_text(stage)


@pytest.mark.devices
@pytest.mark.parametrize("kind, time, batch, hidden", [
    ("rnn", 3, 2, 16), ("lstm", 4, 3, 20), ("gru", 5, 1, 17), ("gru", 3, 2, 1),
])  # fmt: skip
def test_layers(device, kind, time, batch, hidden):
    layer, w, x = getattr(rnn, kind), weights(kind, 6, hidden), draw(time, batch, 6)
    assert_same(layer, w, x)
    loss = lambda w, x: (layer(w, x)[0] ** 2).sum()
    assert_same(amdjax.grad(loss, (0, 1)), w, x, rounding=60)


@pytest.mark.devices
def test_layer_in_reverse_with_lengths(device):
    w, x, lengths = weights("lstm", 6, 16), draw(4, 3, 6), np.array([4, 1, 3])
    assert_same(lambda w, x: rnn.lstm(w, x, lengths=lengths, reverse=True), w, x)


def counted(x, w):
    """Copies of what is carried, of what a round makes and of what it read."""

    def step(carry, t):
        h, n = carry
        new = jnp.tanh(h @ w) + t
        return (new, n + 1), (h, new, n)

    return lax.scan(step, (x, jnp.int32(3)), jnp.arange(5.0))


def nested(x, w):
    inner = lambda h, t: lax.scan(
        lambda h, u: (jnp.sin(h @ w + u * t), h.sum()), h, jnp.arange(3.0)
    )
    return lax.scan(inner, x, jnp.arange(1.0, 3.0))


def written(x, w):
    """A carried array that a round changes in one row."""
    step = lambda a, i: (a.at[i].set((a @ w)[0]), a[i] * 2)
    return lax.scan(step, x, jnp.arange(3))


def sums(x, w):
    """Rows of a reduction, which every program needs whole."""
    step = lambda h, _: (h * 0.5 + (h @ w) / (1 + jnp.abs(h).sum()), h.max())
    return lax.scan(step, x, None, length=6)


def overwritten(x, w):
    """What may take the place of its operand, by fewer threads than products have."""

    def step(p, t):
        p = jnp.tanh(p @ w + t)
        y, p = jnp.cumsum(p, 0), jnp.sort(p, axis=0) * 0.9
        return jnp.tanh(p @ w), y

    return lax.scan(step, x[:1], jnp.arange(3.0))


def gated(x, w):
    """A round reads slices of a product, and the next one what it makes, without other programs."""

    def step(carry, t):
        h, c = carry
        z = h @ w
        c = c * z[:, 5:10] + jnp.sin(z[:, :5] * t) - z[:, 10:]
        return (jnp.concatenate([c, z[:, 5:10] + 1, -c], 1)[:, :12], c), z

    return lax.scan(step, (x, x[:, :5]), jnp.arange(3.0))


def gated_slices(x, w):
    return gated(x, jnp.concatenate([w, w[:, :3]], 1))


def flipped(x, w):
    """Slices that other programs have made."""
    step = lambda h, t: ((h @ w)[:, ::-1] * t, (h @ w)[:, 3:9] + (h @ w)[:, 2:8])
    return lax.scan(step, x, jnp.arange(3.0))


@pytest.mark.devices
@pytest.mark.parametrize("f", [counted, nested, written, sums, overwritten, gated_slices, flipped])
def test_loops(device, f):
    assert_same(f, draw(4, 12), draw(12, 12))


@pytest.mark.cpu_only(ON_GPUS)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_90a"])
def test_schedule_says_so(target):
    w, x = weights("lstm", 6, 16), draw(4, 3, 6)
    text = str_of(lambda w, x: rnn.lstm(w, x)[0], w, x, target=target, stage="schedule")
    assert re.search(
        r"4 rounds as one launch of \d+ programs of \d+ threads, 1 grid barrier a round", text
    )
    assert "its matrix stays in LDS" in text


def halves(x, w):
    """Gates of two groups of columns, then a product by the same matrix turned."""

    def step(h, t):
        z = h @ w
        h = jnp.clip(z[:, : h.shape[1]] - z[:, h.shape[1] :] + t, -2, 2)
        back = jnp.concatenate([h, jnp.sign(h)], 1) @ w.T
        return h, (z, back)

    return lax.scan(step, x, jnp.arange(4.0, dtype=x.dtype))


@pytest.mark.devices
@pytest.mark.parametrize("rows, columns", [(5, 32), (20, 40)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_by_the_matrix_unit(device, rows, columns, dtype):
    """Of whole numbers, so that sums are exact."""
    x = jnp.asarray(RNG.integers(-2, 3, (rows, columns)), dtype)
    w = jnp.asarray(RNG.integers(-1, 2, (columns, 2 * columns)), dtype)
    assert_same(halves, x, w, rounding=0)


@pytest.mark.cpu_only(ON_GPUS)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90a"])
def test_matrices_of_16_bits_stay_too(target):
    x, w = jnp.zeros((20, 40), jnp.bfloat16), jnp.zeros((40, 80), jnp.bfloat16)
    text = str_of(halves, x, w, target=target, stage="schedule")
    assert len(re.findall(r"by (?:wmma|mfma|mma)\S+, .*stays in LDS", text)) == 2
    odd = str_of(halves, x[:, :39], w[:39, :78], target=target, stage="schedule")
    assert "stays in LDS" not in odd  # lines do not begin where whole cells may


def layer_loss(kind, **options):
    return lambda w, x: (getattr(rnn, kind)(w, x, **options)[0] ** 2).sum()


@pytest.mark.cpu_only(ON_GPUS)
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_rounds_meet_once(kind):
    """Programs compute gates, and slopes, of the columns of products that they have."""
    w, x = weights(kind, 6, 16), draw(4, 3, 6)
    text = str_of(layer_loss(kind), w, x, stage="schedule")
    assert re.findall(r"(\d+) grid barriers?", text) == ["1"]
    text = str_of(amdjax.grad(layer_loss(kind)), w, x, stage="schedule")
    assert re.findall(r"(\d+) grid barriers?", text) == ["1", "1"]
    assert re.findall(r"grid barrier a round: map_\w+, product$", text, re.M)  # going back


@pytest.mark.cpu_only(ON_GPUS)
@pytest.mark.parametrize("f, barriers", [(gated_slices, 2), (flipped, 2), (counted, 1)])
def test_programs_wait_for_what_others_have(f, barriers):
    text = str_of(f, draw(4, 12), draw(12, 12), stage="schedule")
    assert re.findall(r"(\d+) grid barriers?", text) == [str(barriers)]


@pytest.mark.cpu_only(ON_GPUS)
def test_what_stays_a_loop():
    """Rounds that call Python, or carry what is too large for two halves; the schedule says so."""
    x, w = draw(4, 12), draw(12, 12)
    called = lambda h, _: (
        amdjax.pure_callback(np.sin, amdjax.ShapeDtypeStruct(h.shape, h.dtype), h),
        None,
    )
    f = lambda x: lax.scan(called, x, None, length=4)
    assert persistent_kernels(f, x) == ([], True)
    assert "4 rounds as launches: not all of a round is" in str_of(f, x, stage="schedule")
    big, square = np.zeros((1 << 15, 1024), np.float32), np.zeros((1024, 1024), np.float32)
    product = lambda x, w: lax.scan(lambda h, _: (h @ w, None), x, None, length=4)[0]
    assert persistent_kernels(product, big, square) == ([], True)
    text = str_of(product, big, square, stage="schedule")
    assert "4 rounds as launches: not all of a round is" in text
    (kernel,), loops = persistent_kernels(product, x, w)
    assert not loops and kernel.grid > 1


@pytest.mark.devices
def test_device_that_holds_fewer(device, monkeypatch):
    """Programs then have several numbers of a stage, and fill scratch anew for each."""
    if device is not None:
        monkeypatch.setattr(GpuDevice, "resident_workgroups", lambda *_: 2)
    w, x = weights("gru", 6, 24), draw(3, 9, 6)
    assert_same(rnn.gru, w, x)


def until_small(x, w):
    """Rounds that are not counted, and a value that takes the place of another one."""
    more = lambda c: jnp.abs(c[0]).max() > 0.05
    one = lambda c: (jnp.tanh(c[0] @ w) * 0.4, c[1] + 1, c[0])
    return lax.while_loop(more, one, (x, 0, x * 2))


def so_often(x, w, n):
    return lax.fori_loop(0, n, lambda i, h: jnp.tanh(h @ w) + i, x)


@pytest.mark.devices
@pytest.mark.parametrize("at_once", [2, 3, persistent.AT_ONCE])
def test_rounds_that_are_not_counted(device, at_once, monkeypatch):
    """Odd and even numbers of them, more than one launch has, none."""
    monkeypatch.setattr(persistent, "AT_ONCE", at_once)
    x, w = draw(4, 12), draw(12, 12)
    assert_same(lambda x, w: until_small(x, w), x, w)
    assert_same(lambda x, w: until_small(x * 0.6, w), x, w)
    f = lambda x, w, n: so_often(x, w, n)
    for n in (0, 1, 2, 5):
        assert_same(f, x, w, np.int32(n))


@pytest.mark.cpu_only(ON_GPUS)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_90a"])
def test_rounds_that_are_not_counted_are_one_launch(target):
    text = str_of(until_small, draw(4, 12), draw(12, 12), target=target, stage="schedule")
    assert re.search(r"rounds of a while as one launch of \d+ programs", text)
    text = str_of(so_often, draw(4, 12), draw(12, 12), np.int32(3), target=target, stage="schedule")
    assert "rounds of a while as one launch" in text


def alone(monkeypatch):
    """Let products have other columns than the elementwise steps of their loop."""
    plan = lambda target, problem, partition: resident.plan_resident(target, problem)
    monkeypatch.setattr(dispatch, "plan_resident", plan)


@pytest.mark.devices
def test_products_that_divide_otherwise(device, monkeypatch):
    alone(monkeypatch)
    w, x = weights("lstm", 6, 16), draw(4, 3, 6)
    assert_same(lambda w, x: rnn.lstm(w, x), w, x)


@pytest.mark.cpu_only(ON_GPUS)
def test_programs_wait_for_products_that_divide_otherwise(monkeypatch):
    alone(monkeypatch)
    w, x = weights("lstm", 6, 16), draw(4, 3, 6)
    text = str_of(layer_loss("lstm"), w, x, stage="schedule")
    assert re.findall(r"(\d+) grid barriers?", text) == ["2"]


@pytest.mark.cpu_only("plans only")
def test_plan_of_a_resident_product():
    """Tiles fit the LDS, and their number the machine."""
    for name in ("gfx942", "gfx1100", "sm_90a"):
        target = targets.get(name)
        for rows, columns, depth, width in (
            (64, 2048, 512, 512),
            (1, 4096, 1024, 4096),
            (100, 384, 1024, 128),
            (3, 80, 20, 20),
        ):
            problem = contraction(rows, columns, depth)
            for plan in resident.resident_plans(target, problem, width):
                assert plan.lds <= target.lds_bytes
                high, wide = plan.grid
                groups = columns // width
                assert high * plan.rows >= rows and wide * plan.columns >= columns
                assert plan.columns % groups == 0 and plan.parts * groups <= resident.MOST_PARTS
                assert high * wide <= 2 * target.lds_units
                assert plan.depth % (plan.parts * 4) == 0


def contraction(rows, columns, depth):
    from amdjax.kernels.products.contraction import Axis, Contraction, Sink, Source

    a = Source("a", "f32", 0, (), (Axis(rows, depth),), (Axis(depth, 1),))
    b = Source("b", "f32", 0, (), (Axis(columns, 1),), (Axis(depth, columns),), fixed=True)
    out = Sink("out", "f32", 0, (), (Axis(rows, columns),), (Axis(columns, 1),))
    return Contraction(a, b, out, "f32")


def test_large_matrices_are_no_resident_ones():
    target = targets.get("gfx942")
    assert resident.plan_resident(target, contraction(64, 8192, 4096)) is None
    problem = contraction(4, 80, 20)
    assert resident.plan_resident(target, problem) is not None
    free = dataclasses.replace(problem, b=dataclasses.replace(problem.b, fixed=False))
    assert resident.plan_resident(target, free) is None


@pytest.mark.devices
@pytest.mark.parametrize("f", [counted, sums, gated_slices])
def test_interrupted_launch(device, f, monkeypatch):
    """Barriers of the next one do not count on from where it was."""
    if device is None:
        pytest.skip(ON_GPUS)
    x, w = draw(4, 12), draw(12, 12)
    run = lambda: [np.asarray(v) for v in amdjax.tree.leaves(compiled(x, w))]
    compiled = amdjax.jit(f)
    want, turn, turns = run(), machine._Worker.run, itertools.count()

    def interrupted(self, *limit):
        if next(turns) == 5:
            raise KeyboardInterrupt
        return turn(self, *limit)

    with monkeypatch.context() as patch:
        patch.setattr(machine._Worker, "run", interrupted)
        with pytest.raises((KeyboardInterrupt, DeviceError)):
            run()
    for found, wanted in zip(run(), want, strict=True):
        np.testing.assert_array_equal(found, wanted)
