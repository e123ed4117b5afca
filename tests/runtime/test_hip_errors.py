"""What users are told where HIP cannot be used: seen from fresh processes."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hip", reason="needs hip-python", exc_type=ImportError)

from amdjax.runtime.hip import driver as hip_driver, system
from amdjax.runtime.hip.platform import version_text
from tests.support.hip_calls import LINUX_X86

pytestmark = LINUX_X86
TRY = """
import amdjax
try:
    print(amdjax.devices({backend!r}))
except Exception as error:
    print(type(error).__name__, error)
with amdjax.default_device(amdjax.devices("cpu")[0]):
    print(amdjax.numpy.arange(3).sum(), amdjax.devices("cpu"))
"""


def run(backend: str | None = None, code: str = TRY, **environment: str) -> str:
    """What a fresh process prints about its devices; it must stay usable on the CPU."""
    ours = ("AMDJAX_", "ROCM_", "HIP_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", code.replace("{backend!r}", repr(backend))],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    *text, last = done.stdout.strip().splitlines()
    assert last == "3 [CpuDevice(id=0)]"
    return "\n".join(text)


def test_a_library_that_is_not_there():
    text = run("hip", AMDJAX_HIP_LIBRARY="/nowhere/libamdhip64.so", AMDJAX_PLATFORMS="hip")
    assert text.startswith("HipUnavailable the HIP runtime library does not load")
    assert "/nowhere/libamdhip64.so: cannot open" in text
    assert "amdjax.doctor" in text


def test_a_file_that_is_no_library(tmp_path):
    path = tmp_path / "libamdhip64.so"
    path.write_text("not a library")
    text = run("hip", AMDJAX_HIP_LIBRARY=str(path), AMDJAX_PLATFORMS="hip")
    assert "does not load" in text and str(path) in text


def test_a_library_without_hip_functions():
    text = run("hip", AMDJAX_HIP_LIBRARY="libm.so.6", AMDJAX_PLATFORMS="hip")
    assert text.startswith("HipUnavailable") and "libm.so.6" in text


def test_another_platform_beside_it_is_taken_with_a_warning():
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import amdjax
    print(amdjax.devices())
print(caught[0].message)
print(amdjax.numpy.arange(3).sum(), amdjax.devices("cpu"))
"""
    library = "/nowhere/libamdhip64.so"
    text = run(code=code, AMDJAX_HIP_LIBRARY=library, AMDJAX_PLATFORMS="hip,cpu")
    assert text.startswith("[CpuDevice(id=0)]\namdjax runs without an AMD GPU:")
    assert library in text


@pytest.mark.skipif(os.path.exists("/dev/kfd"), reason="there is a GPU")
def test_without_a_gpu_nobody_is_bothered():
    assert run() == "[CpuDevice(id=0)]"
    text = run("hip")
    assert text.startswith("RuntimeError Unknown backend hip requested")
    assert "python -m amdjax.doctor" in text


def installed_runtime() -> str | None:
    """A HIP library such as Debian's `libamdhip64-5`, if one is installed."""
    for name in ("libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


@pytest.mark.skipif(os.path.exists("/dev/kfd"), reason="there is a GPU")
def test_a_real_library_without_a_device():
    if installed_runtime() is None:
        pytest.skip("needs a HIP runtime library, such as Debian's libamdhip64-5")
    text = run("hip", AMDJAX_PLATFORMS="hip")
    assert text.startswith("HipUnavailable HIP sees no device: there is no AMD GPU.")


# Everything as with AMD's library, but the file is the emulator's.
AS_AMD = """
import os, amdjax, numpy as np
from amdjax.emulator.hip import devices
from amdjax.emulator.hip.library import EmulatedHip
devices.VERSION = VERSION_NUMBER
emulated = EmulatedHip(1 << 28)
emulated.devices(TARGETS)
os.environ["AMDJAX_HIP_LIBRARY"] = emulated.path
try:
    print(amdjax.devices(), amdjax.devices()[0].platform)
    x = np.arange(1000, dtype=np.float32)
    arrays = [amdjax.device_put(x + i, amdjax.devices()[0]) for i in range(20)]
    print([float(amdjax.jit(lambda x: (2 * x).sum())(a)) for a in arrays] == [
        float((2 * (x + i)).sum()) for i in range(20)])
    print(amdjax.devices()[0].pool.stats().mapped)
    amdjax.devices()[0]._driver.call("hipDeviceSetLimit", TheLimit, 3)
except Exception as error:
    print(type(error).__name__, getattr(error, "status", ""), error)
with amdjax.default_device(amdjax.devices("cpu")[0]):
    print(amdjax.numpy.arange(3).sum(), amdjax.devices("cpu"))
"""


def as_amd(targets: list[str], version: int = 7_02_00000) -> str:
    limit = 'amdjax.devices()[0]._driver.hip.hipLimit_t["hipLimitStackSize"]'
    code = AS_AMD.replace("VERSION_NUMBER", str(version)).replace("TARGETS", repr(targets))
    return run(code=code.replace("TheLimit", limit), AMDJAX_PLATFORMS="hip")


def test_a_library_with_a_device_a_pool_and_a_function_missing():
    devices, equal, mapped, missing = as_amd(["gfx1100"]).splitlines()
    assert devices == "[HipDevice(id=0)] hip"
    assert equal == "True"
    assert int(mapped) % (2 << 20) == 0  # slabs, as on hardware
    assert missing.startswith("HipError hipErrorNotSupported hipDeviceSetLimit is not in /proc")
    assert "too old" in missing


def test_a_library_without_a_device():
    text = as_amd([])
    assert text.startswith("HipUnavailable  HIP sees no device")


FORK = """
import gc, os, signal
f = amdjax.jit(lambda x: x + 1)
x, read = f(np.arange(3)), f(np.arange(4))
np.asarray(read)
device = amdjax.devices()[0]
print(device, flush=True)
with device.lock:  # as another thread may
    child = os.fork()
if not child:
    signal.alarm(60)
    for use in (lambda: np.asarray(x), lambda: f(x), lambda: amdjax.device_put(1.0, device),
                device.synchronize, device.memory_stats, device.is_idle):
        try:
            use()
            print("no error")
        except Exception as error:
            print(type(error).__name__, str(error)[:56])
    print(np.asarray(read), flush=True)
    del f
    amdjax.clear_caches()
    gc.collect()  # unloads kernels
    with amdjax.default_device(amdjax.devices("cpu")[0]):
        print(amdjax.numpy.arange(5).sum(), flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), f(x), flush=True)
with amdjax.default_device(amdjax.devices("cpu")[0]):
    print(amdjax.numpy.arange(3).sum(), amdjax.devices("cpu"))
"""


def test_forked_processes_do_not_touch_the_driver():
    """They would hang or crash; what needs no driver works."""
    head = AS_AMD.partition("try:")[0]
    code = (head + FORK).replace("VERSION_NUMBER", "70200000").replace("TARGETS", "['gfx1100']")
    first, *uses, read, host, parent = run(code=code, AMDJAX_PLATFORMS="hip").splitlines()
    assert first == "hip:0"
    assert uses == ["DeviceError this process was forked from one that uses a GPU, and ca"] * 6
    assert read == "[1 2 3 4]" and host == "10"
    assert parent == "0 [2 3 4]"


def test_a_library_that_is_too_old():
    text = as_amd(["gfx1100"], 5_02_21153)
    assert text.startswith("HipUnavailable  HIP 5.2.21153 (/proc/") and "6.0 is needed" in text


@pytest.mark.turns(3)
def test_emulated_devices_come_by_the_flag_and_the_cpu_stays():
    assert run(AMDJAX_EMULATE="gfx1100") == "[HipDevice(id=0)]"
    assert run("emulated") == "[HipDevice(id=0)]"
    text = run("emulated", AMDJAX_EMULATE="gfx9999")
    assert text.startswith("RuntimeError AMDJAX_EMULATE='gfx9999': unknown GPU target 'gfx9999'")


def test_too_little_memory_leaves_the_process_usable():
    code = """
import amdjax, numpy as np
device = amdjax.devices()[0]
kept = amdjax.device_put(np.ones(1000, np.float32), device)
try:
    amdjax.device_put(np.ones(1 << 20, np.float32), device)
except MemoryError as error:
    print(error)
print(float((kept + 1).sum()))
with amdjax.default_device(amdjax.devices("cpu")[0]):
    print(amdjax.numpy.arange(3).sum(), amdjax.devices("cpu"))
"""
    text = run(code=code, AMDJAX_EMULATE="gfx942", AMDJAX_EMULATE_MEMORY="1M")
    assert "out of device memory: 4,194,304 bytes asked for" in text
    assert text.endswith("2000.0")


def test_hip_python_is_missing(monkeypatch):
    class Nowhere:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name in ("hip", "rocm"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in list(sys.modules):
        if name.partition(".")[0] in ("hip", "rocm"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Nowhere, *sys.meta_path])
    with pytest.raises(hip_driver.HipUnavailable, match="hip-python is not installed"):
        hip_driver.load_hip_python()


def test_versions_as_text():
    assert version_text(60443484) == "6.4.43484"


# The operating system


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CARD = {
    "sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n",
    "sys/bus/pci/devices/0000:03:00.0/class": "0x030000\n",
    "sys/bus/pci/devices/0000:03:00.0/device": "0x744c\n",
    "sys/bus/pci/devices/0000:04:00.0/vendor": "0x8086\n",
    "sys/bus/pci/devices/0000:04:00.0/class": "0x030000\n",
}
MODULE = {"sys/module/amdgpu/version": "6.12.12\n"}
NODES = {"dev/kfd": "", "dev/dri/renderD128": ""}
TOPOLOGY = {
    "sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 16\ngfx_target_version 0\n",
    "sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 192\ngfx_target_version 110000\n",
    "sys/class/kfd/kfd/topology/nodes/2/properties": "simd_count 1216\ngfx_target_version 90402\n",
    "sys/class/kfd/kfd/topology/nodes/10/properties": "simd_count 8\ngfx_target_version 90010\n",
}


def test_a_machine_that_is_ready(tmp_path):
    found = system.kernel_driver(write(tmp_path, CARD | MODULE | NODES | TOPOLOGY))
    assert found.cards == ("1002:744c",)
    assert found.is_loaded and found.version == "6.12.12"
    assert found.gfx == ("gfx1100", "gfx942", "gfx90a")
    assert [node.path for node in found.nodes] == ["/dev/kfd", "/dev/dri/renderD128"]
    assert system.obstacle(found) == ("", "")


@pytest.mark.parametrize(
    ("files", "problem", "advice"),
    [
        ({}, "there is no AMD GPU", "AMDJAX_EMULATE"),
        (CARD, "amdgpu is not loaded", "modprobe amdgpu"),
        (CARD | MODULE, "/dev/kfd does not exist", "--device /dev/kfd"),
        ({"dev/dxg": ""}, "", ""),
    ],
)
def test_what_keeps_a_machine_from_being_ready(tmp_path, files, problem, advice):
    found = system.obstacle(system.kernel_driver(write(tmp_path, files)))
    assert problem in found[0] and advice in found[1]
    assert bool(found[0]) == bool(problem)


def test_missing_permission(tmp_path, monkeypatch):
    root = write(tmp_path, CARD | MODULE | NODES)
    monkeypatch.setattr(os, "access", lambda path, mode: "render" in str(path))
    problem, advice = system.obstacle(system.kernel_driver(root))
    assert "may not open /dev/kfd" in problem and "renderD128" not in problem
    assert "--group-add" in advice


@pytest.mark.parametrize(
    "group, advice", [("render", "usermod -aG render $USER"), ("root", "udev")]
)
def test_the_way_in_depends_on_the_group(group, advice):
    node = system.Node("/dev/kfd", group, False)
    driver = system.KernelDriver((), True, "", (), (node,), False)
    problem, found = system.obstacle(driver)
    assert problem.startswith("user ") and advice in found and "--group-add" in found


def test_users_without_a_name(monkeypatch):
    """As in `docker run --user 1234`."""

    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(system.getpass, "getuser", nobody)
    node = system.Node("/dev/kfd", "render", False)
    problem, _ = system.obstacle(system.KernelDriver((), True, "", (), (node,), False))
    assert problem == f"user {os.getuid()} may not open /dev/kfd"


def test_render_nodes_of_other_makers_are_left_aside(tmp_path):
    vendors = {
        "sys/class/drm/renderD128/device/vendor": "0x8086\n",
        "sys/class/drm/renderD129/device/vendor": "0x1002\n",
    }
    nodes = {"dev/kfd": "", "dev/dri/renderD128": "", "dev/dri/renderD129": ""}
    found = system.kernel_driver(write(tmp_path, CARD | MODULE | nodes | vendors))
    assert [node.path for node in found.nodes] == ["/dev/kfd", "/dev/dri/renderD129"]
