"""Collectives over several mapped axes are those over one axis of their product."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, vmap


def over_two(f, x):
    return vmap(vmap(f, axis_name="j"), axis_name="i")(x)


def over_product(f, x, names):
    """`f` over one axis whose elements are numbered as `names` say, the first slowest."""
    turned = x if names == ("i", "j") else np.swapaxes(x, 0, 1)
    out = np.asarray(vmap(f, axis_name="k")(turned.reshape(6, *x.shape[2:])))
    out = out.reshape(*turned.shape[:2], *out.shape[1:])
    return out if names == ("i", "j") else np.swapaxes(out, 0, 1)


CASES = {
    **{
        f"all_to_all {split} {concat} {tiled}": (
            lambda x, n, s=split, c=concat, t=tiled: lax.all_to_all(x, n, s, c, tiled=t),
            [(12 if tiled else 6) if k == split else k + 2 for k in range(3)],
        )
        for split in range(3)
        for concat in range(3)
        for tiled in (False, True)
    },
    **{
        f"all_gather {axis} {tiled}": (
            lambda x, n, a=axis, t=tiled: lax.all_gather(x, n, axis=a, tiled=t), [4, 5]
        )
        for axis in (0, 1, -1)
        for tiled in (False, True)
    },
    **{
        f"psum_scatter {axis} {tiled}": (
            lambda x, n, a=axis, t=tiled: lax.psum_scatter(x, n, scatter_dimension=a, tiled=t),
            [(12 if tiled else 6) if k == axis else k + 2 for k in range(2)],
        )
        for axis in (0, 1)
        for tiled in (False, True)
    },
    "axis_index": (lambda x, n: x + lax.axis_index(n), [2]),
    "psum": (lambda x, n: lax.psum(x, n), [2]),
    "pmax": (lambda x, n: lax.pmax(x, n), [2]),
    "pswapaxes": (lambda x, n: lax.pswapaxes(x, n, 1), [3, 6]),
}  # fmt: skip


@pytest.mark.parametrize("names", [("i", "j"), ("j", "i")])
@pytest.mark.parametrize("name", CASES)
def test_several_axes_are_their_product(name, names):
    f, shape = CASES[name]
    x = np.random.default_rng(0).standard_normal((2, 3, *shape)).astype(np.float32)
    found = over_two(lambda x: f(x, names), x)
    np.testing.assert_allclose(found, over_product(lambda x: f(x, "k"), x, names), rtol=1e-5)
    if name == "pmax":
        return
    loss = lambda x: jnp.sin(over_two(lambda x: f(x, names), x)).sum()
    direction = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
    _, slope = amdjax.jvp(loss, (x,), (direction,))
    assert np.vdot(amdjax.grad(loss)(x), direction) == pytest.approx(
        float(slope), rel=1e-3, abs=1e-3
    )


@pytest.mark.parametrize("tiled", [False, True])
def test_sizes_that_do_not_divide_are_refused(tiled):
    x = np.zeros((2, 3, 5), np.float32)
    for f in (
        lambda x: lax.all_to_all(x, ("i", "j"), 0, 0, tiled=tiled),
        lambda x: lax.psum_scatter(x, ("i", "j"), tiled=tiled),
    ):
        with pytest.raises(ValueError, match=r"axis 0 of \(5,\) cannot be divided among 6"):
            over_two(f, x)


def test_permutations_of_several_axes_are_refused():
    with pytest.raises(NotImplementedError, match="ppermute: axis_name names several axes"):
        over_two(lambda x: lax.ppermute(x, ("i", "j"), [(0, 1)]), np.zeros((2, 3), np.float32))
