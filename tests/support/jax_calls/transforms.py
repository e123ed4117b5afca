"""Calls of the transforms of functions, control flow and collectives, by small programs."""

from __future__ import annotations

from tests.support.jax_calls import BOOL, Call, Draw, Family, Spec

PREFIX = "programs"
# What is wrong with an argument of a program is not for the package to say.
SPOIL_EVERY = 10**9
REAL = ["float32", "float32", "float64", "bfloat16", "int32", "complex64"]
FUNCTIONS = ["square", "sum of sin", "norm", "softmax", "pair", "take", "cast", "real", "constant"]


def _options(d: Draw, **ways: object) -> Spec:
    return {"dict": d.options(**{k: lambda v=v: d.pick(v) for k, v in ways.items()})}


def of_one(d: Draw) -> Call:
    transform = d.pick(["grad", "value_and_grad", "hessian", "jacfwd", "jacrev", "jacobian", "jit",
                        "vmap", "checkpoint", "make_jaxpr"][:-1])  # fmt: skip
    kinds = ["sum of sin", "norm", "real", "cast", "square", "constant"]
    kind = d.pick(kinds[:3] if d.chance(0.7) else FUNCTIONS)
    options = {
        "grad": {"allow_int": [True], "holomorphic": [True], "has_aux": [True], "argnums": [0, 1]},
        "value_and_grad": {"allow_int": [True], "holomorphic": [True], "argnums": [{"t": [0]}]},
        "vmap": {"in_axes": [0, -1, None, 2], "out_axes": [0, -1, None], "axis_size": [2, 3]},
        "jit": {"static_argnums": [0], "keep_unused": [True], "donate_argnums": [0]},
        "jacfwd": {"holomorphic": [True], "argnums": [0, 1]},
        "jacrev": {"holomorphic": [True], "allow_int": [True]},
    }.get(transform, {})
    x = d.array(d.pick([(3,), (2, 3), (), (0,)]), REAL)
    return [transform, kind, x, _options(d, **options)], {}


def of_two(d: Draw) -> Call:
    transform, kind = (
        d.pick(["grad", "jacfwd", "jacrev", "vmap", "hessian"]),
        d.pick(["product", "dot"]),
    )
    options = {"argnums": [0, 1, {"t": [0, 1]}, -1, 2, {"t": [1, 0]}]}
    if transform == "vmap":
        options = {"in_axes": [0, 1, {"t": [0, None]}, {"t": [None, 1]}, {"t": [None, None]}, [0]]}
    xs = d.arrays(2, REAL) if d.chance(0.5) else [d.array((2, 2), REAL) for _ in range(2)]
    return [transform, kind, *xs, _options(d, **options)], {}


def with_tangent(d: Draw) -> Call:
    shape = d.pick([(3,), (2, 3), ()])
    dtype = d.dtype(REAL)
    other = dtype if d.chance(0.85) else d.dtype(REAL)
    kind = d.pick(["square", "take", "softmax", "square", "constant"])
    t = d.array(shape if d.chance(0.9) else (2,), [other])
    return [kind, d.array(shape, [dtype]), t], {}


def transposing(d: Draw) -> Call:
    dtype = d.dtype(REAL)
    return [d.array((3,), [dtype]), d.array(d.pick([(3,), (3,), (2,)]), [dtype])], {}


def shape_of(d: Draw) -> Call:
    return [d.pick(FUNCTIONS[:4] + FUNCTIONS[5:8]), d.array(dtypes=REAL)], {}


def counting(d: Draw) -> Call:
    ends = [d.pick([0, 1, -1, d.array((), ["int32", "uint8"], "index")]) for _ in range(2)]
    ends[1] = d.pick([3, 0, ends[1], 2.5])
    shape = d.pick([(), (3,), (0,)])
    return [*ends, d.array(shape, REAL), d.array(d.pick([(), shape]), REAL)], {}


def repeating(d: Draw) -> Call:
    return [d.pick([3, 0, 2.5, d.array((), ["int32"], "index")]), d.array(dtypes=REAL)], {}


def scanning(d: Draw) -> Call:
    shape = d.pick([(3,), (3, 2), (0,), (1, 2)])
    options = _options(d, reverse=[True], unroll=[2, True, 0], length=[3, 2])
    xs = d.pick([d.array(shape, REAL), d.array(shape, REAL), None])
    return [d.array(d.pick([shape[1:], ()]), REAL), xs, options], {}


def branching(d: Draw) -> Call:
    which = d.pick(
        [True, d.array((), BOOL), d.array((), ["int32", "float32"]), 0, d.array((2,), BOOL)]
    )
    shape, dtype = d.pick([(), (3,), (2, 0)]), d.dtype(REAL)
    same = lambda: d.array(shape, [dtype if d.chance(0.9) else d.dtype(REAL)])
    return [which, same(), same()], {}


def switching(d: Draw) -> Call:
    return [d.pick([0, 1, 5, -1, 1.0, d.array((), ["int32", "uint8", "float32"], "index")]),
            d.array(dtypes=REAL)], {}  # fmt: skip


def mapping(d: Draw) -> Call:
    return [
        d.array(d.pick([(3,), (4, 2), (0, 2), (1,), ()]), REAL),
        _options(d, batch_size=[1, 2, 5]),
    ], {}


def associative(d: Draw) -> Call:
    options = _options(d, reverse=[True], axis=[0, -1, 1, 3])
    return [
        d.pick(["add", "mul", "max"]),
        d.array(d.pick([(5,), (3, 2), (1,), (0,)]), REAL),
        options,
    ], {}


def rooting(d: Draw) -> Call:
    return [d.array(d.pick([(), (3,)]), ["float32", "float64"], "positive")], {}


def solving(d: Draw) -> Call:
    dtype = d.pick(["float32", "float64"])
    return [{"a": [dtype, [3, 3], 1, "definite"]}, d.array((3,), [dtype], plain=True)], {}


def collective(d: Draw) -> Call:
    kind = d.pick(["psum", "pmean", "pmax", "pmin", "all_gather", "all_to_all", "psum_scatter",
                   "ppermute", "pshuffle", "pswapaxes"])  # fmt: skip
    x = d.array(d.pick([(2, 2), (2, 2, 3), (3,), (2, 0)]), REAL)
    options: dict[str, Spec] = {}
    if kind == "all_gather":
        options = d.options(axis=lambda: d.pick([0, 1, -1]), tiled=lambda: True)
    elif kind == "all_to_all":
        options = {"split_axis": 0, "concat_axis": d.pick([0, 1])} | d.options(tiled=lambda: True)
    elif kind == "psum_scatter":
        options = d.options(tiled=lambda: True, scatter_dimension=lambda: 0)
    elif kind in ("ppermute", "pshuffle"):
        pair = lambda *p: {"t": list(p)}
        options = {"perm": d.pick([[pair(0, 1), pair(1, 0)], [pair(0, 1)], [1, 0]])}
    elif kind == "pswapaxes":
        options = {"axis": d.pick([0, 1])}
    return [kind, x, {"dict": options}], {}


FAMILIES: dict[Family, str] = {
    of_one: "transformed",
    of_two: "of_two",
    with_tangent: "jvp vjp linearize",
    transposing: "linear_transpose",
    shape_of: "eval_shape",
    counting: "fori_loop",
    repeating: "while_loop",
    scanning: "scan",
    branching: "cond cond_without_operands",
    switching: "switch",
    mapping: "map_rows",
    associative: "associative_scan",
    rooting: "custom_root",
    solving: "custom_linear_solve",
    collective: "collective",
}
#: What many calls are made of, in multiples of what is asked for.
TIMES = {"transformed": 8, "of_two": 4, "collective": 6}
