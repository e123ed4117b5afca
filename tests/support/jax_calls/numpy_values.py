"""Calls of functions of elements: elementwise, reductions, sorting, ranges, creation."""

from __future__ import annotations

from typing import Any

from tests.support.jax_calls import ALL, BOOL, INTS, REAL, Call, Draw


def unary(d: Draw) -> Call:
    return [d.array()], {}


def in_unit_interval(d: Draw) -> Call:
    return [d.array(kind="unit")], {}


def binary(d: Draw) -> Call:
    return d.arrays(2), {}


def integer_binary(d: Draw) -> Call:
    return d.arrays(2, BOOL + INTS if d.chance(0.85) else ALL), {}


def shift(d: Draw) -> Call:
    return d.arrays(2, INTS if d.chance(0.85) else ALL, "index"), {}


def power(d: Draw) -> Call:
    x, y = d.arrays(2, kind="positive")
    return [x, d.pick([2, -1, 0.5, 3.0, 0]) if d.chance(0.4) else y], {}


def operator_binary(d: Draw) -> Call:
    x, y = d.arrays(2)
    x = d.array((3,), plain=True) if not isinstance(x, dict) else x
    y = d.pick([256, -1, 2**31, -129, 2**40, 300, 0.5, True]) if d.chance(0.4) else y
    return ([x, y] if d.chance(0.7) else [y, x]), {}


def reduction(d: Draw) -> Call:
    kwargs = d.options(axis=d.axis, keepdims=lambda: d.pick([True, False]))
    if d.name in [
        "sum",
        "prod",
        "mean",
        "nansum",
        "nanprod",
        "nanmean",
        "var",
        "std",
        "nanvar",
        "nanstd",
    ]:
        kwargs |= {"dtype": d.as_dtype()} if d.chance(0.25) else {}
    if d.name.removeprefix("nan") in ("var", "std"):
        kwargs |= d.options(ddof=lambda: d.pick([0, 1, 0.5, 5]))
    if d.name in ["var", "std"] and d.chance(0.1):
        kwargs["correction"] = d.pick([0, 1, 2.0])
    shape = d.pick([(3,), (2, 3), (2, 3, 2), (0,), (2, 0), ()])
    if d.name not in [
        "ptp",
        "argmax",
        "argmin",
        "nanargmax",
        "nanargmin",
        "median",
        "nanmedian",
        "count_nonzero",
    ]:
        if d.chance(0.25):
            kwargs["where"] = d.array(d.pick([shape, shape[-1:], ()]), BOOL)
        if d.name in [
            "max",
            "min",
            "amax",
            "amin",
            "nanmax",
            "nanmin",
            "sum",
            "prod",
            "nansum",
            "nanprod",
        ] and d.chance(0.3):
            kwargs["initial"] = d.pick([0, 1.5, 1, -3, 300])
    if d.name in ("any", "all", "mean", "var", "std", "nanmean", "nanvar", "nanstd"):
        kwargs.pop("initial", None)
    kind = d.pick(["usual", "special"]) if d.name.startswith("nan") else "usual"
    return [d.array(shape, kind=kind)], kwargs


def running(d: Draw) -> Call:
    kwargs = d.options(axis=d.axis, dtype=d.as_dtype)
    if d.name.startswith("cumulative"):
        kwargs |= d.options(include_initial=lambda: d.pick([True, False]))
    return [d.array(kind="special" if "nan" in d.name else "usual")], kwargs


def quantile(d: Draw) -> Call:
    kwargs = d.options(
        axis=d.axis,
        keepdims=lambda: True,
        method=lambda: d.pick(
            ["linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "nonsense"]
        ),
    )
    q = d.pick([0.5, 1, 0, {"a": ["float32", [2], 1, "unit"]}, 0.25])
    return [d.array(d.pick([(3,), (2, 3), (4,), ()]), REAL if d.chance(0.9) else ALL), q], kwargs


def sorting(d: Draw) -> Call:
    kwargs = d.options(axis=d.axis, stable=lambda: True, descending=lambda: d.pick([True, False]))
    return [d.array()], kwargs


def nth(d: Draw) -> Call:
    return [d.array(d.pick([(3,), (4,), (2, 3)])), d.pick([0, 1, -1, 2, 7])], d.options(
        axis=d.one_axis
    )


def with_axis(d: Draw) -> Call:
    return [d.array()], d.options(axis=d.axis)


def with_one_axis(d: Draw) -> Call:
    return [d.array()], d.options(axis=d.one_axis)


def with_two_axes(d: Draw) -> Call:
    return [d.array(), d.one_axis(), d.one_axis()], {}


def on_matrices(d: Draw) -> Call:
    kwargs = d.options(k=lambda: d.pick([0, 1, -1, 2, 5]))
    return [d.array(d.pick([(3, 3), (2, 3), (3,), (2, 3, 2), (2, 0), (1, 3)]))], kwargs


def diagonals(d: Draw) -> Call:
    kwargs = d.options(offset=lambda: d.pick([0, 1, -1, 4]), axis1=d.one_axis, axis2=d.one_axis)
    if d.name == "trace" and d.chance(0.3):
        kwargs["dtype"] = d.as_dtype()
    return [d.array(d.pick([(3, 3), (2, 3), (2, 3, 2), (3,)]))], kwargs


def reshaping(d: Draw) -> Call:
    target = d.pick(
        [{"t": [-1]}, {"t": [3, 2]}, 6, -1, {"t": [1, 6, 1]}, {"t": [-1, -1]}, {"t": [4]}, []]
    )
    shape = d.pick([(2, 3), (6,), (1, 6), (0,), ()])
    kwargs = d.options(order=lambda: d.pick(["C", "F", "A"])) if d.name == "reshape" else {}
    return [d.array(shape), target], kwargs


def joining(d: Draw) -> Call:
    shapes = d.pick(
        [
            [(3,), (3,)],
            [(2, 3), (2, 3)],
            [(), ()],
            [(2, 3), (1, 3)],
            [(0,), (3,)],
            [(2, 3)],
            [(3,), (2, 3)],
            [],
        ]
    )
    parts = [d.array(s) for s in shapes]
    kwargs: dict[str, Any] = {}
    if d.name in ("concatenate", "concat", "stack"):
        kwargs |= d.options(axis=d.one_axis)
    if d.name in ("concatenate", "stack", "hstack", "vstack", "dstack") and d.chance(0.2):
        kwargs["dtype"] = d.as_dtype()
    return [d.pick([parts, {"t": parts}])], kwargs


def splitting(d: Draw) -> Call:
    where = d.pick([1, 2, 3, {"t": [1]}, {"t": [1, 2]}, [1, 5], {"t": [4, 4]}, {"t": []}, 0, -1])
    shape = d.pick([(4,), (4, 2), (2, 4, 2), (3, 3), (0,), ()])
    return [d.array(shape), where], d.options(
        axis=d.one_axis
    ) if "array" in d.name or d.name == "split" else {}


def many(d: Draw) -> Call:
    return d.arrays(d.pick([1, 2, 3])), {}


def vectors(d: Draw) -> Call:
    return [d.array((n,)) for n in d.pick([(3,), (2, 3), (2, 3, 4), (0, 2), ()])], {}


def mesh(d: Draw) -> Call:
    args, _ = vectors(d)
    return args, d.options(indexing=lambda: d.pick(["xy", "ij", "no"]), sparse=lambda: True)


def window(d: Draw) -> Call:
    return [d.pick([0, 1, 2, 5, 6, -1, 3.5])] + (
        [d.pick([0.0, 8.6, 2])] if d.name == "kaiser" else []
    ), {}


def interval(d: Draw) -> Call:
    ends = [d.array(d.pick([(), (), (2,)]), kind="positive") for _ in range(2)]
    kwargs = d.options(
        num=lambda: d.pick([0, 1, 2, 5, -1]),
        endpoint=lambda: d.pick([True, False]),
        dtype=d.as_dtype,
    )
    if d.name == "linspace":
        kwargs |= d.options(retstep=lambda: True)
    if d.name == "logspace":
        kwargs |= d.options(base=lambda: d.pick([2, 10.0, 0.5]))
    return ends, kwargs | d.options(axis=lambda: d.pick([0, -1, 3]))


def arange(d: Draw) -> Call:
    number = lambda: d.pick([0, 1, 5, -3, 2.5, 10, None, 0.5, -20, {"s": ["int16", 4]}, 3, True])
    args = [number() for _ in range(d.pick([1, 2, 3]))]
    return args, d.options(dtype=d.as_dtype, step=lambda: d.pick([1, 2, -1, 0, 3, 0.5])) if len(
        args
    ) < 3 else {}


def filled(d: Draw) -> Call:
    shape = d.pick(
        [3, {"t": []}, {"t": [2, 3]}, [2], {"t": [0]}, -1, {"s": ["int32", 2]}, {"t": [1.0]}]
    )
    value = [d.pick([0, 1.5, 300, -1, True, {"c": [1.0, 2.0]}, {"a": ["int32", [3], 1, "usual"]}])]
    return [shape, *(value if d.name == "full" else [])], d.options(dtype=d.as_dtype)


def filled_like(d: Draw) -> Call:
    value = [d.pick([0, 1.5, 300, -1, True, {"c": [0.0, 1.0]}])] if d.name == "full_like" else []
    return [d.array(), *value], d.options(dtype=d.as_dtype, shape=lambda: d.pick([{"t": [2]}, 3]))


def identities(d: Draw) -> Call:
    n = d.pick([0, 1, 3, 4, -1, 2.0])
    kwargs = d.options(dtype=d.as_dtype)
    if d.name in ("eye", "tri"):
        kwargs |= d.options(M=lambda: d.pick([2, 5, 0]), k=lambda: d.pick([0, 1, -1, 9]))
    return [n], kwargs


def index_makers(d: Draw) -> Call:
    kwargs = (
        {}
        if d.name == "diag_indices"
        else d.options(k=lambda: d.pick([0, 1, -1]), m=lambda: d.pick([2, 4]))
    )
    return [d.pick([0, 1, 3, 4, 2.0])], kwargs


def index_makers_from(d: Draw) -> Call:
    return [d.array(d.pick([(3, 3), (2, 3), (3,), (2, 2, 2)]))], {}


def converting(d: Draw) -> Call:
    thing = d.pick(
        [
            d.array(),
            [1, 2, 3],
            [[1.0, 2], [3, 4]],
            {"t": [1, True]},
            [],
            [d.array(()), 2.5],
            1,
            2.5,
            {"c": [1.0, 1.0]},
            [1, [2]],
            2**40,
        ]
    )
    kwargs = d.options(dtype=d.as_dtype)
    return [thing], kwargs | (
        d.options(ndmin=lambda: d.pick([0, 1, 3])) if d.name == "array" else {}
    )


def casting(d: Draw) -> Call:
    return [d.array(), d.as_dtype()], {}


def viewing(d: Draw) -> Call:
    return [d.array(d.pick([(4,), (2, 4), ()]), plain=True), {"d": d.pick(ALL)}], {}
