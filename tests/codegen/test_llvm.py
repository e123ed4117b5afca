"""The writer of LLVM IR: literals, types, blocks; every module here is verified by LLVM."""

import ctypes
import math

import llvmlite.binding as binding
import numpy as np
import pytest

from amdjax.codegen import llvm
from amdjax.codegen.engine import compile_ir, engine
from amdjax.codegen.llvm import F32, F64, I1, I8, I32, I64, PTR, VOID, Module, Type, Value, const


def verified(module):
    text = str(module)
    binding.parse_assembly(text).verify()
    return text


def function(body, arguments=(("x", I64),), result=I64):
    """The compiled function `body(f, *args)` writes."""
    module = Module()
    f = module.function("f", list(arguments), result)
    out = body(f, *f.args)
    f.ret(out)
    library = engine().load(compile_ir(verified(module)), ["f"])
    types = {"i64": ctypes.c_int64, "double": ctypes.c_double, "float": ctypes.c_float}
    call = ctypes.CFUNCTYPE(types[result.elem], *(types[t.elem] for _, t in arguments))(
        library["f"]
    )
    call.library = library
    return call


@pytest.mark.parametrize("type,x,text", [
    (I32, -1, "i32 -1"), (I8, 255, "i8 -1"), (I8, 300, "i8 44"), (I1, True, "i1 true"),
    (I64, 1 << 63, "i64 -9223372036854775808"), (F64, 1.0, "double 0x3FF0000000000000"),
    (F64, -0.0, "double 0x8000000000000000"), (F32, 0.1, "float 0x3FB99999A0000000"),
    (F32, 1e300, "float 0x7FF0000000000000"), (F32, -math.inf, "float 0xFFF0000000000000"),
    (llvm.F16, 1.5, "half 0xH3E00"), (llvm.BF16, 1.5, "bfloat 0xR3FC0"), (PTR, 0, "ptr null"),
    (Type("i32", 4), 7, "<4 x i32> splat (i32 7)"),
])  # fmt: skip
def test_constants(type, x, text):
    assert str(const(type, x)) == text


def test_constants_mean_what_they_say():
    for x in [0.1, -0.0, 1e-320, math.inf, math.pi]:
        got = function(lambda f, x=x: const(F64, x), (), F64)()
        assert got == x and math.copysign(1, got) == math.copysign(1, x)
    assert math.isnan(function(lambda f: const(F64, math.nan), (), F64)())
    assert function(lambda f: const(F32, 0.1), (), F32)() == np.float32(0.1)


@pytest.mark.parametrize("type,text,suffix,bits", [
    (Type("float", 16), "<16 x float>", "v16f32", 32), (F64, "double", "f64", 64),
    (PTR, "ptr", "p0", 64), (Type("ptr addrspace(3)", 2), "<2 x ptr addrspace(3)>", "v2p3", 64),
    (Type("bfloat", 8), "<8 x bfloat>", "v8bf16", 16), (I1, "i1", "i1", 1),
])  # fmt: skip
def test_types(type, text, suffix, bits):
    assert (str(type), type.suffix, type.bits) == (text, suffix, bits)
    assert type.with_lanes(0).lanes == 0 and type.with_elem("i8").elem == "i8"


def test_operators_follow_the_type():
    f = Module().function("f", [("a", I32), ("b", F32), ("v", Type("float", 4))])
    a, b, v = f.args
    f.add(a, a), f.add(b, b), f.mul(v, v), f.sub(a, a)
    f.ret()
    text = str(f)
    for line in ["add i32", "fadd float", "fmul <4 x float>", "sub i32"]:
        assert line in text


def test_loop():
    def triangle(f, n):
        return f.loop(const(I64, 0), n, 1, [const(I64, 0)], lambda i, c: [f.add(c[0], i)])[0]

    call = function(triangle)
    assert [call(n) for n in (-1, 0, 1, 10)] == [0, 0, 0, 45]


@pytest.mark.parametrize("start,stop", [(0, 3), (0, 1), (2, 2), (3, 1), (0, None), (1, None)])
def test_loops_that_ask_behind_each_round(start, stop):
    """The carried values are those of no round where there is none, known or not."""

    def sums(f, n):
        end = n if stop is None else const(I64, stop)
        body = lambda i, c: [f.add(c[0], i), c[0]]
        total, before = f.rotated_loop(const(I64, start), end, 2, [n, const(I64, -1)], body)
        return f.add(f.mul(total, const(I64, 1000)), before)

    def want(n):
        total, before = n, -1
        for i in range(start, n if stop is None else stop, 2):
            total, before = total + i, total
        return total * 1000 + before

    call = function(sums)
    assert [call(n) for n in (-1, 0, 1, 10)] == [want(n) for n in (-1, 0, 1, 10)]


def test_nested_loops():
    def body(f, n):
        def outer(i, c):
            return f.loop(i, n, 2, c, lambda j, d: [f.add(d[0], f.mul(i, j))])

        return f.loop(const(I64, 0), n, 1, [const(I64, 0)], outer)[0]

    want = sum(i * j for i in range(7) for j in range(i, 7, 2))
    assert function(body)(7) == want


def test_while_and_if():
    def steps(f, n):
        def body(c):
            x, count = c
            odd = f.icmp("ne", f.and_(x, const(I64, 1)), const(I64, 0))
            (x,) = f.if_(
                odd,
                lambda: [f.add(f.mul(x, const(I64, 3)), const(I64, 1))],
                lambda: [f.ashr(x, const(I64, 1))],
            )
            return [x, f.add(count, const(I64, 1))]

        test = lambda c: f.icmp("ne", c[0], const(I64, 1))
        return f.while_loop([n, const(I64, 0)], test, body)[1]

    assert function(steps)(27) == 111


def test_stack_storage_does_not_grow_in_loops():
    def body(f, n):
        def turn(i, c):
            slot = f.alloca(I64)
            f.store(i, slot)
            return [f.add(c[0], f.load(I64, slot))]

        return f.loop(const(I64, 0), n, 1, [const(I64, 0)], turn)[0]

    assert function(body)(3_000_000) == sum(range(3_000_000))


@pytest.mark.parametrize("name,signed,x,want", [
    ("i8", True, 200, -56), ("i8", False, 200, 200), ("i16", True, 70_000, 4464),
    ("i64", True, -5, -5),
])  # fmt: skip
def test_resizing_integers(name, signed, x, want):
    def body(f, v):
        return f.int_resize(f.int_resize(v, name, signed), "i64", signed)

    assert function(body)(x) == want


def test_vectors():
    def body(f, x):
        v = f.add(f.splat(x, 4), llvm.vector("i64", [0, 1, 2, 3]))
        v = f.shuffle(v, None, [3, 2, 1, 0])
        v = f.insert(v, const(I64, 100), 1)
        return f.add(f.reduce("add", v), f.extract(v, 0))

    assert function(body)(10) == 13 + 100 + 11 + 10 + 13


def test_splat_of_constants_and_values():
    f = Module().function("f", [("x", F32)])
    assert f.splat(const(F32, 1.0), 4).type == Type("float", 4)
    assert f.splat(f.args[0], 4).type == Type("float", 4)
    f.ret()


def test_declarations_are_written_once_and_not_for_definitions():
    module = Module()
    g = module.function("g", [("x", F32)], F32)
    g.ret(g.args[0])
    f = module.function("f", [("x", F32)], F32)
    y = f.intrinsic("sqrt", F32, f.intrinsic("sqrt", F32, f.args[0]))
    f.ret(f.call("g", F32, y))
    text = verified(module)
    assert text.count("declare") == 1 and "declare float @llvm.sqrt.f32(float)" in text


def test_module_parts_appear():
    module = Module(triple="x86_64-unknown-linux-gnu")
    f = module.function("f", [], I32, attributes="nounwind", linkage="internal")
    f.ret(const(I32, 3))
    text = verified(module)
    assert 'target triple = "x86_64-unknown-linux-gnu"' in text
    assert "define internal i32 @f() nounwind" in text


def test_text_of_a_function():
    module = Module()
    f = module.function("f", [("p", PTR)], VOID, arg_attributes=["noalias"])
    f.store(Value(I32, "7"), f.args[0], 4)
    f.ret()
    assert str(f).splitlines() == [
        "define void @f(ptr noalias %p)  {",
        "entry:",
        "  store i32 7, ptr %p, align 4",
        "  ret void",
        "}",
    ]
