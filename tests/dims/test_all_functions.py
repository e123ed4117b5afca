"""Every public function of arrays has the shapes of any sizes where sizes are symbolic."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
import amdjax.scipy.fft
import amdjax.scipy.linalg
import amdjax.scipy.special
from amdjax import ShapeDtypeStruct, lax
from amdjax.core.dims import Dim, SymbolicScope, at_sizes
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.export import symbolic_shape

MODULES = {
    "jnp": jnp, "lax": lax, "linalg": jnp.linalg, "fft": jnp.fft, "lax.linalg": lax.linalg,
    "scipy.special": amdjax.scipy.special, "scipy.linalg": amdjax.scipy.linalg,
    "scipy.fft": amdjax.scipy.fft,
}  # fmt: skip
SIZES = ({"a": 2, "b": 3}, {"a": 3, "b": 7}, {"a": 7, "b": 2}, {"a": 3, "b": 2}, {"a": 7, "b": 7})

#: Shapes of arguments that are tried, the first that a function takes at given sizes is its call.
CALLS = (
    ("a, b",), ("a, b", "a, b"), ("a",), ("a", "a"), ("a, a",), ("a, a", "a, a"),
    ("a, b", "a, b", "a, b"), ("a, b", "b"), ("2, a, a",), ("2, a, 3", "2, 3, b"),
)  # fmt: skip

I = np.int32
ints = lambda x: x.astype(I)
mask = lambda x: x > 0
window = lambda f: lambda x: f(x, (2, 2), (1, 2), "SAME")
at = lambda x: jnp.zeros((x.shape[0], 1), I)
GATHER = lax.GatherDimensionNumbers((1,), (0,), (0,))
SCATTER = lax.ScatterDimensionNumbers((1,), (0,), (0,))
CONV = ("NCHW", "OIHW", "NCHW")

#: Calls of functions that take more than arrays of floats.
SPECIAL = {
    "jnp.append": (lambda x: jnp.append(x, x[:1], 0), "a, b"),
    "jnp.apply_along_axis": (lambda x: jnp.apply_along_axis(jnp.sort, 0, x), "a, b"),
    "jnp.apply_over_axes": (lambda x: jnp.apply_over_axes(jnp.sum, x, [0]), "a, b"),
    "jnp.arange": (lambda x: jnp.arange(1, x.shape[0], 2), "a"),
    "jnp.argpartition": (lambda x: jnp.argpartition(x, 1), "a, b"),
    "jnp.argwhere": (lambda x: jnp.argwhere(x, size=x.shape[0]), "a, b"),
    "jnp.array_split": (lambda x: jnp.array_split(x, 3), "a, b"),
    "jnp.astype": (lambda x: jnp.astype(x, I), "a, b"),
    "jnp.bincount": (lambda x: jnp.bincount(ints(x), length=x.shape[0] + 1), "a"),
    "jnp.block": (lambda x: jnp.block([[x, x], [x, x]]), "a, b"),
    "jnp.broadcast_to": (lambda x: jnp.broadcast_to(x, (3, *x.shape)), "a, b"),
    "jnp.choose": (lambda x: jnp.choose(ints(x), [x, x], mode="clip"), "a, b"),
    "jnp.compress": (lambda x: jnp.compress(x[0] > 0, x, 1, size=2), "a, b"),
    "jnp.cross": (jnp.cross, "a, 3", "a, 3"),
    "jnp.delete": (lambda x: jnp.delete(x, 1, 0), "a, b"),
    "jnp.diag_indices": (lambda x: jnp.diag_indices(x.shape[0]), "a"),
    "jnp.dsplit": (lambda x: jnp.dsplit(x, 2), "a, b, 4"),
    "jnp.einsum": (lambda x, y: jnp.einsum("ij,kj->ik", x, y), "a, b", "2, b"),
    "jnp.empty": (lambda x: jnp.empty(x.shape), "a, b"),
    "jnp.expand_dims": (lambda x: jnp.expand_dims(x, 1), "a, b"),
    "jnp.extract": (lambda x: jnp.extract(mask(x), x, size=2), "a, b"),
    "jnp.eye": (lambda x: jnp.eye(*x.shape, 1), "a, b"),
    "jnp.fill_diagonal": (lambda x: jnp.fill_diagonal(x, 1, inplace=False), "a, b"),
    "jnp.flatnonzero": (lambda x: jnp.flatnonzero(x, size=x.size), "a, b"),
    "jnp.fromfunction": (lambda x: jnp.fromfunction(lambda i, j: i * j, x.shape), "a, b"),
    "jnp.full": (lambda x: jnp.full(x.shape, 2.0), "a, b"),
    "jnp.full_like": (lambda x: jnp.full_like(x, 2.0), "a, b"),
    "jnp.geomspace": (lambda x: jnp.geomspace(1.0, 8.0, x.shape[0]), "a"),
    "jnp.histogram": (lambda x: jnp.histogram(x, x.shape[0]), "a, b"),
    "jnp.histogramdd": (lambda x: jnp.histogramdd(x, (3, 4)), "a, 2"),
    "jnp.hsplit": (lambda x: jnp.hsplit(x, 2), "a, 2*b"),
    "jnp.identity": (lambda x: jnp.identity(x.shape[0]), "a"),
    "jnp.indices": (lambda x: jnp.indices(x.shape), "a, b"),
    "jnp.insert": (lambda x: jnp.insert(x, 1, 2.0, 0), "a, b"),
    "jnp.interp": (jnp.interp, "a, b", "b", "b"),
    "jnp.intersect1d": (lambda x, y: jnp.intersect1d(x, y, size=2, return_indices=True), "a", "b"),
    "jnp.ix_": (lambda x, y: jnp.ix_(ints(x), ints(y)), "a", "b"),
    "jnp.kaiser": (lambda x: jnp.kaiser(x.shape[0], 2.0), "a"),
    "jnp.kron": (jnp.kron, "a, b", "b, a"),
    "jnp.lexsort": (lambda x, y: jnp.lexsort((x, y)), "a, b", "a, b"),
    "jnp.linspace": (lambda x: jnp.linspace(x[0], x[-1], x.shape[0]), "a, b"),
    "jnp.logspace": (lambda x: jnp.logspace(x[0], x[-1], x.shape[0]), "a, b"),
    "jnp.mask_indices": (
        lambda x: jnp.mask_indices(x.shape[0], jnp.triu, size=x.shape[0]), "a",
    ),
    "jnp.meshgrid": (jnp.meshgrid, "a", "b"),
    "jnp.moveaxis": (lambda x: jnp.moveaxis(x, 0, 2), "a, b, 3"),
    "jnp.nonzero": (lambda x: jnp.nonzero(x, size=x.size), "a, b"),
    "jnp.ones": (lambda x: jnp.ones(x.shape), "a, b"),
    "jnp.pad": (lambda x: [jnp.pad(x, (1, 2), mode) for mode in PADS], "a, b"),
    "jnp.partition": (lambda x: jnp.partition(x, x.shape[1] // 2), "a, b"),
    "jnp.percentile": (lambda x: jnp.percentile(x, 30.0, 0), "a, b"),
    "jnp.permute_dims": (lambda x: jnp.permute_dims(x, (1, 0)), "a, b"),
    "jnp.piecewise": (lambda x: jnp.piecewise(x, [x > 0, x < 0], [1, 2, 3]), "a, b"),
    "jnp.place": (lambda x: jnp.place(x, mask(x), x, inplace=False), "a, b"),
    "jnp.polydiv": (jnp.polydiv, "a", "2"),
    "jnp.polyfit": (lambda x: jnp.polyfit(x, x, 1), "a"),
    "jnp.polymul": (jnp.polymul, "a", "b"),
    "jnp.polyadd": (jnp.polyadd, "a", "b"),
    "jnp.put": (lambda x: jnp.put(x, jnp.array([0]), 1.0, inplace=False), "a, b"),
    "jnp.put_along_axis": (
        lambda x: jnp.put_along_axis(x, at(x), 1.0, 1, inplace=False), "a, b",
    ),
    "jnp.quantile": (lambda x: jnp.quantile(x, 0.3, 1), "a, b"),
    "jnp.ravel_multi_index": (
        lambda x: jnp.ravel_multi_index((ints(x), ints(x)), x.shape, "clip"), "a, b",
    ),
    "jnp.repeat": (lambda x: (jnp.repeat(x, 3), jnp.repeat(x, x.shape[0], 1)), "a, b"),
    "jnp.reshape": (lambda x: jnp.reshape(x, (x.shape[1], -1)), "a, b"),
    "jnp.resize": (lambda x: (jnp.resize(x, (4, 5)), jnp.resize(x, (x.shape[1], 2))), "a, b"),
    "jnp.roll": (lambda x: jnp.roll(x, (x.shape[0] // 2, -1), (0, 1)), "a, b"),
    "jnp.rollaxis": (lambda x: jnp.rollaxis(x, 1), "a, b"),
    "jnp.roots": (lambda x: jnp.roots(x, strip_zeros=False), "a"),
    "jnp.select": (lambda x: jnp.select([x > 0, x < 1], [x, -x]), "a, b"),
    "jnp.setdiff1d": (lambda x, y: jnp.setdiff1d(x, y, size=2), "a", "b"),
    "jnp.setxor1d": (lambda x, y: jnp.setxor1d(x, y, size=2), "a", "b"),
    "jnp.split": (lambda x: jnp.split(x, [1, x.shape[0] // 2 + 1]), "a, b"),
    "jnp.squeeze": (jnp.squeeze, "a, 1, b"),
    "jnp.swapaxes": (lambda x: jnp.swapaxes(x, 0, 1), "a, b"),
    "jnp.take": (lambda x: jnp.take(x, jnp.array([0, 1]), 1), "a, b"),
    "jnp.take_along_axis": (lambda x: jnp.take_along_axis(x, at(x), 1), "a, b"),
    "jnp.tile": (lambda x: (jnp.tile(x, (2, 3)), jnp.tile(x, x.shape)), "a, b"),
    "jnp.tri": (lambda x: jnp.tri(*x.shape), "a, b"),
    "jnp.tril_indices": (lambda x: jnp.tril_indices(x.shape[0], 1, x.shape[1]), "a, b"),
    "jnp.triu_indices": (lambda x: jnp.triu_indices(x.shape[0], -1, x.shape[1]), "a, b"),
    "jnp.union1d": (lambda x, y: jnp.union1d(x, y, size=5), "a", "b"),
    "jnp.unpackbits": (lambda x: jnp.unpackbits(x.astype(np.uint8), 1), "a, b"),
    "jnp.unravel_index": (lambda x: jnp.unravel_index(ints(x), x.shape), "a, b"),
    "jnp.unstack": (lambda x: jnp.unstack(x, axis=1), "a, 3"),
    "jnp.vander": (lambda x: jnp.vander(x, 3), "a"),
    "jnp.vectorize": (lambda x: jnp.vectorize(jnp.sum, signature="(n)->()")(x), "a, b"),
    "jnp.vsplit": (lambda x: jnp.vsplit(x, 2), "2*a, b"),
    "jnp.zeros": (lambda x: jnp.zeros(x.shape), "a, b"),
    "fft.fftfreq": (lambda x: jnp.fft.fftfreq(x.shape[0]), "a"),
    "fft.rfftfreq": (lambda x: jnp.fft.rfftfreq(x.shape[0]), "a"),
    "jnp.unique": (lambda x: jnp.unique(x, size=4, return_counts=True, axis=0), "a, 3"),
    "linalg.tensorinv": (jnp.linalg.tensorinv, "a, b, a, b"),
    "linalg.tensorsolve": (jnp.linalg.tensorsolve, "a, b, a, b", "a, b"),
    "lax.linalg.cholesky_update": (lax.linalg.cholesky_update, "a, a", "a"),
    "lax.linalg.householder_product": (lax.linalg.householder_product, "a + b, a", "a"),
    "lax.linalg.lu_pivots_to_permutation": (
        lambda x: lax.linalg.lu_pivots_to_permutation(ints(x), x.shape[0]), "a",
    ),
    "lax.linalg.lu_solve": (lambda x, y: lax.linalg.lu_solve(x, ints(y), x), "a, a", "a"),
    "lax.linalg.ormqr": (lax.linalg.ormqr, "a + b, a", "a", "a + b, a"),
    "lax.linalg.tridiagonal_solve": (lax.linalg.tridiagonal_solve, "a", "a", "a", "a, b"),
    "linalg.multi_dot": (lambda x, y: jnp.linalg.multi_dot([x, y, x]), "3, b", "b, 3"),
    "linalg.matrix_power": (lambda x: jnp.linalg.matrix_power(x, 3), "a, a"),
    "linalg.qr": (lambda x: (jnp.linalg.qr(x), jnp.linalg.qr(x, "complete")), "a, b"),
    "linalg.svd": (lambda x: (jnp.linalg.svd(x), jnp.linalg.svd(x, False)), "a, b"),
    "linalg.lstsq": (jnp.linalg.lstsq, "a, b", "a"),
    "linalg.cross": (jnp.linalg.cross, "a, 3", "a, 3"),
    "lax.broadcast": (lambda x: lax.broadcast(x, (2, x.shape[0])), "a, b"),
    "lax.broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (*x.shape, 2), (0, 1)), "a, b"),
    "lax.broadcast_to_rank": (lambda x: lax.broadcast_to_rank(x, 3), "a, b"),
    "lax.broadcasted_iota": (lambda x: lax.broadcasted_iota(I, x.shape, 1), "a, b"),
    "lax.bitcast_convert_type": (lambda x: lax.bitcast_convert_type(x, I), "a, b"),
    "lax.collapse": (lambda x: lax.collapse(x, 0, 2), "a, b, 3"),
    "lax.concatenate": (lambda x: lax.concatenate([x, x], 1), "a, b"),
    "lax.cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), "a, b"),
    "lax.conv": (lambda x, w: lax.conv(x, w, (2, 1), "SAME"), "2, 3, a, b", "4, 3, 2, 3"),
    "lax.conv_general_dilated": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 2), "VALID"), "b, 3, a, a", "4, 3, 2, 2",
    ),
    "lax.conv_general_dilated_patches": (
        lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 1), "SAME"), "2, 3, a, b",
    ),
    "lax.conv_transpose": (
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=CONV),
        "2, 3, a, b", "4, 3, 3, 3",
    ),
    "lax.conv_with_general_padding": (
        lambda x, w: lax.conv_with_general_padding(x, w, (1, 1), [(1, 1), (0, 1)], None, None),
        "2, 3, a, b", "4, 3, 2, 2",
    ),
    "lax.convert_element_type": (lambda x: lax.convert_element_type(x, I), "a, b"),
    "lax.dot_general": (
        lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))), "a, 2, b", "a, b, 3",
    ),
    "lax.dynamic_index_in_dim": (lambda x: lax.dynamic_index_in_dim(x, 1), "a, b"),
    "lax.dynamic_slice": (lambda x: lax.dynamic_slice(x, (0, 1), (1, x.shape[1] - 1)), "a, b"),
    "lax.dynamic_slice_in_dim": (lambda x: lax.dynamic_slice_in_dim(x, 1, 2), "a, b"),
    "lax.dynamic_update_slice": (lambda x: lax.dynamic_update_slice(x, x, (0, 0)), "a, b"),
    "lax.dynamic_update_slice_in_dim": (
        lambda x: lax.dynamic_update_slice_in_dim(x, x[:1], 1, 0), "a, b",
    ),
    "lax.dynamic_update_index_in_dim": (
        lambda x: lax.dynamic_update_index_in_dim(x, x[0], 1, 0), "a, b",
    ),
    "lax.expand_dims": (lambda x: lax.expand_dims(x, (1,)), "a, b"),
    "lax.fft": (lambda x: lax.fft(lax.complex(x, x), "FFT", x.shape[1:]), "a, b"),
    "lax.fori_loop": (lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], x[0]), "a, b"),
    "lax.full": (lambda x: lax.full(x.shape, 1.0), "a, b"),
    "lax.full_like": (lambda x: lax.full_like(x, 1.0), "a, b"),
    "lax.empty": (lambda x: lax.empty(x.shape, I), "a, b"),
    "lax.gather": (lambda x: lax.gather(x, at(x), GATHER, (1, x.shape[1])), "a, b"),
    "lax.index_in_dim": (lambda x: lax.index_in_dim(x, 1), "a, b"),
    "lax.index_take": (lambda x: lax.index_take(x, (at(x)[:, 0],), (0,)), "a, b"),
    "lax.integer_pow": (lambda x: lax.integer_pow(x, 3), "a, b"),
    "lax.iota": (lambda x: lax.iota(I, x.shape[0]), "a"),
    "lax.map": (lambda x: lax.map(jnp.sum, x), "a, b"),
    "lax.pad": (lambda x: lax.pad(x, 0.0, ((1, 2, 1), (-1, 0, 0))), "a, b"),
    "lax.ragged_dot": (
        lambda x, y: lax.ragged_dot(x, y, jnp.zeros(2, I)), "a, b", "2, b, 3",
    ),
    "lax.reduce": (lambda x: lax.reduce(x, 0.0, lax.add, (0,)), "a, b"),
    "lax.reduce_precision": (lambda x: lax.reduce_precision(x, 5, 10), "a, b"),
    "lax.reduce_window": (
        window(lambda x, *w: lax.reduce_window(x, 0.0, lax.add, *w)), "a, b",
    ),
    "lax.reshape": (lambda x: lax.reshape(x, (x.size,)), "a, b"),
    "lax.rev": (lambda x: lax.rev(x, (1,)), "a, b"),
    "lax.rng_uniform": (lambda x: lax.rng_uniform(0.0, 1.0, x.shape), "a, b"),
    "lax.scan": (lambda x: lax.scan(lambda c, v: (c + v, c), x[0], x), "a, b"),
    "lax.scatter": (lambda x: lax.scatter(x, at(x), x, SCATTER), "a, b"),
    "lax.scatter_apply": (
        lambda x: lax.scatter_apply(x, at(x), jnp.sin, SCATTER, update_shape=x.shape), "a, b",
    ),
    "lax.select_n": (lambda x: lax.select_n(mask(x), x, x), "a, b"),
    "lax.select": (lambda x: lax.select(mask(x), x, x), "a, b"),
    "lax.slice": (lambda x: lax.slice(x, (1, 0), x.shape, (2, 1)), "a, b"),
    "lax.slice_in_dim": (lambda x: lax.slice_in_dim(x, 1, None, 2), "a, b"),
    "lax.sort_key_val": (lambda x: lax.sort_key_val(x, x), "a, b"),
    "lax.split": (lambda x: lax.split(x, (x.shape[0] // 2, x.shape[0] - x.shape[0] // 2)), "a, b"),
    "lax.squeeze": (lambda x: lax.squeeze(x, (1,)), "a, 1, b"),
    "lax.stack": (lambda x: lax.stack([x, x]), "a, b"),
    "lax.switch": (lambda x: lax.switch(x.shape[0] % 2, [jnp.sin, jnp.cos], x), "a, b"),
    "lax.tile": (lambda x: lax.tile(x, (2, 3)), "a, b"),
    "lax.top_k": (lambda x: lax.top_k(x, 1), "a, b"),
    "lax.approx_max_k": (lambda x: lax.approx_max_k(x, 1), "a, b"),
    "lax.approx_min_k": (lambda x: lax.approx_min_k(x, 1), "a, b"),
    "lax.transpose": (lambda x: lax.transpose(x, (1, 0)), "a, b"),
    "lax.unstack": (lambda x: lax.unstack(x, 1), "a, 3"),
    "lax.while_loop": (
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
        "a, b",
    ),
    "lax.associative_scan": (lambda x: lax.associative_scan(jnp.add, x), "a, b"),
}  # fmt: skip


def family(module, names, call, *specs):
    """Calls of functions that are called alike: `call` takes the function, then arrays."""
    for name in names.split():
        function = functools.partial(call, getattr(MODULES[module], name))
        SPECIAL[f"{module}.{name}"] = function, *specs


family("lax", "scatter_add scatter_max scatter_min scatter_mul scatter_sub",
       lambda f, x: f(x, at(x), x, SCATTER), "a, b")  # fmt: skip
family("lax", "reduce_and reduce_or reduce_xor", lambda f, x: f(mask(x), (1,)), "a, b")
family("lax", "reduce_max reduce_min reduce_prod reduce_sum", lambda f, x: f(x, (1,)), "a, b")
family("lax", "argmax argmin", lambda f, x: f(x, 1, I), "a, b")
family("jnp", "hamming hanning blackman bartlett", lambda f, x: f(x.shape[0]), "a")
family("jnp", "nanpercentile nanquantile", lambda f, x: f(x, 0.5, 1), "a, b")
family("jnp", "concatenate concat stack hstack vstack dstack column_stack",
       lambda f, x: f([x, x]), "a, b")  # fmt: skip
family("jnp", "unique_all unique_counts unique_inverse", lambda f, x: tuple(f(x, size=x.size)), "a")
family("jnp", "unique_values", lambda f, x: f(x, size=x.size), "a, b")
PADS = ("constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect",
        "symmetric", "wrap", "empty")  # fmt: skip

#: Functions that no symbolic size gets through, and why.
RAISE = {
    "jnp.poly": "Asked in 'poly'",  # a step for each root
    "jnp.polydiv": "Asked in 'polydiv'",  # a step for each coefficient of the quotient
    **dict.fromkeys(("scipy.fft.dct", "scipy.fft.dctn"), "requires a constant"),  # a known order
    **dict.fromkeys(("scipy.fft.idct", "scipy.fft.idctn"), "requires a constant"),
    "scipy.linalg.fiedler_companion": "'b - 1' used",  # products of several lengths
    "lax.associative_scan": "'floordiv(a, 2)' < '2'",  # halves until one is left
}

#: Functions that take no arrays, or are tested where they can run: in programs of several devices,
#: with functions of their own, on concrete values.
NO_ARRAYS = {
    "jnp.array_repr", "jnp.array_str", "jnp.broadcast_shapes", "jnp.einsum_path",
    "jnp.from_dlpack", "jnp.frombuffer", "jnp.fromfile", "jnp.fromiter", "jnp.frompyfunc",
    "jnp.fromstring", "jnp.get_printoptions", "jnp.load", "jnp.printoptions", "jnp.promote_types",
    "jnp.result_type", "jnp.save", "jnp.savez", "jnp.set_printoptions", "jnp.trim_zeros",
    "lax.after_all", "lax.all_gather", "lax.all_to_all", "lax.axis_index", "lax.axis_size",
    "lax.broadcast_shapes", "lax.composite", "lax.conv_dimension_numbers",
    "lax.conv_general_dilated_local", "lax.conv_general_permutations",
    "lax.conv_general_shape_tuple", "lax.conv_shape_tuple", "lax.conv_transpose_shape_tuple",
    "lax.custom_linear_solve", "lax.custom_root", "lax.dce_sink", "lax.dtype",
    "lax.padtype_to_pads", "lax.pbroadcast", "lax.pcast", "lax.platform_dependent", "lax.pmax",
    "lax.pmean", "lax.pmin", "lax.ppermute", "lax.pshuffle", "lax.psum", "lax.psum_scatter",
    "lax.pswapaxes", "lax.pvary", "lax.ragged_all_to_all", "lax.ragged_dot_general",
    "lax.reduce_window_shape_tuple", "lax.rng_bit_generator", "lax.shape_as_value",
    "lax.with_sharding_constraint", "jnp.iterable",
    "scipy.special.bernoulli", "scipy.special.bessel_jn", "scipy.special.hyp2f1",
    "scipy.special.multigammaln", "scipy.special.sph_harm_y", "scipy.linalg.cho_solve",
    "scipy.linalg.convolution_matrix", "scipy.linalg.dft", "scipy.linalg.eigh_tridiagonal",
    "scipy.linalg.funm", "scipy.linalg.hadamard", "scipy.linalg.helmert", "scipy.linalg.hilbert",
    "scipy.linalg.invhilbert", "scipy.linalg.invpascal", "scipy.linalg.leslie",
    "scipy.linalg.lu_solve", "scipy.linalg.pascal", "scipy.linalg.solve_sylvester",
}  # fmt: skip


def arguments(specs, sizes, dtype):
    shapes = [symbolic_shape(spec, scope=SymbolicScope()) for spec in specs]
    return [ShapeDtypeStruct([at_sizes(n, sizes) for n in s], dtype) for s in shapes]


def outcome(function, args):
    out = amdjax.eval_shape(function, *args)
    leaves = amdjax.tree.leaves(out)
    return [(x.shape, x.dtype) for x in leaves] if all(hasattr(x, "shape") for x in leaves) else []


def call_of(name):
    """The function, the shapes and the dtype of the first call that works at given sizes."""
    if name in NO_ARRAYS:
        return None
    if name in SPECIAL:
        return *SPECIAL[name], np.float32
    module, _, attribute = name.rpartition(".")
    function = getattr(MODULES[module], attribute)
    for dtype in (np.float32, np.int32, np.bool_, np.complex64):
        for specs in CALLS:
            try:
                if all(outcome(function, arguments(specs, sizes, dtype)) for sizes in SIZES):
                    return function, *specs, dtype
            except Exception:
                continue
    return None


def public():
    found = []
    for prefix, module in MODULES.items():
        for name in getattr(module, "__all__", None) or dir(module):
            f = getattr(module, name)
            if name[0].islower() and callable(f) and not inspect.isclass(f):
                found.append(f"{prefix}.{name}")
    return found


@pytest.mark.parametrize("name", public())
def test_shapes(name):
    call = call_of(name)
    if name in NO_ARRAYS:
        return
    assert call is not None, "no call is known: add one to SPECIAL"
    function, *specs, dtype = call
    scope = SymbolicScope()
    args = [ShapeDtypeStruct(symbolic_shape(s, scope=scope), dtype) for s in specs]
    try:
        results = outcome(function, args)
    except InconclusiveDimensionOperation as error:
        text = str(error)
        assert name in RAISE and RAISE[name] in text and "Asked" in text and ".py:" in text, text
        return
    assert name not in RAISE
    served = [sizes for sizes in SIZES if not scope.is_apart(sizes)]
    assert served
    for sizes in served:
        at_sizes = lambda shape: tuple(
            n.evaluate(sizes) if isinstance(n, Dim) else n for n in shape
        )
        wanted = outcome(function, arguments(specs, sizes, dtype))
        assert [(at_sizes(shape), dtype) for shape, dtype in results] == wanted, sizes
