"""Marks of traced programs: that a value is wanted on a device, or sharded over a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax.core.array import asarray_concrete
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.backend import get_backend
from amdjax.core.boundaries import lay_out_results
from amdjax.core.constraints import (
    as_sharding,
    as_sharding_of_type,
    constrain,
    is_sharding,
    one_device_of,
    over_devices,
)
from amdjax.core.jaxpr import JaxprEqn, Var
from amdjax.core.lowering import Decompose, Shaped
from amdjax.core.mesh import Mesh, get_abstract_mesh
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_broadcast, tree_map
from amdjax.core.sharding import (
    ArrayCopySemantics,
    NamedSharding,
    PartitionSpec,
    explicit_entries,
    space_of,
)
from amdjax.core.trace import Tracer
from amdjax.transforms.zero import Zero, in_space, instantiate_zeros

device_put_p = Primitive("device_put", multiple_results=True)
device_put_p.def_memory_space(lambda *avals: None)
# A program runs where its arguments are: only what changes memory spaces is copied.
device_put_p.lowering = Shaped("device_put", composed=lambda *xs, **_: list(xs))


@device_put_p.def_abstract_eval
def _put_types(*avals: Any, devices: Sequence[Any], **_: Any) -> list[Any]:
    return [moved_type(a, d) for a, d in zip(avals, devices, strict=True)]


def moved_type(aval: Any, device: Any) -> Any:
    """The type of what `device_put` gives of a value: in the memory space that was asked for."""
    space = space_of(device)
    if space is None or not isinstance(aval, ShapedArray):
        return aval
    return aval.update(memory_space=space)


def _put(*xs: Any, devices: Sequence[Any], **_: Any) -> list[Any]:
    put = get_backend().device_put
    return [put(asarray_concrete(x), d) for x, d in zip(xs, devices, strict=True)]


device_put_p.impl = _put


def put_traced(x: Any, device: Any, src: Any = None) -> Any:
    """A traced value, marked as one that is wanted on a device or in a memory space."""
    copy = ArrayCopySemantics.REUSE_INPUT
    return device_put_p.bind(x, devices=(device,), srcs=(src,), copy_semantics=(copy,))[0]


def transfer(source: Var, result: Var) -> JaxprEqn:
    """The equation that copies a value to the memory space of another one."""
    params = {
        "devices": (result.aval.memory_space,), "srcs": (None,),
        "copy_semantics": (ArrayCopySemantics.ALWAYS_COPY,),
    }  # fmt: skip
    return JaxprEqn(device_put_p, [source], [result], params)


@device_put_p.def_jvp
def _put_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    outs = device_put_p.bind(*primals, **params)
    moved = [
        t if type(t) is Zero else device_put_p.bind(t, **_of_one(params, i))[0]
        for i, t in enumerate(tangents)
    ]
    return outs, moved


@device_put_p.def_transpose
def _put_transpose(cts: Any, *xs: Any, **params: Any) -> list[Any]:
    # Back to where they came from: the types say in which memory that was.
    cts = [instantiate_zeros(ct) for ct in cts]
    spaces = [(get_aval(x).memory_space, get_aval(ct).memory_space) for x, ct in zip(xs, cts)]
    devices = tuple(None if to is here else to for to, here in spaces)
    return device_put_p.bind(*cts, **{**params, "devices": devices, "srcs": params["devices"]})


@device_put_p.def_batch
def _put_batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
    return device_put_p.bind(*args, **params), dims


def _of_one(params: dict[str, Any], i: int) -> dict[str, Any]:
    return {name: (values[i],) for name, values in params.items()}


def _marking(name: str, parameter: str) -> Primitive:
    """A primitive that says by a parameter how a value is sharded, and changes nothing of it."""
    p = Primitive(name)
    p.def_abstract_eval(lambda x, **_: x)
    p.lowering = Decompose(lambda x, **_: x)
    free = None if name == "reshard" else PartitionSpec.UNCONSTRAINED

    def put(x: Any, **params: Any) -> Any:
        x = asarray_concrete(x)
        return get_backend().device_put(x, over_devices(params[parameter], x))

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        (t,) = tangents
        return p.bind(*primals, **params), t if type(t) is Zero else p.bind(t, **params)

    def transpose(ct: Any, x: Any, **params: Any) -> list[Any]:
        return [ct if type(ct) is Zero else p.bind(ct, **params)]

    def batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
        sharding = params[parameter]
        if axis.spmd_name is not None and not isinstance(sharding, NamedSharding):
            raise ValueError(
                "If you are using spmd_axis_name parameter of jax.vmap, please make sure to run "
                "your jitted function inside the mesh context manager, or give a NamedSharding: "
                f"{name} got {sharding} of type {type(sharding).__name__}."
            )
        if isinstance(sharding, NamedSharding):
            entries = list(sharding.spec.partitions)
            if dims[0] < len(entries) or axis.spmd_name is not None:
                entries += [None] * (dims[0] - len(entries))
                entries.insert(dims[0], free if axis.spmd_name is None else axis.spmd_name)
            params[parameter] = sharding.update(spec=sharding.spec.update(entries))
        return p.bind(*args, **params), dims[0]

    p.impl = put
    p.def_jvp(jvp)
    p.def_transpose(transpose)
    p.def_batch(batch)
    return p


sharding_constraint_p = _marking("sharding_constraint", "sharding")
reshard_p = _marking("reshard", "dst_sharding")


def constrained(x: Any, sharding: Any) -> Any:
    """`x` with the mark that it is sharded so; a concrete array is put there."""
    marked = sharding_constraint_p.bind(
        x,
        sharding=sharding,
        layout=None,
        context_mesh=get_abstract_mesh(),
        unconstrained_dims=frozenset(),
    )
    return in_space(marked, space_of(sharding) or get_aval(x).memory_space)


def laid_out(what: str, x: Any, sharding: Any) -> Any:
    """An array where a sharding says, if there is one; traced ones get a mark."""
    if sharding is None:
        return x
    if not isinstance(x, Tracer):
        return constrain(x, sharding, what)
    return constrained(constrain(x, sharding, what), as_sharding(sharding, what))


def resharded(what: str, xs: Any, shardings: Any) -> Any:
    """Arrays with shardings that are part of their types.

    Args:
      what: the function that was asked for them.
      xs: a pytree of arrays.
      shardings: a sharding or specification for each, or a prefix of `xs` of them; None where an
        array stays as it is.

    Raises:
      ValueError: a sharding names an axis that is not explicit, or does not fit.
    """

    def one(x: Any, sharding: Any) -> Any:
        if sharding is None:
            return x
        sharding = as_sharding_of_type(sharding, what)
        shape = get_aval(x).shape
        sharding.shard_shape(shape)
        entries = explicit_entries(sharding, len(shape))
        sharding = sharding.update(spec=sharding.spec.update(entries))
        if isinstance(sharding.mesh, Mesh):
            one_device_of(sharding, what)
        return reshard_p.bind(x, dst_sharding=sharding, concrete_mesh=None)

    is_leaf = lambda s: s is None or is_sharding(s)
    return tree_map(one, xs, tree_broadcast(shardings, xs, is_leaf=is_leaf))


lay_out_results(resharded)
