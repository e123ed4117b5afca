"""Calls of the functions of `jax.lax` that move, contract, window, gather and scatter."""

from __future__ import annotations

from typing import Any

from tests.support.jax_calls import ALL, BOOL, COMPLEX, FLOATS, INTS, REAL, Call, Draw, Family, Spec

PREFIX = "lax"
SMALL = ["float32", "float32", "int32", "bfloat16", "uint8", "complex64", "bool"]
NUMBERS = ["float32", "float32", "int32", "bfloat16", "float16", "uint8", "complex64", "float64"]
MODES_OF_INDEX = ["clip", "fill", "promise_in_bounds", "wrap", "no"]


def _same(d: Draw, shapes: Any, dtypes: list[str], kind: str = "usual") -> list[Spec]:
    """Arrays of one dtype, now and then of two."""
    dtype = d.dtype(dtypes)
    found = [d.array(s, [dtype], kind, plain=True) for s in shapes]
    if d.chance(0.05):
        found[-1] = d.array(shapes[-1], ALL, kind, plain=True)
    return found


def _index(d: Draw, shape: Any = ()) -> Spec:
    return d.array(shape, ["int32", "int32", "uint8", "int64"], "index", plain=True)


def of_two_sizes(d: Draw) -> Call:
    return _same(d, d.pick([[(), ()], [(3,), (3,)], [(2, 0), (2, 0)]]), d.pick([FLOATS, INTS])), {}


def of_three(d: Draw) -> Call:
    kind = d.pick(["unit", "positive"])
    return _same(d, [d.pick([(), (3,), (2, 3), (0,)])] * 3, FLOATS, kind), {}


def special_pair(d: Draw) -> Call:
    return _same(d, [d.pick([(), (3,), (2, 3), (0,)])] * 2, FLOATS, d.pick(["positive"])), {}


def complex_parts(d: Draw) -> Call:
    dtypes = ["float32", "float32", "float64", "float16"]
    return _same(d, [d.pick([(), (3,), (2, 0)])] * 2, dtypes), {}


def best_of_row(d: Draw) -> Call:
    x = d.array(d.pick([(4,), (2, 3), (3, 1)]), ["float32", "bfloat16", "int32"], plain=True)
    return [x, d.pick([1, 2, 0, 9])], d.options(
        reduction_dimension=d.one_axis, aggregate_to_topk=lambda: True
    )


def matrices(d: Draw) -> Call:
    shapes = d.pick(
        [[(2, 2, 3), (2, 3, 1)], [(2, 3), (3, 2)], [(1, 2, 0), (1, 0, 2)], [(3,), (3,)]]
    )
    return _same(d, shapes, NUMBERS), {}


def broadcasting(d: Draw) -> Call:
    return [d.array(), d.pick([{"t": [2]}, [2, 3], {"t": []}, {"t": [0]}, [-1]])], {}


def shapes_alone(d: Draw) -> Call:
    shape = lambda: {"t": d.pick([[2, 3], [3], [1, 3], [], [0], [2, 1]])}
    return [shape() for _ in range(d.pick([1, 2, 3]))], {}


def ranking(d: Draw) -> Call:
    return [d.array(), d.pick([3, 2, 1, 0])], {}


def counting_up(d: Draw) -> Call:
    shape = d.pick([{"t": [2, 3]}, [3], {"t": []}, {"t": [0, 2]}, {"t": [-1]}])
    return [d.as_dtype(), shape, d.pick([0, 1, -1, 3])], {}


def collapsing(d: Draw) -> Call:
    ends = d.pick([[0, 2], [1, 3], [0], [1], [0, -1], [2, 1], [0, 9]])
    return [d.array(d.pick([(2, 3, 2), (2, 3), (0, 2, 1)])), *ends], {}


def dot_general(d: Draw) -> Call:
    lhs, rhs, contract, batch = d.pick(
        [
            ((2, 3), (3, 2), ([1], [0]), ([], [])),
            ((2, 2, 3), (2, 3, 2), ([2], [1]), ([0], [0])),
            ((2, 2, 3), (2, 3, 2), ([1, 2], [0, 1]), ([], [])),
            ((3,), (3,), ([0], [0]), ([], [])),
            ((2,), (3,), ([], []), ([], [])),
            ((0, 2), (2, 3), ([1], [0]), ([], [])),
            ((2, 0), (0, 3), ([1], [0]), ([], [])),
            ((2, 3), (2, 3), ([1], [0]), ([], [])),
        ]
    )
    pairs = lambda p: {"t": [{"t": p[0]}, {"t": p[1]}]}
    kwargs = d.options(
        preferred_element_type=lambda: {"d": d.pick(["float32", "int32", "float64"])}
    )
    return [*_same(d, [lhs, rhs], NUMBERS), {"t": [pairs(contract), pairs(batch)]}], kwargs


def ragged(d: Draw) -> Call:
    sizes = {"a": ["int32", [2], d.random.randrange(100), "index"]}
    return [*_same(d, [(5, 3), (2, 3, 4)], ["float32", "bfloat16"]), sizes], {}


def slicing_one(d: Draw) -> Call:
    ends = d.pick([[0, 2], [1, 3], [None, 2], [1, None], [-2, None], [0, 9], [2, 1]])
    return [d.array(d.pick([(3,), (3, 4)])), *ends], d.options(
        stride=lambda: d.pick([1, 2, 0, -1]), axis=d.one_axis
    )


def indexing_one(d: Draw) -> Call:
    traced = d.name.startswith("dynamic")
    where = _index(d) if traced and d.chance(0.5) else d.pick([0, 1, -1, 2, 7])
    return [d.array(d.pick([(3,), (3, 4), (1, 2)])), where], d.options(
        axis=d.one_axis, keepdims=lambda: d.pick([True, False])
    )


def dynamic_part(d: Draw) -> Call:
    where = _index(d) if d.chance(0.5) else d.pick([0, 1, -1, 2, 7])
    return [d.array(d.pick([(3,), (3, 4)])), where, d.pick([1, 2, 0, 3, 9])], d.options(
        axis=d.one_axis
    )


def updating(d: Draw) -> Call:
    shapes = d.pick([[(4,), (2,)], [(3, 4), (2, 2)], [(3,), (0,)], [(2,), (3,)], [(), ()]])
    starts = [d.pick([_index(d), 0, -1, 5]) for _ in shapes[0]]
    return [*_same(d, shapes, SMALL), {"t": starts}], {}


def updating_one(d: Draw) -> Call:
    shapes = d.pick([[(4,), (2,)], [(3, 4), (2, 4)], [(3, 4), (4,)], [(3,), ()], [(3, 4), (1, 4)]])
    where = _index(d) if d.chance(0.5) else d.pick([0, 1, -1, 7])
    return [*_same(d, shapes, SMALL), where, d.pick([0, 0, 0, 1, -1, 3])], {}


def filled_like(d: Draw) -> Call:
    return [d.array(), d.pick([0, 1.5, -1, True, d.array(())])], d.options(
        dtype=d.as_dtype, shape=lambda: {"t": d.pick([[2], [], [0, 3]])}
    )


def transforming(d: Draw) -> Call:
    kind = d.pick(["FFT", "IFFT", "RFFT", "IRFFT", "fft", 7])
    dtypes = ["float32", "float64"] if kind == "RFFT" else COMPLEX
    kind = {"name": f"lax.FftType.{kind}"} if str(kind).isupper() else kind
    shape, lengths = d.pick(
        [((4,), [4]), ((2, 4), [4]), ((3, 2), [3, 2]), ((4,), [3]), ((1,), [1])]
    )
    return [d.array(shape, dtypes if d.chance(0.9) else ALL), kind, lengths], {}


def gathering(d: Draw) -> Call:
    shape, offset, collapsed, mapped, sizes = d.pick(
        [
            ((4,), [], [0], [0], [1]),
            ((4, 3), [1], [0], [0], [1, 3]),
            ((4, 3), [1, 2], [], [0, 1], [2, 2]),
            ((4, 3), [1], [1], [1], [2, 1]),
            ((2, 3, 2), [], [0, 1, 2], [2, 0, 1], [1, 1, 1]),
            ((4,), [0], [0], [0], [1]),
        ]
    )
    numbers = {
        "call": [
            "lax.GatherDimensionNumbers",
            {
                "offset_dims": {"t": offset},
                "collapsed_slice_dims": {"t": collapsed},
                "start_index_map": {"t": mapped},
            },
        ]
    }
    starts = d.array(d.pick([(2, len(mapped)), (len(mapped),), (0, len(mapped))]), INTS, "index")
    kwargs = d.options(
        mode=lambda: d.pick(MODES_OF_INDEX),
        fill_value=lambda: d.pick([7, 1.5]),
        indices_are_sorted=lambda: False,
    )
    return [d.array(shape, SMALL, plain=True), starts, numbers, {"t": sizes}], kwargs


def scattering(d: Draw) -> Call:
    shape, window, inserted, mapped, update = d.pick(
        [
            ((4,), [], [0], [0], ()),
            ((4, 3), [1], [0], [0], (3,)),
            ((4, 3), [1, 2], [], [0, 1], (2, 2)),
            ((4, 3), [1], [1], [1], (2,)),
            ((4, 3), [1], [1], [1], (5,)),
        ]
    )
    numbers = {
        "call": [
            "lax.ScatterDimensionNumbers",
            {
                "update_window_dims": {"t": window},
                "inserted_window_dims": {"t": inserted},
                "scatter_dims_to_operand_dims": {"t": mapped},
            },
        ]
    }
    index = d.array((2, len(mapped)), INTS, "index", plain=True)
    # Of two updates of one place either may be the last.
    index = {"n": ["int32", [2, len(mapped)], 11, "sorted"]} if d.name == "scatter" else index
    x, u = _same(d, [shape, (2, *update)], SMALL)
    return [x, index, u, numbers], d.options(mode=lambda: d.pick(MODES_OF_INDEX))


def taking(d: Draw) -> Call:
    axes = d.pick([[0], [1], [0, 1]])
    index = {"t": [_index(d, (2,)) for _ in axes]}
    return [d.array((3, 4), SMALL, plain=True), index, {"t": axes}], {}


def _reducer(d: Draw) -> tuple[Spec, Any]:
    name, start = d.pick([("add", 0), ("max", -100), ("mul", 1), ("min", 100), ("sub", 0)])
    return {"name": f"lax.{name}"}, start


def reducing(d: Draw) -> Call:
    combine, start = _reducer(d)
    x = d.array(d.pick([(3,), (2, 3), (2, 0), (2, 3, 2)]), ["float32", "int32", "bfloat16"])
    return [x, start, combine, d.pick([{"t": [0]}, [0], {"t": []}, {"t": [0, 1]}, [-1]])], {}


def windows(d: Draw) -> Call:
    combine, start = _reducer(d)
    shape, window = d.pick([((5,), [2]), ((4, 3), [2, 2]), ((4,), [1]), ((3,), [4]), ((0,), [1])])
    each = lambda options: {"t": [d.pick(options) for _ in window]}
    kwargs = {"padding": d.pick(["SAME", "VALID", {"t": [{"t": [1, 2]}] * len(window)}, "no"])}
    kwargs |= d.options(
        window_strides=lambda: each([1, 2, 3]),
        base_dilation=lambda: each([1, 2]),
        window_dilation=lambda: each([1, 2]),
    )
    x = d.array(shape, ["float32", "float32", "int32", "bfloat16"], plain=True)
    return [x, start, combine, {"t": window}], kwargs


def _sides(d: Draw, rank: int) -> Spec:
    pairs = [{"t": [d.pick([0, 1, 2, -1]), d.pick([0, 1])]} for _ in range(rank)]
    return d.pick(["SAME", "VALID", "SAME_LOWER", pairs, pairs, "no"])


def convolving(d: Draw) -> Call:
    rank = d.pick([1, 1, 2])
    size, taps = ((5, 4)[:rank], (2, 3)[:rank])
    lhs, rhs = _same(d, [(2, 3, *size), (4, 3, *taps)], ["float32", "float32", "bfloat16", "int32"])
    each = lambda options: {"t": [d.pick(options) for _ in range(rank)]}
    args = [lhs, rhs, each([1, 2]), _sides(d, rank)]
    if d.name == "conv":
        return args, {}
    if d.name == "conv_with_general_padding":
        return [*args, each([1, 2]), each([1, 2])], {}
    if d.name == "conv_transpose":
        return args, d.options(
            rhs_dilation=lambda: each([1, 2]),
            transpose_kernel=lambda: True,
            dimension_numbers=lambda: {"t": [x[: rank + 2] for x in ("NCHW", "OIHW", "NCHW")]},
        )
    if d.name == "conv_general_dilated_patches":
        return [lhs, {"t": list(taps)}, *args[2:]], d.options(
            lhs_dilation=lambda: each([1, 2]), rhs_dilation=lambda: each([1, 2])
        )
    kwargs = d.options(lhs_dilation=lambda: each([1, 2]), rhs_dilation=lambda: each([1, 2]))
    kwargs |= d.options(preferred_element_type=lambda: {"d": d.pick(["float32", "int32"])})
    if d.chance(0.3):
        kwargs["feature_group_count"] = d.pick([3, 3, 2, 0])
        if kwargs["feature_group_count"] == 3:
            args[1] = d.array((6, 1, *taps), [lhs.get("a", ["float32"])[0]], plain=True)
    return args, kwargs


def sizes_of_convolution(d: Draw) -> Call:
    pads = d.pick(["SAME", "VALID", [{"t": [0, 1]}, {"t": [1, 1]}]])
    if d.name == "padtype_to_pads":
        return [{"t": [5, 4]}, {"t": [2, 3]}, {"t": [1, 2]}, d.pick(["SAME", "VALID", "no"])], {}
    if d.name == "reduce_window_shape_tuple":
        return [{"t": [5, 4]}, {"t": [2, 3]}, {"t": [1, 2]}, [{"t": [0, 1]}, {"t": [1, 1]}]], {}
    if d.name == "conv_dimension_numbers":
        spec = d.pick([None, {"t": ["NHWC", "HWIO", "NHWC"]}, {"t": ["NCHW", "OIHW", "N"]}])
        return [{"t": [1, 2, 3, 4]}, {"t": [3, 2, 1, 1]}, spec], {}
    args = [{"t": [2, 3, 5, 4]}, {"t": [4, 3, 2, 3]}, {"t": [1, 2]}, pads]
    if "general" in d.name or "transpose" in d.name:
        return [*args, {"t": ["NCHW", "OIHW", "NCHW"]}], {}
    return args, {}


def rounding(d: Draw) -> Call:
    bits = [d.pick([8, 5, 4, 11, 0]), d.pick([23, 10, 7, 3, 0, -1])]
    return [d.array(dtypes=FLOATS if d.chance(0.9) else ALL), *bits], {}


def choosing(d: Draw) -> Call:
    n = d.pick([2, 2, 3, 1])
    shape = d.pick([(3,), (2, 3), ()])
    which = d.array(d.pick([shape, shape, ()]), BOOL if n == 2 else ["int32"], "index", plain=True)
    return [which, *_same(d, [shape] * n, SMALL)], {}


def sorting_pairs(d: Draw) -> Call:
    shape = d.pick([(4,), (2, 3), (0,), (1,)])
    return [d.array(shape, REAL, plain=True), d.array(shape, SMALL, plain=True)], d.options(
        dimension=d.one_axis, is_stable=lambda: True
    )


def splitting(d: Draw) -> Call:
    sizes = d.pick([[1, 3], {"t": [2, 2]}, [4], [1, 1], [0, 4], [-1, 5]])
    return [d.array(d.pick([(4,), (4, 2), (2, 4)])), sizes], d.options(axis=d.one_axis)


def stacking(d: Draw) -> Call:
    if d.name == "unstack":
        return [d.array(d.pick([(3,), (2, 3), (0, 2), ()]))], d.options(axis=d.one_axis)
    return [_same(d, d.pick([[(3,), (3,)], [(), ()], [(2, 1)], [(2,), (3,)]]), SMALL)], d.options(
        axis=d.one_axis
    )


def tiling(d: Draw) -> Call:
    return [d.array(d.pick([(3,), (2, 3), (0,)])), d.pick([{"t": [2]}, [2, 1], {"t": [0]}, 3])], {}


def bits(d: Draw) -> Call:
    key = {"a": ["uint32", [d.pick([4, 4, 2])], d.random.randrange(100), "usual"]}
    dtype = lambda: {"d": d.pick(["uint32", "uint8", "uint16", "uint64", "float32"])}
    return [key, {"t": d.pick([[3], [], [2, 0], [5]])}], d.options(dtype=dtype)


def barrier(d: Draw) -> Call:
    return [d.pick([d.array(), {"t": [d.array(), d.array()]}, None, 1.5])], {}


def size_alone(d: Draw) -> Call:
    return [{"t": d.pick([[], [2], [2, 0]])}], {}


FAMILIES: dict[Family, str] = {
    of_two_sizes: "mulhi",
    of_three: "betainc",
    special_pair: "igamma_grad_a random_gamma_grad polygamma zeta",
    complex_parts: "complex",
    best_of_row: "approx_max_k approx_min_k",
    matrices: "batch_matmul",
    broadcasting: "broadcast",
    shapes_alone: "broadcast_shapes",
    ranking: "broadcast_to_rank",
    counting_up: "broadcasted_iota",
    collapsing: "collapse",
    dot_general: "dot_general",
    ragged: "ragged_dot",
    slicing_one: "slice_in_dim",
    indexing_one: "index_in_dim dynamic_index_in_dim",
    dynamic_part: "dynamic_slice_in_dim",
    updating: "dynamic_update_slice",
    updating_one: "dynamic_update_slice_in_dim dynamic_update_index_in_dim",
    filled_like: "full_like",
    transforming: "fft",
    gathering: "gather",
    scattering: "scatter scatter_add scatter_sub scatter_mul scatter_min scatter_max",
    taking: "index_take",
    reducing: "reduce",
    windows: "reduce_window",
    convolving: """conv conv_general_dilated conv_with_general_padding conv_transpose
        conv_general_dilated_patches""",
    sizes_of_convolution: """padtype_to_pads reduce_window_shape_tuple conv_dimension_numbers
        conv_shape_tuple conv_general_shape_tuple conv_transpose_shape_tuple""",
    rounding: "reduce_precision",
    choosing: "select_n",
    sorting_pairs: "sort_key_val",
    splitting: "split",
    stacking: "stack unstack",
    tiling: "tile",
    bits: "rng_bit_generator",
    barrier: "optimization_barrier",
    size_alone: "shape_as_value",
}
