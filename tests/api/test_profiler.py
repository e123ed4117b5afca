"""`profiler`, `monitoring` and `distributed`: what is recorded, heard and refused."""

import gzip
import json

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import distributed, monitoring, profiler


def spans(folder):
    (path,) = folder.rglob("*.trace.json.gz")
    with gzip.open(path) as file:
        found = json.load(file)["traceEvents"]
    return path, [e for e in found if e["ph"] == "X"]


def test_a_trace_holds_compiles_calls_operations_and_annotations(tmp_path):
    f = amdjax.jit(lambda x: jnp.sin(x) * 3)
    recording = profiler.trace(tmp_path, create_perfetto_trace=True)
    with recording, profiler.TraceAnnotation("outer", size=7):
        for step in range(3):
            with profiler.StepTraceAnnotation("step", step_num=step):
                f(jnp.arange(7.0))
        jnp.cos(jnp.arange(5.0))
    path, found = spans(tmp_path)
    kinds = [(e["name"], e["cat"]) for e in found]
    assert kinds.count(("<lambda>", "call")) == 3
    assert kinds.count(("<lambda>", "compile")) == kinds.count(("<lambda>", "trace")) == 1
    assert ("cos", "operation") in kinds
    assert [e["args"]["step_num"] for e in found if e["name"] == "step"] == ["0", "1", "2"]
    outer = next(e for e in found if e["name"] == "outer")
    assert outer["args"] == {"size": "7"}
    inside = [e for e in found if e is not outer]
    assert all(
        outer["ts"] <= e["ts"] <= e["ts"] + e["dur"] <= outer["ts"] + outer["dur"] + 1
        for e in inside
    )
    assert path.with_name("perfetto_trace.json.gz").exists()
    plane = profiler.ProfileData.from_file(path).find_plane_with_name("/host:CPU")
    events = [e for line in plane.lines for e in line.events]
    assert len(events) == len(found) and all(e.end_ns >= e.start_ns >= 0 for e in events)


def test_nothing_is_recorded_outside_a_trace(tmp_path):
    with profiler.TraceAnnotation("before"):
        pass
    profiler.start_trace(str(tmp_path))
    profiler.annotate_function(lambda: 3, name="inside", a=1)()
    profiler.stop_trace()
    jnp.arange(3) + 1
    assert [e["name"] for e in spans(tmp_path)[1]] == ["inside"]


def test_traces_do_not_nest(tmp_path):
    with pytest.raises(RuntimeError, match="No profile started"):
        profiler.stop_trace()
    with profiler.trace(tmp_path), pytest.raises(RuntimeError, match="already been started"):
        profiler.start_trace(tmp_path)
    with pytest.raises(ValueError, match="no trace"):
        profiler.ProfileData.from_file(tmp_path / "none")
    for call in (
        lambda: profiler.start_trace(tmp_path, create_perfetto_link=True),
        profiler.device_memory_profile,
        lambda: profiler.start_server(9999),
    ):
        with pytest.raises(NotImplementedError):
            call()


def test_copies_between_devices_are_seen(tmp_path):
    with profiler.trace(tmp_path):
        amdjax.device_put(np.ones(5, np.float32), amdjax.devices()[0])
    assert any(e["cat"] == "copy" for e in spans(tmp_path)[1])


def test_listeners():
    heard = []

    def listener(*args, **details):
        heard.append((*args, details))

    try:
        monitoring.register_event_listener(listener)
        monitoring.register_event_duration_secs_listener(listener)
        monitoring.register_event_time_span_listener(listener)
        monitoring.register_scalar_listener(listener)
        monitoring.record_event("/a", x=1)
        monitoring.record_event_duration_secs("/b", 2.0)
        monitoring.record_event_time_span("/c", 1.0, 2.0)
        monitoring.record_scalar("/d", 3)
        assert heard == [("/a", {"x": 1}), ("/b", 2.0, {}), ("/c", 1.0, 2.0, {}), ("/d", 3, {})]
        monitoring.unregister_event_listener(listener)
        with pytest.raises(ValueError, match="not a registered"):
            monitoring.unregister_event_listener(listener)
        heard.clear()
        amdjax.jit(lambda x: x * 5 - 1)(jnp.arange(11))
        names = {h[0] for h in heard}
        assert "/jax/core/compile/backend_compile_duration" in names
        assert "/jax/core/compile/jaxpr_trace_duration" in names
    finally:
        monitoring.clear_event_listeners()
    heard.clear()
    monitoring.record_scalar("/d", 3)
    assert not heard


def test_a_cluster_of_one():
    assert not distributed.is_initialized()
    distributed.initialize("localhost:1234", 1, 0)
    try:
        assert distributed.is_initialized()
        with pytest.raises(RuntimeError, match="only be called once"):
            distributed.initialize()
    finally:
        distributed.shutdown()
    assert not distributed.is_initialized()
    with pytest.raises(NotImplementedError, match="num_processes=2"):
        distributed.initialize(num_processes=2)
