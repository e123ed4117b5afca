"""NumPy's rules of operations give what amdjax gives, which other tests compare with oracles."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.driver.reference import Reference
from amdjax.passes.extended import store_extended
from amdjax.passes.flatten import flatten_calls

DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((4, 6)).astype(np.float32)
POSITIVE = np.abs(X) / 4 + 0.1
WIDE = np.array([-3.5, -2.5, -0.5, -0.49999997, 0.0, -0.0, 0.5, 1.5, 2.5, 1e30, np.inf, np.nan],
                np.float32)  # fmt: skip
WHOLE = np.array([-7, -2, -1, 0, 1, 2, 5, 31, 32, 2**31 - 1, -(2**31)], np.int32)
BY = np.array([2, 0, -1, 3, 0, -2, 31, 1, 32, 40, 1], np.int32)
IMAGES = DRAW.standard_normal((2, 4, 7, 6)).astype(np.float32)
KERNEL = DRAW.standard_normal((6, 2, 3, 2)).astype(np.float32)
PLACES = np.array([[0], [3], [-1], [5]], np.int32)
KEYS = np.array([3, 1, 2, 1, np.nan, -0.0, 0.0, 3], np.float32)


def windows(x):
    padding = ((0, 0), (0, 0), (1, 1), (0, 1))
    size, strides = (1, 1, 3, 2), (1, 1, 2, 1)
    return lax.reduce_window(
        x, -jnp.inf, lax.max, size, strides, padding, window_dilation=(1, 1, 1, 2)
    )


def gathered(mode):
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    return lambda x, i: lax.gather(x, i, numbers, (1, 6), mode=mode)


def scattered(function, mode=None):
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return lambda x, i, u: function(x, i, u, numbers, mode=mode)


CASES = {
    **{name: (getattr(lax, name), X) for name in (
        "abs", "neg", "exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh",
        "asinh", "floor", "ceil", "sign", "logistic", "erf", "erfc", "square", "cbrt", "is_finite",
        "bessel_i0e", "bessel_i1e")},
    **{name: (getattr(lax, name), POSITIVE) for name in (
        "log", "log1p", "sqrt", "rsqrt", "asin", "acos", "atanh", "erf_inv", "lgamma", "digamma")},
    **{f"{name} of floats": (getattr(lax, name), WIDE, WIDE[::-1].copy()) for name in (
        "add", "sub", "mul", "div", "rem", "max", "min", "atan2", "eq", "ne", "lt", "le", "gt",
        "ge", "nextafter")},
    **{f"{name} of integers": (getattr(lax, name), WHOLE, BY) for name in (
        "add", "mul", "div", "rem", "max", "bitwise_and", "bitwise_xor", "shift_left",
        "shift_right_logical", "shift_right_arithmetic", "lt")},
    **{f"{name} of bits": (getattr(lax, name), WHOLE) for name in (
        "population_count", "clz", "bitwise_not", "sign", "abs")},
    "round": (lambda x: (lax.round(x), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)), WIDE),
    "to integers": (lambda x: (x.astype(jnp.int32), x.astype(jnp.uint8), x > 0), WIDE),
    "to few bits": (lambda x: (x.astype(jnp.bfloat16), x.astype(jnp.float16)), X),
    "integers to floats": (lambda x: (x.astype(jnp.float32), x.astype(bool)), WHOLE),
    "powers": (lambda x: (x**3, x**-2, x**0.5), POSITIVE),
    "choice": (lambda x: (jnp.where(x > 0, x, -1), jnp.clip(x, -0.5, 0.5)), X),
    "complex": (lambda x: (jnp.abs(lax.complex(x, -x)), lax.complex(x, x) * lax.complex(x, -x)), X),
    "pad": (lambda x: lax.pad(x, 1.0, ((1, 2, 1), (-1, 2, 0))), X),
    "cut": (lambda x: lax.pad(x, 0.0, ((-1, -1, 2), (0, -3, 1))), X),
    "movement": (lambda x: (x.T, x[::-1], x.reshape(3, 8), x[1:3, ::2], jnp.tile(x, (2, 1)),
                            jnp.concatenate([x, x], 1), x[None, :, None]), X),
    "iota": (lambda x: lax.broadcasted_iota(jnp.int32, (3, 4), 1) + x, np.int32(2)),
    "bits": (lambda x: lax.bitcast_convert_type(x, jnp.int32), X),
    "reductions": (lambda x: (x.sum(0), x.prod(1), x.max(), x.min(1), (x > 0).any(0),
                              (x > 0).all(1), x.argmax(1), x.argmin(0)), X),
    "reductions of integers": (lambda x: (x.sum(), x.max(), x.min(), lax.reduce_and(x, (0,)),
                                          lax.reduce_xor(x, (0,))), WHOLE),
    "largest with NaN": (lambda x: (x.max(), x.argmax(), jnp.argmin(x)), WIDE),
    "empty sums": (lambda x: (x.sum(0), x.prod(0)), np.zeros((0, 3), np.float32)),
    "running": (lambda x: (jnp.cumsum(x, 1), lax.cummax(x, 0, reverse=True), jnp.cumprod(x, 1),
                           lax.cumlogsumexp(x, 0)), X),
    "windows": (windows, IMAGES),
    "mean of windows": (lambda x: nn.avg_pool(x, (2, 2), padding="SAME"), IMAGES),
    "products": (lambda x: (x @ x.T, jnp.einsum("ij,kj->ik", x, x), jnp.einsum("bi,bj->bij", x, x)),
                 X),
    "products of integers": (lambda x: lax.dot(x, x, preferred_element_type=jnp.int32),
                             DRAW.integers(-128, 127, (5, 5)).astype(np.int8)),
    "convolution": (lambda x, w: lax.conv_general_dilated(
        x, w, (2, 1), ((1, 2), (0, 1)), (1, 2), (2, 1), feature_group_count=2), IMAGES, KERNEL),
    "convolution, channels last": (lambda x, w: lax.conv_general_dilated(
        x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (1, 1), "SAME", feature_group_count=2,
        dimension_numbers=("NHWC", "HWIO", "NHWC")), IMAGES, KERNEL),
    "gradient of a convolution": (lambda x, w: amdjax.grad(lambda w: (lax.conv_general_dilated(
        x, w, (1, 1), "VALID", feature_group_count=2) ** 2).sum())(w), IMAGES, KERNEL),
    **{f"gather, {mode}": (gathered(mode), X, PLACES) for mode in ("fill", "clip")},
    "indexing": (lambda x, i: (x[i[:, 0]], x.at[i].add(1.0), x[1, 2:4]), X, np.abs(PLACES) % 4),
    **{f"{name}": (scattered(getattr(lax, name)), X, PLACES, X) for name in (
        "scatter", "scatter_add", "scatter_mul", "scatter_max", "scatter_min")},
    "scatter, clip": (scattered(lax.scatter_add, "clip"), X, PLACES, X),
    "gather of batches": (lambda x, i: jnp.take_along_axis(x, i, 1), X, PLACES % 4),
    "slices": (lambda x, i: (lax.dynamic_slice(x, (i, 9), (2, 3)),
                             lax.dynamic_update_slice(x, x[:2, :2], (i, 5))), X, np.int32(-3)),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x), lax.sort((x, -x), num_keys=2)), KEYS),
    "top_k": (lambda x: lax.top_k(x, 3), X),
    "scan": (lambda x: lax.scan(lambda c, y: (c + y, c * y), x[0], x, reverse=True), X),
    "loops": (lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
              X),
    "branches": (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X),
    "softmax": (nn.softmax, X),
    "attention": (lambda x: nn.dot_product_attention(x, x, x), X.reshape(1, 4, 2, 3)),
    "random": (lambda k: amdjax.random.normal(k, (5,)), amdjax.random.PRNGKey(3)),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), X),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(4)), X),
}  # fmt: skip


def evaluated(f, args, is_double=False):
    closed = amdjax.make_jaxpr(f)(*args)
    reference = Reference(is_double)
    return reference, reference.run(store_extended(flatten_calls(closed)), args)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_amdjax(name):
    f, *args = CASES[name]
    want = amdjax.tree.leaves(amdjax.jit(f)(*args))
    _, found = evaluated(f, args)
    assert len(found) == len(want)
    for x, y in zip(found, want):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        scale = 1 + np.max(np.abs(np.asarray(y, np.complex128)), initial=0, where=np.isfinite(y))
        eps = np.finfo(np.float32).eps if y.dtype.itemsize > 2 else 2.0**-8
        if np.asarray(y).dtype.kind in "biu":
            np.testing.assert_array_equal(x, y)
        else:
            np.testing.assert_allclose(
                np.asarray(x, np.complex128), np.asarray(y, np.complex128), rtol=32 * eps,
                atol=32 * eps * min(scale, 100),
            )  # fmt: skip


def test_floats_may_stay_in_float64():
    x = np.float32([1e-4, 1.0])
    f = lambda x: jnp.sum((x + 1e4).astype(jnp.float16) - 1e4)
    _, (rounded,) = evaluated(f, [x])
    _, (exact,) = evaluated(f, [x], True)
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, 1.0001, rtol=1e-6)
    assert abs(rounded - exact) > 0.5


def test_operations_without_a_rule_are_named():
    reference, _ = evaluated(lambda x: lax.reduce_precision(x, 5, 10), [X])
    assert reference.unchecked == {"reduce_precision"}
    reference, _ = evaluated(lambda x: lax.exp(x) @ x.T, [X])
    assert not reference.unchecked
