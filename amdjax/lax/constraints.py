"""What a program says about where its values lie on a mesh."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from amdjax.core.config import config
from amdjax.core.constraints import as_sharding, is_sharding
from amdjax.core.mesh import current_mesh
from amdjax.core.pytree import tree_broadcast, tree_leaves, tree_map
from amdjax.core.sharding import NamedSharding, explicit_entries
from amdjax.transforms.transfers import device_put_p, laid_out, sharding_constraint_p

__all__ = ["device_put_p", "pcast", "pvary", "sharding_constraint_p", "with_sharding_constraint"]


def _constraining(sharding: Any) -> Any:
    """A sharding that may constrain: of axes that the compiler chooses how to use."""
    sharding = as_sharding(sharding, "with_sharding_constraint")
    if not isinstance(sharding, NamedSharding) or current_mesh().are_all_axes_explicit:
        return sharding
    if any(explicit_entries(sharding, len(sharding.spec))):
        raise ValueError(
            "The spec of NamedSharding passed to with_sharding_constraint can only refer to Auto "
            f"axes of the mesh. Got spec={sharding.spec} and mesh={sharding.mesh}: reshard is for "
            "explicit ones."
        )
    return sharding


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

        >>> from amdjax.sharding import Mesh, NamedSharding, PartitionSpec as P
        >>> rows = NamedSharding(Mesh(amdjax.devices()[:1], "i"), P("i"))
        >>> print(amdjax.jit(lambda x: with_sharding_constraint(2 * x, rows))(amdjax.numpy.ones(2)))
        [2. 2.]
    """
    what = "with_sharding_constraint"
    if any(s is None for s in tree_leaves(shardings, is_leaf=lambda s: s is None)):
        raise ValueError(
            f"One of {what} arguments got sharding None which is not allowed: give a Sharding or "
            "a PartitionSpec."
        )
    shardings = tree_map(_constraining, shardings, is_leaf=is_sharding)
    each = tree_broadcast(shardings, x, is_leaf=is_sharding)
    return tree_map(lambda leaf, sharding: laid_out(what, leaf, sharding), x, each)


def pvary(x: Any, axis_name: Any) -> Any:
    """`x` as a value that may differ between the places of mapped axes.

    Args:
      x: a pytree of arrays.

    Raises:
      NameError: there is no such axis.

    Returns:
      `x`.

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

        >>> f = amdjax.vmap(lambda x: amdjax.lax.pcast(x, "i", to="varying"), axis_name="i")
        >>> print(f(np.array([1.0, 3.0])))
        [1. 3.]
    """
    if to not in ("varying", "invarying", "reduced", "unreduced"):
        raise ValueError(f"pcast: to must be 'varying' or 'invarying', got {to!r}")
    return pvary(x, () if axis_name is None else axis_name)


def _check_axis(name: Hashable) -> None:
    if name in config.axis_env:
        return
    if not (config.remove_size_one_mesh_axis_from_type and current_mesh().shape.get(name) == 1):
        raise NameError(f"unbound axis name: {name!r}. Mapped axes here: {list(config.axis_env)}")
