"""Calls of the functions of `jax.scipy.stats`."""

from __future__ import annotations

from tests.support.jax_calls import ALL, FLOATS, INTS, Call, Draw, Family

PREFIX = "scipy.stats"
USUAL = ["float32", "float32", "float64", "bfloat16", "float16", "int32"]
SHAPES = [(), (3,), (2, 3), (0,), (1,)]


def of_shapes(*kinds: str) -> Family:
    """A family of functions of one argument and parameters of these kinds."""

    def draw(d: Draw) -> Call:
        dtypes = d.pick([USUAL, USUAL, INTS + FLOATS])
        shape = d.pick(SHAPES)
        first = d.array(shape, dtypes, "unit" if d.name.endswith(("ppf", "isf")) else kinds[0])
        places = [d.pick([(), shape]) for _ in kinds[1:]]
        return [first, *(d.array(s, dtypes, k) for s, k in zip(places, kinds[1:], strict=True))], {}

    return draw


def scaled(*kinds: str) -> Family:
    """The same with a location and a scale."""
    plain = of_shapes(*kinds)

    def draw(d: Draw) -> Call:
        args, _ = plain(d)
        return args, d.options(loc=lambda: d.pick([0.5, -1]), scale=lambda: d.pick([2, 0.5]))

    return draw


def simplex(d: Draw) -> Call:
    x = {"a": ["float32", [3], d.random.randrange(50), "unit"]}
    return [x, {"a": ["float32", [3], d.random.randrange(50), "positive"]}], {}


def multinomial(d: Draw) -> Call:
    x = d.array((3,), ["int32", "float32"], "index")
    return [x, d.pick([3, 5]), d.array((3,), ["float32"], "unit", plain=True)], {}


def gaussian(d: Draw) -> Call:
    n = d.pick([1, 2, 3])
    mean = d.pick([d.array((n,), ["float32"], plain=True), 0.5])
    cov = {"a": ["float32", [n, n], d.random.randrange(50), "definite"]}
    return [d.array(d.pick([(n,), (2, n)]), ["float32", "float64"], plain=True), mean, cov], {}


def of_axis(d: Draw) -> Call:
    kwargs = d.options(axis=lambda: d.pick([0, -1, None, 1, 5]))
    if d.name == "rankdata":
        kwargs |= d.options(method=lambda: d.pick(["min", "max", "dense", "ordinal", "no"]))
    else:
        kwargs |= d.options(keepdims=lambda: True, nan_policy=lambda: d.pick(["omit", "no"]))
    if d.name == "sem":
        kwargs |= d.options(ddof=lambda: d.pick([0, 2]))
    return [
        d.array(d.pick([(4,), (2, 3), (3, 1), (0,), ()]), ALL if d.chance(0.3) else USUAL)
    ], kwargs


def _of(distribution: str, functions: str) -> str:
    return " ".join(f"{distribution}.{f}" for f in functions.split())


_CONTINUOUS = "cdf logcdf logpdf logsf pdf sf"
FAMILIES: dict[Family, str] = {
    scaled("usual"): " ".join(
        [
            _of("cauchy", _CONTINUOUS + " isf ppf"),
            _of("gumbel_l", _CONTINUOUS + " ppf"),
            _of("gumbel_r", _CONTINUOUS + " ppf"),
            _of("laplace", "cdf logpdf pdf"),
            _of("logistic", "cdf logpdf pdf"),
            _of("norm", _CONTINUOUS + " isf ppf"),
            _of("uniform", "cdf logpdf pdf ppf"),
            _of("expon", _CONTINUOUS + " ppf"),
        ]
    ),
    of_shapes("usual"): "logistic.sf logistic.isf logistic.ppf",
    scaled("unit", "positive", "positive"): _of("beta", _CONTINUOUS),
    scaled("positive", "positive"): " ".join(
        [
            _of("gamma", _CONTINUOUS),
            _of("chi2", _CONTINUOUS),
            _of("pareto", _CONTINUOUS + " ppf"),
            _of("t", "logpdf pdf"),
        ]
    ),
    scaled("usual", "unit", "positive"): _of("truncnorm", _CONTINUOUS),
    of_shapes("usual", "positive"): _of("gennorm", "cdf logpdf pdf")
    + " "
    + _of("vonmises", "logpdf pdf"),
    of_shapes("unit", "unit"): _of("wrapcauchy", "logpdf pdf"),
    of_shapes("index", "unit"): _of("bernoulli", "cdf logpmf pmf ppf")
    + " "
    + _of("geom", "logpmf pmf"),
    of_shapes("index", "positive"): _of("poisson", "cdf logpmf pmf"),
    of_shapes("positive"): "poisson.entropy",
    of_shapes("index", "positive", "unit"): _of("binom", "logpmf pmf")
    + " "
    + _of("nbinom", "logpmf pmf"),
    of_shapes("index", "positive", "positive", "positive"): _of("betabinom", "logpmf pmf"),
    simplex: _of("dirichlet", "logpdf pdf"),
    multinomial: _of("multinomial", "logpmf pmf"),
    gaussian: _of("multivariate_normal", "logpdf pdf"),
    of_axis: "mode rankdata sem",
}
