"""What the docstrings of `amdjax.random` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Phrases

PHRASES = Phrases(
    {
        "jaxpr": "the program.",
        "keys": "an array of keys, typed or raw.",
        "maxval": "the bound above; broadcasts to `shape`.",
        "minval": "the least value; broadcasts to `shape`.",
        "p": "the probability of success.",
        "scale": "the scale parameter.",
        "seed": "an integer; without x64 only its low 32 bits count.",
        "key": "a key.",
        "shape": "the shape of the result.",
        "dtype": "a float dtype; float32 by default, float64 under x64.",
        "out_sharding": "sharding of the result over a mesh's explicit axes.",
    }
)

_LIKE = "An array of that shape and dtype."
FAMILIES = (
    Family("cauchy exponential generalized_normal laplace logistic maxwell uniform weibull_min",
           _LIKE, "ValueError: if the dtype is not a float."),
    Family("beta f triangular", _LIKE,
           "ValueError: if the dtype is not a float or the parameters do not fit the shape.",
           shape="the shape of the result; that of the parameters by default."),
    Family("gamma loggamma", _LIKE,
           "ValueError: if the dtype is not a float or `a` does not fit the shape.",
           a="the shape parameter, positive.",
           shape="the shape of the result; that of `a` by default."),
    Family("chisquare t", _LIKE,
           "ValueError: if the dtype is not a float or `df` does not fit the shape.",
           df="the degrees of freedom.", shape="the shape of the result; that of `df` by default."),
    Family("bits gumbel lognormal multinomial normal pareto rademacher randint rayleigh wald",
           _LIKE),
)  # fmt: skip
