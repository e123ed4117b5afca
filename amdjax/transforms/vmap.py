"""`vmap`: a function of one example as a function of a batch."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from amdjax.core.aval import get_aval, is_array_like
from amdjax.core.boundaries import api_boundary
from amdjax.core.pytree import (
    PyTreeDef,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_structure,
    tree_unflatten,
)
from amdjax.core.pytree_errors import flatten_axes
from amdjax.core.ref import RefPart, is_ref, refuse_aliases
from amdjax.core.source_info import transformed
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData, batch_at
from amdjax.transforms.batching import batch_flat
from amdjax.transforms.flat import FlatFunction, argument_names, fun_name
from amdjax.transforms.vmappable import ByElements, has_vmappables, is_spec, is_vmappable

F = TypeVar("F", bound=Callable[..., Any])


def vmap(
    fun: F, in_axes: int | Sequence[Any] | None = 0, out_axes: Any = 0,
    axis_name: Hashable | None = None, axis_size: int | None = None,
    spmd_axis_name: Hashable | None = None, sum_match: bool = False,
) -> F:  # fmt: skip
    """Vectorize a function: it is written for one example and maps over an axis of its arguments.

    Args:
      in_axes: the axis to map over, for each argument; an int, None for an argument that is the
        same for all examples, or a pytree of them that is a prefix of the arguments. Keyword
        arguments are mapped over axis 0.
      out_axes: where the mapped axis appears in the results; a prefix of the result's pytree.
        None for results that do not differ.
      axis_name: a name of the mapped axis, for collectives such as `lax.psum`.
      axis_size: the number of examples; needed only if no argument is mapped.
      spmd_axis_name: axes of a mesh along which the compiler divides the examples.
      sum_match: whether a result that differs between the examples, where `out_axes` is None, is
        summed over them instead of refused.

    Returns:
      A function with the same signature on batches.

    Raises:
      ValueError: the mapped axes differ in size, or an axis is out of bounds.
      TypeError: `in_axes` or `out_axes` is of a wrong type.

        >>> print(amdjax.vmap(lambda x, y: x * y, in_axes=(0, None))(np.arange(3.0), 2.0))
        [0. 2. 4.]
    """
    if not callable(fun):
        raise TypeError(f"vmap: fun must be callable, got {fun!r}")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes_types("in_axes", in_axes, top=True)
    _check_axes_types("out_axes", out_axes, top=False)

    @functools.wraps(fun)
    @api_boundary
    def vmapped(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                "vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                "positional arguments passed to the function, but got "
                f"len(in_axes)={len(in_axes)}, len(args)={len(args)} for {fun_name(fun)}."
            )
        own_types = has_vmappables()
        leaves, in_tree = tree_flatten((args, kwargs), is_vmappable if own_types else None)
        names = functools.partial(argument_names, fun, args, kwargs)
        if any(map(is_ref, leaves)):
            refuse_aliases("vmap", names(), leaves)
        specs = flatten_axes("vmap in_axes", in_tree, (in_axes, 0), kws=True)
        axes = [None if is_vmappable(x) else a for x, a in zip(leaves, specs)]
        if any(is_ref(x) and a is not None for x, a in zip(leaves, axes)):
            _refuse_parts(args, kwargs)
        _check_arguments(leaves, axes, names)
        size = _mapped_size(leaves, axes, axis_size, names, args, kwargs)
        dims = [a if a is None or a >= 0 else a + get_aval(x).ndim for a, x in zip(axes, leaves)]
        axis = AxisData(axis_name, size, spmd_name=spmd_axis_name)
        results = lambda tree: flatten_axes("vmap out_axes", tree, out_axes)
        flat: FlatFunction | ByElements = FlatFunction(fun, in_tree)
        if own_types:
            flat = ByElements(fun, in_tree, axis, specs, results)
        outs, out_dims = batch_flat(transformed("vmap", flat), axis, leaves, dims)
        wanted = results(flat.out_tree)
        placed = _place_outputs(axis, outs, out_dims, wanted, flat.out_tree, sum_match)
        return tree_unflatten(flat.out_tree, placed)

    _describe(vmapped, fun)
    return vmapped  # type: ignore[return-value]


def _refuse_parts(args: Any, kwargs: Any) -> None:
    """What is mapped is an axis of the whole reference."""
    if any(map(_is_part, tree_leaves((args, kwargs), _is_part))):
        raise TypeError(
            "TransformedRefs are not allowed as mapped arguments of vmap. Pass the reference, and "
            "take the part of it inside."
        )


def _is_part(x: Any) -> bool:
    return isinstance(x, RefPart)


def _describe(vmapped: Any, fun: Any) -> None:
    name, doc = fun_name(fun), getattr(fun, "__doc__", None)
    text = (
        f"Vectorized version of {name}. Takes the arguments of {name}, "
        "those that are mapped with a further axis."
    )
    vmapped.__doc__ = f"{text}\n\nOriginal documentation:\n\n{doc}" if doc else text


def _check_axes_types(what: str, axes: Any, top: bool) -> None:
    whole = axes is None or isinstance(axes, (int, tuple)) or is_spec(axes)
    if top and (isinstance(axes, bool) or not whole):
        raise TypeError(
            f"vmap {what} must be an int, None, or a tuple of entries corresponding to the "
            f"positional arguments passed to the function, but got {axes!r}."
        )
    for leaf in tree_leaves(axes):
        if type(leaf) is not int and not is_spec(leaf):
            try:
                leaf.__index__()
            except (AttributeError, TypeError):
                raise TypeError(
                    f"vmap {what} must be an int, None, or a container of these, but holds "
                    f"{leaf!r} of type {type(leaf).__name__}."
                ) from None


def _check_arguments(leaves: list[Any], axes: list[Any], names: Callable[[], Any]) -> None:
    """What is mapped must be an array; what is not may be anything."""
    for i, (leaf, axis) in enumerate(zip(leaves, axes)):
        if axis is None:
            continue
        if not is_array_like(leaf):
            raise TypeError(
                f"vmap: the argument {_name(names(), i)} is {leaf!r} of type "
                f"{type(leaf).__name__}, which is not a valid JAX type. Pass it through a closure "
                "or functools.partial."
            )


def _argument(names: Sequence[str], i: int, args: Any) -> str:
    """What a leaf of the arguments is called, keyword arguments as such."""
    name = _name(names, i)
    if i < tree_structure(args).num_leaves or i >= len(names):
        return f"argument {name}"
    keyword, bracket, rest = name.partition("[")
    return f"kwargs[{keyword!r}]{bracket}{rest}"


def _name(names: Sequence[str], i: int) -> str:
    return names[i] if i < len(names) else f"number {i}"


def _mapped_size(
    leaves: list[Any], axes: list[Any], axis_size: int | None, names: Callable[[], Any], args: Any,
    kwargs: Any,
) -> int:  # fmt: skip
    """The common size of the mapped axes."""
    sizes: dict[int, list[int]] = defaultdict(list)
    for i, (x, axis) in enumerate(zip(leaves, axes)):
        if axis is None:
            continue
        shape = get_aval(x).shape
        if not -len(shape) <= axis < len(shape):
            least = axis + 1 if axis >= 0 else -axis
            raise ValueError(
                f"vmap was requested to map its argument along axis {axis}, which implies that its "
                f"rank should be at least {least}, but is only {len(shape)} (its shape is {shape}):"
                f" argument {_name(names(), i)}."
            )
        sizes[shape[axis]].append(i)
    if axis_size is not None:
        sizes.setdefault(axis_size, [])
    first, *others = sizes or [0]
    # Symbolic sizes are compared: a table finds them by their hashes.
    if sizes and all(size == first for size in others):
        return first
    if not sizes:
        raise ValueError(
            "vmap must have at least one non-None value in in_axes, or an axis_size."
            if leaves
            else "vmap wrapped function must be passed at least one argument containing an array "
            f"or axis_size must be specified, got empty *args={args} and **kwargs={kwargs}"
        )
    lines = [] if axis_size is None else [f"  * the `axis_size` argument was {axis_size}"]
    groups = [(n, which) for n, which in sizes.items() if which]
    groups.sort(key=lambda group: -len(group[1]))
    for k, (size, which) in enumerate(groups):
        i = which[0]
        aval: Any = get_aval(leaves[i])
        typ = f"{aval.dtype}[{','.join(map(str, aval.shape))}]"
        example = f"axis {axes[i]} of {_argument(names(), i, args)} of type {typ}"
        if len(which) == 1:
            lines.append(f"  * one axis had size {size}: {example}")
        else:
            share = "most" if k == 0 else "some"
            lines.append(f"  * {share} axes ({len(which)} of them) had size {size}, e.g. {example}")
    raise ValueError(
        "vmap got inconsistent sizes for array axes to be mapped:\n" + ";\n".join(lines)
    )


def _place_outputs(
    axis: AxisData, outs: list[Any], dims: list[Any], wanted: list[Any], tree: PyTreeDef,
    sum_match: bool,
) -> list[Any]:  # fmt: skip
    placed = []
    for i, (x, dim, to) in enumerate(zip(outs, dims, wanted)):
        if is_vmappable(x):
            placed.append(x)
            continue
        if to is None:
            if dim is not None and not sum_match:
                dummy = tree_unflatten(tree, range(tree.num_leaves))
                path = keystr(tree_flatten_with_path(dummy)[0][i][0])
                named = f" (axis_name={axis.name})" if isinstance(axis.name, str) else ""
                raise ValueError(
                    f"vmap has mapped output{named} but out_axes is None at vmap out_axes{path}: "
                    "this result differs between the examples."
                )
            placed.append(x if dim is None else ops.reduce_sum(x, (dim,)))
            continue
        ndim = get_aval(x).ndim + (dim is None)
        if not -ndim <= to < ndim:
            raise ValueError(
                f"vmap out_axes: axis {to} is out of bounds for result leaf {i}, which has "
                f"{ndim} axes, the mapped one among them."
            )
        placed.append(batch_at(axis, x, dim, to % ndim))
    return placed
