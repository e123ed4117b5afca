"""Calls of the samplers of `jax.random`, whose bits are to be JAX's."""

from __future__ import annotations

from typing import Any

from tests.support.jax_calls import Call, Draw, Family, Spec

FLOATS = ["float32", "bfloat16", "float16", "float64"]


def _key(d: Draw) -> Spec:
    return {"a": ["uint32", [2], d.random.randrange(100), "usual"]}


def _shape(d: Draw) -> Spec:
    return {"t": d.pick([[], [3], [2, 3], [0], [1], [7], [2, 0], [33]])}


def _dtype(d: Draw, names: list[str]) -> Spec:
    return {"d": d.pick(names)}


def _sized(d: Draw, names: list[str] = FLOATS) -> dict[str, Spec]:
    return d.options(shape=lambda: _shape(d), dtype=lambda: _dtype(d, names))


def plain(d: Draw) -> Call:
    return [_key(d)], _sized(d)


def integers(d: Draw) -> Call:
    low, high = d.pick([(0, 10), (-5, 5), (3, 3), (0, 300), (0, 2**31 - 1), (5, 2)])
    dtypes = ["int32", "uint8", "int8", "uint32", "int16", "int64"]
    return [_key(d), _shape(d), low, high], d.options(dtype=lambda: _dtype(d, dtypes))


def raw(d: Draw) -> Call:
    return [_key(d)], _sized(d, ["uint8", "uint16", "uint32", "uint64"])


def between(d: Draw) -> Call:
    low, high = d.pick([(0.0, 1.0), (-2.0, 3.0), (5, 6), (-0.5, 0.5), (2.0, 2.0)])
    return [_key(d)], {**_sized(d), "minval": low, "maxval": high}


def truncated(d: Draw) -> Call:
    low, high = d.pick([(-1.0, 1.0), (-2.0, 3.0), (0.5, 9.0), (-3, 0)])
    return [_key(d), low, high], _sized(d, ["float32", "float64"])


def _positive(d: Draw) -> Any:
    shape = d.pick([(), (3,), (2, 1)])
    number = d.pick([0.5, 1.0, 2.5, 10.0])
    return d.pick([number, {"a": ["float32", list(shape), d.random.randrange(100), "positive"]}])


def of_one(d: Draw) -> Call:
    return [_key(d), _positive(d)], d.options(dtype=lambda: _dtype(d, FLOATS))


def of_two(d: Draw) -> Call:
    args = [_key(d), _positive(d), _positive(d)]
    return args, d.options(dtype=lambda: _dtype(d, FLOATS))


def counts(d: Draw) -> Call:
    return [_key(d), _positive(d)], d.options(dtype=lambda: _dtype(d, ["int32", "int64", "int16"]))


def of_three(d: Draw) -> Call:
    ends = [d.pick([0.0, -1]), d.pick([0.5, 1]), d.pick([1.0, 2])]
    return [_key(d), *ends], _sized(d, ["float32", "float64"])


def balls(d: Draw) -> Call:
    return [_key(d), d.pick([1, 2, 3])], d.options(
        p=lambda: d.pick([1, 2, 1.5]), shape=lambda: _shape(d), dtype=lambda: _dtype(d, FLOATS)
    )


def spread(d: Draw) -> Call:
    return [_key(d)], _sized(d) | d.options(sigma=lambda: d.pick([0.5, 2]))


def tries(d: Draw) -> Call:
    p = d.pick([0.5, 0.1, 1.0, {"a": ["float32", [3], d.random.randrange(100), "unit"]}])
    kwargs = d.options(dtype=lambda: _dtype(d, ["int32", "int64", "float32"]))
    if d.name == "geometric":
        return [_key(d), p], kwargs
    n = d.pick([5, 0, 20.0, {"a": ["float32", [3], 1, "index"]}])
    if d.name == "multinomial":
        p = {"a": ["float32", [4], d.random.randrange(100), "unit"]}
        return [_key(d), d.pick([5, 0, 20.0]), p], {}
    return [_key(d), n, p], d.options(shape=lambda: _shape(d))


def seeding(d: Draw) -> Call:
    return [d.pick([0, -1, 2**31, 2**40, 1.5, True, {"a": ["int32", [], 1, "usual"]}])], {}


def chances(d: Draw) -> Call:
    p = d.pick([0.5, 0.0, 1.0, 0.1, {"a": ["float32", [3], d.random.randrange(100), "unit"]}])
    return [_key(d), p], {}


def categories(d: Draw) -> Call:
    shape = d.pick([(3,), (2, 3), (4, 1)])
    logits = {"a": ["float32", list(shape), d.random.randrange(100), "usual"]}
    return [_key(d), logits], d.options(axis=d.one_axis)


def permuting(d: Draw) -> Call:
    what = d.pick([5, 1, 0, d.array(d.pick([(4,), (3, 2), (2, 3, 2)]), plain=True)])
    return [_key(d), what], d.options(axis=d.one_axis, independent=lambda: True)


def choosing(d: Draw) -> Call:
    what = d.pick([5, d.array((5,), plain=True), d.array((4, 2), plain=True)])
    return [_key(d), what], d.options(shape=lambda: _shape(d), replace=lambda: False)


def splitting(d: Draw) -> Call:
    return [_key(d), d.pick([2, 1, 5, 0, {"t": [2, 2]}])], {}


def folding(d: Draw) -> Call:
    return [_key(d), d.pick([0, 1, 7, 2**31, -1, 1.5])], {}


def dirichlet(d: Draw) -> Call:
    shape = d.pick([(3,), (2, 4)])
    return [_key(d), {"a": ["float32", list(shape), d.random.randrange(100), "positive"]}], {}


def normals(d: Draw) -> Call:
    mean = {"a": ["float32", [3], d.random.randrange(100), "usual"]}
    return [_key(d), mean, {"a": ["float32", [3, 3], d.random.randrange(100), "definite"]}], {}


def matrices(d: Draw) -> Call:
    return [_key(d), d.pick([1, 2, 3])], d.options(shape=lambda: {"t": d.pick([[], [2]])})


FAMILIES: dict[Family, str] = {
    plain: "normal uniform exponential gumbel laplace logistic cauchy rademacher maxwell",
    integers: "randint",
    raw: "bits",
    between: "uniform",
    truncated: "truncated_normal",
    of_one: "gamma loggamma t chisquare pareto rayleigh wald generalized_normal",
    of_two: "beta f weibull_min double_sided_maxwell",
    of_three: "triangular",
    balls: "ball",
    spread: "lognormal",
    counts: "poisson",
    tries: "geometric binomial multinomial",
    seeding: "PRNGKey",
    chances: "bernoulli",
    categories: "categorical",
    permuting: "permutation",
    choosing: "choice",
    splitting: "split",
    folding: "fold_in",
    dirichlet: "dirichlet",
    normals: "multivariate_normal",
    matrices: "orthogonal",
}
