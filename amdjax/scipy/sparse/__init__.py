"""Sparse problems: `scipy.sparse`."""

from amdjax.scipy.sparse import linalg as linalg
