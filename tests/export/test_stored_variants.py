"""Plans of symbolic programs in files are the very plans that were made, for the very sizes."""

import json
import random

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import export, lax, nn
from amdjax.core.config import State
from amdjax.core.dims import Choice, Estimate, SizedScope, SymbolicScope, at_sizes
from amdjax.core.dims.sized import estimated
from amdjax.export import kernels
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


CASES = {"attention": attention, "loop": loop, "layers": layers, "norm": nn.standardize}
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


def saved(path, f):
    spec = amdjax.ShapeDtypeStruct(export.symbolic_shape("b, t, 64"), np.float32)
    e = export.export(amdjax.jit(f))(spec)
    e.save(path, targets=["cpu"], example=SIZES)
    return e


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_what_was_planned(tmp_path, made, name):
    saved(tmp_path / "f", CASES[name])
    artifact = amdjax.load_artifact(tmp_path / "f", trust=True)
    with artifact.exported.settings():
        read = artifact.exported.compiled().variants.known
    before = whole(made)
    assert len(read) == len(before.known) > 0
    draw = random.Random(0)
    for got, want in zip(read, before.known):
        assert (got.units, got.fixed) == (want.units, want.fixed)
        assert whatever_arrays(got.program.identity) == whatever_arrays(want.program.identity)
        assert [told(g) for g in got.guards] == [told(g) for g in want.guards]
        for _ in range(20):
            at = {"b": draw.randint(2, 99), "t": draw.randint(2, 999)}
            assert got.regrets(at) == want.regrets(at)
            assert [parallel(x, at) for x in got.program.launches] == [
                parallel(x, at) for x in want.program.launches
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
    for unknown in (estimated(np.log2, n), "n", None, estimated(max, n, m) * 2.0):
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
    good, closed = whole(made).written(), whole(made).closed
    assert read_variants(good, closed.consts)
    rng, refused = np.random.default_rng(0), 0
    for _ in range(200):
        changed = json.dumps(values(rng, json.loads(good))).encode()
        try:
            read_variants(changed, closed.consts)
        except ValueError:
            refused += 1
    assert refused > 50
