"""The primitives of batched formats, on the parts of arrays: data, indices, where rows begin."""

from __future__ import annotations

from typing import Any

from amdjax.experimental.sparse import layout, products
from amdjax.experimental.sparse.base import SparseInfo
from amdjax.experimental.sparse.bcoo import BCOO, make
from amdjax.experimental.sparse.bcsr import BCSR, bcsr_dot_general, bcsr_extract
from amdjax.experimental.sparse.primitives import primitive_of


def _bcoo(data: Any, indices: Any, info: SparseInfo) -> BCOO:
    return BCOO((data, indices), **info._asdict())


def _bcsr(data: Any, indices: Any, indptr: Any, info: SparseInfo) -> BCSR:
    return BCSR((data, indices, indptr), **info._asdict())


def _bcoo_parts(mat: BCOO) -> tuple[Any, Any]:
    return mat.data, mat.indices


def _extract(indices: Any, arr: Any, *, assume_unique: bool = True) -> Any:
    places = make(products.zero_data(indices, arr), indices, arr.shape)
    return layout.bcoo_extract(places, arr, assume_unique=assume_unique).data


bcoo_todense_p = primitive_of(
    "bcoo_todense", lambda data, indices, *, spinfo: _bcoo(data, indices, spinfo).todense()
)
bcoo_fromdense_p = primitive_of(
    "bcoo_fromdense",
    lambda mat, **params: _bcoo_parts(layout.bcoo_fromdense(mat, **params)),
    multiple_results=True,
)
bcoo_extract_p = primitive_of("bcoo_extract", _extract)
bcoo_transpose_p = primitive_of(
    "bcoo_transpose",
    lambda data, indices, *, permutation, spinfo: _bcoo_parts(
        layout.bcoo_transpose(_bcoo(data, indices, spinfo), permutation=permutation)
    ),
    multiple_results=True,
)
bcoo_sort_indices_p = primitive_of(
    "bcoo_sort_indices",
    lambda data, indices, *, spinfo: _bcoo_parts(
        layout.bcoo_sort_indices(_bcoo(data, indices, spinfo))
    ),
    multiple_results=True,
)
bcoo_sum_duplicates_p = primitive_of(
    "bcoo_sum_duplicates",
    lambda data, indices, *, spinfo, nse: _bcoo_parts(
        layout.bcoo_sum_duplicates(_bcoo(data, indices, spinfo), nse)
    ),
    multiple_results=True,
)
bcoo_dot_general_p = primitive_of(
    "bcoo_dot_general",
    lambda data, indices, rhs, *, lhs_spinfo, **params: products.bcoo_dot_general(
        _bcoo(data, indices, lhs_spinfo), rhs, **params
    ),
)
bcoo_spdot_general_p = primitive_of(
    "bcoo_spdot_general",
    lambda l_data, l_indices, r_data, r_indices, *, lhs_spinfo, rhs_spinfo, **params: _bcoo_parts(
        products.bcoo_dot_general(
            _bcoo(l_data, l_indices, lhs_spinfo), _bcoo(r_data, r_indices, rhs_spinfo), **params
        )
    ),
    multiple_results=True,
)
bcoo_dot_general_sampled_p = primitive_of(
    "bcoo_dot_general_sampled", products.bcoo_dot_general_sampled
)


def _bcsr_parts(mat: BCSR) -> tuple[Any, Any, Any]:
    return mat.data, mat.indices, mat.indptr


bcsr_todense_p = primitive_of(
    "bcsr_todense",
    lambda data, indices, indptr, *, spinfo: _bcsr(data, indices, indptr, spinfo).todense(),
)
bcsr_fromdense_p = primitive_of(
    "bcsr_fromdense",
    lambda mat, **params: _bcsr_parts(BCSR.fromdense(mat, **params)),
    multiple_results=True,
)
bcsr_extract_p = primitive_of("bcsr_extract", bcsr_extract)
bcsr_dot_general_p = primitive_of(
    "bcsr_dot_general",
    lambda data, indices, indptr, rhs, *, lhs_spinfo, **params: bcsr_dot_general(
        _bcsr(data, indices, indptr, lhs_spinfo), rhs, **params
    ),
)
