"""`jit(f, buckets=…)`: arguments padded to few sizes, results cut."""

import re
import warnings

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax

BUCKETS = {"t": [8, 4, 16]}


def array(*shape):
    return np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)


def masked_mean(x, t_len):
    mask = jnp.arange(x.shape[1]) < t_len
    return jnp.where(mask, x, 0).sum(1) / t_len, x * 2


@pytest.mark.parametrize("options", [{}, {"pad_value": np.nan}])
def test_padded_arguments(options):
    shapes = []

    def f(x, t_len):
        shapes.append(x.shape)
        return masked_mean(x, t_len)

    f = amdjax.jit(f, symbolic="b, t", buckets=BUCKETS, lengths="t_len", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for b, t in [(2, 3), (2, 4), (3, 5), (2, 16), (1, 7), (2, 1), (3, 5), (2, 3)]:
            x = array(b, t)
            mean, twice = f(x)
            np.testing.assert_allclose(mean, x.mean(1), rtol=1e-6)
            np.testing.assert_array_equal(twice, x * 2)
    assert len(shapes) <= 4  # one for all sizes, and those of 1
    (grad,) = amdjax.grad(lambda x: f(x)[0].sum(), argnums=(0,))(array(2, 3))
    np.testing.assert_allclose(grad, np.full((2, 3), 1 / 3), rtol=1e-6)


def test_other_axes_stay_and_linear_shapes_pad():
    f = amdjax.jit(
        lambda x, y: (x[:, ::2] + 1, y * 3), symbolic=("b, 2*t", "t, b"), buckets=BUCKETS
    )
    for b, t in [(2, 3), (3, 5), (2, 8)]:
        x, y = array(b, 2 * t), array(t, b)
        a, c = f(x, y)
        np.testing.assert_array_equal(a, x[:, ::2] + 1)
        np.testing.assert_array_equal(c, y * 3)


MIXING = {
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(1),
    "product": lambda x: x @ x.T,
    "sort": lambda x: jnp.sort(x),
    "scan": lambda x: lax.scan(lambda c, r: (c + r, c), jnp.zeros(x.shape[0]), x.T)[0],
    "cumsum": lambda x: lax.cumsum(x, 1, reverse=True),
    "softmax": lambda x: amdjax.nn.softmax(x),
    "flip": lambda x: x[:, ::-1],
    "concatenate": lambda x: jnp.concatenate([x, x], 1),
    "last": lambda x: x[:, -1],
    "argmax": lambda x: x.argmax(1),
    "length": lambda x: x * x.shape[1],
    "ravel": lambda x: x.reshape(-1),
    "fft": lambda x: jnp.fft.fft(x).real,
    "jit": lambda x: amdjax.jit(lambda x: x.max(1))(x),
    "vmap": lambda x: amdjax.vmap(jnp.median)(x),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXING)
def test_a_warning_where_padding_may_change_results(name):
    f = amdjax.jit(MIXING[name], symbolic="b, t", buckets=BUCKETS)
    with pytest.warns(UserWarning, match="Padding may change results"):
        f(array(2, 3))


KEEPING = {
    "elementwise": lambda x: jnp.tanh(x) * 2 + x,
    "other axis": lambda x: x.sum(0) + x,
    "product": lambda x: jnp.ones((5, x.shape[0])) @ x,
    "cumsum": lambda x: lax.cumsum(x, 1),
    "transpose": lambda x: x.T[:, None] + 1,
    "first": lambda x: x[:, :1] + x[:, 0:],
    "sort": lambda x: jnp.sort(x, 0),
    "embedding": lambda x: jnp.arange(10.0)[x.astype(int)],
    "where": lambda x: jnp.where(x > 1, x, -x),
    "jit": lambda x: amdjax.jit(lambda x: amdjax.nn.relu(x))(x),
    "map": lambda x: lax.map(lambda r: r.sum(), x.T),
}


@pytest.mark.parametrize("name", KEEPING)
def test_no_warning_where_padding_changes_nothing(name):
    f = amdjax.jit(KEEPING[name], symbolic="b, t", buckets=BUCKETS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for b, t in [(2, 3), (3, 7)]:
            x = array(b, t)
            np.testing.assert_allclose(f(x), amdjax.jit(KEEPING[name])(x), rtol=2e-6)


BAD = [
    (dict(buckets={"t": [4]}), ValueError, "t = 5 is above the largest of its buckets, 4"),
    (dict(buckets={"n": [4]}), ValueError, "buckets names 'n', which no shape has"),
    (dict(buckets={"t": []}), ValueError, "must be positive integers"),
    (dict(buckets={"t": [8]}, lengths="n"), ValueError, "lengths names 'n', no parameter"),
    (dict(buckets={"t": [8]}, constraints=["t <= 7"]), ValueError, "padded to {'b': 2, 't': 8}"),
    (dict(buckets={"t": 4}), ValueError, "buckets['t'] must be positive integers, got 4"),
    (dict(buckets={"t": [True]}), ValueError, "must be positive integers"),
    (dict(buckets={"t": [8]}, lengths=3), ValueError, "lengths must be a name or a dictionary"),
    (dict(buckets={"t": [8]}, pad_value="0"), ValueError, "pad_value must be a number, got '0'"),
    (dict(buckets={"t": [8]}, pad_value=[0]), ValueError, "pad_value must be a number, got [0]"),
    (dict(buckets={"t": [8]}, pad_value=None), ValueError, "pad_value must be a number, got None"),
    (dict(pad_value=1), ValueError, "pad_value fills arguments up to buckets: give buckets="),
    (dict(lengths="x"), ValueError, "give buckets="),
    (dict(buckets={"t": [8]}, symbolic=None), ValueError, "symbolic=, which is not given"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "error", "message"), BAD)
def test_errors(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        amdjax.jit(lambda x: x * 2, **{"symbolic": "b, t", **options})(array(2, 5))


def test_results_that_cannot_be_cut():
    f = amdjax.jit(
        lambda x: jnp.ones(20 - x.shape[0]), symbolic="t", buckets={"t": [8]},
        constraints=["t <= 19"],
    )  # fmt: skip
    with pytest.raises(ValueError, match="cannot be cut out of it"):
        f(array(5))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1j, np.float32), (0.5, np.int32), (np.nan, np.int32), (-1, np.uint8), (2, np.bool_)],
)
def test_padding_is_a_number_of_the_dtype(value, dtype):
    """Neither is an imaginary part dropped nor a number rounded to another."""
    run = amdjax.jit(lambda x: x + x, symbolic="t", buckets={"t": [8]}, pad_value=value)
    with pytest.raises(ValueError, match="pad_value"):
        run(np.zeros(5, dtype))
