"""`ragged_all_to_all`: members of a mapped axis send each other parts of different lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.aval import ShapedArray, get_aval
from amdjax.lax._rules import instantiate_zeros, is_undefined_primal, is_zero, zero_tangent
from amdjax.lax.bitwise import bitwise_and
from amdjax.lax.casting import convert_element_type
from amdjax.lax.comparison import ge, lt
from amdjax.lax.control_flow.mapping import map as map_over
from amdjax.lax.elementwise import add, max as maximum, mul, sub
from amdjax.lax.filling import broadcasted_iota, full_like
from amdjax.lax.gather import gather
from amdjax.lax.index_vectors import GatherDimensionNumbers
from amdjax.lax.reductions import reduce_max
from amdjax.lax.selection import select
from amdjax.lax.shape import broadcast_in_dim, reshape, transpose
from amdjax.transforms.axes import AxisData, batch_at
from amdjax.transforms.collectives import axis_names, axis_size, collective, refuse_groups
from amdjax.transforms.exchanges import all_to_all

__all__ = ["ragged_all_to_all", "ragged_all_to_all_p"]

ragged_all_to_all_p = collective("ragged_all_to_all", "axis_name")
_INT = np.dtype(np.int32)


@ragged_all_to_all_p.def_abstract_eval
def _type(operand: Any, output: Any, *counts: Any, **_: Any) -> ShapedArray:
    return ShapedArray(output.shape, output.dtype)


def _check(operand: Any, output: Any, counts: Any, axis_name: Any) -> None:
    if operand.dtype != output.dtype or operand.shape[1:] != output.shape[1:]:
        raise ValueError(
            "ragged_all_to_all: operand and output must agree but in the first axis, got "
            f"{operand.str_short()} and {output.str_short()}"
        )
    size = axis_size(axis_name)
    names = ("input_offsets", "send_sizes", "output_offsets", "recv_sizes")
    for name, x in zip(names, counts, strict=True):
        if not np.issubdtype(x.dtype, np.integer) or x.shape != (size,):
            raise ValueError(
                f"ragged_all_to_all: {name} must be {size} integers, one for each member of the "
                f"axis, got {x.str_short()}"
            )


@ragged_all_to_all_p.def_jvp
def _jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    out = ragged_all_to_all_p.bind(*primals, **params)
    if all(is_zero(t) for t in tangents[:2]):
        return out, zero_tangent(out)
    moved = map(instantiate_zeros, tangents[:2])
    return out, ragged_all_to_all_p.bind(*moved, *primals[2:], **params)


@ragged_all_to_all_p.def_transpose
def _transpose(
    ct: Any, operand: Any, output: Any, starts: Any, sends: Any, ends: Any, receives: Any,
    *, axis_name: Any, **params: Any,
) -> list[Any]:  # fmt: skip
    params["axis_name"] = axis_name
    found: list[Any] = [None] * 6
    back = [all_to_all(x, axis_name, 0, 0, tiled=True) for x in (ends, starts)]
    if is_undefined_primal(operand):
        zeros = full_like(ct, 0, shape=operand.aval.shape)
        found[0] = ragged_all_to_all_p.bind(ct, zeros, back[0], receives, back[1], sends, **params)
    if is_undefined_primal(output):
        # What was overwritten has no part in the result.
        rows = get_aval(operand).shape[0]
        nothing = full_like(ct, 0, shape=(rows, *get_aval(ct).shape[1:]))
        kept = ragged_all_to_all_p.bind(
            nothing, full_like(ct, 1), starts, sends, ends, receives, **params
        )
        found[1] = mul(ct, kept)
    return found


@ragged_all_to_all_p.def_batch
def _batch(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
    batched = [batch_at(axis, x, d, 0) for x, d in zip(args, dims)]
    if axis.name not in axis_names(params["axis_name"]):
        return map_over(lambda xs: ragged_all_to_all_p.bind(*xs, **params), tuple(batched)), 0
    operand, output, starts, sends, ends, _ = batched
    n, rows = axis.size, get_aval(operand).shape[1]
    out_rows, tail = get_aval(output).shape[1], get_aval(output).shape[2:]
    # For each receiver, sender and row of the result: the row that is sent there, or -1.
    shape = (n, n, out_rows)
    start, sent, end = (
        broadcast_in_dim(transpose(convert_element_type(x, _INT), (1, 0)), shape, (0, 1))
        for x in (starts, sends, ends)
    )
    within = sub(broadcasted_iota(_INT, shape, 2), end)
    there = bitwise_and(ge(within, full_like(within, 0)), lt(within, sent))
    first = mul(broadcasted_iota(_INT, shape, 1), full_like(within, rows))
    row = select(there, add(add(first, start), within), full_like(within, -1))
    row = reduce_max(row, (1,))
    numbers = GatherDimensionNumbers(tuple(range(2, 2 + len(tail))), (0,), (0,))
    flat = reshape(operand, (n * rows, *tail))
    index = reshape(maximum(row, full_like(row, 0)), (n, out_rows, 1))
    taken = gather(flat, index, numbers, (1, *tail), mode="clip") if n * rows else output
    received = broadcast_in_dim(ge(row, full_like(row, 0)), (n, out_rows, *tail), (0, 1))
    return select(received, taken, output), 0


def ragged_all_to_all(
    operand: Any, output: Any, input_offsets: Any, send_sizes: Any, output_offsets: Any,
    recv_sizes: Any, *, axis_name: Any, axis_index_groups: Any = None,
) -> Any:  # fmt: skip
    """Send rows to all members of a mapped axis, to each as many as one says.

    Args:
      operand: the rows to send, of shape `(m, …)`.
      output: what the result is where nothing arrives, of shape `(r, …)`.
      input_offsets: where the rows for each member begin in `operand`, one integer for each.
      send_sizes: how many there are for each.
      output_offsets: where they shall begin in the result of each member.
      recv_sizes: how many rows arrive from each member.
      axis_name: the mapped axis.
      axis_index_groups: not supported.

    Returns:
      An array like `output`.

    Raises:
      ValueError: shapes or dtypes do not fit.
      NotImplementedError: `axis_name` names several axes.

        >>> def swap(x, to):  # one row to each of two members
        ...     one = jnp.ones(2, int)
        ...     return ragged_all_to_all(x, 0 * x, jnp.arange(2), one, to, one, axis_name="i")
        >>> to = jnp.array([[0, 0], [1, 1]])
        >>> amdjax.vmap(swap, axis_name="i")(jnp.arange(4.0).reshape(2, 2), to)
        Array([[0., 2.],
               [1., 3.]], dtype=float32)
    """
    refuse_groups(axis_index_groups)
    names = axis_names(axis_name)
    if len(names) != 1:
        raise NotImplementedError(f"ragged_all_to_all is over one axis, got {names}")
    args = operand, output, input_offsets, send_sizes, output_offsets, recv_sizes
    first, second, *counts = map(get_aval, args)
    _check(first, second, counts, names)
    return ragged_all_to_all_p.bind(*args, axis_name=names, axis_index_groups=None)
