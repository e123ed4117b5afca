"""Sparse arrays: `BCOO`, coordinates of entries, and `BCSR`, rows of them, both in batches.

Their data are differentiated and their products compiled like anything else; the number of entries
that they can hold is static.

    >>> from amdjax.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> m, m @ jnp.ones(2)
    (BCOO(float32[2, 2], nse=2), Array([2., 3.], dtype=float32))
"""

from amdjax.core.errors import public_surface as _public_surface
from amdjax.experimental.sparse.autodiff import (
    grad as grad,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    value_and_grad as value_and_grad,
)
from amdjax.experimental.sparse.bcoo import BCOO as BCOO
from amdjax.experimental.sparse.bcsr import (
    BCSR as BCSR,
    bcsr_dot_general as bcsr_dot_general,
    bcsr_extract as bcsr_extract,
    bcsr_fromdense as bcsr_fromdense,
    bcsr_sum_duplicates as bcsr_sum_duplicates,
    bcsr_todense as bcsr_todense,
)
from amdjax.experimental.sparse.construct import (
    empty as empty,
    eye as eye,
    random_bcoo as random_bcoo,
    todense as todense,
)
from amdjax.experimental.sparse.layout import (
    JAXSparse as JAXSparse,
    SparseEfficiencyError as SparseEfficiencyError,
    SparseEfficiencyWarning as SparseEfficiencyWarning,
    bcoo_broadcast_in_dim as bcoo_broadcast_in_dim,
    bcoo_concatenate as bcoo_concatenate,
    bcoo_extract as bcoo_extract,
    bcoo_fromdense as bcoo_fromdense,
    bcoo_reshape as bcoo_reshape,
    bcoo_slice as bcoo_slice,
    bcoo_sort_indices as bcoo_sort_indices,
    bcoo_sum_duplicates as bcoo_sum_duplicates,
    bcoo_todense as bcoo_todense,
    bcoo_transpose as bcoo_transpose,
    bcoo_update_layout as bcoo_update_layout,
)
from amdjax.experimental.sparse.products import (
    bcoo_dot_general as bcoo_dot_general,
    bcoo_dot_general_sampled as bcoo_dot_general_sampled,
    bcoo_multiply_dense as bcoo_multiply_dense,
    bcoo_multiply_sparse as bcoo_multiply_sparse,
    bcoo_reduce_sum as bcoo_reduce_sum,
)

_public_surface(globals())
