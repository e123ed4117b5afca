"""Functions in a part of Python's syntax: compiled they compute what Python computes."""

import ctypes

import pytest

from amdjax.codegen.engine import compile_ir, engine
from amdjax.codegen.llvm import PTR, Value
from amdjax.codegen.restricted import Source

TEXT = """
def amdjax_test_steps(n: i64, most: i64) -> i64:
    "How many steps lead to one; none that are more than most."
    count: i64 = 0
    while n_of(n, count) != 1:
        count = count + 1
        if count >= most:
            break
    return count

def n_of(n: i64, steps: i64) -> i64:
    value: i64 = n
    for i in range(steps):
        value = value // 2 if value % 2 == 0 else value * 3 + 1
    return value

def amdjax_test_choices(a: i64, b: i64) -> i64:
    either = a > 3 or b > 3
    both = a < b and not b == 7
    if either and (both or a == b):
        result = either_of(a, -b)
        return result + 1
    elif not either:
        if a:
            return 10
        return 20
    else:
        total: i64 = b
        for i in range(3):
            for j in range(4):
                if j > i:
                    break
                total = total + i * 10 + j
        return total
    return -5

@inline
def doubled(n):
    twice: i64 = n
    for i in range(2):
        twice = twice + n * i
    return twice

def either_of(a: i64, b: i64) -> i64:
    return a - b if a != 4 and b != -5 else doubled(a + b) | (5 << a) >> 1
"""


@pytest.fixture(scope="module")
def compiled():
    names = ["amdjax_test_steps", "amdjax_test_choices"]
    library = engine().load(compile_ir(str(Source(TEXT, {}, {}, ()))), names)
    i64 = ctypes.c_int64
    functions = [ctypes.CFUNCTYPE(i64, i64, i64)(library[name]) for name in names]
    yield functions
    del library


@pytest.fixture(scope="module")
def python():
    space = {"i64": int, "inline": lambda function: function}
    exec(TEXT, space)
    return space["amdjax_test_steps"], space["amdjax_test_choices"]


@pytest.mark.parametrize("k", [0, 1])
def test_as_in_python(compiled, python, k):
    for a in range(12):
        for b in range(12):
            args = (a + 1, 5 * b + 1) if k == 0 else (a, b)
            assert compiled[k](*args) == python[k](*args), args


def test_memory_and_calls():
    text = """
def amdjax_test_memory(words, n: i64, f) -> i64:
    own = stack(4)
    fill(own, 32, 0)
    move(own + 1, words, 8 * n)
    kept.word = own[2]
    state.at_word = words[0]
    f(own + 1, number(own, 3))
    return number(own, 0) + 1 if not own[0] and kept.word == own[2] else 0
"""
    definitions = (
        "@at_word = internal global i64 0",
        "@room = internal global [2 x i64] zeroinitializer",
    )
    constants = {"kept": Value(PTR, "@room")}
    library = engine().load(
        compile_ir(str(Source(text, constants, {}, definitions))), ["amdjax_test_memory"]
    )
    seen = []
    callback = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64), ctypes.c_int64)
    f = callback(lambda p, x: seen.append((p[0], p[1], x)))
    words = (ctypes.c_int64 * 3)(8, 21, 34)
    address = ctypes.c_void_p
    run = ctypes.CFUNCTYPE(ctypes.c_int64, address, ctypes.c_int64, address)
    run = run(library["amdjax_test_memory"])
    assert run(ctypes.addressof(words), 3, ctypes.cast(f, address)) == 0
    assert seen == [(8, 21, 34)]


def test_what_is_not_written():
    with pytest.raises(NotImplementedError, match=r"a \*\* 2"):
        str(Source("def f(a): return [a ** 2]", {}, {}, ()))
    with pytest.raises(ValueError, match="returns before its end: return 1"):
        inner = "@inline\ndef g(n):\n  if n:\n    return 1\n  return 2\n"
        str(Source(inner + "def f(n: i64) -> i64: return g(n)", {}, {}, ()))
    with pytest.raises(ValueError, match="x is assigned again"):
        str(Source("def f(n: i64):\n  x = n\n  while x:\n    x = x - 1", {}, {}, ()))
    with pytest.raises(ValueError, match="f may end without a result"):
        str(Source("def f(n: i64) -> i64:\n  while n > 0:\n    return n", {}, {}, ()))
