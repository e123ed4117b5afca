"""Plans run on devices: on the fake one, whose results are the CPU's bits, and on emulated ones."""

import gc
import threading
import time

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.jit.gpu.graphs import GIVE_UP
from amdjax.runtime.gpu import DeviceError
from tests.support.fake_gpu import FakeGpu
from tests.support.fake_platform import fake_platform


@pytest.fixture
def gpu():
    with fake_platform() as gpus:
        yield gpus[0]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def on_both(gpu, fun, *args, **options):
    """The results on the CPU and on the device, which must be there."""
    wanted = amdjax.jit(fun, **options)(*args)
    placed = amdjax.device_put(args, gpu)
    found = amdjax.jit(fun, **options)(*placed)
    for x in amdjax.tree.leaves(found):
        assert x.device is gpu and x.committed
    return amdjax.tree.leaves(wanted), amdjax.tree.leaves(found)


def check(gpu, fun, *args, **options):
    wanted, found = on_both(gpu, fun, *args, **options)
    for w, f in zip(wanted, found, strict=True):
        assert f.aval is w.aval
        np.testing.assert_array_equal(np.asarray(f), np.asarray(w))


def host_only(x):
    return amdjax.pure_callback(lambda x: np.sort(x, axis=-1), x, x)


def nested(x):
    def outer(c, row):
        def inner(d, e):
            return d + e, d * e

        d, ys = lax.scan(inner, c[0], row)
        return c + d, ys

    return lax.scan(outer, jnp.zeros(3), x)


def growing(x):
    """A while loop around a scan around a conditional."""

    def body(c):
        n, x = c
        x, _ = lax.scan(lambda x, i: (jnp.where(i % 2, x * 1.5, x + 1), None), x, jnp.arange(3))
        return n + 1, lax.cond(n > 1, jnp.cos, jnp.tanh, x)

    return lax.while_loop(lambda c: (c[0] < 4) & (c[1].sum() < 50), body, (0, x))


PROGRAMS = {
    "elementwise": (lambda x, y: jnp.tanh(x) * y + 1, normal(5, 7), normal(7)),
    "softmax": (lambda x: jnp.exp(x - x.max(1, keepdims=True)).sum(1), normal(9, 33)),
    "matmul": (lambda x, y: jnp.maximum(x @ y + 1, 0), normal(33, 20), normal(20, 17)),
    "sum of all": (lambda x: x.sum(), normal(300, 301)),
    "sort": (lambda x: jnp.sort(x, axis=0), normal(50, 3)),
    "cumsum": (lambda x: jnp.cumsum(x), normal(5000)),
    "scatter": (lambda x: x.at[np.array([1, 1, 4])].add(2.0), normal(6)),
    "two results": (lambda x: (x + 1, {"y": x.sum()}), normal(4)),
    "an argument": (lambda x: x, normal(4)),
    "an argument twice": (lambda x: (x, x, x + 1), normal(4)),
    "a constant": (lambda x: (x, jnp.arange(5), jnp.float32(2)), normal(4)),
    "weak types": (lambda x: (x * 2, jnp.asarray(2) * 3), normal(4)),
    "no elements": (lambda x: (x + 1, x.sum(), x.sum(0)), np.zeros((0, 3), np.float32)),
    "mixed dtypes": (lambda x: (x > 0, x.astype("int8"), x.astype("float16")), normal(13)),
    "complex": (lambda x: jnp.fft.fft(x + 1j * x), normal(8)),
    "scan": (lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c - a), x[0], x), normal(6, 4)),
    "scan back": (
        lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c), x[0], x, reverse=True), normal(6, 4),
    ),
    "scan of none": (lambda x: lax.scan(lambda c, a: (c + a, c), x.sum(0), x[:0]), normal(6, 4)),
    "nested scans": (nested, normal(3, 5)),
    "updates in place": (
        lambda x: lax.fori_loop(0, 4, lambda i, c: c.at[i].set(c[i + 1] * 2), x), normal(6, 3),
    ),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2, x + 5), normal(9)),
    "a while around": (growing, normal(3, 2)),
    "a scalar loop": (lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0), np.int32(10)),
    "branches": (
        lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda x: x.sum() + x], x),
        np.int32(7), normal(20, 3),
    ),
    "callback": (lambda x: host_only(x + 1) * 2, normal(4, 5)),
    "callback in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: host_only(c) - i, x), normal(6),
    ),
    "eigenvalues": (lambda x: jnp.linalg.eigvalsh(x @ x.T), normal(4, 4)),
    "solve": (lambda x: jnp.linalg.solve(x @ x.T + jnp.eye(4), x), normal(4, 4)),
    "gradient": (amdjax.grad(lambda x: (jnp.tanh(x) ** 2).sum()), normal(17)),
    "gradient of scan": (
        amdjax.grad(lambda x: lax.scan(lambda c, a: (jnp.sin(c + a), c), x[0], x)[0].sum()),
        normal(5, 3),
    ),
    "random": (lambda key: amdjax.random.normal(key, (10,)), np.array([1, 2], np.uint32)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(gpu, name):
    fun, *args = PROGRAMS[name]
    check(gpu, fun, *args)


@pytest.mark.devices
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_as_machine_code(device, name):
    """The same programs as code of the GPU, emulated where there is none."""
    fun, *args = PROGRAMS[name]
    found = amdjax.tree.leaves(amdjax.jit(fun)(*args))
    with amdjax.default_device(amdjax.devices("cpu")[0]):
        wanted = amdjax.tree.leaves(amdjax.jit(fun)(*args))
    for f, w in zip(found, wanted, strict=True):
        assert f.aval is w.aval and (device is None or f.device is device)
        np.testing.assert_allclose(np.asarray(f), np.asarray(w), rtol=2e-5, atol=2e-5)


@pytest.mark.devices
def test_an_emulator_sees_intermediates_one_by_one(device, monkeypatch):
    """Elsewhere they share a block; here what reads beyond one of them is beyond an allocation."""
    if device is None or device.platform != "emulated":
        pytest.skip("for emulated GPUs")
    x = amdjax.device_put(normal(20, 20), device)
    asked, alloc = [], device.alloc
    make = lambda nbytes, *space: asked.append(nbytes) or alloc(nbytes, *space)
    monkeypatch.setattr(device, "alloc", make)
    found = amdjax.jit(lambda x: (x @ x) @ (x @ jnp.tanh(x.T)))(x)
    assert found.device is device and len(asked) > 2
    assert set(asked) == {20 * 20 * 4}


def test_results_without_data(gpu):
    x = amdjax.device_put(np.arange(3), gpu)
    found = amdjax.grad(lambda i: (i * 2.0).sum(), allow_int=True)(x)
    assert found.dtype == amdjax.float0 and found.shape == (3,)


def test_typed_keys(gpu):
    key = amdjax.random.key(3)
    with amdjax.default_device(gpu):
        here = amdjax.random.key(3)
        found = amdjax.jit(lambda k: amdjax.random.uniform(amdjax.random.split(k)[1], (4,)))(here)
    wanted = amdjax.random.uniform(amdjax.random.split(key)[1], (4,))
    assert found.device is gpu
    np.testing.assert_array_equal(found, wanted)


def test_prints_come_in_order(gpu, capsys):
    @amdjax.jit
    def f(x):
        amdjax.debug.print("first {}", x.sum())
        x = x * 2
        amdjax.debug.print("then {}", x.sum(), ordered=True)
        return x

    f(amdjax.device_put(np.ones(3, np.float32), gpu)).block_until_ready()
    assert capsys.readouterr().out == "first 3.0\nthen 6.0\n"


def test_errors_of_callbacks_come_through(gpu):
    def fail(x):
        raise KeyError("mine")

    f = amdjax.jit(lambda x: amdjax.pure_callback(fail, x, x) + 1)
    with pytest.raises(amdjax.errors.JaxRuntimeError, match="KeyError: 'mine'") as error:
        f(amdjax.device_put(1.0, gpu))
    assert isinstance(error.value.__cause__, KeyError)


def test_callbacks_may_use_the_device(gpu):
    double = amdjax.jit(lambda x: x * 2)
    use = lambda x: np.asarray(double(amdjax.device_put(x, gpu)))
    f = amdjax.jit(lambda x: amdjax.pure_callback(use, x, x) + 1)
    assert f(amdjax.device_put(np.ones(2, np.float32), gpu)).tolist() == [3, 3]


# Memory


def test_constants_are_uploaded_once(gpu):
    table = jnp.asarray(normal(1000))
    f, g = amdjax.jit(lambda i: table[i] + table.sum()), amdjax.jit(lambda x: x + table)
    index = amdjax.device_put(np.int32(3), gpu)
    x = amdjax.device_put(normal(1000), gpu)
    f(index)
    gpu.synchronize()
    mapped, copies = gpu.pool.stats().in_use, gpu.log.count("copy")
    g(x), f(index), g(x)
    gpu.synchronize()
    assert gpu.log.count("copy") - copies <= 1  # the literals of `g`
    assert gpu.pool.stats().in_use - mapped < 4096


def test_constants_go_with_the_programs(gpu):
    def sum_of_table():
        table = jnp.asarray(normal(100_000))
        return amdjax.jit(lambda x: x + table.sum())

    f = sum_of_table()
    f(amdjax.device_put(1.0, gpu))
    gpu.synchronize()
    assert gpu.pool.stats().in_use > 400_000
    del f
    amdjax.clear_caches()
    gc.collect()
    assert gpu.pool.stats().in_use < 100_000


def test_intermediates_take_one_allocation(gpu, monkeypatch):
    f = amdjax.jit(lambda x: lax.scan(lambda c, a: (jnp.sort(c + a), jnp.sort(c)), x[0], x))
    x = amdjax.device_put(normal(50, 40), gpu)
    f(x)
    asked = []
    alloc = gpu.alloc
    monkeypatch.setattr(gpu, "alloc", lambda n, *where: asked.append(n) or alloc(n, *where))
    f(x)
    assert len(asked) == 3  # two results and the arena
    gpu.synchronize()


def test_memory_stays_flat(gpu):
    f = amdjax.jit(lambda x: (x @ x).sum() + x)
    x = amdjax.device_put(normal(40, 40), gpu)
    for _ in range(5):
        x = f(x) * 0
    before, mapped = gpu.pool.stats().in_use, gpu.log.count("map")
    for _ in range(100):
        x = f(x) * 0
    assert gpu.pool.stats().in_use == before and gpu.log.count("map") == mapped


def test_donated_memory_is_used_again(gpu):
    f = amdjax.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = amdjax.device_put((normal(64), normal(64, seed=1)), gpu)
    x, y = x + 0, y + 0
    wanted, address = np.asarray(x) + np.asarray(y), x.unsafe_buffer_pointer()
    z = f(x, y)
    assert x.is_deleted() and z.unsafe_buffer_pointer() == address
    np.testing.assert_array_equal(z, wanted)
    with pytest.raises(RuntimeError, match="deleted"):
        f(x, y)
    with pytest.raises(RuntimeError, match="deleted"):
        x.unsafe_buffer_pointer()


def test_donated_memory_that_others_see_is_left(gpu):
    f = amdjax.jit(lambda x, y: x + y, donate_argnums=0)
    x = amdjax.device_put(normal(64), gpu)
    other = amdjax.device_put(x, gpu)
    same = type(x)(x.aval, x.buffer, x.placement)
    before = np.array(x)
    assert other is x
    z = f(x, same)
    np.testing.assert_array_equal(z, before * 2)
    np.testing.assert_array_equal(same, before)


def test_donated_arguments_of_the_host(gpu):
    f = amdjax.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = jnp.ones(64), amdjax.device_put(normal(64), gpu)
    z = f(x, y)
    np.testing.assert_array_equal(z, np.asarray(y) + 1)
    small = f(jnp.float32(1), y[0])
    np.testing.assert_array_equal(small, np.asarray(y)[0] + 1)
    assert float(jnp.float32(1) + y[0] - y[0]) == 1.0  # the shared copy of 1.0 is what it was


def test_copies_on_the_host_follow_donation(gpu):
    f = amdjax.jit(lambda x: x + 1, donate_argnums=0)
    x = amdjax.device_put(np.zeros(64, np.float32), gpu)
    for i in range(3):
        assert float(x[0]) == i and np.asarray(x)[0] == i
        x = f(x)


# Errors


def test_only_memory_of_the_host_is_a_buffer(gpu):
    """NumPy asks for a buffer first, and what that raises is lost: a fault would be."""
    with pytest.raises(BufferError, match=r"numpy\.asarray"):
        amdjax.device_put(np.ones(3, np.float32), gpu).__buffer__(0)
    x = amdjax.device_put(np.ones(3, np.float32), amdjax.devices("cpu")[0])
    assert bytes(x.__buffer__(0)) == np.ones(3, np.float32).tobytes()


def test_a_late_error_names_the_kernel(gpu):
    f = amdjax.jit(lambda x: jnp.tanh(x) + 1)
    x = amdjax.device_put(normal(4), gpu)
    f(x).block_until_ready()
    (name,) = {n for n in gpu.log if n not in ("map", "copy", "read")}
    gpu.failing.add(name)
    y = f(x)
    with pytest.raises(DeviceError, match=f"illegal address, in kernel {name}"):
        np.asarray(y)
    gpu.failing.clear()
    f(x).block_until_ready()  # the process stays usable


def test_out_of_memory():
    with fake_platform(memory=5 << 20) as (gpu, _):
        x = amdjax.device_put(np.ones(1000, np.float32), gpu)
        with pytest.raises(MemoryError, match="out of device memory"):
            amdjax.jit(lambda x: jnp.broadcast_to(x, (1000, 1000)) + 1)(x)
        assert float((x + 1)[0]) == 2


# Graphs


def chain(x):
    """More launches than are worth a graph."""
    for _ in range(10):
        x = jnp.sort(x) * 1.5
    return x


def test_a_program_that_comes_again_is_replayed(gpu):
    f = amdjax.jit(chain)
    x = amdjax.device_put(normal(20), gpu)
    wanted = np.asarray(amdjax.jit(chain)(normal(20)))
    for _ in range(5):
        np.testing.assert_array_equal(f(x), wanted)
    assert gpu.log.count("replay") == 3 or gpu.log.count("replay") == 4


def test_results_kept_alternate_between_graphs(gpu):
    f = amdjax.jit(chain)
    x = amdjax.device_put(normal(20), gpu)
    wanted = np.asarray(amdjax.jit(chain)(normal(20)))
    y = None
    for _ in range(8):
        y = f(x)  # while the last result is still there
        np.testing.assert_array_equal(y, wanted)
    assert gpu.log.count("replay") >= 4


def test_new_addresses_are_not_recorded_forever(gpu):
    f = amdjax.jit(chain)
    kept = [amdjax.device_put(normal(20, seed=i), gpu) for i in range(GIVE_UP + 4)]
    kept = [f(x) for x in kept]
    assert "replay" not in gpu.log and not gpu.graphs
    np.testing.assert_array_equal(kept[1], chain(normal(20, seed=1)))


def test_counted_loops_are_replayed_and_decisions_are_not(gpu):
    scan = amdjax.jit(lambda x: lax.scan(lambda c, a: (jnp.sort(c + a), c), x[0], x))
    loop = amdjax.jit(lambda x: lax.while_loop(lambda c: c.sum() < 1e3, lambda c: c * 1.1, x))
    x = amdjax.device_put(np.abs(normal(12, 5)) + 1, gpu)
    want = [np.asarray(y) for y in scan(x)]
    for _ in range(4):
        for found, wanted in zip(scan(x), want, strict=True):
            np.testing.assert_array_equal(found, wanted)
    replays = gpu.log.count("replay")
    assert replays
    for _ in range(4):
        loop(x).block_until_ready()
    assert gpu.log.count("replay") == replays


def test_graphs_go_with_the_program(gpu):
    f = amdjax.jit(lambda x: chain(x))  # programs live as long as the function
    x = amdjax.device_put(normal(20), gpu)
    for _ in range(4):
        f(x)
    gpu.synchronize()
    assert gpu.graphs
    del f
    gc.collect()
    assert not gpu.graphs


# Threads


def test_threads_share_programs_and_graphs(gpu, monkeypatch):
    """Each thread waits, copies and records while the others do."""
    begin = FakeGpu._begin_capture
    # Others get their turn while one records.
    monkeypatch.setattr(FakeGpu, "_begin_capture", lambda gpu: (begin(gpu), time.sleep(0.002)))
    programs = [
        amdjax.jit(lambda x: lax.fori_loop(0, 10, lambda i, c: jnp.sort(c) + x, x)),
        amdjax.jit(chain),
        amdjax.jit(lambda x, y: x + y, donate_argnums=0),
    ]
    inputs = [normal(30, seed=i) for i in range(4)]

    def call(x):
        loop, many, add = programs
        here = amdjax.device_put(x, gpu)
        found = [np.asarray(loop(here)), np.asarray(many(here))]
        return [*found, np.asarray(add(amdjax.device_put(x, gpu), here))]

    wanted = [call(x) for x in inputs]
    failures = []

    def work(i):
        try:
            for _ in range(30):
                for found, want in zip(call(inputs[i]), wanted[i], strict=True):
                    np.testing.assert_array_equal(found, want)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_constants_of_programs_that_are_gone_are_not_those_of_others(gpu):
    # The device keeps contents of a few bytes for longer than the array that they came from.
    x = amdjax.device_put(np.float32(1), gpu)

    def check_sum(length, value):
        known = jnp.asarray(np.full(length, value, np.float32))
        found = amdjax.jit(lambda x: x + known)(x)
        np.testing.assert_array_equal(found, np.full(length, value + 1, np.float32))

    for i in range(40):
        check_sum(2, i)
        check_sum(64, 100 + i)
