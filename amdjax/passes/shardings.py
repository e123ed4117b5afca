"""How a program's arguments, divided along the axes of a mesh, divide its results.

Shardings are no part of a value's type here, so that a program is traced and compiled once whatever
they are. What they make of its results is found afterwards, by going through the program: a value
is on a mesh if something that it is computed from is, and the mesh's explicit axes pass from
operands to results as the rules at the end of this file say. Axes of type `Auto` are the compiler's
to choose: a result has them as the first sharded argument does if their ranks agree, else none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, subjaxprs
from amdjax.core.mesh import AbstractMesh, Mesh
from amdjax.core.sharding import NamedSharding, PartitionSpec, Space, explicit_entries
from amdjax.passes.axes import alike_axes

# Primitives that only say how a value is sharded, and by which parameter.
_MARKS = {"sharding_constraint": "sharding", "reshard": "dst_sharding"}

Axes = tuple[Any, ...]  # for each axis of a value, the explicit axes of the mesh that divide it


class Spread(NamedTuple):
    """On which mesh a value is, and along which of its explicit axes it is divided."""

    mesh: AbstractMesh
    axes: Axes


def result_shardings(
    closed: ClosedJaxpr, arguments: Sequence[Any], context: Any
) -> list[NamedSharding | None]:
    """The shardings of a program's results; None for those that are on a device, not on a mesh.

    Args:
      closed: the program.
      arguments: for each argument its `NamedSharding`; something else if it is committed to a
        device, None if to none.
      context: the current mesh, None or empty if there is none.

    Raises:
      ValueError: an operand is on another mesh than the current one, whose axes are explicit.
    """
    found = _Propagation(None if context is None or context.empty else context)
    consts = found.consts(closed)
    given = [found.given(s, v) for s, v in zip(arguments, closed.jaxpr.invars, strict=True)]
    results = found.through(closed.jaxpr, [*consts, *given])
    _, read = dce_jaxpr(closed.jaxpr, [True] * len(results))
    told = zip(arguments, closed.jaxpr.invars, read)
    leader, rank = next(((s, v.aval.ndim) for s, v, r in told if r and s is not None), (None, 0))
    if leader is None:  # what is on a mesh inside the program decides, or the current mesh
        leader = next(iter(found.named), None) or _replicated(found.context)

    def named(spread: Spread | None, aval: Any) -> NamedSharding | None:
        mesh = None if spread is None else found.meshes.get(spread.mesh)
        if spread is not None and mesh is not None and mesh.explicit_axes:
            return NamedSharding(mesh, PartitionSpec(*spread.axes))
        if not isinstance(leader, NamedSharding):
            return None
        if mesh is leader.mesh and rank == aval.ndim:
            return leader
        return NamedSharding(mesh or leader.mesh, PartitionSpec())

    return [named(s, v.aval) for s, v in zip(results, closed.jaxpr.outvars)]


def shardings_of_types(
    closed: ClosedJaxpr, arguments: Sequence[Any], context: Any
) -> list[NamedSharding | None]:
    """How results are divided along explicit axes, over a mesh without devices.

    Args and Raises are those of `result_shardings`; meshes need have no devices.
    """
    found = _Propagation(None if context is None or context.empty else context)
    given = [found.given(s, v) for s, v in zip(arguments, closed.jaxpr.invars, strict=True)]
    return [
        NamedSharding(s.mesh, PartitionSpec(*s.axes)) if s and s.mesh.explicit_axes else None
        for s in found.call(closed, given)
    ]


def shardings_in(program: Jaxpr | ClosedJaxpr) -> Iterator[NamedSharding]:
    """The shardings over devices that a program mentions."""
    jaxpr = program
    if isinstance(program, ClosedJaxpr):
        jaxpr = program.jaxpr
        given = (getattr(c, "named", None) for c in program.consts)
        yield from (s for s in given if s is not None)
    for eqn in jaxpr.eqns:
        told = (*map(eqn.params.get, _MARKS.values()), *eqn.params.get("devices", ()))
        yield from (s for s in told if _is_over_devices(s))
    for inner in subjaxprs(program):
        yield from shardings_in(inner)


def _is_over_devices(sharding: Any) -> bool:
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh)


def _replicated(mesh: Mesh | None) -> NamedSharding | None:
    return None if mesh is None else NamedSharding(mesh, PartitionSpec())


class _Propagation:
    """What is known while shardings go through a program.

    Attributes:
      context: the current mesh, if there is one.
      meshes: those with devices, by what they are without.
      named: the shardings that the program mentions.
    """

    def __init__(self, context: Mesh | None):
        self.context = context
        self.meshes: dict[AbstractMesh, Mesh] = {}
        self.named: list[NamedSharding] = []
        if isinstance(context, Mesh):
            self.meshes[context.abstract_mesh] = context

    def given(self, sharding: Any, var: Any) -> Spread | None:
        """What a sharding makes of a value."""
        if isinstance(sharding, NamedSharding):
            abstract: AbstractMesh = sharding.mesh.abstract_mesh
            if isinstance(sharding.mesh, Mesh):
                self.meshes.setdefault(abstract, sharding.mesh)
            return Spread(abstract, explicit_entries(sharding, var.aval.ndim))
        if self.context is None:
            return None
        return Spread(self.context.abstract_mesh, (None,) * getattr(var.aval, "ndim", 0))

    def through(self, jaxpr: Jaxpr, arguments: Sequence[Spread | None]) -> list[Spread | None]:
        """The results of a program of such constants and arguments."""
        env: dict[Any, Spread | None] = dict(zip((*jaxpr.constvars, *jaxpr.invars), arguments))
        read = lambda v: None if type(v) is Literal else env[v]
        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outvars, self.results(eqn, [read(v) for v in eqn.invars])))
        return [read(v) for v in jaxpr.outvars]

    def call(self, closed: ClosedJaxpr, arguments: Sequence[Spread | None]) -> list[Spread | None]:
        return self.through(closed.jaxpr, [*self.consts(closed), *arguments])

    def consts(self, closed: ClosedJaxpr) -> list[Spread | None]:
        named = [getattr(c, "named", None) for c in closed.consts]
        return [self.given(s, v) for s, v in zip(named, closed.jaxpr.constvars, strict=True)]

    def results(self, eqn: JaxprEqn, operands: list[Spread | None]) -> list[Spread | None]:
        """The results of an equation."""
        params, name = eqn.params, eqn.primitive.name
        if name in _MARKS:
            return [self.told(params[_MARKS[name]], eqn.outvars[0])]
        if name == "device_put":
            return [
                s if d is None or isinstance(d, Space) else self.told(d, v)
                for d, v, s in zip(params["devices"], eqn.outvars, operands)
            ]
        if name == "cond":
            return self.call(params["branches"][0], operands[1:])
        if name == "while":
            return operands[params["cond_nconsts"] + params["body_nconsts"] :]
        if name == "scan":
            return self.scan(params, operands)
        called = params.get("jaxpr", params.get("call_jaxpr"))
        if isinstance(called, ClosedJaxpr) and len(called.jaxpr.invars) == len(operands):
            return self.call(called, operands)
        return self.moved(eqn, operands)

    def told(self, sharding: Any, var: Any) -> Spread | None:
        """What a program says of a value."""
        if _is_over_devices(sharding):
            self.named.append(sharding)
        return self.given(sharding, var)

    def scan(self, params: Any, operands: list[Spread | None]) -> list[Spread | None]:
        carries = params["num_consts"] + params["num_carry"]
        slices = [s and Spread(s.mesh, s.axes[1:]) for s in operands[carries:]]
        outs = self.call(params["jaxpr"], [*operands[:carries], *slices])
        stacked = [s and Spread(s.mesh, (None, *s.axes)) for s in outs[params["num_carry"] :]]
        return [*operands[params["num_consts"] : carries], *stacked]

    def moved(self, eqn: JaxprEqn, operands: list[Spread | None]) -> list[Spread | None]:
        """The results of an operation that only its operands' axes pass through."""
        mesh = self.mesh_of(eqn, operands)
        if mesh is None:
            return [None] * len(eqn.outvars)
        if not mesh.explicit_axes:
            return [Spread(mesh, (None,) * v.aval.ndim) for v in eqn.outvars]
        axes = [
            (None,) * v.aval.ndim if s is None or s.mesh is not mesh else s.axes
            for s, v in zip(operands, eqn.invars)
        ]
        rule = RULES.get(eqn.primitive.name, _same_shape)
        return [
            Spread(mesh, _fitting(mesh, rule(eqn, axes, v.aval), v.aval.shape)) for v in eqn.outvars
        ]

    def mesh_of(self, eqn: JaxprEqn, operands: Sequence[Spread | None]) -> AbstractMesh | None:
        """The mesh that results are on: the current one, else that of an operand."""
        meshes = [s.mesh for s in operands if s is not None]
        if self.context is None:
            return meshes[0] if meshes else None
        context = self.context.abstract_mesh
        for mesh in meshes:
            if mesh is not context and mesh.explicit_axes:
                raise ValueError(
                    f"For primitive {eqn.primitive.name}, the context mesh {context} should be the "
                    f"aval mesh of its operands, but one is on {mesh}. Put them on one mesh with "
                    "device_put, or make theirs the current one with set_mesh."
                )
        return context


def _fitting(mesh: AbstractMesh, axes: Axes, shape: Sequence[int]) -> Axes:
    """Axes without those that come twice or divide no extent."""
    seen: set[Any] = set()
    kept = []
    for entry, extent in zip(axes, shape, strict=True):
        names = () if entry is None else entry if isinstance(entry, tuple) else (entry,)
        fits = seen.isdisjoint(names) and extent % math.prod(mesh.shape[n] for n in names) == 0
        kept.append(entry if fits else None)
        seen.update(names if fits else ())
    return tuple(kept)


# Rules: the axes of a result of type `out`, from those of the operands

Rule = Callable[[JaxprEqn, Sequence[Axes], Any], Axes]


def _same_shape(eqn: JaxprEqn, axes: Sequence[Axes], out: Any) -> Axes:
    """Of operations element by element: what any operand of the result's shape says."""
    alike = [a for a, v in zip(axes, eqn.invars) if v.aval.shape == out.shape]
    return tuple(next(filter(None, entries), None) for entries in zip(*alike)) or (None,) * out.ndim


def _same_rank(eqn: JaxprEqn, axes: Sequence[Axes], out: Any) -> Axes:
    """Of operations that lengthen or shorten axes."""
    return next((a for a in axes if len(a) == out.ndim and any(a)), (None,) * out.ndim)


def _without(name: str) -> Rule:
    """Of operations that take axes away."""

    def rule(eqn: JaxprEqn, axes: Sequence[Axes], out: Any) -> Axes:
        gone = eqn.params[name]
        return tuple(entry for i, entry in enumerate(axes[0]) if i not in gone)

    return rule


def _transposed(eqn: JaxprEqn, axes: Sequence[Axes], out: Any) -> Axes:
    return tuple(axes[0][i] for i in eqn.params["permutation"])


def _broadcast(eqn: JaxprEqn, axes: Sequence[Axes], out: Any) -> Axes:
    entries = [None] * out.ndim
    for i, entry in zip(eqn.params["broadcast_dimensions"], axes[0]):
        entries[i] = entry
    return tuple(entries)


def _product(eqn: JaxprEqn, axes: Sequence[Axes], out: Any) -> Axes:
    contracted, batched = eqn.params["dimension_numbers"]
    free = [
        entry
        for operand, *used in zip(axes, contracted, batched)
        for i, entry in enumerate(operand)
        if i not in (*used[0], *used[1])
    ]
    return (*(axes[0][i] for i in batched[0]), *free)


def _gathered(eqn: JaxprEqn, axes: Sequence[Axes], out: Any) -> Axes:
    numbers = eqn.params["dimension_numbers"]
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [entry for i, entry in enumerate(axes[0]) if i not in gone]
    entries = dict(zip(numbers.offset_dims, kept, strict=True))
    return tuple(entries.get(i) for i in range(out.ndim))


def _reshaped(eqn: JaxprEqn, axes: Sequence[Axes], out: Any) -> Axes:
    """Axes that are joined or split: what the first one says, if others say nothing."""
    entries = [None] * out.ndim
    for old, new in alike_axes(eqn.invars[0].aval.shape, out.shape):
        named = [i for i in old if axes[0][i] is not None]
        if named and named == old[:1] and new:
            entries[new[0]] = axes[0][named[0]]
    return tuple(entries)


RULES: dict[str, Rule] = {
    "transpose": _transposed,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshaped,
    "dot_general": _product,
    "gather": _gathered,
    "squeeze": _without("dimensions"),
    **dict.fromkeys(
        ("slice", "dynamic_slice", "pad", "concatenate", "reduce_window_sum", "split", "top_k"),
        _same_rank,
    ),
    **{
        f"reduce_{op}": _without("axes") for op in ("sum", "max", "min", "prod", "and", "or", "xor")
    },
    **dict.fromkeys(("argmax", "argmin"), _without("axes")),
}
