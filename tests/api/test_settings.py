"""Settings that watch: tracing, running, cache misses, garbage; contexts of the user."""

import gc
import logging
import threading

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core import logs


def test_no_tracing():
    f = amdjax.jit(lambda x: x * 2)
    f(jnp.ones(3))
    with amdjax.no_tracing():
        np.testing.assert_array_equal(f(jnp.ones(3)), 2)
        with pytest.raises(RuntimeError, match=r"re-tracing function <lambda>.*no_tracing"):
            f(jnp.ones(4))
    np.testing.assert_array_equal(f(jnp.ones(4)), 2)


def test_no_execution():
    f = amdjax.jit(lambda x: x * 2)
    x = jnp.ones(3)
    compiled = f.lower(x).compile()
    f(x)
    with amdjax.no_execution():
        for run in (lambda: f(x), lambda: x + 1, lambda: compiled(x)):
            with pytest.raises(RuntimeError, match="no_execution"):
                run()
        f.lower(x).compile()
    np.testing.assert_array_equal(f(x), 2)


@pytest.fixture
def misses(caplog):
    """The explanations of calls made in the test."""

    def explained(run):
        caplog.clear()
        with caplog.at_level(logging.WARNING), amdjax.explain_cache_misses(True):
            run()
        return [record.getMessage() for record in caplog.records]

    return explained


def test_cache_misses_are_explained(misses):
    @amdjax.jit
    def f(x, y):
        return jnp.sin(x) + y["a"]

    zero, one = np.float32(0), {"a": np.ones(1, np.float32)}
    (first,) = misses(lambda: [f(zero, one), f(zero, one)])
    assert "TRACING CACHE MISS at" in first and "test_settings.py" in first
    assert "never seen function: f" in first
    (other,) = misses(lambda: f(zero, {"a": np.ones(2, np.float32)}))
    assert "different input types" in other
    assert "at y['a'], now f32[2] and before f32[1]" in other
    (weak,) = misses(lambda: f(0.0, one))
    assert "at x, now f32[]{weak_type=True} and before f32[]{weak_type=False}" in weak
    (tree,) = misses(lambda: f(zero, {"a": zero, "b": zero}))
    assert "different input pytree" in tree

    def elsewhere():
        with amdjax.numpy_rank_promotion("warn"), amdjax.default_matmul_precision("high"):
            f(zero, one)

    (context,) = misses(elsewhere)
    assert "numpy_rank_promotion: now warn and before allow" in context
    assert "default_matmul_precision: now high and before None" in context


def test_functions_made_in_a_loop_are_pointed_out(misses):
    def loop():
        for _ in range(2):
            amdjax.jit(lambda x: 2 * x)(3)

    first, second = misses(loop)
    assert "another function defined on the same line" in second
    assert "another function" not in first


def test_own_functions_are_no_misses(misses):
    assert not misses(lambda: [jnp.sin(jnp.arange(n)) for n in (31.0, 32.0)])
    import operator

    assert not misses(lambda: amdjax.jit(operator.add)(42, 24))


def test_compiles_are_logged(caplog):
    with caplog.at_level(logging.DEBUG, "amdjax.jit"):
        amdjax.jit(lambda x: x * 3)(1.0)
        assert {r.levelno for r in caplog.records} == {logging.DEBUG}
        caplog.clear()
        with amdjax.log_compiles(True):
            amdjax.jit(lambda x: x * 4)(1.0)
    texts = [r.getMessage() for r in caplog.records]
    assert {r.levelno for r in caplog.records} == {logging.WARNING}
    assert texts[0].startswith("Finished tracing <lambda> for jit in")
    assert texts[1].startswith("Finished compiling <lambda> for jit in")


def test_user_contexts_are_part_of_what_traces_depend_on():
    scale, traces = amdjax.make_user_context(1), []

    @amdjax.jit
    def f(x):
        traces.append(scale.value)
        return x * scale.value

    assert f(2.0) == 2
    with scale(3):
        assert f(2.0) == 6
        with scale(4):
            assert f(2.0) == 8
        assert f(2.0) == 6
        other = []
        thread = threading.Thread(target=lambda: other.append(float(f(2.0))))
        thread.start()
        thread.join()
        assert other == [2]
    assert (f(2.0), traces) == (2, [1, 3, 4])
    scale.set_global(5)
    assert (f(2.0), scale.get_global()) == (10, 5)
    with pytest.raises(TypeError):
        scale.set_global([])
    amdjax.make_user_context("another")
    assert (f(2.0), traces) == (10, [1, 3, 4, 5])


def test_live_arrays():
    before = {id(x) for x in amdjax.live_arrays()}
    x, y = jnp.arange(3.0), jnp.arange(4.0)
    y.delete()
    new = [a for a in amdjax.live_arrays() if id(a) not in before]
    assert len(new) == 1 and new[0] is x
    with pytest.raises(ValueError, match="platform"):
        amdjax.live_arrays("tpu")


def test_garbage_collected_arrays_are_told_of(capsys):
    def leave_a_cycle():
        a, b = jnp.ones(2), jnp.ones(3)
        a.next, b.next = b, a

    gc.collect()
    leave_a_cycle()
    gc.collect()
    assert "garbage" not in capsys.readouterr().err
    with amdjax.array_garbage_collection_guard("log"):
        leave_a_cycle()
        x = jnp.ones(5)
        del x
        gc.collect()
    err = capsys.readouterr().err
    assert err.count("was deleted by the Python garbage collector") == 2
    assert "f32[2]" in err and "f32[3]" in err and "f32[5]" not in err


def test_options_say_what_the_log_tells(monkeypatch, capsys):
    monkeypatch.setattr(logs, "_handler", None)  # one that writes where capsys reads

    def told(**options):
        for name, value in options.items():
            amdjax.config.update(name, value)
        amdjax.jit(lambda x: x + 1)(1)
        return capsys.readouterr().err

    try:
        assert told() == ""
        text = told(logging_level="DEBUG", debug_log_modules="jax,jax._src.dispatch,amdjax.jit")
        assert text.count("Finished tracing <lambda> for jit") == 1
        assert text.startswith("DEBUG:")
        assert told(logging_level="INFO", debug_log_modules=None) == ""
        assert told(logging_level=None, debug_log_modules="amdjax.jit").startswith("DEBUG:")
        assert told(debug_log_modules="elsewhere") == ""
    finally:
        amdjax.config.update("logging_level", "NOTSET")
        amdjax.config.update("debug_log_modules", "")
    assert not logging.getLogger("amdjax").handlers
    with pytest.raises(ValueError, match="'CRITICAL'"):
        amdjax.config.update("logging_level", "LOUD")
