"""What `vmap` does with primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.primitive import Primitive
from amdjax.interpreters.tables import RuleTable
from amdjax.transforms.axes import AxisData, batch_at, move_axis
from amdjax.transforms.batching import not_mapped as not_mapped
from amdjax.transforms.vmappable import is_vmappable, register_vmappable, unregister_vmappable

__all__ = [
    "axis_primitive_batchers", "bdim_at_front", "broadcast", "defbroadcasting", "defreducer",
    "defvectorized", "fancy_primitive_batchers", "is_vmappable", "moveaxis", "not_mapped",
    "primitive_batchers", "register_vmappable", "unregister_vmappable",
]  # fmt: skip


def _size(args: Any, dims: Any) -> int:
    return next(get_aval(x).shape[d] for x, d in zip(args, dims) if d is not None)


def _plain(primitive: Primitive, rule: Callable[..., Any]) -> Callable[..., Any]:
    def batch(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
        if all(d is None for d in dims):  # a collective, of values that are the same everywhere
            out = primitive.bind(*args, **params)
            return out, [None] * len(out) if primitive.multiple_results else None
        return rule(args, dims, **params)

    return batch


def _without_axis(primitive: Primitive, rule: Callable[..., Any]) -> Callable[..., Any]:
    def batch(args: Any, dims: Any, **params: Any) -> Any:
        return rule(AxisData(None, _size(args, dims)), args, dims, **params)

    return batch


def _named(primitive: Primitive, rule: Callable[..., Any]) -> Callable[..., Any]:
    def batch(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
        return rule(axis.size, axis.name, None, args, dims, **params)

    return batch


primitive_batchers = RuleTable("batch", _plain, _without_axis)
"""`primitive_batchers[p] = rule`; `rule(operands, dims, **params) -> (result, dim)`."""

axis_primitive_batchers = RuleTable("batch", _named)
"""The same with `rule(axis size, axis name, None, operands, dims, **params)`."""

fancy_primitive_batchers = RuleTable("batch")
"""The same with `rule(axis, operands, dims, **params)`; `axis` has a `name` and a `size`."""


def defvectorized(primitive: Primitive) -> None:
    """Let a primitive that treats all elements alike be mapped by applying it to whole batches.

    Args:
      primitive: the primitive.

        >>> from amdjax.extend.core import Primitive
        >>> twice_p = Primitive("twice")
        >>> _ = twice_p.def_impl(lambda x: 2 * x)
        >>> _ = twice_p.def_abstract_eval(lambda x: x)
        >>> defvectorized(twice_p)
        >>> amdjax.vmap(twice_p.bind)(jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """

    def rule(args: Any, dims: Any, **params: Any) -> Any:
        first, *others = dims
        if any(d != first for d in others):
            args = [bdim_at_front(x, d, _size(args, dims)) for x, d in zip(args, dims)]
            first = 0
        out = primitive.bind(*args, **params)
        return out, [first] * len(out) if primitive.multiple_results else first

    primitive_batchers[primitive] = rule


def defbroadcasting(primitive: Primitive) -> None:
    """Let a primitive of several operands of one shape be mapped by repeating what has no batch.

    Args:
      primitive: the primitive.

        >>> from amdjax.extend.core import Primitive
        >>> times_p = Primitive("times")
        >>> _ = times_p.def_impl(lambda x, y: x * y)
        >>> _ = times_p.def_abstract_eval(lambda x, y: x)
        >>> defbroadcasting(times_p)
        >>> amdjax.vmap(times_p.bind)(jnp.ones(2), jnp.ones(2))
        Array([1., 1.], dtype=float32)
    """

    def rule(args: Any, dims: Any, **params: Any) -> Any:
        size = _size(args, dims)
        args = [bdim_at_front(x, d, size) for x, d in zip(args, dims)]
        out = primitive.bind(*args, **params)
        return out, [0] * len(out) if primitive.multiple_results else 0

    primitive_batchers[primitive] = rule


def defreducer(primitive: Primitive) -> None:
    """Let a primitive of one operand that reduces `axes` be mapped by reducing the others.

    Args:
      primitive: the primitive.

        >>> from amdjax.extend.core import Primitive
        >>> total_p = Primitive("total")
        >>> _ = total_p.def_impl(lambda x, axes: x.sum(axes))
        >>> defreducer(total_p)
        >>> amdjax.vmap(lambda x: total_p.bind(x, axes=(0,)))(jnp.ones((2, 3)))
        Array([3., 3.], dtype=float32)
    """

    def rule(args: Any, dims: Any, *, axes: Any, **params: Any) -> Any:
        (operand,), (dim,) = args, dims
        axes = tuple(a + (a >= dim) for a in axes)
        out = primitive.bind(operand, axes=axes, **params)
        return out, dim - sum(a < dim for a in axes)

    primitive_batchers[primitive] = rule


def moveaxis(x: Any, src: int, dst: int) -> Any:
    """`x` with its axis `src` at `dst`.

    Args:
      x: an array.
      src: the axis.
      dst: where it comes to lie.

    Returns:
      An array.

        >>> moveaxis(jnp.ones((2, 3)), 0, 1).shape
        (3, 2)
    """
    return move_axis(x, src, dst)


def broadcast(x: Any, size: int, axis: int, *rest: Any) -> Any:
    """`x` repeated along a new axis.

    Args:
      x: an array.
      size: how often.
      axis: where the new axis is.
      *rest: accepted.

    Returns:
      An array.

        >>> broadcast(jnp.ones(2), 3, 0).shape
        (3, 2)
    """
    return batch_at(AxisData(None, size), x, None, axis)


def bdim_at_front(x: Any, bdim: int | None, size: int, *rest: Any) -> Any:
    """A batch with the mapped axis first, repeated if it has none.

    Args:
      x: an array.
      bdim: where its mapped axis is, None if it has none.
      size: the number of elements of the batch.
      *rest: accepted.

    Returns:
      An array.

        >>> bdim_at_front(jnp.ones((2, 3)), 1, 3).shape
        (3, 2)
    """
    return batch_at(AxisData(None, size), x, bdim, 0)
