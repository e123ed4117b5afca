"""Record JAX's values and derivatives at special arguments: tests/scipy/special_values.npz.

    python -m tools.record_special_values [NAME ...]

Needs JAX beside amdjax. An entry in which the two differ is left open, but only for the functions
of `DEPARTURES`, with the reason why JAX's value is not the one wanted; others are printed and
nothing is written.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from tests.support import recorded_calls
from tests.support.special_values import CASES, FILE, agree, values

DEPARTURES = {
    "lax.abs": "the derivative of a NaN",
    "lax.acosh": "the derivative where the value is NaN",
    "lax.atan2": "derivatives of tiny arguments",
    "lax.bessel_i1e": "the derivative of a NaN",
    "lax.div": "derivatives of tiny arguments",
    "lax.igamma": "tiny and infinite orders; a derivative at 0",
    "lax.igammac": "tiny and infinite orders; a derivative at 0",
    "lax.igamma_grad_a": "tiny orders",
    "lax.random_gamma_grad": "tiny orders; SciPy has no such function",
    "lax.polygamma": "orders whose factorial overflows",
    "lax.pow": "the slope of x**0, which is 0",
    "lax.rem": "the derivative by a divisor of 0",
    "lax.zeta": "SciPy's NaN for arguments below 1",
    "nn.log1mexp": "the derivative where the value is NaN",
    "numpy.arctan2": "derivatives of tiny arguments",
    "numpy.i0": "the derivative where it overflows",
    "numpy.true_divide": "derivatives of tiny arguments",
    "numpy.sinc": "derivatives next to 0",
    "numpy.angle": "the derivative at 0 and NaN",
    "numpy.hypot": "derivatives of tiny arguments",
    "numpy.float_power": "the slope of x**0, which is 0",
    "numpy.power": "the slope of x**0, which is 0",
    "numpy.fmod": "the derivative by a divisor of 0",
    "numpy.remainder": "the derivative by a divisor of 0",
    "lax.exp2": "in bfloat16 JAX rounds the exponent",
    "numpy.exp2": "in bfloat16 JAX rounds the exponent",
    "nn.squareplus": "in float16 what cancellation leaves of large arguments",
    "scipy.special.betaln": "arguments that are 0, negative or infinite",
    "scipy.special.i1e": "the derivative of a NaN",
    "scipy.special.ndtri": "infinite slopes at the ends",
    "scipy.special.i0": "the derivative at 0 and where it overflows",
    "scipy.special.i1": "the derivative where it overflows",
    "scipy.special.spence": "large arguments; derivatives where JAX has 0",
    "scipy.special.loggamma": "the derivative of a NaN",
}

# Complex values are those of Annex G, which NumPy's agree with where the standard settles them.
_REASONS = {
    "infinities, unknown parts and sides of branch cuts by Annex G": """lax.acos lax.acosh lax.asin
        lax.asinh lax.atan lax.atanh lax.cos lax.cosh lax.exp lax.exp2 lax.expm1 lax.log lax.log1p
        lax.sin lax.sinh lax.sqrt lax.rsqrt lax.tan lax.tanh numpy.exp2 numpy.log2 numpy.log10""",
    "an infinite part makes the magnitude infinite": "lax.abs numpy.absolute",
    "an infinity of the other sign; 1 / (inf + nan j) is zero": """lax.reciprocal numpy.reciprocal
        lax.div numpy.true_divide""",
    "an exponential that vanishes or overflows whatever the angle": """lax.logistic nn.sigmoid
        numpy.logaddexp""",
    "powers of 0": "lax.pow numpy.power numpy.float_power",
    "an overflow in one part": "numpy.sinc",
}
COMPLEX_DEPARTURES = {name: why for why, names in _REASONS.items() for name in names.split()}


def main(names: list[str]) -> None:
    """Record the table."""
    import jax
    import jax.nn
    import jax.scipy.special

    import amdjax
    import amdjax.nn
    import amdjax.scipy.special

    warnings.simplefilter("ignore")
    cases, unexplained = [], []
    for dtype, name in CASES:
        if names and name not in names:
            continue
        theirs, ours = values(jax, name, dtype), values(amdjax, name, dtype)
        reasons = COMPLEX_DEPARTURES if dtype.startswith("complex") else DEPARTURES
        outcomes: dict[str, Any] = {}
        for kind, wanted in theirs.items():
            same = agree(ours[kind], wanted)
            if not same.all() and name not in reasons:
                unexplained.append((dtype, name, kind, np.flatnonzero(~same), ours[kind], wanted))
            for what, array in ((kind, wanted), (f"{kind} open", ~same)):
                outcomes[what] = [array.dtype.name, list(array.shape)], [array]
        cases.append(([dtype, name], outcomes))
        print(dtype, name, {kind: int((~agree(ours[kind], w)).sum()) for kind, w in theirs.items()},
              flush=True)  # fmt: skip
    for dtype, name, kind, where, ours, wanted in unexplained:
        some = where[:6]
        print(f"{dtype} {name} {kind} at {some}: JAX {wanted[some]}, here {ours[some]}")
    if unexplained:
        sys.exit(1)
    if not names:
        recorded_calls.save(FILE, cases)


if __name__ == "__main__":
    main(sys.argv[1:])
