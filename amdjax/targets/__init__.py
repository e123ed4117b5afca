"""Descriptions of the machines code is generated for.

`get("gfx942")` returns a `GpuTarget`; `names()` lists what is known. `cpu.CpuTarget` describes the
CPU.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from importlib import import_module

from amdjax.targets.gpu import Device, GpuTarget, MatrixInstruction
from amdjax.targets.occupancy import Occupancy, occupancy

__all__ = [
    "Device",
    "GpuTarget",
    "MatrixInstruction",
    "Occupancy",
    "get",
    "names",
    "occupancy",
]

# One module a machine; siblings that differ in little share their module.
_MODULES = (
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1030",
    "gfx1100",
    "gfx1201",
    "gfx1250",
    "sm_80",
    "sm_90",
)


def _tables() -> Iterator[GpuTarget]:
    for module in _MODULES:
        yield from import_module(f"{__name__}.{module}").TARGETS


@cache
def _known() -> dict[str, GpuTarget]:
    return {target.name: target for target in _tables()}


def names() -> tuple[str, ...]:
    """The names that `get` accepts."""
    return tuple(_known())


def get(name: str) -> GpuTarget:
    """The target of a name such as `gfx942`.

    Features that a driver appends to the name, as in `gfx90a:sramecc+:xnack-`, are left aside: the
    code generated here runs with either setting.

    Raises:
      ValueError: no such target; the message lists the known ones and the nearest.
    """
    known = _known()
    base = name.partition(":")[0].strip()
    if base in known:
        return known[base]
    near = difflib.get_close_matches(base.lower(), known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown GPU target {name!r}.{hint} Known targets: {', '.join(known)}.")
