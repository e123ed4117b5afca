"""Tokens pass through transforms and say nothing but what they come after."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax


def test_tokens_pass_through_transforms():
    def f(x, token):
        return (x * x).sum(), lax.after_all(token, lax.create_token(x))

    token = lax.create_token()
    x = np.arange(3, dtype=np.float32)
    y, later = amdjax.jit(f)(x, token)
    assert (float(y), later.shape, later.dtype) == (5.0, token.shape, token.dtype)
    np.testing.assert_array_equal(amdjax.grad(f, has_aux=True)(x, token)[0], 2 * x)
    ys, later = amdjax.vmap(f, (0, None), (0, None))(np.stack([x, x]), token)
    assert ys.tolist() == [5.0, 5.0] and later.shape == token.shape
    assert "after_all" in str(amdjax.make_jaxpr(f)(x, token))


def test_what_is_no_token_is_refused():
    with pytest.raises(TypeError, match="tokens"):
        lax.after_all(lax.create_token(), jnp.ones(0))
