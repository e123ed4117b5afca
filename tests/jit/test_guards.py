"""What is read where a guard holds, and what is read without it because it is always there."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax

RNG = np.random.default_rng(0)


def behind(wide, rows, count, total):
    """Rows of a part of an array, less a number of each, with zeros behind them."""
    part = jnp.exp(wide[:, :count] - rows[:, None])
    return lax.pad(part, np.float32(0), [(0, 0, 0), (0, total - count, 0)])


@pytest.mark.devices
@pytest.mark.parametrize("count, total", [(61, 64), (5, 64), (64, 70)])
def test_what_is_read_without_its_guard_is_not_used(device, count, total):
    wide = RNG.standard_normal((9, 64)).astype(np.float32)
    rows = wide.max(1)
    wide[:, count:] = np.nan
    got = np.asarray(amdjax.jit(behind, static_argnums=(2, 3))(wide, rows, count, total))
    wanted = np.exp(wide[:, :count] - rows[:, None])
    np.testing.assert_allclose(got[:, :count], wanted, rtol=3e-7)
    assert not got[:, count:].any()


@pytest.mark.cpu_only("tiles only")
@pytest.mark.parametrize("count, masked", [(61, 0), (50, 1)])
def test_guards_that_spare_little_are_not_heeded(count, masked):
    specs = [amdjax.ShapeDtypeStruct(shape, np.float32) for shape in ((512, 64), (512,))]
    lowered = amdjax.jit(behind, static_argnums=(2, 3)).lower(*specs, count, 64)
    text = lowered.compile(target="sm_90a").as_text("tiles")
    assert text.count("masked=True") == masked and text.count("= load x") == 2
