"""Calls of functions of whole arrays: products, indices, sets, statistics, matrices."""

from __future__ import annotations

from tests.support.jax_calls import ALL, BOOL, FLOATS, INTS, REAL, Call, Draw


def products(d: Draw) -> Call:
    shapes = d.pick(
        [
            ((3,), (3,)),
            ((2, 3), (3,)),
            ((2, 3), (3, 2)),
            ((2, 2, 3), (3, 1)),
            ((), (3,)),
            ((0,), (0,)),
            ((3,), (3, 2)),
            ((2, 3), (2, 3)),
            ((1, 3), (2, 3)),
        ]
    )
    dtypes = ALL if d.chance(0.6) else ["float32", "int32", "bfloat16"]
    kwargs = {"preferred_element_type": {"d": "float32"}} if d.chance(0.15) else {}
    if d.name in ("outer", "kron", "cross", "linalg.outer", "linalg.cross", "matvec", "vecmat"):
        kwargs = {}
    if d.name.endswith("tensordot"):
        kwargs |= d.options(
            axes=lambda: d.pick([0, 1, 2, {"t": [[0], [0]]}, {"t": [[-1], [0]]}, {"t": [0, 0]}])
        )
    return [d.array(s, dtypes) for s in shapes], kwargs


def einsum(d: Draw) -> Call:
    text, *shapes = d.pick(
        [
            ("ij,jk->ik", (2, 3), (3, 2)),
            ("i,i", (3,), (3,)),
            ("ii->i", (3, 3)),
            ("ij->", (2, 3)),
            ("i,j", (3,), (2,)),
            ("...i,...i->...", (2, 3), (3,)),
            ("ijk,ijl,k", (2, 2, 3), (2, 2, 2), (3,)),
            ("ij,jk", (2, 3), (2, 3)),
            ("ii", (3, 3)),
            ("a b->", (2, 3)),
            ("ij->k", (2, 3)),
        ]
    )
    return [text, *[d.array(s, plain=d.chance(0.8)) for s in shapes]], {}


def convolving(d: Draw) -> Call:
    kwargs = d.options(mode=lambda: d.pick(["full", "same", "valid", "no"]))
    return [
        d.array(d.pick([(4,), (3,), (1,), (0,), (2, 2)])),
        d.array(d.pick([(2,), (3,), (5,)])),
    ], kwargs


def polynomial(d: Draw) -> Call:
    return [d.array(d.pick([(3,), (1,), (4,), (0,)])) for _ in range(2)], {}


def polynomial_of_order(d: Draw) -> Call:
    return [d.array(d.pick([(3,), (1,), (4,), (0,), ()]))], d.options(
        m=lambda: d.pick([0, 1, 2, -1, 5, 1.5])
    )


def polyval(d: Draw) -> Call:
    return [d.array((3,)), d.array()], {}


def searching(d: Draw) -> Call:
    table = {"a": [d.dtype(REAL), [4], d.pick(range(9)), "sorted"]}
    side = d.options(
        side=lambda: d.pick(["left", "right", "no"]),
        method=lambda: d.pick(["scan", "sort", "compare_all"]),
    )
    if d.name == "digitize":
        side = d.options(right=lambda: True)
        return [d.array(dtypes=REAL), table], side
    return [table, d.array(dtypes=REAL)], side


def interpolation(d: Draw) -> Call:
    table = {"a": [d.dtype(FLOATS), [4], d.pick(range(9)), "sorted"]}
    return [d.array(dtypes=REAL), table, d.array((4,))], d.options(
        left=lambda: 0.5, right=lambda: -1, period=lambda: 4.0
    )


def taking(d: Draw) -> Call:
    index = d.array(d.pick([(), (2,), (2, 2), (0,)]), INTS if d.chance(0.9) else ALL, "index")
    return [d.array(), index], d.options(
        axis=d.axis, mode=lambda: d.pick(["clip", "wrap", "fill", "promise", "raise"])
    )


def taking_along(d: Draw) -> Call:
    shape = d.pick([(3,), (2, 3), (4,)])
    index = d.array(d.pick([shape, (2,), (1, 3)]), INTS, "index")
    return [d.array(shape), index], d.options(axis=d.axis, mode=lambda: d.pick(["clip", "fill"]))


def indexing(d: Draw) -> Call:
    piece = lambda: d.pick(
        [
            0,
            -1,
            2,
            {"slice": [None, None, -1]},
            {"slice": [1, None, None]},
            {"...": 0},
            None,
            True,
            {"slice": [0, 2, 2]},
            d.array((2,), INTS, "index"),
            {"n": ["bool", [3], 1, "usual"]},
            {"n": ["int64", [2, 1], 1, "index"]},
            [0, 1],
            1.5,
            "a",
            False,
            5,
        ]
    )
    index = piece() if d.chance(0.5) else {"t": [piece() for _ in range(d.pick([0, 1, 2, 3]))]}
    return [d.array(d.pick([(3,), (2, 3), (3, 2, 3), ()]), plain=True), index], {}


def choosing(d: Draw) -> Call:
    return [d.array(d.pick([(3,), (2, 3), ()]), BOOL if d.chance(0.8) else ALL), *d.arrays(2)], {}


def selecting(d: Draw) -> Call:
    n = d.pick([1, 2, 3])
    conditions = [d.array((3,), BOOL) for _ in range(n)]
    return [conditions, [d.array((3,)) for _ in range(n)]], d.options(
        default=lambda: d.pick([0, 1.5, -1])
    )


def finding(d: Draw) -> Call:
    return [d.array()], d.options(
        size=lambda: d.pick([0, 2, 4]), fill_value=lambda: d.pick([0, -1, 7])
    )


def filtering(d: Draw) -> Call:
    kwargs = d.options(size=lambda: d.pick([0, 2, 4]), fill_value=lambda: d.pick([0, -1]))
    return [d.array((3,), BOOL if d.chance(0.7) else ALL), d.array(d.pick([(3,), (2, 3)]))], kwargs


def unique(d: Draw) -> Call:
    kwargs = d.options(size=lambda: d.pick([0, 1, 2, 5]), fill_value=lambda: d.pick([0, 7]))
    if d.name == "unique":
        kwargs |= d.options(
            return_index=lambda: True,
            return_inverse=lambda: True,
            return_counts=lambda: True,
            axis=d.one_axis,
        )
    return [d.array(d.pick([(4,), (2, 3), (0,), ()]))], kwargs


def set_operation(d: Draw) -> Call:
    kwargs = (
        d.options(size=lambda: d.pick([0, 2, 6]), fill_value=lambda: d.pick([0, -1]))
        if d.name != "isin"
        else {}
    )
    if d.name == "intersect1d":
        kwargs |= d.options(return_indices=lambda: True)
    return [d.array(d.pick([(4,), (3,), (2, 2), (0,)]), kind="index") for _ in range(2)], kwargs


def repeating(d: Draw) -> Call:
    kwargs = d.options(axis=d.axis, total_repeat_length=lambda: d.pick([0, 4]))
    return [d.array(), d.pick([0, 1, 2, {"n": ["int32", [3], 1, "index"]}, [1, 2, 0], -1])], kwargs


def tiling(d: Draw) -> Call:
    return [d.array(), d.pick([2, {"t": [2, 1]}, {"t": []}, [0], {"t": [1, 2, 1, 1]}, -1])], {}


def rolling(d: Draw) -> Call:
    return [
        d.array(),
        d.pick([0, 1, -2, 7, {"t": [1, 2]}, {"a": ["int32", [], 1, "index"]}]),
    ], d.options(axis=lambda: d.pick([0, -1, None, {"t": [0, 1]}, 3]))


def padding(d: Draw) -> Call:
    width = d.pick([0, 1, 2, {"t": [1, 2]}, {"t": [{"t": [1, 0]}]}, -1, 1.5])
    mode = d.pick(
        [
            "constant",
            "edge",
            "linear_ramp",
            "maximum",
            "mean",
            "median",
            "minimum",
            "reflect",
            "symmetric",
            "wrap",
            "empty",
            "no",
        ]
    )
    kwargs = (
        {"constant_values": d.pick([0, 1.5, 3])} if mode == "constant" and d.chance(0.5) else {}
    )
    return [d.array(d.pick([(3,), (2, 3), (1,), ()])), width], {"mode": mode, **kwargs}


def inserting(d: Draw) -> Call:
    where = d.pick(
        [0, 1, -1, 2, {"n": ["int32", [2], 1, "index"]}, [0, 1], {"slice": [0, 2, None]}, 9, 1.5]
    )
    values = [d.array(())] if d.name == "insert" else []
    return [d.array(d.pick([(3,), (2, 3), (4,)])), where, *values], d.options(axis=d.axis)


def differences(d: Draw) -> Call:
    if d.name == "ediff1d":
        return [d.array()], d.options(
            to_end=lambda: d.pick([0, 1.5]), to_begin=lambda: d.pick([7, 0.5])
        )
    if d.name == "gradient":
        return [d.array(d.pick([(3,), (2, 3), (4, 2), (1,)]))], d.options(axis=d.axis)
    if d.name == "trapezoid":
        return [d.array()], d.options(
            x=lambda: d.array((3,)), dx=lambda: d.pick([2, 0.5]), axis=d.one_axis
        )
    if d.name == "unwrap":
        return [d.array()], d.options(
            axis=d.one_axis, period=lambda: d.pick([2, 4.0]), discont=lambda: 3.0
        )
    return [d.array()], d.options(
        n=lambda: d.pick([0, 1, 2, -1]), axis=d.one_axis, prepend=lambda: d.pick([0, 1.5])
    )


def histogram(d: Draw) -> Call:
    kwargs = d.options(
        range=lambda: d.pick([{"t": [0, 3]}, {"t": [-1.0, 2.0]}, {"t": [1]}]),
        bins=lambda: d.pick([3, 10, {"a": ["float32", [4], 3, "sorted"]}, 0]),
    )
    if d.name == "histogram":
        kwargs |= d.options(density=lambda: True)
    return [
        d.array(d.pick([(4,), (2, 3), (0,)]), REAL)
        for _ in range(2 if d.name == "histogram2d" else 1)
    ], kwargs


def counting(d: Draw) -> Call:
    kwargs = d.options(
        weights=lambda: d.array((4,), plain=True),
        minlength=lambda: d.pick([0, 5, -1]),
        length=lambda: 3,
    )
    return [
        d.array(d.pick([(4,), (4,), (0,), (2, 2)]), BOOL + INTS if d.chance(0.9) else ALL, "index")
    ], kwargs


def covariance(d: Draw) -> Call:
    kwargs = d.options(rowvar=lambda: d.pick([True, False]))
    if d.name == "cov":
        kwargs |= d.options(bias=lambda: True, ddof=lambda: d.pick([0, 1, 2]))
    return [d.array(d.pick([(3,), (2, 3), (1, 4), (2, 0), ()]))], kwargs


def average(d: Draw) -> Call:
    kwargs = d.options(
        axis=d.axis,
        weights=lambda: d.array(d.pick([(3,), (2, 3)]), kind="positive"),
        returned=lambda: True,
        keepdims=lambda: True,
    )
    return [d.array(d.pick([(3,), (2, 3)]))], kwargs


def nearly_equal(d: Draw) -> Call:
    return d.arrays(2), d.options(equal_nan=lambda: True) | (
        d.options(rtol=lambda: 0.5, atol=lambda: 1.0) if "close" in d.name else {}
    )


def clipping(d: Draw) -> Call:
    limit = lambda: d.pick([0, 1, -5, 300, 0.5, None, d.array(())])
    return [d.array(), limit(), limit()], {}


def rounding(d: Draw) -> Call:
    return [d.array()], d.options(decimals=lambda: d.pick([0, 1, -1, 2]))


def cleaning(d: Draw) -> Call:
    return [d.array(kind="special")], d.options(
        nan=lambda: d.pick([0, 1.5]), posinf=lambda: 7, neginf=lambda: -1.0
    )


def moving(d: Draw) -> Call:
    ways = d.pick([(0, -1), ({"t": [0, 1]}, {"t": [1, 0]}), (1, 0), (0, 5), ([0], [0, 1])])
    return [d.array(d.pick([(2, 3), (2, 3, 2), (3,)])), *ways], {}


def permuting(d: Draw) -> Call:
    axes = d.pick(
        [{"t": [1, 0]}, {"t": [0, 1]}, {"t": [2, 0, 1]}, {"t": [0]}, {"t": [0, 0]}, {"t": [-1, 0]}]
    )
    return [d.array(d.pick([(2, 3), (2, 3, 2), (3,)])), axes], {}


def broadcasting(d: Draw) -> Call:
    return [
        d.array(d.pick([(3,), (1, 3), (3, 1), ()])),
        d.pick([{"t": [2, 3]}, 3, {"t": [3, 3]}, {"t": []}, [3]]),
    ], {}


def packing(d: Draw) -> Call:
    kwargs = d.options(axis=d.axis, bitorder=lambda: d.pick(["big", "little", "no"]))
    if d.name == "unpackbits":
        kwargs |= d.options(count=lambda: d.pick([3, -2, 20]))
        return [d.array(dtypes=["uint8"] if d.chance(0.8) else ALL)], kwargs
    return [d.array(dtypes=BOOL + INTS if d.chance(0.9) else ALL)], kwargs


def raveled_indices(d: Draw) -> Call:
    if d.name == "unravel_index":
        return [
            d.array(dtypes=INTS, kind="index"),
            d.pick([{"t": [2, 3]}, 4, {"t": [3, 0]}, [2, 2]]),
        ], {}
    index = {"t": [d.array((3,), INTS, "index") for _ in range(2)]}
    return [index, {"t": [2, 3]}], d.options(
        mode=lambda: d.pick(["clip", "wrap", "raise"]), order=lambda: "F"
    )


def applying(d: Draw) -> Call:
    if d.name == "apply_along_axis":
        return [
            {"f": d.pick(["sum", "sort", "negate"])},
            d.one_axis(),
            d.array(d.pick([(3,), (2, 3)])),
        ], {}
    return [{"f": "sum"}, d.array((2, 3)), d.pick([[0], {"t": [0, 1]}, 0])], {}


def exponents(d: Draw) -> Call:
    return [
        d.array(dtypes=FLOATS if d.chance(0.7) else ALL),
        d.array(d.pick([(), (3,)]), INTS, "index"),
    ], {}


def dtype_question(d: Draw) -> Call:
    thing = lambda: d.pick(
        [
            {"d": d.pick(ALL)},
            d.pick(ALL),
            {"scalar": d.pick(["float32", "int8", "bfloat16"])},
            {"type": d.pick(["int", "float", "bool", "complex"])},
            d.array(),
            1,
            2.5,
            None,
        ]
    )
    return [thing() for _ in range(d.pick([1, 2, 3]) if d.name == "result_type" else 2)], {}


def replacing(d: Draw) -> Call:
    x = d.array(d.pick([(4,), (2, 3)]), plain=True)
    inplace = {"inplace": False} if d.chance(0.9) else {}
    index = d.array((2,), INTS, "index")
    if d.name == "put":
        return [x, index, d.array((2,))], inplace | d.options(
            mode=lambda: d.pick(["clip", "wrap", "raise"])
        )
    if d.name == "put_along_axis":
        return [
            x,
            d.array(d.pick([(2,), (2, 3)]), INTS, "index"),
            d.array(()),
            d.one_axis(),
        ], inplace
    if d.name == "place":
        return [x, d.array(d.pick([(4,), (2, 3)]), BOOL), d.array((2,))], inplace
    return [
        d.array(d.pick([(3, 3), (2, 3), (2, 2, 2), (3,)])),
        d.array(d.pick([(), (2,)])),
    ], inplace


def square(d: Draw) -> Call:
    dtypes = ["float32", "float64", "complex64", "int32"] if d.chance(0.9) else ALL
    shape = (
        d.pick([(3, 3), (2, 2), (2, 2, 2), (1, 1), (0, 0)])
        if d.chance(0.9)
        else d.pick([(2, 3), (3,)])
    )
    kind = "definite" if shape[-2:] and len(shape) > 1 and shape[-1] == shape[-2] else "usual"
    x = {d.pick(["a", "a", "n"]): [d.dtype(dtypes), list(shape), d.pick(range(50)), kind]}
    if d.name == "linalg.matrix_power":
        return [x, d.pick([0, 1, 2, -1, 3, 1.5])], {}
    if d.name in ("linalg.solve", "linalg.lstsq", "linalg.tensorsolve"):
        return [
            x,
            d.array(d.pick([(3,), (2,), (3, 2), (2, 2)]), ["float32", "float64", "complex64"]),
        ], {}
    if d.name == "linalg.cond":
        return [x], d.options(p=lambda: d.pick([1, 2, -2, "fro", None]))
    return [x], {}


def norm(d: Draw) -> Call:
    kwargs = d.options(
        axis=d.axis,
        keepdims=lambda: True,
        ord=lambda: d.pick([1, 2, -1, 0, 3, "fro", "nuc", 0.5, "no", -2]),
    )
    if d.name == "linalg.matrix_norm":
        kwargs.pop("axis", None)
    return [d.array(d.pick([(3,), (2, 3), (2, 3, 2), (3, 3)]))], kwargs


def fft(d: Draw) -> Call:
    kwargs = d.options(
        n=lambda: d.pick([2, 5, 0, 3]),
        axis=d.one_axis,
        norm=lambda: d.pick(["ortho", "forward", "no"]),
    )
    return [d.array(d.pick([(4,), (3,), (2, 4), (1,), (2, 3, 2)]))], kwargs


def fftn(d: Draw) -> Call:
    kwargs = d.options(
        s=lambda: d.pick([{"t": [2, 3]}, {"t": [4]}]),
        axes=lambda: d.pick([{"t": [0, 1]}, {"t": [-1]}, {"t": [0, 0]}]),
        norm=lambda: d.pick(["ortho", "backward"]),
    )
    return [d.array(d.pick([(4, 2), (2, 3), (2, 3, 2), (3,)]))], kwargs


def frequencies(d: Draw) -> Call:
    return [d.pick([0, 1, 4, 5, -1, 2.5])], d.options(
        d=lambda: d.pick([0.5, 2, 0]), dtype=d.as_dtype
    )


def method(d: Draw) -> Call:
    return [d.array(plain=True)], {}


def scattering(d: Draw) -> Call:
    return indexing(d)
