"""Calls of the functions of `jax.lax`, which promote nothing and take arrays of one dtype."""

from __future__ import annotations

from typing import Any

from tests.support.jax_calls import (
    ALL,
    BOOL,
    COMPLEX,
    FLOATS,
    INTS,
    PAIRS,
    REAL,
    Call,
    Draw,
    Family,
)

SMALL = ["float32", "int32", "bfloat16", "uint8", "complex64", "bool"]


def _mostly(d: Draw, dtypes: list[str]) -> list[str]:
    return dtypes if d.chance(0.85) else ALL


def of_floats(d: Draw) -> Call:
    return [d.array(dtypes=_mostly(d, FLOATS))], {}


def of_inexact(d: Draw) -> Call:
    return [d.array(dtypes=_mostly(d, FLOATS + COMPLEX), kind=d.pick(["unit", "usual"]))], {}


def of_numbers(d: Draw) -> Call:
    return [d.array(dtypes=_mostly(d, INTS + FLOATS + COMPLEX))], {}


def of_integers(d: Draw) -> Call:
    return [d.array(dtypes=_mostly(d, BOOL + INTS))], {}


def of_complex(d: Draw) -> Call:
    return [d.array(dtypes=_mostly(d, COMPLEX))], {}


def _pair(d: Draw, dtypes: list[str], kind: str = "usual") -> list[Any]:
    dtype = d.dtype(_mostly(d, dtypes))
    first, second = d.pick(PAIRS)
    second = first if d.chance(0.8) else second
    other = dtype if d.chance(0.9) else d.dtype(ALL)
    return [d.array(first, [dtype], kind, plain=True), d.array(second, [other], kind)]


def two_numbers(d: Draw) -> Call:
    return _pair(d, INTS + FLOATS + COMPLEX), {}


def two_ordered(d: Draw) -> Call:
    return _pair(d, REAL), {}


def two_floats(d: Draw) -> Call:
    return _pair(d, FLOATS, "positive"), {}


def two_integers(d: Draw) -> Call:
    return _pair(d, INTS, "index"), {}


def reducing(d: Draw) -> Call:
    bitwise = d.name in ("reduce_and", "reduce_or", "reduce_xor")
    dtypes = BOOL + INTS if bitwise else INTS + FLOATS
    shape = d.pick([(3,), (2, 3), (2, 3, 2), (2, 0)])
    return [
        d.array(shape, _mostly(d, dtypes)),
        d.pick([{"t": [0]}, [0, 1], {"t": []}, [5], [-1]]),
    ], {}


def along_axis(d: Draw) -> Call:
    shape = d.pick([(3,), (2, 3), (4,), (2, 0)])
    return [d.array(shape, _mostly(d, INTS + FLOATS))], d.options(
        axis=d.one_axis, reverse=lambda: True
    )


def arg_reducing(d: Draw) -> Call:
    shape = d.pick([(3,), (2, 3), (4,)])
    index = d.pick([{"d": "int32"}, {"d": "uint8"}, {"d": "int64"}, {"d": "float32"}])
    return [d.array(shape, REAL), d.one_axis(), index], {}


def filling(d: Draw) -> Call:
    shape = d.pick([{"t": []}, {"t": [2, 3]}, [2], {"t": [0]}, {"t": [-1]}])
    value = d.pick([0, 1.5, 300, True, d.array(())])
    return [shape, value], d.options(dtype=d.as_dtype)


def casting(d: Draw) -> Call:
    return [d.array(), d.pick([{"d": d.pick(ALL)}, {"d": d.pick(SMALL)}, None])], {}


def counting_up(d: Draw) -> Call:
    return [d.as_dtype(), d.pick([0, 1, 4, -1, 2.5])], {}


def slicing(d: Draw) -> Call:
    starts, limits = d.pick([([0], [2]), ([1], [3]), ([0, 1], [2, 3]), ([2], [1]), ([0], [9])])
    return [d.array(d.pick([(3,), (2, 3), (4,)])), starts, limits], d.options(
        strides=lambda: d.pick([[1], [2], [1, 2], [0]])
    )


def dynamic_slicing(d: Draw) -> Call:
    starts = d.pick([[0], [-1], [5], [1, 1], {"t": [2]}])
    return [d.array(d.pick([(3,), (2, 3), (4,)])), starts, d.pick([[2], [1, 2], [9], [0]])], {}


def padding(d: Draw) -> Call:
    x = d.array(d.pick([(3,), (2,)]), SMALL, plain=True)
    fill = {"a": [x[next(iter(x))][0], [], 1, "usual"]} if d.chance(0.8) else d.array(())
    edges = {"t": [d.pick([0, 1, 2, -1]), d.pick([0, 1, -2]), d.pick([0, 1, 2])]}
    return [x, fill, [edges]], {}


def broadcasting(d: Draw) -> Call:
    target = d.pick(
        [({"t": [2, 3]}, {"t": [1]}), ({"t": [3, 2]}, {"t": [0]}), ({"t": [3]}, {"t": [0]})]
    )
    return [d.array(d.pick([(3,), (1,), ()])), *target], {}


def reversing(d: Draw) -> Call:
    return [d.array(), d.pick([[0], {"t": [0, 1]}, {"t": []}, [3], [0, 0]])], {}


def permuting(d: Draw) -> Call:
    return [
        d.array(d.pick([(2, 3), (3,), (2, 3, 2)])),
        d.pick([[1, 0], [0], [2, 0, 1], [0, 0]]),
    ], {}


def reshaping(d: Draw) -> Call:
    target = d.pick([{"t": [6]}, {"t": [3, 2]}, {"t": [1, 6]}, {"t": [-1]}, {"t": [4]}])
    return [d.array(d.pick([(2, 3), (6,), (1, 6)])), target], {}


def concatenating(d: Draw) -> Call:
    dtype = d.dtype(SMALL)
    parts = [
        d.array(s, [dtype])
        for s in d.pick([[(3,), (2,)], [(2, 3), (1, 3)], [(3,)], [(2,), (2, 1)]])
    ]
    return [parts, d.pick([0, 0, 1, -1])], {}


def choosing(d: Draw) -> Call:
    shape, dtype = d.pick([(3,), (2, 3), ()]), d.dtype(SMALL)
    which = d.array(d.pick([shape, shape, ()]), BOOL, plain=True)
    return [which, *[d.array(shape, [dtype], plain=True) for _ in range(2)]], {}


def clamping(d: Draw) -> Call:
    dtype = d.dtype(_mostly(d, INTS + FLOATS))
    array = lambda shape: d.array(shape, [dtype], plain=True)
    return [array(()), array(d.pick([(3,), (2, 3)])), array(())], {}


def powers(d: Draw) -> Call:
    return [d.array(dtypes=INTS + FLOATS), d.pick([0, 1, 2, 3, -1, 1.5])], {}


def ordering(d: Draw) -> Call:
    return [d.array(d.pick([(4,), (2, 3)]))], d.options(dimension=d.one_axis)


def largest(d: Draw) -> Call:
    return [d.array(d.pick([(4,), (2, 3)]), REAL), d.pick([0, 1, 2, 9, -1])], {}


def squeezing(d: Draw) -> Call:
    return [
        d.array(d.pick([(1, 3), (3, 1), (1,), (2, 3)])),
        d.pick([[0], [1], [0, 1], [-1], [5]]),
    ], {}


def products(d: Draw) -> Call:
    dtype = d.dtype(_mostly(d, INTS + FLOATS + COMPLEX))
    shapes = d.pick([((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 2)), ((2, 3), (2, 3)), ((), (3,))])
    return [d.array(s, [dtype], plain=True) for s in shapes], {}


FAMILIES: dict[Family, str] = {
    of_floats: "floor ceil round is_finite erf erfc lgamma digamma bessel_i0e bessel_i1e erf_inv",
    of_inexact: """exp exp2 expm1 log log1p sqrt rsqrt cbrt sin cos tan sinh cosh tanh asin acos
        atan asinh acosh atanh logistic""",
    of_numbers: "neg abs sign square reciprocal stop_gradient",
    of_integers: "bitwise_not population_count clz",
    of_complex: "real imag conj",
    two_numbers: "add sub mul div eq ne pow",
    two_ordered: "max min lt le gt ge rem",
    two_floats: "atan2 nextafter igamma igammac",
    two_integers: """bitwise_and bitwise_or bitwise_xor shift_left shift_right_logical
        shift_right_arithmetic""",
    reducing: """reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce_xor""",
    along_axis: "cumsum cumprod cummax cummin cumlogsumexp",
    arg_reducing: "argmax argmin",
    filling: "full",
    casting: "convert_element_type bitcast_convert_type",
    counting_up: "iota",
    slicing: "slice",
    dynamic_slicing: "dynamic_slice",
    padding: "pad",
    broadcasting: "broadcast_in_dim",
    reversing: "rev",
    permuting: "transpose",
    reshaping: "reshape",
    concatenating: "concatenate",
    choosing: "select",
    clamping: "clamp",
    powers: "integer_pow",
    ordering: "sort",
    largest: "top_k",
    squeezing: "squeeze expand_dims",
    products: "dot",
}
