"""Elementwise functions at special arguments: zeros, ties, infinities, NaN, ends of domains."""

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np

FILE = Path(__file__).resolve().parent.parent / "scipy" / "special_values.npz"

inf, nan = np.inf, np.nan
ONE = [0.0, -0.0, 1e-30, -1e-30, 0.25, -0.25, 0.5, -0.5, 1, -1, 1.5, -1.5, 2, -2, 3, -3, 2.5, -2.5,
       10, -10, 50, -50, 90, -90, 1e4, -1e4, 1e30, -1e30, inf, -inf, nan]  # fmt: skip
PAIR = [0.0, -0.0, 1e-20, 0.5, -0.5, 1, -1, 2, -3, 2.5, 10, 1e3, inf, -inf, nan]
# Of other dtypes than float32 fewer pairs are recorded, and of complex numbers fewer parts.
FEW = [0.0, -0.0, 0.5, 1, -2, 10, inf, -inf, nan]
PARTS = [0.0, -0.0, 0.5, -2, 30, inf, -inf, nan]
FEW_COMPLEX = [complex(a, b) for a, b in itertools.product([0.0, 0.5, -2, inf, nan], repeat=2)]

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

# What takes complex numbers; where Annex G says what is right, `tests/lax/test_complex_special.py`.
COMPLEX = {
    "lax": """abs acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log1p logistic neg
        reciprocal rsqrt sign sin sinh sqrt square tan tanh conj real imag add sub mul div eq ne
        pow""",
    "numpy": """sinc exp2 nan_to_num sign reciprocal angle log2 log10 rint isnan isinf isfinite
        absolute logaddexp float_power power true_divide""",
    "nn": "sigmoid silu soft_sign",
}


def _names(rooms):
    return [f"{room}.{name}" for room, names in rooms.items() for name in names.split()]


PAIRED = _names(BINARY)
NAMES = _names(UNARY) + PAIRED
NARROW = ("float16", "bfloat16")
#: Functions that JAX has for float32 and float64 only.
WIDE = (
    "scipy.special.ndtr",
    "scipy.special.ndtri",
    "scipy.special.log_ndtr",
    "scipy.special.spence",
)
CASES = [("float32", name) for name in NAMES]
CASES += [(dtype, name) for dtype in (*NARROW, "float64") for name in NAMES
          if dtype not in NARROW or name not in WIDE]  # fmt: skip
CASES += [(dtype, name) for dtype in ("complex64", "complex128") for name in _names(COMPLEX)]


def dtype_of(dtype):
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def arguments(name, dtype="float32"):
    """One array of arguments, or two with all pairs."""
    parts = dtype.startswith("complex")
    if name in PAIRED:
        some = np.array(FEW_COMPLEX if parts else PAIR if dtype == "float32" else FEW)
        columns = np.repeat(some, some.size), np.tile(some, some.size)
    elif parts:
        columns = (np.array([complex(a, b) for a, b in itertools.product(PARTS, repeat=2)]),)
    else:
        columns = (np.array(ONE),)
    with np.errstate(all="ignore"):
        return tuple(x.astype(dtype_of(dtype)) for x in columns)


def find(library, name):
    """A function by its path."""
    for part in name.split("."):
        library = getattr(library, part)
    return library


def values(library, name, dtype="float32", wrap=lambda f: f):
    """The values of a function of `library` and its derivative by each argument."""
    function, args = find(library, name), arguments(name, dtype)
    with library.enable_x64(dtype in ("float64", "complex128")):
        found = {"value": np.asarray(wrap(function)(*args))}
        if found["value"].dtype.kind in "biu" or dtype.startswith("complex"):
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
    if wanted.dtype.kind in "biu":
        return found == wanted
    if wanted.dtype.kind == "c":
        # One part may be tiny beside the other, and is then what rounding left.
        size = np.where(np.isfinite(wanted), np.abs(wanted), 0)
        pairs = [(found.real, wanted.real), (found.imag, wanted.imag)]
        return np.logical_and(*(_near(a, b, size, wanted.dtype) for a, b in pairs))
    wide = np.float64
    return _near(found.astype(wide), wanted.astype(wide), np.abs(wanted).astype(wide), wanted.dtype)


def _near(a, b, size, dtype):
    eps = float(ml_dtypes.finfo(dtype).eps)
    bound = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-9, "complex128": 1e-9}
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= bound.get(dtype.name, 8 * eps) * size + 8 * eps
    return (a == b) | (np.isnan(a) & np.isnan(b)) | near
