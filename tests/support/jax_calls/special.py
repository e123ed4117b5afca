"""Calls of the functions of `jax.scipy.special`."""

from __future__ import annotations

from tests.support.jax_calls import BOOL, FLOATS, INTS, Call, Draw, Family

PREFIX = "scipy.special"
USUAL = ["float32", "float32", "bfloat16", "float16", "float64"]


def of_one(d: Draw) -> Call:
    dtypes = d.pick([USUAL, USUAL, FLOATS, INTS + BOOL])
    return [d.array(dtypes=dtypes, kind=d.pick(["usual", "positive", "unit"]))], {}


def of_two(d: Draw) -> Call:
    return d.arrays(2, d.pick([USUAL, INTS + FLOATS]), d.pick(["positive", "unit", "usual"])), {}


def of_three(d: Draw) -> Call:
    return d.arrays(3, USUAL, d.pick(["positive", "unit"])), {}


def of_four(d: Draw) -> Call:
    return d.arrays(4, USUAL, "unit"), {}


def of_complex(d: Draw) -> Call:
    return [d.array(dtypes=["complex64", "complex64", "complex128", "float32"])], {}


def numbered(d: Draw) -> Call:
    return [d.pick([0, 1, 2, 5, 12, -1, 2.5])], {}


def cylinder(d: Draw) -> Call:
    return [d.array((3,), ["float32", "float64"], "positive")], {"v": d.pick([0, 1, 3])}


def harmonics(d: Draw) -> Call:
    order = lambda: d.array((2,), ["int32"], "index", plain=True)
    angle = lambda: d.array((2,), ["float32"], "positive", plain=True)
    return [order(), order(), angle(), angle()], d.options(n_max=lambda: 3)


def integers(d: Draw) -> Call:
    return d.arrays(2, ["int32", "int32", "uint8", "float32"], "index"), {}


def order_first(d: Draw) -> Call:
    return [d.pick([0, 1, 2, 3]), d.array(dtypes=USUAL, kind="positive")], {}


def summing(d: Draw) -> Call:
    return [d.array(d.pick([(3,), (2, 3), ()]), USUAL)], d.options(
        axis=d.axis, keepdims=lambda: True, return_sign=lambda: True
    )


def factorial(d: Draw) -> Call:
    return [d.array(dtypes=["int32", "float32", "uint8"], kind="index")], {}


FAMILIES: dict[Family, str] = {
    of_one: """gammaln gamma digamma erf erfc erfinv i0 i0e i1 i1e ndtr ndtri log_ndtr expit logit
        entr spence expi exp1 loggamma gammasgn dawsn erfcx fresnel sici""",
    of_complex: "wofz",
    of_two: """beta betaln gammainc gammaincc xlogy xlog1py kl_div rel_entr zeta poch boxcox
        boxcox1p owens_t""",
    of_three: "betainc hyp1f1",
    of_four: "hyp2f1",
    numbered: "bernoulli",
    cylinder: "bessel_jn",
    harmonics: "sph_harm_y",
    integers: "comb perm",
    order_first: "polygamma multigammaln expn",
    summing: "logsumexp softmax log_softmax",
    factorial: "factorial",
}
