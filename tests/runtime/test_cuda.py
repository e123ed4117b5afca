"""The CUDA device: on NVIDIA hardware where there is some, its refusals everywhere."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.runtime import cuda
from amdjax.runtime.gpu import DeviceError


@pytest.fixture(scope="module")
def device():
    found = cuda.find_devices()
    if not found:
        pytest.skip("needs an NVIDIA GPU")
    return found[0]


def test_errors_name_what_was_done():
    class Status(int):
        name = "CUDA_ERROR_INVALID_VALUE"

    assert cuda._checked((Status(0), 3), "counting") == 3
    assert cuda._checked((Status(0),), "waiting") == ()
    with pytest.raises(DeviceError, match=r"counting: the driver says CUDA_ERROR_INVALID_VALUE"):
        cuda._checked((Status(1), None), "counting")


def test_without_the_driver_there_are_no_devices(monkeypatch):
    monkeypatch.setattr(cuda, "_driver", lambda: None)
    assert cuda.find_devices() == []


def test_memory(device):
    x = np.arange(1000, dtype=np.int32)
    buffer, other = device.upload(x), device.alloc(x.nbytes)
    device.copy(other.address, buffer.address, x.nbytes)
    np.testing.assert_array_equal(other.as_numpy(x.shape, x.dtype), x)
    with pytest.raises(MemoryError, match="out of device memory"):
        device.alloc(1 << 50)
    stats = device.memory_stats()
    assert 0 < stats["bytes_in_use"] <= stats["bytes_limit"]


PROGRAMS = {
    "elementwise": lambda x, y: jnp.tanh(x) * y + 1,
    "transposed": lambda x, y: x + y.T,
    "softmax": lambda x, y: amdjax.nn.softmax(x) - amdjax.nn.softmax(y, axis=0),
    "product": lambda x, y: amdjax.nn.relu(x @ y + 1),
    "sort": lambda x, y: (jnp.sort(x, axis=0), jnp.argsort(y)),
    "cumsum": lambda x, y: jnp.cumsum(x) + y.sum(),
    "scatter": lambda x, y: x.at[y.astype(int) % 7].add(1.0),
    "loop": lambda x, y: amdjax.lax.fori_loop(0, 5, lambda i, c: c @ y * 0.1 + x, x),
    "random": lambda x, y: amdjax.random.normal(amdjax.random.key(3), x.shape) + y,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [5, 64, 257])
def test_programs_give_what_the_cpu_gives(device, name, n):
    rng = np.random.default_rng(n)
    args = [rng.standard_normal((n, n), dtype=np.float32) for _ in range(2)]
    cpu = amdjax.devices("cpu")[0]
    function = amdjax.jit(PROGRAMS[name])
    wanted = function(*amdjax.device_put(args, cpu))
    found = function(*amdjax.device_put(args, device))
    for w, f in zip(amdjax.tree.leaves(wanted), amdjax.tree.leaves(found), strict=True):
        scale = float(np.abs(np.asarray(w)).max()) or 1.0
        np.testing.assert_allclose(np.asarray(f), np.asarray(w), rtol=0, atol=n * 2e-7 * scale)
