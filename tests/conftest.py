"""Settings shared by all tests, and the devices that tests of operations run on.

Tests of the folders in `EVERYWHERE`, and tests marked `devices`, run on the CPU and on an emulated
gfx942 or gfx1100 in turn, and half of them on one more target. Of the cases on emulated GPUs a
commit runs the share that the mark `share` says, or `SHARES` for their folder; of the other cases
of a test, the share that the mark `turns` says, or `TURNS`, and never none; a test without
parameters that is marked so runs at one of so many commits. Which these are depends on the commit;
`AMDJAX_TEST_ROTATION`, from 0 to 2519, stands for it, and a run prints it first. Where
`AMDJAX_TEST_DEVICES` is set, all cases run, and so does one that is named alone.

`AMDJAX_TEST_DEVICES` lists what they and all tests of the folders in `OPERATIONS` run on instead:
`cpu`, targets to emulate, platforms, and `symbolic`: the CPU, where functions are compiled for all
sizes at their first call. A test knows nothing of this: what it computes goes to the default
device. `small` gives the few that are too large for an emulator a size to use there; properties are
tried with a third of the examples.

The compiler verifies its programs after each pass in a fourth of the tests, in turn, and in all of
the folders in `VERIFIED`.
"""

import collections
import contextlib
import functools
import gc
import os
import subprocess
import zlib
from pathlib import Path

# Several test workers share the machine; a full thread pool in each would only fight over it.
os.environ.setdefault("AMDJAX_NUM_THREADS", "2")
# Tests change what plans, which a plan that is kept would not know.
os.environ.setdefault("AMDJAX_KEEP_PLANS", "0")

import pytest
from hypothesis import HealthCheck, settings

from tests.support.turns import in_turn

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

EVERYWHERE = ("lax", "nn")
OPERATIONS = (*EVERYWHERE, "rnn", "numpy", "optim", "random", "scipy", "transforms")
EMULATED = ("gfx942", "gfx1100")
SAMPLED = ("gfx908", "gfx90a", "gfx950", "gfx1030", "gfx1201", "symbolic")
#: Of the cases on emulated GPUs in these folders, one in so many runs at a commit: layers are
#: composed of operations that `lax` tests, operations of kernels that `kernels` and `codegen` test,
#: and targets of a generation share instructions.
SHARES = {
    "quantize": 20, "lax": 10, "nn": 12, "jit": 10, "kernels": 9, "codegen": 6, "emulator": 5,
}  # fmt: skip
#: Of the cases of each test in these folders that are on no emulated GPU, one in so many runs at a
#: commit: they compile large programs, most of whose parts other cases have, too, or are one
#: operation after another.
TURNS = {
    "jit": 5, "kernels": 7, "experimental": 5, "lax": 4, "nn": 5, "scipy": 4, "transforms": 4,
    "dims": 4, "codegen": 3, "numpy": 3, "random": 3, "random_programs": 3, "rnn": 3, "optim": 2,
    "api": 2, "examples": 2, "find": 2, "onnx": 3, "quantize": 4, "runtime": 2, "tf": 2, "tile": 2,
}  # fmt: skip
VERIFIED = ("codegen", "kernels")  # of other folders a fourth of the tests, which takes time
NAMES_OF_TARGETS = ("device", "backend", "gpu_backend", "gfx", "target")  # parameters of tests
#: What names of GPUs begin with, and what stands for all sizes, of which as few cases run.
TARGETS = ("gfx", "sm_", "symbolic")
SAMPLED_SHARE = 3  # of those on `SAMPLED`, where that is a target more
ROOT = Path(__file__).parents[1]


def commit_turn():
    """The commit's turn, from 0 to 2519; 0 where there is no repository."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        text = subprocess.check_output(command, cwd=ROOT, stderr=subprocess.DEVNULL, text=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(text[:8], 16) % 2520


# Workers inherit it, so that all of them collect the same tests.
os.environ.setdefault("AMDJAX_TEST_ROTATION", str(commit_turn()))


def pytest_report_header():
    return f"AMDJAX_TEST_ROTATION={os.environ['AMDJAX_TEST_ROTATION']}"


def pytest_collection_finish():
    """Keep tens of thousands of tests, and what was imported for them, out of every collection.

    What programs leave behind is mostly kept for later calls: to look at all of it after each 700
    new objects took a tenth of the time. Tests of what is given back collect by themselves.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_generate_tests(metafunc):
    item, folder = metafunc.definition, metafunc.definition.path.parent.name
    marked = folder in EVERYWHERE or item.get_closest_marker("devices") is not None
    marked = marked and item.get_closest_marker("cpu_only") is None
    listed = os.environ.get("AMDJAX_TEST_DEVICES")
    if listed is not None and (marked or folder in OPERATIONS):
        names = [word.strip() for word in listed.split(",") if word.strip()]
        metafunc.parametrize("device", names, indirect=True)
    elif marked:
        names = ["cpu", *emulated(f"{item.path.name}::{item.name}")]
        metafunc.parametrize("device", names, indirect=True)


def turn_of(test, count, rotation):
    """The turn, of so many, of a test or case."""
    return (zlib.crc32(test.encode()) + rotation) % count


def turn_now(test, count):
    """The turn, of so many, that a test or case has at this commit."""
    return turn_of(test, count, int(os.environ["AMDJAX_TEST_ROTATION"]))


def emulated(test):
    """The targets of a test at this commit: either wave in turn, of half of all tests one more."""
    turn = turn_now(test, 10)
    return (EMULATED[turn % 2], *SAMPLED[turn : turn + 1])


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory):
    """Tests neither read nor fill the user's cache; what one worker compiles, all of them find."""
    from amdjax.core.config import config

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    before, folder = config.cache_dir, str(folder / "kernels")
    config.update("cache_dir", folder)
    os.environ["AMDJAX_CACHE_DIR"] = folder  # for processes that tests start
    yield
    config.update("cache_dir", before)
    del os.environ["AMDJAX_CACHE_DIR"]


@pytest.fixture(autouse=True)
def verified_programs(request):
    """Programs are verified after each pass: all in the folders of `VERIFIED`, else in turn."""
    from amdjax.core.config import config

    node, before = request.node, config.check
    config.update(
        "check", before or turn_now(node.nodeid, 4) == 0 or node.path.parent.name in VERIFIED
    )
    yield
    config.update("check", before)


@pytest.fixture(autouse=True)
def scattered_tasks(request):
    """Half of the tests of a commit run tasks of the pool in an order that no neighbors follow.

    All of them where `AMDJAX_TEST_SCATTERED` is 1.
    """
    node = request.node
    pool = node.path.parent.name == "runtime" or node.path.stem in ("test_threads", "test_fork")
    all_of_them = os.environ.get("AMDJAX_TEST_SCATTERED") == "1"
    if pool or (turn_now(node.nodeid, 2) and not all_of_them):
        yield
        return
    from amdjax.runtime import threads

    threads.scatter_tasks(True)
    yield
    threads.scatter_tasks(False)


def pytest_collection_modifyitems(config, items):
    """Leave cases whose turn is not now to the next commits."""
    if os.environ.get("AMDJAX_TEST_DEVICES") is None:
        kept = set(those_due(items))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def those_due(items):
    """The cases that run at this commit, those of a test together."""
    due, tests = [], collections.defaultdict(list)
    for item in items:
        if is_emulated(item):
            due += [item] if is_due(item) else []
        else:
            tests[item.nodeid.partition("[")[0]].append(item)
    for test, cases in tests.items():
        turns = share_of(cases[0], "turns", TURNS)
        if takes_turns_whole(cases[0]) and len(items) > 1:
            due += cases if turn_now(test, turns) == 0 else []
            continue
        # In no order that parameters follow: one in two would else be those of one dtype.
        cases.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        due += in_turn(cases, turns, test)
    return due


def takes_turns_whole(item):
    """Whether a test has no parameters and is marked `turns`: it takes seconds."""
    return not hasattr(item, "callspec") and item.get_closest_marker("turns") is not None


def is_emulated(item):
    """Whether it is a case for a GPU or for all sizes, not all of which run at a commit."""
    if not hasattr(item, "callspec"):
        return False
    given = [str(item.callspec.params.get(name, "")) for name in NAMES_OF_TARGETS]
    return item.path.stem.startswith("test_gpu") or any(x.startswith(TARGETS) for x in given)


def is_due(item):
    """Whether a case for a GPU runs at this commit."""
    share = share_of(item, "share", SHARES)
    rotation = int(os.environ["AMDJAX_TEST_ROTATION"])
    if item.callspec.params.get("device") in SAMPLED:
        return turn_of(item.nodeid, share * SAMPLED_SHARE, rotation // 10) == 0
    # A device has every second turn (or tenth, above); its cases go on from one to the next.
    return turn_of(item.nodeid, share, rotation // 2) == 0


def share_of(item, name, folders):
    """One in how many of a test's cases runs: by a mark of that name, or by its folder."""
    mark = item.get_closest_marker(name)
    return mark.args[0] if mark else folders.get(item.path.parent.name, 1)


@pytest.fixture(autouse=True)
def device(request, monkeypatch):
    """The device that the test runs on, as the default device; the CPU unless there are several."""
    name = getattr(request, "param", "cpu")
    if name == "cpu":
        yield None
        return
    if name == "symbolic":
        with symbolic_sizes(monkeypatch):
            yield None
        return
    from amdjax.core.config import default_device, enable_checks

    if reason := next((m.args[0] for m in request.node.iter_markers("cpu_only")), None):
        pytest.skip(reason)
    found = find_device(name)
    if found.platform == "emulated":
        try_fewer_examples(request.function, monkeypatch)
    with default_device(found), enable_checks(True):
        yield found
        found.synchronize()  # what goes wrong in a test belongs to it


@contextlib.contextmanager
def symbolic_sizes(monkeypatch):
    """Compile functions for all sizes at their first call, as if another had had other sizes."""
    from amdjax.core.config import config
    from amdjax.jit import dynamic

    family = dynamic._Family
    usual, before = family.widen, config.dynamic

    def widen(self, avals, shapes):
        if not self.seen:
            self.seen.append(tuple(tuple(n if n < 2 else n + 1 for n in s) for s in shapes))
        usual(self, avals, shapes)

    monkeypatch.setattr(family, "widen", widen)
    config.update("dynamic", "auto")
    yield
    config.update("dynamic", before)


def try_fewer_examples(function, monkeypatch):
    """A third of the examples of a property. (Hypothesis has no public way to change settings.)"""
    name = "_hypothesis_internal_use_settings"
    if usual := getattr(function, name, None):
        fewer = settings(usual, max_examples=max(usual.max_examples // 3, 1))
        monkeypatch.setattr(function, name, fewer)


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
def double_precision():
    from amdjax.core.config import enable_x64

    with enable_x64(True):
        yield


@pytest.fixture
def small(device):
    """`small(n, m)` is n, or m on an emulated device."""
    emulated = device is not None and device.platform == "emulated"
    return lambda usual, less: less if emulated else usual
