"""Collectives: operations that join the elements of a named, mapped axis."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.config import config
from amdjax.core.effects import NamedAxisEffect
from amdjax.core.lowering import Decompose
from amdjax.core.pytree import tree_flatten, tree_map, tree_unflatten
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData, batch_at
from amdjax.transforms.batching import CollectivePrimitive
from amdjax.transforms.zero import Zero

AxisName = Hashable


def axis_names(axis_name: Any) -> tuple[Any, ...]:
    """The names of one axis or of several."""
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def axis_size(axis_name: AxisName) -> int:
    """The size of a mapped axis.

    Args:
      axis_name: the name given to `vmap`, or a tuple of names.

    Returns:
      An int, known while tracing.

    Raises:
      NameError: no axis of that name is being mapped.

        >>> f = amdjax.vmap(lambda x: x * amdjax.lax.axis_size("i"), axis_name="i")
        >>> print(f(np.array([1.0, 3.0])))
        [2. 6.]
    """
    size = 1
    for name in axis_names(axis_name):
        if name not in config.axis_env:
            raise NameError(
                f"Found an unbound axis name: {name}. Collectives are called inside a function "
                "mapped by vmap(..., axis_name=...)."
            )
        size *= config.axis_env[name]
    return size


def collective(name: str, axis_param: str, multiple_results: bool = False) -> CollectivePrimitive:
    """A primitive over the axes that its parameter `axis_param` names."""
    primitive = CollectivePrimitive(name, multiple_results=multiple_results)

    def unbound(*args: Any, **params: Any) -> Any:
        axis_size(params[axis_param])
        raise NameError(f"{name}: the axis {params[axis_param]!r} is not mapped here")

    def effects(*avals: Any, **params: Any) -> Any:
        names = (n for n in axis_names(params[axis_param]) if not isinstance(n, int))
        return frozenset(NamedAxisEffect(n) for n in names)

    primitive.lowering = Decompose(unbound)
    primitive.effects = effects
    return primitive


def linear_collective(name: str) -> CollectivePrimitive:
    """A collective over `axis_name` that is linear in its one operand."""
    primitive = collective(name, "axis_name")
    primitive.def_jvp(
        lambda primals, tangents, **params: (
            primitive.bind(*primals, **params),
            primitive.bind(*tangents, **params),
        )
    )
    return primitive


def refuse_groups(groups: Any) -> None:
    if groups is not None:
        raise NotImplementedError("axis_index_groups is not supported over axes mapped by vmap")


def batch_rule(primitive: CollectivePrimitive, *positions: str) -> Callable[[Any], None]:
    """Register what a linear collective does where the axis that it joins is mapped.

    Another axis rides along in front, and `positions`, the parameters that number axes, count it.
    """

    def register(of_own_axis: Callable[..., Any]) -> None:
        def batch(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
            if axis.name in axis_names(params["axis_name"]):
                return of_own_axis(axis, args[0], dims[0], **params)
            params.update({name: params[name] + 1 for name in positions})
            return primitive.bind(batch_at(axis, args[0], dims[0], 0), **params), 0

        primitive.def_batch(batch)

    return register


# Reductions over the axis


def _reduction(name: str, reduce: str, of_equal: Callable[[Any, int], Any]) -> CollectivePrimitive:
    """A reduction; `of_equal(x, size)` is its value for elements that do not differ."""
    primitive = collective(name, "axes", multiple_results=True)

    @primitive.def_abstract_eval
    def abstract(*avals: Any, axes: Any, axis_index_groups: Any) -> list[Any]:
        return [ShapedArray(a.shape, a.dtype) for a in avals]

    @primitive.def_batch
    def batch(axis: AxisData, args: Any, dims: Any, *, axes: Any, axis_index_groups: Any) -> Any:
        params = {"axes": axes, "axis_index_groups": axis_index_groups}
        if axis.name not in axes:
            moved = [x if d is None else ops.moveaxis(x, d, 0) for x, d in zip(args, dims)]
            return primitive.bind(*moved, **params), [None if d is None else 0 for d in dims]
        refuse_groups(axis_index_groups)
        fold = getattr(ops, reduce)
        outs = [of_equal(x, axis.size) if d is None else fold(x, (d,)) for x, d in zip(args, dims)]
        rest = tuple(n for n in axes if n != axis.name)
        if rest:
            outs = primitive.bind(*outs, axes=rest, axis_index_groups=None)
        return outs, [None] * len(outs)

    return primitive


def _times(x: Any, size: int) -> Any:
    aval: Any = get_aval(x)
    return ops.mul(x, ops.full(aval.shape, size, aval.dtype))


psum_p = _reduction("psum", "reduce_sum", _times)
pmax_p = _reduction("pmax", "reduce_max", lambda x, size: x)
pmin_p = _reduction("pmin", "reduce_min", lambda x, size: x)


@psum_p.def_jvp
def _psum_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    outs = psum_p.bind(*primals, **params)
    given = [t for t in tangents if type(t) is not Zero]
    found = iter(psum_p.bind(*given, **params))
    return outs, [t if type(t) is Zero else next(found) for t in tangents]


@psum_p.def_transpose
def _psum_transpose(cts: Any, *args: Any, **params: Any) -> list[Any]:
    given = [ct for ct in cts if type(ct) is not Zero]
    found = iter(psum_p.bind(*given, **params)) if given else iter(())
    return [None if type(ct) is Zero else next(found) for ct in cts]


def _apply_reduction(primitive: CollectivePrimitive, x: Any, axis_name: Any, groups: Any) -> Any:
    axis_size(axis_name)
    refuse_groups(groups)
    leaves, tree = tree_flatten(x)
    outs = primitive.bind(*leaves, axes=axis_names(axis_name), axis_index_groups=None)
    return tree_unflatten(tree, outs)


def psum(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Sum over a mapped axis.

    Args:
      x: pytree of arrays; those of booleans are counted in int32. A Python number gives that
        number times the size of the axis, known while tracing.

    Returns:
      A pytree like `x`, the same for all elements of the axis.

    Raises:
      NameError: the axis is not mapped.

        >>> share = lambda x: x / amdjax.lax.psum(x, "i")
        >>> print(amdjax.vmap(share, axis_name="i")(np.array([1.0, 3.0])))
        [0.25 0.75]
    """
    size = axis_size(axis_name)
    leaves, tree = tree_flatten(x)
    if leaves and all(type(leaf) in (int, float, complex, bool) for leaf in leaves):
        return tree_unflatten(tree, [leaf * size for leaf in leaves])
    return _apply_reduction(psum_p, tree_map(_counted, x), axis_name, axis_index_groups)


def _counted(x: Any) -> Any:
    return ops.convert(x, np.int32) if get_aval(x).dtype == bool else x


def pmean(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Mean over a mapped axis.

    >>> f = amdjax.vmap(lambda x: amdjax.lax.pmean(x, "i"), axis_name="i")
    >>> print(f(np.array([1.0, 3.0])))
    [2. 2.]
    """
    size = axis_size(axis_name)
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    return tree_map(lambda v: _over(v, size), total)


def _over(x: Any, size: int) -> Any:
    aval: Any = get_aval(x)
    dtype, weak = aval.dtype, aval.weak_type
    if not dtypes.issubdtype(dtype, np.inexact):
        dtype = dtypes.default_float_dtype()
        x = ops.full((), x, dtype, True) if weak else ops.convert(x, dtype)
    return ops.div(x, ops.full(aval.shape, size, dtype, weak))


def pmax(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Maximum over a mapped axis.

    >>> f = amdjax.vmap(lambda x: amdjax.lax.pmax(x, "i"), axis_name="i")
    >>> print(f(np.array([1.0, 3.0])))
    [3. 3.]
    """
    return _apply_reduction(pmax_p, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Minimum over a mapped axis.

    >>> f = amdjax.vmap(lambda x: amdjax.lax.pmin(x, "i"), axis_name="i")
    >>> print(f(np.array([1.0, 3.0])))
    [1. 1.]
    """
    return _apply_reduction(pmin_p, x, axis_name, axis_index_groups)


# Permutations

ppermute_p = linear_collective("ppermute")


@ppermute_p.def_abstract_eval
def _ppermute_abstract(x: Any, **_: Any) -> Any:
    return x.strong()


@ppermute_p.def_transpose
def _ppermute_transpose(ct: Any, x: Any, *, axis_name: Any, perm: Any) -> list[Any]:
    return [ppermute_p.bind(ct, axis_name=axis_name, perm=tuple((d, s) for s, d in perm))]


@batch_rule(ppermute_p)
def _ppermute_batch(axis: AxisData, x: Any, dim: Any, *, perm: Any, **_: Any) -> Any:
    x = batch_at(axis, x, dim, 0)
    sources = np.zeros(axis.size, np.int32)
    reached = np.zeros(axis.size, bool)
    for source, destination in perm:
        sources[destination], reached[destination] = source, True
    out = ops.take(x, sources, 0)
    if not reached.all():
        aval: Any = get_aval(out)
        mask = ops.broadcast_in_dim(reached, aval.shape, (0,))
        out = ops.select(mask, out, ops.full(aval.shape, 0, aval.dtype))
    return out, 0


def ppermute(x: Any, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Any:
    """Send elements along a mapped axis.

    Args:
      perm: pairs `(source, destination)` of positions; no source and no destination twice.
        Elements that nothing is sent to become zero.

    Returns:
      A pytree like `x`.

    Raises:
      ValueError: a position occurs twice or is out of range.
      NotImplementedError: there are several axes.

        >>> f = amdjax.vmap(lambda x: amdjax.lax.ppermute(x, "i", [(0, 1)]), axis_name="i")
        >>> print(f(np.array([1.0, 3.0])))
        [0. 1.]
    """
    if len(axis_names(axis_name)) > 1:
        raise NotImplementedError(
            f"ppermute: axis_name names several axes, {axis_name}; permute along one at a time"
        )
    size = axis_size(axis_name)
    pairs = tuple((int(s), int(d)) for s, d in perm)
    for side, positions in (
        ("sources", [s for s, _ in pairs]),
        ("destinations", [d for _, d in pairs]),
    ):
        if len(set(positions)) != len(positions):
            raise ValueError(f"ppermute: perm names {side} twice: {positions}")
        if any(not 0 <= p < size for p in positions):
            raise ValueError(f"ppermute: {side} {positions} are not all below the axis size {size}")
    return tree_map(
        lambda leaf: ppermute_p.bind(leaf, axis_name=axis_names(axis_name), perm=pairs), x
    )


def pshuffle(x: Any, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Permute a mapped axis: element `i` of the result is element `perm[i]` of `x`.

    Args:
      perm: a permutation of its positions.

    Returns:
      A pytree like `x`.

    Raises:
      ValueError: `perm` is no permutation.

        >>> f = amdjax.vmap(lambda x: amdjax.lax.pshuffle(x, "i", [1, 0]), axis_name="i")
        >>> print(f(np.array([1.0, 3.0])))
        [3. 1.]
    """
    if set(perm) != set(range(axis_size(axis_name))):
        raise ValueError(f"pshuffle: `perm` does not represent a permutation: {list(perm)}")
    return ppermute(x, axis_name, list(zip(perm, range(len(perm)))))


# Positions

axis_index_p = collective("axis_index", "axis_name")


@axis_index_p.def_abstract_eval
def _axis_index_abstract(*, axis_name: Any) -> Any:
    return ShapedArray((), np.dtype("int32"))


@axis_index_p.def_jvp
def _axis_index_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    out = axis_index_p.bind(**params)
    return out, Zero.of(out)


@axis_index_p.def_batch
def _axis_index_batch(axis: AxisData, args: Any, dims: Any, *, axis_name: Any) -> Any:
    return ops.iota(np.dtype("int32"), axis.size), 0


def axis_index(axis_name: AxisName) -> Any:
    """The position of an element along a mapped axis.

    Args:
      axis_name: name of the axis, or a tuple of names, the last of which varies fastest.

    Returns:
      An int32 scalar.

        >>> f = amdjax.vmap(lambda: amdjax.lax.axis_index("i"), axis_name="i", axis_size=3)
        >>> print(f())
        [0 1 2]
    """
    index: Any = None
    for name in axis_names(axis_name):
        size = axis_size(name)
        here = axis_index_p.bind(axis_name=name)
        index = here if index is None else index * size + here
    return np.int32(0) if index is None else index


def pvary(x: Any, axis_name: AxisName) -> Any:
    """Declare that a value may differ between the elements of a mapped axis, which it may anyway.

    Args:
      x: pytree of arrays.
      axis_name: name of the axis, or a tuple of names.

    Returns:
      `x`.

    Raises:
      NameError: no axis of that name is being mapped.
    """
    axis_size(axis_name)
    return x
