"""Calls of the functions of `jax.nn`."""

from __future__ import annotations

from tests.support.jax_calls import BOOL, FLOATS, INTS, Call, Draw, Family

USUAL = ["float32", "float32", "bfloat16", "float16", "float64", "int32"]


def activation(d: Draw) -> Call:
    return [d.array(dtypes=d.pick([USUAL, USUAL, FLOATS, INTS + BOOL]))], {}


def slope(d: Draw) -> Call:
    return [d.array(dtypes=USUAL)], d.options(**{_SLOPES[d.name]: lambda: d.pick([0.5, 2, 1.5])})


_SLOPES = {"elu": "alpha", "celu": "alpha", "leaky_relu": "negative_slope", "squareplus": "b"}


def gelu(d: Draw) -> Call:
    return [d.array(dtypes=USUAL)], d.options(approximate=lambda: d.pick([True, False]))


def halving(d: Draw) -> Call:
    return [d.array(d.pick([(4,), (2, 4), (4, 2), (0,), (3,)]), USUAL)], d.options(axis=d.one_axis)


def attending(d: Draw) -> Call:
    batch, heads = d.pick([[], [2]]), d.pick([1, 2])
    dtype = d.pick(["float32", "float32", "bfloat16", "float16"])
    of = lambda n: {"a": [dtype, [*batch, n, heads, 4], d.random.randrange(100), "usual"]}
    kwargs = d.options(scale=lambda: 0.5, is_causal=lambda: True, implementation=lambda: d.pick(
        ["xla", "no"]), bias=lambda: {"a": [dtype, [heads, 3, 5], 1, "usual"]})  # fmt: skip
    if batch:
        kwargs |= d.options(
            mask=lambda: {"a": ["bool", [2, 1, 3, 5], 1, "usual"]},
            query_seq_lengths=lambda: {"a": ["int32", [2], 3, "positive"]},
            local_window_size=lambda: d.pick([1, {"t": [1, 0]}]),
        )
    return [of(3), of(5), of(5)], kwargs


def along_axis(d: Draw) -> Call:
    where = lambda: {"a": ["bool", [3], d.random.randrange(100), "usual"]}
    options = d.options(axis=d.axis, where=where)
    return [d.array(d.pick([(3,), (2, 3), (3, 1), (2, 0), ()]), USUAL)], options


def one_hot(d: Draw) -> Call:
    x = d.array(d.pick([(), (3,), (2, 2)]), ["int32", "uint8", "float32"], "index")
    return [x, d.pick([3, 1, 0, 5])], d.options(axis=d.one_axis, dtype=d.as_dtype)


def standardize(d: Draw) -> Call:
    x = d.array(d.pick([(3,), (2, 3), (2, 3, 2)]), USUAL)
    return [x], d.options(
        axis=d.axis, epsilon=lambda: 0.1, algorithm=lambda: d.pick(["fast", "stable", "no"])
    )


FAMILIES: dict[Family, str] = {
    activation: """relu relu6 sigmoid softplus soft_sign silu log_sigmoid hard_tanh hard_sigmoid
        hard_silu hard_swish swish selu mish sparse_plus sparse_sigmoid log1mexp tanh identity""",
    halving: "glu",
    attending: "dot_product_attention",
    slope: "elu celu leaky_relu squareplus",
    gelu: "gelu",
    along_axis: "softmax log_softmax logsumexp logmeanexp",
    one_hot: "one_hot",
    standardize: "standardize",
}
