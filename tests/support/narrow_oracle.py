"""Every argument of 16 bits there is, and whether results are as near as rounding allows."""

import functools

import ml_dtypes
import numpy as np

from tests.support import math_harness as harness

DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
#: Of results before they are rounded.
RELATIVE = 2.0**-16.5


def arguments(dtype):
    """All of them: zeros, subnormal numbers, infinities and NaN included."""
    return np.arange(65536, dtype=np.uint16).view(DTYPES[dtype])


def exact(name, *xs):
    """A function as NumPy or SciPy has it in double precision."""
    with np.errstate(all="ignore"):
        return harness.REFERENCES[name][0](*xs)


@functools.cache
def references(name, dtype):
    with np.errstate(all="ignore"):
        return exact(name, arguments(dtype).astype(np.float64))


def check(name, dtype, got):
    """Assert that results of all arguments are half an ulp, and what `RELATIVE` adds, off at most.

    Signs of zero, subnormal results, infinities and NaN have to be right.
    """
    x, want = arguments(dtype), references(name, dtype)
    info = ml_dtypes.finfo(DTYPES[dtype])
    largest, least = float(info.max), int(info.minexp)
    bound = 0.5 + RELATIVE * 2.0 ** (info.nmant + 1)
    with np.errstate(all="ignore"):
        got = got.astype(np.float64)
        exponent = np.clip(np.floor(np.log2(np.abs(want))), least, None)
        ulp = np.exp2(np.where(want == 0, least, exponent) - info.nmant)
        error = np.abs(got - want) / ulp
        beyond = np.isinf(got) & (np.abs(want) > largest * (1 + 0.49 * float(info.eps)))
    same_sign = (np.signbit(got) == np.signbit(want)) | np.isnan(want)
    good = np.where(np.isfinite(want), (error <= bound) | beyond, got == want)
    good = (good & same_sign) | (np.isnan(got) & np.isnan(want))
    wrong = np.flatnonzero(~good)
    assert not wrong.size, (name, [(x[i], got[i], want[i]) for i in wrong[:5]])
