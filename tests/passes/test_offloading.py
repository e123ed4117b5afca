"""Programs of GPUs that have arguments and residuals in the host's memory."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import checkpoint_policies as policies, lax
from amdjax.ad_checkpoint import checkpoint_name
from amdjax.jit import memory_limit
from amdjax.memory import Space

TARGETS = ["gfx942", "gfx1100"]
WIDTH, LAYERS = 64, 6
OPTIONS = {"offload_copy": True}


def weights(layers=LAYERS, width=WIDTH):
    values = np.random.default_rng(0).standard_normal((layers, width, width), np.float32)
    return values / np.float32(np.sqrt(width))


def layers(ws, x):
    for w in ws:
        x = jnp.tanh(x @ w)
    return x


def in_loop(ws, x):
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]


def loss(f):
    return lambda ws, x: jnp.sum(f(ws, x) ** 2)


PROGRAMS = {
    "layers": (layers, list(weights())),
    "loop": (in_loop, weights()),
    "training": (lambda ws, x: amdjax.grad(loss(layers))(ws, x), list(weights())),
    "training a loop": (lambda ws, x: amdjax.grad(loss(in_loop))(ws, x), weights()),
    "large enough to prefetch": (layers, list(weights(4, 128))),
    "passed on": (lambda ws, x: (ws[0], layers(ws, x)), list(weights(2))),
    "a loop's constant": (
        lambda ws, x: lax.fori_loop(0, 2, lambda i, x: jnp.tanh(x @ ws[0]), x),
        list(weights(1)),
    ),
    "a branch": (
        lambda ws, x: lax.cond(x[0, 0] > 0, lambda w: x @ w, lambda w: x + w[:4], ws[0]),
        list(weights(1)),
    ),
}


def rows(ws):
    """Inputs as wide as the weights."""
    width = ws[0].shape[-1]
    return np.linspace(-1, 1, 4 * width, dtype=np.float32).reshape(4, width)


X = rows([np.zeros((WIDTH, WIDTH))])


def compiled(f, args, target, **options):
    return amdjax.jit(f).lower(*args).compile(target, compiler_options=options)


@pytest.mark.parametrize("f, ws", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.devices
def test_arguments_in_the_hosts_memory(f, ws):
    x = rows(ws)
    plain = amdjax.jit(f)(ws, x)
    there = amdjax.device_put(ws, Space.Host)
    for given in (ws, there):
        found = amdjax.jit(f, compiler_options=OPTIONS)(given, x)
        assert amdjax.tree.map(lambda x: str(x.aval), found) == amdjax.tree.map(
            lambda x: str(x.aval), plain
        )
        for a, b in zip(amdjax.tree.leaves(found), amdjax.tree.leaves(plain)):
            np.testing.assert_allclose(a, b, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["layers", "loop", "training", "training a loop"])
def test_the_device_has_few_of_them(name, target):
    f, ws = PROGRAMS[name]
    one = WIDTH * WIDTH * 4
    plain, offloaded = (compiled(f, (ws, X), target, **o) for o in ({}, OPTIONS))
    a, b = plain.memory_analysis(), offloaded.memory_analysis()
    assert a.argument_size_in_bytes == LAYERS * one + X.nbytes
    assert b.argument_size_in_bytes == X.nbytes
    assert b.host_argument_size_in_bytes == LAYERS * one
    assert b.temp_size_in_bytes <= a.temp_size_in_bytes + 2 * one
    assert "offload_copy" in [p.name for p in offloaded.passes]


def test_what_is_overwritten_stays_on_the_device():
    step = amdjax.jit(lambda w, x: w + x, donate_argnums=0, compiler_options=OPTIONS)
    w = np.ones((64, 64), np.float32)
    stats = step.lower(w, w).compile("gfx942").memory_analysis()
    assert stats.argument_size_in_bytes == stats.host_argument_size_in_bytes == w.nbytes
    assert stats.alias_size_in_bytes == w.nbytes


# Residuals


def layer(x, w):
    return checkpoint_name(jnp.tanh(x @ w), "h")


def net(ws, x):
    for w in ws:
        x = layer(x, w)
    return jnp.sum(x)


def net_in_loop(ws, x):
    return jnp.sum(lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0])


def residuals(loop=False, **names):
    f = net_in_loop if loop else net
    policy = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=names.get("saved", []),
        names_which_can_be_offloaded=names.get("offloaded", []),
        offload_src="device",
        offload_dst="pinned_host",
    )
    return lambda ws, x: amdjax.grad(amdjax.checkpoint(f, policy=policy))(ws, x)


@pytest.mark.parametrize("target", TARGETS)
def test_residuals_leave_the_device(target):
    ws = list(np.broadcast_to(np.eye(16, dtype=np.float32), (8, 16, 16)))
    x = np.ones((512, 16), np.float32)
    saved = compiled(residuals(saved=["h"]), (ws, x), target).memory_analysis()
    offloaded = compiled(residuals(offloaded=["h"]), (ws, x), target).memory_analysis()
    assert saved.host_temp_size_in_bytes == 0
    assert offloaded.host_temp_size_in_bytes >= 7 * x.nbytes
    assert saved.temp_size_in_bytes >= 8 * x.nbytes
    assert offloaded.temp_size_in_bytes <= 5 * x.nbytes


def test_copies_far_from_their_use_take_more():
    ws = list(np.broadcast_to(np.eye(16, dtype=np.float32), (8, 16, 16)))
    x = np.ones((512, 16), np.float32)
    near, far = (
        compiled(residuals(offloaded=["h"]), (ws, x), "gfx942", disabled_passes=off)
        for off in ("", "copy_near_use")
    )
    assert (
        near.memory_analysis().temp_size_in_bytes + x.nbytes
        < far.memory_analysis().temp_size_in_bytes
    )


@pytest.mark.devices
@pytest.mark.parametrize("loop", [False, True])
def test_residuals_come_back(loop):
    ws = weights(3, 16)
    x = np.linspace(-1, 1, 1 << 14, dtype=np.float32).reshape(1024, 16)
    f = residuals(offloaded=["h"], loop=loop)
    plain = residuals(saved=["h"], loop=loop)
    np.testing.assert_allclose(amdjax.jit(f)(ws, x), amdjax.jit(plain)(ws, x), rtol=1e-5, atol=1e-4)


# Copies beside kernels


def opcodes(executable):
    return [line.split()[0].removesuffix(":") for line in executable.as_text("plan").split("\n")]


def test_the_next_argument_comes_while_one_is_used():
    ws = list(weights(4, 128))
    offloaded = compiled(layers, (ws, rows(ws)), "gfx942", **OPTIONS)
    order = [w for w in opcodes(offloaded) if w in ("ASIDE", "AWAIT", "CALL")]
    assert order == ["ASIDE", *["AWAIT", "ASIDE", "CALL"] * 3, "AWAIT", "CALL"]
    one = ws[0].nbytes
    assert 2 * one < offloaded.memory_analysis().temp_size_in_bytes < 2.5 * one
    options = {**OPTIONS, "disabled_passes": "prefetch_copies"}
    in_turn = compiled(layers, (ws, rows(ws)), "gfx942", **options)
    assert [w for w in opcodes(in_turn) if w in ("COPY", "CALL")] == ["COPY", "CALL"] * 4
    assert in_turn.memory_analysis().temp_size_in_bytes < 1.5 * one


@pytest.mark.devices
def test_calls_that_are_replayed():
    ws, f = list(weights(4, 128)), amdjax.jit(layers, compiler_options=OPTIONS)
    ws, x = amdjax.device_put((ws, rows(ws)), Space.Host)
    wanted = np.asarray(f(ws, x))
    for _ in range(6):  # which may be a graph, once addresses come again
        np.testing.assert_array_equal(f(ws, x), wanted)


def test_what_leaves_is_waited_for_before_it_is_overwritten():
    ws = list(weights(6, 16))
    x = np.ones((1 << 12, 16), np.float32)
    order = opcodes(compiled(residuals(offloaded=["h"]), (ws, x), "gfx942"))
    first = order.index("ASIDE")
    assert order[first - 1] == "CALL"  # what made it
    assert order.count("ASIDE") == order.count("AWAIT") >= 10
    assert order.index("AWAIT") > first + 1


@pytest.mark.devices
def test_what_leaves_is_what_it_was_when_it_left():
    def f(x):
        y = jnp.sin(x)
        there = amdjax.device_put(y, Space.Host)
        # In place of `y`, which nothing reads any more.
        return there, jnp.sum(y.at[0].set(0.0))

    x = np.linspace(-1, 1, 1 << 15, dtype=np.float32).reshape(2, -1)
    there, total = amdjax.jit(f)(x)
    np.testing.assert_allclose(there, np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(total, np.sin(x)[1].sum(), rtol=1e-5)


def to_host(x):
    return amdjax.device_put(x, Space.Host)


def to_device(x):
    return amdjax.device_put(x, Space.Device)


BIG = np.linspace(-1, 1, 1 << 15, dtype=np.float32).reshape(256, 128)


def carried(x):
    def step(carry, _):
        y = jnp.sin(to_device(carry[0]))
        return (to_host(y), carry[1] + y), to_host(y * 2)

    (h, total), ys = lax.scan(step, (to_host(x), x), None, length=3)
    return to_device(h), total, to_device(ys)


def repeated(x):
    step = lambda c: (c[0] + 1, to_host(to_device(c[1]) * 1.5))
    return to_device(lax.while_loop(lambda c: c[0] < 3, step, (0, to_host(x)))[1])


def chained(x):
    a = jnp.sin(x)
    b = a.at[3].set(7.0)
    c = b * b
    a, b, c = map(to_host, (a, b, c))
    d = to_host(to_device(a) + to_device(b))
    return to_device(d) + to_device(c) + to_device(a)


def chosen(x):
    h = to_host(2 * x)
    return lax.cond(
        x[0, 0] > 0, lambda h: to_device(h) * 2, lambda h: to_device(h) + 1, h
    ) + to_device(h)


@pytest.mark.parametrize("f", [carried, repeated, chained, chosen])
@pytest.mark.parametrize("off", ["", "copy_near_use", "prefetch_copies,persistent_loops"])
@pytest.mark.devices
def test_transfers_keep_values(f, off):
    with amdjax.default_device(amdjax.devices("cpu")[0]):
        wanted = amdjax.jit(f)(BIG)
    found = amdjax.jit(f, compiler_options={"disabled_passes": off})(BIG)
    for a, b in zip(amdjax.tree.leaves(found), amdjax.tree.leaves(wanted)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.devices
def test_memory_of_the_host_is_counted_apart():
    device = jnp.ones(()).device
    before = device.memory_stats()
    x = amdjax.device_put(np.ones(1 << 16, np.float32), Space.Host)
    after = device.memory_stats()
    if device.platform == "cpu":
        assert "host_bytes_in_use" not in (after or {})
        return
    assert after["host_bytes_in_use"] >= before["host_bytes_in_use"] + x.nbytes
    assert after["bytes_in_use"] <= before["bytes_in_use"]


# Residuals under a limit


def through_views(ws, x):
    """Residuals that are read turned, cut, and by elementwise operations of several of them."""
    h = jnp.tanh(x @ ws[0])
    a = jnp.sin(h.reshape(2, -1, WIDTH)).transpose(1, 0, 2).reshape(h.shape) * 2 + h
    b = jnp.tanh(a @ ws[1]) * jnp.cos(h)
    for w in ws[2:]:
        b = jnp.tanh(b @ w) + 0.5 * b
    return b * jnp.exp(-h * h) + jnp.where(a > 0, h, b)


LIMITED = {
    "layers": (layers, list(weights(12))),
    "loop": (in_loop, weights(12)),
    "views": (through_views, list(weights(12))),
    "loop and layers": (
        lambda ws, x: layers(ws[:2], jnp.sin(in_loop(ws, layers(ws[:2], x)))),
        weights(),
    ),
}
BATCH = np.random.default_rng(1).standard_normal((256, WIDTH), np.float32)
ONLY_OFFLOADING = {**OPTIONS, "disabled_passes": "checkpoint_loops,recompute_for_memory"}


def gradient(f):
    return lambda ws, x: amdjax.grad(loss(f))(ws, x)


def needed(f, ws, **options):
    return compiled(gradient(f), (ws, BATCH), "gfx942", **options).memory_analysis()


@pytest.mark.parametrize("name, share", [("layers", 0.5), ("loop", 0.25), ("views", 0.75)])
def test_residuals_leave_under_a_limit(name, share):
    f, ws = LIMITED[name]
    plain = needed(f, ws)
    limit = int(share * plain.temp_size_in_bytes)
    found = needed(f, ws, memory_limit=limit, **ONLY_OFFLOADING)
    assert plain.host_temp_size_in_bytes == 0 < found.host_temp_size_in_bytes
    assert found.temp_size_in_bytes <= limit


@pytest.mark.devices
@pytest.mark.parametrize("rounds", [1, 2])
def test_values_that_come_and_go_unread(rounds):
    """A copy to the host of what is copied from it waits for that one, and is waited for."""

    def f(x):
        y = x
        for _ in range(rounds):
            y = amdjax.device_put(amdjax.device_put(y, Space.Device), Space.Host)
        y = jnp.sort(amdjax.device_put(y, Space.Device))
        return y, amdjax.device_put(y, Space.Host), y * 2

    x = np.random.default_rng(0).standard_normal((4, 64), np.float32)
    found = amdjax.jit(f)(amdjax.device_put(x, Space.Host))
    for got, times in zip(found, (1, 1, 2)):
        np.testing.assert_array_equal(got, np.sort(x) * np.float32(times))


@pytest.mark.parametrize("target", TARGETS)
def test_what_came_from_the_host_is_not_copied_back(target, monkeypatch):
    """Where values leave at one peak, and copies of them would at the next."""
    found, offload = [], memory_limit.offload_residuals

    def noted(*args):
        found.append(offload(*args))
        return found[-1]

    def f(ws, x):
        x = lax.cond(x[0, 0] > 0, lambda x: jnp.tanh(x @ ws[0]), lambda x: jnp.cos(x) * x, x)
        return lax.scan(lambda c, _: (jnp.tanh(c @ ws[0]), None), x, None, length=5)[0]

    monkeypatch.setattr(memory_limit, "offload_residuals", noted)
    with pytest.raises(amdjax.errors.JaxRuntimeError, match="memory_limit"):
        compiled(
            gradient(f), (list(weights(1)), BATCH[:32]), target, memory_limit=1, **ONLY_OFFLOADING
        )
    assert len([moved for _, moved in found if moved]) >= 5
    for program, _ in found:
        copies = [e for e in program.eqns if e.primitive.name == "device_put"]
        fetched = {e.outvars[0] for e in copies if e.invars[0].aval.memory_space is Space.Host}
        assert fetched.isdisjoint(e.invars[0] for e in copies)


@pytest.mark.devices
@pytest.mark.parametrize("share", [0.8, 0.65])
@pytest.mark.parametrize("name", LIMITED)
def test_residuals_that_left_are_what_they_were(name, share):
    f, ws = LIMITED[name]
    limit = int(share * needed(f, ws).temp_size_in_bytes)
    options = {"memory_limit": limit, **ONLY_OFFLOADING}
    found = amdjax.jit(gradient(f), compiler_options=options)(ws, BATCH)
    exact = amdjax.jit(gradient(f))(ws, BATCH)
    for a, b in zip(amdjax.tree.leaves(found), amdjax.tree.leaves(exact)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


def test_what_leaves_is_told():
    f, ws = LIMITED["layers"]
    limit = int(0.85 * needed(f, ws).temp_size_in_bytes)
    names = lambda **o: [
        p.name for p in compiled(gradient(f), (ws, BATCH), "gfx942", memory_limit=limit, **o).passes
    ]
    assert "offload_residuals" in names(**ONLY_OFFLOADING)
    assert "offload_residuals" not in names(disabled_passes="offload_residuals", **OPTIONS)
