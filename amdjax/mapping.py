"""`pmap` and `shard_map`: programs for each device of a mesh, which talk by collectives.

There is one device a mesh now, so that each axis of a mesh has one place and a device's part of an
array is all of it. What a program sees is exact: its collectives run over axes of size one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import get_aval
from amdjax.core.backend import get_backend
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.constraints import one_device_of
from amdjax.core.mesh import AbstractMesh, Mesh, current_mesh
from amdjax.core.pytree import PyTreeDef, tree_flatten, tree_leaves, tree_map, tree_unflatten
from amdjax.core.pytree_errors import flatten_axes
from amdjax.core.sharding import NamedSharding, PartitionSpec
from amdjax.jit.api import jit
from amdjax.runtime.devices import local_device_count
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData
from amdjax.transforms.batching import batch_flat
from amdjax.transforms.flat import FlatFunction, fun_name, positions_of
from amdjax.transforms.transfers import laid_out

__all__ = ["Infer", "pmap", "shard_map", "smap"]


class _Infer:
    """Stands for specifications that follow from the arguments' types."""

    def __repr__(self) -> str:
        return "Infer"


Infer = _Infer()


def shard_map(
    f: Callable[..., Any] | None = None, /, *, out_specs: Any, in_specs: Any = Infer,
    mesh: Any = None, axis_names: Any = frozenset(), check_vma: bool = True,
) -> Any:  # fmt: skip
    """Run a function on each device's part of its arguments.

    Args:
      f: a function of parts; without it, a decorator is returned.
      out_specs: how parts of results are joined, a pytree of `PartitionSpec`s that is a prefix of
        the result.
      in_specs: how arguments are divided, a prefix of the tuple of arguments.
      mesh: the devices; by default those of the current mesh.
      axis_names: the axes of the mesh that `f` may name; all if empty.
      check_vma: accepted.

    Returns:
      A function of whole arrays.

    Raises:
      NotImplementedError: the mesh has more than one device.
      ValueError: a specification names an axis that is not there, or more axes than an array has.
      TypeError: a specification is not a `PartitionSpec`.

        >>> from amdjax.sharding import Mesh, PartitionSpec as P
        >>> mesh = Mesh(amdjax.devices()[:1], "i")
        >>> total = shard_map(
        ...     lambda x: amdjax.lax.psum(x.sum(), "i"), mesh=mesh, in_specs=P("i"), out_specs=P()
        ... )
        >>> print(total(amdjax.numpy.arange(4.0)))
        6.0
    """
    if f is None:
        return functools.partial(
            shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names,
            check_vma=check_vma,
        )  # fmt: skip
    if not callable(f):
        raise TypeError(
            f"shard_map requires a callable for its first argument, but got {f!r} of type "
            f"{type(f)}."
        )

    @functools.wraps(f)
    def mapped(*args: Any) -> Any:
        names, sizes = _manual_axes(mesh, axis_names)
        leaves, tree = tree_flatten((args, {}))
        if in_specs is not Infer:
            if in_specs is None and leaves:
                raise TypeError(
                    "shard_map in_specs argument must be a pytree of PartitionSpec instances, but "
                    "it was None. For arguments that all devices share, give P()."
                )
            _check_specs("in_specs", in_specs, names)
            specs = flatten_axes("shard_map in_specs", tree_flatten(args)[1], in_specs)
            _check_ranks("in_specs", specs, leaves)
        flat = FlatFunction(f, tree)
        outs = _run(flat, leaves, [AxisData(n, s, True) for n, s in zip(names, sizes)])
        _check_specs("out_specs", out_specs, names)
        specs = flatten_axes("shard_map out_specs", flat.out_tree, out_specs)
        _check_ranks("out_specs", specs, outs)
        over = current_mesh() if mesh is None else mesh
        if isinstance(over, Mesh):
            outs = [
                x if spec is None else laid_out("shard_map out_specs", x, NamedSharding(over, spec))
                for x, spec in zip(outs, specs)
            ]
        return flat.unflatten(outs)

    return mapped


def _manual_axes(mesh: Any, axis_names: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Names and sizes of the axes that a mapped function may name."""
    if mesh is None:
        mesh = current_mesh()
        if mesh.empty:
            raise ValueError(
                "The context mesh cannot be empty. Use `jax.set_mesh(mesh)` to enter into a mesh "
                "context, or give shard_map a mesh."
            )
    if not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(f"shard_map requires a Mesh or an AbstractMesh, but got {mesh!r}")
    if mesh.empty:
        raise ValueError(f"shard_map requires a non-empty mesh. Got {mesh}")
    if not isinstance(axis_names, (set, frozenset)):
        raise TypeError(
            "`axis_names` argument of shard_map should be of type `frozenset` or `set`. Got type: "
            f"{type(axis_names)}"
        )
    if not axis_names <= set(mesh.axis_names):
        raise ValueError(
            f"jax.shard_map requires axis_names={axis_names} to be a subset of "
            f"mesh.axis_names={mesh.axis_names}"
        )
    if mesh.size > 1:
        raise NotImplementedError(
            f"shard_map: {mesh} has {mesh.size} devices; programs run on one device for now"
        )
    names = tuple(n for n in mesh.axis_names if not axis_names or n in axis_names)
    return names, tuple(mesh.shape[n] for n in names)


def _check_specs(what: str, specs: Any, names: Sequence[Any]) -> None:
    for spec in tree_leaves(specs):
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"shard_map {what} argument must be a pytree of PartitionSpec instances, but it "
                f"holds {spec!r} of type {type(spec).__name__}"
            )
        for entry in spec.partitions:
            for axis in entry if isinstance(entry, tuple) else (entry,):
                if axis is not None and axis not in names:
                    raise ValueError(
                        f"shard_map {what} argument must refer to an axis marked as manual "
                        f"({tuple(names)}), but {spec} refers to {axis!r}"
                    )


def _check_ranks(what: str, specs: Sequence[Any], leaves: Sequence[Any]) -> None:
    for spec, leaf in zip(specs, leaves):
        if spec is not None and len(spec) > get_aval(leaf).ndim:
            raise ValueError(
                f"shard_map applied to values whose rank is too small for {what}: {spec} is for "
                f"rank {len(spec)} or more, the value has type {get_aval(leaf)}"
            )


def _run(fun: Callable[..., Any], args: Sequence[Any], axes: Sequence[AxisData]) -> list[Any]:
    """`fun` at the only place of each of the axes."""
    if not axes:
        return fun(*args)
    outs, dims = batch_flat(lambda *xs: _run(fun, xs, axes[1:]), axes[0], args, [None] * len(args))
    return [x if d is None else _without_axis(x, d) for x, d in zip(outs, dims)]


def _without_axis(x: Any, axis: int) -> Any:
    shape = list(get_aval(x).shape)
    del shape[axis]
    return ops.reshape(x, shape)


def _with_axis(x: Any, axis: int) -> Any:
    rank = get_aval(x).ndim
    if not -rank <= axis + 1 <= rank + 1 or axis > rank:
        raise ValueError(
            f"pmap out_axes places the mapped axis at {axis} of a result of rank {rank}"
        )
    return ops.broadcast(x, 1, axis % (rank + 1))


def smap(
    f: Callable[..., Any] | None = None, /, *, in_axes: Any = Infer, out_axes: Any,
    axis_name: Hashable,
) -> Any:  # fmt: skip
    """`shard_map` over one axis of the current mesh.

    Args:
      f: a function of parts; without it, a decorator is returned.
      in_axes: the axis along which each argument is divided, None for shared ones.
      out_axes: the axis along which each result is joined.
      axis_name: the axis of the mesh.

    Returns:
      A function of whole arrays.

    Raises:
      TypeError: an axis is not an int, or `axis_name` is None.
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if axis_name is None:
        raise TypeError("smap axis_name should be a `str` or a `Hashable`, but got None")
    if in_axes is not Infer and not isinstance(in_axes, (int, tuple, type(None))):
        raise TypeError(
            "smap in_axes must be an int, None, jax.sharding.Infer, or a tuple of entries "
            "corresponding to the positional arguments passed to the function, but got "
            f"{in_axes!r}."
        )
    for what, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if axes is not Infer and not all(isinstance(a, int) for a in tree_leaves(axes)):
            raise TypeError(
                f"smap {what} must be an int, None, or (nested) container with those types as "
                f"leaves, but got {axes!r}."
            )

    def spec(axis: Any) -> PartitionSpec:
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, axis_name)

    def specs(axes: Any) -> Any:
        return tree_map(spec, axes, is_leaf=lambda a: a is None)

    return shard_map(
        f, in_specs=in_axes if in_axes is Infer else specs(in_axes), out_specs=specs(out_axes),
        axis_names={axis_name},
    )  # fmt: skip


def pmap(
    fun: Callable[..., Any], axis_name: Hashable | None = None, *, in_axes: Any = 0,
    out_axes: Any = 0, static_broadcasted_argnums: Any = (), devices: Any = None,
    backend: str | None = None, axis_size: int | None = None, donate_argnums: Any = (),
) -> Any:  # fmt: skip
    """Run a function on several devices at once, each with one element of the arguments.

    Args:
      fun: a function of one element.
      axis_name: a name of the mapped axis, for collectives.
      in_axes: the axis to map over, for each argument, as in `vmap`.
      out_axes: where the mapped axis appears in the results.
      static_broadcasted_argnums: positions of arguments that are compile-time constants.
      devices: the devices to use.
      backend: the platform whose devices to use.
      axis_size: the number of elements.
      donate_argnums: positions of arguments whose memory the results may take over.

    Returns:
      A function of arguments with a mapped axis of as many elements as there are devices.

    Raises:
      ValueError: there are more elements than devices, or no argument is mapped.

        >>> print(pmap(lambda x: amdjax.lax.psum(x, "i"), "i")(amdjax.numpy.ones((1, 3))))
        [[1. 1. 1.]]
    """
    if not callable(fun):
        raise TypeError(f"pmap: expected a callable value, got {fun!r}")
    if devices is not None and not len(devices):
        raise ValueError("'devices' argument to pmap must be non-empty, or None.")
    for what, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(type(a) is int for a in tree_leaves(axes)):
            raise TypeError(
                f"pmap {what} must be an int, None, or (nested) container with those types as "
                f"leaves, but got {axes!r}."
            )
    static = positions_of(static_broadcasted_argnums)
    name = "_internal_pmap_axis_name" if axis_name is None else axis_name
    device = one_device_of(devices, "pmap") if devices is not None else None

    def call(*args: Any, **kwargs: Any) -> Any:
        if static and max(static) >= len(args):
            raise ValueError(
                f"pmapped function has static_broadcasted_argnums={static} but was called with "
                f"only {len(args)} positional argument{'s' * (len(args) != 1)}. All static "
                "broadcasted arguments must be passed positionally."
            )
        leaves, _, dims = _mapped_leaves(fun, args, kwargs, in_axes, static)
        count = _elements(leaves, dims, axis_size)
        available = 1 if device is not None else local_device_count(backend)
        if count > available:
            raise ValueError(
                f"compiling computation that requires {count} logical devices, but only "
                f"{available} XLA devices are available (num_replicas={count})"
            )
        if count > 1:
            raise NotImplementedError(f"pmap over {count} devices; programs run on one for now")
        try:
            return joined(compiled(*args, **kwargs))
        except FloatingPointError as error:  # of `debug_nans` or `debug_infs`
            where = "encountered in sharded computation. It arose in"
            text = str(error).replace("encountered in", where, 1)
            raise FloatingPointError(text[:1].upper() + text[1:]) from None

    def joined(outs: Any) -> Any:
        leaves, tree = tree_flatten(outs)
        places = flatten_axes("pmap out_axes", tree, out_axes)
        return tree_unflatten(tree, [_joined(x, axis, name) for x, axis in zip(leaves, places)])

    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, tree, dims = _mapped_leaves(fun, args, kwargs, in_axes, static)

        def with_static(*values: Any, **kwargs: Any) -> Any:
            others = iter(values)
            return fun(*(x if i in static else next(others) for i, x in enumerate(args)), **kwargs)

        flat = FlatFunction(with_static, tree)
        parts = [x if d is None else _without_axis(x, d) for x, d in zip(leaves, dims)]
        outs = _run(flat, parts, [AxisData(axis_name, 1, True)])
        places = flatten_axes("pmap out_axes", flat.out_tree, out_axes)
        return flat.unflatten([x if d is None else _with_axis(x, d) for x, d in zip(outs, places)])

    compiled = jit(
        mapped, static_argnums=tuple(static), donate_argnums=positions_of(donate_argnums),
        device=device, backend=backend if device is None else None,
    )  # fmt: skip
    wrapped = functools.wraps(fun)(call)
    wrapped.lower = compiled.lower  # type: ignore[attr-defined]
    return wrapped


def _joined(x: Any, axis: int | None, name: Hashable) -> Any:
    """A result of `pmap` as it lies on the devices: along an axis of it, or the same on all."""
    if not isinstance(x, ConcreteArray):
        return x
    entries = () if axis is None else (*[None] * (axis % x.ndim), name)
    mesh = Mesh([x.device], name)
    return get_backend().device_put(x, NamedSharding(mesh, PartitionSpec(*entries)))


def _mapped_leaves(
    fun: Any, args: Any, kwargs: Any, in_axes: Any, static: Sequence[int]
) -> tuple[list[Any], PyTreeDef, list[int | None]]:
    """Leaves and structure of the arguments that are not static, and the axis mapped of each."""
    axes = in_axes
    if isinstance(in_axes, (tuple, list)):
        if len(in_axes) != len(args):
            raise ValueError(
                f"pmap of {fun_name(fun)}: in_axes has {len(in_axes)} entries for {len(args)} "
                "positional arguments; each argument passed by keyword is mapped along its axis 0"
            )
        axes = tuple(axis for i, axis in enumerate(in_axes) if i not in static)
    leaves, tree = tree_flatten((tuple(x for i, x in enumerate(args) if i not in static), kwargs))
    dims = flatten_axes("pmap in_axes", tree, (axes, 0), kws=True)
    for leaf, d in zip(leaves, dims):
        shape = get_aval(leaf).shape
        if d is not None and not -len(shape) <= d < len(shape):
            raise ValueError(
                f"pmap was requested to map an argument along axis {d}, which implies that its "
                f"rank is greater, but its shape is {shape}"
            )
    return leaves, tree, dims


def _elements(leaves: Sequence[Any], dims: Sequence[int | None], axis_size: int | None) -> int:
    """How many elements the arguments of a `pmap` have."""
    sizes = {get_aval(x).shape[d] for x, d in zip(leaves, dims) if d is not None}
    if axis_size is not None:
        sizes.add(axis_size)
    if not sizes:
        raise ValueError("pmap requires at least one argument with a mapped axis.")
    if len(sizes) > 1:
        raise ValueError(f"pmap got inconsistent sizes for array axes to be mapped: {sizes}")
    return sizes.pop()


_public_surface(globals())
