import numpy as np
import pytest

import amdjax
from amdjax import lax, numpy as jnp, random
from amdjax.experimental.random import StatefulPRNG, stateful_rng


def test_draws_come_from_keys_in_order():
    rng, key = stateful_rng(42), random.key(42)
    for i in range(3):
        assert bool(rng.key() == random.fold_in(key, i))
    assert rng.key(2).shape == (2,)
    assert float(rng.uniform()) == float(random.uniform(random.fold_in(key, 4)))
    assert int(rng._counter[...]) == 5
    assert rng.normal(3, np.ones(2)).shape == rng.uniform(size=2).shape == (2,)
    assert rng.random((2, 3), "float16").dtype == np.float16
    drawn = rng.integers(5, size=100)
    assert drawn.dtype == np.int32 and {0, 4} <= {*drawn.tolist()} <= {*range(5)}


def test_under_transforms():
    def draws(rng):
        return jnp.stack([rng.uniform() for _ in range(4)])

    wanted = draws(stateful_rng(7))
    rng = stateful_rng(7)
    jitted = amdjax.jit(lambda rng: rng.uniform())
    assert [float(jitted(rng)) for _ in range(4)] == wanted.tolist()
    rng = stateful_rng(7)
    _, scanned = lax.scan(lambda _, __: (None, rng.uniform()), None, length=4)
    np.testing.assert_array_equal(scanned, wanted)
    assert int(rng._counter[...]) == 4
    each = jnp.stack([r.uniform() for r in stateful_rng(7).spawn(3)])
    mapped = amdjax.vmap(lambda rng: rng.uniform())(stateful_rng(7).split(3))
    np.testing.assert_array_equal(mapped, each)
    assert float(amdjax.grad(lambda x: x * stateful_rng(7).uniform())(2.0)) == wanted[0]


def test_refusals():
    with pytest.raises(ValueError, match="typed PRNG key"):
        StatefulPRNG(random.PRNGKey(0), amdjax.new_ref(0))
    with pytest.raises(ValueError, match="counter"):
        StatefulPRNG(random.key(0), 0)
    with pytest.raises(ValueError, match="split"):
        stateful_rng(0).split(2).uniform()
    with pytest.raises(TypeError, match="transformed code"):
        amdjax.jit(lambda: stateful_rng().uniform())()
    with pytest.raises(ValueError, match="unbatched"):
        amdjax.vmap(lambda rng, x: x + rng.uniform(), (None, 0))(stateful_rng(0), np.ones(2))
