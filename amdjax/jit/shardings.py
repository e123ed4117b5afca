"""`in_shardings` and `out_shardings` of `jit`, over one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax.core.array import ConcreteArray, PlacedArray
from amdjax.core.constraints import as_sharding, one_device_of
from amdjax.core.pytree import PyTreeDef, tree_leaves, tree_map, treedef_children
from amdjax.core.pytree_errors import flatten_axes
from amdjax.core.sharding import NamedSharding
from amdjax.jit.arrays import Runner


class Shardings:
    """How a compiled function takes its arguments and gives its results.

    Args:
      arguments: a pytree of shardings that is a prefix of the tuple of arguments; None where
        arguments may come as they are.
      results: the same for the result.

    Attributes:
      device: the device of all of them; None if there are none.
    """

    def __init__(self, arguments: Any, results: Any):
        self.arguments = tree_map(lambda s: as_sharding(s, "jit in_shardings"), arguments)
        self.results = tree_map(lambda s: as_sharding(s, "jit out_shardings"), results)
        given = [*tree_leaves(self.arguments), *tree_leaves(self.results)]
        found = {one_device_of(s, "jit") for s in given}
        if len(found) > 1:
            raise ValueError(
                f"jit: in_shardings and out_shardings must be of the same devices, got {found}"
            )
        self.device = found.pop() if found else None

    def check(
        self,
        in_avals: Sequence[Any],
        out_avals: Sequence[Any],
        in_tree: PyTreeDef,
        out_tree: PyTreeDef,
        static: Any,
    ) -> None:
        """Raise a ValueError unless arguments and results can be divided as it says."""
        if self.arguments is not None:
            self._check_arguments(in_avals, in_tree, static)
        _check("jit out_shardings", self.results, out_tree, out_avals)

    def _check_arguments(self, avals: Sequence[Any], tree: PyTreeDef, static: Any) -> None:
        if static is not None:
            tree, keywords = treedef_children(tree)
            if keywords.num_leaves:
                raise ValueError("jit: keyword arguments have no place in in_shardings")
        _check("jit in_shardings", self.arguments, tree, avals)

    def laid_out(self, run: Runner, tree: PyTreeDef) -> Runner:
        """The program whose results have the shardings that were asked for."""
        shardings = flatten_axes("jit out_shardings", tree, self.results)
        if not any(isinstance(s, NamedSharding) for s in shardings):
            return run

        def placed(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
            return [_named(x, s) for x, s in zip(run(args), shardings)]

        return placed


def _check(what: str, shardings: Any, tree: PyTreeDef, avals: Sequence[Any]) -> None:
    flat = flatten_axes(what, tree, shardings, tupled_args=what.endswith("in_shardings"))
    for sharding, aval in zip(flat, avals):
        if sharding is not None:
            sharding.shard_shape(aval.shape)


def _named(x: ConcreteArray, sharding: Any) -> ConcreteArray:
    if isinstance(x, PlacedArray) and isinstance(sharding, NamedSharding):
        return PlacedArray(x.aval, x.buffer, x.placement, sharding)
    return x
