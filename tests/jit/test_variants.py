"""Compiled forms of programs of symbolic shapes."""

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax.jit import variants
from amdjax.jit.variants import Variants


def test_variants_are_the_program_of_their_sizes(monkeypatch):
    monkeypatch.setattr(variants, "_KEPT", 2)
    shape = amdjax.export.symbolic_shape("b, t")
    closed = amdjax.make_jaxpr(lambda x: jnp.cumsum(x, 1) / x.shape[0])(
        amdjax.ShapeDtypeStruct(shape, jnp.float32)
    )
    made = Variants(closed, (False,), (), None)
    for b, t in [(2, 3), (4, 1), (2, 3), (5, 7)]:
        x = np.arange(b * t, dtype=np.float32).reshape(b, t)
        (out,) = made.runner({"b": b, "t": t})([jnp.asarray(x)])
        np.testing.assert_array_equal(out, np.cumsum(x, 1) / np.float32(b))
    assert made.runner({"b": 5, "t": 7}) is made.runner({"t": 7, "b": 5})
    assert str(made) == "variant\nb=2, t=3\nb=5, t=7"  # what was used longest ago is gone
