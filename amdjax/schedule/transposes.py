"""Regions that only turn axes, as kernels that are told the sizes.

What turns weights runs once, as a program is loaded, and takes less time than its kernel takes to
compile. So one kernel serves arrays of all sizes.
"""

from __future__ import annotations

import math
from typing import Any

from amdjax.core.aval import ShapedArray
from amdjax.core.dims.sized import SizedScope, at_sizes
from amdjax.core.jaxpr import Jaxpr, JaxprEqn, Var
from amdjax.schedule.calls import Call
from amdjax.schedule.fusion import Fusion, Region, fuse
from amdjax.schedule.regions import lower_region
from amdjax.schedule.writer import Machine

__all__ = ["lower_transposes"]

#: Operations that leave elements where they are in memory.
_IN_PLACE = frozenset(("reshape", "squeeze", "expand_dims"))


def lower_transposes(region: Region, fusion: Fusion, target: Machine) -> list[Call] | None:
    """Kernels for a region of transpositions, which are told the sizes.

    None for another region, for one of symbolic sizes, and for one without elements.

    Args:
      region: what is computed.
      fusion: of the program.
      target: the machine.
    """
    if region.axes is not None or not all(isinstance(n, int) and n for n in region.domain):
        return None
    calls: list[Call] = []
    for root in region.roots:
        found = _turned(root.eqn, fusion)
        if found is None or not (root.vars and root.vars[0] in fusion.stored):
            return None
        source, turned = found
        calls += _sized(turned, source, root.vars[0], target)
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


def _sized(turned: JaxprEqn, source: Var, result: Var, target: Machine) -> list[Call]:
    """The launches that turn an array, of a program whose sizes are symbolic."""
    shape, order = _merged(turned.invars[0].aval.shape, turned.params["permutation"])
    scope = SizedScope({f"n{axis}": size for axis, size in enumerate(shape)})
    dims, dtype = tuple(scope.variables().values()), source.aval.dtype
    before = Var(ShapedArray(dims, dtype))
    after = Var(ShapedArray(tuple(dims[axis] for axis in order), dtype))
    eqn = turned.replace(
        invars=[before], outvars=[after], params={**turned.params, "permutation": order}
    )
    fusion = fuse(Jaxpr([], [before], [after], [eqn]))
    (region,) = fusion.steps
    assert isinstance(region, Region)
    names: dict[Var, Any] = {before: source, after: result}
    number = lambda x: at_sizes(x, scope.sizes)
    calls = []
    for call in lower_region(region, fusion, target):
        args = [names[x] if isinstance(x, Var) else number(x) for x in call.args]
        calls.append(Call(call.kernel, args, number(call.grid), number(call.nanoseconds)))
    scope.close()
    return calls


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
