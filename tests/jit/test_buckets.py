"""`jit(f, buckets=…)`: arguments padded to few sizes, results cut."""

import re
import warnings

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from tests.support.turns import in_turn

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


def mask(x, n):
    return jnp.arange(x.shape[1]) < n


def masked(x, n, other=0.0):
    return jnp.where(mask(x, n), x, other)


#: Of which padding changes results for some arguments.
MIXING = {
    "sum": lambda x, n: jnp.cos(x).sum(1),
    "mean": lambda x, n: x.mean(1),
    "mean of masked": lambda x, n: masked(x, n).mean(1),
    "product": lambda x, n: jnp.cos(x) @ jnp.cos(x).T,
    "sort": lambda x, n: jnp.sort(x),
    "scan": lambda x, n: lax.scan(lambda c, r: (c + r, c), jnp.zeros(x.shape[0]), x.T + 1)[0],
    "fori": lambda x, n: lax.fori_loop(0, x.shape[1], lambda i, c: c + 1, jnp.zeros(())),
    "scan of nothing": lambda x, n: lax.scan(
        lambda c, _: (c + 1, None), jnp.zeros(()), None, length=x.shape[1])[0],
    "scan backwards": lambda x, n: lax.scan(
        lambda c, r: (c + r, c), jnp.ones(x.shape[0]), jnp.exp(x.T), reverse=True)[1].T,
    "cumsum": lambda x, n: lax.cumsum(x + 1, 1, reverse=True),
    "cumsum of flipped": lambda x, n: jnp.cumsum(x[:, ::-1], 1)[:, ::-1] + jnp.ones(x.shape) * 3,
    "softmax": lambda x, n: amdjax.nn.softmax(x),
    "softmax of zeros": lambda x, n: amdjax.nn.softmax(masked(x, n)),
    "logsumexp": lambda x, n: amdjax.nn.logsumexp(masked(x, n), axis=1),
    "flip": lambda x, n: x[:, ::-1],
    "flip of masked": lambda x, n: masked(x, n)[:, ::-1],
    "roll": lambda x, n: jnp.roll(x, 1, 1),
    "concatenate": lambda x, n: jnp.concatenate([x, x], 1),
    "last": lambda x, n: x[:, -1],
    "argmax": lambda x, n: (-x).argmax(1),
    "argmin of masked": lambda x, n: masked(x, n).argmin(1),
    "max": lambda x, n: (-x).max(1),
    "length": lambda x, n: x * x.shape[1],
    "iota": lambda x, n: x * jnp.arange(x.shape[1])[::-1],
    "ravel": lambda x, n: x.reshape(-1),
    "fft": lambda x, n: jnp.fft.fft(x).real,
    "norm": lambda x, n: jnp.linalg.norm(masked(x, n, 3.0), axis=1),
    "variance": lambda x, n: ((masked(x, n) - masked(x, n).sum(1, keepdims=True) / n) ** 2).sum(1),
    "convolution": lambda x, n: lax.conv_general_dilated(
        x[:, None] + 1, jnp.ones((1, 1, 3)), (1,), "SAME")[:, 0],
    "strided convolution": lambda x, n: lax.conv_general_dilated(
        x[:, None], jnp.arange(1.0, 4)[None, None], (2,), "SAME")[:, 0],
    "window": lambda x, n: lax.reduce_window(-x, -jnp.inf, lax.max, (1, 3), (1, 1), "SAME"),
    "scatter": lambda x, n: jnp.zeros(5).at[(x[0] > 1).astype(int)].add(1.0),
    "count": lambda x, n: (x == 0).sum(),
    "all": lambda x, n: (x != 0).all(1),
    "jit": lambda x, n: amdjax.jit(lambda x: (-x).max(1))(x),
    "vmap": lambda x, n: amdjax.vmap(jnp.median)(x),
    "branch": lambda x, n: lax.cond(n > 2, lambda x: x.sum(1), lambda x: x.max(1), x + 1),
    "gradient": lambda x, n: amdjax.grad(lambda x: (x * x).mean())(x),
    "random": lambda x, n: x + amdjax.random.normal(amdjax.random.key(0), x.shape),
    "callback": lambda x, n: amdjax.pure_callback(
        lambda x: x[:, ::-1].copy(), amdjax.ShapeDtypeStruct(x.shape, x.dtype), x),
    # Masks that are none.
    "mask of one more": lambda x, n: jnp.where(mask(x, n + 1), x, 1).sum(1),
    "mask up to the length": lambda x, n: (jnp.arange(x.shape[1]) <= n).sum(),
    "filled": lambda x, n: masked(x, n, 7.0).sum(1),
    "exponential": lambda x, n: jnp.exp(masked(x, n)).sum(1),
    "cosine": lambda x, n: jnp.cos((x + 1) * mask(x, n)).sum(1),
    "with what is not": lambda x, n: (masked(x, n) + x + 1).sum(1),
    "data": lambda x, n: jnp.where(x < n, x + 1, 0).sum(1),
    "inverted": lambda x, n: jnp.where(~mask(x, n), 0 * x + 1, 0).sum(1),
    "swapped": lambda x, n: jnp.where(mask(x, n), 0, x + 1).sum(1),
    "along the other axis": lambda x, n: jnp.where(
        jnp.arange(x.shape[0])[:, None] < n, x + 1, 0).sum(1),
    "length in arithmetic": lambda x, n: (x + 1 + (n < 3)).sum(1),
    "in few bits": lambda x, n: jnp.where(
        jnp.arange(x.shape[1] * 40, dtype=jnp.int8) < n * 40, 1, 0).sum(),
}  # fmt: skip


TABLE = jnp.arange(1.0, 21)  # of a fixed size

#: In which the padded size says what becomes of arrays of fixed sizes.
MIXING_FIXED = {
    "last of a table": lambda n: TABLE[20 - n :],
    "window of a table": lambda n: lax.dynamic_slice(TABLE, (jnp.int32(15),), (n,)),
    "gathered window": lambda n: amdjax.vmap(
        lambda i: lax.dynamic_slice(TABLE, (i,), (n,)))(jnp.arange(14, 16)).T,
    "greatest of a window": lambda n: TABLE[:n].max(),
    "written into a table": lambda n: TABLE.at[:n].set(7.0),
    "added to a table": lambda n: TABLE.at[:n].add(7.0),
    "written into rows": lambda n: jnp.zeros((2, 20)).at[jnp.arange(2), :n].set(TABLE[:n]),
    "update of a table": lambda n: lax.dynamic_update_slice(TABLE, TABLE[:n] * 2, (0,)),
    "padded in front": lambda n: jnp.pad(TABLE, (n, 0)),
    "every n-th": lambda n: TABLE[::n],
    "holes": lambda n: lax.pad(TABLE[:2], 0.0, [(0, 20 - n, n)]),
    "windows": lambda n: lax.reduce_window(TABLE, 0.0, lax.add, (n,), (1,), [(0, n - 1)]),
    "windows far apart": lambda n: lax.reduce_window(
        TABLE, 0.0, lax.add, (2,), (1,), [(0, n)], window_dilation=(n,)),
    "dilated convolution": lambda n: lax.conv_general_dilated(
        TABLE[None, None], jnp.ones((1, 1, 3)), (1,), [(0, 2 * n)], rhs_dilation=(n,))[0, 0],
}  # fmt: skip


@pytest.mark.parametrize("name", MIXING_FIXED)
def test_a_warning_where_sizes_choose_from_what_is_not_padded(name):
    f = amdjax.jit(
        lambda x: (x, MIXING_FIXED[name](x.shape[0])), symbolic="t", constraints=["t <= 20"],
        buckets=BUCKETS,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="Padding may change results"):
        try:
            f(array(5))
        except ValueError as e:
            assert "cannot be cut" in str(e)


def test_elements_behind_a_cut_lie_beyond():
    """Where what is padded with 0 ends one element earlier, an element lies where 0 was."""
    f = amdjax.jit(lambda x: lax.pad(x, 0.0, [(0, -1, 0)]).sum(), symbolic="t", buckets=BUCKETS)
    with pytest.warns(UserWarning, match="Padding may change results"):
        f(array(5))


@pytest.mark.parametrize("name", in_turn(MIXING, 2))
def test_a_warning_where_padding_may_change_results(name):
    f = amdjax.jit(MIXING[name], symbolic=("b, t",), buckets=BUCKETS, lengths="n")
    with pytest.warns(UserWarning, match="Padding may change results"):
        f(array(2, 3))


#: Of which it does not, whatever arguments are padded with.
KEEPING = {
    "elementwise": lambda x, n: jnp.tanh(x) * 2 + x,
    "other axis": lambda x, n: x.sum(0) + x,
    "product": lambda x, n: jnp.ones((5, x.shape[0])) @ x,
    "cumsum": lambda x, n: lax.cumsum(x, 1),
    "transpose": lambda x, n: x.T[:, None] + 1,
    "first": lambda x, n: x[:, :1] + x[:, 0:],
    "all but the first": lambda x, n: x[:, 1:] - x[:, :-1],
    "every other": lambda x, n: masked(x, n)[:, ::2],
    "sort": lambda x, n: jnp.sort(x, 0),
    "embedding": lambda x, n: jnp.arange(10.0)[jnp.abs(jnp.nan_to_num(x)).astype(int)],
    "where": lambda x, n: jnp.where(x > 1, x, -x),
    "jit": lambda x, n: amdjax.jit(lambda x: amdjax.nn.relu(x))(x),
    "map": lambda x, n: lax.map(lambda r: r.sum(), x.T),
    "axes of one": lambda x, n: x.reshape(x.shape[0], x.shape[1], 1, 1),
    "sum": lambda x, n: masked(x, n).sum(1),
    "mean": lambda x, n: jnp.mean(x, axis=1, where=mask(x, n)),
    "sum where": lambda x, n: jnp.sum(x + 1, axis=1, where=n > jnp.arange(x.shape[1])),
    "flipped mask": lambda x, n: jnp.where(jnp.arange(x.shape[1]) >= n, 0, x).sum(1),
    "shifted mask": lambda x, n: jnp.where(jnp.arange(x.shape[1]) + 1 <= n, x, 0).sum(1),
    "product of ones": lambda x, n: masked(x, n, 1.0).prod(1),
    "softmax": lambda x, n: amdjax.nn.softmax(masked(x, n, -jnp.inf)),
    "logsumexp": lambda x, n: amdjax.nn.logsumexp(masked(x, n, -jnp.inf), axis=1),
    "max": lambda x, n: masked(x, n, -jnp.inf).max(1),
    "max of finite": lambda x, n: masked(x, n, jnp.finfo(jnp.float32).min).max(1),
    "argmin": lambda x, n: masked(x, n, jnp.inf).argmin(1),
    "sorted": lambda x, n: jnp.sort(masked(x, n, jnp.inf)),
    "reverse cumsum": lambda x, n: lax.cumsum(masked(x, n), 1, reverse=True),
    "any": lambda x, n: ((x > 1) & mask(x, n)).any(1),
    "count": lambda x, n: mask(x, n).sum() + (jnp.isnan(x) & mask(x, n)).sum(1),
    "masked product": lambda x, n: masked(x, n) @ masked(x, n).T,
    "convolution": lambda x, n: lax.conv_general_dilated(
        masked(x, n)[:, None], jnp.arange(1.0, 4)[None, None], (1,), "SAME")[:, 0],
    "window": lambda x, n: lax.reduce_window(
        masked(x, n, -jnp.inf), -jnp.inf, lax.max, (1, 3), (1, 1), "SAME"),
    "scatter": lambda x, n: jnp.zeros(5).at[(masked(x, n)[0] > 1).astype(int)].add(masked(x, n)[0]),
    "padded in front": lambda x, n: jnp.pad(x, ((0, 0), (2, 0))),
    "padded behind": lambda x, n: jnp.pad(masked(x, n), ((0, 0), (1, 2))).sum(1),
    "of a table": lambda x, n: x + TABLE[: x.shape[1]],
    "a table with zeros": lambda x, n: x.sum(0) + jnp.pad(TABLE[:1], (0, x.shape[1] - 1)),
}  # fmt: skip


@pytest.mark.parametrize("pad_value", [0, np.nan, 3.5])
@pytest.mark.parametrize("name", in_turn(KEEPING, 2))
def test_no_warning_where_padding_changes_nothing(name, pad_value):
    f, plain = KEEPING[name], amdjax.jit(KEEPING[name])
    padded = amdjax.jit(
        f, symbolic={"x": "b, t"}, buckets=BUCKETS, lengths="n", pad_value=pad_value
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for b, t in [(2, 3), (3, 7)]:
            x = array(b, t)
            for got, expected in zip(padded(x), plain(x, t), strict=True):
                np.testing.assert_allclose(got, expected, rtol=2e-6, err_msg=name)


def test_what_padding_is_known_to_be_needs_no_mask():
    """Zeros add nothing; ones do."""
    for pad_value, harmless in [(0, True), (1, False)]:
        f = amdjax.jit(
            lambda x: (x * 2).sum(1), symbolic="b, t", buckets=BUCKETS, pad_value=pad_value
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = f(array(2, 3))
        assert bool(caught) is not harmless
        if harmless:
            np.testing.assert_allclose(result, 2 * array(2, 3).sum(1), rtol=1e-6)


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


def test_parameters_for_lengths():
    """They are keywords of their own, which callers do not give."""
    run = lambda f, *args, **options: amdjax.jit(f, symbolic="t", buckets={"t": [8]}, **options)(
        *args
    )
    x = array(5)
    for f in (lambda x, *, n: x * n, lambda x, **rest: x * rest["n"], lambda x, n: x * n):
        np.testing.assert_array_equal(run(f, x, lengths="n"), x * 5)
    for f, args, lengths, message in [
        (lambda x: x, (x,), "x", "lengths names 'x', which the call gives: callers leave"),
        (lambda x, n: x, (x, 5), "n", "lengths names 'n', which the call gives: callers leave"),
        (lambda n, /: n, (x,), "n", "lengths names 'n', which <lambda> does not take by name"),
        (
            lambda x, *rest: x,
            (x,),
            "rest",
            "lengths names 'rest', which <lambda> does not take by name",
        ),
        (lambda x, n: x, (x,), {"t": "n", "b": "n"}, "lengths speaks of 'b', which has no buckets"),
        (lambda x, n: x, (x,), {"t": 3}, "lengths must name parameters, got 3"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            run(f, *args, lengths=lengths)
    with pytest.raises(ValueError, match="lengths names 'n' for both 'b' and 't'"):
        amdjax.jit(
            lambda x, n: x,
            symbolic="b, t",
            buckets={"b": [4], "t": [8]},
            lengths={"b": "n", "t": "n"},
        )
    with pytest.raises(ValueError, match="lengths names 'n', which is static"):
        amdjax.jit(
            lambda x, n: x, symbolic="t", buckets={"t": [8]}, lengths="n", static_argnames="n"
        )


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
