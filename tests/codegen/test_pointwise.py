"""Elementwise tile ops on every dtype, scalars and vectors, special values included."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from amdjax.tile import TileError
from tests.support.tile_runner import elementwise

pytestmark = pytest.mark.usefixtures("backend")

INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float64]
SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, 0.5, -0.5, 7, 1e9]


def all_pairs(xs):
    a, b = np.meshgrid(xs, xs)
    return a.ravel(), b.ravel()


def int_values(dtype):
    info = np.iinfo(dtype)
    xs = [0, 1, 2, 3, 7, 31, info.max, info.max - 1, info.max // 2]
    return np.array(xs + ([-1, -2, -7, info.min, info.min + 1] if info.min else []), dtype)


def floats(dtype):
    return np.array(SPECIAL).astype(dtype)


def same(got, want):
    """Equal bits, but that one NaN is as good as another."""
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def op(name):
    return lambda k, *xs: k.op(name, *xs)


@pytest.mark.parametrize("lanes", [1, 3, 16])
@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name,numpy", [
    ("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("and", np.bitwise_and),
    ("or", np.bitwise_or), ("xor", np.bitwise_xor), ("min", np.minimum), ("max", np.maximum),
])  # fmt: skip
def test_integers_wrap(name, numpy, dtype, lanes):
    a, b = all_pairs(int_values(dtype))
    with np.errstate(all="ignore"):
        same(elementwise(op(name), a, b, out=dtype, lanes=lanes), numpy(a, b))


@pytest.mark.parametrize("dtype", INTS)
def test_integer_division_truncates_and_never_traps(dtype):
    a, b = all_pairs(int_values(dtype))
    quotient = elementwise(op("div"), a, b, out=dtype)
    rest = elementwise(op("rem"), a, b, out=dtype)
    info = np.iinfo(dtype)
    for x, y, q, r in zip(a.tolist(), b.tolist(), quotient.tolist(), rest.tolist(), strict=True):
        if y == 0:
            assert q == (-1 if info.min else info.max) and r == x
            continue
        whole = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert q == (info.min if whole > info.max else whole)
        assert r == x - whole * y


def shifted(name, x, by, bits):
    """`x`, the number of a bit pattern without sign, shifted as `name` says."""
    if name == "shr_arithmetic":
        signed = x - (1 << bits) if x >> (bits - 1) else x
        return (signed >> min(by, bits - 1)) % (1 << bits)
    if by >= bits:
        return 0
    return (x << by) % (1 << bits) if name == "shl" else x >> by


@pytest.mark.parametrize("name", ["shl", "shr_logical", "shr_arithmetic"])
@pytest.mark.parametrize("dtype", INTS)
def test_shifts_past_the_width(dtype, name):
    bits = np.iinfo(dtype).bits
    a, by = np.meshgrid(int_values(dtype), np.array([0, 1, bits - 1, bits, bits + 1]).astype(dtype))
    a, by = a.ravel(), by.ravel()
    pairs = zip(a.tolist(), by.tolist(), strict=True)
    want = [shifted(name, x % (1 << bits), s, bits) for x, s in pairs]
    got = elementwise(op(name), a, by, out=dtype)
    same(got, np.array(want, f"u{bits // 8}").view(dtype))


@pytest.mark.parametrize("dtype", INTS)
def test_unary_integer_ops(dtype):
    x = int_values(dtype)
    bits = np.iinfo(dtype).bits
    unsigned = [v % (1 << bits) for v in x.tolist()]
    with np.errstate(all="ignore"):
        same(elementwise(op("neg"), x, out=dtype), (-x).astype(dtype))
        same(elementwise(op("abs"), x, out=dtype), np.abs(x))
        same(elementwise(op("sign"), x, out=dtype), np.sign(x))
        same(elementwise(op("not"), x, out=dtype), ~x)
    same(
        elementwise(op("clz"), x, out=dtype),
        np.array([bits - v.bit_length() for v in unsigned], dtype),
    )
    same(
        elementwise(op("popcnt"), x, out=dtype), np.array([v.bit_count() for v in unsigned], dtype)
    )


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
@pytest.mark.parametrize("name,numpy", [
    ("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal),
    ("gt", np.greater), ("ge", np.greater_equal),
])  # fmt: skip
def test_comparisons(name, numpy, dtype):
    a, b = all_pairs(int_values(dtype) if np.dtype(dtype).kind in "iu" else floats(dtype))
    same(elementwise(op(name), a, b, out=np.bool_), numpy(a, b))


@pytest.mark.parametrize("lanes", [1, 5, 16])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name,numpy", [
    ("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide),
])  # fmt: skip
def test_float_arithmetic_is_exact_ieee(name, numpy, dtype, lanes):
    a, b = all_pairs(floats(dtype))
    with np.errstate(all="ignore"):
        same(elementwise(op(name), a, b, out=dtype, lanes=lanes), numpy(a, b))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name,numpy", [
    ("neg", np.negative), ("abs", np.abs), ("floor", np.floor), ("ceil", np.ceil),
    ("trunc", np.trunc), ("round_even", np.rint), ("sqrt", np.sqrt),
])  # fmt: skip
def test_exact_unary_float_ops(name, numpy, dtype):
    with np.errstate(all="ignore"):
        x = floats(dtype)
        same(elementwise(op(name), x, out=dtype), numpy(x))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name,numpy", [("min", np.minimum), ("max", np.maximum)])
def test_extrema_pass_nan_on(name, numpy, dtype):
    a, b = all_pairs(floats(dtype))
    np.testing.assert_array_equal(elementwise(op(name), a, b, out=dtype), numpy(a, b))


@pytest.mark.parametrize("number", [0.0, -0.0, 2.5, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "dtype,of", [(np.float32, "f32"), (np.float64, "f64"), (np.float16, "f16")]
)
@pytest.mark.parametrize("name,numpy", [("min", np.minimum), ("max", np.maximum)])
def test_extrema_beside_constants_pass_nan_on(name, numpy, dtype, of, first, number):
    def rule(k, x):
        c = k.const(of, number, x.shape)
        return k.op(name, *((c, x) if first else (x, c)))

    with np.errstate(over="ignore"):
        x = floats(dtype)
    np.testing.assert_array_equal(elementwise(rule, x, out=dtype), numpy(x, dtype(number)))


@pytest.mark.parametrize("source,of", [(np.float32, "f32"), (np.float64, "f64")])
@pytest.mark.parametrize("target,to", [
    (np.int8, "i8"), (np.uint8, "u8"), (np.int16, "i16"), (np.uint16, "u16"), (np.int32, "i32"),
])  # fmt: skip
@pytest.mark.parametrize("low,high", [(0, 9), (-128, 127), (0, 255), (-5, 300)])
def test_clamped_floats_become_integers(target, to, low, high, source, of):
    """Whether or not what is between the bounds is within the dtype's."""

    def rule(k, x):
        held = k.op("min", k.op("max", x, k.const(of, low, x.shape)), k.const(of, high, x.shape))
        return k.convert(held, to)

    info = np.iinfo(target)
    x = np.array([*SPECIAL, low, high, low - 1, high + 1, low + 0.9, high - 0.9]).astype(source)
    want = np.clip(np.trunc(np.clip(np.nan_to_num(x, nan=0.0), low, high)), info.min, info.max)
    np.testing.assert_array_equal(elementwise(rule, x, out=target), want.astype(target))


@pytest.mark.parametrize("dtype", FLOATS)
def test_is_finite_and_select(dtype):
    x = floats(dtype)
    same(elementwise(op("is_finite"), x, out=np.bool_), np.isfinite(x))
    got = elementwise(lambda k, a, b: k.select(a < b, a, b), *all_pairs(x), out=dtype)
    a, b = all_pairs(x)
    same(got, np.where(a < b, a, b))


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("target", INTS)
def test_floats_to_integers_saturate(source, target):
    x = np.array([0.5, -0.9, 1.99, -1.5, 127.9, 300, -300, 7e4, 5e9, -5e9, 1e20, -1e20, np.inf,
                  -np.inf, np.nan]).astype(source)  # fmt: skip
    info = np.iinfo(target)
    want = [0 if np.isnan(v) else info.max if v >= float(info.max) else info.min
            if v <= float(info.min) else int(v) for v in x]  # fmt: skip
    same(
        elementwise(lambda k, v: k.convert(v, short(target)), x, out=target), np.array(want, target)
    )


def short(dtype):
    from amdjax.core.dtypes import short_dtype_name

    return short_dtype_name(np.dtype(dtype))


@pytest.mark.parametrize("source", INTS)
@pytest.mark.parametrize("target", [*INTS, np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_integers_to_others(source, target):
    x = int_values(source)
    got = elementwise(lambda k, v: k.convert(v, short(target)), x, out=target)
    with np.errstate(all="ignore"):
        if (np.dtype(target).kind in "iuf" and np.dtype(target).itemsize > 2) or np.dtype(
            target
        ).kind in "iu":
            np.testing.assert_array_equal(got, x.astype(target))
        else:  # 16-bit floats: rounded once, from the exact value
            want = x.astype(np.float64).astype(target)
            np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


NARROW = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
          ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz]  # fmt: skip


@pytest.mark.parametrize("narrow", NARROW)
def test_every_narrow_float_widens_exactly(narrow):
    count = 1 << (8 * np.dtype(narrow).itemsize)
    bits = np.arange(count, dtype=np.uint16 if count > 256 else np.uint8)
    x = bits.view(narrow)
    got = elementwise(lambda k, v: k.convert(v, "f32"), x, out=np.float32)
    same(got, x.astype(np.float32))


@pytest.mark.parametrize("narrow", NARROW)
def test_rounding_to_narrow_floats(narrow):
    rng = np.random.default_rng(0)
    x = np.concatenate([
        rng.standard_normal(3000) * 10.0 ** rng.integers(-8, 6, 3000), SPECIAL,
        [240.0, 448.0, 449.0, 464.0, 465.0, 57344.0, 61439.0, 61440.0, 65519.0, 65520.0],
    ]).astype(np.float32)  # fmt: skip
    got = elementwise(lambda k, v: k.convert(v, short(narrow)), x, out=narrow)
    with np.errstate(all="ignore"):
        want = x.astype(narrow)
    nan = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    view = np.uint16 if np.dtype(narrow).itemsize == 2 else np.uint8
    np.testing.assert_array_equal(got.view(view)[~nan], want.view(view)[~nan])


FOUR = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("source,target", [*itertools.permutations(FOUR, 2)])
def test_signs_between_conversions(source, target, lanes):
    """What sets a sign compiles beside conversions of any floats, to the same."""
    signs = {
        "sign": lambda x: np.where(x == 0, x, np.sign(x)),
        "copysign": lambda x: np.copysign(2.5, x),
        "atan": np.arctan,
    }

    def rule(name, middle):
        def of(k, x):
            x = k.convert(x, middle)
            constants = [k.const(middle, 2.5, x.shape)] if name == "copysign" else []
            return k.convert(k.op(name, *constants, x), short(target))

        return of

    x = np.array([0.0, -0.0, 1.5, -1.5, 2.5, np.inf, -np.inf, -0.25]).astype(source)
    for (name, numpy), middle in itertools.product(signs.items(), {"f32", short(target)}):
        got = elementwise(rule(name, middle), x, out=target, lanes=lanes).astype(np.float64)
        want = numpy(x.astype(np.float64)).astype(target).astype(np.float64)
        error = float(ml_dtypes.finfo(target).eps if middle == short(target) else 2**-22)
        np.testing.assert_allclose(got, want, rtol=error * (name == "atan"))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(x))


@pytest.mark.parametrize("name,want", [("and", [0, 0, 0, 1]), ("or", [0, 1, 1, 1]),
                                       ("xor", [0, 1, 1, 0])])  # fmt: skip
def test_booleans(name, want):
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    same(elementwise(op(name), a, b, out=np.bool_), np.array(want, bool))
    same(elementwise(op("not"), a, out=np.bool_), ~a)
    same(elementwise(lambda k, v: k.convert(v, "f32"), a, out=np.float32), a.astype(np.float32))


def test_an_op_without_a_rule_is_named():
    with pytest.raises(TileError, match="sin is not defined for i32"):
        elementwise(op("sin"), np.arange(4, dtype=np.int32), out=np.int32)
