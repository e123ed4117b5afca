"""Operators and methods of `BCOO`: the functions of layouts and products, and `sparsify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array_type import Array, install_methods
from amdjax.experimental.sparse import layout, shapes, structure
from amdjax.experimental.sparse.bcoo import BCOO, full_batch, make
from amdjax.experimental.sparse.transform import sparse_rules, sparsify
from amdjax.numpy._util import promote_dtypes


class _Methods(BCOO):
    """What a `BCOO` can do; the functions it is made of are written with the class itself."""

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0,
        n_batch: int = 0,
    ) -> BCOO:  # fmt: skip
        """The entries of an array that are not zero; see `bcoo_fromdense`."""
        return layout.bcoo_fromdense(
            mat, nse=nse, n_dense=n_dense, n_batch=n_batch, index_dtype=index_dtype
        )

    def todense(self) -> Array:
        """The array itself."""
        return layout.bcoo_todense(self)

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None,
        on_inefficient: str | None = "error",
    ) -> BCOO:  # fmt: skip
        """The same array with other axes batched, sparse or dense; see `bcoo_update_layout`."""
        return layout.bcoo_update_layout(
            self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient
        )

    def sort_indices(self) -> BCOO:
        """The same array with its entries in order."""
        return layout.bcoo_sort_indices(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """The same array with one entry at each place; see `bcoo_sum_duplicates`.

        Args:
          nse: how many entries there can be; as many as needed by default.
          remove_zeros: leave out entries that are zero; not under a transformation.
        """
        if remove_zeros and nse is None:
            rows = self.data.reshape(*self.data.shape[: self.n_batch + 1], -1)
            zero = jnp.all(rows == 0, axis=-1)
            end = layout.ends(self.indices, layout.sparse_shape(self))
            indices = jnp.where(zero[..., None], end, self.indices)
            return layout.bcoo_sum_duplicates(BCOO((self.data, indices), shape=self.shape), nse)
        return layout.bcoo_sum_duplicates(self, nse)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """The array with its axes in another order, in reverse by default; see `bcoo_transpose`."""
        order = list(axes) if axes is not None else list(range(self.ndim))[::-1]
        order = [d % self.ndim for d in order]
        moved = [sorted(order[a:b]) != list(range(a, b)) for a, b in self._kinds()]
        if not any(moved):
            return layout.bcoo_transpose(self, permutation=order)
        flat = layout.bcoo_update_layout(self, n_batch=0, n_dense=0)
        turned = layout.bcoo_transpose(flat, permutation=order)
        return layout.bcoo_update_layout(
            turned, n_batch=self.n_batch, n_dense=self.n_dense, on_inefficient=None
        )

    def _kinds(self) -> list[tuple[int, int]]:
        b, s = self.n_batch, self.n_sparse
        return [(0, b), (b, b + s), (b + s, self.ndim)]

    def sum(self, axis: Any = None) -> Any:
        """The sum over some axes, sparse unless it is over all; see `numpy.sum`."""
        return sparsify(lambda x: jnp.sum(x, axis))(self)

    def reshape(self, *shape: Any) -> BCOO:
        """The same elements in another shape; see `bcoo_reshape`."""
        sizes = shape[0] if len(shape) == 1 and np.ndim(shape[0]) else shape
        return shapes.bcoo_reshape(self, new_sizes=sizes)

    def astype(self, dtype: Any) -> BCOO:
        """The array with another dtype; see `numpy.astype`."""
        return sparsify(lambda x: x.astype(dtype))(self)

    def __pos__(self) -> BCOO:
        return self

    __neg__, __abs__ = sparsify(jnp.negative), sparsify(jnp.abs)
    __matmul__ = sparsify(jnp.matmul)

    def __rmatmul__(self, other: Any) -> Any:
        return sparsify(jnp.matmul)(other, self)

    def __mul__(self, other: Any) -> Any:
        other = other if isinstance(other, BCOO) else jnp.asarray(other)
        return sparse_rules["mul"](*sparsify(promote_dtypes)(self, other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, BCOO) else sparsify(jnp.divide)(self, other)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, BCOO):
            if self.shape != other.shape:
                raise ValueError(f"shapes {self.shape} and {other.shape} differ")
            parts = [self, other]
            if (self.n_batch, self.n_dense) != (other.n_batch, other.n_dense):
                b, d = (min(getattr(p, n) for p in parts) for n in ("n_batch", "n_dense"))
                parts = [layout.bcoo_update_layout(p, n_batch=b, n_dense=d) for p in parts]
            full = [full_batch(p) for p in parts]
            at = parts[0].n_batch
            data, indices = (jnp.concatenate(x, at) for x in zip(*full, strict=True))
            return make(data, indices, self.shape)
        if np.ndim(other) == 0 and not isinstance(other, Array) and other == 0:
            return self
        return self.todense() + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __pow__(self, exponent: Any) -> BCOO:
        return sparsify(lambda x: x**exponent)(self)

    def __iter__(self) -> Iterator[BCOO]:
        if not self.shape:
            raise TypeError("iteration over a 0-d sparse array")
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, index: Any) -> BCOO:
        """A part of the array; see `sparsify` for what indices may be."""
        entries = index if isinstance(index, tuple) else (index,)
        known = (slice, int, np.integer, type(Ellipsis))
        steps = [e.step for e in entries if isinstance(e, slice)]
        if all(isinstance(e, known) for e in entries) and all(n is None or n > 0 for n in steps):
            return _take(self, index)
        return sparsify(lambda x: x[index])(self)


def _take(mat: BCOO, index: Any) -> BCOO:
    entries = list(index) if isinstance(index, tuple) else [index]
    if any(e is Ellipsis for e in entries):
        at = entries.index(Ellipsis)
        entries[at : at + 1] = [slice(None)] * (mat.ndim - len(entries) + 1)
    if len(entries) > mat.ndim:
        raise IndexError(f"too many indices for an array of shape {mat.shape}: {index}")
    entries += [slice(None)] * (mat.ndim - len(entries))
    starts, limits, steps, dropped = [], [], [], []
    for axis, (e, n) in enumerate(zip(entries, mat.shape, strict=True)):
        if isinstance(e, slice):
            start, stop, step = e.indices(n)
        else:
            start = int(e) + (n if int(e) < 0 else 0)
            if not 0 <= start < n:
                raise IndexError(f"index {e} is out of bounds for axis {axis} with size {n}")
            stop, step = start + 1, 1
            dropped.append(axis)
        starts.append(start)
        limits.append(max(stop, start))
        steps.append(step)
    part = shapes.bcoo_slice(mat, start_indices=starts, limit_indices=limits, strides=steps)
    return structure.bcoo_squeeze(part, dimensions=dropped)


class _Bare(BCOO):
    """Whose attributes any subclass has; kept, since a class that is collected has none."""


install_methods({k: m for k, m in vars(_Methods).items() if k not in vars(_Bare)}, on=BCOO)
