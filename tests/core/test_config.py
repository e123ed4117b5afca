import ast
import importlib.util
import os
import subprocess
import sys
import threading

import pytest

from amdjax.core import config as cfg
from amdjax.core.config import config
from amdjax.core.flags import FLAGS, resolved


def in_thread(fun):
    out = []
    thread = threading.Thread(target=lambda: out.append(fun()))
    thread.start()
    thread.join()
    return out[0]


def run_with_env(code, **env):
    return subprocess.run(
        [sys.executable, "-c", f"from amdjax.core.config import config; {code}"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


def test_both_spellings():
    assert config.enable_x64 is config.jax_enable_x64 is config.x64_enabled is False
    config.update("jax_debug_infs", True)
    try:
        assert config.debug_infs is config.read("jax_debug_infs") is True
    finally:
        config.update("debug_infs", False)
    assert config.values["jax_debug_infs"] is False


def test_context_manager_restores():
    with cfg.enable_x64(True):
        assert config.enable_x64 and config.jax_enable_x64
        with cfg.enable_x64(False):
            assert not config.enable_x64
        assert config.enable_x64
    assert not config.enable_x64


def test_context_manager_restores_after_an_error():
    with pytest.raises(RuntimeError), cfg.debug_nans():
        raise RuntimeError
    assert config.debug_nans is False


def test_override_is_local_to_the_thread():
    with cfg.enable_x64(True):
        assert in_thread(lambda: config.enable_x64) is False


def test_update_reaches_running_threads():
    ready, go = threading.Event(), threading.Event()
    seen = []

    def work():
        seen.append(config.random_seed_offset)
        ready.set()
        go.wait()
        seen.append(config.random_seed_offset)
        with cfg.enable_x64(True):
            seen.append(config.random_seed_offset)

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        config.update("jax_random_seed_offset", 7)
        go.set()
        thread.join()
        assert seen == [0, 7, 7]
        assert in_thread(lambda: config.random_seed_offset) == 7
    finally:
        config.update("jax_random_seed_offset", 0)


def test_update_inside_an_override():
    with cfg.numpy_rank_promotion("raise"):
        config.update("jax_numpy_rank_promotion", "warn")
        assert config.numpy_rank_promotion == "raise"
    assert config.numpy_rank_promotion == "warn"
    config.update("jax_numpy_rank_promotion", "allow")


def test_decorator():
    @cfg.enable_x64(True)
    def f(depth):
        assert config.enable_x64
        return f(depth - 1) if depth else None

    f(2)
    assert not config.enable_x64


def test_trace_key():
    key = config.trace_key()
    assert config.trace_key() is key
    with cfg.enable_x64(True):
        other = config.trace_key()
        assert other is not key and other != key
        assert tuple(other) != tuple(key)
    assert config.trace_key() is key
    with cfg.log_compiles(True):  # does not change what is traced
        assert config.trace_key() is key
    assert hash(key) == hash(config.trace_key())


def test_wrong_names_and_values():
    with pytest.raises(AttributeError, match=r"jax_foo$|jax_foo\."):
        config.update("jax_foo", 1)
    with pytest.raises(AttributeError, match="Did you mean 'enable_x64'"):
        config.update("jax_enable_x46", True)
    with pytest.raises(AttributeError):
        config.jax_foo
    with pytest.raises(AttributeError, match=r"call config\.update"):
        config.enable_x64 = True
    with pytest.raises(ValueError, match="jax_numpy_rank_promotion takes one of"):
        config.update("jax_numpy_rank_promotion", "x")
    with pytest.raises(ValueError, match="jax_enable_x64 takes a bool"):
        config.update("jax_enable_x64", "maybe")
    with pytest.raises(ValueError, match="num_threads takes an int"):
        config.update("num_threads", 1.5)
    with pytest.raises(TypeError, match="numpy_rank_promotion"):
        cfg.numpy_rank_promotion()
    with pytest.raises(ValueError):
        cfg.default_matmul_precision("exact")


@pytest.mark.parametrize("wrong", [["cpu"], 0, {}])
def test_default_device_takes_devices_only(wrong):
    """What is refused leaves no trace: the next update works."""
    with pytest.raises(ValueError, match="default_device takes a device or a platform's name"):
        config.update("default_device", wrong)
    with pytest.raises(ValueError, match="default_device takes a device"):
        cfg.default_device(wrong)
    config.update("default_device", None)
    assert config.default_device is None


def test_aliases():
    config.update("jax_traceback_filtering", "off")
    assert config.traceback == "full"
    config.update("jax_traceback_filtering", "auto")
    assert config.traceback == config.jax_traceback_filtering == "noted"
    config.update("jax_traceback_filtering", "remove_frames")
    assert config.traceback == "filtered"


def test_optional_flags_take_none():
    with cfg.default_matmul_precision("highest"):
        assert config.default_matmul_precision == "highest"
        with cfg.default_matmul_precision(None):
            assert config.default_matmul_precision is None


def test_disable_jit_and_transfer_guard():
    with cfg.disable_jit():
        assert config.disable_jit
        with cfg.disable_jit(False):
            assert not config.disable_jit
    with cfg.transfer_guard("disallow"):
        assert config.transfer_guard_host_to_device == "disallow"
    assert config.transfer_guard_host_to_device is None


def test_hooks():
    seen = []
    config.on_update("log_compiles", seen.append)
    config.update("jax_log_compiles", True)
    config.update("jax_log_compiles", False)
    assert seen == [True, False]


def test_state_value():
    assert cfg.enable_x64.value is False
    assert "enable_x64" in repr(cfg.enable_x64)


@pytest.mark.parametrize(
    "name,text,value",
    [
        ("enable_x64", "1", True),
        ("debug_nans", "true", True),
        ("disable_jit", "off", False),
        ("num_threads", "3", 3),
        ("num_threads", "", None),
        ("cache_dir", "/tmp/x", "/tmp/x"),
        ("cache_max_bytes", "1000", 1000),
        ("traceback", "full", "full"),
        ("platforms", "hip,cpu", "hip,cpu"),
        ("check", "yes", True),
        ("dump", "d", "d"),
    ],
)
def test_environment(name, text, value):
    done = run_with_env(f"print(repr(config.{name}))", **{FLAGS[name].env: text})
    assert done.stdout.strip() == repr(value), done.stderr


def test_environment_errors_name_the_variable():
    done = run_with_env("", AMDJAX_ENABLE_X64="maybe")
    assert "AMDJAX_ENABLE_X64='maybe' is not a boolean" in done.stderr
    done = run_with_env("", AMDJAX_NUM_THREADS="many")
    assert "AMDJAX_NUM_THREADS='many' is not an integer" in done.stderr
    done = run_with_env("", AMDJAX_TRACEBACK="loud")
    assert "AMDJAX_TRACEBACK takes one of" in done.stderr


def test_options_without_effect_are_taken_and_given_back():
    before = config.trace_key()
    config.update("jax_persistent_cache_min_compile_time_secs", 0)
    try:
        assert config.jax_persistent_cache_min_compile_time_secs == 0
        assert config.read("jax_persistent_cache_min_compile_time_secs") == 0
        assert config.trace_key() is before
    finally:
        config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    with pytest.raises(ValueError, match="jax_enable_pgle takes a bool, got 'yes'"):
        config.update("jax_enable_pgle", "yes")


def test_options_that_would_change_results_are_refused():
    config.update("jax_num_cpu_devices", 1)
    config.update("jax_num_cpu_devices", -1)
    with pytest.raises(NotImplementedError, match="jax_num_cpu_devices is -1 here, got 8"):
        config.update("jax_num_cpu_devices", 8)
    assert config.jax_num_cpu_devices == -1


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX is not installed")
def test_every_option_of_jax_has_its_default():
    code = (
        "import jax; print({k: str(getattr(v, 'value', v)) for k, v in jax.config.values.items()})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name, default in ast.literal_eval(done.stdout).items():
        flag, _ = resolved(name)
        if not FLAGS[flag].effect:
            assert str(FLAGS[flag].default) == default, name
