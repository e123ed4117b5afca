import re
from dataclasses import replace

import pytest

from amdjax.core.config import config, default_device
from amdjax.runtime import devices as D


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(D, "_registry", dict(D._registry))
    monkeypatch.setattr(D, "_found", dict(D._found))


class FakeDevice(D.Device):
    platform = "fake"


def test_cpu():
    [device] = D.devices("cpu")
    assert repr(device) == "CpuDevice(id=0)" and str(device) == "cpu:0"
    assert (device.platform, device.id, device.process_index) == ("cpu", 0, 0)
    assert device.device_kind == "cpu" and device.local_hardware_id == 0
    assert D.devices("cpu")[0] is device
    assert device.memory_stats()["bytes_limit"] > 0
    assert D.device_count("cpu") == D.local_device_count("cpu") == 1
    assert D.local_devices(backend="cpu") == D.local_devices(0, "cpu") == [device]
    assert (D.process_index(), D.process_count()) == (0, 1)


def test_unknown_backend():
    with pytest.raises(RuntimeError, match="Unknown backend tpu requested"):
        D.devices("tpu")
    with pytest.raises(ValueError, match="process_index 3"):
        D.local_devices(3)


def test_registered_platform(registry):
    found = [FakeDevice(i, "Fake 9000") for i in range(2)]
    calls = []
    D.register_platform("fake", lambda: calls.append(1) or found, priority=5, aliases=("gpu",))
    assert calls == []
    assert D.default_backend() == "fake" and D.platforms() == ["fake", "cpu"]
    assert D.devices() == D.devices("gpu") == D.devices("fake") == found
    assert calls == [1]
    assert repr(found[1]) == "FakeDevice(id=1)" and found[1].memory_stats() is None
    assert D.device_count() == 2


def test_platform_without_devices(registry):
    D.register_platform("fake", list, priority=5, aliases=("gpu",))
    assert D.default_backend() == "cpu"
    with pytest.raises(RuntimeError, match="Unknown backend gpu"):
        D.devices("gpu")


def test_hints(registry):
    D.register_platform("fake", list, aliases=("gpu",), hint="Plug it in.")
    with pytest.raises(RuntimeError, match=r"with devices: cpu. .*Plug it in\."):
        D.devices("gpu")
    before = config.platforms
    try:
        config.update("platforms", "fake")
        with pytest.raises(RuntimeError, match=r"Platforms known: .*\. Plug it in\."):
            D.devices()
    finally:
        config.update("platforms", before)


def test_platforms_on_request(registry):
    D.register_platform("fake", lambda: [FakeDevice(0, "Fake")], priority=50, on_request=True)
    assert D.default_backend() == "cpu" and "fake" not in D.platforms()
    assert D.devices("fake")[0].platform == "fake"
    before = config.platforms
    try:
        config.update("platforms", "fake,cpu")
        assert D.default_backend() == "fake"
    finally:
        config.update("platforms", before)


def test_emulated_gpus_are_gpus_where_asked_for(registry, monkeypatch):
    for name in ("cuda", "hip", "emulated"):
        found = [] if name != "emulated" else [FakeDevice(0, "Fake")]
        row = D._registry[name]
        monkeypatch.setitem(D._registry, name, replace(row, find=lambda found=found: found))
        D._found.pop(name, None)
    before = config.emulate, config.platforms
    try:
        config.update("emulate", None)
        for platforms in (None, "gpu,cpu"):
            config.update("platforms", platforms)
            assert D.default_backend() == "cpu"
            with pytest.raises(RuntimeError, match="Unknown backend gpu"):
                D.devices("gpu")
        config.update("emulate", "gfx942")
        for platforms in (None, "gpu,cpu", "cpu"):
            config.update("platforms", platforms)
            assert D.devices("gpu")[0].device_kind == "Fake"
            assert D.default_backend() == ("cpu" if platforms == "cpu" else "emulated")
    finally:
        config.update("emulate", before[0])
        config.update("platforms", before[1])


def test_placements_are_compared_by_identity():
    [device] = D.devices("cpu")
    assert device.committed is device.committed and device.committed != device.uncommitted
    assert device.committed.device is device and device.committed.committed
    assert not device.uncommitted.committed


def test_platforms_flag(registry):
    D.register_platform("fake", lambda: [FakeDevice(0, "Fake")], priority=5, aliases=("gpu",))
    before = config.platforms
    try:
        config.update("platforms", "cpu,gpu")
        assert D.default_backend() == "cpu" and D.platforms() == ["cpu", "fake"]
        config.update("platforms", "cpu")
        assert D.platforms() == ["cpu"]
        config.update("platforms", " , ")
        assert D.default_backend() == "fake"
        D.register_platform("other", list)
        config.update("platforms", "other")
        with pytest.raises(RuntimeError, match="AMDJAX_PLATFORMS='other' has devices here"):
            D.devices()
    finally:
        config.update("platforms", before)


@pytest.mark.parametrize(
    "text, hint",
    [
        ("hpi,cpu", "no platform 'hpi'. Did you mean 'hip'?"),
        ("cpu,CPU", "no platform 'CPU'. Did you mean 'cpu'?"),
        ("emulate", "no platform 'emulate'. Did you mean 'emulated'?"),
        ("gfx942", "no platform 'gfx942'. AMDJAX_EMULATE=gfx942 emulates such a GPU."),
        ("quantum", "no platform 'quantum'. Platforms known: cpu, cuda, emulated, gpu, hip, rocm."),
    ],
)
def test_misspelled_platforms(text, hint):
    """Not the CPU instead, silently."""
    before = config.platforms
    try:
        config.update("platforms", text)
        with pytest.raises(RuntimeError, match=re.escape(f"AMDJAX_PLATFORMS={text!r}: there is ")):
            D.devices()
        with pytest.raises(RuntimeError, match=re.escape(hint)):
            D.default_backend()
    finally:
        config.update("platforms", before)
    with pytest.raises(RuntimeError, match=r"are present\. Did you mean 'cpu'\?"):
        D.devices("cpuu")


def test_default_device(registry):
    fake = FakeDevice(0, "Fake")
    D.register_platform("fake", lambda: [fake])
    assert D.default_device().platform == "cpu"
    with default_device(fake):
        assert D.default_device() is fake and D.default_backend() == "fake"
    with default_device("fake"):
        assert D.default_device() is fake
