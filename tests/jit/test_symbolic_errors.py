"""Mistakes about symbolic shapes are named, with what to do, and sizes beyond 32 bits are right."""

import math
import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core.errors import InconclusiveDimensionOperation

Struct = amdjax.ShapeDtypeStruct

SHAPES = {
    "less": ((-1, 3), ValueError, "of shape (-1, 3): axis 0 is -1. Shapes must be"),
    "read less": ((3, "-1"), ValueError, "axis 1 is -1"),
    "nothing": ((None, 3), TypeError, "of shape (None, 3): axis 0 is None. Shapes must be"),
    "a fraction": ((3, 2.5), TypeError, "axis 1 is 2.5. Shapes must be"),
    "two names": (("b b",), ValueError, "of shape ('b b',): syntax error in symbolic dimension"),
    "a blank": (("_", 4), ValueError, "'_' is the size of an array that is given; name it"),
    "dots": (("...",), ValueError, "'...' is the size of an array that is given; name it"),
    "no integer of 64 bits": ((2**63,), ValueError, "less than 2**63"),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "trace",
    [
        lambda spec: amdjax.jit(jnp.sin).lower(spec),
        lambda spec: amdjax.export.export(amdjax.jit(jnp.sin))(spec),
        lambda spec: amdjax.eval_shape(jnp.sin, spec),
        lambda spec: amdjax.make_jaxpr(jnp.sin)(spec),
    ],
)
def test_shapes_that_are_none(name, trace):
    shape, error, words = SHAPES[name]
    with pytest.raises(error, match=re.escape(words)):
        trace(Struct(shape, jnp.float32))


def test_texts_are_read_wherever_functions_are_traced():
    x, y = Struct(("b", 4), jnp.float32), Struct(("2*b", 4), jnp.float32)
    out = amdjax.eval_shape(lambda x, y: jnp.concatenate([x, y]), x, y)
    assert str(out.shape) == "(3*b, 4)"
    assert str(amdjax.make_jaxpr(jnp.sin)(x).out_avals) == "[ShapedArray(float32[b,4])]"


def product(x, w):
    return x @ w


OPTIONS = {
    "a name": (dict(symbolic={"y": "b, t"}), "symbolic names 'y', but product takes ['w', 'x']"),
    "a shape": (dict(symbolic={"x": "b t"}), "symbolic['x'] is 'b t': syntax error in symbolic"),
    "for all": (dict(symbolic="b,,t"), "symbolic is 'b,,t': "),
    "a number": (dict(symbolic={"x": 3}), "symbolic['x'] must be a text as 'b, 128', or a pytree"),
    "a tuple": (
        dict(symbolic={"x": ("b", "t")}),
        "no prefix of the argument 'x', which is one array: say its shape by one text, 'b, t'"),
    "an axis less": (
        dict(symbolic={"x": "b"}),
        "argument 'x' of shape (2, 3) is said to have the shape 'b', of 1 dimensions, and has 2"),
    "a bucket": (
        dict(symbolic={"x": "b, t"}, buckets={"T": [8]}),
        "buckets names 'T', which no shape has; the variables of symbolic= are ['b', 't']"),
    "a constraint": (
        dict(symbolic={"x": "b, t"}, constraints=["T >= 2"]),
        "size of 'T', of which a constraint speaks; the variables are ['b', 't']"),
    "violated": (
        dict(symbolic={"x": "b, t"}, constraints=["t >= 5"]),
        "the constraint 't >= 5' does not hold where b = 2, t = 3\n  axis 0 of 'x' is 2"),
    "dynamic": (dict(dynamic="Auto"), 'dynamic must be "auto", "off" or None, got \'Auto\''),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_mistakes_in_options(name):
    options, words = OPTIONS[name]
    with pytest.raises(ValueError, match=re.escape(words)):
        amdjax.jit(product, **options)(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32))


NUMBERS = {
    "arange": (lambda x: x * np.arange(x.shape[0]), "numpy.arange", "use amdjax.numpy.arange"),
    "range": (lambda x: [x[i] for i in range(x.shape[0])], "constant", "lax.fori_loop"),
    "len": (lambda x: x * len(x), "constant", "instead of int(n), len(x)"),
    "iteration": (lambda x: sum(x), "constant", "lax.scan"),
    "zeros": (lambda x: x + np.zeros(x.shape), "constant", "jnp.zeros(n)"),
    "math": (lambda x: x * math.sqrt(x.shape[0]), "constant", "jnp.sqrt(n)"),
    "ufunc": (lambda x: x * np.sqrt(x.shape[0]), "numpy.sqrt", "use amdjax.numpy.sqrt"),
    "if": (lambda x: x if x.shape[0] > 100 else -x, "'n' > '100'", "constraint 'n > 100' or 'n <="),
    "hundreds": (lambda x: x * round(x.shape[0], -2), "constant", "with the dimension itself"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_where_a_number_is_needed(name):
    """The error tells the dimension, the user's line and what to write instead."""
    function, *words = NUMBERS[name]
    with pytest.raises(InconclusiveDimensionOperation) as error:
        amdjax.jit(function, symbolic="n")(np.ones(16, np.float32))
    line = f"test_symbolic_errors.py:{function.__code__.co_firstlineno}"
    for word in (*words, "'n'", line):
        assert word in str(error.value), error.value


def test_integers_of_python_and_numpy():
    """What needs no number has the value that it has for sizes that are known."""
    functions = [
        lambda x: x * (np.int64(3) * x.shape[0]),
        lambda x: x * (np.float32(7.5) - x.shape[0]),
        lambda x: x * (np.float32(2) ** x.shape[0]),
        lambda x: x * (np.int32(20) // x.shape[0]) + np.int32(20) % x.shape[0],
        lambda x: x * (np.float32(3) / x.shape[0]),
        lambda x: np.arange(3.0)[:, None] / x.shape[0] + x,
        lambda x: x * (np.int32(4) < x.shape[0]) + (np.arange(4)[:, None] >= x.shape[0]),
        lambda x: x * (np.int32(5) == x.shape[0]) + (np.arange(9)[:, None] != x.shape[0]),
        lambda x: x * round(x.shape[0]) + math.floor(x.shape[0]) - math.ceil(x.shape[0] // 2),
        lambda x: x * (x.shape[0] / 2) + jnp.arange(x.shape[0]),
    ]
    for function in functions:
        f = amdjax.jit(function, symbolic="n")
        for n in (6, 5, 9, 4):
            x = np.linspace(1, 2, n, dtype=np.float32)
            np.testing.assert_allclose(f(x), function(x), rtol=2e-6)
    texts = []
    amdjax.eval_shape(
        lambda x: texts.append(f"{x.shape[0]:5d}|{x.size:,d}"), Struct(("n", 2), jnp.int8)
    )
    assert texts == ["    n|2*n"]


def test_more_elements_than_32_bits_count():
    """The product is never in memory; its last elements are 9, which few tiles know."""
    x, y = np.ones(2**16, np.int8), np.ones(2**15 + 1, np.int8)
    x[-1] = y[-1] = 3
    f = amdjax.jit(
        lambda x, y: (x[:, None] * y).reshape(-1)[-y.shape[0] - 2 :], symbolic=("b", "t")
    )
    f(x[:64], y[:32])
    np.testing.assert_array_equal(f(x, y), [1, 3, *[3] * 2**15, 9])
    lowered = amdjax.jit(lambda x: x * 2).lower(Struct(("b", 4), jnp.float32)).compile()
    costs = lowered.cost_analysis()["bytes accessed"]
    assert costs.evaluate({"b": 2**31 - 1}) == 2 * 16 * (2**31 - 1)
    large = lowered.at({"b": 2**31 + 5})  # sizes beyond those of variables are traced apart
    assert large.memory_analysis().argument_size_in_bytes == 16 * (2**31 + 5)
