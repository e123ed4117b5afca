"""Garbage collections are rare while programs are compiled, and as before afterwards."""

import gc
import threading

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core.collector import INTERVAL, RareCollections

RARE = (INTERVAL, 11, 12)


@pytest.fixture
def before():
    """Thresholds that nothing else sets; restored with whether the collector is on."""
    enabled, thresholds = gc.isenabled(), gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield (701, 11, 12)
    gc.set_threshold(*thresholds)
    (gc.enable if enabled else gc.disable)()


def test_nested_contexts_restore_at_the_end(before):
    rare = RareCollections()
    with rare:
        with rare:
            assert gc.get_threshold() == RARE
        assert gc.get_threshold() == RARE
    assert gc.get_threshold() == before


def test_an_error_restores(before):
    with pytest.raises(ZeroDivisionError), RareCollections():
        1 / 0
    assert gc.get_threshold() == before


def test_what_the_user_has_set_is_kept(before):
    rare = RareCollections()
    gc.disable()
    with rare:
        assert not gc.isenabled()
    assert not gc.isenabled()
    gc.enable()
    for own in ((0, 11, 12), (INTERVAL + 1, 11, 12)):
        gc.set_threshold(*own)
        with rare:
            assert gc.get_threshold() == own
        assert gc.get_threshold() == own
    gc.set_threshold(*before)
    with rare:
        gc.set_threshold(5, 6, 7)
    assert gc.get_threshold() == (5, 6, 7)


def test_threads_overlap(before):
    rare, inside, leave = RareCollections(), threading.Event(), threading.Event()

    def other():
        with rare:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with rare:
        thread.start()
        inside.wait()
    assert gc.get_threshold() == RARE  # the other thread is still at it
    leave.set()
    thread.join()
    assert gc.get_threshold() == before


def test_garbage_is_bounded(before):
    class Cycle:
        alive = 0

        def __init__(self):
            self.me = self
            Cycle.alive += 1

        def __del__(self):
            Cycle.alive -= 1

    with RareCollections():
        for _ in range(2 * INTERVAL):
            Cycle()
        assert Cycle.alive <= INTERVAL


@pytest.mark.parametrize("target", [None, "gfx942"])
def test_programs_are_compiled_with_few_collections(before, monkeypatch, target):
    seen = []

    def planned(*args, **kwargs):
        seen.append(gc.get_threshold())
        raise RuntimeError("no plan")

    lowered = amdjax.jit(lambda x: jnp.sin(x) + 1).lower(np.ones(5, np.float32))
    for module in ("amdjax.jit.cpu.program", "amdjax.jit.gpu.kernels"):
        monkeypatch.setattr(f"{module}.plan_program", planned)
    with pytest.raises(RuntimeError, match="no plan"):
        lowered.compile(target)
    assert seen == [RARE]
    assert gc.get_threshold() == before


def test_tracing_collects_rarely(before):
    found = []

    def f(x):
        found.append(gc.get_threshold())
        return x

    amdjax.jit(f)(jnp.ones(3))
    assert found == [RARE] and gc.get_threshold() == before


def test_models_from_files_are_traced_with_rare_collections(before):
    onnx = pytest.importorskip("onnx")
    from amdjax.onnx import load

    found = []

    def seen(x):
        found.append(gc.get_threshold())
        return x

    value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3])
    node = onnx.helper.make_node("Seen", ["x"], ["y"], domain="own")
    graph = onnx.helper.make_graph([node], "g", [value("x")], [value("y")])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("own", 1)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets)
    load(proto, custom_ops={("own", "Seen"): seen})(np.ones(3, np.float32))
    assert found and {*found} == {RARE} and gc.get_threshold() == before
