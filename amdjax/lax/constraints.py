"""What a program says about where its values lie on a mesh."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from amdjax.core.config import config
from amdjax.core.constraints import as_sharding, constrain, is_sharding
from amdjax.core.lowering import Decompose
from amdjax.core.mesh import get_abstract_mesh
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_broadcast, tree_map
from amdjax.core.trace import Tracer
from amdjax.lax._rules import is_zero
from amdjax.transforms.transfers import device_put_p

__all__ = ["device_put_p", "pcast", "pvary", "sharding_constraint_p", "with_sharding_constraint"]

sharding_constraint_p = Primitive("sharding_constraint")
sharding_constraint_p.def_abstract_eval(lambda x, **_: x)
sharding_constraint_p.lowering = Decompose(lambda x, **_: x)


@sharding_constraint_p.def_jvp
def _constraint_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    (t,) = tangents
    out = sharding_constraint_p.bind(*primals, **params)
    return out, t if is_zero(t) else sharding_constraint_p.bind(t, **params)


@sharding_constraint_p.def_transpose
def _constraint_transpose(ct: Any, x: Any, **params: Any) -> list[Any]:
    return [ct if is_zero(ct) else sharding_constraint_p.bind(ct, **params)]


@sharding_constraint_p.def_batch
def _constraint_batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
    # What is said of the axes of an element holds for each; the mapped axis may lie anywhere.
    return args[0], dims[0]


def _constrained(x: Any, sharding: Any) -> Any:
    if not isinstance(x, Tracer):
        return x
    return sharding_constraint_p.bind(
        x,
        sharding=as_sharding(sharding, "with_sharding_constraint"),
        layout=None,
        context_mesh=get_abstract_mesh(),
        unconstrained_dims=frozenset(),
    )


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """`x`, laid out as told.

    Args:
      x: a pytree of arrays.
      shardings: a sharding of one device or a `PartitionSpec`, or a prefix of `x` of them.

    Returns:
      `x`; concrete arrays are put where the shardings say.

    Raises:
      ValueError: a sharding does not fit the shape of its array.
      NotImplementedError: a sharding spans several devices.

    Example:
      >>> import amdjax
      >>> from amdjax.sharding import NamedSharding, PartitionSpec as P
      >>> rows = NamedSharding(amdjax.make_mesh((1,), ("i",)), P("i"))
      >>> print(amdjax.jit(lambda x: with_sharding_constraint(2 * x, rows))(amdjax.numpy.ones(2)))
      [2. 2.]
    """
    x = constrain(x, shardings, "with_sharding_constraint")
    return tree_map(_constrained, x, tree_broadcast(shardings, x, is_leaf=is_sharding))


def pvary(x: Any, axis_name: Any) -> Any:
    """`x` as a value that may differ between the places of mapped axes.

    Args:
      x: a pytree of arrays.

    Returns:
      `x`.

    Raises:
      NameError: there is no such axis.

    Example:
      >>> import amdjax, numpy as np
      >>> f = amdjax.vmap(lambda x: amdjax.lax.pvary(x, "i"), axis_name="i")
      >>> print(f(np.array([1.0, 3.0])))
      [1. 3.]
    """
    for name in axis_name if isinstance(axis_name, (tuple, list, set)) else (axis_name,):
        _check_axis(name)
    return x


def pcast(x: Any, axis_name: Any = None, *, to: str) -> Any:
    """`x` as a value of another kind along mapped axes: "varying" or "invarying".

    Args:
      x: a pytree of arrays.
      to: the kind.

    Returns:
      `x`.

    Raises:
      ValueError: there is no such kind.
      NameError: there is no such axis.

    Example:
      >>> import amdjax, numpy as np
      >>> f = amdjax.vmap(lambda x: amdjax.lax.pcast(x, "i", to="varying"), axis_name="i")
      >>> print(f(np.array([1.0, 3.0])))
      [1. 3.]
    """
    if to not in ("varying", "invarying", "reduced", "unreduced"):
        raise ValueError(f"pcast: to must be 'varying' or 'invarying', got {to!r}")
    return pvary(x, () if axis_name is None else axis_name)


def _check_axis(name: Hashable) -> None:
    if name not in config.axis_env:
        raise NameError(f"unbound axis name: {name!r}. Mapped axes here: {list(config.axis_env)}")
