"""What a program says about where its values lie on a mesh."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from amdjax.core.config import config
from amdjax.core.constraints import constrain

__all__ = ["pcast", "pvary", "with_sharding_constraint"]


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
    return constrain(x, shardings, "with_sharding_constraint")


def pvary(x: Any, axis_name: Any) -> Any:
    """`x` as a value that may differ between the places of mapped axes.

    Args:
      x: a pytree of arrays.
      axis_name: a mapped axis, or several.

    Raises:
      NameError: there is no such axis.
    """
    for name in axis_name if isinstance(axis_name, (tuple, list, set)) else (axis_name,):
        _check_axis(name)
    return x


def pcast(x: Any, axis_name: Any = None, *, to: str) -> Any:
    """`x` as a value of another kind along mapped axes: "varying" or "invarying".

    Args:
      x: a pytree of arrays.
      axis_name: a mapped axis, or several.
      to: the kind.

    Raises:
      ValueError: there is no such kind.
      NameError: there is no such axis.
    """
    if to not in ("varying", "invarying", "reduced", "unreduced"):
        raise ValueError(f"pcast: to must be 'varying' or 'invarying', got {to!r}")
    return pvary(x, () if axis_name is None else axis_name)


def _check_axis(name: Hashable) -> None:
    if name not in config.axis_env:
        raise NameError(f"unbound axis name: {name!r}. Mapped axes here: {list(config.axis_env)}")
