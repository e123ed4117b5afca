"""Factorizations and solvers for dense matrices; leading axes are batches.

They run LAPACK through SciPy and NumPy on the host. What LAPACK cannot factor comes back as NaN.
"""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Phrases as _Phrases, complete as _complete
from amdjax.lax import _docs
from amdjax.lax.linalg.eigen import (
    EighImplementation,
    EigImplementation,
    eig,
    eig_p,
    eigh,
    eigh_p,
    hessenberg,
    hessenberg_p,
    schur,
    schur_p,
    tridiagonal,
    tridiagonal_p,
)
from amdjax.lax.linalg.factor import (
    cholesky,
    cholesky_p,
    cholesky_update,
    cholesky_update_p,
    lu,
    lu_p,
    lu_pivots_to_permutation,
    lu_pivots_to_permutation_p,
    lu_solve,
)
from amdjax.lax.linalg.orthogonal import (
    geqrf,
    geqrf_p,
    householder_product,
    householder_product_p,
    ormqr,
    ormqr_p,
    qr,
    qr_p,
)
from amdjax.lax.linalg.singular import SvdAlgorithm, qdwh, svd, svd_p
from amdjax.lax.linalg.triangular import (
    symmetric_product,
    symmetric_product_p,
    triangular_solve,
    triangular_solve_p,
    tridiagonal_solve,
    tridiagonal_solve_p,
)

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_p",
    "cholesky_update", "cholesky_update_p", "eig", "eig_p", "eigh", "eigh_p", "geqrf", "geqrf_p",
    "hessenberg", "hessenberg_p", "householder_product", "householder_product_p", "lu", "lu_p",
    "lu_pivots_to_permutation", "lu_pivots_to_permutation_p", "lu_solve", "ormqr", "ormqr_p",
    "qdwh", "qr", "qr_p", "schur", "schur_p", "svd", "svd_p", "symmetric_product",
    "symmetric_product_p", "triangular_solve", "triangular_solve_p", "tridiagonal", "tridiagonal_p",
    "tridiagonal_solve", "tridiagonal_solve_p",
]  # fmt: skip

_complete(globals(), _docs.LINALG, _Phrases())
_public_surface(globals())
