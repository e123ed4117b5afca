"""Scatter: many slices of one shape, written or combined at positions that an array holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.lowering import Shaped
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    INT,
    NUMBER,
    batch_to,
    check_dtype,
    check_same_dtype,
    dtype_of,
    instantiate_zeros,
    is_zero,
    shape_of,
    zero_tangent,
)
from amdjax.lax.casting import convert_element_type
from amdjax.lax.comparison import eq
from amdjax.lax.elementwise import add, div, mul, neg
from amdjax.lax.filling import full, full_like, iota
from amdjax.lax.gather import gather
from amdjax.lax.index_vectors import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    check_batching_dims,
    check_dims,
    check_index_vectors,
    shifted_dims,
    with_tuples,
)
from amdjax.lax.selection import select
from amdjax.lax.shape import broadcast_in_dim, reshape
from amdjax.transforms.zero import is_undefined_primal

__all__ = [
    "scatter", "scatter_add", "scatter_add_p", "scatter_apply", "scatter_max", "scatter_max_p",
    "scatter_min", "scatter_min_p", "scatter_mul", "scatter_mul_p", "scatter_p", "scatter_sub",
    "scatter_sub_p",
]  # fmt: skip


def _scatter_type(
    op, operand, indices, updates, *, update_jaxpr, update_consts, dimension_numbers,
    indices_are_sorted, unique_indices, mode,
):  # fmt: skip
    dn = dimension_numbers
    check_dtype("scatter scatter_indices", indices.dtype, INT)
    check_same_dtype("scatter", operand, updates)
    if op in ("add", "sub", "mul"):
        check_dtype(f"scatter_{op}", operand.dtype, NUMBER)
    rank = len(operand.shape)
    wanted = len(indices.shape) - 1 + len(dn.update_window_dims)
    if len(updates.shape) != wanted:
        raise TypeError(
            f"Updates tensor must be of rank {wanted}; got {len(updates.shape)}. The "
            f"scatter_indices are of shape {indices.shape}, with {dn}."
        )
    check_dims("scatter", "update_window_dims", dn.update_window_dims, len(updates.shape))
    check_dims("scatter", "inserted_window_dims", dn.inserted_window_dims, rank)
    positioned = dn.scatter_dims_to_operand_dims
    check_dims("scatter", "scatter_dims_to_operand_dims", positioned, rank, ascending=False)
    check_batching_dims(
        "scatter",
        operand,
        indices,
        dn.operand_batching_dims,
        dn.scatter_indices_batching_dims,
        "scatter_indices_batching_dims",
        taken=(
            ("inserted_window_dims", dn.inserted_window_dims),
            ("scatter_dims_to_operand_dims", positioned),
        ),
    )
    check_index_vectors("scatter", "scatter_dims_to_operand_dims", indices, positioned)
    _check_updates(operand, indices, updates, dn)
    return ShapedArray(operand.shape, operand.dtype, operand.weak_type)


def _check_updates(operand, indices, updates, dn) -> None:
    window = [d for d in range(len(operand.shape)) if d not in _left_out(dn)]
    if len(window) != len(dn.update_window_dims):
        size = len(dn.update_window_dims) + len(_left_out(dn))
        raise TypeError(
            f"Scatter op has window of size {size}; doesn't match operand of rank "
            f"{len(operand.shape)}. Each of its dimensions is a window, inserted or batching one; "
            f"got {dn}."
        )
    for update_dim, operand_dim in zip(dn.update_window_dims, window):
        if updates.shape[update_dim] > operand.shape[operand_dim]:
            raise TypeError(
                "Bounds of the window dimensions of scatter's updates must not exceed those of "
                f"the operand, got updates of shape {updates.shape} for an operand of shape "
                f"{operand.shape}, too large in dimension {update_dim}."
            )
    batch = tuple(n for d, n in enumerate(updates.shape) if d not in dn.update_window_dims)
    if batch != tuple(indices.shape[:-1]):
        raise TypeError(
            f"Bounds of the scatter dimensions of updates are {batch}, but scatter_indices of "
            f"shape {indices.shape} ask for {indices.shape[:-1]}."
        )


def _left_out(dn) -> set[int]:
    return {*dn.inserted_window_dims, *dn.operand_batching_dims}


def _scatter_batch(prim, axis, args, dims, *, dimension_numbers, **rest):
    operand, indices, updates = args
    operand_dim, indices_dim, updates_dim = dims
    operand = batch_to(operand, operand_dim, axis.size)
    updates = batch_to(updates, updates_dim, axis.size)
    dn = dimension_numbers
    window, batching = shifted_dims(dn.update_window_dims), shifted_dims(dn.operand_batching_dims)
    indices_batching = dn.scatter_indices_batching_dims
    if indices_dim is None:
        # The batch is one more dimension within a slice.
        window = (0, *window)
    else:
        indices = batch_to(indices, indices_dim, axis.size)
        batching, indices_batching = (0, *batching), (0, *shifted_dims(indices_batching))
    numbers = ScatterDimensionNumbers(
        update_window_dims=window,
        inserted_window_dims=shifted_dims(dn.inserted_window_dims),
        scatter_dims_to_operand_dims=shifted_dims(dn.scatter_dims_to_operand_dims),
        operand_batching_dims=batching,
        scatter_indices_batching_dims=indices_batching,
    )
    return prim.bind(operand, indices, updates, dimension_numbers=numbers, **rest), 0


def _scatter_primitive(op: str = "") -> Primitive:
    """A scatter that combines by a tile op; by a function, or not at all, where that is empty."""
    prim = Primitive(f"scatter-{op}" if op else "scatter")
    prim.def_memory_space(lambda operand, *_: operand.memory_space)
    prim.def_abstract_eval(partial(_scatter_type, op))
    prim.def_batch(partial(_scatter_batch, prim))
    prim.lowering = Shaped("scatter", op, in_place=True)
    return prim


scatter_p = _scatter_primitive()
scatter_add_p = _scatter_primitive("add")
scatter_sub_p = _scatter_primitive("sub")
scatter_mul_p = _scatter_primitive("mul")
scatter_min_p = _scatter_primitive("min")
scatter_max_p = _scatter_primitive("max")


def _chain_primitive(scatter: Primitive) -> None:
    """Scatters into one array, one after the other, that passes make one equation of.

    Operands are the array, then indices and updates of each. Which of two updates that meet comes
    first is left open, also where they are of different scatters.
    """
    prim = Primitive(f"{scatter.name}-chain")
    prim.def_memory_space(scatter.memory_space)

    @prim.def_abstract_eval
    def check(operand: Any, *sets: Any, **params: Any) -> Any:
        assert scatter.abstract_eval is not None
        for indices, updates in zip(sets[::2], sets[1::2], strict=True):
            operand = scatter.abstract_eval(operand, indices, updates, **params)
        return operand

    prim.lowering = scatter.lowering


# None for replacing, where the last one wins.
for _scatter in (scatter_add_p, scatter_sub_p, scatter_mul_p, scatter_min_p, scatter_max_p):
    _chain_primitive(_scatter)


def _read_back(x, indices, updates_shape, dn, mode) -> Any:
    """What a scatter of these dimension numbers would write to, gathered in the updates' shape."""
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(dn.update_window_dims),
        collapsed_slice_dims=tuple(dn.inserted_window_dims),
        start_index_map=tuple(dn.scatter_dims_to_operand_dims),
        operand_batching_dims=tuple(dn.operand_batching_dims),
        start_indices_batching_dims=tuple(dn.scatter_indices_batching_dims),
    )
    if 0 in x.shape:  # no place to write to, nor one of the size of a window to read
        return full(updates_shape, 0, x.dtype)
    window = iter(dn.update_window_dims)
    left_out = _left_out(dn)
    sizes = [1 if d in left_out else updates_shape[next(window)] for d in range(len(x.shape))]
    return gather(x, indices, numbers, sizes, mode=mode, fill_value=0)


def _shape(x: Any) -> tuple[int, ...]:
    return x.aval.shape if is_undefined_primal(x) else shape_of(x)


def _linear_jvp(prim, primals, tangents, **params):
    """Sums and differences are linear in operand and updates together."""
    operand, indices, updates = primals
    out = prim.bind(operand, indices, updates, **params)
    t_operand, _, t_updates = tangents
    if is_zero(t_operand) and is_zero(t_updates):
        return out, zero_tangent(out)
    changes = instantiate_zeros(t_operand), instantiate_zeros(t_updates)
    return out, prim.bind(changes[0], indices, changes[1], **params)


def _linear_transpose(sign, ct, operand, indices, updates, *, dimension_numbers, mode, **_):
    operand_ct = ct if is_undefined_primal(operand) else None
    updates_ct = None
    if is_undefined_primal(updates):
        updates_ct = _read_back(ct, indices, _shape(updates), dimension_numbers, mode)
        updates_ct = updates_ct if sign > 0 else neg(updates_ct)
    return [operand_ct, None, updates_ct]


scatter_add_p.def_jvp(partial(_linear_jvp, scatter_add_p))
scatter_add_p.def_transpose(partial(_linear_transpose, +1))
scatter_sub_p.def_jvp(partial(_linear_jvp, scatter_sub_p))
scatter_sub_p.def_transpose(partial(_linear_transpose, -1))


@scatter_p.def_jvp
def _scatter_jvp(primals, tangents, *, update_jaxpr, update_consts, **params):
    operand, indices, updates = primals
    t_operand, _, t_updates = tangents
    program = {"update_jaxpr": update_jaxpr, "update_consts": update_consts}
    if is_zero(t_operand) and is_zero(t_updates):
        out = scatter_p.bind(operand, indices, updates, **program, **params)
        return out, zero_tangent(out)
    if update_jaxpr is not None:
        raise NotImplementedError("scatter_apply has no derivative rule.")
    t_operand, t_updates = instantiate_zeros(t_operand), instantiate_zeros(t_updates)
    if params["unique_indices"]:
        out = scatter_p.bind(operand, indices, updates, **program, **params)
        return out, scatter_p.bind(t_operand, indices, t_updates, **program, **params)
    untouched, won = _survivors(shape_of(operand), indices, shape_of(updates), **params)
    # With losers and overwritten elements set to zero, writing becomes adding, which is linear.
    # The value goes the same way: where slices overlap it must agree with the derivative.
    out = _add_masked(operand, indices, updates, untouched, won, program, params)
    return out, _add_masked(t_operand, indices, t_updates, untouched, won, program, params)


def _survivors(shape, indices, updates_shape, *, dimension_numbers, mode, **flags):
    """Masks of the operand's elements that stay, and of the updates that remain."""
    window = dimension_numbers.update_window_dims
    ids_shape = [1 if d in window else n for d, n in enumerate(updates_shape)]
    count = math.prod(ids_shape)
    numbered = reshape(iota(np.int32, count), ids_shape)
    ids = broadcast_in_dim(numbered, updates_shape, tuple(range(len(updates_shape))))
    ids = add(ids, full_like(ids, 1))
    written = scatter(full(shape, 0, np.int32), indices, ids, dimension_numbers, mode=mode, **flags)
    remaining = _read_back(written, indices, updates_shape, dimension_numbers, mode)
    return eq(written, full_like(written, 0)), eq(ids, remaining)


def _add_masked(operand, indices, updates, untouched, won, program, params) -> Any:
    operand = select(untouched, operand, full_like(operand, 0))
    updates = select(won, updates, full_like(updates, 0))
    return scatter_add_p.bind(operand, indices, updates, **program, **params)


@scatter_p.def_transpose
def _scatter_transpose(
    ct, operand, indices, updates, *, dimension_numbers, unique_indices, mode, **params
):
    if not unique_indices:
        raise NotImplementedError("the transpose of scatter needs unique_indices=True.")
    operand_ct = updates_ct = None
    if is_undefined_primal(operand):
        operand_ct = scatter_p.bind(
            ct, indices, full(_shape(updates), 0, ct.dtype), dimension_numbers=dimension_numbers,
            unique_indices=True, mode=mode, **params,
        )  # fmt: skip
    if is_undefined_primal(updates):
        updates_ct = _read_back(ct, indices, _shape(updates), dimension_numbers, mode)
    return [operand_ct, None, updates_ct]


@scatter_mul_p.def_jvp
def _scatter_mul_jvp(primals, tangents, **params):
    operand, indices, updates = primals
    t_operand, _, t_updates = tangents
    out = scatter_mul_p.bind(operand, indices, updates, **params)
    terms = []
    if not is_zero(t_operand):
        terms.append(scatter_mul_p.bind(t_operand, indices, updates, **params))
    if not is_zero(t_updates):
        _needs_unique(params["unique_indices"])
        zeros = full_like(operand, 0)
        change = scatter_add_p.bind(zeros, indices, t_updates, **params)
        terms.append(mul(operand, change))
    if not terms:
        return out, zero_tangent(out)
    return out, terms[0] if len(terms) == 1 else add(*terms)


def _needs_unique(unique_indices: bool) -> None:
    if not unique_indices:
        raise NotImplementedError(
            "the derivative of scatter_mul in its updates needs unique_indices=True."
        )


@scatter_mul_p.def_transpose
def _scatter_mul_transpose(ct, operand, indices, updates, *, dimension_numbers, mode, **params):
    operand_ct = updates_ct = None
    if is_undefined_primal(operand):
        operand_ct = scatter_mul_p.bind(
            ct, indices, updates, dimension_numbers=dimension_numbers, mode=mode, **params
        )
    if is_undefined_primal(updates):
        _needs_unique(params["unique_indices"])
        scaled = mul(ct, operand)
        updates_ct = _read_back(scaled, indices, _shape(updates), dimension_numbers, mode)
    return [operand_ct, None, updates_ct]


def _extremal_jvp(prim, primals, tangents, *, dimension_numbers, mode, **params):
    """All that attain an extremum share its tangent equally, the operand among them."""
    operand, indices, updates = primals
    rest = {"dimension_numbers": dimension_numbers, "mode": mode, **params}
    out = prim.bind(operand, indices, updates, **rest)
    t_operand, _, t_updates = tangents
    if is_zero(t_operand) and is_zero(t_updates):
        return out, zero_tangent(out)
    reached = _read_back(out, indices, shape_of(updates), dimension_numbers, mode)
    kept = convert_element_type(eq(operand, out), out.dtype)
    won = convert_element_type(eq(updates, reached), out.dtype)
    sharers = scatter_add_p.bind(kept, indices, won, **rest)
    total = scatter_add_p.bind(
        mul(kept, instantiate_zeros(t_operand)),
        indices,
        mul(won, instantiate_zeros(t_updates)),
        **rest,
    )
    return out, div(total, sharers)


scatter_min_p.def_jvp(partial(_extremal_jvp, scatter_min_p))
scatter_max_p.def_jvp(partial(_extremal_jvp, scatter_max_p))


def _scattering(
    prim: Primitive, text: str, indices: str, updates: str, result: str
) -> Callable[..., Any]:
    """The public function of a primitive that writes updates or combines what is there with them.

    Args:
      text: what its docstring says before the example.
      indices: those of the example.
      updates: those of the example, in which the operand is `[1, 1, 1]`.
      result: what it gives.
    """

    def combine(
        operand: Any, scatter_indices: Any, updates: Any,
        dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
        unique_indices: bool = False, mode: str | GatherScatterMode | None = None,
    ) -> Any:  # fmt: skip
        # `update_jaxpr` is there because JAX has it. The primitive's name already says how to
        # combine; only `scatter_apply` needs a program.
        return prim.bind(
            operand, scatter_indices, updates, update_jaxpr=None, update_consts=(),
            dimension_numbers=with_tuples(dimension_numbers),
            indices_are_sorted=bool(indices_are_sorted), unique_indices=bool(unique_indices),
            mode=GatherScatterMode.from_any(mode),
        )  # fmt: skip

    combine.__name__ = combine.__qualname__ = name = prim.name.replace("-", "_")
    combine.__doc__ = f"""{text}

    Example:
      >>> from amdjax import lax
      >>> import numpy as np
      >>> dnums = lax.ScatterDimensionNumbers((), (0,), (0,))
      >>> i, u = np.array({indices}, np.int32), np.array({updates}, np.float32)
      >>> lax.{name}(np.ones(3, np.float32), i, u, dnums).tolist()
      {result}
    """
    return combine


scatter = _scattering(
    scatter_p,
    """`operand` with slices replaced by `updates`.

    Where slices overlap, one of the updates remains; which one is not specified.

    Args:
      operand: an array.
      scatter_indices: integers of shape `(*batch, k)`: an array of index vectors of length k.
      updates: an array of the operand's dtype; its `update_window_dims` run within a slice, the
        others over `batch`.
      dimension_numbers: how operand, indices and updates fit together.
      indices_are_sorted: a promise that the index vectors ascend.
      unique_indices: a promise that no element is written twice.
      mode: what becomes of a slice that leaves the operand; `None` drops it.

    Returns:
      An array of `operand`'s shape and dtype.

    Raises:
      TypeError: if dtypes differ or the dimension numbers do not fit the shapes.

    Source: the Scatter operation of StableHLO.""",
    *("[[2], [0]]", "[5.0, 7.0]", "[7.0, 1.0, 5.0]"),
)
scatter_add = _scattering(
    scatter_add_p,
    "`operand` with `updates` added to slices; several updates of an element all count.",
    *("[[2], [2]]", "[5.0, 7.0]", "[1.0, 1.0, 13.0]"),
)
scatter_sub = _scattering(
    scatter_sub_p,
    "`operand` with `updates` subtracted from slices.",
    *("[[2], [2]]", "[5.0, 7.0]", "[1.0, 1.0, -11.0]"),
)
scatter_mul = _scattering(
    scatter_mul_p,
    "`operand` with slices multiplied by `updates`.\n\n"
    "    The derivative in `updates` needs `unique_indices=True`.",
    *("[[2], [2]]", "[5.0, 7.0]", "[1.0, 1.0, 35.0]"),
)
scatter_min = _scattering(
    scatter_min_p,
    "The lesser of `operand` and `updates` where slices are, `operand` elsewhere.",
    *("[[2], [1]]", "[-5.0, 7.0]", "[1.0, 1.0, -5.0]"),
)
scatter_max = _scattering(
    scatter_max_p,
    "The greater of `operand` and `updates` where slices are, `operand` elsewhere.",
    *("[[2], [1]]", "[-5.0, 7.0]", "[1.0, 7.0, 1.0]"),
)


def scatter_apply(
    operand: Any, scatter_indices: Any, func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers, *, update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False, unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Any:  # fmt: skip
    """`operand` with `func` applied to the elements of slices, once for each time they are named.

    Args:
      func: a traceable function of one scalar of the operand's dtype to another.
      update_shape: the shape that updates would have.
      unique_indices: a promise that no element is named twice.

    Raises:
      TypeError: as `scatter`.

        >>> dnums = lax.ScatterDimensionNumbers((), (0,), (0,))
        >>> i, x = np.array([[2], [0]], np.int32), np.arange(3, dtype=np.float32)
        >>> print(lax.scatter_apply(x, i, lax.exp, dnums, update_shape=(2,)).round(2))
        [1.   1.   7.39]
    """
    dtype = dtype_of(operand)
    scalar = ShapedArray((), dtype)
    closed = trace_to_jaxpr(lambda x, _: [func(x)], [scalar, scalar])
    return scatter_p.bind(
        operand, scatter_indices, full(tuple(update_shape), 0, dtype), update_jaxpr=closed.jaxpr,
        update_consts=tuple(closed.consts), dimension_numbers=with_tuples(dimension_numbers),
        indices_are_sorted=bool(indices_are_sorted), unique_indices=bool(unique_indices),
        mode=GatherScatterMode.from_any(mode),
    )  # fmt: skip
