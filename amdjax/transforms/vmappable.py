"""Types of one's own that `vmap` takes apart into elements and puts together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.context import context
from amdjax.core.pytree import tree_flatten
from amdjax.core.trace import set_trace
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData, batch_at
from amdjax.transforms.batching import BatchTrace


class _Rules(NamedTuple):
    spec_type: type
    to_elt: Callable[..., Any]
    from_elt: Callable[..., Any]
    make_iota: Callable[[Any], Any] | None


_rules: dict[type, _Rules] = {}


def register_vmappable(
    data_type: type, spec_type: type, axis_size_type: type, to_elt: Callable[..., Any],
    from_elt: Callable[..., Any], make_iota: Callable[[Any], Any] | None,
) -> None:  # fmt: skip
    """Let `vmap` map over values of a type in a way of their own.

    Args:
      data_type: the type.
      spec_type: of what says in `in_axes` and `out_axes` how such a value is mapped.
      axis_size_type: of numbers of examples; `int`.
      to_elt: `to_elt(cont, index, value, spec)`, the element of a value. `cont(array, axis)` is
        the element of an array, `index()` the number of the example.
      from_elt: `from_elt(cont, size, element, spec)`, the value of all elements.
        `cont(size, element, axis)` is the array of all elements.
      make_iota: the numbers of as many examples as it is given; None for integers from 0 on.

        >>> class Row:
        ...     def __init__(self, data):
        ...         self.data = data
        >>> register_vmappable(Row, int, int, lambda cont, _, row, axis: cont(row.data, axis),
        ...                    lambda cont, size, x, axis: Row(cont(size, x, axis)), None)
        >>> amdjax.vmap(lambda x: x + 1.0, axis_size=2)(Row(jnp.zeros(2)))
        Array([1., 1.], dtype=float32)
        >>> unregister_vmappable(Row)
    """
    _rules[data_type] = _Rules(spec_type, to_elt, from_elt, make_iota)


def unregister_vmappable(data_type: type) -> None:
    """Forget how `vmap` maps over values of a type.

    Args:
      data_type: the type; nothing happens where it is not registered.

        >>> unregister_vmappable(int)
    """
    _rules.pop(data_type, None)


def is_vmappable(x: Any) -> bool:
    """Whether `x` is of a type that `vmap` maps over in a way of its own.

    Args:
      x: anything.

    Returns:
      Whether it is.

        >>> is_vmappable(1.0)
        False
    """
    return type(x) in _rules


def has_vmappables() -> bool:
    """Whether there are such types."""
    return bool(_rules)


def is_spec(x: Any) -> bool:
    """Whether `x` says how values of such a type are mapped."""
    return any(type(x) is rules.spec_type for rules in _rules.values())


class ByElements:
    """A function of pytrees, some of whose leaves are such values, as one of their batches.

    It runs where operations are batched, makes the elements there, and returns the leaves of the
    results, of which such values are whole again.

    Args:
      fun: the function.
      in_tree: the structure of `(args, kwargs)`, with such values as leaves.
      axis: the mapped axis.
      specs: how each leaf is mapped.
      out_specs: from the structure of the results to how each is mapped.

    Attributes:
      out_tree: the structure of the results, once the function has run.
    """

    def __init__(
        self, fun: Callable[..., Any], in_tree: Any, axis: AxisData, specs: Sequence[Any],
        out_specs: Callable[[Any], list[Any]],
    ):  # fmt: skip
        self.fun, self.in_tree, self.axis = fun, in_tree, axis
        self.specs, self.out_specs = specs, out_specs
        self.out_tree: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        trace = context.trace
        assert isinstance(trace, BatchTrace)
        with set_trace(trace.parent):
            elements = [self._element(trace, x, spec) for x, spec in zip(leaves, self.specs)]
        args, kwargs = self.in_tree.unflatten(elements)
        outs, self.out_tree = tree_flatten(self.fun(*args, **kwargs), is_vmappable)
        return [self._whole(trace, x, spec) for x, spec in zip(outs, self.out_specs(self.out_tree))]

    def _element(self, trace: BatchTrace, value: Any, spec: Any) -> Any:
        if not is_vmappable(value):
            return value
        rules = _rules[type(value)]

        def cont(value: Any, spec: Any) -> Any:
            if is_vmappable(value):
                return self._element(trace, value, spec)
            return trace.pair(value, spec if spec is None else spec % value.ndim)

        def index() -> Any:
            size = self.axis.size
            numbers = rules.make_iota(size) if rules.make_iota else ops.iota(np.int32, size)
            return trace.pair(numbers, 0)

        return rules.to_elt(cont, index, value, spec)

    def _whole(self, trace: BatchTrace, element: Any, spec: Any) -> Any:
        if not is_vmappable(element):
            return element

        def cont(size: Any, element: Any, spec: Any) -> Any:
            if is_vmappable(element):
                return self._whole(trace, element, spec)
            value, dim = trace.split(element)
            with set_trace(trace.parent):
                return batch_at(self.axis, value, dim, spec)

        return _rules[type(element)].from_elt(cont, self.axis.size, element, spec)
