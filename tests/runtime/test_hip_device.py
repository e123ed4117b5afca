"""The HIP runtime on emulated devices: the same calls that hardware gets."""

import gc
import threading

import numpy as np
import pytest

from tests.support.hip_kernels import raw_kernel, saxpy_arguments

pytest.importorskip("hip", reason="needs hip-python", exc_type=ImportError)

from amdjax import targets
from amdjax.emulator.hip import modules
from amdjax.emulator.hip.library import emulated_hip
from amdjax.emulator.hip.platform import emulated_devices, emulated_driver
from amdjax.runtime.gpu import DeviceError
from amdjax.runtime.hip import platform, staging
from amdjax.runtime.hip.driver import HipError, HipUnavailable, driver, hip_python_version

TARGETS = ("gfx942", "gfx1100")


def open_device(*names):
    found = emulated_driver()
    devices, problems = platform.open_devices(found, emulated_hip().devices(names))
    assert not problems
    return devices


@pytest.fixture(params=TARGETS)
def device(request):
    (found,) = open_device(request.param)
    yield found
    found.synchronize()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def vector(rng, n=1000):
    return rng.standard_normal(n).astype(np.float32)


# As programs do, so that launches do not load and unload.
KEPT = []


def launch(device, x, y, n, s=2.0):
    function = device.function(raw_kernel(device.target.name))
    KEPT.append(function)
    arguments = saxpy_arguments(x.address, y.address, n, s)
    device.launch(function, -(-n // 64), 64, 0, arguments)


def contents(buffer, n, dtype=np.float32):
    buffer.overwritten()
    return buffer.as_numpy((n,), dtype)


def test_hip_python_is_there():
    assert hip_python_version()[:2] in ("6.", "7.", "10")


def test_what_a_device_says(device):
    assert device.platform == "emulated" and str(device) == f"emulated:{device.id}"
    assert "(emulated)" in device.device_kind
    assert device.target.name in TARGETS
    stats = device.memory_stats()
    assert 0 <= stats["bytes_in_use"] <= stats["bytes_reserved"] <= stats["bytes_limit"]


def test_a_kernel(device, rng):
    x, y = vector(rng), vector(rng)
    on_x, on_y = device.upload(x), device.upload(y)
    launch(device, on_x, on_y, 1000)
    np.testing.assert_array_equal(contents(on_y, 1000), np.float32(2) * x + y)


@pytest.mark.parametrize("extra", [-1, 0, 1, 2 * staging.CHUNK + 13])
def test_copies_of_any_size(device, rng, extra):
    data = rng.integers(0, 256, staging.CHUNK + extra, np.uint8)
    buffer = device.upload(data)
    np.testing.assert_array_equal(contents(buffer, data.size, np.uint8), data)
    other = device.alloc(data.nbytes)
    device.copy(other.address, buffer.address, data.nbytes)
    np.testing.assert_array_equal(contents(other, data.size, np.uint8), data)


def test_many_small_writes_share_pinned_memory(device):
    values = [np.full(100, i, np.float32) for i in range(200)]
    buffers = [device.upload(v) for v in values]
    for i, buffer in enumerate(buffers):
        assert (contents(buffer, 100) == i).all()


def test_the_source_of_a_write_may_change_at_once(device):
    data = np.ones(1000, np.float32)
    buffer = device.upload(data)
    data[:] = 7
    assert (contents(buffer, 1000) == 1).all()


def test_launches_are_asynchronous(device, rng):
    x, y = device.upload(vector(rng)), device.upload(vector(rng))
    device.synchronize()
    assert device.is_idle()
    launch(device, x, y, 1000)
    assert not device.is_idle()
    device.synchronize()
    assert device.is_idle()


def test_an_access_out_of_bounds_names_kernel_instruction_and_lane(device, rng):
    x, y = device.upload(vector(rng, 64)), device.upload(vector(rng, 40))
    launch(device, x, y, 64)
    with pytest.raises(DeviceError, match=r"kernel saxpy, global_.*lane \d+") as caught:
        device.synchronize()
    assert caught.value.status == "hipErrorIllegalAddress"
    assert caught.value.kernels == ("saxpy",)
    device.synchronize()
    launch(device, x, y, 40)
    contents(y, 40)


def test_use_after_the_end_of_a_buffer(device, rng):
    x, y = device.upload(vector(rng, 64)), device.upload(vector(rng, 64))
    address = x.address
    x = None
    gc.collect()
    launch(device, type("Gone", (), {"address": address}), y, 64)
    with pytest.raises(HipError, match="saxpy"):
        device.synchronize()


def test_refused_launches_say_why(device, rng):
    function = device.function(raw_kernel(device.target.name))
    with pytest.raises(HipError, match=r"up to 64 threads, not 128.*in kernel saxpy"):
        device.launch(function, 1, 128, 0, saxpy_arguments(0, 0, 0, 1.0))
    with pytest.raises(HipError, match="5000 bytes of arguments"):
        device.launch(function, 1, 64, 0, bytes(5000))


def test_code_for_another_target(device):
    other = next(name for name in TARGETS if name != device.target.name)
    with pytest.raises(HipError, match=f"kernel saxpy for {other} does not load") as caught:
        device.function(raw_kernel(other))
    assert caught.value.status == "hipErrorNoBinaryForGpu"


def test_modules_are_loaded_once_and_unloaded(device):
    kernel = raw_kernel(device.target.name, "lookup")
    function = device.function(kernel)
    assert device.function(kernel) is function
    loaded = len(device._modules)
    function = None
    gc.collect()
    assert len(device._modules) == loaded - 1


def test_graphs(device, rng):
    x, y = vector(rng), vector(rng)
    on_x, on_y = device.upload(x), device.upload(y)
    copy = device.alloc(y.nbytes)

    def issue():
        launch(device, on_x, on_y, 1000, 1.0)
        device.copy(copy.address, on_y.address, y.nbytes)

    graph = device.capture(issue)
    assert graph.kernels == ("saxpy",)
    np.testing.assert_array_equal(contents(on_y, 1000), y)
    for _ in range(2):
        device.replay(graph)
    np.testing.assert_array_equal(contents(copy, 1000), x + (x + y))


def test_what_dies_amid_a_capture_is_given_back_after_it(device, rng):
    x, y = device.upload(vector(rng)), device.upload(vector(rng))
    doomed = [device.upload(vector(rng)), device.function(raw_kernel(device.target.name, "lookup"))]
    in_use, modules = device.memory_stats()["bytes_in_use"], len(device._modules)

    def issue():
        launch(device, x, y, 1000)
        doomed.clear()

    device.replay(device.capture(issue))
    device.synchronize()
    assert device.memory_stats()["bytes_in_use"] < in_use
    assert len(device._modules) < modules


@pytest.mark.parametrize(
    "function", ["hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphInstantiateWithFlags"]
)
def test_a_runtime_that_cannot_capture_is_not_asked_again(device, rng, monkeypatch, function):
    x = device.upload(vector(rng))
    real = device._driver.call

    def call(name, *args):
        if name == function:
            if name == "hipStreamEndCapture":
                real(name, *args)
            raise HipError(f"{name}: operation not supported", "hipErrorNotSupported")
        return real(name, *args)

    monkeypatch.setattr(device, "can_capture", True)
    with monkeypatch.context() as patched, pytest.warns(match=f"without graphs: {function}"):
        patched.setattr(device._driver, "call", call)
        assert device.capture(lambda: launch(device, x, x, 1000)) is None
    assert device.capture(lambda: None) is None
    launch(device, x, x, 1000)
    device.synchronize()


def test_a_capture_that_fails_leaves_the_device_usable(device, rng):
    x = device.upload(vector(rng))
    with pytest.raises(ZeroDivisionError):
        device.capture(lambda: 1 / 0)
    launch(device, x, x, 1000)
    device.synchronize()


def test_time_is_measured_on_the_device(device, rng):
    x, y = device.upload(vector(rng)), device.upload(vector(rng))
    seconds = device.elapsed(lambda: launch(device, x, y, 1000))
    assert 0 < seconds < 60


def test_too_little_memory_leaves_the_process_usable(device, rng, monkeypatch):
    emulated = emulated_hip().runtime.devices[device.ordinal]
    monkeypatch.setattr(emulated, "memory_bytes", emulated.used + 10_000)
    kept = device.upload(vector(rng))
    with pytest.raises(MemoryError, match="20,000 bytes asked for"):
        device.alloc(20_000)
    launch(device, kept, kept, 1000)
    device.synchronize()
    monkeypatch.undo()
    device.alloc(20_000)


@pytest.mark.parametrize("names", [("gfx942", "gfx942"), ("gfx942", "gfx1100")])
def test_peer_copies_wait_for_both_devices(names, rng):
    one, two = open_device(*names)
    x = vector(rng)
    a, b = one.upload(x), two.upload(np.zeros(1000, np.float32))
    launch(one, a, a, 1000, 1.0)
    two.copy_from(one, a.address, b.address, x.nbytes)
    one.write(a.address, np.zeros(1000, np.float32))
    launch(two, b, b, 1000, 1.0)
    np.testing.assert_array_equal(contents(b, 1000), 4 * x)
    np.testing.assert_array_equal(contents(a, 1000), 0 * x)


def test_threads_use_a_device_at_once(device, rng):
    x = vector(rng)
    failures = []

    def work(seed):
        try:
            for _ in range(5):
                a = device.upload(x * seed)
                launch(device, a, a, 1000, 1.0)
                np.testing.assert_array_equal(contents(a, 1000), 2 * (x * np.float32(seed)))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(np.float32(i + 1),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_functions_come_and_go_in_many_threads(device, rng):
    x = device.upload(vector(rng, 64))
    kernel = raw_kernel(device.target.name)
    KEPT.clear()
    gc.collect()
    failures = []

    def work():
        try:
            for _ in range(20):
                function = device.function(kernel)
                device.launch(function, 1, 64, 0, saxpy_arguments(x.address, x.address, 64, 0.0))
                del function
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    device.synchronize()
    assert not failures


def test_an_interruption_amid_a_kernel_reaches_the_program(device, rng, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    x = device.upload(vector(rng))
    device.synchronize()
    with monkeypatch.context() as patched:
        patched.setattr(modules, "execute", interrupted)
        launch(device, x, x, 1000)
        with pytest.raises(KeyboardInterrupt):
            device.synchronize()
    launch(device, x, x, 1000)
    device.synchronize()


def test_the_garbage_collector_keeps_away_from_calls(device, rng, monkeypatch):
    enabled = []
    real = modules.execute
    monkeypatch.setattr(
        modules, "execute", lambda *args: (enabled.append(gc.isenabled()), real(*args))
    )
    x = device.upload(vector(rng))
    launch(device, x, x, 1000)
    device.synchronize()
    assert enabled == [False] and gc.isenabled()


def test_an_unsupported_gfx_name_is_left_out_with_a_reason():
    from dataclasses import replace

    found = emulated_driver()
    strange = replace(targets.get("gfx942"), name="gfx943")
    ordinal = emulated_hip().runtime.add_device(strange, 1 << 20)
    devices, problems = platform.open_devices(found, [ordinal])
    assert not devices
    (problem,) = problems
    assert "unknown GPU target 'gfx943'. Did you mean 'gfx942'?" in problem


def test_the_flag_names_the_devices(monkeypatch):
    from amdjax.core.config import config

    before = config.emulate
    try:
        config.update("emulate", "gfx942,gfx1100")
        names = [device.target.name for device in emulated_devices()]
        assert names == ["gfx942", "gfx1100"]
        config.update("emulate", "gfx1100")
        (device,) = emulated_devices()
        assert device.target.name == "gfx1100"
        config.update("emulate", "gfx9000")
        message = "AMDJAX_EMULATE='gfx9000': unknown GPU target 'gfx9000'"
        with pytest.raises(RuntimeError, match=message):
            emulated_devices()
    finally:
        config.update("emulate", before)


def test_one_library_for_a_process():
    emulated_driver()
    with pytest.raises(HipUnavailable, match=r"uses the emulator.*AMDJAX_PLATFORMS=hip"):
        driver()


def test_amd_hardware_is_left_alone_where_the_emulator_is_in_use(recwarn):
    emulated_driver()
    assert platform.hip_devices() == []
    assert not recwarn.list


def test_a_function_that_the_emulator_lacks():
    found = emulated_driver()
    with pytest.raises(HipError, match="hipDeviceSetLimit is not emulated") as caught:
        found.call("hipDeviceSetLimit", found.hip.hipLimit_t.hipLimitStackSize, 3)
    assert caught.value.status == "hipErrorNotSupported"
