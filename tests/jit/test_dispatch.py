"""Calls that machine code repeats: they give what Python gives, and leave to it what they must."""

import collections
import copy
import gc
import operator
import os
import pickle
import random
import signal
import sys
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import events, recorded
from amdjax.core.array import ConcreteArray
from amdjax.core.config import State, config
from amdjax.core.errors import JaxRuntimeError
from amdjax.core.pytree import tree_map
from amdjax.jit import dispatch
from amdjax.runtime import memory
from tests.support.jit_helpers import python_frames, run_python

pytestmark = pytest.mark.skipif(not dispatch.is_loaded(), reason="no machine code for this Python")

Pair = collections.namedtuple("Pair", "a b")
F32 = np.float32


@pytest.fixture(autouse=True)
def recorded_soon(monkeypatch):
    monkeypatch.setattr(dispatch, "LOAD_AFTER", 0)


def is_native(f, *args, **kwargs):
    """Whether a call goes past the methods in Python."""
    names, _ = python_frames(f, *args, **kwargs)
    return not {"JitFunction.__call__", "Primitive.bind", "_operator.<locals>.method"} & set(names)


def repeated(f, *args, **kwargs):
    """What a call gives that machine code makes."""
    for _ in range(3):
        f(*args, **kwargs)
    assert is_native(f, *args, **kwargs)
    return f(*args, **kwargs)


def numbers(*shape, dtype=F32, seed=0):
    return (np.random.default_rng(seed).normal(size=shape) * 9).astype(dtype)


def same(got, want):
    tree_map(lambda g, w: np.testing.assert_array_equal(np.asarray(g), w, strict=True), got, want)


# Programs


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (64, 300), (300, 400)])
def test_results_are_those_of_numpy(shape):
    x = numbers(*shape)
    same(repeated(amdjax.jit(lambda x: x + x), jnp.asarray(x)), x + x)


@pytest.mark.parametrize("results", [0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("length", [5, 2000, 30000])
def test_many_results(results, length):
    x = numbers(length)
    got = repeated(amdjax.jit(lambda x: [x * i for i in range(results)]), jnp.asarray(x))
    assert type(got) is list
    same(got, [x * F32(i) for i in range(results)])


def test_programs_with_workspace():
    x = numbers(40, 40)
    f = amdjax.jit(lambda x: jnp.sort(x @ x, axis=0) @ x)
    same(repeated(f, jnp.asarray(x)), np.asarray(f.lower(x).compile()(x)))
    (signature,) = f._programs.compiled.values()
    assert signature.native.arena > 0


def test_structures():
    a, b, c = (jnp.asarray(numbers(4, seed=i)) for i in range(3))
    tree = {"z": [a, None, (b,)], "a": Pair(c, {"y": a, "x": b}), "e": {}, "t": ()}
    f = amdjax.jit(lambda t: tree_map(lambda x: x * 2, t))
    got = repeated(f, tree)
    assert amdjax.tree.structure(got) == amdjax.tree.structure(tree)
    same(got, tree_map(lambda x: np.asarray(x) * F32(2), tree))


def test_other_structures_are_other_calls():
    a, b = jnp.asarray(numbers(4)), jnp.asarray(numbers(4, seed=1))
    f = amdjax.jit(lambda t: [type(t).__name__, None][1:] + [x - i for i, x in enumerate(t)])
    trees = [(a, b), [a, b], Pair(a, b), (a, b, None), (a, (b,)), [b, a]]
    for _ in range(5):
        for t in trees[:3] + trees[5:]:
            got = f(t)
            same(got[1:], [np.asarray(x) - F32(i) for i, x in enumerate(t)])
    g = amdjax.jit(lambda t: amdjax.tree.structure(t).num_nodes + jnp.sum(amdjax.tree.leaves(t)[0]))
    for _ in range(5):
        for t in trees:
            assert float(g(t)) == pytest.approx(
                amdjax.tree.structure(t).num_nodes + np.sum(np.asarray(amdjax.tree.leaves(t)[0])),
                rel=1e-5,
            )


class Name(str):
    __slots__ = ()


def test_dicts_are_matched_by_keys():
    a, b = jnp.asarray(numbers(4)), jnp.asarray(numbers(4, seed=1))
    f = amdjax.jit(lambda d: [d.get("x", 0) - d.get("y", 0) * 2, sorted(map(type, d), key=str)][0])
    want = np.asarray(a) - np.asarray(b) * F32(2)
    same(repeated(f, {"x": a, "y": b}), want)
    same(repeated(f, {"y": b, "x": a}), want)
    other = {"".join(["x"]): a, "".join(random.sample("y", 1)): b}
    assert is_native(f, other)
    same(f(other), want)
    assert not is_native(f, {Name("x"): a, "y": b})
    same(f({"x": a, "z": b}), np.asarray(a))
    same(f({"x": a, "y": b, "z": b}), want)
    same(f({"x": a}), np.asarray(a))
    same(f(collections.OrderedDict(y=b, x=a)), want)


def test_namedtuples_that_become_containers_of_their_own():
    Point = collections.namedtuple("Point", "x y")
    a, b = jnp.ones(4), jnp.zeros(4)
    f = amdjax.jit(lambda p: p.x - p.y)
    same(repeated(f, Point(a, b)), np.ones(4, F32))
    amdjax.tree_util.register_pytree_node(
        Point, lambda p: ((p.x,), None), lambda _, xs: Point(xs[0], 3)
    )
    same(f(Point(a, b)), np.full(4, -2, F32))


def test_keywords():
    a, b = jnp.asarray(numbers(4)), jnp.asarray(numbers(4, seed=1))
    f = amdjax.jit(lambda x, y, scale=1: x * 2 - y * scale)
    want = np.asarray(a) * F32(2) - np.asarray(b)
    same(repeated(f, a, b), want)
    same(repeated(f, a, y=b), want)
    same(repeated(f, x=a, y=b), want)
    same(repeated(f, y=b, x=a), want)
    same(f(x=b, y=a), np.asarray(b) * F32(2) - np.asarray(a))
    same(repeated(f, a, b, scale=a), np.asarray(a) * F32(2) - np.asarray(b) * np.asarray(a))
    with pytest.raises(TypeError, match="unexpected keyword"):
        f(a, b, wrong=a)
    with pytest.raises(TypeError, match="missing"):
        f(x=a)


def test_static_arguments():
    x = jnp.asarray(numbers(4))

    class Mutable:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __hash__(self):
            return hash(self.n)

    f = amdjax.jit(lambda x, n, how="a": x * getattr(n, "n", n) + (how == "b"), static_argnums=1,
                   static_argnames="how")  # fmt: skip
    base = np.asarray(x)
    for _ in range(4):
        same(f(x, 2), base * F32(2))
        same(f(x, 3), base * F32(3))
        same(f(x, 2, how="b"), base * F32(2) + F32(1))
        same(f(x, True), base)
        same(f(x, 1), base)
    assert is_native(f, x, 2) and is_native(f, x, 3) and is_native(f, x, 2, how="b")
    m = Mutable(5)
    for _ in range(4):
        same(f(x, m), base * F32(5))
    m.n = 6
    same(f(x, m), base * F32(6))


def test_other_types_are_other_calls():
    f = amdjax.jit(lambda x: x + 1)
    for _ in range(3):
        for dtype in (F32, np.int32, np.uint8, np.bool_):
            for shape in ((4,), (2, 2), (5,)):
                x = np.ones(shape, dtype)
                y = f(jnp.asarray(x))
                assert y.shape == shape and y.dtype == (x.dtype if dtype != np.bool_ else np.int32)
                assert y.weak_type == (dtype == np.bool_)
                same(f(x), np.asarray(y))
    weak = f(1.0)
    assert weak.weak_type and not f(jnp.float32(1)).weak_type
    for _ in range(3):
        assert f(weak).weak_type and not f(jnp.float32(1)).weak_type and f(2).dtype == np.int32
    assert f(3) == 4 and f(3.5) == 4.5


def test_committed_arrays_stay_so():
    x = jnp.ones(4)
    there = amdjax.device_put(x, amdjax.devices("cpu")[0])
    f = amdjax.jit(lambda x: x + 1)
    for _ in range(4):
        assert not f(x).committed and f(there).committed
        assert not (x + x).committed and (there + there).committed and (x + there).committed


def test_placed_arrays_are_matched_by_their_places():
    device = amdjax.devices("cpu")[0]
    x = jnp.asarray(numbers(4))
    there = amdjax.device_put(x, device)
    f = amdjax.jit(lambda t, y: {"a": t["a"] + y, "b": t["b"] * 2})
    for args in ({"a": there, "b": there}, there), ({"a": x, "b": there}, x), ({"a": x, "b": x}, x):
        got = repeated(f, *args)
        same(got, {"a": np.asarray(x) * 2, "b": np.asarray(x) * 2})
        committed = any(a.committed for a in amdjax.tree.leaves(args))
        assert [a.committed for a in amdjax.tree.leaves(got)] == [committed] * 2
        assert [type(a) for a in amdjax.tree.leaves(got)] == [type(there if committed else x)] * 2
    moved = amdjax.device_put(x, device)
    moved.placement = device.uncommitted
    assert not is_native(f, {"a": moved, "b": moved}, moved)
    assert not f({"a": moved, "b": moved}, moved)["a"].committed


def test_donations_are_matched():
    f = amdjax.jit(lambda t, y: {"a": t["a"] + y, "b": t["b"] * 2}, donate_argnums=0)
    x, state = numbers(4), {"a": jnp.zeros(4), "b": jnp.ones(4)}
    y = jnp.asarray(x)
    for i in range(6):
        before, addresses = state, {a.buffer.address for a in state.values()}
        native = i > 3 and is_native(f, {k: v + 0 for k, v in state.items()}, y)
        state = f(state, y)
        assert all(a.is_deleted() for a in before.values())
        assert {a.buffer.address for a in state.values()} == addresses
        same(state, {"a": np.asarray(sum([x] * (i + 1))), "b": np.full(4, 2.0 ** (i + 1), F32)})
    assert native
    with pytest.raises(RuntimeError, match="deleted"):
        f(before, y)
    kept = state["a"].sharing()
    want = np.asarray(kept)
    f(state, y)
    same(kept, want)


def test_errors_of_programs_that_python_runs_show_no_frames():
    x = amdjax.device_put(jnp.ones(3), amdjax.devices("cpu")[0])
    f = amdjax.jit(lambda x: x + 1)
    repeated(f, x)
    gone = amdjax.device_put(jnp.ones(3), amdjax.devices("cpu")[0])
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted") as raised:
        f(gone)
    files = {e.path.name for e in raised.traceback}
    assert files == {"test_dispatch.py"}


def test_arrays_of_numpy_do_not_keep_others_from_being_recorded():
    f = amdjax.jit(lambda x: x + 1)
    for _ in range(6):
        same(f(np.ones(4, F32)), np.full(4, 2, F32))
    same(repeated(f, jnp.ones(4)), np.full(4, 2, F32))


def test_subclasses_of_arrays_go_through_python():
    class Special(ConcreteArray):
        pass

    x = jnp.ones(4)
    f = amdjax.jit(lambda x: x + 1)
    repeated(f, x)
    assert not is_native(f, Special(x.aval, x.buffer))
    same(f(Special(x.aval, x.buffer)), np.full(4, 2, F32))


def test_deleted_and_donated_arguments():
    f = amdjax.jit(lambda x: x + 1)
    x = jnp.ones(4)
    repeated(f, x)
    repeated(operator.add, x, x)
    gone = jnp.ones(4)
    gone.delete()
    for call in (f, lambda x: x + x):
        with pytest.raises(RuntimeError, match="deleted"):
            call(gone)
    g = amdjax.jit(lambda x: x * 2, donate_argnums=0)
    for _ in range(4):
        given = jnp.ones(4)
        same(g(given), np.full(4, 2, F32))
        assert given.is_deleted()


def test_caches_that_are_cleared():
    traced = []
    f = amdjax.jit(lambda x: [traced.append(1), x + 1][1])
    x = jnp.ones(4)
    repeated(f, x)
    f.clear_cache()
    f(x)
    assert len(traced) == 2
    repeated(f, x)
    repeated(operator.add, x, x)
    amdjax.clear_caches()
    assert not recorded.operations
    f(x)
    assert len(traced) == 3


# Operations


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "truediv", "lt", "le", "gt", "ge", "eq", "ne"]
)
def test_operators(name):
    x, y = numbers(9), numbers(9, seed=1)
    op = getattr(np.ndarray, f"__{name}__")
    f = getattr(__import__("operator"), name)
    same(repeated(f, jnp.asarray(x), jnp.asarray(y)), op(x, y))
    same(f(jnp.asarray(x), 2.0), op(x, F32(2)))
    same(f(2.0, jnp.asarray(x)), f(F32(2), x))
    same(f(jnp.asarray(x), y), op(x, y))
    assert f(jnp.asarray(x), jnp.asarray(y[:1])).shape == (9,)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,))])
def test_products(shapes):
    x, y = (numbers(*shape, seed=i) for i, shape in enumerate(shapes))
    got = repeated(operator.matmul, jnp.asarray(x), jnp.asarray(y))
    x, y = x.astype(np.float64), y.astype(np.float64)
    assert (np.abs(np.asarray(got) - x @ y) <= 4 * 2**-24 * (np.abs(x) @ np.abs(y))).all()
    i, j = jnp.arange(4), jnp.ones((4, 2), bool)
    assert (i @ i).dtype == np.int32 and (i @ jnp.ones(4)).dtype == F32
    assert (j.T @ j).dtype == bool
    with pytest.raises(TypeError, match="same shape"):
        jnp.ones((3, 4)) @ jnp.ones(5)


def test_products_have_the_precision_of_the_settings():
    f = lambda x: x @ x

    def precision():
        (eqn,) = amdjax.make_jaxpr(f)(jnp.ones((4, 4))).eqns
        return eqn.params["precision"]

    plain = repeated(operator.matmul, jnp.ones((4, 4)), jnp.ones((4, 4)))
    assert precision() is None
    with amdjax.default_matmul_precision("bfloat16"):
        assert precision() is not None
        same(repeated(operator.matmul, jnp.ones((4, 4)), jnp.ones((4, 4))), plain)
    assert precision() is None


def test_operators_of_other_types():
    x, i = jnp.asarray(numbers(6)), jnp.arange(6)
    repeated(operator.add, x, x)
    repeated(operator.add, i, i)
    assert (x + i).dtype == F32 and (i + x).dtype == F32 and (i + i).dtype == np.int32
    assert (i + True).dtype == np.int32 and (i + 1.0).dtype == F32
    with pytest.raises(TypeError, match="unsupported operand types for add"):
        x + [1.0]
    with pytest.raises(TypeError):
        x + "text"

    class Left:
        def __radd__(self, other):
            return "mine"

    assert x + Left() == "mine"


def test_operations_with_parameters():
    x = jnp.asarray(numbers(4, 6))
    f = lambda axis: lax.cumsum(x, axis=axis)
    for _ in range(3):
        f(0), f(1)
    same(f(0).shape, (4, 6))
    np.testing.assert_allclose(f(0), np.cumsum(np.asarray(x), 0), rtol=1e-5)
    np.testing.assert_allclose(f(1), np.cumsum(np.asarray(x), 1), rtol=1e-5)
    bind = lambda axes: lax.reduce_max_p.bind(x, axes=axes, out_sharding=None)
    same(repeated(bind, (0,)), np.max(np.asarray(x), 0))
    same(repeated(bind, (1,)), np.max(np.asarray(x), 1))
    same(repeated(lambda: lax.transpose_p.bind(x, permutation=(1, 0))), np.asarray(x).T)


def test_operations_of_many_results():
    x = jnp.asarray(numbers(9))
    got = repeated(lambda: lax.sort_p.bind(x, dimension=0, is_stable=True, num_keys=1))
    assert type(got) is list
    same(got[0], np.sort(np.asarray(x)))


def test_operations_whose_parameters_have_no_hash():
    assert config.native_calls
    x = jnp.asarray(numbers(3, 3))
    for _ in range(3):
        same(lax.transpose_p.bind(x, permutation=[1, 0]), np.asarray(x).T)


# What holds while a call runs


def test_traces():
    x = jnp.asarray(numbers(5))
    f = amdjax.jit(lambda x: x * x)
    repeated(f, x)
    repeated(operator.mul, x, x)
    base = np.asarray(x)
    same(amdjax.grad(lambda x: jnp.sum(f(x)))(x), base * 2)
    same(amdjax.grad(lambda x: jnp.sum(x * x))(x), base * 2)
    same(amdjax.vmap(f)(x), base * base)
    same(amdjax.jit(lambda y: f(x) + y)(x), base * base + base)
    jaxpr = str(amdjax.make_jaxpr(lambda y: f(y) * f(x))(x))
    assert jaxpr.count("jit") == 2


def test_settings():
    x = jnp.asarray([1.0, 0.0])
    calls = []
    f = amdjax.jit(lambda x: [calls.append(1), x / x][1])
    repeated(f, x)
    repeated(operator.truediv, x, x)
    with State("debug_nans")(True):
        with pytest.raises(FloatingPointError):
            f(x)
        with pytest.raises(FloatingPointError):
            x / x
    count = len(calls)
    with amdjax.disable_jit():
        f(x)
        assert len(calls) == count + 1
    with amdjax.disable_jit():
        f(x)
        assert len(calls) == count + 2
    with amdjax.enable_x64(True):
        assert f(jnp.asarray([1.0])).dtype == np.float64
    with amdjax.default_device(amdjax.devices("cpu")[0]):
        f(x), x / x
    assert is_native(f, x)


def test_recorders_see_calls():
    x = jnp.ones(4)
    f = amdjax.jit(lambda x: x + 1)
    repeated(f, x)
    repeated(operator.add, x, x)
    recorder = events.Recorder()
    old = events.record_with(recorder)
    try:
        f(x), x + x
    finally:
        events.record_with(old)
    assert [s.category for s in recorder.spans] == ["call", "operation"]


def test_errors_of_callbacks():
    def fail(x):
        if np.any(x < 0):
            raise ValueError("negative")
        return x

    f = amdjax.jit(lambda x: amdjax.pure_callback(fail, x, x))
    x = jnp.ones(3)
    for _ in range(5):
        same(f(x), np.ones(3, F32))
    with pytest.raises(JaxRuntimeError, match="negative"):
        f(-x)
    same(f(x), np.ones(3, F32))


def test_signals_end_long_calls():
    def body(n, x):
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]

    f = amdjax.jit(body)
    x = jnp.ones(4)
    repeated(f, jnp.int32(3), x)
    before = memory.buffer_pool().stats().in_use

    class Stop(Exception):
        pass

    def handler(*args):
        raise Stop

    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Stop):
            f(jnp.int32(2**31 - 1), x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert memory.buffer_pool().stats().in_use <= before + 64
    same(f(jnp.int32(0), x), np.ones(4, F32))


def test_memory_that_is_not_there(monkeypatch):
    x = jnp.ones(50_000)
    f = amdjax.jit(lambda x: [x + i for i in range(3)])
    repeated(f, x)
    pool = memory.buffer_pool()
    pool.trim()
    monkeypatch.setattr(pool, "limit", pool.stats().mapped + 250_000)
    for _ in range(3):
        with pytest.raises(MemoryError, match="limit"):
            f(x)
    monkeypatch.undo()
    same(f(x), [np.full(50_000, 1 + i, F32) for i in range(3)])


# What Python keeps


def test_references_are_counted():
    x, y = jnp.asarray(numbers(5)), jnp.asarray(numbers(5, seed=1))
    tree = {"a": x, "b": [y, x]}
    big = jnp.ones(40_000)
    there = amdjax.device_put(x, amdjax.devices("cpu")[0])
    calls = [
        (amdjax.jit(lambda t: [t["x"] + 1, t["y"]]), ({"x": there, "y": y},)),
        (amdjax.jit(lambda x: x + 1), (x,)),
        (amdjax.jit(lambda x: [x, x * 2, x * 3, x * 4, x * 5]), (x,)),
        (amdjax.jit(lambda t: {"c": t["a"] + t["b"][0], "d": t["b"][1]}), (tree,)),
        (amdjax.jit(lambda x: jnp.sort(x * 2)[::-1] * x), (x,)),
        (amdjax.jit(lambda x: x + 1), (big,)),
        (operator.mul, (x, y)),
        (lambda x: lax.transpose_p.bind(x, permutation=(0,)), (x,)),
        (lambda x: lax.sort_p.bind(x, dimension=0, is_stable=True, num_keys=1), (x,)),
    ]
    for f, args in calls:
        repeated(f, *args)
    keys = ("a", "b", config._trace_key, None)
    watched = [
        x,
        y,
        big,
        there,
        there.placement,
        tree,
        tree["b"],
        x.buffer,
        y.buffer,
        x.aval,
        big.aval,
        *keys,
    ]
    watched += [f._programs.records[0] for f, _ in calls if hasattr(f, "_programs")]
    watched += [*recorded.operations.values(), ConcreteArray, memory.SmallBuffer, x.buffer._free]
    watched += [memory.BufferPart, ConcreteArray.__mul__]
    before = [sys.getrefcount(w) for w in watched]
    for f, args in calls:
        for _ in range(100 if args[0] is big else 10_000):
            f(*args)
    after = [sys.getrefcount(w) for w in watched]
    off = [(type(w), b, a) for w, b, a in zip(watched, before, after) if abs(a - b) > 8]
    assert not off


def test_misses_leave_no_references():
    x, i = jnp.asarray(numbers(5)), jnp.arange(5)
    f = amdjax.jit(lambda a, b: a * b)
    repeated(f, x, x)
    repeated(operator.add, x, x)
    host = np.ones(5, F32)
    watched = [x, i, host, x.aval, i.aval, x.buffer, f, config._trace_key]
    for call in (lambda: f(x, host), lambda: x + host, lambda: x + i, lambda: f(a=x, b=i)):
        for _ in range(20):
            call()
        before = [sys.getrefcount(w) for w in watched]
        for _ in range(500):
            call()
        assert [sys.getrefcount(w) for w in watched] == before


def test_memory_stays_the_same():
    x = jnp.asarray(numbers(5))
    f, g = amdjax.jit(lambda x: x + 1), amdjax.jit(lambda x: {"a": [x, x * 2, x * 3, x * 4]})

    def work(n):
        for _ in range(n):
            f(x), g(x), x + x

    work(100)
    gc.collect()
    tracemalloc.start()
    try:
        work(100)
        start = tracemalloc.get_traced_memory()[0]
        in_use = memory.buffer_pool().stats().in_use
        work(2000)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - start < 4000
        assert memory.buffer_pool().stats().in_use <= in_use
    finally:
        tracemalloc.stop()


def test_results_are_objects_like_others():
    x = jnp.asarray(numbers(5))
    y = repeated(amdjax.jit(lambda x: x + 1), x)
    y.note = y  # a cycle
    watch, buffer = weakref.ref(y), weakref.ref(y.buffer)
    assert gc.is_tracked(y)
    same(pickle.loads(pickle.dumps(y)), np.asarray(y))
    same(copy.deepcopy(y), np.asarray(y))
    view = np.asarray(y)
    want = view.copy()
    del y
    gc.collect()
    assert watch() is None and buffer() is not None
    np.testing.assert_array_equal(view, want)
    del view
    assert buffer() is None


def test_memory_is_not_shared():
    x = jnp.asarray(numbers(5))
    f = amdjax.jit(lambda x, y: x + y)
    repeated(f, x, x)
    kept = [f(x, x) for _ in range(200)] + [x + x for _ in range(200)]
    assert len({a.buffer.address for a in kept}) == 400
    for a in kept:
        same(a, np.asarray(x) * 2)


def test_functions_can_be_pickled_and_described():
    x = jnp.ones(3)
    f = amdjax.jit(_plus_one)
    repeated(f, x)
    same(pickle.loads(pickle.dumps(f))(x), np.full(3, 2, F32))
    assert f.__name__ == "_plus_one" and "PjitFunction" in repr(f)
    import inspect

    assert str(inspect.signature(f)) == "(x)"
    assert str(inspect.signature(type(f).__call__)) == "(self, /, *args, **kwargs)"
    assert lax.add_p.bind.__doc__.startswith("Apply the primitive")


def _plus_one(x):
    return x + 1


def test_many_threads():
    xs = [jnp.asarray(numbers(64, seed=i)) for i in range(8)]
    f = amdjax.jit(lambda t, s: {"a": t["x"] * s, "b": t["x"] - 1, "c": t["x"] + s, "d": t["x"]})
    s = jnp.float32(3)
    repeated(f, {"x": xs[0]}, s)
    repeated(operator.add, xs[0], xs[0])
    errors = []

    def work(x):
        base = np.asarray(x)
        try:
            for _ in range(300):
                got = f({"x": x}, s)
                same(got, {"a": base * F32(3), "b": base - 1, "c": base + 3, "d": base})
                same(x + x, base + base)
            assert is_native(f, {"x": x}, s)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(x,)) for x in xs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forks():
    x = jnp.asarray(numbers(5))
    f = amdjax.jit(lambda x: x + 1)
    repeated(f, x)
    child = os.fork()
    if child == 0:
        ok = is_native(f, x) and np.array_equal(f(x), np.asarray(x) + 1)
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_programs_nest_as_deeply_as_before():
    f = lambda x: x * 1.5
    for _ in range(300):
        f = amdjax.jit(lambda x, f=f: f(x) + 1.0)
    assert f(2.0) == 303.0


SCRIPT = """
import sys, threading, time
import amdjax, amdjax.numpy as jnp
from amdjax.jit import dispatch
from amdjax.runtime import dispatch as runtime
if {unsupported}: runtime.is_supported = lambda: False
if {strange}: runtime.slot_offset = lambda *a: (_ for _ in ()).throw(RuntimeError())
x = jnp.arange(4.0)
f = amdjax.jit(lambda x: {{"a": x + 1}})
for _ in range(100):
    y = f(x)["a"] + x
print(y.tolist(), type(type(f).__call__).__name__)
kept = [f(x) for _ in range(10)]
def forever():
    while True:
        f(x)
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.05)
"""


@pytest.mark.parametrize("how", ["plain", "unsupported", "strange", "off"])
def test_processes_with_and_without_machine_code(how):
    script = SCRIPT.format(unsupported=how == "unsupported", strange=how == "strange")
    got = run_python(script, AMDJAX_NATIVE_CALLS="0" if how == "off" else "1").split()
    kind = "method_descriptor" if how == "plain" else "function"
    assert got == ["[1.0,", "3.0,", "5.0,", "7.0]", kind]
