"""Elementwise functions at special arguments: zeros, ties, infinities, NaN, ends of domains."""

from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parent.parent / "scipy" / "special_values.npz"

inf, nan = np.inf, np.nan
ONE = np.array(
    [0.0, -0.0, 1e-30, -1e-30, 0.25, -0.25, 0.5, -0.5, 1, -1, 1.5, -1.5, 2, -2, 3, -3, 2.5, -2.5,
     10, -10, 50, -50, 90, -90, 1e4, -1e4, 1e30, -1e30, inf, -inf, nan],
    np.float32,
)  # fmt: skip
PAIR = np.array(
    [0.0, -0.0, 1e-20, 0.5, -0.5, 1, -1, 2, -3, 2.5, 10, 1e3, inf, -inf, nan], np.float32
)

UNARY = {
    "lax": """abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma
        erf erf_inv erfc exp exp2 expm1 floor is_finite lgamma log log1p logistic neg reciprocal
        round rsqrt sign sin sinh sqrt square tan tanh""",
    "numpy": """sinc i0 exp2 deg2rad rad2deg signbit nan_to_num sign reciprocal angle log2 log10
        fabs rint trunc isnan isinf isposinf isneginf cbrt""",
    "scipy.special": """entr expit logit ndtr ndtri log_ndtr i0e i1e i1 gammaln gammasgn erf erfc
        erfinv spence digamma""",
    "nn": """relu relu6 squareplus softplus sparse_plus soft_sign sigmoid sparse_sigmoid silu mish
        log_sigmoid elu leaky_relu hard_tanh celu selu gelu hard_sigmoid hard_silu log1mexp""",
}
BINARY = {
    "lax": """add atan2 div eq ne lt le gt ge igamma igammac max min mul nextafter polygamma pow rem
        sub zeta""",
    "numpy": """logaddexp logaddexp2 hypot arctan2 float_power fmod remainder floor_divide copysign
        heaviside maximum minimum fmax fmin power true_divide""",
    "scipy.special": "xlogy xlog1py rel_entr kl_div betaln",
}
# Derivatives that JAX does not have, by the number of the argument.
WITHOUT = {("lax.polygamma", 0), ("lax.zeta", 0), ("lax.zeta", 1), ("lax.nextafter", 0),
           ("lax.nextafter", 1), ("lax.igamma", 0), ("lax.igammac", 0)}  # fmt: skip

NAMES = [f"{room}.{name}" for room, names in UNARY.items() for name in names.split()]
PAIRED = [f"{room}.{name}" for room, names in BINARY.items() for name in names.split()]
NAMES += PAIRED


def arguments(name):
    """One array of arguments, or two with all pairs."""
    if name in PAIRED:
        return np.repeat(PAIR, PAIR.size), np.tile(PAIR, PAIR.size)
    return (ONE,)


def find(library, name):
    """A function by its path."""
    for part in name.split("."):
        library = getattr(library, part)
    return library


def values(library, name, wrap=lambda f: f):
    """The values of a function of `library` and its derivative by each argument."""
    function, args = find(library, name), arguments(name)
    found = {"value": np.asarray(wrap(function)(*args))}
    if found["value"].dtype.kind != "f":
        return found
    for k, x in enumerate(args):
        if (name, k) not in WITHOUT:
            alone = lambda v, k=k: function(*args[:k], v, *args[k + 1 :])
            one = np.ones_like(x)
            slope = wrap(lambda v, f=alone, t=one: library.jvp(f, (v,), (t,))[1])
            found[f"slope {k}"] = np.asarray(slope(x))
    return found


def agree(found, wanted):
    """Where two results are the same special value, or near."""
    if found.dtype != wanted.dtype:
        return np.zeros(wanted.shape, bool)
    if wanted.dtype.kind != "f":
        return found == wanted
    with np.errstate(all="ignore"):
        near = np.abs(found - wanted) <= 2e-4 * np.abs(wanted) + 1e-6
    return (found == wanted) | (np.isnan(found) & np.isnan(wanted)) | near
