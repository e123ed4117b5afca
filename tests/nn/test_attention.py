"""`dot_product_attention` under the transformations, its derivatives, and its errors."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.test_util import check_grads
from tests.support import attention as reference

pytestmark = pytest.mark.share(4)  # an operation of `lax`

RNG = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return jnp.asarray(RNG.normal(size=shape), dtype)


def drawn(batch=2, queries=5, keys=6, heads=4, key_heads=2, features=8, values=8, dtype="float32"):
    return (
        normal(batch, queries, heads, features, dtype=dtype),
        normal(batch, keys, key_heads, features, dtype=dtype),
        normal(batch, keys, key_heads, values, dtype=dtype),
    )


def close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("values", [8, 3])
def test_values_and_residual(values):
    q, k, v = drawn(values=values)
    out, residual = nn.dot_product_attention(q, k, v, is_causal=True, return_residual=True)
    expected, sums = reference.attention(q, k, v, is_causal=True)
    close(out, expected)
    close(residual, sums)


def test_without_batch():
    q, k, v = (x[0] for x in drawn(batch=1))
    bias = normal(4, 5, 6)
    out, residual = nn.dot_product_attention(q, k, v, bias, return_residual=True)
    expected, sums = reference.attention(q[None], k[None], v[None], bias[None])
    close(out, expected[0])
    close(residual, sums[0])


LENGTHS = np.array([4, 6], np.int32)
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True, "scale": 0.5},
    "window": {"local_window_size": (1, 2)},
    "window beyond all": {"local_window_size": (2**31 - 1, 2**31 - 1)},
    "lengths": {"key_value_seq_lengths": LENGTHS, "query_seq_lengths": LENGTHS[::-1] - 2},
    "bias": {"bias": normal(2, 4, 5, 6)},
    "bias of heads": {"bias": normal(1, 4, 1, 6), "mask": RNG.random((2, 1, 5, 6)) < 0.7},
}


def attend(options):
    """The function of query, key and value, and of the bias if there is one."""
    options = dict(options)
    bias = options.pop("bias", None)

    def f(q, k, v, *bias):
        return nn.dot_product_attention(q, k, v, *bias, **options)

    return f, () if bias is None else (bias,)


@pytest.mark.cpu_only("float64")
@pytest.mark.parametrize("name", OPTIONS)
def test_derivatives_of_both_modes_and_two_orders(name):
    with amdjax.enable_x64(True):
        f, bias = attend(OPTIONS[name])
        args = drawn(dtype="float64")
        bias = tuple(x.astype("float64") for x in bias)
        check_grads(f, (*args, *bias), order=2, modes=("fwd", "rev"), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", OPTIONS)
def test_gradient(name):
    options = dict(OPTIONS[name])
    f, bias = attend(options)
    q, k, v = drawn()
    ct = normal(2, 5, 4, 8)
    found = amdjax.vjp(f, q, k, v, *bias)[1](ct)
    names = {"local_window_size": "window", "query_seq_lengths": "query_lengths",
             "key_value_seq_lengths": "key_lengths"}  # fmt: skip
    known = {names.get(n, n): x for n, x in options.items()}
    *_, expected = reference.attention(q, k, v, ct=ct, **known)
    for got, want in zip(found, expected, strict=True):
        close(got, want)


@pytest.mark.parametrize("name", OPTIONS)
def test_vmap_is_a_loop(name):
    options = {n: x for n, x in OPTIONS[name].items() if n != "bias"}
    q, k, v = (jnp.stack([x, 2 * x, -x]) for x in drawn())
    bias = (normal(1, 4, 5, 6),) if "bias" in OPTIONS[name] else ()
    f = lambda q, k, v: nn.dot_product_attention(q, k, v, *bias, **options)
    for axes in ((0, 0, 0), (0, None, None), (None, 0, 0), (1, 0, 0)):
        rows = jnp.moveaxis(q, 0, 1) if axes[0] == 1 else q
        given = [x if a is not None else x[0] for x, a in zip((rows, k, v), axes)]
        found = amdjax.vmap(f, axes)(*given)
        for i in range(3):
            one = (q[i], k[i], v[i])
            picked = [y if a is not None else x[0] for x, y, a in zip((q, k, v), one, axes)]
            close(found[i], f(*picked))


def test_gradient_of_vmap_of_shared_keys():
    q, k, v = drawn()
    queries = jnp.stack([q, 2 * q])
    f = lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True).sum()
    found = amdjax.grad(lambda *a: amdjax.vmap(f, (0, None, None))(*a).sum(), (0, 1, 2))(
        queries, k, v
    )
    each = [amdjax.grad(f, (0, 1, 2))(x, k, v) for x in queries]
    close(found[0], jnp.stack([g[0] for g in each]))
    for i in (1, 2):
        close(found[i], each[0][i] + each[1][i])


def test_in_loops_and_checkpoints():
    q, k, v = drawn(heads=2, key_heads=2, keys=5)

    def step(x, _):
        return nn.dot_product_attention(x, k, v, is_causal=True), None

    def loop(x, body):
        return lax.scan(body, x, length=3)[0].sum()

    expected = q
    for _ in range(3):
        expected, _ = reference.attention(expected, k, v, is_causal=True)
    close(loop(q, step), expected.sum(), 1e-4)
    plain = amdjax.grad(loop)(q, step)
    again = amdjax.jit(amdjax.grad(lambda x: loop(x, amdjax.checkpoint(step))))(q)
    close(plain, again)


def test_residual_has_no_derivative():
    q, k, v = drawn()
    f = lambda q: nn.dot_product_attention(q, k, v, return_residual=True)[1].sum()
    assert not np.any(amdjax.grad(f)(q))


@pytest.mark.parametrize(
    "change,message",
    [
        (lambda q, k, v: (q[0, 0], k, v), "query must have shape"),
        (lambda q, k, v: (q, k[:1], v), "key must have shape"),
        (lambda q, k, v: (q, k, v[:, :2]), "value must have shape"),
        (lambda q, k, v: (q[:, :, :3], k, v), "heads of query must be a multiple"),
        (lambda q, k, v: (q, k.astype("bfloat16"), v), "key must have the dtype of query"),
        (lambda q, k, v: (q, k[:, :0], v[:, :0]), "key must have at least one position"),
        (lambda q, k, v: (q, k, v, jnp.zeros((3, 1, 1, 1))), "bias must broadcast"),
        (lambda q, k, v: (q, k, v, None, jnp.ones((2, 1, 4, 6), bool)), "mask must broadcast"),
        (lambda q, k, v: (q, k, v, None, jnp.ones((2, 1, 5, 6))), "mask must be boolean"),
        (lambda q, k, v: (q, k, v, jnp.ones((2, 1, 5, 6), complex)), "bias must be real"),
        (lambda q, k, v: tuple(x.astype(int) for x in (q, k, v)), "floating dtype"),
    ],
)
@pytest.mark.cpu_only("nothing is computed")
def test_errors(change, message):
    with pytest.raises(ValueError, match=f"^dot_product_attention: .*{message}.*got"):
        nn.dot_product_attention(*change(*drawn()))
    with pytest.raises(ValueError, match="key_value_seq_lengths"):
        nn.dot_product_attention(*drawn(), key_value_seq_lengths=jnp.ones((3,), int))


@pytest.mark.parametrize(
    "name,value,error",
    [
        ("key_value_seq_lengths", jnp.array([1.5, 2.0]), TypeError),
        ("query_seq_lengths", jnp.array([True, False]), TypeError),
        *(("local_window_size", w, ValueError) for w in (1.5, (1,), (1, 2, 3), (1, 1.5), "a")),
        ("out_dtype", int, ValueError),
        ("out_dtype", "complex64", ValueError),
    ],
)
@pytest.mark.cpu_only("nothing is computed")
def test_options_of_another_type_are_refused(name, value, error):
    with pytest.raises(error, match=f"^dot_product_attention: {name} must be"):
        nn.dot_product_attention(*drawn(), **{name: value})


@pytest.mark.cpu_only("integers of NumPy")
def test_a_window_may_be_of_any_integers():
    args = drawn()
    expected = nn.dot_product_attention(*args, local_window_size=(1, 2))
    for window in ([1, 2], (np.int64(1), np.int32(2))):
        found = nn.dot_product_attention(*args, local_window_size=window)
        np.testing.assert_array_equal(found, expected)


def test_a_scale_may_be_trained():
    q, k, v = drawn()
    f = lambda q, scale: nn.dot_product_attention(q, k, v, scale=scale)
    close(amdjax.jit(f)(q, 0.7), f(q, 0.7))
    ct = normal(2, 5, 4, 8)
    loss = lambda q, scale: (f(q, scale) * ct).sum()
    step = 1e-5  # in float64
    more, less = (reference.attention(q, k, v, scale=0.7 + d)[0] for d in (step, -step))
    slopes = (more - less) / (2 * step) * np.asarray(ct)
    by_query, found = amdjax.grad(loss, (0, 1))(q, 0.7)
    np.testing.assert_allclose(found, slopes.sum(), rtol=0, atol=1e-6 * abs(slopes).sum())
    close(by_query, amdjax.grad(loss)(q, 0.7))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("more", [{}, {"mask": np.ones((2, 1, 1, 6), bool)}])
def test_what_is_behind_the_lengths_of_keys_does_not_count(bad, queries, more):
    """Not even where it is not finite, in results and gradients."""
    q, k, v = drawn(queries=queries)
    lengths = np.array([1, 4], np.int32)
    behind = (np.arange(6) >= lengths[:, None])[..., None, None]
    f = lambda q, k, v: (
        nn.dot_product_attention(q, k, v, key_value_seq_lengths=lengths, **more) ** 2
    ).sum()
    gradient = amdjax.value_and_grad(f, (0, 1, 2))
    expected = gradient(q, k, v)
    found = gradient(q, jnp.where(behind, bad, k), jnp.where(behind, bad, v))
    for got, want in zip(amdjax.tree.leaves(found), amdjax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(got, want)


DROPPING = {"dropout_rate": 0.4, "dropout_key": amdjax.random.key(3)}


@pytest.mark.cpu_only("float64")
def test_derivatives_of_what_is_dropped():
    with amdjax.enable_x64(True):
        f = lambda *args: nn.dot_product_attention(*args, is_causal=True, **DROPPING)
        args = drawn(queries=6, dtype="float64")
        check_grads(f, args, order=2, modes=("fwd", "rev"), rtol=1e-6, atol=1e-6)


def test_dropping_under_transformations():
    """Each example of a batch, and each key, has weights of its own that are dropped."""
    q, k, v = drawn(batch=3)
    f = lambda q, k, v, key: nn.dot_product_attention(q, k, v, dropout_rate=0.5, dropout_key=key)
    keys = amdjax.random.split(amdjax.random.key(1), 3)
    found = amdjax.vmap(f, (0, 0, 0, 0))(q[:, None], k[:, None], v[:, None], keys)
    for i in range(3):
        close(found[i], f(q[i : i + 1], k[i : i + 1], v[i : i + 1], keys[i]))
    same = jnp.broadcast_to(q[:1], q.shape), *(jnp.broadcast_to(x[:1], x.shape) for x in (k, v))
    out = f(*same, keys[0])
    assert np.any(out[0] != out[1]) and np.any(out != f(*same, keys[1]))
    np.testing.assert_array_equal(out, f(*same, keys[0]))
    assert not np.any(nn.dot_product_attention(q, k, v, dropout_rate=1))
    with pytest.raises(ValueError, match="dot_product_attention: dropout_key"):
        nn.dot_product_attention(q, k, v, dropout_rate=0.5)
    with pytest.raises(ValueError, match="dot_product_attention: dropout_rate"):
        nn.dot_product_attention(q, k, v, dropout_rate=1.5)


def test_float8_is_what_it_stands_for(device):
    q, k, v = (x.astype("float8_e4m3fn") for x in drawn())
    out = nn.dot_product_attention(q, k, v, is_causal=True, query_scale=0.5, value_scale=3.0)
    assert out.dtype == np.float32
    wide = [np.asarray(x, np.float64) for x in (q, k, v)]
    operands = 0.5 * wide[0], wide[1], 3 * wide[2]
    expected, _ = reference.attention(*operands, is_causal=True)
    # Matrix units of GPUs take weights as float16, each off by half a unit in its last place.
    rounding = 2.0**-11 if device is not None and device.platform != "cpu" else 0.0
    moved, _ = reference.attention(*operands[:2], abs(operands[2]), is_causal=True)
    assert (abs(out - expected) <= rounding * moved + 1e-5 * (1 + abs(expected))).all()
    close(nn.dot_product_attention(q, k, v, out_dtype="bfloat16").astype("float32"),
          reference.attention(*wide)[0], 1e-2)  # fmt: skip


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_derivatives_of_float8_and_of_scales(dtype, tolerance, device):
    """Those of operands are rounded to float8, those of scales follow from all elements."""
    if device is not None and device.platform != "cpu":
        tolerance += 2.0**-9  # matrix units of GPUs take weights of the result as float16
    q, k, v = (x.astype("float8_e4m3fn") for x in drawn())
    scales = [jnp.array([0.5, 1.5]), jnp.float32(0.7), jnp.float32(2)]
    ct = normal(*q.shape)

    def total(q, k, v, *scales):
        names = ("query_scale", "key_scale", "value_scale")
        out = nn.dot_product_attention(
            q, k, v, is_causal=True, out_dtype=dtype, **dict(zip(names, scales))
        )
        return (out.astype("float32") * ct).sum()

    found = amdjax.jit(amdjax.grad(total, argnums=tuple(range(6))))(q, k, v, *scales)
    stored = [np.asarray(x, np.float64) for x in (q, k, v)]
    factors = [np.reshape(np.float64(s), (-1, 1, 1, 1)) for s in scales]
    values = [x * s for x, s in zip(stored, factors)]
    *_, slopes = reference.attention(*values, is_causal=True, ct=np.float64(ct))
    for got, x, slope, s in zip(found[:3], (q, k, v), slopes, factors):
        assert got.dtype == x.dtype
        exact = slope * s
        rounding = 2.0**-9 + 2.0**-4 * abs(exact)  # of float8, half a unit in the last place
        assert (
            abs(np.asarray(got, np.float64) - exact) <= rounding + tolerance * abs(exact).max()
        ).all()
    for got, x, slope, scale in zip(found[3:], stored, slopes, scales):
        each = (x * slope).sum((1, 2, 3))
        size = abs(x * slope).sum() * tolerance
        np.testing.assert_allclose(got, each if scale.ndim else each.sum(), atol=size)
    tangent = amdjax.jvp(lambda s: total(q, k, v, s, *scales[1:]), scales[:1], scales[:1])[1]
    size = abs(stored[0] * slopes[0]).sum() * 4 * tolerance
    np.testing.assert_allclose(tangent, (found[3] * scales[0]).sum(), atol=size)


def test_derivatives_with_scales_are_as_wide_as_operands(double_precision):
    args = drawn(dtype="float64")
    ct = normal(*args[0].shape, dtype="float64")

    def total(q, k, v):
        return (nn.dot_product_attention(q, k, v, query_scale=0.5, value_scale=3.0) * ct).sum()

    factors = 0.5, 1, 3
    *_, slopes = reference.attention(*(x * s for x, s in zip(args, factors)), ct=ct)
    for got, slope, s in zip(amdjax.grad(total, argnums=(0, 1, 2))(*args), slopes, factors):
        close(got, slope * s, 1e-12)
