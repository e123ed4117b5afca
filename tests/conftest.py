"""Settings shared by all tests, and the devices that tests of operations run on.

Tests marked `devices` run on the CPU and on emulated GPUs. Where `AMDJAX_TEST_DEVICES` is set, they
and all tests of the folders in `OPERATIONS` run on what it lists: `cpu`, targets to emulate,
platforms. A test knows nothing of this: what it computes goes to the default device. `small` gives
the few that are too large for an emulator a size to use there.
"""

import functools
import os

# Several test workers share the machine; a full thread pool in each would only fight over it.
os.environ.setdefault("AMDJAX_NUM_THREADS", "2")

import pytest
from hypothesis import HealthCheck, settings

_slow_ok = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The first call of a shape compiles, so wall-clock deadlines would be noise.
settings.register_profile("dev", deadline=None, max_examples=25, suppress_health_check=_slow_ok)
settings.register_profile(
    "ci", deadline=None, max_examples=25, derandomize=True, suppress_health_check=_slow_ok
)
settings.register_profile(
    "thorough", deadline=None, max_examples=500, suppress_health_check=_slow_ok
)
_default = "ci" if os.environ.get("CI") else "dev"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _default))

OPERATIONS = ("lax", "nn", "rnn")
EMULATED = ("gfx942", "gfx1100")


def pytest_generate_tests(metafunc):
    item = metafunc.definition
    marked = item.get_closest_marker("devices") is not None
    listed = os.environ.get("AMDJAX_TEST_DEVICES")
    if listed is not None and (marked or item.path.parent.name in OPERATIONS):
        names = [word.strip() for word in listed.split(",") if word.strip()]
        metafunc.parametrize("device", names, indirect=True)
    elif marked:
        metafunc.parametrize("device", ["cpu", *EMULATED], indirect=True)


@pytest.fixture(autouse=True)
def device(request):
    """The device that the test runs on, as the default device; the CPU unless there are several."""
    name = getattr(request, "param", "cpu")
    if name == "cpu":
        yield None
        return
    from amdjax.core.config import default_device

    if reason := next((m.args[0] for m in request.node.iter_markers("cpu_only")), None):
        pytest.skip(reason)
    found = find_device(name)
    with default_device(found):
        yield found
        found.synchronize()  # what goes wrong in a test belongs to it


@functools.cache
def find_device(name):
    """The device of a name: a target to emulate, or a platform."""
    from amdjax.core.config import config
    from amdjax.runtime.devices import devices

    if not name.startswith("gfx"):
        return devices(name)[0]
    before = config.emulate
    config.update("emulate", name)
    try:
        return devices("emulated")[0]
    finally:
        config.update("emulate", before)


@pytest.fixture
def small(device):
    """`small(n, m)` is n, or m on an emulated device."""
    emulated = device is not None and device.platform == "emulated"
    return lambda usual, less: less if emulated else usual
