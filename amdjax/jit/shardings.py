"""Shardings of what programs return: those `jit` is told, else those that follow from arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax.core.array import ConcreteArray, PlacedArray
from amdjax.core.config import config
from amdjax.core.constraints import as_sharding, check_layout, one_device_of
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.mesh import Mesh
from amdjax.core.pytree import PyTreeDef, tree_leaves, tree_map, treedef_children
from amdjax.core.pytree_errors import flatten_axes
from amdjax.core.sharding import Format, Layout, NamedSharding, PartitionSpec, space_of
from amdjax.jit.arrays import Runner
from amdjax.passes.shardings import result_shardings, shardings_of_types
from amdjax.transforms.transfers import laid_out
from amdjax.transforms.zero import in_space


def mesh_of_one_device() -> Mesh | None:
    """The current mesh, if programs can run on it."""
    mesh = config.mesh
    return mesh if isinstance(mesh, Mesh) and mesh.size == 1 else None


def replicated_here() -> NamedSharding | None:
    """The sharding of what is on the current mesh and not divided."""
    mesh = mesh_of_one_device()
    return None if mesh is None else NamedSharding(mesh, PartitionSpec())


def sharding_results(closed: ClosedJaxpr, run: Runner, always: bool) -> Runner:
    """A program whose results are sharded as follows from its arguments.

    Args:
      closed: the program.
      run: runs it on a device to which its results are committed.
      always: whether it mentions shardings, so that arguments need not have one.
    """
    context = mesh_of_one_device()
    known: dict[tuple[Any, ...], list[NamedSharding | None]] = {}

    def sharded(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        given = tuple([_told(x) for x in args])
        outs = run(args)
        shardings = known.get(given)
        if shardings is None:
            shardings = known[given] = result_shardings(closed, given, context)
        for x, sharding in zip(outs, shardings):
            if sharding is not None and type(x) is PlacedArray:
                x.named = sharding
        return outs

    if always or context is not None:
        return sharded

    def run_some(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        named = any([type(x) is PlacedArray and x.named is not None for x in args])
        return sharded(args) if named else run(args)

    run_some.native = getattr(run, "native", None)  # type: ignore[attr-defined]
    return run_some


def shardings_as_traced(
    closed: ClosedJaxpr, arguments: Sequence[Any]
) -> list[NamedSharding | None] | None:
    """The shardings of results as far as types tell of them; None if they tell of none.

    Args:
      closed: the program.
      arguments: arrays, or what stands for some.

    Raises:
      ValueError: one is on another mesh than the current one, and its axes are explicit.
    """
    given = [getattr(x, "sharding", None) for x in arguments]
    named = [s if isinstance(s, NamedSharding) else None for s in given]
    if not any(s is not None and s.mesh.explicit_axes for s in named):
        return None
    return shardings_of_types(closed, named, config.mesh)


def _told(x: ConcreteArray) -> Any:
    """What is known of where an argument belongs, None for nothing."""
    if type(x) is not PlacedArray:
        return None
    return x.named or (x.placement if x.placement.committed else None)


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
        self.arguments = tree_map(lambda s: _given(s, "jit in_shardings"), arguments)
        self.results = tree_map(lambda s: _given(s, "jit out_shardings"), results)
        self._given = [_bare(s) for s in tree_leaves((self.arguments, self.results))]
        found = {one_device_of(s, "jit") for s in self._given}
        if len(found) > 1:
            raise ValueError(
                f"jit: in_shardings and out_shardings must be of the same devices, got {found}"
            )
        self.device = found.pop() if found else None

    def check(
        self, in_avals: Sequence[Any], out_avals: Sequence[Any], in_tree: PyTreeDef,
        out_tree: PyTreeDef, static: Any,
    ) -> None:  # fmt: skip
        """Raise a ValueError unless arguments and results can be divided as it says."""
        if self.arguments is not None:
            shardings = self._of_arguments(in_tree, static)
            _check(shardings, in_avals)
            _check_memory(shardings, in_avals)
        _check(self._of_results(out_tree), out_avals)

    def of_results(self, tree: PyTreeDef) -> list[Any]:
        """The sharding of each leaf of the results, None for one that may be anywhere."""
        return [_bare(s) for s in self._of_results(tree)]

    def _of_results(self, tree: PyTreeDef) -> list[Any]:
        """The same, with layouts that were given."""
        return flatten_axes("jit out_shardings", tree, self.results)

    def _of_arguments(self, tree: PyTreeDef, static: Any) -> list[Any]:
        """The sharding of each leaf of the arguments, None for one that may come as it is."""
        if static is not None:
            tree, keywords = treedef_children(tree)
            if keywords.num_leaves:
                raise ValueError("jit: keyword arguments have no place in in_shardings")
        return flatten_axes("jit in_shardings", tree, self.arguments, tupled_args=True)

    def mark_arguments(self, leaves: Sequence[Any], tree: PyTreeDef, static: Any) -> list[Any]:
        """The arguments of a call inside another program, sharded as it says."""
        if self.arguments is None:
            return list(leaves)
        shardings = self._of_arguments(tree, static)
        return [laid_out("jit in_shardings", x, s) for x, s in zip(leaves, shardings)]

    def mark_results(self, outs: Sequence[Any], tree: PyTreeDef) -> list[Any]:
        """The results of such a call."""
        shardings = self._of_results(tree)
        return [laid_out("jit out_shardings", x, s) for x, s in zip(outs, shardings)]

    def in_memory(self, outs: Sequence[Any], tree: PyTreeDef) -> list[Any]:
        """Traced results in the memory spaces that were asked for."""
        spaces = map(space_of, self.of_results(tree))
        return [x if to is None else in_space(x, to) for x, to in zip(outs, spaces)]

    def laid_out(self, run: Runner, tree: PyTreeDef) -> Runner:
        """The program whose results have the shardings that were asked for."""
        shardings = self.of_results(tree)
        meshes = [s.mesh for s in self._given if isinstance(s, NamedSharding)]
        elsewhere = NamedSharding(meshes[0], PartitionSpec()) if meshes else None
        if elsewhere is None and not any(shardings):
            return run

        def placed(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
            outs = run(args)
            for x, sharding in zip(outs, shardings):
                if type(x) is PlacedArray:
                    if sharding is None:
                        x.named = x.named or elsewhere
                    else:
                        x.named = sharding if isinstance(sharding, NamedSharding) else None
            return outs

        return placed


def _check_memory(shardings: Sequence[Any], avals: Sequence[Any]) -> None:
    for sharding, aval in zip(shardings, avals):
        if space_of(sharding) not in (None, aval.memory_space):
            raise ValueError(
                "Memory kinds passed to jax.jit does not match memory kind on the respective arg. "
                f"Got jit memory kind: {_bare(sharding).memory_kind}, arg memory kind: "
                f"{aval.memory_space.kind} for arg type: {aval}"
            )


def _check(shardings: Sequence[Any], avals: Sequence[Any]) -> None:
    for sharding, aval in zip(shardings, avals):
        if sharding is not None:
            check_layout(sharding, aval.ndim, "jit")
            _bare(sharding).shard_shape(aval.shape)


def _bare(sharding: Any) -> Any:
    """A sharding without the layout that was given with it."""
    return sharding.sharding if isinstance(sharding, Format) else sharding


def _given(sharding: Any, what: str) -> Any:
    """A sharding as `jit` may be given it.

    Raises:
      ValueError: it leaves an axis to the compiler, or is over no devices.
    """
    if isinstance(sharding, Layout) or sharding is Layout.AUTO:
        raise ValueError(
            f"`jax.jit` does not accept device-local layouts directly: {what} takes a Format of "
            f"one. Got {sharding}"
        )
    if isinstance(sharding, Format):
        if sharding.sharding is None:
            return None
        as_sharding(sharding, what)
        return sharding
    sharding = as_sharding(sharding, what)
    if isinstance(sharding, NamedSharding):
        if sharding.mesh.empty:
            raise ValueError(f"{what} got an empty NamedSharding: {sharding}")
        if PartitionSpec.UNCONSTRAINED in sharding.spec.partitions:
            raise ValueError(
                f"Unconstrained dims are not allowed in {what}, got {sharding.spec}: "
                "with_sharding_constraint takes them, inside the function."
            )
    return sharding
