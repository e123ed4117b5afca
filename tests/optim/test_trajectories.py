"""Optimizers step by step as in optax; what was found is in `recorded.npz`."""

from pathlib import Path

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import optim
from tests.optim import trajectories

RECORDED = np.load(Path(__file__).with_name("recorded.npz"))
TOLERANCE = {"float32": 2e-5, "bfloat16": 0.05}
"""Of the largest update. bfloat16 has 8 bits, and XLA rounds to it less often, as do we."""
LESS_EXACT = {("radam", "float32"): 2e-4}
"""Where optax keeps few digits: it subtracts `b2**t` in float32 from 1, and that from the most."""


@pytest.mark.parametrize("dtype", trajectories.DTYPES)
@pytest.mark.parametrize("name", trajectories.OPTIMIZERS)
def test_as_in_optax(name, dtype):
    if (name, dtype) in trajectories.ILL_CONDITIONED:
        pytest.skip("ill-conditioned")
    optimizer = trajectories.OPTIMIZERS[name](optim, amdjax.tree)
    spoiled = name in trajectories.NOT_FINITE
    rounds = trajectories.run(optimizer, optim, amdjax.tree.map, jnp.asarray, amdjax.jit, dtype,
                              spoiled)  # fmt: skip
    tolerance = LESS_EXACT.get((name, dtype), TOLERANCE[dtype])
    for leaf, updates in rounds.items():
        expected = RECORDED[f"{name}/{dtype}/{leaf}"]
        size = np.nanmax(np.abs(expected), initial=0, where=np.isfinite(expected))
        np.testing.assert_allclose(
            updates, expected, rtol=tolerance, atol=tolerance * size, err_msg=leaf
        )


def test_all_that_is_recorded_is_tried():
    names = {f"{n}/{d}/{leaf}" for n in trajectories.OPTIMIZERS for d in trajectories.DTYPES
             for leaf in trajectories.SHAPES}  # fmt: skip
    assert set(RECORDED.files) == names
