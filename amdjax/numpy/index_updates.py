"""Updates with `x.at[index]`: the plan of an indexing read backwards, as a scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.core.boundaries import guard_methods
from amdjax.core.tracebacks import warn
from amdjax.numpy._util import (
    as_array,
    broadcast_to,
    convert,
    is_kind,
    scalar_array,
)
from amdjax.numpy.arithmetic import power
from amdjax.numpy.index_syntax import (
    Mode,
    Modes,
    parse,
    parse_mode,
    without_scalar_masks,
)
from amdjax.numpy.indexing import index_plan, take_index
from amdjax.transforms.transfers import resharded


def update_index(
    x: Array, index: Any, y: Any, scatter: Callable[..., Array], *, mode: Mode = None,
    indices_are_sorted: bool = False, unique_indices: bool = False,
    wrap_negative_indices: bool = True,
) -> Array:  # fmt: skip
    """`x` with `y` scattered to `index` by one of lax's scatter functions.

    By default updates out of bounds are dropped.
    """
    index, single = without_scalar_masks(x.shape, index)
    x = lax.expand_dims(x, single) if single else x
    if type(y) is int and is_kind(x.dtype, np.integer):
        y = scalar_array(y, x.dtype)
    y = as_array("scatter", y)
    dtype, weak = x.dtype, x.weak_type
    common = promotion.result_type(x, y)
    if common != dtype:
        _check_cast(y, x)
        if scatter is not lax.scatter:  # 5 * 1.7 is converted after the product, not before
            x = convert(x, common)
    entries = parse(x.shape, index)
    plan = index_plan(x, entries, wrap_negative_indices)
    shape = list(plan.shape)
    y = convert(y, x.dtype)
    full = shape[:]
    for at in plan.new_axes:
        full.insert(at, 1)
    if y.ndim > len(full):
        extra = y.ndim - len(full)
        if any(n != 1 for n in y.shape[:extra]):
            raise ValueError(
                f"Incompatible shapes for broadcasting: {y.shape} and requested {tuple(full)}"
            )
        y = lax.reshape(y, y.shape[extra:])
    y = broadcast_to(y, tuple(full))
    if plan.new_axes:
        y = lax.squeeze(y, plan.new_axes)
    if plan.reversed:
        y = lax.rev(y, plan.reversed)
    result = scatter(
        x, plan.indices, y, plan.scatter_numbers(),
        indices_are_sorted=indices_are_sorted or plan.sorted,
        unique_indices=unique_indices or plan.unique, mode=parse_mode(mode, Modes.FILL_OR_DROP),
    )  # fmt: skip
    return convert(lax.squeeze(result, single) if single else result, dtype, weak)


def _check_cast(y: Array, x: Array) -> None:
    """Warn where updates lose digits, as in JAX; Python scalars pass."""
    if dtypes.is_weakly_typed(y) or promotion.safe_to_cast(y, x):
        return
    warn(
        f"scatter inputs have incompatible types: cannot safely cast value from dtype={y.dtype} to"
        f" dtype={x.dtype} with numpy_dtype_promotion='standard'. In future releases this will"
        " result in an error.",
        FutureWarning,
    )


class IndexUpdate:
    """`x.at`: functional updates of parts of an array.

    >>> x = jnp.zeros(3)
    >>> x.at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("array",)

    def __init__(self, array: Array):
        self.array = array

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


class IndexUpdateRef:
    """`x.at[index]`, waiting for what to do there.

    Every method takes `indices_are_sorted` and `unique_indices`, promises that may help the
    compiler; `mode`, how positions out of bounds are treated ("drop", "clip",
    "promise_in_bounds"; for `get` also "fill"); and `wrap_negative_indices`.
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any):
        self.array, self.index = array, index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    def get(
        self, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: Mode = None,
        fill_value: Any = None, out_sharding: Any = None, wrap_negative_indices: bool = True,
    ) -> Array:  # fmt: skip
        """`x[index]`, with a choice of `mode` and `fill_value`.

        >>> jnp.arange(3).at[5].get(mode="fill", fill_value=-1)
        Array(-1, dtype=int32)
        """
        return take_index(
            self.array, self.index, mode=mode, fill_value=fill_value,
            indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
            wrap_negative_indices=wrap_negative_indices,
        )  # fmt: skip

    def set(self, values: Any, **options: Any) -> Array:
        """`x` with `x[index] = values`."""
        return self._scatter(lax.scatter, values, options)

    def add(self, values: Any, **options: Any) -> Array:
        """`x` with `x[index] += values`, repeated indices added up."""
        return self._scatter(lax.scatter_add, values, options)

    def subtract(self, values: Any, **options: Any) -> Array:
        """`x` with `x[index] -= values`."""
        return self._scatter(lax.scatter_sub, values, options)

    sub = subtract

    def multiply(self, values: Any, **options: Any) -> Array:
        """`x` with `x[index] *= values`."""
        return self._scatter(lax.scatter_mul, values, options)

    mul = multiply

    def divide(self, values: Any, **options: Any) -> Array:
        """`x` with `x[index] /= values`."""
        ones = lax.full_like(self.array, 1)
        factors = IndexUpdateRef(ones, self.index)._scatter(lax.scatter_mul, values, options)
        dtype, weak = promotion.lattice_result_type(self.array, factors)
        dtype = dtypes.to_inexact_dtype(dtype)
        return lax.div(convert(self.array, dtype, weak), convert(factors, dtype, weak))

    def power(self, values: Any, **options: Any) -> Array:
        """`x` with `x[index] **= values`."""
        ones = lax.full_like(self.array, 1)
        return power(
            self.array, IndexUpdateRef(ones, self.index)._scatter(lax.scatter_mul, values, options)
        )

    def min(self, values: Any, **options: Any) -> Array:
        """`x` with `x[index] = minimum(x[index], values)`."""
        return self._scatter(lax.scatter_min, values, options)

    def max(self, values: Any, **options: Any) -> Array:
        """`x` with `x[index] = maximum(x[index], values)`."""
        return self._scatter(lax.scatter_max, values, options)

    def apply(self, func: Callable[[Any], Any], **options: Any) -> Array:
        """`x` with `func` applied at `index`, once for each time a position occurs."""
        sharding = options.pop("out_sharding", None)

        def scatter(x: Array, indices: Array, updates: Array, numbers: Any, **rest: Any) -> Array:
            return lax.scatter_apply(x, indices, func, numbers, update_shape=updates.shape, **rest)

        out = update_index(
            self.array, self.index, np.zeros((), self.array.dtype), scatter, **options
        )
        return resharded(".at[].apply", out, sharding)

    def _scatter(self, fn: Callable[..., Array], values: Any, options: dict[str, Any]) -> Array:
        sharding = options.pop("out_sharding", None)
        out = update_index(self.array, self.index, values, fn, **options)
        return resharded(".at[].set", out, sharding)


guard_methods(IndexUpdateRef, [name for name in vars(IndexUpdateRef) if not name.startswith("_")])
