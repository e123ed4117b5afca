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
LESS_EXACT = {("radam", "float32"): 1.2e-4}
"""How far optax itself is from the definition. At the sixth step `1 - 0.999**6` is wrong by half
an ulp of 1, 1e-5 of itself; by that it divides 1,994 of 1,999 degrees of freedom. The 6 that are
left are wrong by 0.02, and the update by 6e-3 of itself, up to 1e-4 of the largest one."""


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


def test_rectified_steps_are_exact():
    """What optax tells too roughly, against its definition in float64, each step by itself."""
    b1, b2, most = 0.9, 0.999, 2 / (1 - 0.999) - 1
    rounds = trajectories.run(optim.radam(0.1), optim, amdjax.tree.map, jnp.asarray, amdjax.jit,
                              "float32")  # fmt: skip
    mean, square, expected = 0.0, 0.0, []
    for step in range(trajectories.STEPS):
        g, t = np.float64(trajectories.gradients(step, "float32", False)["matrix"]), step + 1
        mean, square = b1 * mean + (1 - b1) * g, b2 * square + (1 - b2) * g * g
        free, update = most - 2 * t * b2**t / (1 - b2**t), mean / (1 - b1**t)
        if free >= 5:
            update *= np.sqrt((free - 4) * (free - 2) * most / ((most - 4) * (most - 2) * free))
            update /= np.sqrt(square / (1 - b2**t)) + 1e-8
        expected.append(-0.1 * update)
    for got, step in zip(rounds["matrix"], trajectories.KEPT, strict=True):
        # Half an ulp of 1,999 degrees of freedom where 6 of them remain.
        atol = 6e-5 * np.abs(expected[step]).max()
        np.testing.assert_allclose(got, expected[step], rtol=0, atol=atol, err_msg=str(step))


def test_all_that_is_recorded_is_tried():
    names = {f"{n}/{d}/{leaf}" for n in trajectories.OPTIMIZERS for d in trajectories.DTYPES
             for leaf in trajectories.SHAPES}  # fmt: skip
    assert set(RECORDED.files) == names
