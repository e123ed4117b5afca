"""What the docstrings of `amdjax.scipy.special` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Phrases

PHRASES = Phrases(
    {"x": "real or complex.", "axis": "axis or axes that are normalized together; None means all."},
    {
        "ArrayLike": "TypeError: for what is neither an array nor a number.",
        "axis": "ValueError: for an axis out of range.",
    },
)

_ONE = "Array of the operand's shape, of floating dtype."
_ALL = "Array of the operands' broadcast shape, of floating dtype."
_REFUSED = "TypeError: for complex numbers."
_NO_COMPLEX = "ValueError: for complex numbers."

FAMILIES = (
    Family("expit logit gamma erfcx softmax log_softmax", _ONE),
    Family("digamma erf erfc erfinv gammaln i0 i0e i1 i1e", _ONE, _REFUSED, x="real."),
    Family("entr gammasgn dawsn", _ONE, _NO_COMPLEX, x="real."),
    Family("spence exp1 expi", _ONE, _NO_COMPLEX),
    Family("ndtr log_ndtr ndtri", _ONE, "TypeError: for what is not float32 or float64.",
           x="real.", p="probabilities.", series_order="number of terms of the tail's expansion."),
    Family("wofz", "Complex array of the operand's shape."),
    Family("fresnel sici", "", _NO_COMPLEX),
    Family("beta kl_div rel_entr poch", _ALL, _NO_COMPLEX, a="real.", b="real.", p="real.",
           q="real.", z="real.", m="real."),
    Family("betaln betainc gammainc gammaincc", _ALL, _REFUSED, a="positive.", b="positive.",
           x="real."),
    Family("boxcox boxcox1p", _ALL, lmbda="exponent."),
    Family("xlogy xlog1py", _ALL, y="real or complex."),
    Family("comb", _ALL, _REFUSED, N="number of things.", k="how many are chosen.",
           repetition="whether a thing may be chosen more than once."),
    Family("factorial", _ONE, _REFUSED, "NotImplementedError: if `exact` is true.",
           n="real; NaN at negative integers.", exact="not supported."),
    Family("multigammaln", _ONE, _REFUSED, "TypeError: for `d` that is no integer.",
           a="real, greater than `(d - 1) / 2`.", d="dimension."),
    Family("polygamma", _ALL, "ValueError: for complex numbers, and orders that are no integers.",
           n="order, an integer that is not negative.", x="real."),
    Family("zeta", _ALL, _REFUSED, x="exponent, greater than 1.", q="shift, positive."),
    Family("owens_t hyp1f1 hyp2f1 expn", _ALL, _NO_COMPLEX),
    Family("bernoulli", "Vector of `n + 1` numbers.", "TypeError: for `n` that is no integer."),
)  # fmt: skip
