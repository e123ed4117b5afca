"""Calls of `jax.image`, and of the classes of `jax.scipy` by small programs."""

from __future__ import annotations

from tests.support.jax_calls import FLOATS, Call, Draw, Family, Spec

PREFIX = ""

USUAL = ["float32", "float32", "float64", "int32", "uint8", "bfloat16"]
METHODS = ["nearest", "linear", "bilinear", "cubic", "lanczos3", "lanczos5", "bicubic", "no"]


def _floats(d: Draw, *shape: int, kind: str = "usual") -> Spec:
    return {
        "a": [d.pick(["float32", "float32", "float64"]), list(shape), d.random.randrange(50), kind]
    }


def resizing(d: Draw) -> Call:
    shape, target = d.pick(
        [
            ((4,), [2]),
            ((3, 4), [5, 2]),
            ((2, 3), [2, 6]),
            ((1, 3), [3, 3]),
            ((4,), [9]),
            ((3,), [2, 2]),
        ]
    )
    method = d.pick([*METHODS, {"name": "image.ResizeMethod.CUBIC"}])
    return [d.array(shape, USUAL), {"t": target}, method], d.options(antialias=lambda: False)


def translating(d: Draw) -> Call:
    x = d.array((3, 4), USUAL, plain=True)
    two = [_floats(d, 2, kind="positive"), _floats(d, 2)]
    axes = d.pick([{"t": [0, 1]}, {"t": [0, 1]}, {"t": [-1, 0]}, {"t": [0]}])
    return [x, {"t": d.pick([[3, 4], [5, 2]])}, axes, *two, d.pick(METHODS[1:])], d.options(
        antialias=lambda: False
    )


def initializing(d: Draw) -> Call:
    kind = d.pick(["he_normal", "he_uniform", "glorot_normal", "glorot_uniform", "lecun_normal",
                   "lecun_uniform", "normal", "uniform", "constant", "orthogonal",
                   "truncated_normal", "variance_scaling", "delta_orthogonal"])  # fmt: skip
    options: dict[str, Spec] = {}
    shape = d.pick([[3, 4], [2, 3, 4], [5, 5], [1, 1], [3]])
    if kind == "constant":
        options = {"value": d.pick([2, 0.5, True])}
    elif kind == "variance_scaling":
        options = {
            "scale": d.pick([1.0, 2, 0.5]),
            "mode": d.pick(["fan_in", "fan_out", "fan_avg", "no"]),
            "distribution": d.pick(["normal", "uniform", "truncated_normal", "no"]),
        }
    elif kind in ("normal", "truncated_normal"):
        options = d.options(stddev=lambda: d.pick([1.0, 2]))
    elif kind == "uniform":
        options = d.options(scale=lambda: d.pick([1.0, 2]))
    elif kind.endswith("orthogonal"):
        shape = d.pick([[3, 3, 4], [2, 3], [3, 2, 2]])
        options = d.options(scale=lambda: 2.0, column_axis=lambda: 0)
    else:
        options = d.options(in_axis=lambda: d.pick([0, -1, {"t": [0, 1]}]), out_axis=lambda: d.pick(
            [-1, 0]), batch_axis=lambda: 0)  # fmt: skip
    key = {"a": ["uint32", [2], d.random.randrange(100), "usual"]}
    dtype = [{"d": d.pick([*FLOATS, "float32", "complex64", "int32"])}] if d.chance(0.6) else []
    return [kind, key, {"t": shape}, {"dict": options}, *dtype], {}


def filling(d: Draw) -> Call:
    key = {"a": ["uint32", [2], 1, "usual"]}
    dtype = [{"d": d.pick([*FLOATS, "int32"])}] if d.chance(0.6) else []
    return [d.pick(["ones", "zeros"]), key, {"t": d.pick([[], [2, 3], [0]])}, *dtype], {}


IMPLEMENTATIONS = ["threefry2x32", "rbg", "unsafe_rbg", "threefry4x32", "philox2x32", "philox4x32"]


def sampling(d: Draw) -> Call:
    kinds = """bits normal uniform randint split fold_in permutation bernoulli gamma exponential
        categorical truncated_normal"""
    kind = d.pick(kinds.split())
    shape = {"t": d.pick([[3], [], [2, 3], [0], [7]])}
    name = d.pick(["float32", "float32", "bfloat16", "float16", "float64"])
    args: list[Spec] = {
        "bits": [shape, {"d": d.pick(["uint32", "uint8", "uint16", "uint64"])}],
        "randint": [
            shape,
            0,
            d.pick([10, 300, 2**31 - 1]),
            {"d": d.pick(["int32", "uint8", "int64"])},
        ],
        "split": [d.pick([2, 1, 3, {"t": [2, 2]}])],
        "fold_in": [d.pick([0, 7, -1])],
        "permutation": [d.pick([7, 0])],
        "bernoulli": [0.3, shape],
        "gamma": [1.5, shape, {"d": name}],
        "categorical": [{"a": ["float32", [3], 1, "usual"]}, -1, shape],
        "truncated_normal": [-1.0, 2.0, shape, {"d": name}],
    }.get(kind, [shape, {"d": name}])
    return [kind, d.pick([0, 42, -1, 2**40]), d.pick(IMPLEMENTATIONS), *args], {}


def interpolating(d: Draw) -> Call:
    rank = d.pick([1, 2])
    points = {"t": [{"a": ["float32", [n], 3, "sorted"]} for n in (4, 3)[:rank]]}
    options = d.options(
        method=lambda: d.pick(["linear", "nearest", "no"]),
        fill_value=lambda: d.pick([0.0, None, -1]),
        bounds_error=lambda: False,
    )
    xi = _floats(d, *d.pick([(rank,), (2, rank), (0, rank), (3, rank)]))
    return [points, _floats(d, *(4, 3)[:rank]), xi, {"dict": options}], {}


def minimizing(d: Draw) -> Call:
    return [_floats(d, d.pick([1, 2, 3]))], {}


def rotating(d: Draw) -> Call:
    make, args = d.pick(
        [
            ("quat", [_floats(d, 4)]),
            ("quat", [_floats(d, 2, 4)]),
            ("rotvec", [_floats(d, 3)]),
            ("rotvec", [_floats(d, 2, 3)]),
            ("mrp", [_floats(d, 3)]),
            ("euler", [d.pick(["xyz", "ZYX", "zxz"]), _floats(d, 3)]),
            ("euler", ["z", 0.5]),
            ("quat", [_floats(d, 3)]),
        ]
    )
    use, more = d.pick(
        [
            ("as_matrix", []),
            ("as_quat", []),
            ("as_rotvec", []),
            ("as_mrp", []),
            ("as_euler", [d.pick(["xyz", "ZYX", "xy"])]),
            ("inv", []),
            ("magnitude", []),
            ("apply", [_floats(d, 3)]),
            ("mean", []),
        ]
    )
    return [make, args, use, more], {}


def estimating(d: Draw) -> Call:
    n = d.pick([1, 2])
    points = _floats(d, n, 3)
    use, more = d.pick([("evaluate", [points]), ("pdf", [points]), ("logpdf", [points]),
                        ("integrate_box_1d", [-1.0, 1.0])])  # fmt: skip
    options = d.options(bw_method=lambda: d.pick(["scott", "silverman", 0.5, "no"]),
                        weights=lambda: _floats(d, 6, kind="positive"))  # fmt: skip
    return [_floats(d, n, 6), use, more, {"dict": options}], {}


def solving(d: Draw) -> Call:
    dtype = d.pick(["float32", "float64"])
    a = {"a": [dtype, [3, 3], d.random.randrange(50), "definite"]}
    b = {"a": [dtype, [3], d.random.randrange(50), "usual"]}
    return [d.pick(["cg", "bicgstab", "gmres"]), a, b, {"dict": {"tol": 1e-6}}], {}


def exponential(d: Draw) -> Call:
    return [{"a": [d.pick(["float32", "complex64"]), [2, 2], d.random.randrange(50), "unit"]}], {}


FAMILIES: dict[Family, str] = {
    resizing: "image.resize",
    translating: "image.scale_and_translate",
    initializing: "programs.initializer",
    filling: "programs.plain_initializer",
    sampling: "programs.sample",
    interpolating: "programs.interpolator",
    minimizing: "programs.minimum",
    rotating: "programs.rotation",
    estimating: "programs.kde",
    solving: "programs.krylov",
    exponential: "programs.funm",
}
TIMES = {
    "programs.initializer": 8,
    "programs.sample": 10,
    "programs.rotation": 6,
    "image.resize": 3,
}
