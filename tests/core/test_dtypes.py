import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax.core import aval, dtypes, promotion
from amdjax.core.config import config, enable_x64, explicit_x64_dtypes, numpy_dtype_promotion
from amdjax.core.errors import TypePromotionError

# JAX's promotion of every pair of dtypes: a row holds the results with the dtypes of the rows
# above it and its own. A star marks weak types, a dash that there is no promotion; f8 stands
# for every float of 8 bits or fewer, u4 and i4 for every integer narrower than 8 bits.
X64_TABLE = """
bool: bool
u4: u4 u4
u8: u8 - u8
u16: u16 - u16 u16
u32: u32 - u32 u32 u32
u64: u64 - u64 u64 u64 u64
i4: i4 - - - - - i4
i8: i8 - i16 i32 i64 f64* - i8
i16: i16 - i16 i32 i64 f64* - i16 i16
i32: i32 - i32 i32 i64 f64* - i32 i32 i32
i64: i64 - i64 i64 i64 f64* - i64 i64 i64 i64
f8: f8 - f8 f8 f8 f8 - f8 f8 f8 f8 f8
bf16: bf16 - bf16 bf16 bf16 bf16 - bf16 bf16 bf16 bf16 - bf16
f16: f16 - f16 f16 f16 f16 - f16 f16 f16 f16 - f32 f16
f32: f32 - f32 f32 f32 f32 - f32 f32 f32 f32 - f32 f32 f32
f64: f64 - f64 f64 f64 f64 - f64 f64 f64 f64 - f64 f64 f64 f64
c64: c64 - c64 c64 c64 c64 - c64 c64 c64 c64 - c64 c64 c64 c128 c64
c128: c128 - c128 c128 c128 c128 - c128 c128 c128 c128 - c128 c128 c128 c128 c128 c128
i64*: i64* u4 u8 u16 u32 u64 i4 i8 i16 i32 i64 f8 bf16 f16 f32 f64 c64 c128 i64*
f64*: f64* - f64* f64* f64* f64* - f64* f64* f64* f64* f8 bf16 f16 f32 f64 c64 c128 f64* f64*
c128*: c128* - c128* c128* c128* c128* - c128* c128* c128* c128* - c64 c64 c64 c128 c64 c128 c128* c128* c128*
"""  # noqa: E501
X32_TABLE = """
bool: bool
u4: u4 u4
u8: u8 - u8
u16: u16 - u16 u16
u32: u32 - u32 u32 u32
i4: i4 - - - - i4
i8: i8 - i16 i32 i32 - i8
i16: i16 - i16 i32 i32 - i16 i16
i32: i32 - i32 i32 i32 - i32 i32 i32
f8: f8 - f8 f8 f8 - f8 f8 f8 f8
bf16: bf16 - bf16 bf16 bf16 - bf16 bf16 bf16 - bf16
f16: f16 - f16 f16 f16 - f16 f16 f16 - f32 f16
f32: f32 - f32 f32 f32 - f32 f32 f32 - f32 f32 f32
c64: c64 - c64 c64 c64 - c64 c64 c64 - c64 c64 c64 c64
i32*: i32* u4 u8 u16 u32 i4 i8 i16 i32 f8 bf16 f16 f32 c64 i32*
f32*: f32* - f32* f32* f32* - f32* f32* f32* f8 bf16 f16 f32 c64 f32* f32*
c64*: c64* - c64* c64* c64* - c64* c64* c64* - c64 c64 c64 c64 c64* c64* c64*
"""


class Aval:
    def __init__(self, dtype, weak_type, shape=()):
        self.dtype, self.weak_type, self.shape = np.dtype(dtype), weak_type, shape


class Value:
    """An array as far as dtypes are concerned."""

    def __init__(self, dtype, weak_type=False):
        self.aval = Aval(dtype, weak_type)
        self.dtype = self.aval.dtype
        self.shape = ()


def rows(table):
    lines = [line.split(": ") for line in table.split("\n") if line]
    names = [name for name, _ in lines]
    for name, cells in lines:
        for other, cell in zip(names, cells.split(" ")):
            yield name, other, cell


def pair(name, f8="f8_e4m3fn"):
    short = name.rstrip("*")
    return dtypes.dtype_from_short_name(f8 if short == "f8" else short), name.endswith("*")


def promoted(a, b, f8="f8_e4m3fn"):
    try:
        dtype, weak = promotion.promote_avals(pair(a, f8), pair(b, f8))
    except TypePromotionError:
        return "-"
    return dtypes.short_dtype_name(dtype).replace(f8, "f8") + "*" * weak


@pytest.mark.parametrize("f8", [d.name.replace("float", "f") for d in dtypes.small_float_dtypes])
@pytest.mark.parametrize("x64,table", [(True, X64_TABLE), (False, X32_TABLE)])
def test_promotion_is_jax_table(x64, table, f8):
    with enable_x64(x64):
        for a, b, expected in rows(table):
            assert promoted(a, b, f8) == promoted(b, a, f8) == expected, (a, b)


@pytest.mark.parametrize("narrow", [("u1", "i1"), ("u2", "i2")])
def test_narrow_integers_meet_only_scalars(narrow):
    for name in narrow:
        for other in ("u4", "i4", "i8", "f32"):
            assert promoted(name, other) == "-"
        assert promoted(name, "i64*") == promoted(name, "bool") == name


@given(st.lists(st.sampled_from(dtypes.array_dtypes), min_size=1, max_size=4), st.randoms())
def test_promotion_ignores_order(given_dtypes, random):
    shuffled = random.sample(given_dtypes, len(given_dtypes))
    results = []
    for order in (given_dtypes, shuffled):
        try:
            results.append(promotion.promote_avals(*((d, False) for d in order)))
        except TypePromotionError:
            results.append(None)
    assert results[0] == results[1]


@given(st.sampled_from(dtypes.array_dtypes), st.sampled_from(dtypes.array_dtypes))
def test_promotion_is_an_upper_bound(a, b):
    with enable_x64(True):
        try:
            out = promotion.promote_types(a, b)
        except TypePromotionError:
            return
        assert promotion.promote_types(a, out) == out == promotion.promote_types(b, out)


def test_strict_promotion():
    with numpy_dtype_promotion("strict"):
        assert promotion.promote_types("int8", int) == np.int8
        assert promotion.promote_types("float16", int) == np.float16
        assert promotion.result_type(1, 2.0, return_weak_type_flag=True) == (np.float32, True)
        with pytest.raises(TypePromotionError, match="promotion=strict"):
            promotion.promote_types("int8", "int16")
        with pytest.raises(TypePromotionError):
            promotion.result_type(np.int8(1), True)


def test_promotion_errors_say_why():
    with pytest.raises(TypePromotionError, match="8-bit floats"):
        promotion.promote_types("float8_e5m2", "float32")
    with pytest.raises(TypePromotionError, match="4-bit floats"):
        promotion.promote_types("float4_e2m1fn", "float32")
    with pytest.raises(TypePromotionError, match="fewer than 8 bits"):
        promotion.promote_types("int4", "int8")
    assert issubclass(TypePromotionError, ValueError)


def test_promote_types_keeps_64_bits():
    assert promotion.promote_types("int64", "int8") == np.int64
    assert promotion.promote_types("uint32", "int8") == np.int32
    assert promotion.promote_types(int, float) == np.float64


def test_result_type():
    assert promotion.result_type(1, 2.0) == np.float32
    assert promotion.result_type("int8", 1) == np.int8
    assert promotion.result_type(np.arange(3), 1.0) == np.float32
    assert promotion.result_type(Value("bfloat16"), 1.0) == ml_dtypes.bfloat16
    # A weak result has the default dtype of its category.
    assert promotion.result_type(Value("bfloat16", True), 1) == np.float32
    assert promotion.result_type(True, True, return_weak_type_flag=True) == (np.bool_, False)
    assert promotion.result_type(None, "bfloat16") == np.float32
    assert promotion.result_type(int, return_weak_type_flag=True) == (np.int32, True)
    with pytest.raises(ValueError, match="at least one"):
        promotion.result_type()


def test_canonical_dtypes():
    wide = ["int64", "uint64", "float64", "complex128"]
    assert [dtypes.canonicalize_dtype(d).name for d in wide] == [
        "int32",
        "uint32",
        "float32",
        "complex64",
    ]
    with enable_x64(True):
        assert [dtypes.canonicalize_dtype(d).name for d in wide] == wide
    with pytest.raises(TypeError, match="'flaot32' is not understood"):
        dtypes.canonicalize_dtype("flaot32")
    with pytest.raises(TypeError, match="Did you mean 'bfloat16'"):
        dtypes.canonicalize_dtype("bf16")


class Key(dtypes.ExtendedDType):
    type = dtypes.prng_key
    element_shape = (2, 3)
    element_dtype = np.dtype("uint16")

    def __str__(self):
        return "key<test>"


def test_extended_dtypes():
    key = Key()
    assert key.itemsize == 12
    assert aval.physical_aval(aval.ShapedArray((4,), key)) == aval.ShapedArray((4, 2, 3), "uint16")
    assert dtypes.issubdtype(key, dtypes.prng_key)
    assert dtypes.issubdtype(key, dtypes.extended)
    assert not dtypes.issubdtype(key, np.floating)
    assert not dtypes.issubdtype(np.float32, dtypes.extended)
    assert not dtypes.issubdtype(np.float32, key)
    assert dtypes.short_dtype_name(key) == "key<test>"
    dtypes.register_short_name(key)
    assert dtypes.dtype_from_short_name("key<test>") is key
    assert dtypes.canonicalize_dtype(key, allow_extended_dtype=True) is key
    with pytest.raises(ValueError, match="key<test>"):
        dtypes.canonicalize_dtype(key)
    with pytest.raises(ValueError, match="key<test>"):
        promotion.promote_avals((key, False), (np.dtype("int8"), False))


def test_dtype_of_values():
    assert dtypes.dtype(1) == np.int32
    assert dtypes.dtype(True) == np.bool_
    assert dtypes.dtype(1j) == np.complex64
    assert dtypes.dtype(np.arange(2.0)) == np.float32
    assert dtypes.dtype(Value("float64")) == np.float64
    assert dtypes.dtype(float) == np.float32
    assert dtypes.dtype(ml_dtypes.bfloat16) == ml_dtypes.bfloat16
    with enable_x64(True):
        assert dtypes.dtype(1) == np.int64
    with pytest.raises(ValueError):
        dtypes.dtype(None)
    with pytest.raises(TypeError, match="Cannot determine"):
        dtypes.dtype(object())
    with pytest.raises(TypeError, match="<U3"):
        dtypes.dtype("U3")


def test_weak_types():
    assert all(map(dtypes.is_weakly_typed, (1, 1.0, 1j, Value("int8", True))))
    assert not any(map(dtypes.is_weakly_typed, (True, np.int8(1), np.float64(1), Value("int8"))))


def test_explicit_wide_dtypes_warn_at_the_caller():
    with pytest.warns(UserWarning, match="float64 requested in zeros") as caught:
        out = dtypes.check_and_canonicalize_user_dtype("float64", "zeros")
    assert out == np.float32
    assert caught[0].filename == __file__
    with explicit_x64_dtypes("error"), pytest.raises(ValueError, match="float64"):
        dtypes.check_and_canonicalize_user_dtype("float64", "zeros")
    with explicit_x64_dtypes("allow"):
        assert dtypes.check_and_canonicalize_user_dtype("float64") == np.float64
    assert dtypes.check_and_canonicalize_user_dtype(float, "zeros") == np.float32
    with pytest.raises(TypeError, match="dtype object in zeros"):
        dtypes.check_and_canonicalize_user_dtype(object, "zeros")
    with pytest.raises(TypeError, match="dtype in zeros: 'foo'"):
        dtypes.check_and_canonicalize_user_dtype("foo", "zeros")


def test_large_python_ints_overflow():
    with pytest.raises(OverflowError, match="1099511627776 too large to convert to int32"):
        dtypes.scalar_type_to_dtype(int, 1 << 40)
    with enable_x64(True):
        assert dtypes.scalar_type_to_dtype(int, 1 << 40) == np.int64
        with pytest.raises(OverflowError):
            dtypes.scalar_type_to_dtype(int, 1 << 63)


@pytest.mark.parametrize("dtype", [*dtypes.array_dtypes, dtypes.float0])
def test_short_names_round_trip(dtype):
    name = dtypes.short_dtype_name(dtype)
    assert dtypes.dtype_from_short_name(name) == dtype


def test_short_names():
    names = {"float32": "f32", "bfloat16": "bf16", "uint8": "u8", "int4": "i4", "bool": "bool"}
    names |= {"complex64": "c64", "float8_e4m3fn": "f8_e4m3fn"}
    for long, short in names.items():
        assert dtypes.short_dtype_name(np.dtype(long)) == short
    with pytest.raises(ValueError, match="'f33'"):
        dtypes.dtype_from_short_name("f33")


def test_hierarchy():
    assert dtypes.issubdtype("bfloat16", np.floating)
    assert dtypes.issubdtype("float8_e4m3fn", np.inexact)
    assert dtypes.issubdtype("int4", np.signedinteger)
    assert dtypes.issubdtype("uint4", np.integer)
    assert not dtypes.issubdtype("uint4", np.signedinteger)
    assert not dtypes.issubdtype("bfloat16", np.float32)
    assert dtypes.isdtype("bfloat16", "real floating")
    assert dtypes.isdtype("int8", ("bool", np.int8))
    with pytest.raises(ValueError, match="kind='nonsense'"):
        dtypes.isdtype("int8", "nonsense")
    with pytest.raises(TypeError):
        dtypes.isdtype("int8", 3.5)


def test_conversions_between_kinds():
    assert dtypes.to_inexact_dtype("int32") == np.float32
    assert dtypes.to_inexact_dtype("int64") == np.float64
    assert dtypes.to_numeric_dtype(bool) == np.int32
    assert dtypes.to_complex_dtype("float64") == np.complex128
    assert dtypes.itemsize_bits("complex128") == 128
    assert dtypes.itemsize_bits("float8_e5m2") == 8
    assert dtypes.supports_inf("float8_e5m2") and not dtypes.supports_inf("float8_e4m3fn")
    assert dtypes.finfo("bfloat16").bits == 16 and dtypes.iinfo("int4").max == 7
    assert dtypes.scalar_type_of(ml_dtypes.bfloat16(1)) is float
    with pytest.raises(ValueError):
        dtypes.itemsize_bits(None)


def test_supports_inf_is_what_the_format_does():
    for d in dtypes.float_dtypes:
        has_inf = bool(np.isinf(np.array(np.inf).astype(d).astype(np.float32)))
        assert dtypes.supports_inf(d) == has_inf, d


def test_import_is_light():
    code = (
        "import sys, amdjax.core.dtypes, amdjax.core.pytree, amdjax.core.boundaries;"
        "print([m for m in ('llvmlite', 'scipy', 'hip', 'jax') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    assert config.enable_x64 is False


def test_safe_casts_to_pythons_types_are_to_strong_ones():
    with enable_x64(True):
        assert promotion.safe_to_cast("float32", float)
        assert promotion.safe_to_cast(float, "float32")
        assert not promotion.safe_to_cast(float, "int8")
    with numpy_dtype_promotion("strict"), pytest.raises(TypePromotionError):
        promotion.safe_to_cast("float16", float)
