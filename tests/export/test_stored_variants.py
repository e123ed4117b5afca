"""Plans of symbolic programs in files are the very plans that were made, for the very sizes."""

import json
import random

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import export, lax, nn
from amdjax.codegen.engine import Compilation
from amdjax.core.config import State
from amdjax.core.dims import Choice, Estimate, SizedScope, SymbolicScope, at_sizes, in_units
from amdjax.core.dims.sized import estimated
from amdjax.core.pytree import tree_leaves
from amdjax.emulator.device import emulated_device
from amdjax.export import kernels
from amdjax.jit.gpu import kernels as gpu_kernels
from amdjax.jit.kernels import clear_loaded
from amdjax.jit.stored_plans import Unwritable, read_number, written_number
from amdjax.jit.stored_variants import read_variants
from tests.export.mutations import values

W = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)


def attention(x):
    h = x @ W
    p = nn.softmax(h @ h.swapaxes(-1, -2))
    return (p @ h).sum(0), p.max(-1)


def loop(x):
    def body(i, y):
        return jnp.tanh(y + x[:, i]) * i

    return lax.fori_loop(0, x.shape[1], body, x[:, 0])


def layers(x):
    y = jnp.concatenate([x, jnp.cumsum(x, 1)], 1)[:, ::2]
    return nn.relu(lax.conv_general_dilated(
        y[..., None], np.ones((3, 3, 1, 4), np.float32), (1, 1), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )), y.mean((0, 1))  # fmt: skip


def sorts(x):
    return jnp.sort(x * 2, 1) + 1, lax.top_k(x, 3)[0], jnp.argsort(x.sum(1), axis=0)


def recurrent(x):
    def step(h, row):
        h = jnp.tanh(h @ W[:32] + row)
        return h, h

    return lax.scan(step, x[:, 0, :32], x[:, :, :32].swapaxes(0, 1))


CASES = {
    "attention": attention, "loop": loop, "layers": layers, "norm": nn.standardize, "sorts": sorts,
    "recurrent": recurrent,
}  # fmt: skip
SIZES = [{"b": 2, "t": 8}, {"b": 8, "t": 40}, {"b": 1, "t": 130}, {"b": 64, "t": 3}]


@pytest.fixture
def made(monkeypatch):
    """The variants that are made as programs are saved, by targets."""
    found, plans = [], kernels._Compiled.plans
    monkeypatch.setattr(
        kernels._Compiled, "plans", lambda self: (found.append(self._variants), plans(self))[1]
    )
    with State("keep_plans")(True), State("check")(False):
        yield found


def saved(path, f, target="cpu", sizes=SIZES):
    spec = amdjax.ShapeDtypeStruct(export.symbolic_shape("b, t, 64"), np.float32)
    e = export.export(amdjax.jit(f))(spec)
    e.save(path, targets=[target], example=sizes)
    return e


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_what_was_planned(tmp_path, made, name):
    saved(tmp_path / "f", CASES[name])
    artifact = amdjax.load_artifact(tmp_path / "f", trust=True)
    with artifact.exported.settings():
        assert_read(artifact.exported.compiled().variants.known, whole(made))


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", ["norm", "sorts", "recurrent"])
def test_plans_of_open_sizes_for_gpus_are_read(tmp_path, made, monkeypatch, name, target):
    """Made with no GPU at hand; an emulated one plans and compiles nothing."""
    sizes = SIZES[:1]
    e = saved(tmp_path / "f", CASES[name], target, sizes)
    artifact, device = amdjax.load_artifact(tmp_path / "f", trust=True), emulated_device(target)
    x = np.random.default_rng(0).standard_normal((*sizes[0].values(), 64), dtype=np.float32)
    want = e.call(x)
    clear_loaded()
    monkeypatch.setattr(gpu_kernels, "plan_program", None)
    monkeypatch.setattr(Compilation, "add", None)
    with amdjax.default_device(device):
        got = artifact(x)
    for a, b in zip(tree_leaves(got), tree_leaves(want), strict=True):
        assert a.device == device
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    with amdjax.default_device(device), artifact.exported.settings():
        assert_read(artifact.exported.compiled().variants.known, whole(made))


def assert_read(read, before):
    assert len(read) == len(before.known) > 0
    draw = random.Random(0)
    for got, want in zip(read, before.known):
        assert (got.units, got.fixed) == (want.units, want.fixed)
        assert whatever_arrays(got.program.identity) == whatever_arrays(want.program.identity)
        assert [told(g) for g in got.guards] == [told(g) for g in want.guards]
        for _ in range(20):
            at = {"b": draw.randint(2, 99), "t": draw.randint(2, 999)}
            assert got.regrets(at) == want.regrets(at)
            counts = in_units(at, want.units)
            assert [parallel(x, counts) for x in got.program.launches] == [
                parallel(x, counts) for x in want.program.launches
            ]


def whatever_arrays(identity):
    """What a plan is but for its constants, of which large ones count as objects."""
    return *identity[:3], len(identity[3]), identity[4]


def whole(made):
    """Those of the program of which both sizes are open."""
    return next(v for v in made if v is not None and v.known and v.known[0].units.keys() == {*"bt"})


def told(guards):
    choices = [isinstance(g, Choice) or g for g in guards.preferred]
    return list(guards.required), choices


def parallel(launch, at):
    return launch[0], at_sizes(launch[2], at)


def test_estimates_are_what_they_were():
    scope = SizedScope({"n": 10, "m": 7})
    n, m = scope.variables().values()
    cost = (2.5 * n + m / 3.0 - 1) ** 2 * (1 / (n * m * 1.0)) - 0.5 * (n // 4)
    assert isinstance(cost, Estimate)
    again = read_number(json.loads(json.dumps(written_number(cost))), SymbolicScope())
    for at in ({"n": 10, "m": 7}, {"n": 3, "m": 1000}, {"n": 2, "m": 2}):
        expected = (2.5 * at["n"] + at["m"] / 3 - 1) ** 2 / (at["n"] * at["m"])
        assert again.at(at) == cost.at(at)
        assert again.at(at) == pytest.approx(expected - 0.5 * (at["n"] // 4), rel=1e-12)
    some = estimated("at least", n, 16, estimated("log2", m), estimated("ceil_div", n, m))
    again = read_number(json.loads(json.dumps(written_number(some))), SymbolicScope())
    for at in ({"n": 15, "m": 7}, {"n": 16, "m": 7}):
        assert again.at(at) == some.at(at) == (np.log2(7) if at["n"] > 15 else 3)
    for unknown in ("n", None, np.zeros(2)):
        with pytest.raises(Unwritable):
            written_number(unknown)
    wide = cost
    for _ in range(20):
        wide = wide * wide
    with pytest.raises(Unwritable):
        written_number(wide)


def test_data_that_is_no_plan_is_refused(tmp_path, made):
    """Never anything but a ValueError, or another plan."""
    saved(tmp_path / "f", attention)
    good, closed = whole(made).written()[1], whole(made).closed
    assert read_variants(good, closed.consts)
    rng, refused = np.random.default_rng(0), 0
    for _ in range(200):
        changed = json.dumps(values(rng, json.loads(good))).encode()
        try:
            read_variants(changed, closed.consts)
        except ValueError:
            refused += 1
    assert refused > 50


def test_choices_of_gains_hold_where_they_are_the_greatest():
    """What is chosen for its size, as an order of axes is, has costs below zero."""
    (n,) = SizedScope({"n": 10}).variables().values()
    choice = Choice((-100 * n, -64 * n, -300), 0)
    assert [choice.excess({"n": at}) for at in (2, 3, 4, 100)] == [1 / 3, 0, 0, 0]
    assert Choice((n, 0), 0).excess({"n": 2}) == np.inf and Choice((0, n), 0).holds({"n": 2})


def test_a_network_whose_layouts_are_chosen_is_read(tmp_path, made):
    """Where a CPU computes with channels last, too, whatever the batch."""
    k = np.ones((64, 64, 3, 3), np.float32)

    def f(x):
        for _ in range(2):
            x = lax.conv(x, k, (1, 1), "SAME")
        return nn.relu(x) * 2

    spec = amdjax.ShapeDtypeStruct(export.symbolic_shape("b, 64, 56, 56"), np.float32)
    e = export.export(amdjax.jit(f))(spec)
    e.save(tmp_path / "f", targets=["cpu"], example={"b": 2})
    (variant,) = next(v for v in made if v is not None and v.known).known
    assert variant.regrets({"b": 2}) == 0
