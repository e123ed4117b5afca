"""Arguments of jitted functions that are containers of users."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp


@amdjax.tree_util.register_pytree_node_class
class Checked:
    """A container that refuses what is no array."""

    def __init__(self, x):
        if not hasattr(x, "dtype"):
            raise TypeError(f"no array: {x!r}")
        self.x = x

    def tree_flatten(self):
        return [self.x], None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@pytest.mark.parametrize(
    "options", [{}, {"dynamic": "auto"}, {"symbolic": "n"}, {"static_argnums": 1}]
)
def test_containers_that_look_at_their_contents(options):
    f = amdjax.jit(lambda c, n: c.x * n, **options)
    for size in (3, 4, 5, 6):
        x = jnp.arange(float(size))
        n = 2 if "static_argnums" in options else jnp.ones(size) * 2
        np.testing.assert_array_equal(f(Checked(x), n), x * 2)
    assert "Checked" in repr(amdjax.tree_util.tree_structure(Checked(x)))
