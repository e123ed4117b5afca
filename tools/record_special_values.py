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

from tests.support.special_values import FILE, NAMES, agree, values

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
    "scipy.special.betaln": "arguments that are 0, negative or infinite",
    "scipy.special.i1e": "the derivative of a NaN",
    "scipy.special.ndtri": "infinite slopes at the ends",
    "scipy.special.i0": "the derivative at 0 and where it overflows",
    "scipy.special.i1": "the derivative where it overflows",
    "scipy.special.spence": "large arguments; derivatives where JAX has 0",
    "scipy.special.loggamma": "the derivative of a NaN",
}


def main(names: list[str]) -> None:
    """Record the table."""
    import jax
    import jax.nn
    import jax.scipy.special

    import amdjax
    import amdjax.nn
    import amdjax.scipy.special

    warnings.simplefilter("ignore")
    table: dict[str, Any] = {}
    unexplained = []
    for name in names or NAMES:
        theirs, ours = values(jax, name), values(amdjax, name)
        for kind, wanted in theirs.items():
            same = agree(ours[kind], wanted)
            if not same.all() and name not in DEPARTURES:
                unexplained.append((name, kind, np.flatnonzero(~same)[:5], ours[kind], wanted))
            table[f"{name}:{kind}"] = wanted
            table[f"{name}:{kind}:open"] = ~same
        print(name, {kind: int((~agree(ours[kind], w)).sum()) for kind, w in theirs.items()})
    for name, kind, where, ours, wanted in unexplained:
        print(f"{name} {kind} at {where}: JAX {wanted[where]}, here {ours[where]}")
    if unexplained:
        sys.exit(1)
    if not names:
        np.savez_compressed(FILE, **table)


if __name__ == "__main__":
    main(sys.argv[1:])
