"""What an emulated GPU finds wrong with a kernel names the op of the tile program."""

import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.codegen import tile
from amdjax.runtime.gpu import DeviceError

PLACE = (
    r"global_load\S* .* at \+0x\w+ \(KERNEL\.tile:\d+: %\d+: f32\S+ = load x\d .*\), .* lane \d+"
)


@pytest.fixture
def unmasked(monkeypatch):
    """Schedules that forget the end of their arrays."""
    load, store = tile.Builder.load, tile.Builder.store

    def careless_load(k, buffer, offset, shape=(), strides=None, mask=None, other=0, dtype=None):
        return load(k, buffer, offset, shape, strides, None, other, dtype)

    def careless_store(k, buffer, offset, value, strides=None, mask=None, streaming=False):
        store(k, buffer, offset, value, strides, None, streaming)

    monkeypatch.setattr(tile.Builder, "load", careless_load)
    monkeypatch.setattr(tile.Builder, "store", careless_store)


@pytest.mark.devices
@pytest.mark.parametrize("fun,kernel", [
    (lambda x: jnp.exp(x) - 0.75, "map_sub"), (lambda x: jnp.max(x, 1), "rows_reduce_max"),
])  # fmt: skip
def test_a_wrong_schedule_is_found(device, unmasked, fun, kernel):
    if device is None or device.platform != "emulated":
        pytest.skip("for emulated GPUs")
    x = amdjax.device_put(np.ones((3, 101), np.float32), device)
    with pytest.raises(DeviceError, match=PLACE.replace("KERNEL", kernel)):
        np.asarray(amdjax.jit(fun)(x))


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_assembly_shows_the_ops(target):
    program = amdjax.jit(lambda x: jnp.tanh(x)).lower(jnp.ones(5000)).compile(target)
    text, tiles = program.as_text("amdgcn"), program.as_text("tiles").splitlines()
    above, _, _ = text.partition("global_load")
    number, op = re.findall(r"^; +(\d+)  (.*)$", above, re.MULTILINE)[-1]
    assert tiles[int(number) - 1] == op and "= load x" in op
    assert ".debug_" not in text and ".loc" not in text and ".file" not in text
    assert "s_endpgm" in text and "amdhsa.kernels" in text
