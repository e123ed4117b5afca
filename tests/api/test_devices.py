"""Where arrays are, where operations run, and how users choose."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core.config import config
from amdjax.runtime.devices import default_backend
from tests.support.fake_platform import fake_platform

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpus():
    with fake_platform() as gpus:
        yield gpus


@pytest.fixture
def gpu(gpus):
    return gpus[0]


@pytest.fixture
def cpu():
    return amdjax.devices("cpu")[0]


def ones(device, *shape):
    return amdjax.device_put(np.ones(shape, np.float32), device)


# Arrays


def test_arrays_know_where_they_are(gpu, cpu):
    x = jnp.ones(3)
    assert x.device is cpu and x.devices() == {cpu} and not x.committed
    y = amdjax.device_put(x, gpu)
    assert y.device is gpu and y.devices() == {gpu} and y.committed
    assert isinstance(y, amdjax.Array) and x.device is cpu
    z = amdjax.device_put(y, cpu)
    assert z.device is cpu and z.committed
    assert z.tolist() == y.tolist() == [1, 1, 1]


def test_what_arrays_do_they_do_on_devices(gpu):
    x = amdjax.device_put(np.arange(6, dtype=np.float32).reshape(2, 3), gpu)
    assert repr(x) == repr(jnp.arange(6.0).reshape(2, 3)) and str(x) == str(np.asarray(x))
    assert float(x[1, 2]) == 5 and int(x.sum()) == 15 and bool(x[0, 1]) and len(x) == 2
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x[0, 1].item() == 1
    assert f"{x[0, 2]:.1f}" == "2.0" and [float(r.sum()) for r in x] == [3, 12]
    assert np.add(np.asarray(x), 1).sum() == 21 and np.array_equal(x, np.asarray(x))
    assert (x.T @ x).device is gpu and (x == x).all().device is gpu
    assert x.at[0].set(7.0)[0].tolist() == [7, 7, 7]
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert x.block_until_ready() is x and x.is_ready()
    assert x.nbytes == 24 and x.is_fully_addressable


def test_copies_stay_and_pickles_do_not(gpu, cpu):
    x = ones(gpu, 30)
    for y in (copy.copy(x), copy.deepcopy(x)):
        assert y.device is gpu and y.committed and y.buffer is not x.buffer
        assert y.tolist() == x.tolist()
    with amdjax.default_device(gpu):
        loose = copy.copy(jnp.ones(3))
        assert loose.device is gpu and not loose.committed
    y = pickle.loads(pickle.dumps(x))
    assert y.device is cpu and y.tolist() == [1] * 30


def test_deleted_arrays(gpu):
    x = ones(gpu, 3)
    x.delete()
    assert x.is_deleted() and x.device is gpu
    with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[3\]"):
        repr(x)
    for use in (lambda: x + 1, lambda: np.asarray(x), lambda: amdjax.device_put(x, gpu)):
        with pytest.raises(RuntimeError, match="deleted"):
            use()


def test_device_get(gpu):
    found = amdjax.device_get({"a": ones(gpu, 2), "b": 3})
    assert type(found["a"]) is np.ndarray and found["a"].tolist() == [1, 1] and found["b"] == 3


# device_put


def test_device_put_takes_trees_and_any_value(gpu, gpus):
    tree = amdjax.device_put({"a": np.zeros(2), "b": [1, True]}, gpu)
    assert all(x.device is gpu and x.committed for x in amdjax.tree.leaves(tree))
    assert tree["b"][0].weak_type and tree["b"][1].dtype == bool
    moved = amdjax.device_put(tree["a"], gpus[1])
    assert moved.device is gpus[1] and moved.tolist() == [0, 0]


def test_device_put_shares_what_is_there(gpu, cpu):
    x = ones(gpu, 3)
    assert amdjax.device_put(x, gpu) is x and amdjax.device_put(x) is x
    y = jnp.ones(3)
    assert amdjax.device_put(y) is y and amdjax.device_put(y, cpu).buffer is y.buffer


def test_device_put_without_a_device_goes_to_the_default(gpu, cpu):
    with amdjax.default_device(gpu):
        x = amdjax.device_put(np.ones(3))
    assert x.device is gpu and not x.committed
    assert amdjax.device_put(np.ones(3)).device is cpu


def test_device_put_of_traced_values(gpu):
    assert amdjax.jit(lambda x: amdjax.device_put(x, gpu) + 1)(1.0).item() == 2
    with pytest.raises(ValueError, match=r"one of amdjax\.devices\(\)\..* 'gpu'"):
        amdjax.jit(lambda x: amdjax.device_put(x, "gpu"))(1.0)


def test_device_put_refuses_other_things(gpu):
    with pytest.raises(ValueError, match=r"device must be one of amdjax.devices\(\)\..* 'gpu'"):
        amdjax.device_put(1.0, "gpu")
    with pytest.raises(TypeError, match=r"x\['a'\] of type str"):
        amdjax.device_put({"a": "text"}, gpu)


def test_other_ways_to_name_a_device(gpu):
    for x in (
        jnp.zeros(3, device=gpu),
        jnp.ones(3, device=gpu),
        jnp.array([1, 2], device=gpu),
        jnp.arange(3, device=gpu),
        jnp.arange(0.0, 1.0, 0.5, device=gpu),
        jnp.full((2,), 3, device=gpu),
        jnp.eye(2, device=gpu),
        jnp.linspace(0, 1, 5, device=gpu),
        jnp.fft.fftfreq(8, device=gpu),
        jnp.zeros_like(np.ones(3), device=gpu),
        jnp.ones_like(amdjax.device_put(1.0, gpu)),
        jnp.ones(3).to_device(gpu),
        jnp.ones(3).astype("int8", device=gpu),
    ):
        assert x.device is gpu and x.committed
    result, step = jnp.linspace(0, 1, 5, retstep=True, device=gpu)
    assert result.device is gpu and step.device is gpu


# Where operations run


def test_operations_follow_committed_arguments(gpu):
    x = ones(gpu, 3)
    for y in (x + 1, 2 * x, x + jnp.ones(3), np.ones(3, np.float32) - x, jnp.stack([x, x])):
        assert y.device is gpu and y.committed
    f = amdjax.jit(lambda t: {"y": t["a"] + t["b"], "z": 1})
    found = f({"a": x, "b": np.ones(3, np.float32)})
    assert found["y"].device is gpu and found["z"].device is gpu
    assert found["y"].tolist() == [2, 2, 2]


def test_derivatives_and_batches_follow_too(gpu):
    x = ones(gpu, 3)
    assert amdjax.grad(lambda x: (x * x).sum())(x).device is gpu
    assert amdjax.vmap(lambda x: x + 1)(x).device is gpu
    y, pull = amdjax.vjp(lambda x: jnp.sin(x), x)
    assert y.device is gpu and pull(jnp.ones(3))[0].device is gpu


def test_one_function_runs_wherever_its_arguments_are(gpus, cpu):
    f = amdjax.jit(lambda x: x * 2)
    for _ in range(2):
        for device in (*gpus, cpu):
            y = f(ones(device, 4))
            assert y.device is device and y.committed and y.tolist() == [2] * 4
        y = f(jnp.ones(4))
        assert y.device is cpu and not y.committed


def test_mixing_devices_is_an_error(gpus, cpu):
    x, y, z = ones(gpus[0], 3), ones(gpus[1], 3), ones(cpu, 3)
    with pytest.raises(ValueError, match=r"add: .*argument 0 \(f32\[3\]\) to fake:0, argument 1"):
        x + y
    with pytest.raises(ValueError, match=r"to fake:1, argument 1 \(f32\[3\]\) to cpu:0"):
        y + z
    with pytest.raises(ValueError, match=r"^f: .*device_put\(x, device\)"):

        @amdjax.jit
        def f(a, b):
            return a["x"] + b

        f({"x": x}, y)


def test_uncommitted_arrays_move(gpu, cpu):
    with amdjax.default_device(gpu):
        loose = jnp.ones(3)
        assert (loose + 1).device is gpu and not (loose + 1).committed
        assert (loose + ones(cpu, 3)).device is cpu
    assert loose.device is gpu
    assert (loose + 1).device is cpu and not (loose + 1).committed
    assert (loose + jnp.ones(3)).tolist() == [2, 2, 2]
    assert amdjax.jit(lambda x: x + 1)(loose).device is cpu


# The default device


def test_default_device(gpu, cpu):
    f = amdjax.jit(lambda x: x + 1)
    assert f(1.0).device is cpu
    with amdjax.default_device(gpu):
        for x in (
            jnp.zeros(3), jnp.array([1.0]), jnp.array(2.0), jnp.arange(4), jnp.ones(2) * 3, f(1.0),
            amdjax.random.uniform(amdjax.random.key(0)), amdjax.lax.full((2,), 1.0),
        ):  # fmt: skip
            assert x.device is gpu and not x.committed
        assert default_backend() == "fake"
        with amdjax.default_device(cpu):
            assert jnp.zeros(3).device is cpu and f(1.0).device is cpu
    assert jnp.zeros(3).device is cpu and jnp.array(2.0).device is cpu and f(1.0).device is cpu


def test_default_device_by_name(gpu):
    with amdjax.default_device("fake"):
        assert jnp.zeros(3).device is gpu


def test_the_platforms_flag_chooses(gpu, cpu):
    f = amdjax.jit(lambda x: x + 1)
    assert f(1.0).device is cpu
    before = config.platforms
    try:
        config.update("platforms", "fake,cpu")
        assert amdjax.devices() == [gpu, amdjax.devices("fake")[1]]
        assert f(1.0).device is gpu and jnp.ones(2).device is gpu and (1.0 + jnp.ones(2))[0] == 2
    finally:
        config.update("platforms", before)
    assert f(1.0).device is cpu and jnp.ones(2).device is cpu


def test_flags_that_check_results_work_on_devices(gpu):
    x = ones(gpu, 3)
    with amdjax.debug_nans(True):
        with pytest.raises(FloatingPointError, match="log"):
            jnp.log(-x)
        with pytest.raises(FloatingPointError, match="log"):
            amdjax.jit(lambda x: jnp.log(-x) + 1)(x)
        assert (x + 1).device is gpu
    assert np.isnan(jnp.log(-x)).all()
    with amdjax.disable_jit():
        assert amdjax.jit(lambda x: x + 1)(x).device is gpu


def test_jit_may_name_its_device(gpu, gpus, cpu):
    f = amdjax.jit(lambda x: x + 1, device=gpu)
    for x in (1.0, jnp.ones(3), ones(gpus[1], 3), ones(cpu, 3)):
        assert f(x).device is gpu
    assert amdjax.jit(lambda x: x + 1, backend="cpu")(ones(gpu, 3)).device is cpu
    with pytest.raises(ValueError, match="either device or backend"):
        amdjax.jit(lambda x: x, device=gpu, backend="cpu")
    with pytest.raises(ValueError, match="device must be one of"):
        amdjax.jit(lambda x: x, device="gpu")
    with pytest.raises(RuntimeError, match="Unknown backend tpu"):
        amdjax.jit(lambda x: x, backend="tpu")


def test_constants_of_a_program_may_be_anywhere(gpu, gpus):
    table = ones(gpus[1], 3)
    f = amdjax.jit(lambda x: x + table)
    assert f(ones(gpu, 3)).device is gpu and f(ones(gpu, 3)).tolist() == [2, 2, 2]
    assert f(jnp.ones(3)).tolist() == [2, 2, 2]


def test_programs_compiled_ahead_take_arrays_from_anywhere(gpu, cpu):
    compiled = amdjax.jit(lambda x: x + 1).lower(jnp.ones(3)).compile()
    assert compiled(ones(gpu, 3)).tolist() == [2, 2, 2]


# Choosing from outside


def run(code, **environment):
    import os

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "AMDJAX_EMULATE": "", **environment},
    )  # fmt: skip
    return result.stdout + result.stderr


def test_platforms_that_are_not_there():
    found = run("import amdjax; amdjax.devices('nonesuch')")
    assert "Unknown backend nonesuch requested" in found
    found = run("import amdjax.numpy as jnp; jnp.ones(2)", AMDJAX_PLATFORMS="nonesuch")
    assert "AMDJAX_PLATFORMS='nonesuch': there is no platform 'nonesuch'" in found


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="looks at machines without an AMD GPU")
def test_the_cpu_is_the_default_and_looking_costs_nothing():
    code = (
        "import amdjax, sys; print(amdjax.default_backend(), amdjax.devices());"
        "import amdjax.numpy as jnp; jnp.ones(2) + 1; print('hip' in sys.modules)"
    )
    assert run(code).split("\n")[:2] == ["cpu [CpuDevice(id=0)]", "False"]


EMULATED = """
import numpy as np, amdjax, amdjax.numpy as jnp
first, second, other = amdjax.devices()
print(first, second.target.name, other.target.name, amdjax.default_backend())
x = jnp.arange(1000.0)
print(x.device, float(x.sum()), x.committed)
for device in (second, other, amdjax.devices("cpu")[0]):
    y = amdjax.jit(lambda x: jnp.sin(x) + 1)(amdjax.device_put(x, device))
    print(y.device, np.abs(np.asarray(y) - np.sin(np.arange(1000)) - 1).max() < 1e-5)
x = amdjax.device_put(np.ones(100_000, np.float32), second)
f = amdjax.jit(lambda x: x * 0.5, donate_argnums=0)
for _ in range(20):
    x = f(x)
print(x.device, second.memory_stats()["bytes_in_use"] < 1_000_000)
"""


def test_emulated_devices():
    """Three devices of two kinds stand for the hardware; copies go between equal ones directly."""
    found = run(EMULATED, AMDJAX_EMULATE="gfx942x2,gfx1100").splitlines()
    assert found == [
        "emulated:0 gfx942 gfx1100 emulated",
        "emulated:0 499500.0 False",
        "emulated:1 True",
        "emulated:2 True",
        "cpu:0 True",
        "emulated:1 True",
    ]


def test_the_emulated_platform_by_name():
    code = "import amdjax; print(amdjax.devices()[0].target.name, amdjax.devices('emulated'))"
    assert run(code, AMDJAX_PLATFORMS="emulated").startswith("gfx942 [HipDevice(id=0)]")
    code = "import amdjax; print(amdjax.devices(), amdjax.devices('emulated')[0].target.name)"
    assert run(code) == "[CpuDevice(id=0)] gfx942\n"


def test_bytes_on_the_device():
    key = amdjax.random.key(0)
    put = amdjax.device_put(jnp.ones(2), amdjax.devices("cpu")[0])
    arrays = [jnp.ones((2, 3)), jnp.ones(3, "int8"), key, amdjax.random.split(key), put]
    assert [x.on_device_size_in_bytes() for x in arrays] == [24, 3, 8, 16, 8]
