import itertools

import numpy as np
import pytest
import scipy.special
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import amdjax
from amdjax import lax
from amdjax.core.config import enable_x64
from amdjax.transforms.staging import make_jaxpr
from tests.support.lax_checks import check_batching, check_derivatives

SPECIAL = np.array(
    [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 1e-30, 30.0, np.inf, -np.inf, np.nan], np.float32
)

UNARY = {
    "neg": np.negative,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "is_finite": np.isfinite,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "logistic": scipy.special.expit,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "bessel_i0e": scipy.special.i0e,
    "bessel_i1e": scipy.special.i1e,
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "max": np.maximum,
    "min": np.minimum,
    "atan2": np.arctan2,
    "pow": np.power,
    "nextafter": np.nextafter,
}
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
DIFFERENTIABLE = [
    "neg", "exp", "exp2", "log", "expm1", "log1p", "tanh", "logistic", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "asinh", "atanh", "abs", "sqrt", "rsqrt", "cbrt", "square",
    "reciprocal", "erf", "erfc", "erf_inv", "lgamma", "digamma", "bessel_i0e", "bessel_i1e",
]  # fmt: skip


def assert_close(found, wanted, rtol=2e-6, atol=1e-6):
    found = np.asarray(found)
    np.testing.assert_allclose(found, np.asarray(wanted, found.dtype), rtol=rtol, atol=atol)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_special_values(name):
    found = getattr(lax, name)(SPECIAL)
    with np.errstate(all="ignore"):
        assert_close(found, UNARY[name](SPECIAL.astype(np.float64)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_special_values(name):
    x, y = (v.astype(np.float32) for v in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        assert_close(getattr(lax, name)(x, y), BINARY[name](x, y))


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_comparisons(name):
    x, y = np.meshgrid(SPECIAL, SPECIAL)
    found = getattr(lax, name)(x, y)
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, COMPARISONS[name](x, y))


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_other_floats_keep_their_dtype(dtype):
    with enable_x64(True):
        x = lax.convert_element_type(np.array([0.25, 1.5]), dtype)
        y = lax.exp(x)
        assert str(y.dtype) == dtype
        assert_close(lax.convert_element_type(y, "float32"), np.exp([0.25, 1.5]), rtol=1e-2)


shapes = hnp.array_shapes(max_dims=3, max_side=5)
int_dtypes = st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint32"])


@given(int_dtypes, st.data())
def test_integer_arithmetic(dtype, data):
    shape = data.draw(shapes)
    x = data.draw(hnp.arrays(dtype, shape))
    y = data.draw(hnp.arrays(dtype, shape))
    with np.errstate(all="ignore"):
        for name in ("add", "sub", "mul", "max", "min"):
            np.testing.assert_array_equal(getattr(lax, name)(x, y), BINARY[name](x, y))
        nonzero = np.where(y == 0, np.ones_like(y), y)
        np.testing.assert_array_equal(lax.rem(x, nonzero), np.fmod(x, nonzero))
        exact = np.trunc(x.astype(np.float64) / nonzero).astype(np.int64).astype(dtype)
        np.testing.assert_array_equal(lax.div(x, nonzero), exact)
        for name in COMPARISONS:
            np.testing.assert_array_equal(getattr(lax, name)(x, y), COMPARISONS[name](x, y))
        wide = (x.astype(object) * y.astype(object)) >> (8 * x.dtype.itemsize)
        np.testing.assert_array_equal(lax.mulhi(x, y), wide.astype(np.int64).astype(dtype))


@given(int_dtypes, st.data())
def test_bits(dtype, data):
    x = data.draw(hnp.arrays(dtype, (4,)))
    y = data.draw(hnp.arrays(dtype, (4,)))
    width = 8 * x.dtype.itemsize
    mask = (1 << width) - 1
    assert lax.bitwise_and(x, y).tolist() == (x & y).tolist()
    assert lax.bitwise_or(x, y).tolist() == (x | y).tolist()
    assert lax.bitwise_xor(x, y).tolist() == (x ^ y).tolist()
    assert lax.bitwise_not(x).tolist() == (~x).tolist()
    raw = [int(v) & mask for v in x]
    assert lax.population_count(x).tolist() == [v.bit_count() for v in raw]
    assert lax.clz(x).tolist() == [width - v.bit_length() for v in raw]
    for shift in (0, 1, width - 1, width):
        s = np.full(4, shift, dtype)
        left = np.array([(v << shift) & mask for v in raw], np.uint64).astype(dtype)
        right = np.array([v >> shift for v in raw], np.uint64).astype(dtype)
        assert lax.shift_left(x, s).tolist() == left.tolist()
        assert lax.shift_right_logical(x, s).tolist() == right.tolist()
        signed = [int(v) >> shift for v in x]
        if x.dtype.kind == "i":
            assert lax.shift_right_arithmetic(x, s).tolist() == signed


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2", "int1", "uint1"])
def test_integers_of_less_than_a_byte(dtype):
    info, signed = amdjax.numpy.iinfo(dtype), dtype[0] == "i"
    bits, values = info.bits, range(info.min, info.max + 1)
    mask = (1 << bits) - 1
    x, y = map(np.array, zip(*itertools.product(values, values)))
    raw, counts, top = x & mask, np.minimum(y & mask, bits), 1 << (bits - 1)
    by = np.where(y == 0, info.max or -1, y)
    quotient = np.trunc(x / by).astype(int)
    exact = {
        "add": x + y, "sub": x - y, "mul": x * y, "max": np.maximum(x, y), "min": np.minimum(x, y),
        "bitwise_and": x & y, "bitwise_or": x | y, "bitwise_xor": x ^ y,
        "shift_left": raw << counts, "shift_right_logical": raw >> counts,
        "shift_right_arithmetic": ((raw ^ top) - top) >> counts, "div": quotient,
        "rem": x - quotient * by, "neg": -x, "bitwise_not": ~x, "sign": np.sign(x),
        "clz": np.array([bits - int(v).bit_length() for v in raw]),
        "population_count": np.array([int(v).bit_count() for v in raw]),
    }  # fmt: skip
    unary = ("neg", "bitwise_not", "sign", "clz", "population_count")
    exact |= {name: compared(x, y) for name, compared in COMPARISONS.items()}

    @amdjax.jit
    def computed(x, y, by):
        sums = lax.add(x, y)  # whose carry must not be seen by what follows in the same kernel
        second = {"div": (by,), "rem": (by,), **dict.fromkeys(unary, ())}
        results = {name: getattr(lax, name)(x, *second.get(name, (y,))) for name in exact}
        return results, lax.clz(sums), lax.gt(sums, y)

    results, zeros, greater = computed(*(amdjax.numpy.array(v.astype(dtype)) for v in (x, y, by)))
    for name, result in results.items():
        want = exact[name] if result.dtype == bool else exact[name].astype(np.int8).astype(dtype)
        np.testing.assert_array_equal(np.asarray(result), want, name)
    sums = (x + y) & mask
    want = np.array([bits - int(v).bit_length() for v in sums]).astype(np.int8).astype(dtype)
    np.testing.assert_array_equal(np.asarray(zeros), want)
    np.testing.assert_array_equal(greater, ((sums ^ top) - top if signed else sums) > y)


def test_booleans():
    p, q = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert lax.max(p, q).tolist() == (p | q).tolist()
    assert lax.min(p, q).tolist() == (p & q).tolist()
    assert lax.bitwise_not(p).tolist() == (~p).tolist()
    assert lax.bitwise_xor(p, q).tolist() == (p ^ q).tolist()


def test_operands_broadcast():
    x, row = np.ones((2, 3), np.float32), np.full((1, 3), 2, np.float32)
    assert lax.add(x, 1.0).shape == (2, 3)
    assert lax.mul(row, x).tolist() == [[2.0] * 3] * 2
    assert lax.sub(np.float32(1), row).shape == (1, 3)
    with pytest.raises(TypeError, match=r"add.*\(2, 3\), \(3,\)"):
        lax.add(x, np.ones(3, np.float32))
    with pytest.raises(TypeError, match="incompatible shapes"):
        lax.add(x, np.ones((2, 2), np.float32))


def test_dtypes_do_not_mix():
    x = np.ones(2, np.float32)
    with pytest.raises(TypeError, match=r"lax\.add requires.*float32, int32"):
        lax.add(x, 2)
    with pytest.raises(TypeError, match="exp does not accept dtype int32"):
        lax.exp(np.arange(3))
    with pytest.raises(TypeError, match="real does not accept dtype float32"):
        lax.real(x)
    with pytest.raises(TypeError, match="at position 0"):
        lax.pow(np.arange(3), 2)
    with pytest.raises(TypeError, match="negative powers"):
        lax.integer_pow(np.arange(3), -1)
    with pytest.raises(TypeError):
        lax.add(x, [1.0, 2.0])


def test_weak_types():
    assert lax.add(1.0, 2.0).aval.weak_type
    assert not lax.add(np.float32(1), 2.0).aval.weak_type
    assert not lax.convert_element_type(1.0, np.float32).aval.weak_type
    assert lax.real(1j).aval.weak_type


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_of_unary(name):
    x = np.array([0.15, 0.4, 0.85])
    if name in ("abs", "sin", "cos", "tanh", "erf", "exp", "square", "cbrt"):
        x = np.concatenate([-x, x])
    check_derivatives(getattr(lax, name), x, rtol=2e-5, atol=2e-5)


SECOND = {
    "asin": lambda x: x * (1 - x * x) ** -1.5,
    "acos": lambda x: -x * (1 - x * x) ** -1.5,
    "atanh": lambda x: 2 * x * (1 - x * x) ** -2,
    "tanh": lambda x: -2 * np.tanh(x) / np.cosh(x) ** 2,
    "cbrt": lambda x: -2 / 9 * x * np.abs(x) ** (-8 / 3),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_keep_their_digits(name):
    x = np.float32([1e-30, -1e-12, 1e-4, 0.3, -0.9, 0.999, 1.0 - 2**-20])
    x = x[2:] if name == "cbrt" else x
    slope = amdjax.grad(getattr(lax, name))
    found = amdjax.vmap(amdjax.grad(slope))(x)
    np.testing.assert_allclose(found, SECOND[name](x.astype(np.float64)), rtol=16 * 2**-24)


def test_second_derivatives_at_poles():
    for name, at, wanted in [
        ("asin", 1.0, np.inf), ("asin", -1.0, -np.inf), ("acos", 1.0, -np.inf),
        ("atanh", 1.0, np.inf), ("cbrt", 0.0, -np.inf), ("cbrt", np.inf, 0.0),
    ]:  # fmt: skip
        assert amdjax.grad(amdjax.grad(getattr(lax, name)))(at) == wanted, name


def test_derivative_of_acosh():
    check_derivatives(lax.acosh, np.array([1.5, 2.0]))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rem", "max", "min", "atan2", "pow"])
@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2, 3), ()), ((1, 3), (2, 1)), ((), (3,))])
def test_derivatives_of_binary(name, shapes):
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0.6, 2, shapes[0]), rng.uniform(0.2, 0.5, shapes[1])
    check_derivatives(getattr(lax, name), x, y)
    check_batching(getattr(lax, name), x.astype(np.float32), y.astype(np.float32))


@pytest.mark.parametrize("power", [-2, -1, 0, 1, 2, 3, 7])
def test_integer_pow(power):
    x = np.array([-1.5, 0.5, 2.0])
    assert_close(lax.integer_pow(x.astype(np.float32), power), x**power)
    check_derivatives(lambda v: lax.integer_pow(v, power), x)


def gradient(fun, *args):
    from amdjax.transforms.differentiate import vjp

    y, pull = vjp(fun, *args)
    return [np.asarray(g).tolist() for g in pull(np.ones(y.shape, y.dtype))]


def test_gradients_at_corners():
    zeros = np.zeros(2, np.float32)
    assert gradient(lax.max, zeros, zeros) == [[0.5, 0.5], [0.5, 0.5]]
    assert gradient(lax.min, zeros, zeros) == [[0.5, 0.5], [0.5, 0.5]]
    base = np.array([0.0, 0.0], np.float32)
    power = np.array([0.0, 2.0], np.float32)
    assert gradient(lambda v: lax.pow(v, power), base) == [[0.0, 0.0]]
    assert gradient(lambda v: lax.pow(v, np.array([0, 1])), base) == [[0.0, 1.0]]
    assert gradient(lambda v: lax.pow(base, v), power)[0][1] == 0.0
    assert gradient(lax.sign, base) == [[0.0, 0.0]]


def test_select_and_clamp():
    x = np.array([-1.0, 0.5, 2.0], np.float32)
    assert lax.clamp(0.0, x, 1.0).tolist() == [0.0, 0.5, 1.0]
    assert np.isnan(lax.clamp(0.0, np.float32(np.nan), 1.0))
    which = np.array([0, 1, 2])
    assert lax.select_n(which, x, x + 10, x + 20).tolist() == [-1.0, 10.5, 22.0]
    assert lax.select(True, x, -x).tolist() == x.tolist()
    check_derivatives(lambda v: lax.clamp(0.0, v, 1.0), np.array([-0.5, 0.5, 1.5]))
    low, high = np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.6])
    check_derivatives(lax.clamp, low, np.array([0.0, 0.3, 0.7]), high)
    check_derivatives(lambda p, q: lax.select_n(which, p, q, p), low, high)
    check_batching(lax.select, np.array([1, 0, 1], bool), x, -x)
    check_batching(lambda c, p: lax.select(lax.gt(c, p), c, p), x, -x)
    check_batching(lax.clamp, np.float32(0.1), x, np.float32(0.9))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(2), np.ones(2), np.ones(2)), "boolean or integer"),
        ((np.ones(2, bool), np.ones(2), np.ones(3)), "same shapes"),
        ((np.ones(3, bool), np.ones(2), np.ones(2)), "scalar or have the shape"),
        ((np.ones(2, bool), np.ones(2), np.ones(2), np.ones(2)), "two cases"),
        ((np.ones(2, bool),), "at least one case"),
    ],
)
def test_select_errors(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        lax.select_n(*arguments)


def test_rounding():
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    assert lax.round(x).tolist() == [-3, -2, -1, 1, 2, 3]
    assert lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN).tolist() == [-2, -2, 0, 0, 2, 2]
    with pytest.raises(ValueError):
        lax.round(x, 5)


CONVERTIBLE = ["bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32"]


@pytest.mark.parametrize("source", CONVERTIBLE)
@pytest.mark.parametrize("target", CONVERTIBLE)
def test_conversion(source, target):
    import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)

    x = np.array([0, 1, 2, 3]).astype(np.dtype(source))
    found = np.asarray(lax.convert_element_type(x, target))
    assert found.dtype == np.dtype(target)
    np.testing.assert_array_equal(found, x.astype(np.dtype(target)))


def test_bits_as_another_dtype():
    x = np.array([[1.5, -2.0], [np.pi, 0.0]], np.float32)
    for target in ("int32", "uint32", "int16", "uint8"):
        wanted = x.view(target).reshape(*x.shape, -1) if target[-2:] != "32" else x.view(target)
        np.testing.assert_array_equal(lax.bitcast_convert_type(x, target), wanted)
    small = np.arange(8, dtype=np.uint8).reshape(2, 4)
    np.testing.assert_array_equal(
        lax.bitcast_convert_type(small, "int32"), small.view("int32").reshape(2)
    )
    with pytest.raises(ValueError, match="last axis"):
        lax.bitcast_convert_type(small[:, :3], "int32")
    with pytest.raises(TypeError, match="complex"):
        lax.bitcast_convert_type(1j, "int32")


@given(hnp.arrays(np.float32, (16,)))
def test_reduce_precision_to_half(x):
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float16).astype(np.float32)
    tiny = np.abs(wanted) < 2.0**-14  # subnormals of the format become zero
    found = np.asarray(lax.reduce_precision(x, exponent_bits=5, mantissa_bits=10))
    np.testing.assert_array_equal(found[~tiny], wanted[~tiny])
    assert np.all(np.abs(found[tiny]) <= 2.0**-14)
    with pytest.raises(ValueError, match="exponent_bits"):
        lax.reduce_precision(x, 0, 3)


def test_total_order():
    x = np.array([-np.nan, -np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan], np.float32)
    x[0] = np.copysign(np.float32(np.nan), -1)
    row, column = x[None, :], x[:, None]
    rank = np.arange(8)
    less = rank[:, None] < rank[None, :]
    np.testing.assert_array_equal(lax.lt_to_p.bind(column, row), less)
    np.testing.assert_array_equal(lax.eq_to_p.bind(column, row), np.eye(8, dtype=bool))
    np.testing.assert_array_equal(lax.le_to_p.bind(column, row), less | np.eye(8, dtype=bool))


def test_printed_programs():
    x = np.ones(3, np.float32)
    assert str(make_jaxpr(lambda v: lax.add(v, 1.0))(x)) == (
        "{ lambda ; a:f32[3]. let b:f32[3] = add a 1.0:f32[] in (b,) }"
    )
    assert str(make_jaxpr(lambda v: lax.integer_pow(v, 3))(x)) == (
        "{ lambda ; a:f32[3]. let b:f32[3] = integer_pow[y=3] a in (b,) }"
    )


def test_barrier_passes_values_and_derivatives():
    x, y = np.array([1.0, 2.0]), np.array([3.0])
    a, b = lax.optimization_barrier((x, y))
    assert (a.tolist(), b.tolist()) == ([1.0, 2.0], [3.0])
    check_derivatives(lambda p, q: lax.optimization_barrier((p, q)), x, y)
    check_batching(lambda p, q: lax.optimization_barrier((p, q)), x, y)


@pytest.mark.parametrize(("value", "dtype"), [(2**32 + 5, "int32"), (-1, "uint8"), (300, "int8")])
def test_python_integers_convert_to_any_integer_dtype(value, dtype):
    wanted = np.asarray(value).astype(dtype)
    assert int(lax.convert_element_type(value, dtype)) == wanted


def test_conversions_need_a_dtype():
    with pytest.raises(ValueError, match="dtype must be specified"):
        lax.convert_element_type(1.0, None)


@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [(np.nan, "int32", 0), (1e10, "int32", 2**31 - 1), (-1.0, "uint8", 0), (2.7, "int8", 2)],
)
def test_filling_clamps_to_integers(value, dtype, wanted):
    assert lax.full((2,), value, dtype).tolist() == [wanted] * 2
    with pytest.raises(TypeError, match="must be real"):
        lax.full((2,), 1j, dtype)


@pytest.mark.parametrize(
    "low,x,high,slopes",
    [(1, 0, -1, (0, 0, 1)), (1, -2, -1, (0, 0, 0)), (0, 2, 1, (0, 0, 1)), (0, 0.5, 1, (0, 1, 0))],
)
def test_slopes_of_clamp(low, x, high, slopes):
    """Where bounds cross, the upper one wins."""
    found = amdjax.grad(lax.clamp, (0, 1, 2))(*map(float, (low, x, high)))
    assert tuple(map(float, found)) == slopes
