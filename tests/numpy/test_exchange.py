"""Arrays exchanged with others: DLPack, bytes, files, the array API's questions."""

import io

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core import dlpack

NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
PLAIN = ["bool", "int8", "uint16", "int32", "float16", "float32", "complex64"]


class Producer:
    """Another library's array: all that is known of it is its capsule."""

    def __init__(self, array, versioned):
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, max_version=None):
        options = {"max_version": max_version} if self.versioned else {}
        return dlpack.export(self.array, **options)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
@pytest.mark.parametrize("dtype", [*PLAIN, *NARROW])
def test_dlpack(dtype, shape, versioned):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    value = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    for source in (Producer(value, versioned), jnp.asarray(value)):
        x = jnp.from_dlpack(source)
        assert x.dtype == dtype
        np.testing.assert_array_equal(np.asarray(x).view("V"), value.view("V"))


def test_the_type_code_says_bfloat16():
    capsule = jnp.ones(3, jnp.bfloat16).__dlpack__(max_version=(1, 0))
    tensor = dlpack._tensor_in(capsule)
    assert (tensor.code, tensor.bits, tensor.lanes, tensor.ndim) == (4, 16, 1, 1)


def test_dlpack_without_a_copy():
    memory = np.zeros(64 + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    aligned, other = memory[start : start + 16], memory[start + 1 : start + 17]
    x = jnp.from_dlpack(aligned, copy=False)
    assert x.unsafe_buffer_pointer() == aligned.ctypes.data
    assert jnp.from_dlpack(aligned, copy=True).unsafe_buffer_pointer() != aligned.ctypes.data
    assert float((x + 1).sum()) == 16.0
    for value in (other, other[:0], np.zeros(4)):
        with pytest.raises(ValueError, match="requires a copy"):
            jnp.from_dlpack(value, copy=False)
    with pytest.raises(TypeError, match="__dlpack__"):
        jnp.from_dlpack([1, 2])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8"])
def test_files(dtype):
    file = io.BytesIO()
    x = jnp.arange(6).astype(dtype)
    jnp.save(file, x)
    file.seek(0)
    y = jnp.load(file, allow_pickle=True)
    assert y.dtype == x.dtype and y.tolist() == x.tolist()
    objects = io.BytesIO()
    np.save(objects, np.array([print], object), allow_pickle=True)
    objects.seek(0)
    with pytest.raises(ValueError, match="pickle"):
        jnp.load(objects, allow_pickle=True)


def test_bytes():
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    for order in "CF":
        assert jnp.asarray(x).tobytes(order) == x.tobytes(order)
    assert jnp.asarray(x).byteswap().tolist() == x.byteswap().tolist()
    with pytest.raises(amdjax.errors.ConcretizationTypeError, match=r"tobytes\(\)"):
        amdjax.jit(lambda v: v.tobytes())(x)


@pytest.mark.parametrize("x64", [False, True])
def test_array_namespace_info(x64):
    with amdjax.enable_x64(x64):
        info = jnp.__array_namespace_info__()
        assert info.default_dtypes()["indexing"] == jnp.arange(1).dtype
        assert set(info.dtypes(kind="signed integer")) == {
            "int8", "int16", "int32", *(["int64"] if x64 else [])
        }  # fmt: skip
        assert set(info.dtypes()) == set(info.dtypes(kind=("numeric", "bool")))
    assert info.devices()[0] is None and info.default_device() is None
    x = jnp.ones(1)
    assert x.__array_namespace__(api_version=jnp.__array_api_version__) is jnp
    with pytest.raises(ValueError, match="api_version"):
        x.__array_namespace__(api_version="1999.01")
