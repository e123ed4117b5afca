"""`transfer_guard` and its kinds: what is refused, logged and let through."""

import logging

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit
from amdjax.errors import JaxRuntimeError

HOST = np.ones(7, np.float32)
IMPLICIT = [lambda: jit(lambda x: x + 1)(HOST), lambda: jnp.asarray(HOST) * 2]


def explicit():
    return amdjax.device_put(HOST)


@pytest.mark.parametrize("guard", [amdjax.transfer_guard, amdjax.transfer_guard_host_to_device])
def test_host_to_device(guard, caplog):
    for transfer in (*IMPLICIT, explicit):
        with guard("allow"):
            transfer()
    for transfer in IMPLICIT:
        for level in ("disallow", "disallow_explicit"):
            with guard(level), pytest.raises(JaxRuntimeError, match="host-to-device"):
                transfer()
        with guard("log"), caplog.at_level(logging.WARNING, "amdjax"):
            caplog.clear()
            transfer()
            assert "host-to-device" in caplog.text
    with guard("disallow"):
        explicit()
    with guard("disallow_explicit"), pytest.raises(JaxRuntimeError, match="host-to-device"):
        explicit()
    with guard("log_explicit"), caplog.at_level(logging.WARNING, "amdjax"):
        caplog.clear()
        explicit()
        assert "host-to-device" in caplog.text


def test_programs_on_arrays_transfer_nothing():
    f, x = jit(lambda x: jnp.sin(x) + 1), jnp.arange(5.0)
    f(x)
    with amdjax.transfer_guard("disallow"):
        np.asarray(f(f(x)))


def test_other_kinds_are_left_alone():
    with amdjax.transfer_guard_device_to_device("disallow"):
        explicit()
        IMPLICIT[0]()


def test_device_to_host():
    before = amdjax.config.emulate
    amdjax.config.update("emulate", "gfx942")
    try:
        x = amdjax.device_put(HOST, amdjax.devices("emulated")[0])
    finally:
        amdjax.config.update("emulate", before)
    with amdjax.transfer_guard_device_to_host("disallow"):
        np.testing.assert_array_equal(amdjax.device_get(x), HOST)
        with pytest.raises(JaxRuntimeError, match="device-to-host"):
            np.asarray(x)
    guard = amdjax.transfer_guard_device_to_device("disallow_explicit")
    with guard, pytest.raises(JaxRuntimeError, match="device-to-device"):
        amdjax.device_put(x, amdjax.devices("cpu")[0])


def test_constants_of_a_program_are_no_transfers():
    for value in (HOST, np.float32(1), 1.0):
        with amdjax.transfer_guard("disallow"):
            jit(lambda: jnp.sin(jnp.asarray(value)))()
            jit(amdjax.vmap(lambda x: x + jnp.asarray(value).sum()))(jnp.arange(3.0))
        with amdjax.transfer_guard("disallow"), pytest.raises(JaxRuntimeError):
            amdjax.vmap(lambda x: x + jnp.asarray(HOST).sum())(jnp.arange(3.0))
