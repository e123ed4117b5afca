"""Packed integer dot products and 8-bit floats."""

import ml_dtypes
import numpy as np
import pytest
from emulation import TARGETS, compiled, elementwise, run


@pytest.mark.parametrize("gfx", TARGETS)
def test_dot4(gfx):
    if gfx == "gfx942":
        name, extra = "llvm.amdgcn.sdot4", ""
        body = f"  %r = call i32 @{name}(i32 %x0, i32 %x1, i32 %x2, i1 false)"
        declare = f"declare i32 @{name}(i32, i32, i32, i1)"
    else:
        name, extra = "llvm.amdgcn.sudot4", "i1 true, "
        body = f"  %r = call i32 @{name}({extra}i32 %x0, {extra}i32 %x1, i32 %x2, i1 false)"
        declare = f"declare i32 @{name}(i1, i32, i1, i32, i32, i1)"
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (2, 64, 4)).astype(np.int8)
    c, out = rng.integers(-100, 100, 64).astype(np.int32), np.zeros(64, np.int32)
    run(compiled(elementwise(body, "i32 i32 i32", "i32") + declare, gfx), 1, 64, out, a, b, c)
    np.testing.assert_array_equal(out, (a.astype(np.int32) * b).sum(1) + c)


FLOAT8 = {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz}


@pytest.mark.parametrize("name", FLOAT8)
def test_decode_float8(name):
    body = "\n".join(
        f"  %f{i} = call float @llvm.amdgcn.cvt.f32.{name}(i32 %x0, i32 {i})\n"
        f"  %r{i} = insertelement <4 x float> {'%r' + str(i - 1) if i else 'poison'}, "
        f"float %f{i}, i32 {i}"
        for i in range(4)
    )
    body += "\n  %r = shufflevector <4 x float> %r3, <4 x float> poison, "
    body += "<4 x i32> <i32 0, i32 1, i32 2, i32 3>"
    declare = f"declare float @llvm.amdgcn.cvt.f32.{name}(i32, i32)"
    x, out = np.arange(256, dtype=np.uint8), np.zeros(256, np.float32)
    run(compiled(elementwise(body, "i32", "<4 x float>") + declare, "gfx942"), 1, 64, out, x)
    np.testing.assert_array_equal(out, x.view(FLOAT8[name]).astype(np.float32))


@pytest.mark.parametrize("name", FLOAT8)
def test_encode_float8(name):
    body = f"  %r = call i32 @llvm.amdgcn.cvt.pk.{name}.f32(float %x0, float %x1, i32 %x2, i1 true)"
    declare = f"declare i32 @llvm.amdgcn.cvt.pk.{name}.f32(float, float, i32, i1)"
    rng = np.random.default_rng(1)
    a, b = np.ldexp(rng.standard_normal((2, 256)), rng.integers(-20, 8, (2, 256))).astype("f")
    a[:4] = 0.0, -0.0, np.nan, -1e-12
    old, out = np.full(256, 0x1234, np.uint32), np.zeros(256, np.uint32)
    code = compiled(elementwise(body, "float float i32", "i32") + declare, "gfx942")
    run(code, 4, 64, out, a, b, old)
    want = [x.astype(FLOAT8[name]).view(np.uint8).astype(np.uint32) for x in (a, b)]
    np.testing.assert_array_equal(out, want[0] << 16 | want[1] << 24 | 0x1234)
