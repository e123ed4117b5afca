"""Largest and least numbers on GPUs: NaN wherever there is one, and nowhere else."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn

pytestmark = pytest.mark.devices


def with_nans(rows, columns, dtype=np.float32):
    """Rows with a NaN at a place each, some without."""
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((rows, columns)).astype(dtype)
    places = rng.integers(0, columns, rows)
    x[np.arange(rows), places] = np.where(np.arange(rows) % 3, np.nan, x[:, 0])
    x[:, columns // 2] = np.where(np.arange(rows) % 4, x[:, columns // 2], -np.inf)
    return x


@pytest.mark.parametrize("shape", [(40, 1024), (33, 100), (300, 7), (2, 5000), (1, 70_000)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_with_nan(device, name, shape):
    x = with_nans(*shape)
    for axis in (0, 1, None):
        found = amdjax.jit(lambda x, axis=axis: getattr(jnp, name)(x, axis))(x)
        np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(x, axis))


@pytest.mark.parametrize("place", [0, 3, 63, 64, 500, 1023])
def test_one_nan_anywhere(device, place):
    x = np.full(1024, -np.inf, np.float32)
    f = amdjax.jit(lambda x: (x.max(), x.min()))
    assert [float(y) for y in f(x)] == [-np.inf] * 2
    x[place] = np.uint32(0x7FA00001).view(np.float32)  # one that signals
    assert all(np.isnan(float(y)) for y in f(x))


def test_narrow_floats(device):
    x = with_nans(9, 300, np.float16)
    np.testing.assert_array_equal(np.asarray(jnp.max(x, 1)), x.max(1))


@pytest.mark.parametrize("shape", [(20, 1000), (300, 17), (3, 9000)])
@pytest.mark.parametrize("axis", [1, 0])
def test_softmax_of_rows_with_nan(device, shape, axis):
    """All of a row is NaN, whatever finds it."""
    x = with_nans(*shape)
    functions = (
        nn.softmax,
        nn.log_softmax,
        nn.logsumexp,
        lambda x, axis: nn.softmax(x, axis).max(axis),
    )
    for f in functions:
        found = np.asarray(amdjax.jit(lambda x, f=f: f(x, axis=axis))(x))
        wanted = np.isnan(x).any(axis)
        wanted = (
            wanted if found.ndim == 1 else np.broadcast_to(np.expand_dims(wanted, axis), x.shape)
        )
        np.testing.assert_array_equal(np.isnan(found), wanted)


@pytest.mark.parametrize("target,each", [("gfx942", 1.5), ("gfx1100", 1.5), ("gfx1201", 1.5)])
def test_extrema_take_little_more_than_an_instruction_an_element(target, each):
    """Comparisons ask two elements at once; nothing is selected for each."""
    x = jnp.zeros((4096, 4096))
    code = amdjax.jit(lambda x: x.max(1)).lower(x).compile(target=target)
    (kernel,) = code.kernels
    held = 4096 // kernel.workgroup
    lines = code.as_text("amdgcn").splitlines()
    count = sum(line.lstrip().startswith(("v_max", "v_cmp_u", "v_cmp_o")) for line in lines)
    assert count <= each * held + 12
