"""Calls of the functions of `jax.numpy`, `jax.numpy.linalg` and `jax.numpy.fft`."""

from __future__ import annotations

from tests.support.jax_calls import Family
from tests.support.jax_calls.numpy_structure import (
    applying,
    average,
    broadcasting,
    choosing,
    cleaning,
    clipping,
    convolving,
    counting,
    covariance,
    differences,
    dtype_question,
    einsum,
    exponents,
    fft,
    fftn,
    filtering,
    finding,
    frequencies,
    histogram,
    indexing,
    inserting,
    interpolation,
    method,
    moving,
    nearly_equal,
    norm,
    packing,
    padding,
    permuting,
    polynomial,
    polynomial_of_order,
    polyval,
    products,
    raveled_indices,
    repeating,
    replacing,
    rolling,
    rounding,
    searching,
    selecting,
    set_operation,
    square,
    taking,
    taking_along,
    tiling,
    unique,
)
from tests.support.jax_calls.numpy_values import (
    arange,
    binary,
    casting,
    converting,
    diagonals,
    filled,
    filled_like,
    identities,
    in_unit_interval,
    index_makers,
    index_makers_from,
    integer_binary,
    interval,
    joining,
    many,
    mesh,
    nth,
    on_matrices,
    operator_binary,
    power,
    quantile,
    reduction,
    reshaping,
    running,
    shift,
    sorting,
    splitting,
    unary,
    vectors,
    viewing,
    window,
    with_axis,
    with_one_axis,
    with_two_axes,
)

UNARY = """
    abs absolute arctan arcsinh atan asinh bitwise_count bitwise_invert bitwise_not cbrt
    ceil conj conjugate copy cos cosh deg2rad degrees exp exp2 expm1 fabs floor frexp i0
    imag invert iscomplex iscomplexobj isfinite isinf isnan isneginf isposinf isreal
    isrealobj isscalar log log10 log1p log2 logical_not matrix_transpose modf ndim
    negative positive rad2deg radians real reciprocal rint shape sign signbit sin sinc
    sinh spacing sqrt square tan tanh transpose trunc atleast_1d atleast_2d atleast_3d
    fliplr flipud angle sort_complex diagflat flatnonzero argwhere nonzero trim_zeros
    permute_dims nan_to_num size ravel iterable array_repr array_str"""
FAMILIES: dict[Family, str] = {
    unary: UNARY,
    in_unit_interval: "arccos arcsin arctanh acos asin atanh arccosh acosh",
    binary: """
        add subtract multiply divide true_divide floor_divide remainder mod fmod divmod
        maximum minimum fmax fmin equal not_equal less less_equal greater greater_equal
        logical_and logical_or logical_xor arctan2 atan2 hypot copysign nextafter
        heaviside logaddexp logaddexp2 append outer kron polyadd polysub array_equiv
        linalg.outer""",
    integer_binary: "bitwise_and bitwise_or bitwise_xor gcd lcm",
    shift: "left_shift right_shift bitwise_left_shift bitwise_right_shift",
    power: "power pow float_power operator.pow",
    operator_binary: """
        operator.add operator.sub operator.mul operator.truediv operator.floordiv
        operator.mod operator.and_ operator.or_ operator.xor operator.lt operator.le
        operator.gt operator.ge operator.eq operator.ne""",
    reduction: """
        sum prod max min amax amin any all mean var std nansum nanprod nanmax nanmin
        nanmean nanvar nanstd ptp argmax argmin nanargmax nanargmin median nanmedian
        count_nonzero Array.sum Array.mean Array.max Array.argmax""",
    running: "cumsum cumprod nancumsum nancumprod cumulative_sum cumulative_prod",
    quantile: "quantile percentile nanquantile nanpercentile",
    sorting: "sort argsort",
    nth: "partition argpartition",
    with_axis: "flip squeeze expand_dims fft.fftshift fft.ifftshift lexsort",
    with_one_axis: "unstack",
    with_two_axes: "swapaxes rollaxis",
    on_matrices: "tril triu rot90 diag",
    diagonals: "diagonal trace",
    reshaping: "reshape resize Array.reshape",
    joining: "concatenate concat stack hstack vstack dstack column_stack block",
    splitting: "split array_split hsplit vsplit dsplit",
    many: "broadcast_arrays atleast_1d atleast_2d",
    vectors: "ix_",
    mesh: "meshgrid",
    window: "bartlett blackman hamming hanning kaiser",
    interval: "linspace logspace geomspace",
    arange: "arange",
    filled: "zeros ones empty full",
    filled_like: "zeros_like ones_like full_like empty_like",
    identities: "eye identity tri",
    index_makers: "tril_indices triu_indices diag_indices",
    index_makers_from: "tril_indices_from triu_indices_from diag_indices_from",
    converting: "array asarray",
    casting: "astype Array.astype",
    viewing: "Array.view",
    products: """
        dot matmul inner vdot vecdot tensordot cross matvec vecmat operator.matmul
        linalg.matmul linalg.vecdot linalg.tensordot linalg.cross""",
    einsum: "einsum",
    convolving: "convolve correlate",
    polynomial: "polymul polydiv",
    polynomial_of_order: "polyder polyint",
    polyval: "polyval",
    searching: "searchsorted digitize",
    interpolation: "interp",
    taking: "take Array.take",
    taking_along: "take_along_axis",
    indexing: "operator.getitem",
    choosing: "where",
    selecting: "select choose",
    finding: "nonzero flatnonzero argwhere",
    filtering: "compress extract",
    unique: "unique unique_all unique_counts unique_inverse unique_values",
    set_operation: "union1d intersect1d setdiff1d setxor1d isin",
    repeating: "repeat",
    tiling: "tile",
    rolling: "roll",
    padding: "pad",
    inserting: "insert delete",
    differences: "diff ediff1d gradient trapezoid unwrap",
    histogram: "histogram histogram2d histogram_bin_edges",
    counting: "bincount",
    covariance: "cov corrcoef",
    average: "average",
    nearly_equal: "isclose allclose array_equal",
    clipping: "clip Array.clip",
    rounding: "round around Array.round",
    cleaning: "nan_to_num",
    moving: "moveaxis",
    permuting: "transpose permute_dims",
    broadcasting: "broadcast_to",
    packing: "packbits unpackbits",
    raveled_indices: "ravel_multi_index unravel_index",
    applying: "apply_along_axis apply_over_axes",
    exponents: "ldexp",
    dtype_question: "result_type promote_types can_cast issubdtype isdtype",
    replacing: "put put_along_axis place fill_diagonal",
    square: """
        linalg.inv linalg.det linalg.slogdet linalg.cholesky linalg.pinv
        linalg.matrix_rank linalg.matrix_power linalg.solve linalg.lstsq linalg.eigvalsh
        linalg.svdvals linalg.cond linalg.eigh linalg.qr linalg.svd linalg.eig
        linalg.eigvals linalg.tensorinv linalg.trace linalg.diagonal
        linalg.matrix_transpose""",
    norm: "linalg.norm linalg.vector_norm linalg.matrix_norm",
    fft: "fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft",
    fftn: "fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 fft.fftn fft.ifftn fft.rfftn fft.irfftn",
    frequencies: "fft.fftfreq fft.rfftfreq",
    method: """Array.flatten Array.tolist Array.item Array.conj Array.nonzero Array.ravel Array.copy
        operator.neg operator.pos operator.abs operator.invert""",
}
