"""NumPy's surface on traced arrays; use it as `import amdjax.numpy as jnp`.

Names, argument orders, defaults and dtype promotion are jax.numpy's.
"""

# Sorted without regard to case and wrapped, to fit on three screens.
# ruff: noqa: I001, RUF022
# fmt: off

import sys as _sys

from amdjax.numpy import fft, linalg
from amdjax.numpy.apply import apply_along_axis, apply_over_axes, interp, unwrap
from amdjax.numpy.arithmetic import (
    abs, absolute, add, clip, divide, divmod, fabs, float_power, floor_divide, fmax, fmin, fmod,
    gcd, heaviside, lcm, maximum, minimum, mod, multiply, negative, positive, pow, power,
    reciprocal, remainder, sign, square, subtract, true_divide,
)
from amdjax.numpy.bits import packbits, unpackbits
from amdjax.numpy.contractions import (
    convolve, correlate, cross, dot, inner, matmul, matvec, outer, tensordot, vdot, vecdot,
    vecmat,
)
from amdjax.numpy.array_api import (  # noqa: F401
    VERSION as __array_api_version__, __array_namespace_info__,
)
from amdjax.numpy.conversion import array, asarray, astype, copy, from_dlpack
from amdjax.numpy.creation import (
    arange, empty, empty_like, eye, full, full_like, identity, ones, ones_like, tri, zeros,
    zeros_like,
)
from amdjax.numpy.cumulative import (
    cumprod, cumsum, cumulative_prod, cumulative_sum, diff, ediff1d, gradient, nancumprod,
    nancumsum, trapezoid,
)
from amdjax.numpy.editing import (delete, insert, repeat)
from amdjax.numpy.einsum import einsum, einsum_path
from amdjax.numpy.elementary import (
    acos, acosh, angle, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh, asin, asinh,
    atan, atan2, atanh, cbrt, conj, conjugate, cos, cosh, deg2rad, degrees, exp, exp2, expm1,
    hypot, i0, imag, log, log10, log1p, log2, logaddexp, logaddexp2, rad2deg, radians, real,
    sin, sinc, sinh, sqrt, tan, tanh,
)
from amdjax.numpy.files import frombuffer, fromfile, fromiter, fromstring, load, save, savez
from amdjax.numpy.rounding import (
    around, ceil, copysign, floor, frexp, ldexp, modf, nan_to_num, nextafter, rint, round,
    spacing, trunc,
)
from amdjax.numpy.histograms import histogram, histogram2d, histogram_bin_edges, histogramdd
from amdjax.numpy.logic import (
    allclose, array_equal, array_equiv, bitwise_and, bitwise_count, bitwise_invert,
    bitwise_left_shift, bitwise_not, bitwise_or, bitwise_right_shift, bitwise_xor, equal,
    greater, greater_equal, invert, isclose, iscomplex, iscomplexobj, isfinite, isinf, isnan,
    isneginf, isposinf, isreal, isrealobj, left_shift, less, less_equal, logical_and,
    logical_not, logical_or, logical_xor, not_equal, right_shift, signbit,
)
from amdjax.numpy.manipulation import (
    atleast_1d, atleast_2d, atleast_3d, broadcast_arrays, broadcast_shapes, broadcast_to,
    expand_dims, flip, fliplr, flipud, isscalar, iterable, matrix_transpose, moveaxis, ndim,
    permute_dims, ravel, reshape, resize, roll, rollaxis, rot90, shape, size, squeeze, swapaxes,
    tile, transpose,
)
from amdjax.numpy.joining import (
    append, array_split, block, column_stack, concat, concatenate, dsplit, dstack, hsplit,
    hstack, split, stack, trim_zeros, unstack, vsplit, vstack,
)
from amdjax.numpy.diagonals import (diag, diagflat, diagonal, kron, trace, tril, triu, vander)
from amdjax.numpy.nan_reductions import (
    nanargmax, nanargmin, nanmax, nanmean, nanmin, nanprod, nanstd, nansum, nanvar,
)
from amdjax.numpy.padding import pad
from amdjax.numpy.polynomial import (
    poly, polyadd, polyder, polydiv, polyfit, polyint, polymul, polysub, polyval, roots,
)
from amdjax.numpy.ranges import (
    bartlett, blackman, c_, fromfunction, geomspace, hamming, hanning, index_exp, indices, kaiser,
    linspace, logspace, meshgrid, mgrid, ogrid, r_, s_,
)
from amdjax.numpy.reductions import (
    all, amax, amin, any, argmax, argmin, average, count_nonzero, max, mean, min, prod, ptp,
    std, sum, var,
)
from amdjax.numpy.scalars import (
    array_repr, array_str, bfloat16, bool, bool_, can_cast, cdouble, character, complex128,
    complex64, complex_, complexfloating, ComplexWarning, csingle, double, dtype, e,
    euler_gamma, finfo, flexible, float16, float32, float4_e2m1fn, float64, float6_e2m3fn,
    float6_e3m2fn, float8_e3m4, float8_e4m3, float8_e4m3b11fnuz, float8_e4m3fn, float8_e4m3fnuz,
    float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float_, floating, generic, get_printoptions,
    iinfo, inexact, inf, int1, int16, int2, int32, int4, int64, int8, int_, integer, isdtype,
    issubdtype, nan, ndarray, newaxis, number, object_, pi, printoptions, promote_types,
    result_type, set_printoptions, signedinteger, single, uint, uint1, uint16, uint2, uint32,
    uint4, uint64, uint8, unsignedinteger,
)
from amdjax.numpy.selecting import (
    argwhere, choose, compress, extract, flatnonzero, nonzero, piecewise, place, put,
    put_along_axis, select, take, take_along_axis, where,
)
from amdjax.numpy.index_arrays import (
    diag_indices, diag_indices_from, fill_diagonal, ix_, mask_indices, ravel_multi_index,
    tril_indices, tril_indices_from, triu_indices, triu_indices_from, unravel_index,
)
from amdjax.numpy.setops import (
    intersect1d, isin, setdiff1d, setxor1d, union1d, unique, unique_all, unique_counts,
    unique_inverse, unique_values,
)
from amdjax.numpy.sorting import (
    argpartition, argsort, bincount, digitize, lexsort, partition, searchsorted, sort,
    sort_complex,
)
from amdjax.numpy.statistics import (
    corrcoef, cov, median, nanmedian, nanpercentile, nanquantile, percentile, quantile,
)
from amdjax.numpy.ufunc_api import frompyfunc, ufunc
from amdjax.numpy.vectorize import vectorize
from amdjax.numpy import array_methods as _array_methods
from amdjax.core.docs import complete as _complete
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.numpy import _docs

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "angle", "any",
    "append", "apply_along_axis", "apply_over_axes", "arange", "arccos", "arccosh", "arcsin",
    "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort",
    "argwhere", "around", "array", "array_equal", "array_equiv", "array_repr", "array_split",
    "array_str", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh", "atleast_1d",
    "atleast_2d", "atleast_3d", "average", "bartlett", "bfloat16", "bincount", "bitwise_and",
    "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "blackman", "block", "bool", "bool_", "broadcast_arrays",
    "broadcast_shapes", "broadcast_to", "c_", "can_cast", "cbrt", "cdouble", "ceil", "character",
    "choose", "clip", "column_stack", "complex128", "complex64", "complex_", "complexfloating",
    "ComplexWarning", "compress", "concat", "concatenate", "conj", "conjugate", "convolve", "copy",
    "copysign", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov", "cross", "csingle",
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "deg2rad", "degrees", "delete",
    "diag", "diag_indices", "diag_indices_from", "diagflat", "diagonal", "diff", "digitize",
    "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum",
    "einsum_path", "empty", "empty_like", "equal", "euler_gamma", "exp", "exp2", "expand_dims",
    "expm1", "extract", "eye", "fabs", "fft", "fill_diagonal", "finfo", "flatnonzero", "flexible",
    "flip", "fliplr", "flipud", "float16", "float32", "float4_e2m1fn", "float64", "float6_e2m3fn",
    "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float_", "float_power",
    "floating", "floor", "floor_divide", "fmax", "fmin", "fmod", "frexp", "from_dlpack",
    "frombuffer", "fromfile", "fromfunction", "fromiter", "frompyfunc", "fromstring", "full",
    "full_like", "gcd", "generic", "geomspace", "get_printoptions", "gradient", "greater",
    "greater_equal", "hamming", "hanning", "heaviside", "histogram", "histogram2d",
    "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "hypot", "i0", "identity", "iinfo",
    "imag", "index_exp", "indices", "inexact", "inf", "inner", "insert", "int1", "int16", "int2",
    "int32", "int4", "int64", "int8", "int_", "integer", "interp", "intersect1d", "invert",
    "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isin", "isinf", "isnan",
    "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_",
    "kaiser", "kron", "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort", "linalg",
    "linspace", "load", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logspace", "mask_indices", "matmul",
    "matrix_transpose", "matvec", "max", "maximum", "mean", "median", "meshgrid", "mgrid", "min",
    "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile",
    "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "ndarray", "ndim", "negative",
    "newaxis", "nextafter", "nonzero", "not_equal", "number", "object_", "ogrid", "ones",
    "ones_like", "outer", "packbits", "pad", "partition", "percentile", "permute_dims", "pi",
    "piecewise", "place", "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul",
    "polysub", "polyval", "positive", "pow", "power", "printoptions", "prod", "promote_types",
    "ptp", "put", "put_along_axis", "quantile", "r_", "rad2deg", "radians", "ravel",
    "ravel_multi_index", "real", "reciprocal", "remainder", "repeat", "reshape", "resize",
    "result_type", "right_shift", "rint", "roll", "rollaxis", "roots", "rot90", "round", "s_",
    "save", "savez", "searchsorted", "select", "set_printoptions", "setdiff1d", "setxor1d", "shape",
    "sign", "signbit", "signedinteger", "sin", "sinc", "single", "sinh", "size", "sort",
    "sort_complex", "spacing", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract",
    "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "trace",
    "transpose", "trapezoid", "tri", "tril", "tril_indices", "tril_indices_from", "trim_zeros",
    "triu", "triu_indices", "triu_indices_from", "true_divide", "trunc", "ufunc", "uint", "uint1",
    "uint16", "uint2", "uint32", "uint4", "uint64", "uint8", "union1d", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "unpackbits", "unravel_index",
    "unsignedinteger", "unstack", "unwrap", "vander", "var", "vdot", "vecdot", "vecmat",
    "vectorize", "vsplit", "vstack", "where", "zeros", "zeros_like",
]  # fmt: skip

_complete(globals(), _docs.FAMILIES, _docs.PHRASES)
_array_methods.install(_sys.modules[__name__])
_public_surface(globals())
