"""What sparse arrays of all forms share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from amdjax.core.array import Array
from amdjax.core.trace import Tracer
from amdjax.transforms import vmap

Shape = tuple[int, ...]


class SparseInfo(NamedTuple):
    """What is known of a sparse array besides its parts.

    Args:
      shape: that of the array.
      indices_sorted: whether its entries are in order.
      unique_indices: whether no place comes twice.
    """

    shape: Shape
    indices_sorted: bool = False
    unique_indices: bool = False


class JAXSparse:
    """Base of sparse arrays."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]
    shape: Shape
    data: Any

    def todense(self) -> Array:
        """The array itself."""
        raise NotImplementedError(type(self).__name__)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The array with its axes in another order, in reverse by default; see `bcoo_transpose`."""
        raise NotImplementedError(type(self).__name__)

    @property
    def T(self) -> Any:
        """The array with its axes in reverse."""
        return self.transpose()

    @property
    def _bufs(self) -> tuple[Array, ...]:
        """The arrays that it consists of."""
        raise NotImplementedError(type(self).__name__)

    def block_until_ready(self) -> Self:
        """Wait until its parts are computed."""
        for part in self._bufs:
            part.block_until_ready()
        return self

    def _described(self, **more: int) -> str:
        """Type, shape, entries and those of `more` that are not 0."""
        kind = type(self).__name__
        try:
            shape = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
            counts = [f"{k}={v}" for k, v in more.items() if v]
            text = f"{kind}({', '.join([shape, f'nse={self.nse}', *counts])})"
            traced = isinstance(self.data, Tracer)
            return f"{type(self.data).__name__}[{text}]" if traced else text
        except (AttributeError, IndexError):  # its parts were replaced by others that do not fit
            return f"{kind}(<invalid>)"

    def __repr__(self) -> str:
        return self._described()

    @property
    def nse(self) -> int:
        """How many entries it can hold."""
        return int(self.data.size)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, zeros among them."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the data."""
        return self.data.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def _refused(self, *_: Any, **__: Any) -> Any:
        """Refused: this format has no such operation as `BCOO` has."""
        raise NotImplementedError(f"{type(self).__name__} lacks this operation, which BCOO has")

    sum = __neg__ = __pos__ = __getitem__ = __matmul__ = __rmatmul__ = __mul__ = _refused
    __rmul__ = __add__ = __radd__ = __sub__ = __rsub__ = _refused


class SparseEfficiencyError(ValueError):
    """A change of layout would need more memory than is sensible."""


class SparseEfficiencyWarning(UserWarning):
    """A change of layout needs more memory."""


def fitted_shape(mat: Any, shape: Shape) -> Shape:
    """The shape of a sparse array whose parts may have lost or won leading axes, as by `vmap`."""
    parts = (mat.data, mat.indices)
    if not all(hasattr(x, "ndim") and hasattr(x, "shape") for x in parts):
        return shape
    tail = mat.n_sparse + mat.n_dense
    if mat.n_batch < 0 or len(shape) == mat.n_batch + tail:
        return shape
    # Any of the batch axes may have come or gone; of those of one, the other part knows more.
    batch = [x.shape[: mat.n_batch] for x in parts]
    return (*(max(sizes) for sizes in zip(*batch, strict=True)), *shape[len(shape) - tail :])


def over_batch(f: Callable[..., Any], n_batch: int) -> Callable[..., Any]:
    """`f` for each element of `n_batch` leading axes.

    Args:
      f: the function.
      n_batch: how many axes.

    Returns:
      A function of batches.

        >>> over_batch(jnp.sum, 1)(jnp.ones((2, 3))).shape
        (2,)
    """
    for _ in range(n_batch):
        f = vmap(f)
    return f
