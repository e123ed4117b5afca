"""Products and convolutions whose kernels differ in numbers alone share machine code."""

from itertools import pairwise

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.config import State, disabled_passes
from amdjax.jit.cpu.kernels import kernel_text
from amdjax.jit.instructions import View
from amdjax.jit.plan import Planner, plan_program
from amdjax.jit.stored_plans import read_plan, written_plan
from amdjax.kernels.products.cpu import packing
from amdjax.targets.cpu import CpuTarget

CPU = CpuTarget(vector_bits=512, threads=1)
RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def conv(x, w, stride=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=numbers)


def conv_in_numpy(x, w, stride):
    side = -(-x.shape[1] // stride)
    reach = (side - 1) * stride + 1
    low = max(reach + 2 - x.shape[1], 0) // 2
    x = np.pad(x, ((0, 0), (low, 2), (low, 2), (0, 0)))
    taps = [(i, j) for i in range(3) for j in range(3)]
    seen = [x[:, i : i + reach : stride, j : j + reach : stride] for i, j in taps]
    return sum(s @ w[i, j] for s, (i, j) in zip(seen, taps))


def kernels(f, *args, name="convolution"):
    """How many kernels of a name are compiled, and how many launches they have."""
    plan = plan_program(amdjax.make_jaxpr(f)(*args), CPU)
    found = [k for k in plan.kernels() if k.name == name]
    return len({id(k) for k in found}), len(found)


def stages(x, *weights):
    """Convolutions of stages of a network, half as large and of more features each."""
    for n, w in enumerate(weights):
        x = jnp.maximum(conv(x, w, 1 + n % 2), 0)
    return x


def weights(*features):
    return [0.05 * draw(3, 3, a, b) for a, b in pairwise(features)]


def alone(f, *args):
    """The results where each kernel is compiled for its own sizes."""
    with disabled_passes("share_kernels"):
        return amdjax.jit(f)(*args)


def test_stages_of_a_network_share_a_kernel():
    x, ws = draw(1, 56, 56, 64), weights(64, 64, 128, 128, 256, 256)
    count, launches = kernels(stages, x, *ws)
    assert launches == 5 and count < launches
    with disabled_passes("share_kernels"):
        assert kernels(stages, x, *ws) == (5, 5)
    got = amdjax.jit(stages)(x, *ws)
    np.testing.assert_array_equal(got, alone(stages, x, *ws))
    y = x.astype(np.float64)
    for n, w in enumerate(ws):
        y = np.maximum(conv_in_numpy(y, w, 1 + n % 2), 0)
    np.testing.assert_allclose(got, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("side", "features"), [(13, 32), (14, 31), (15, 33), (27, 64), (28, 32), (29, 33)]
)
def test_sizes_around_those_of_tiles(side, features):
    def f(x, y, v, w):
        return conv(x, v) + 1, conv(y, w) + 1

    x, y = draw(1, side, side, 64), draw(1, 28, 14, 80)
    v, w = draw(3, 3, 64, features), draw(3, 3, 80, 64)
    for got, expected in zip(amdjax.jit(f)(x, y, v, w), alone(f, x, y, v, w), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_what_is_behind_a_convolution_tells_kernels_apart():
    def f(x, y, v, w):
        return conv(x, v) + 1, jnp.maximum(conv(y, w), 0)

    args = draw(1, 28, 28, 64), draw(1, 14, 14, 128), draw(3, 3, 64, 64), draw(3, 3, 128, 64)
    assert kernels(f, *args) == (2, 2)


def test_products_of_several_depths_share_a_kernel():
    def f(x, a, b, c):
        for w in (a, b, c):
            x = jnp.maximum(x @ w, 0)
        return x

    x, ws = draw(3136, 64), [0.1 * draw(64, 256), 0.1 * draw(256, 64), 0.1 * draw(64, 128)]
    count, launches = kernels(f, x, *ws, name="direct")
    assert count < launches
    got = amdjax.jit(f)(x, *ws)
    np.testing.assert_array_equal(got, alone(f, x, *ws))
    expected = x.astype(np.float64)
    for w in ws:
        expected = np.maximum(expected @ w, 0)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_kernels_in_loops_and_branches_are_shared():
    def f(x, y, v, w, many):
        body = lambda i, x: jnp.maximum(conv(x, v), 0)
        z = lax.fori_loop(0, 3, body, x)
        return z, lax.cond(many, lambda: jnp.maximum(conv(y, w), 0), lambda: y)

    args = draw(1, 28, 28, 128), draw(1, 14, 14, 192), 0.05 * draw(3, 3, 128, 128)
    args = *args, 0.05 * draw(3, 3, 192, 192)
    for many in (True, False):
        pairs = zip(amdjax.jit(f)(*args, many), alone(f, *args, many), strict=True)
        for got, expected in pairs:
            np.testing.assert_array_equal(got, expected)


def test_plans_are_kept_with_the_numbers():
    x, ws = draw(1, 56, 56, 64), weights(64, 64, 128, 128)
    plan = plan_program(amdjax.make_jaxpr(stages)(x, *ws), CPU)
    keys = {id(k): bytes(31) + bytes([n]) for n, k in enumerate(plan.kernels())}
    found = read_plan(written_plan(plan, [], keys), [])
    places = lambda i: [w.offset for w in i.words if isinstance(w, View)]
    kept = list(map(places, found.plan.instructions))
    assert kept == list(map(places, plan.instructions)) and min(map(min, filter(None, kept))) < 0


class Recorder:
    """A loader that notes what it is given, between the launches that are written."""

    def __init__(self, monkeypatch):
        self.events, emit = [], Planner.emit
        monkeypatch.setattr(
            Planner, "emit", lambda p, *words: (self.events.append(None), emit(p, *words))[1]
        )

    def start(self, kernels):
        pass

    expect = start

    def add(self, kernel):
        self.events.append(kernel)


def upsampled(x, weights):
    """Of constants that are packed several times, between the products that read them."""
    y = lax.conv_transpose(jnp.tanh(x), weights, (2, 2), "SAME")
    return jnp.exp(y).sum(-1), x.reshape(-1, 64) @ weights[0, 0]


@pytest.mark.parametrize("effort", [0.0, -1.0])
def test_kernels_are_compiled_before_launches_are_written(monkeypatch, effort):
    x, w, ws = draw(1, 28, 28, 64), draw(2, 2, 64, 32), weights(64, 64, 64, 64)
    program = amdjax.make_jaxpr(lambda x: (upsampled(x, w), stages(x, *ws)))(x)
    loader = Recorder(monkeypatch)
    with State("exec_time_optimization_effort")(effort):
        plan = plan_program(program, CPU, loader=loader)
    given = [k for k in loader.events if k is not None]
    # Nothing is compiled in vain, and all is.
    assert {id(k) for k in given} == {id(k) for k in plan.kernels()}
    before = loader.events[: loader.events.index(None)]
    assert any(k.has_micro_kernel for k in before) and any(k.runs_once for k in given)
    if effort == 0:
        assert {id(k) for k in before} == {id(k) for k in given if not k.runs_once}


def packs(f, *args, monkeypatch):
    """How many kernels that pack are written, of how many launches; all are as if each was."""
    written, original, count = [], packing.PanelPacker._written, [0]
    call = packing.PanelPacker.call

    def noted(self, *args):
        written.append(1)
        return original(self, *args)

    def checked(self):
        made, before = call(self), len(written)
        count[0] += 1
        with monkeypatch.context() as patched:
            patched.setattr(packing, "remembered", lambda key, make: make())
            wanted = call(self)
        del written[before:]
        assert kernel_text(made.kernel) == kernel_text(wanted.kernel)
        assert (made.args, made.grid) == (wanted.args, wanted.grid)
        assert made.nanoseconds == wanted.nanoseconds
        return made

    with monkeypatch.context() as patched:
        patched.setattr(packing.PanelPacker, "_written", noted)
        patched.setattr(packing.PanelPacker, "call", checked)
        plan_program(amdjax.make_jaxpr(f)(*args), CPU)
    return len(written), count[0]


def chain(x, *ws):
    for w in ws:
        x = jnp.tanh(x @ (w.T if w.shape[0] != x.shape[1] else w))
    return x


@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.float16))
def test_packing_is_written_once_for_all_sizes(dtype, monkeypatch):
    """Operands by rows and by columns, of several widths."""
    shapes = [(512, 640), (640, 768), (1024, 768), (1024, 544), (560, 544), (560, 512)]
    with amdjax.enable_x64(True):
        ws = [draw(*s).astype(dtype) for s in shapes]
        written, launches = packs(chain, draw(300, 512).astype(dtype), *ws, monkeypatch=monkeypatch)
    assert 2 <= written < launches


def test_packing_for_convolutions_is_written_once(monkeypatch):
    written, launches = packs(
        stages, draw(2, 40, 40, 48), *weights(48, 64, 96, 128, 160, 192), monkeypatch=monkeypatch
    )
    assert launches > 2 and written < launches


def test_packing_on_several_lines_is_told_apart(monkeypatch):
    """Kernels say which line of the user they are made from."""

    def lines(x, a, b):
        x = jnp.tanh(x @ a)
        return jnp.tanh(x @ b)

    args = draw(300, 640), draw(640, 768), draw(768, 1024)
    assert packs(lines, *args, monkeypatch=monkeypatch) == (2, 2)
