"""Calls on GPUs that machine code repeats: what `test_dispatch` says of the CPU, on two devices."""

import collections
import gc
import random
import sys
import threading
import tracemalloc

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import recorded
from amdjax.core.array import borrowed
from amdjax.core.config import State, config
from amdjax.core.pytree import tree_map
from amdjax.jit import dispatch
from amdjax.jit.gpu.program import GpuProgram
from amdjax.runtime.gpu import DeviceError
from tests.support.fake_platform import fake_platform
from tests.support.jit_helpers import python_frames

pytestmark = pytest.mark.skipif(not dispatch.is_loaded(), reason="no machine code for this Python")

Pair = collections.namedtuple("Pair", "a b")
F32 = np.float32
IN_PYTHON = {"JitFunction.__call__", "Primitive.bind", "_operator.<locals>.method"}


@pytest.fixture(autouse=True)
def recorded_soon(monkeypatch):
    monkeypatch.setattr(dispatch, "LOAD_AFTER", 0)


@pytest.fixture
def gpus():
    with fake_platform() as found:
        yield found


@pytest.fixture
def gpu(gpus):
    return gpus[0]


def is_native(f, *args, **kwargs):
    """Whether a call goes past the methods in Python."""
    return not IN_PYTHON & set(python_frames(f, *args, **kwargs)[0])


def repeated(f, *args, **kwargs):
    """What a call gives that machine code makes."""
    for _ in range(3):
        f(*args, **kwargs)
    assert is_native(f, *args, **kwargs)
    return f(*args, **kwargs)


def numbers(*shape, seed=0):
    return (np.random.default_rng(seed).normal(size=shape) * 9).astype(F32)


def same(got, want):
    tree_map(lambda g, w: np.testing.assert_array_equal(np.asarray(g), w, strict=True), got, want)


@pytest.mark.parametrize("committed", [True, False])
def test_programs_and_operations(gpu, committed):
    a, b = numbers(7), numbers(7, seed=1)
    f = amdjax.jit(lambda x, y: {"p": Pair(x + y, [x * y]), "n": None})
    with amdjax.default_device(gpu):
        x, y = (amdjax.device_put(v, gpu) if committed else jnp.asarray(v) for v in (a, b))
        got = repeated(f, x, y)
        same(got, {"p": Pair(a + b, [a * b]), "n": None})
        for z in (*amdjax.tree.leaves(got), repeated(lambda: x + y), repeated(lambda: x < y)):
            assert z.device is gpu and z.committed == committed and z.sharding == x.sharding
        same(repeated(lambda: x - y), a - b)
        same(repeated(lambda: lax.cumsum(x, axis=0)), np.asarray(lax.cumsum(jnp.asarray(a))))


def test_launches_take_no_python(gpu):
    f = amdjax.jit(lambda x: [jnp.sort(x), jnp.sort(x * 2), jnp.sort(x * 3)])
    x = amdjax.device_put(numbers(9), gpu)
    repeated(f, x)
    launched = []
    gpu._launch = lambda *args: launched.append(args)
    names = [n for n in python_frames(f, x)[0] if not n.startswith("_calls_of_python")]
    assert len(launched) > 1 and names.count("GpuDevice.run") == 1
    assert not [n for n in names if "launch" in n.lower() and not n.startswith("test_")]


@pytest.mark.parametrize("results", [0, 1, 5, 33])
def test_many_results_have_memory_of_their_own(gpu, results):
    x = amdjax.device_put(numbers(50), gpu)
    got = repeated(amdjax.jit(lambda x: [x * i for i in range(results)]), x)
    assert type(got) is list
    same(got, [numbers(50) * F32(i) for i in range(results)])
    in_use = gpu.pool.stats().in_use
    del got[1:]
    assert gpu.pool.stats().in_use <= in_use - 256 * max(results - 1, 0)


def test_workspace_and_loops(gpu):
    x = numbers(40, 40)
    f = amdjax.jit(lambda x: jnp.sort(x @ x, axis=0) @ x)
    here = amdjax.device_put(x, gpu)
    want = f(jnp.asarray(x))
    before = None
    for _ in range(3):
        same(repeated(f, here), np.asarray(want))
        gpu.synchronize()
        stats = gpu.pool.stats()
        assert before in (None, stats)
        before = stats
    loop = amdjax.jit(lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.sort(c) + x, x))
    same(repeated(loop, here), np.asarray(loop(jnp.asarray(x))))
    ends = amdjax.jit(lambda x: lax.while_loop(lambda c: c.sum() < 1e6, lambda c: c * c + 1, x))
    same(repeated(ends, here), np.asarray(ends(jnp.asarray(x))))


def test_other_places_are_other_calls(gpus):
    a = numbers(6)
    first, second = (amdjax.device_put(a, g) for g in gpus)
    cpu = amdjax.device_put(a, amdjax.devices("cpu")[0])
    f = amdjax.jit(lambda x, y: x * y)
    for _ in range(4):
        for x in (first, second, cpu):
            for z in (f(x, x), x * x):
                assert z.devices() == x.devices() and z.committed
                same(z, a * a)
            z = f(x, jnp.asarray(a))
            assert z.devices() == x.devices() and z.committed
            same(z, a * a)
        for x, y in ((first, second), (second, cpu), (cpu, first)):
            for call in (f, lambda x, y: x * y):
                with pytest.raises(ValueError, match="incompatible devices"):
                    call(x, y)
    assert all(is_native(f, x, x) for x in (first, second))


def test_the_default_device_says_where_uncommitted_arrays_go(gpus):
    a = numbers(6)
    f = amdjax.jit(lambda x: x + 1)
    for _ in range(4):
        for g in gpus:
            with amdjax.default_device(g):
                x = jnp.asarray(a)
                for other in gpus:
                    with amdjax.default_device(other):
                        for z in (f(x), x + x):
                            assert z.device is other and not z.committed
                        same(f(x), a + 1)


def test_arrays_with_names_keep_them(gpu):
    mesh = amdjax.sharding.Mesh(np.array([gpu]), ("i",))
    named = amdjax.device_put(
        numbers(4), amdjax.sharding.NamedSharding(mesh, amdjax.sharding.PartitionSpec("i"))
    )
    plain = amdjax.device_put(numbers(4), gpu)
    f = amdjax.jit(lambda x: x * 2)
    want = f(named).sharding
    assert want == named.sharding
    for _ in range(4):
        assert f(plain).sharding == plain.sharding and f(named).sharding == want
        assert (named * named).sharding == want and (plain * plain).sharding == plain.sharding


def test_memory_spaces(gpu):
    x = amdjax.device_put(numbers(4), gpu)
    there = amdjax.device_put(x, amdjax.memory.Space.Host)
    f = amdjax.jit(lambda x: x + 1)
    repeated(f, x)
    for _ in range(4):
        assert f(there).aval.memory_space is amdjax.memory.Space.Host
        assert f(x).aval.memory_space is amdjax.memory.Space.Device
        same(f(there), numbers(4) + 1)


def test_deleted_and_donated_arguments(gpu):
    f = amdjax.jit(lambda x: x + 1)
    x = amdjax.device_put(numbers(4), gpu)
    repeated(f, x)
    repeated(lambda: x + x)
    gone = x + 0
    gone.delete()
    for call in (f, lambda x: x + x):
        with pytest.raises(RuntimeError, match="deleted"):
            call(gone)
    g = amdjax.jit(lambda x, y: x * y, donate_argnums=0)
    for _ in range(5):
        given = x + 0
        address = given.unsafe_buffer_pointer()
        z = g(given, x)
        same(z, numbers(4) * numbers(4))
        assert given.is_deleted() and z.unsafe_buffer_pointer() == address


@pytest.mark.parametrize("on", ["cpu", "cpu, committed", "gpu"])
def test_donations(gpus, on):
    """Machine code gives memory on, unless it is someone else's, too."""
    device = {"cpu": None, "gpu": gpus[0]}.get(on, amdjax.devices("cpu")[0])
    put = lambda x: jnp.asarray(x) if device is None else amdjax.device_put(x, device)
    f = amdjax.jit(lambda t, y: {"a": t["a"] + y, "b": t["b"] * 2}, donate_argnums=0)
    y, state = put(numbers(40)), {"a": put(numbers(40) * 0), "b": put(numbers(40, seed=1))}
    a, b = np.zeros(40, F32), numbers(40, seed=1)

    def check(state, want_a, want_b, is_known):
        given = dict(state)
        where = {x.unsafe_buffer_pointer() for x in given.values()}
        names, _ = python_frames(lambda: state.update(f(state, y)))
        assert is_known in (None, "deleting.<locals>.run_and_delete" not in names)
        assert all(x.is_deleted() for x in given.values())
        same(state, {"a": want_a, "b": want_b})
        return where == {x.unsafe_buffer_pointer() for x in state.values()}

    for i in range(8):
        a, b = a + np.asarray(y), b * 2
        assert check(state, a, b, True if i > 2 else None)
        np.asarray(state["a"])  # copies on the host are of what was there before
    kept = state["a"].sharing()
    assert not check(state, a + np.asarray(y), b * 2, False)
    same(kept, a)
    x = put(numbers(40))
    with pytest.raises(RuntimeError, match="donate the same array twice"):
        f({"a": x, "b": x}, y)
    with pytest.raises(RuntimeError, match="donate the same array twice"):
        f({"a": x, "b": x + 0}, x)
    same(x, numbers(40))
    old = state["a"]
    f(state, y)
    with pytest.raises(RuntimeError, match="deleted"):
        f({"a": old, "b": x}, y)


def test_memory_of_numpy_is_not_given_on():
    f = amdjax.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(6):
        x = numbers(40)
        aligned = np.frombuffer(bytearray(40 * 4 + 64), np.uint8)
        aligned = aligned[-aligned.ctypes.data % 64 :][: 40 * 4].view(F32)
        aligned[:] = x
        given = borrowed(aligned)
        same(f(given), x + 1)
        same(aligned, x)
        assert given.is_deleted()


def test_what_is_donated_is_gone_when_a_launch_is_refused(gpu):
    f = amdjax.jit(lambda x: jnp.sort(x) * 2, donate_argnums=0)
    x = amdjax.device_put(numbers(40), gpu)
    for _ in range(4):
        x = f(x + 0)
    given = x + 0
    gpu.answer = "fakeErrorInvalidValue"
    with pytest.raises(DeviceError, match="refuses"):
        f(given)
    gpu.answer = ""
    assert given.is_deleted()


def test_copies_on_the_host_are_of_what_was_computed(gpu):
    f = amdjax.jit(lambda x: x + 1)
    x = amdjax.device_put(numbers(4), gpu)
    want = numbers(4)
    repeated(f, x)
    for _ in range(5):
        want = want + F32(1)
        x = f(x)
        same(x, want)
        same(x, want)


# Errors


def test_a_launch_that_is_refused_leaves_nothing(gpu):
    f = amdjax.jit(lambda x: [jnp.sort(x), x * 2])
    x = amdjax.device_put(numbers(40), gpu)
    repeated(f, x)
    gpu.synchronize()
    before, failures = gpu.pool.stats().in_use, gpu.failures
    gpu.answer = "fakeErrorInvalidValue"
    with pytest.raises(DeviceError, match="the driver refuses, in kernel") as raised:
        f(x)
    gpu.answer = ""
    assert gpu.failures == failures + 1 and len(raised.value.kernels) == 1
    del raised
    assert gpu.pool.stats().in_use == before
    same(f(x), [np.sort(numbers(40)), numbers(40) * 2])


def test_late_errors_name_kernels(gpu):
    f = amdjax.jit(lambda x: jnp.tanh(x) + 1)
    x = amdjax.device_put(numbers(4), gpu)
    repeated(f, x).block_until_ready()
    name = next(n for n in reversed(gpu.log) if n not in ("map", "copy", "read"))
    gpu.failing.add(name)
    y = f(x)
    with pytest.raises(DeviceError, match=f"illegal address, in kernel {name}"):
        np.asarray(y)
    with State("sync")(True):
        with pytest.raises(DeviceError, match=f"illegal address, in kernel {name}$"):
            f(x)
        gpu.failing.clear()
        f(x)
        assert not gpu.queue  # it waits
    f(x)
    assert gpu.queue


def test_counters_are_restored_after_failures(gpu, monkeypatch):
    f = amdjax.jit(lambda x: jnp.sort(x))
    x = amdjax.device_put(numbers(40), gpu)
    repeated(f, x)
    restored, restore = [], GpuProgram._restore_literals
    monkeypatch.setattr(GpuProgram, "_restore_literals", lambda p: (restored.append(p), restore(p)))
    f(x)
    assert not restored
    gpu.failures += 1
    for _ in range(2):
        assert is_native(f, x)
    assert len(restored) == 1


def test_memory_that_is_not_there():
    with fake_platform(memory=6 << 20) as (gpu, _):
        f = amdjax.jit(lambda x: [x + i for i in range(3)])
        x = amdjax.device_put(np.ones(100_000, F32), gpu)
        repeated(f, x)
        rest = [gpu.alloc(300_000) for _ in range(7)]
        for _ in range(3):
            with pytest.raises(MemoryError, match="out of device memory"):
                kept = f(x), f(x), f(x)
        kept = rest = None
        assert kept is rest
        same(f(x), [np.full(100_000, 1 + i, F32) for i in range(3)])


# What Python keeps


def test_references_are_counted(gpu):
    x, y = (amdjax.device_put(numbers(5, seed=i), gpu) for i in range(2))
    big = amdjax.device_put(numbers(100_000), gpu)
    tree = {"a": x, "b": [y, x]}
    donating = amdjax.jit(lambda t, y: [t["a"] + y, t["b"] - y], donate_argnums=0)
    calls = [
        (amdjax.jit(lambda x: x + 1), (x,)),
        (amdjax.jit(lambda x: [x, x * 2, x * 3]), (x,)),
        (amdjax.jit(lambda t: {"c": t["a"] + t["b"][0], "d": t["b"][1]}), (tree,)),
        (amdjax.jit(lambda x: jnp.sort(x * 2)[::-1] * x), (x,)),
        (amdjax.jit(lambda x: x + 1), (big,)),
        (lambda x, y: x * y, (x, y)),
        (lambda x, y: donating({"a": x - y, "b": x * y}, y), (x, y)),
        (lambda x: lax.sort_p.bind(x, dimension=0, is_stable=True, num_keys=1), (x,)),
    ]
    for f, args in calls:
        repeated(f, *args)
    watched = [x, y, big, tree, x.buffer, big.buffer, x.aval, x.placement, x.placement.device, None]
    watched += [gpu.pool, x.buffer._free, type(x), type(x.buffer), config._trace_key]
    watched += [f._programs.records[0] for f, _ in calls if hasattr(f, "_programs")]
    watched += [*recorded.operations.values()]
    gpu.synchronize()
    before = [sys.getrefcount(w) for w in watched]
    for f, args in calls:
        for i in range(1000):
            f(*args)
            if i % 100 == 99:
                gpu.synchronize()
    after = [sys.getrefcount(w) for w in watched]
    off = [(type(w), b, a) for w, b, a in zip(watched, before, after) if abs(a - b) > 8]
    assert not off


def test_memory_stays_the_same(gpu):
    x = amdjax.device_put(numbers(5), gpu)
    f, g = amdjax.jit(lambda x: x + 1), amdjax.jit(lambda x: {"a": [x, x * 2, x * 3]})

    def work(n):
        for _ in range(n):
            f(x), g(x), x + x
            gpu.synchronize()
        gpu.log.clear()

    work(100)
    gc.collect()
    tracemalloc.start()
    try:
        work(50)
        start, in_use = tracemalloc.get_traced_memory()[0], gpu.pool.stats()
        work(500)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - start < 4000
        assert gpu.pool.stats() == in_use
    finally:
        tracemalloc.stop()


def test_memory_is_not_shared(gpu):
    x = amdjax.device_put(numbers(5), gpu)
    f = amdjax.jit(lambda x, y: x + y)
    repeated(f, x, x)
    kept = [f(x, x) for _ in range(100)] + [x + x for _ in range(100)]
    assert len({a.unsafe_buffer_pointer() for a in kept}) == 200
    for a in kept:
        same(a, numbers(5) * 2)


def test_threads_and_graphs(gpus):
    """Several threads call, keep, drop and collect, on either device."""

    def many(x):
        for _ in range(9):
            x = jnp.sort(x) * 1.5
        return x

    programs = [
        amdjax.jit(lambda x, y: {"a": x + y, "b": x}),
        amdjax.jit(lambda x, y: many(x)),
        amdjax.jit(lambda x, y: lax.fori_loop(0, 3, lambda i, c: jnp.sort(c) + y, x)),
        amdjax.jit(lambda x, y: x * y, donate_argnums=0),
        lambda x, y: x - y,
    ]
    inputs = [numbers(20, seed=i) for i in range(4)]
    pairs = [(inputs[i], inputs[(i + 1) % 4]) for i in range(4)]
    wanted = [[tree_map(np.asarray, f(*map(jnp.asarray, p))) for f in programs] for p in pairs]
    errors = []

    def work(seed):
        try:
            draw, kept = random.Random(seed), []
            there = [[amdjax.device_put(x, g) for x in p] for p in pairs for g in gpus]
            for _ in range(150):
                i, k = draw.randrange(len(there)), draw.randrange(len(programs))
                x, y = there[i]
                kept.append((programs[k](x + 0 if k == 3 else x, y), wanted[i // 2][k]))
                if len(kept) > draw.randrange(20):
                    draw.shuffle(kept)
                    same(*kept.pop())
                if draw.random() < 0.02:
                    gc.collect()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert all(g.log.count("replay") for g in gpus)


# Machine code of emulated devices


def test_calls_on_emulated_devices(device):
    x, y = jnp.asarray(numbers(70)), jnp.asarray(numbers(70, seed=1))
    f = amdjax.jit(lambda x, y: {"a": [x + y], "b": jnp.cumsum(x) * y})
    want = tree_map(np.asarray, f(x, y))
    for _ in range(3):
        same(f(x, y), want)
        same(x * y, numbers(70) * numbers(70, seed=1))
    kept = [f(x, y) for _ in range(3)]
    for z in kept:
        same(z, want)
