"""What JAX's tests of sparse arrays take from its modules' private names, as amdjax has it."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.experimental.sparse import (
    bcoo as _bcoo_module,
    bcsr as _bcsr_module,
    binding,
    coo as _coo_module,
    csr as _csr_module,
    layout,
    linalg as linalg_module,
    products,
    structure,
    transform as _transform_module,
    util as _util_module,
)

_BCOO, _BCSR = _bcoo_module.BCOO, _bcsr_module.BCSR


def _namespace(*modules: Any, **private: Any) -> types.SimpleNamespace:
    found: dict[str, Any] = {}
    for module in modules:
        found.update((n, v) for n, v in vars(module).items() if not n.startswith("_"))
    return types.SimpleNamespace(**{**found, **private})


def _bcoo_fromdense(mat: Any, *, nse: Any, index_dtype: Any = np.int32, **layout_of: int) -> Any:
    found = layout.bcoo_fromdense(mat, nse=int(nse), index_dtype=index_dtype, **layout_of)
    return found.data, found.indices


def _bcoo_todense(data: Any, indices: Any, *, spinfo: Any) -> Any:
    return binding.bcoo_todense_p.bind(data, indices, spinfo=_info(spinfo))


def _info(spinfo: Any) -> Any:
    return _util_module.SparseInfo(tuple(spinfo.shape), *spinfo[1:])


def _bcoo_extract(indices: Any, mat: Any, *, assume_unique: bool = True) -> Any:
    return binding.bcoo_extract_p.bind(indices, mat, assume_unique=assume_unique)


def _bcoo_dot_general(
    data: Any, indices: Any, rhs: Any, *, lhs_spinfo: Any, dimension_numbers: Any, **params: Any
) -> Any:
    numbers = tuple(tuple(map(tuple, side)) for side in dimension_numbers)
    return binding.bcoo_dot_general_p.bind(
        data, indices, rhs, lhs_spinfo=_info(lhs_spinfo), dimension_numbers=numbers, **params
    )


def _bcsr_fromdense(mat: Any, *, nse: Any, index_dtype: Any = np.int32, **layout_of: int) -> Any:
    found = _BCSR.fromdense(mat, nse=int(nse), index_dtype=index_dtype, **layout_of)
    return found.data, found.indices, found.indptr


def _bcoo_to_bcsr(indices: Any, *, shape: Any, index_dtype: Any) -> Any:
    n_batch = indices.ndim - 2
    data = np.zeros((*indices.shape[:-1], *shape[n_batch + 2 :]), np.float32)
    found = _BCSR.from_bcoo(_BCOO((data, indices), shape=shape, indices_sorted=True))
    return found.indices, found.indptr


def _bcsr_to_bcoo(indices: Any, indptr: Any, *, shape: Any) -> Any:
    data = np.zeros((*indices.shape, *shape[indices.ndim + 1 :]), np.float32)
    return _BCSR((data, indices, indptr), shape=shape).to_bcoo().indices


def _product(bind: Any) -> Any:
    return lambda *args, transpose=False, **info: bind(*args, transpose=transpose, **info)


def _entries(bind: Any) -> Any:
    return lambda mat, *, nse, index_dtype=np.int32: bind(
        mat, nse=int(nse), index_dtype=np.dtype(index_dtype)
    )


def _lobpcg_standard_matrix(A: Any, X: Any, m: int, tol: Any, debug: bool) -> Any:
    """The last of all steps, and what each of them found."""
    A, X = jnp.asarray(A), jnp.asarray(X)
    product = lambda S: jnp.matmul(A, S, precision=lax.Precision.HIGHEST)
    start, advance = linalg_module._steps(product, X, tol)

    def step(state: Any, _: Any) -> Any:
        state = advance(state)
        return state, (state[4], (state[1] == 0).all(0).sum())

    (i, X, _, _, theta, _), (values, zeros) = lax.scan(step, start, length=m)
    return theta, X, i, {"lambda history": values, "X zeros": zeros}


bcoo = _namespace(
    _bcoo_module, layout, products, structure,
    _bcoo_fromdense=_bcoo_fromdense, _bcoo_todense=_bcoo_todense, _bcoo_extract=_bcoo_extract,
    _bcoo_dot_general=_bcoo_dot_general,
)  # fmt: skip
bcsr = _namespace(
    _bcsr_module,
    _bcsr_fromdense=_bcsr_fromdense, _bcoo_to_bcsr=_bcoo_to_bcsr, _bcsr_to_bcoo=_bcsr_to_bcoo,
)  # fmt: skip
coo = _namespace(
    _coo_module,
    _coo_todense=_coo_module.coo_todense_p.bind,
    _coo_fromdense=_entries(_coo_module.coo_fromdense_p.bind),
    _coo_matvec=_product(_coo_module.coo_matvec_p.bind),
    _coo_matmat=_product(_coo_module.coo_matmat_p.bind),
)
csr = _namespace(
    _csr_module,
    _csr_todense=_csr_module.csr_todense_p.bind,
    _csr_fromdense=_entries(_csr_module.csr_fromdense_p.bind),
    _csr_matvec=_product(_csr_module.csr_matvec_p.bind),
    _csr_matmat=_product(_csr_module.csr_matmat_p.bind),
)
linalg = _namespace(linalg_module, _lobpcg_standard_matrix=_lobpcg_standard_matrix)
util = _namespace(
    _util_module,
    _csr_to_coo=lambda indices, indptr: (_csr_module.rows_of(indices, indptr), indices),
    _count_stored_elements=_util_module.count_stored_elements,
    _count_stored_elements_per_batch=_util_module.count_stored_elements_per_batch,
)
transform = _namespace(_transform_module)
