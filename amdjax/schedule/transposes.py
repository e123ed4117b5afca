"""Regions that only turn axes, as kernels that are told the sizes.

What turns weights runs once, as a program is loaded, and takes less time than its kernel takes to
compile. So one kernel serves arrays of all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from amdjax.core.aval import ShapedArray
from amdjax.core.dims.sized import SizedScope, at_sizes
from amdjax.core.jaxpr import Jaxpr, JaxprEqn, Var
from amdjax.schedule.calls import Call
from amdjax.schedule.fusion import Fusion, Region, fuse
from amdjax.schedule.regions import lower_region
from amdjax.schedule.writer import Machine

#: Operations that leave elements where they are in memory.
_IN_PLACE = frozenset(("reshape", "squeeze", "expand_dims"))


class Transposition(NamedTuple):
    """Launches that turn the axes of an array, as they were planned for some sizes.

    Attributes:
      scope: of the sizes.
      operand, result: the array and what it becomes.
      calls: the launches.
    """

    scope: SizedScope
    operand: Var
    result: Var
    calls: list[Call]

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether the same would be planned for these."""
        return all(x.holds(sizes) for x in (*self.scope.required, *self.scope.preferred))

    def at(self, sizes: Mapping[str, int], source: Var, result: Var) -> list[Call]:
        """The launches for other arrays."""
        names: dict[Var, Any] = {self.operand: source, self.result: result}
        number = lambda x: at_sizes(x, sizes)
        calls = []
        for call in self.calls:
            args = [names[x] if isinstance(x, Var) else number(x) for x in call.args]
            calls.append(Call(call.kernel, args, number(call.grid), number(call.nanoseconds)))
        return calls


#: What is known of turning arrays of a dtype to an order of their axes.
Transpositions = dict[tuple[Any, tuple[int, ...]], list[Transposition]]


def lower_transposes(
    region: Region, fusion: Fusion, target: Machine, known: Transpositions
) -> list[Call] | None:
    """Kernels for a region of transpositions, which are told the sizes.

    None for another region, for one of symbolic sizes, and for one without elements.

    Args:
      region: what is computed.
      fusion: of the program.
      target: the machine.
      known: what was planned before, to which is added.
    """
    if region.axes is not None or not all(isinstance(n, int) and n for n in region.domain):
        return None
    calls: list[Call] = []
    for root in region.roots:
        found = _turned(root.eqn, fusion)
        if found is None or not (root.vars and root.vars[0] in fusion.stored):
            return None
        source, turned = found
        calls += _sized(turned, source, root.vars[0], target, known)
    return calls


def _turned(eqn: JaxprEqn, fusion: Fusion) -> tuple[Var, JaxprEqn] | None:
    """The value in memory whose axes are turned, and what turns them; None for anything else."""
    turned: JaxprEqn | None = None
    while True:
        if eqn.primitive.name == "transpose" and turned is None:
            turned = eqn
        elif eqn.primitive.name not in _IN_PLACE:
            return None
        (source,) = eqn.invars
        if not isinstance(source, Var):
            return None
        maker = None if source in fusion.roots else fusion.producers.get(source)
        if maker is None:
            return None if turned is None else (source, turned)
        eqn = maker


def _sized(
    turned: JaxprEqn, source: Var, result: Var, target: Machine, known: Transpositions
) -> list[Call]:
    """The launches that turn an array, of a program whose sizes are symbolic."""
    shape, order = _merged(turned.invars[0].aval.shape, turned.params["permutation"])
    sizes = {f"n{axis}": size for axis, size in enumerate(shape)}
    alike = known.setdefault((source.aval.dtype, order), [])
    found = next((turn for turn in alike if turn.serves(sizes)), None)
    if found is None:
        found = _planned(turned, source.aval.dtype, order, SizedScope(sizes), target)
        alike.append(found)
    return found.at(sizes, source, result)


def _planned(
    turned: JaxprEqn, dtype: Any, order: tuple[int, ...], scope: SizedScope, target: Machine
) -> Transposition:
    dims = tuple(scope.variables().values())
    before = Var(ShapedArray(dims, dtype))
    after = Var(ShapedArray(tuple(dims[axis] for axis in order), dtype))
    eqn = turned.replace(
        invars=[before], outvars=[after], params={**turned.params, "permutation": order}
    )
    fusion = fuse(Jaxpr([], [before], [after], [eqn]))
    (region,) = fusion.steps
    assert isinstance(region, Region)
    calls = list(lower_region(region, fusion, target))
    scope.close()
    return Transposition(scope, before, after, calls)


def _merged(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    """Sizes of an array and the order of its axes, of which those that stay together are one."""
    runs: list[list[int]] = []
    long = [axis for axis in range(len(shape)) if shape[axis] != 1]
    for axis in (long.index(axis) for axis in order if axis in long):
        if runs and runs[-1][-1] == axis - 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    places = sorted(range(len(runs)), key=lambda run: runs[run][0])
    sizes = [math.prod(shape[long[axis]] for axis in runs[run]) for run in places]
    return sizes, tuple(places.index(run) for run in range(len(runs)))
