"""Elements chosen by conditions and by index arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import as_size, max_dim
from amdjax.core.errors import ConcretizationTypeError
from amdjax.core.trace import is_concrete
from amdjax.numpy import _util
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    broadcast_to,
    canonical_axis,
    convert,
    is_kind,
    promote_dtypes,
    refuse_out,
    strong,
)
from amdjax.numpy.arithmetic import clip, mod
from amdjax.numpy.conversion import asarray
from amdjax.numpy.indexing import _wrapped, take_index
from amdjax.numpy.joining import stack
from amdjax.numpy.manipulation import moveaxis, ravel, resize


@composite
def _where(condition: Array, x: Array, y: Array) -> Array:
    if condition.dtype != bool:
        condition = lax.ne(condition, np.zeros((), condition.dtype))
    x, y = promote_dtypes(x, y)
    shape = lax.broadcast_shapes(condition.shape, x.shape, y.shape)
    if condition.ndim:
        condition = broadcast_to(condition, shape)
    return lax.select(condition, broadcast_to(x, shape), broadcast_to(y, shape))


def where(
    condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None, /, *,
    size: int | None = None, fill_value: Any = None,
) -> Any:  # fmt: skip
    """Elements of `x` where `condition` holds, of `y` elsewhere.

    Args:
      condition: mask; other numbers count as true unless zero.
      x: taken where the mask is true.
      y: taken where it is false.
      size: with `condition` alone, the number of positions to return, as for `nonzero`.
      fill_value: pads the positions up to `size`.

    Returns:
      An array of the broadcast shape; with `condition` alone, `nonzero(condition)`.

        >>> jnp.where(jnp.arange(4) > 1, 1, 0)
        Array([0, 0, 1, 1], dtype=int32, weak_type=True)
    """
    if x is None and y is None:
        return nonzero(as_array("where", condition), size=size, fill_value=fill_value)
    if x is None or y is None:
        raise TypeError(
            "where requires ndarray or scalar arguments: either both or neither of x and y should"
            f" be given, got {type(x)} and {type(y)}."
        )
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where.")
    return _where(*as_arrays("where", condition, x, y))


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: ArrayLike = 0) -> Array:
    """For each element the choice of the first condition that holds.

    >>> x = jnp.arange(4)
    >>> jnp.select([x < 1, x < 3], [x, 10 * x], default=-1)
    Array([ 0, 10, 20, -1], dtype=int32)
    """
    if len(condlist) != len(choicelist):
        raise ValueError(f"condlist must have length equal to choicelist ({len(condlist)} vs"
                         f" {len(choicelist)})")  # fmt: skip
    if not condlist:
        raise ValueError("condlist must be non-empty")
    conditions = as_arrays("select", *condlist)
    if any(c.dtype != bool for c in conditions):
        raise TypeError("select: conditions must be boolean arrays")
    *choices, result = promote_dtypes(*as_arrays("select", *choicelist, default))
    shape = lax.broadcast_shapes(*(v.shape for v in (*conditions, *choices, result)))
    result = broadcast_to(result, shape)
    for condition, choice in reversed(list(zip(conditions, choices))):
        result = lax.select(broadcast_to(condition, shape), broadcast_to(choice, shape), result)
    return result


def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """A function given by cases.

    Args:
      x: argument.
      condlist: masks of the shape of `x`.
      funclist: for each mask a function or a number; one more is for where none holds.
      args: passed to the functions.
      kw: passed to the functions.

        >>> jnp.piecewise(jnp.arange(4), [jnp.arange(4) < 2], [lambda v: -v, 7])
        Array([ 0, -1,  7,  7], dtype=int32)
    """
    x = as_array("piecewise", x)
    if isinstance(condlist, (Array, np.ndarray)) and condlist.ndim < 2:
        condlist = [condlist] if condlist.ndim or x.ndim == 0 else list(condlist)
    conditions = [broadcast_to(asarray(c, bool), x.shape) for c in condlist]
    if len(funclist) == len(conditions):
        funclist = [*funclist, 0]
    if len(funclist) != len(conditions) + 1:
        n = len(conditions)
        raise ValueError(
            f"with {n} condition(s), either {n} or {n + 1} functions are expected; got"
            f" {len(funclist)}"
        )
    functions = tuple(f if callable(f) else None for f in funclist)
    numbers = [0 if callable(f) else as_array("piecewise", f) for f in funclist]
    return _piecewise(x, conditions, functions, numbers, args, kw)


@composite(static_argnames="functions")
def _piecewise(
    x: Array, conditions: list[Array], functions: tuple[Any, ...], numbers: list[Any],
    args: tuple[Any, ...], kw: dict[str, Any],
) -> Array:  # fmt: skip
    *choices, result = (
        convert(broadcast_to(as_array("piecewise", value), x.shape), x.dtype)
        for value in (
            number if function is None else function(x, *args, **kw)
            for function, number in zip(functions, numbers, strict=True)
        )
    )
    for condition, choice in zip(conditions, choices, strict=True):
        result = lax.select(condition, choice, result)
    return result


def require_known(x: Array, size: int | None, name: str) -> None:
    """Without `size`, refuse a traced array: the shape of the result depends on its values."""
    if size is None and not is_concrete(x):
        raise ConcretizationTypeError(
            x,
            f"The size argument of jnp.{name} must be statically specified to use jnp.{name}"
            " within JAX transformations.",
        )


def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """The positions of the elements that are not zero, one array for each axis.

    Args:
      size: how many positions to return, so that the shape is known under `jit`.
      fill_value: pads the positions; one number or one for each axis. None means 0.

        >>> jnp.nonzero(jnp.array([0, 3, 0, 4]))
        (Array([1, 3], dtype=int32),)
    """
    x = as_array("nonzero", a)
    if x.ndim == 0:
        raise ValueError(
            "Calling nonzero on 0d arrays is not allowed. Use jnp.atleast_1d(scalar).nonzero()"
            " instead."
        )
    require_known(x, size, "nonzero")
    index = dtypes.default_int_dtype()
    if not isinstance(fill_value, tuple) and np.ndim(fill_value):
        raise ValueError(
            f"nonzero: fill_value must be a number or a tuple of {x.ndim}, got {fill_value}."
        )
    if size is None and fill_value is None:
        return tuple(asarray(i.astype(index)) for i in np.nonzero(np.asarray(x)))
    size = int(np.count_nonzero(np.asarray(x))) if size is None else as_size(size)
    mask = ravel(x if x.dtype == bool else lax.ne(x, np.zeros((), x.dtype)))
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * x.ndim
    if len(fills) != x.ndim:
        raise ValueError("fill_value must have one entry for each axis of the array")
    if not size:
        return tuple(lax.full((0,), 0, index) for _ in fills)
    if not mask.size:
        return tuple(lax.full((size,), 0 if f is None else f, index) for f in fills)
    # Each true element is counted; the k-th position is where the count reaches k + 1.
    count = lax.cumsum(convert(mask, index), 0)
    slot = lax.select(mask, lax.sub(count, index.type(1)), lax.full(mask.shape, size, index))
    flat = lax.full((size,), 0, index)
    flat = flat.at[slot].set(lax.iota(index, mask.size), mode="drop")
    found = lax.lt(lax.iota(index, size), lax.index_in_dim(count, mask.size - 1, keepdims=False))
    results = []
    for axis, fill in enumerate(fills):
        stride = math.prod(x.shape[axis + 1 :])
        position = lax.rem(lax.div(flat, strong(flat, stride)), strong(flat, x.shape[axis]))
        position, fill = promote_dtypes(position, as_array("nonzero", 0 if fill is None else fill))
        results.append(_util.select(found, position, fill))
    return tuple(results)


def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The positions of the nonzero elements of the flattened array.

    >>> jnp.flatnonzero(jnp.array([[0, 3], [0, 4]]))
    Array([1, 3], dtype=int32)
    """
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The positions of the nonzero elements, one row each.

    >>> jnp.argwhere(jnp.array([[0, 3], [4, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    x = as_array("argwhere", a)
    if x.ndim == 0:
        found = nonzero(lax.reshape(x, (1,)), size=size)[0]
        return lax.full((found.shape[0], 0), 0, found.dtype)
    return stack(nonzero(x, size=size, fill_value=fill_value), 1)


def extract(
    condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0
) -> Array:
    """The elements where `condition` holds, in one axis.

    >>> jnp.extract(jnp.array([True, False, True]), jnp.arange(3))
    Array([0, 2], dtype=int32)
    """
    return compress(ravel(condition), ravel(arr), size=size, fill_value=fill_value)


def compress(
    condition: ArrayLike, a: ArrayLike, axis: int | None = None, *, size: int | None = None,
    fill_value: ArrayLike = 0, out: None = None,
) -> Array:  # fmt: skip
    """The slices of `a` along `axis` where `condition` holds.

    >>> jnp.compress(jnp.array([True, False, True]), jnp.arange(3))
    Array([0, 2], dtype=int32)
    """
    refuse_out("compress", out)
    mask, a, _ = as_arrays("compress", condition, a, fill_value)
    if mask.ndim != 1:
        raise ValueError("condition must be a 1D array")
    if size is not None and size > mask.size:
        raise ValueError(f"compress: size {size} exceeds the {mask.size} entries of the condition")
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, a.ndim)
    rows = moveaxis(a, axis, 0)
    index = nonzero(mask, size=size, fill_value=rows.shape[0])[0]
    return moveaxis(take_index(rows, index, mode="fill", fill_value=fill_value), 0, axis)


def take(
    a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: None = None, mode: Any = None,
    unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None,
) -> Array:  # fmt: skip
    """The slices of `a` at `indices` along `axis`.

    Args:
      indices: integers; negative ones count from the end.
      axis: the axis; None takes from the flattened array.
      mode: out of bounds, "fill" (default) gives NaN or the extreme integer, "clip" the nearest
        element, "wrap" the position modulo the extent.
      unique_indices: promise that no index occurs twice.
      indices_are_sorted: promise that indices ascend.
      fill_value: what "fill" gives instead.

        >>> jnp.take(jnp.array([10, 20, 30]), jnp.array([2, 0]))
        Array([30, 10], dtype=int32)
    """
    refuse_out("take", out)
    if mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.take is not supported.")
    a, indices = as_arrays("take", a, indices)
    if not is_kind(indices.dtype, np.integer):
        raise ValueError(f"take requires integer indices, got {indices.dtype}")
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, a.ndim)
    n = a.shape[axis]
    if n == 0 and indices.size:
        raise IndexError("Cannot do a non-empty jnp.take() from an empty axis.")
    if mode == "wrap":
        indices, mode = mod(indices, strong(indices, n)), "promise_in_bounds"
    elif mode == "clip":
        clipped = lax.max(indices, np.zeros((), indices.dtype))
        indices = lax.min(clipped, strong(indices, max_dim(n - 1, 0)))
        mode = "promise_in_bounds"
    else:
        mode = "fill" if mode is None else mode
        indices = _wrapped(indices, n)
    return _gather_rows(a, indices, axis, mode, unique_indices, indices_are_sorted, fill_value)


def _gather_rows(
    a: Array, indices: Any, axis: int, mode: Any, unique: bool, ordered: bool, fill: Any
) -> Array:
    sizes = [1 if i == axis else n for i, n in enumerate(a.shape)]
    loops = range(axis, axis + indices.ndim)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(i for i in range(a.ndim + indices.ndim - 1) if i not in loops),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    return lax.gather(
        a, lax.expand_dims(indices, (indices.ndim,)), numbers, tuple(sizes),
        mode=mode, unique_indices=unique, indices_are_sorted=ordered, fill_value=fill,
    )  # fmt: skip


def take_along_axis(
    arr: ArrayLike, indices: ArrayLike, axis: int | None = -1, mode: Any = None,
    fill_value: Any = None, *, wrap_negative_indices: bool | None = None,
) -> Array:  # fmt: skip
    """For each position of `indices`, the element of `arr` with that index along `axis`.

    Args:
      indices: integers, of the rank of `arr`; broadcasts with it along the other axes.
      axis: the axis; None means the flattened array and one axis of indices.
      mode: out of bounds, "fill" (default), "clip" or "promise_in_bounds".
      fill_value: what "fill" gives.
      wrap_negative_indices: whether negative indices count from the end.

        >>> x = jnp.array([[3, 1, 2]])
        >>> jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1)
        Array([[1, 2, 3]], dtype=int32)
    """
    a, indices = as_arrays("take_along_axis", arr, indices)
    if not is_kind(indices.dtype, np.integer):
        raise TypeError(f"take_along_axis indices must be of integer type, got {indices.dtype}")
    if axis is None:
        if indices.ndim != 1:
            raise ValueError(
                f"take_along_axis indices must be 1D if axis=None, got shape {indices.shape}"
            )
        a, axis = ravel(a), 0
    if a.ndim != indices.ndim:
        raise ValueError(
            f"indices and arr must have the same number of dimensions; {indices.ndim} vs. {a.ndim}"
        )
    axis = canonical_axis(axis, a.ndim)
    n = a.shape[axis]
    others = [s for i, s in enumerate(a.shape) if i != axis]
    own = [s for i, s in enumerate(indices.shape) if i != axis]
    shape = list(lax.broadcast_shapes(tuple(others), tuple(own)))
    shape.insert(axis, indices.shape[axis])
    if n == 0:
        return lax.full(tuple(shape), 0, a.dtype)
    if wrap_negative_indices or (wrap_negative_indices is None and mode != "promise_in_bounds"):
        indices = _wrapped(indices, n)
    return _gather_along(
        a, indices, axis, tuple(shape), "fill" if mode is None else mode, fill_value
    )


def _gather_along(
    a: Array, indices: Any, axis: int, shape: tuple[int, ...], mode: Any, fill: Any
) -> Array:
    """A gather whose batching dimensions are the axes both arrays run along."""
    # Axes along which `a` has one element are dropped, those of indices become windows.
    dropped = tuple(i for i in range(a.ndim) if i != axis and a.shape[i] == 1)
    kept = [i for i in range(a.ndim) if i not in dropped]
    windows = [i for i in kept if i != axis and indices.shape[i] == 1]
    squeezed = lax.squeeze(a, dropped) if dropped else a
    loops = [i for i in range(a.ndim) if i not in windows]
    vectors = lax.reshape(indices, (*(indices.shape[i] for i in loops), 1))
    batched = [i for i in kept if i != axis and i not in windows]
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(windows),
        collapsed_slice_dims=(kept.index(axis),),
        start_index_map=(kept.index(axis),),
        operand_batching_dims=tuple(kept.index(i) for i in batched),
        start_indices_batching_dims=tuple(loops.index(i) for i in batched),
    )
    sizes = tuple(a.shape[i] if i in windows else 1 for i in kept)
    return lax.gather(squeezed, vectors, numbers, sizes, mode=mode, fill_value=fill)


def _along(shape: tuple[int, ...], indices: Any, axis: int) -> tuple[Any, ...]:
    """Open grids for all axes but one, which is indexed by `indices`."""
    rank = len(shape)
    grids = [
        lax.broadcasted_iota(np.dtype("int32"), tuple(n if i == j else 1 for j in range(rank)), i)
        for i, n in enumerate(shape)
    ]
    grids[axis] = indices
    return tuple(grids)


def _refuse_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(
            f"jax.numpy.{name} cannot modify arrays in-place, because JAX arrays are immutable."
            " Pass inplace=False to instead return an updated array."
        )


def put_along_axis(
    arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None, inplace: bool = True,
    *, mode: Any = None,
) -> Array:  # fmt: skip
    """`arr` with `values` put where `take_along_axis` would take from; needs `inplace=False`.

    >>> jnp.put_along_axis(jnp.zeros((1, 3)), jnp.array([[1]]), 5.0, 1, inplace=False)
    Array([[0., 5., 0.]], dtype=float32)
    """
    _refuse_inplace("put_along_axis", inplace)
    a, indices, values = as_arrays("put_along_axis", arr, indices, values)
    shape = a.shape
    if axis is None:
        a, axis = ravel(a), 0
    if a.ndim != indices.ndim:
        raise ValueError("put_along_axis arguments 'arr' and 'indices' must have same ndim. Got"
                         f" {a.ndim} and {indices.ndim}.")  # fmt: skip
    axis = canonical_axis(axis, a.ndim)
    values = broadcast_to(values, indices.shape)
    grid = _along(tuple(indices.shape[i] for i in range(a.ndim)), indices, axis)
    return lax.reshape(a.at[grid].set(values, mode=mode), shape)


def put(
    a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = True
) -> Array:
    """`a` with `v` put at flat positions; needs `inplace=False`.

    >>> jnp.put(jnp.zeros(3, int), jnp.array([0, 2]), jnp.array([7, 8]), inplace=False)
    Array([7, 0, 8], dtype=int32)
    """
    _refuse_inplace("put", inplace)
    a, ind, v = as_arrays("put", a, ind, v)
    ind, v = ravel(ind), ravel(v)
    if not a.size or not ind.size or not v.size:
        return a
    v = resize(v, ind.size) if v.size != ind.size else v
    if mode == "wrap":
        ind = mod(ind, strong(ind, a.size))
    elif mode == "clip":
        ind = clip(ind, 0, a.size - 1)
    elif mode is not None:
        raise ValueError(f"mode should be one of 'wrap' or 'clip'; got {mode}")
    return lax.reshape(ravel(a).at[ind].set(v, mode="clip"), a.shape)


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """`arr` with `vals` put one after the other where `mask` holds; needs `inplace=False`.

    >>> jnp.place(jnp.arange(4), jnp.arange(4) > 1, jnp.array([9]), inplace=False)
    Array([0, 1, 9, 9], dtype=int32)
    """
    _refuse_inplace("place", inplace)
    a, mask, vals = as_arrays("place", arr, mask, vals)
    if a.size != mask.size:
        raise ValueError("place: arr and mask must be the same size")
    if not vals.size:
        raise ValueError("Cannot place values from an empty array")
    flags = ravel(mask if mask.dtype == bool else lax.ne(mask, np.zeros((), mask.dtype)))
    turn = lax.sub(lax.cumsum(convert(flags, np.dtype("int32")), 0), np.int32(1))
    chosen = ravel(vals)[lax.rem(lax.max(turn, np.int32(0)), strong(turn, vals.size))]
    return lax.reshape(lax.select(flags, convert(chosen, a.dtype), ravel(a)), a.shape)


def choose(a: ArrayLike, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """For each element of `a` the element of that choice at the same place.

    >>> jnp.choose(jnp.array([1, 0]), [jnp.array([1, 2]), jnp.array([3, 4])])
    Array([3, 2], dtype=int32)
    """
    refuse_out("choose", out)
    index = as_array("choose", a)
    if not is_kind(index.dtype, np.integer) and index.dtype != bool:
        raise ValueError("`a` array must be integer typed")
    choices = [as_array("choose", c) for c in choices]
    n = index.dtype.type(len(choices)) if index.dtype != bool else len(choices)
    if mode == "raise":
        if not is_concrete(index):
            raise ConcretizationTypeError(
                index, "The error occurred because jnp.choose was jit-compiled with mode='raise'."
                " Use mode='wrap' or mode='clip' instead."
            )  # fmt: skip
        known: np.ndarray = np.asarray(index)
        if (known < 0).any() or (known >= len(choices)).any():
            raise ValueError("invalid entry in choice array")
    elif mode == "wrap":
        index = mod(index, n)
    elif mode == "clip":
        index = clip(index, 0, len(choices) - 1)
    else:
        raise ValueError(f"mode={mode!r} not understood. Must be 'raise', 'wrap', or 'clip'")
    index, *choices = _util.broadcast_arrays(index, *promote_dtypes(*choices))
    return lax.select_n(convert(index, np.dtype("int32")), *choices)
